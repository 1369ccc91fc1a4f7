package ledger

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"
)

// ReconcileOptions say how patient a reconcile is. The zero value is the default.
type ReconcileOptions struct {
	Grace    time.Duration // least age of a dead owner's lease; the waits of twice the grace follow it; 0: the store's, less than 0: none
	AckGrace time.Duration // how long a restored agent's hook is waited for; 0: DefaultAckGrace, less than 0: not at all
	End      EndOptions

	nonce string // of a lease that the caller has taken over
}

// Reconciled says what a reconcile did about one row.
type Reconciled struct {
	ID      string `json:"id"`
	Action  string `json:"action"`          // the last event, or "leave"
	Outcome string `json:"outcome"`         // done, refused, failed or unknown
	Error   string `json:"error,omitempty"` // why it could not be done, or what is unclear
}

// The values of outcomes that coordinators report.
const (
	OutcomeDone    = "done"
	OutcomeRefused = "refused"
	OutcomeFailed  = "failed"
	OutcomeUnknown = "unknown"
)

// Reconcile settles rows that a coordinator left in mid-operation, as [Plan] decides from
// what can be seen: the row id, or all open ones where id is empty. A row that needs
// nothing is not touched and not reported. A row that cannot be settled does not keep the
// others; the error is for what concerns the whole ledger.
func (h *Host) Reconcile(ctx context.Context, id string, opts ReconcileOptions) ([]Reconciled, error) {
	ids := []string{id}
	if id == "" {
		_ = h.Store.clearGates() // those that cannot be read do no harm
		ids = nil
		for e, err := range h.Store.OpenEntries(ctx) {
			var damaged *DamagedError
			switch {
			case errors.As(err, &damaged):
			case err != nil:
				return nil, err
			case e.mayNeedPlan():
				ids = append(ids, e.LedgerID)
			}
		}
	}
	var all []Reconciled
	for _, id := range ids {
		r, err := h.reconcileRow(ctx, id, opts)
		if ctx.Err() != nil {
			return all, ctx.Err()
		}
		if err != nil {
			r.ID, r.Outcome, r.Error = id, OutcomeOf(err), err.Error()
		}
		if r.Action != "" || err != nil {
			all = append(all, r)
		}
	}
	return all, nil
}

// mayNeedPlan reports whether the plan may have anything to say about a row.
func (e *Entry) mayNeedPlan() bool {
	return e.Lease != nil || !e.KillIntentAt.IsZero() || e.Phase == PhaseFrozen || e.EndNoted != nil || e.Unclear != nil
}

// OutcomeOf puts what a coordinator returned into the words of reports: done, refused,
// failed or unknown.
func OutcomeOf(err error) string {
	switch {
	case err == nil:
		return OutcomeDone
	case errors.Is(err, ErrUnfinished):
		return OutcomeFailed
	case errors.Is(err, ErrUnknown), errors.Is(err, ErrBusy):
		return OutcomeUnknown
	case errors.Is(err, ErrIllegal), errors.Is(err, ErrLeaseHeld), errors.Is(err, ErrStaleNonce), errors.Is(err, ErrKillIntended),
		errors.Is(err, ErrConversationHeld), errors.Is(err, ErrSessionMismatch):
		return OutcomeRefused
	}
	return OutcomeFailed
}

// maxSteps bounds the steps that settle one row: the longest way is that of a restore
// that failed.
const maxSteps = 8

// reconcileRow plans and acts until the row needs nothing more. Who loses a race to
// another reconciler leaves the row to it.
func (h *Host) reconcileRow(ctx context.Context, id string, opts ReconcileOptions) (Reconciled, error) {
	r := &reconciler{h: h, opts: opts, nonce: opts.nonce, did: Reconciled{ID: id, Outcome: OutcomeDone}}
	defer r.release(ctx)
	for range maxSteps {
		e, err := h.Store.Get(ctx, id)
		if errors.Is(err, ErrNotFound) && r.did.Action != "" {
			return r.did, nil // it was removed
		}
		if err != nil {
			return r.did, err
		}
		a := Plan(e, r.observe(ctx, &e), h.Store.clock.Now())
		if a == (Action{}) {
			return r.did, nil
		}
		more, err := r.act(ctx, e, a)
		if errors.Is(err, ErrLeaseHeld) || errors.Is(err, ErrStaleNonce) || errors.Is(err, ErrConflict) {
			return Reconciled{ID: id}, nil
		}
		if err != nil {
			return r.did, errors.Join(err, h.Store.noteUnclear(ctx, id, err))
		}
		if !more {
			return r.did, nil
		}
	}
	return r.did, nil
}

