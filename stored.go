package ledger

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"
)

// asStored makes of an edited row what the next reader of its file will see: times in UTC
// and whole seconds, and the phase that a reader assumes. The error is of a row that no
// reader would accept.
func (e *Entry) asStored() error {
	for _, t := range e.times() {
		if *t = storedTime(*t); t.Year() < 0 || t.Year() > 9999 {
			return fmt.Errorf("year %d", t.Year())
		}
	}
	e.assumePhase()
	return e.checkShape()
}

func storedTime(t time.Time) time.Time {
	if t.IsZero() {
		return time.Time{}
	}
	return t.UTC().Truncate(time.Second)
}

// times are all times of a row and of its parts.
func (e *Entry) times() []*time.Time {
	times := []*time.Time{&e.StartedAt, &e.ProcessDescribedAt, &e.LastActiveAt, &e.LastHeartbeatAt,
		&e.FinishedAt, &e.RescuedAt, &e.StateAt, &e.KillIntentAt, &e.LastPaneChurnAt}
	if e.Lease != nil {
		times = append(times, &e.Lease.AcquiredAt)
	}
	if e.Frozen != nil {
		times = append(times, &e.Frozen.At)
	}
	if e.Limit != nil {
		times = append(times, &e.Limit.ReachedAt, &e.Limit.ResetAt)
	}
	if e.Prompt != nil {
		times = append(times, &e.Prompt.AttemptedAt)
	}
	if e.EndNoted != nil {
		times = append(times, &e.EndNoted.At)
	}
	for _, n := range []*Note{e.Unclear, e.Attention} {
		if n != nil {
			times = append(times, &n.Since)
		}
	}
	if e.Rescuing != nil {
		times = append(times, &e.Rescuing.At)
	}
	if e.Waiting != nil {
		times = append(times, &e.Waiting.Since)
	}
	for i := range e.SessionIDs {
		times = append(times, &e.SessionIDs[i].Since)
	}
	for i := range e.Handoffs {
		times = append(times, &e.Handoffs[i].At)
	}
	return times
}

// assumePhase is what a reader makes of a row without a phase, or with an end: the end wins,
// since another implementation closes a row by it.
func (e *Entry) assumePhase() {
	switch {
	case !e.FinishedAt.IsZero():
		e.Phase = PhaseFinished
	case e.Phase == PhaseNone:
		e.Phase = PhaseLive
	}
}

// checkShape refuses what JSON allows and no writer of a row produces.
func (e *Entry) checkShape() error {
	switch l := e.Lease; {
	case e.SchemaVersion < 1:
		return errors.New("no schemaVersion")
	case e.LedgerID == "":
		return errors.New("no ledgerId")
	case e.PID < 0 || e.LauncherPID < 0:
		return errors.New("negative pid")
	case e.Revision == math.MaxUint64 || e.Epoch == math.MaxUint64:
		return errors.New("a revision or epoch that nothing can follow")
	case l != nil && (l.Op == OpNone || l.Attempt == "" || l.Nonce == "" || l.Owner.IsZero() || l.AcquiredAt.IsZero()):
		return errors.New("half a lease")
	case slices.ContainsFunc(e.SessionIDs, func(f FormerID) bool { return f.ID == "" }):
		return errors.New("an element of sessionIds has no id")
	}
	return nil
}
