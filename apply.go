package ledger

import (
	"context"
	"errors"
	"fmt"
)

// Apply moves the row id by an event: [Transition] under the row's lock, on the newest
// bytes and with evidence gathered there. The result is durable before Apply returns.
// After RemoveBirth and CommitDrop the row is gone, and its last content comes back.
//
// The [Outcome] tells an event that was applied from one that was dropped (its epoch has
// passed), yielded (something outranks it) or, with an error, refused. The errors are
// those of [Transition] and of [Store.Update].
func (s *Store) Apply(ctx context.Context, id string, ev Event) (Entry, Outcome, error) {
	if err := s.begin(ctx); err != nil {
		return Entry{}, Refused, err
	}
	if err := checkID(id); err != nil {
		return Entry{}, Refused, err
	}
	// A newcomer's process, conversation and place are keys of their own, and one write
	// holds one of them: the others follow.
	var follows Event
	if (ev.Kind == EventCommitHandoff || ev.Kind == EventParkHandoff) && ev.SessionID != "" {
		follows = Claim(ev.SessionID, ev.Source)
		follows.TranscriptPath, follows.ProcessKey = ev.TranscriptPath, ev.Process.Key()
		ev.SessionID, ev.TranscriptPath = "", ""
	}
	window := ev.Location.Window
	if window != "" {
		ev.Location.Window, ev.Location.Slot = "", 0 // a place is a key too
	}
	if ev.Kind == EventAcknowledge && ev.SessionID != "" {
		if err := s.claimLaunched(ctx, id, ev); err != nil {
			return Entry{}, Refused, err
		}
	}
	e, out, err := s.apply(ctx, id, ev)
	if err != nil && !isUnsynced(err) || out != Applied {
		return e, out, err
	}
	if follows.Kind != EventNone {
		claimed, _, cerr := s.apply(ctx, id, follows)
		if claimed.LedgerID != "" {
			e = claimed
		}
		if err = errors.Join(err, cerr); cerr != nil && !isUnsynced(cerr) {
			return e, out, err
		}
	}
	if window != "" && window != e.Window {
		placed, perr := s.takePlace(ctx, e, window)
		e, err = placed, errors.Join(err, perr)
	}
	return e, out, err
}

// claimLaunched claims the process of an acknowledgement that outran its Launched: it
// names a conversation too, and one write holds one key. Whether the acknowledgement
// counts is its own to say.
func (s *Store) claimLaunched(ctx context.Context, id string, ev Event) error {
	early := func(e *Entry) bool {
		return e.Restore != nil && e.Restore.Launched.IsZero() && e.Lease != nil && e.Lease.Attempt == ev.Attempt
	}
	if r, _, err := s.lookUp(id); err != nil || r.err != nil || !early(&r.entry) || ev.malformed() != "" {
		return nil
	}
	err := s.withClaim(ctx, processClaim(s.local(ev.Process)), id, func() error {
		_, err := s.rewrite(ctx, id, true, maxRow, func(e *Entry) (verdict, error) {
			if f := s.gather(ctx, e, ev, ahead{}); early(e) && f.Subject == Running && f.Outermost == Yes {
				e.Restore.Launched = ev.Process
			}
			return unchanged, nil
		})
		return err
	})
	if isUnsynced(err) {
		return nil // the acknowledgement's own write tells
	}
	return err
}

// apply is Apply for an event that needs at most one claim.
func (s *Store) apply(ctx context.Context, id string, ev Event) (Entry, Outcome, error) {
	seen := s.lookAhead(ctx, id, ev)
	c, err := s.claimFor(id, ev)
	if err != nil {
		return Entry{}, Refused, err
	}
	var e Entry
	out := Unset
	var held *heldError
	write := func() (err error) {
		e, out, err = s.applyLocked(ctx, id, ev, seen, c, held)
		return err
	}
	switch c.kind {
	case "":
		err = write()
	case claimConversation:
		seen.Held = No // once the claim is this row's
		err = s.withClaim(ctx, c, id, write)
	default:
		seen.Claimed = No
		err = s.withClaim(ctx, c, id, write)
	}
	if errors.As(err, &held) {
		// The refusal is the row's own to make, and of a conversation it is recorded.
		if c.kind == claimConversation {
			seen.Held, seen.HeldBy = Yes, held.by
		} else {
			seen.Claimed = Yes
		}
		err = write()
	}
	if err != nil && !isUnsynced(err) {
		return e, Refused, err
	}
	return e, out, err
}

// applyLocked is the write of one event, under the claim c; held says that another row
// holds its process.
func (s *Store) applyLocked(ctx context.Context, id string, ev Event, seen ahead, c claim, held *heldError) (Entry, Outcome, error) {
	out := Unset
	e, err := s.rewrite(ctx, id, true, maxRow, func(e *Entry) (verdict, error) {
		stamped, err := s.stamp(ev)
		if err != nil {
			return unchanged, err
		}
		stamped.Facts = s.gather(ctx, e, stamped, seen)
		var write bool
		out, write, err = advance(e, stamped)
		switch {
		case err != nil && write:
			return unchanged, recordedError{err}
		case errors.Is(err, ErrLeaseHeld) && e.Lease != nil:
			return unchanged, s.leaseHeld(e.Lease, err)
		case err != nil || out != Applied:
			return unchanged, err
		case held != nil && c.kind == claimProcess:
			return unchanged, held // not every event that names a process has a guard for this
		case c.kind != "" && held == nil && !c.held(e):
			// Another writer has moved the row on since its claim was chosen.
			return unchanged, fmt.Errorf("ledger: %s of %q: %w meanwhile", ev.Kind, id, ErrConflict)
		case e.Phase == PhaseNone:
			return remove, nil
		}
		return unchanged, nil
	})
	var recorded recordedError
	if errors.As(err, &recorded) {
		err = recorded.error
	}
	return e, out, err
}

// stamp says when an event is applied.
func (s *Store) stamp(ev Event) (Event, error) {
	ev.At = s.now()
	boot, err := s.bootSeconds()
	if err != nil && ev.Kind.mints() {
		return ev, errors.Join(ErrUnknown, err) // a lease without an age would never end
	}
	ev.BootSec = boot
	return ev, nil
}

// claimFor says which key the write of an event must hold; none for most.
func (s *Store) claimFor(id string, ev Event) (claim, error) {
	switch ev.Kind {
	case EventBind, EventLaunched, EventAdopt, EventCommitHandoff, EventParkHandoff, EventCommitRespawn:
		return processClaim(s.local(ev.Process)), nil
	case EventClaim:
		if ev.Target != "" {
			return claim{}, nil // gives a conversation up
		}
	case EventAcknowledge:
		if ev.SessionID == "" {
			return processClaim(s.local(ev.Process)), nil
		}
	default:
		return claim{}, nil
	}
	r, _, err := s.lookUp(id)
	if err == nil {
		err = r.err
	}
	if err != nil {
		return claim{}, err
	}
	return conversationClaim(r.entry.Runtime, ev.SessionID), nil
}
