package ledger

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// Query names a row by something other than its id. Exactly one member is set.
type Query struct {
	Prefix       string       // a ledger id, or the beginning of exactly one
	Process      ProcessID    // the process that the row records
	PID          int          // the same, by the pid of a running process
	Ancestor     int          // the nearest ancestor of this pid, itself included, that has a row
	Conversation Conversation // an open row's
	Pane         Pane         // an open row's
	Place        Place        // an open row's
}

// Conversation is a runtime's own conversation id.
type Conversation struct{ Runtime, ID string }

// Pane is a tmux pane of one server process. Socket, its absolute path, may stand for
// the server where the process is not known.
type Pane struct {
	ID     string
	Server ProcessID
	Socket string
}

// Place is a window of a project. Slot 0 is its first agent.
type Place struct {
	Root, Window string
	Slot         int
}

// Find returns the one row that q names. Processes, conversations and places are looked
// up in a time that does not depend on the number of rows, as long as the claims on disk
// are complete; else, and for panes, the open rows are read.
//
// The error is [ErrNotFound], [ErrInvalid] for an ambiguous prefix or a query that does
// not set exactly one member, or a *[DamagedError] where a damaged row is the answer.
func (s *Store) Find(ctx context.Context, q Query) (Entry, error) {
	if err := s.begin(ctx); err != nil {
		return Entry{}, err
	}
	var set []func() (Entry, error)
	add := func(given bool, find func() (Entry, error)) {
		if given {
			set = append(set, find)
		}
	}
	add(q.Prefix != "", func() (Entry, error) { return s.findPrefix(ctx, q.Prefix) })
	add(q.Process != ProcessID{}, func() (Entry, error) { return s.findClaim(ctx, processClaim(s.local(q.Process))) })
	add(q.PID != 0, func() (Entry, error) { return s.findPID(ctx, q.PID) })
	add(q.Ancestor != 0, func() (Entry, error) { return s.findAncestor(ctx, q.Ancestor) })
	add(q.Conversation != Conversation{}, func() (Entry, error) {
		return s.findClaim(ctx, conversationClaim(q.Conversation.Runtime, q.Conversation.ID))
	})
	add(q.Pane != Pane{}, func() (Entry, error) {
		return s.findOpen(ctx, func(e *Entry) bool {
			return e.PaneID == q.Pane.ID && (q.Pane.Server.Same(e.PaneServer) ||
				q.Pane.Server.IsZero() && q.Pane.Socket != "" && e.Mux.Socket == q.Pane.Socket)
		})
	})
	add(q.Place != Place{}, func() (Entry, error) {
		return s.findClaim(ctx, placeClaim(q.Place.Root, q.Place.Window, q.Place.Slot))
	})
	if len(set) != 1 {
		return Entry{}, fmt.Errorf("ledger: find: %w: %d members of the query are set, not one", ErrInvalid, len(set))
	}
	return set[0]()
}

func noMatch() error { return fmt.Errorf("ledger: find: %w", ErrNotFound) }

// findPrefix prefers an open row: a finished one is meant only where no open one fits.
func (s *Store) findPrefix(ctx context.Context, prefix string) (Entry, error) {
	if err := checkID(prefix); err != nil {
		return Entry{}, err
	}
	if e, err := s.Get(ctx, prefix); !errors.Is(err, ErrNotFound) {
		return e, err
	}
	for _, sub := range []string{dirSessions, dirFinished} {
		ids, err := s.idsWith(ctx, sub, prefix)
		if err != nil {
			return Entry{}, err
		}
		switch len(ids) {
		case 0:
		case 1:
			return s.Get(ctx, ids[0])
		default:
			return Entry{}, fmt.Errorf("ledger: find: %w: %q begins %d ids, among them %q and %q", ErrInvalid, prefix, len(ids), ids[0], ids[1])
		}
	}
	return Entry{}, fmt.Errorf("ledger: %w: no id begins with %q", ErrNotFound, prefix)
}

// idsWith lists the ids in a folder that begin with prefix, without reading the rows.
func (s *Store) idsWith(ctx context.Context, sub, prefix string) (ids []string, err error) {
	names, _, err := s.list(ctx, sub)
	if err != nil {
		return nil, fmt.Errorf("ledger: find: %w", err)
	}
	for _, name := range names {
		if id := strings.TrimSuffix(name, rowExtension); strings.HasPrefix(id, prefix) && isPlainID(id) {
			ids = append(ids, id)
		}
	}
	return ids, nil
}

func (s *Store) findPID(ctx context.Context, pid int) (Entry, error) {
	p, err := s.procs.identify(pid)
	if isGone(err) {
		return Entry{}, fmt.Errorf("ledger: find: %w: process %d does not run", ErrNotFound, pid)
	}
	if err != nil {
		return Entry{}, fmt.Errorf("%w: %w", ErrUnknown, err)
	}
	return s.findClaim(ctx, processClaim(p))
}

// errBroken says that a process ended while the chain above it was walked.
var errBroken = errors.New("an ancestor ended meanwhile")

// findAncestor walks up from pid. Where an ancestor ends meanwhile, its children have
// another parent by now, and the walk begins anew.
func (s *Store) findAncestor(ctx context.Context, pid int) (e Entry, err error) {
	for range 5 {
		if e, err = s.walkUp(ctx, pid); err != errBroken {
			return e, err
		}
	}
	return e, fmt.Errorf("ledger: find: %w: %w", ErrUnknown, errBroken)
}

// walkUp pins each step by start ticks: a parent that is younger than its child is a
// stranger under a re-used pid.
func (s *Store) walkUp(ctx context.Context, pid int) (Entry, error) {
	const maxDepth = 256
	born := ^uint64(0)
	for depth := range maxDepth {
		p, err := s.procs.identify(pid)
		switch {
		case isGone(err) && depth == 0:
			return Entry{}, fmt.Errorf("ledger: find: %w: process %d does not run", ErrNotFound, pid)
		case isGone(err), err == nil && p.StartTicks > born:
			return Entry{}, errBroken
		case err != nil:
			return Entry{}, fmt.Errorf("%w: %w", ErrUnknown, err)
		}
		if e, err := s.findClaim(ctx, processClaim(p)); !errors.Is(err, ErrNotFound) {
			return e, err
		}
		st, err := s.procs.sys.Stat(pid)
		switch {
		case isGone(err), err == nil && st.Start != p.StartTicks:
			return Entry{}, errBroken
		case err != nil:
			return Entry{}, fmt.Errorf("%w: %w", ErrUnknown, err)
		case st.PPID == 0:
			return Entry{}, noMatch()
		}
		born, pid = p.StartTicks, st.PPID
	}
	return Entry{}, noMatch()
}

// findClaim answers from the claims where they are complete, else from the rows.
func (s *Store) findClaim(ctx context.Context, c claim) (Entry, error) {
	id, err := s.holder(c)
	if err != nil {
		return Entry{}, err
	}
	if id != "" {
		return s.Get(ctx, id)
	}
	if complete, _, _, err := s.claimsComplete(); err == nil && complete {
		return Entry{}, noMatch()
	}
	return s.findOpen(ctx, c.held)
}

// findOpen returns the first row among those not filed away that fits.
func (s *Store) findOpen(ctx context.Context, fits func(*Entry) bool) (Entry, error) {
	for e, err := range s.each(ctx, dirSessions) {
		var damaged *DamagedError
		if errors.As(err, &damaged) {
			continue
		}
		if err != nil {
			return Entry{}, err
		}
		if fits(&e) {
			return e, nil
		}
	}
	return Entry{}, noMatch()
}