// noteUnclear records why a row could not be settled, so that it asks for attention when
// that goes on.
func (s *Store) noteUnclear(ctx context.Context, id string, why error) error {
	if ctx.Err() != nil {
		return nil // it was interrupted, which is no news of the row
	}
	_, err := s.rewrite(ctx, id, true, maxRow, func(e *Entry) (verdict, error) {
		e.unclear(why.Error(), false, s.now())
		return unchanged, nil
	})
	if errors.Is(err, ErrNotFound) {
		return nil
	}
	return err
}

// reconciler settles one row. nonce is its authority once it has one.
type reconciler struct {
	h     *Host
	opts  ReconcileOptions
	nonce string
	did   Reconciled
}

func (r *reconciler) release(ctx context.Context) {
	if r.nonce != "" && r.nonce != r.opts.nonce {
		r.h.release(ctx, r.did.ID, r.nonce)
	}
}

// observe gathers what the plan asks about the row.
func (r *reconciler) observe(ctx context.Context, e *Entry) Observation {
	s := r.h.Store
	session := s.sessionVerdict(ctx, e)
	ob := Observation{
		Agent:    session, // of a row that never had a process
		Session:  session,
		AckGrace: r.opts.AckGrace,
		Mine:     r.nonce != "" && e.Lease != nil && e.Lease.Nonce == r.nonce,
	}
	if p := e.Process(); !p.IsZero() {
		ob.Agent = s.procs.verdict(p)
	}
	if e.Restore != nil {
		ob.Launched = s.procs.verdict(e.Restore.Launched)
		ob.LaunchedAge = s.procs.age(e.Restore.Launched)
	}
	if e.Frozen != nil {
		ob.Capture = s.captured(e.LedgerID, e.Frozen.Attempt)
	}
	if e.Lease != nil {
		ob.Lease = s.sightLease(e.Lease, r.opts.Grace)
	}
	r.observeCarriers(ctx, e, &ob)
	return ob
}

// observeCarriers looks for the processes that carry the row's id or the lease's attempt.
func (r *reconciler) observeCarriers(ctx context.Context, e *Entry, ob *Observation) {
	p, err := r.h.Store.newPass(ctx)
	if err != nil {
		return
	}
	if e.Lease != nil {
		ob.Attempt.Seen, ob.Attempt.Process, ob.Attempt.AtGate = p.attempt(e.Lease.Attempt)
	}
	if e.Phase == PhaseFrozen && e.Lease == nil {
		rows, err := r.h.Store.rowsOf(p, []Entry{*e})
		if err != nil {
			return
		}
		found := p.resolve(r.h.Store.procs, e, rows)
		ob.Row = CarrierSighting{Seen: found.verdict, Process: found.process}
	}
}

// act carries an action out. more says that the row is to be looked at again.
func (r *reconciler) act(ctx context.Context, e Entry, a Action) (more bool, err error) {
	s := r.h.Store
	if a.Unclear != "" || a.Settle {
		_, err := s.rewrite(ctx, e.LedgerID, true, maxRow, func(now *Entry) (verdict, error) {
			if now.Epoch == e.Epoch {
				a.note(now, s.now())
			}
			return unchanged, nil
		})
		if r.did.Action == "" { // else something was done, and what follows waits for the next time
			r.did.Action = "leave"
			if a.Unclear != "" {
				r.did.Outcome, r.did.Error = OutcomeUnknown, a.Unclear
			}
		}
		return false, err
	}
	if a.StandIn {
		return false, fmt.Errorf("ledger: reconcile %q: %w: its pane cannot be reached from here", e.LedgerID, ErrUnknown)
	}
	if err := r.authority(ctx, e, a); err != nil {
		return false, err
	}
	if a.Fence && e.Lease != nil && e.Lease.Op == OpCreate {
		if err := r.h.fenceBirth(ctx, e.Lease.Attempt, r.opts.End); err != nil {
			return false, err
		}
	}
	if a.Fence {
		// What was seen before the lease was ours may be old by now.
		now, err := s.Get(ctx, e.LedgerID)
		if err != nil {
			return false, err
		}
		again := Plan(now, r.observe(ctx, &now), s.clock.Now())
		if again.Event != a.Event {
			return true, nil
		}
	}
	if a.End != EndNothing {
		if err := s.procs.end(ctx, func() ([]ProcessID, error) { return r.toEnd(ctx, &e, a) }, r.opts.End); err != nil {
			return false, err
		}
	}
	if a.Rescue {
		if err := s.rescueUnlessHopeless(ctx, e.LedgerID, r.nonce); err != nil {
			return false, err
		}
	}
	if a.Event == EventNone {
		return true, nil
	}
	return r.apply(ctx, e, a)
}

