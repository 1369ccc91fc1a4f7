package ledger

import (
	"cmp"
	"context"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"

	"github.com/sessionledger/ledger/tmux"
)

// probeMux is the [MuxProbe] that asks tmux and dtach: one listing for each server of the
// given sessions, all at the same time. What a server does not definitely say is left out.
// A session whose server's socket is not known is looked for in the store's own servers
// and in more.
func (s *Store) probeMux(more []tmux.Server, lists *listings) MuxProbe {
	return func(ctx context.Context, entries []Entry) map[string]MuxState {
		p := &muxProbe{s: s, lists: lists, states: map[string]MuxState{}, rows: map[string][]Entry{}, servers: map[string]tmux.Server{}}
		var wait sync.WaitGroup
		for _, e := range entries {
			switch {
			case e.Mux.Kind == MuxDtach:
				wait.Go(func() { p.note(e.LedgerID, probeDtach(ctx, e.Mux.Socket)) })
			case e.Mux.Kind == MuxTmux && e.Mux.Socket != "":
				p.rows[e.Mux.Socket] = append(p.rows[e.Mux.Socket], e)
				p.servers[e.Mux.Socket] = s.server(e.Mux.Socket, ProcessID{})
			case e.Mux.Kind == MuxTmux:
				p.lost = append(p.lost, e)
			}
		}
		if len(p.lost) > 0 {
			for _, srv := range slices.Concat(s.servers, more) {
				p.servers[socketOf(srv)] = srv
			}
		}
		for socket, server := range p.servers {
			wait.Go(func() { p.ask(ctx, socket, server) })
		}
		wait.Wait()
		return p.states
	}
}

// muxProbe is one look at the multiplexers of some sessions.
type muxProbe struct {
	s       *Store
	lists   *listings
	servers map[string]tmux.Server // by socket
	rows    map[string][]Entry     // by socket
	lost    []Entry                // in a tmux server that only its panes tell

	mu     sync.Mutex
	states map[string]MuxState
}

func (p *muxProbe) note(id string, st MuxState) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if st != MuxUnknown {
		p.states[id] = st
	}
}

// ask takes the one listing of a server. The rows of one socket can name different servers:
// it may have been started anew. The listing says which one it is of.
func (p *muxProbe) ask(ctx context.Context, socket string, server tmux.Server) {
	listing, err := p.lists.of(ctx, server)
	for _, e := range p.rows[socket] {
		p.note(e.LedgerID, p.s.muxState(&e, listing, err))
	}
	if err != nil {
		return
	}
	for _, e := range p.lost {
		if pane, ok := p.s.paneAbove(&e, listing); ok {
			p.note(e.LedgerID, attachedTo(listing, pane.ID))
		}
	}
}

// muxState reads one session's state from the listing of its server.
func (s *Store) muxState(e *Entry, listing tmux.Listing, err error) MuxState {
	if err != nil {
		if s.server(e.Mux.Socket, e.PaneServer).Presence(err) == tmux.Absent {
			return MuxNone
		}
		return MuxUnreachable
	}
	if e.PaneServer.IsZero() || e.PaneID == "" {
		found, ok := listing.Session(e.Mux.Target)
		return muxShown(ok, found.Attached > 0)
	}
	switch listing.HasPane(serverID(e.PaneServer), e.PaneID) {
	case tmux.Present:
		return attachedTo(listing, e.PaneID)
	case tmux.Absent:
		return MuxNone
	}
	if s.procs.verdict(e.PaneServer) == Gone {
		return MuxNone // another server answers at the socket, and took nothing over
	}
	return MuxUnreachable
}

// attachedTo reads whether anybody looks at a pane: a person may have moved it, or linked
// its window into several sessions.
func attachedTo(l tmux.Listing, pane string) MuxState {
	there, attached := false, false
	for _, p := range l.Panes {
		if p.ID != pane {
			continue
		}
		there = true
		for _, sess := range l.Sessions {
			attached = attached || sess.ID == p.SessionID && sess.Attached > 0
		}
	}
	return muxShown(there, attached)
}

func muxShown(there, attached bool) MuxState {
	switch {
	case !there:
		return MuxNone
	case attached:
		return MuxAttached
	}
	return MuxDetached
}

// paneAbove finds the pane in which a row's running process was started.
func (s *Store) paneAbove(e *Entry, l tmux.Listing) (tmux.Pane, bool) {
	if s.procs.verdict(e.Process()) != Running {
		return tmux.Pane{}, false
	}
	p, err := s.chainPass(e.PID)
	if err != nil {
		return tmux.Pane{}, false
	}
	below := []int{e.PID}
	for above := range p.snap.Ancestors(e.PID) {
		if above.PID == l.Server.PID && isTmuxServer(above) {
			return paneOf(l, below)
		}
		below = append(below, above.PID)
	}
	return tmux.Pane{}, false
}

func paneOf(l tmux.Listing, pids []int) (tmux.Pane, bool) {
	for _, p := range l.Panes {
		if !p.Dead && slices.Contains(pids, p.PID) {
			return p, true
		}
	}
	return tmux.Pane{}, false
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

// server is the tmux server at a socket, run as the embedder says where he names it. With
// a process it is that one alone, whose end makes a missing socket a definite absence.
func (s *Store) server(socket string, process ProcessID) tmux.Server {
	srv := tmux.Server{Socket: socket}
	for _, own := range s.servers {
		if socketOf(own) == socket {
			srv = own
		}
	}
	srv.Process = serverID(process)
	srv.Probe = func(pid int, ticks uint64) tmux.Presence {
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
	}
	return srv
}

// socketOf is the path of a server's socket, as rows record it.
func socketOf(srv tmux.Server) string {
	if srv.Socket != "" {
		return srv.Socket
	}
	dir := cmp.Or(os.Getenv("TMUX_TMPDIR"), "/tmp")
	if real, err := filepath.EvalSymlinks(dir); err == nil {
		dir = real
	}
	return filepath.Join(dir, "tmux-"+strconv.Itoa(os.Getuid()), cmp.Or(srv.Name, "default"))
}

func serverID(p ProcessID) tmux.ServerID {
	if p.IsZero() {
		return tmux.ServerID{}
	}
	return tmux.ServerID{PID: p.PID, StartTicks: p.StartTicks}
}

// paneOfRow finds the pane that a row names in a listing of its very server: under the
// session that the row names too, if it is linked into several.
func paneOfRow(l tmux.Listing, e *Entry) (found tmux.Pane, ok bool) {
	if l.HasPane(serverID(e.PaneServer), e.PaneID) != tmux.Present {
		return tmux.Pane{}, false
	}
	for _, p := range l.Panes {
		if p.ID == e.PaneID && (!ok || p.Session == e.Mux.Target) {
			found, ok = p, true
		}
	}
	return found, ok
}

// paneIn finds the pane in which one of the processes was started.
func paneIn(listing tmux.Listing, serverPID int, panePIDs []int) (session, window, pane string, ok bool) {
	if listing.Server.PID != serverPID {
		return "", "", "", false
	}
	p, ok := paneOf(listing, panePIDs)
	return p.Session, p.Window, p.ID, ok
}
