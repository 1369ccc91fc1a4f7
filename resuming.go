package ledger

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// resumingWait is how long one of two launches that take the same session up waits for the
// other to give way.
const resumingWait = 10 * time.Second

// aloneInResuming makes sure that no other launch takes the same lost session up: two
// agents in one conversation would write over each other. Each launch has its birth on
// record before it looks, so of two at least one sees the other. Who sees one with a
// greater id waits for it to give way, any other gives way itself.
func (l *launching) aloneInResuming(ctx context.Context) error {
	from := l.row.ResumedFrom
	if from == "" {
		return nil
	}
	for end := time.Now().Add(resumingWait); ; {
		other, decided, err := l.h.Store.resuming(ctx, from, l.row.LedgerID)
		switch {
		case err != nil:
			return err
		case other == "":
			return nil
		case decided, other < l.row.LedgerID, time.Now().After(end):
			return fmt.Errorf("ledger: launch: %w: %q is being taken up by %q", ErrConversationHeld, from, other)
		}
		if err := pause(ctx, lookPause); err != nil {
			return err
		}
	}
}

// resuming finds an open row that takes the session from up, beside the row not: one that
// is being born, or whose process may run, which decides it. Of several being born it is the
// one with the least id.
func (s *Store) resuming(ctx context.Context, from, not string) (id string, decided bool, err error) {
	for e, err := range s.OpenEntries(ctx) {
		var damaged *DamagedError
		if err != nil && !errors.As(err, &damaged) {
			return "", false, err
		}
		if err != nil || e.ResumedFrom != from || e.LedgerID == not || id != "" && id < e.LedgerID {
			continue
		}
		if l := e.Lease; l != nil && l.Op == OpCreate {
			seen := s.sightLease(l, 0)
			if st := e.State(); st.leaseStale(&seen) == Yes {
				continue // its launcher is gone, and its gate shut
			}
		} else if s.procs.verdict(e.Process()) != Gone {
			return e.LedgerID, true, nil
		} else {
			continue
		}
		id = e.LedgerID
	}
	return id, false, nil
}

// successor finds the running session that took a session up, or one that did in its turn;
// else one of them that could be taken up itself.
func (s *Store) successor(ctx context.Context, id string) (string, error) {
	after := map[string][]Entry{}
	for e, err := range s.Entries(ctx) {
		var damaged *DamagedError
		if err != nil && !errors.As(err, &damaged) {
			return "", err
		}
		if err == nil && e.ResumedFrom != "" {
			after[e.ResumedFrom] = append(after[e.ResumedFrom], e)
		}
	}
	lost, seen := "", map[string]bool{id: true}
	for next := []string{id}; len(next) > 0; next = next[1:] {
		for _, e := range after[next[0]] {
			if seen[e.LedgerID] {
				continue
			}
			seen[e.LedgerID] = true
			creating := e.Lease != nil && e.Lease.Op == OpCreate
			if p := e.Process(); e.IsOpen() && !creating && !p.IsZero() && s.procs.verdict(p) != Gone {
				return e.LedgerID, nil
			}
			if e.IsOpen() && !creating && e.SessionID != "" {
				lost = e.LedgerID
			}
			next = append(next, e.LedgerID)
		}
	}
	return lost, nil
}
