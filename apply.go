package ledger

import (
	"context"
	"errors"
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
	e, out, err := s.apply(ctx, id, ev)
	if err != nil || out != Applied {
		return e, out, err
	}
	if follows.Kind != EventNone {
		if e, _, err = s.apply(ctx, id, follows); err != nil {
			return e, out, err
		}
	}
	if window != "" && window != e.Window {
		e, err = s.takePlace(ctx, e, window)
	}
	return e, out, err
}

// apply is Apply for an event that needs at most one claim.
func (s *Store) apply(ctx context.Context, id string, ev Event) (Entry, Outcome, error) {
	ahead := s.lookAhead(ctx, id, ev)
	c, err := s.claimFor(id, ev)
	if err != nil {
		return Entry{}, Refused, err
	}
	var e Entry
	out := Unset
	write := func() (err error) {
		e, out, err = s.applyLocked(ctx, id, ev, ahead)
		return err
	}
	if c.kind == "" {
		err = write()
	} else {
		err = s.withClaim(ctx, c, id, write)
	}
	var held *heldError
	if errors.As(err, &held) {
		// The refusal is the row's own to make, and of a conversation it is recorded.
		ahead.Held, ahead.HeldBy, ahead.Claimed = Yes, held.by, Yes
		err = write()
	}
	if err != nil && !isUnsynced(err) {
		return e, Refused, err
	}
	return e, out, err
}

// applyLocked is the write of one event.
func (s *Store) applyLocked(ctx context.Context, id string, ev Event, ahead Facts) (Entry, Outcome, error) {
	out := Unset
	e, err := s.rewrite(ctx, id, true, maxRow, func(e *Entry) (verdict, error) {
		stamped, err := s.stamp(ev)
		if err != nil {
			return unchanged, err
		}
		stamped.Facts = s.gather(ctx, e, stamped, ahead)
		var write bool
		out, write, err = advance(e, stamped)
		if err != nil && write {
			err = recordedError{err}
		}
		if err == nil && out == Applied && e.Phase == PhaseNone {
			return remove, nil
		}
		return unchanged, err
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
		return processClaim(ev.Process), nil
	case EventClaim:
		if ev.Target != "" {
			return claim{}, nil // gives a conversation up
		}
	case EventAcknowledge:
		if ev.SessionID == "" {
			return processClaim(ev.Process), nil
		}
	default:
		return claim{}, nil
	}
	r, _, err := s.lookUp(id)
	if err != nil {
		return claim{}, err
	}
	return conversationClaim(r.entry.Runtime, ev.SessionID), nil
}

func isUnsynced(err error) bool {
	var unsynced *DurabilityError
	return errors.As(err, &unsynced)
}