// authority gets the lease that the action needs.
func (r *reconciler) authority(ctx context.Context, e Entry, a Action) error {
	if r.nonce != "" || !a.TakeOver && a.Begin == EventNone {
		return nil
	}
	self, err := r.h.Store.procs.self()
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUnknown, err)
	}
	ev := TakeOver(self)
	switch a.Begin {
	case EventBeginKill:
		ev = BeginKill(self)
	case EventBeginStandIn:
		ev = BeginStandIn(self)
	}
	ev.Facts.Lease.Grace = r.opts.Grace
	if _, out, err := r.h.Store.Apply(ctx, e.LedgerID, ev.AtEpoch(e.Epoch)); err != nil && !isUnsynced(err) {
		return err
	} else if out == Dropped {
		return ErrConflict
	}
	r.nonce = ev.Nonce
	return nil
}

// toEnd lists the processes that an action ends.
func (r *reconciler) toEnd(ctx context.Context, e *Entry, a Action) ([]ProcessID, error) {
	if a.End == EndAgent {
		return []ProcessID{e.Process()}, nil
	}
	p, err := r.h.Store.newPass(ctx)
	if err != nil {
		return nil, err
	}
	list, _ := p.carrying(envAttempt, e.Lease.Attempt)
	if e.Restore != nil {
		list = append(list, e.Restore.Launched)
	}
	return list, nil
}

// apply applies the action's event. A refusal means that the row is not what the plan saw.
func (r *reconciler) apply(ctx context.Context, e Entry, a Action) (more bool, err error) {
	ev := Event{
		Kind: a.Event, Nonce: r.nonce, Process: a.Process, SessionID: a.SessionID,
		ProcessKey: a.ProcessKey, Reason: a.Reason,
	}
	if a.Event == EventAdopt || a.Event == EventFinish {
		ev.Nonce = ""
	}
	after, out, err := r.h.Store.Apply(ctx, e.LedgerID, ev)
	if err != nil && !isUnsynced(err) {
		return false, err
	}
	r.h.Store.logger.Info("reconciled", "session", e.LedgerID, "event", a.Event.String(), "reason", a.Reason)
	r.did.Action = a.Event.String()
	if after.Lease == nil {
		r.nonce = "" // the operation is over
	}
	// Files go once the row has durably stopped naming them: else a power cut could leave a
	// row whose output is gone. What stays is left over, and goes with a later sweep.
	if a.Files && e.Lease != nil && err == nil {
		if err := r.h.Store.removeCapture(&after, e.Lease.Attempt); err != nil {
			return false, err
		}
	}
	return out == Applied, err
}

// removeCapture deletes the files of an attempt that the row does not name.
func (s *Store) removeCapture(e *Entry, attempt string) error {
	if !isPlainID(e.LedgerID) || !isPlainID(attempt) || e.Frozen != nil && e.Frozen.Attempt == attempt {
		return nil
	}
	if err := os.RemoveAll(s.captureDir(e.LedgerID, attempt)); err != nil {
		return fmt.Errorf("ledger: remove files of an attempt: %w", err)
	}
	_ = os.Remove(s.captureDir(e.LedgerID, "")) // succeeds once it is empty
	return nil
}

// age is how long a process has run; 0 where that is not known.
func (t *table) age(p ProcessID) time.Duration {
	boot, err := t.sys.BootSeconds()
	if err != nil || t.verdict(p) != Running {
		return 0
	}
	return max(0, time.Duration(boot-int64(p.StartTicks)/t.sys.TicksPerSecond())*time.Second)
}
