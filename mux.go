package ledger

import (
	"context"
	"slices"
	"sync"

	"github.com/sessionledger/ledger/tmux"
)

// ProbeMux is the [MuxProbe] that asks tmux and dtach: one listing for each server of the
// given sessions, all at the same time. What a server does not definitely say is left out.
func (s *Store) ProbeMux(ctx context.Context, entries []Entry) map[string]MuxState {
	states := map[string]MuxState{}
	var mu sync.Mutex
	note := func(id string, st MuxState) {
		mu.Lock()
		defer mu.Unlock()
		if st != MuxUnknown {
			states[id] = st
		}
	}
	servers := map[string][]Entry{}
	var wait sync.WaitGroup
	for _, e := range entries {
		switch {
		case e.Mux.Kind == MuxDtach:
			wait.Go(func() { note(e.LedgerID, probeDtach(ctx, e.Mux.Socket)) })
		case e.Mux.Kind == MuxTmux && e.Mux.Socket != "":
			servers[e.Mux.Socket] = append(servers[e.Mux.Socket], e)
		}
	}
	for socket, rows := range servers {
		wait.Go(func() {
			// The rows of one socket can name different servers: it may have been started
			// anew. A listing says which one it is of.
			listing, err := s.server(socket, ProcessID{}).List(ctx)
			for _, e := range rows {
				note(e.LedgerID, s.muxState(&e, listing, err))
			}
		})
	}
	wait.Wait()
	return states
}

// muxState reads one session's state from the listing of its server.
func (s *Store) muxState(e *Entry, listing tmux.Listing, err error) MuxState {
	if err != nil {
		if s.server(e.Mux.Socket, e.PaneServer).Presence(err) == tmux.Absent {
			return MuxNone
		}
		return MuxUnreachable
	}
	session := e.Mux.Target
	if !e.PaneServer.IsZero() && e.PaneID != "" {
		switch listing.HasPane(serverID(e.PaneServer), e.PaneID) {
		case tmux.Absent:
			return MuxNone
		case tmux.Unknown:
			return MuxUnreachable // another server answers at its socket
		}
		pane, _ := listing.Pane(e.PaneID)
		session = pane.Session // a person may have moved it
	}
	found, ok := listing.Session(session)
	switch {
	case !ok:
		return MuxNone
	case found.Attached > 0:
		return MuxAttached
	}
	return MuxDetached
}

func probeDtach(ctx context.Context, socket string) MuxState {
	session, attached, err := tmux.Dtach(ctx, socket)
	switch {
	case err != nil, session == tmux.Unknown:
		return MuxUnreachable
	case session == tmux.Absent:
		return MuxNone
	case attached == tmux.Present:
		return MuxAttached
	case attached == tmux.Absent:
		return MuxDetached
	}
	return MuxUnknown
}

// server is the tmux server at a socket. With a process it is that one alone, whose end
// makes a missing socket a definite absence.
func (s *Store) server(socket string, process ProcessID) tmux.Server {
	return tmux.Server{
		Socket:  socket,
		Process: serverID(process),
		Probe: func(pid int, ticks uint64) tmux.Presence {
			if process.PID != pid || process.StartTicks != ticks {
				return tmux.Unknown
			}
			switch s.procs.verdict(process) {
			case Running:
				return tmux.Present
			case Gone:
				return tmux.Absent
			}
			return tmux.Unknown
		},
	}
}

func serverID(p ProcessID) tmux.ServerID {
	if p.IsZero() {
		return tmux.ServerID{}
	}
	return tmux.ServerID{PID: p.PID, StartTicks: p.StartTicks}
}

// LookUpPane is the [PaneLookup] that asks tmux: one listing, bounded by ctx.
func (s *Store) LookUpPane(ctx context.Context, socket string, serverPID int, panePIDs []int) (session, window, pane string, ok bool) {
	listing, err := s.server(socket, ProcessID{}).List(ctx)
	if err != nil {
		return "", "", "", false
	}
	return paneIn(listing, serverPID, panePIDs)
}

// paneIn finds the pane in which one of the processes was started.
func paneIn(listing tmux.Listing, serverPID int, panePIDs []int) (session, window, pane string, ok bool) {
	if listing.Server.PID != serverPID {
		return "", "", "", false
	}
	for _, p := range listing.Panes {
		if !p.Dead && slices.Contains(panePIDs, p.PID) {
			return p.Session, p.Window, p.ID, true
		}
	}
	return "", "", "", false
}
