package ledger

import (
	"math/bits"
	"slices"
	"time"
)

// effects is a set of what a move does beside phase, operation and lease, done in the
// order of the bits.
type effects uint32

const (
	newLife effects = 1 << iota
	bindProcess
	setLocation
	adoptID
	clearLimit
	setLimit
	openCapture
	closeCapture
	dropCapture
	keepCapture
	setStandIn
	openRestore
	setLaunched
	ackByHook
	ackByLiveness
	failRestore
	setTarget
	clearTarget
	setTombstone
	clearTombstone
	setFinish
	noteEnd
	forgetEnd
	askAttention
	giveBack
	yields
)

// effectTexts names the effects in the order of the bits, and says what each does.
var effectTexts = [...]struct{ name, text string }{
	{"newLife", "runtime, conversation and rescue fields become those of the new life; the old conversation goes to the history; appends to handoffs; briefPending is set; target cleared"},
	{"bindProcess", "another process than the recorded one: it is recorded, attention, waiting and the end noted of the old one are cleared"},
	{"setLocation", "multiplexer, pane with its server, window with its slot, as far as supplied"},
	{"adoptID", "the conversation becomes the row's, with its transcript; a former one goes to the history, and attention for a refused claim is cleared. Refused: noted in the history with its holder, and attention set. Ceded: it goes to the history with its new holder"},
	{"clearLimit", "no usage limit"},
	{"setLimit", "the usage limit, with its end where known"},
	{"openCapture", "frozen names the attempt and the mode"},
	{"closeCapture", "frozen gets its time and the count of lines"},
	{"dropCapture", "frozen names the attempt's capture no more: its files may go"},
	{"keepCapture", "the capture moves to frozen.kept"},
	{"setStandIn", "frozen names the stand-in, or none"},
	{"openRestore", "restore names the attempt and the mode, and nothing of an earlier one"},
	{"setLaunched", "restore.launched is the process"},
	{"ackByHook", "restore.ack is hook, restore.error cleared"},
	{"ackByLiveness", "restore.ack is liveness"},
	{"failRestore", "restore.error names the attempt, with the first reason known"},
	{"setTarget", "handoffTarget is the target"},
	{"clearTarget", "handoffTarget cleared"},
	{"setTombstone", "killIntentAt, if not set"},
	{"clearTombstone", "killIntentAt cleared"},
	{"setFinish", "finishedAt and finishReason"},
	{"noteEnd", "endNoted"},
	{"forgetEnd", "endNoted cleared"},
	{"askAttention", "attention, with the reason"},
	{"giveBack", "the lease is stale at once, its nonce dead"},
	{"yields", "nothing else: it has been overtaken"},
}

// next splits the first effect off the set; it is 0 where there is none.
func (fx effects) next() (first, rest effects) {
	return effects(1) << bits.TrailingZeros32(uint32(fx)), fx & (fx - 1)
}

// do makes the move in the state.
func (m *move) do(s *State, ev *Event) {
	process, phase, op := s.Process, s.Phase, s.Op
	limited, reset := s.Limited, s.LimitReset
	for one, rest := m.effects.next(); one != 0; one, rest = rest.next() {
		one.onState(s, ev)
	}
	if m.to != samePhase {
		s.Phase = m.to
	}
	if m.op != sameOp {
		s.Op = m.op
	}
	switch m.lease {
	case mints:
		s.Attempt, s.Nonce, s.Owner = ev.Nonce, ev.Nonce, ev.Owner
		s.AcquiredAt, s.AcquiredBootSec = stored(ev.At).Unix(), ev.BootSec
		s.AcquiredBootID, s.Released = "", false
	case takesOver:
		if s.AcquiredBootID == "" && s.Owner.BootID != ev.Owner.BootID {
			s.AcquiredBootID = s.Owner.BootID
		}
		s.Nonce, s.Owner, s.Released = ev.Nonce, ev.Owner, false
	}
	if s.Op == OpNone {
		s.Attempt, s.Nonce, s.Owner = "", "", ProcessID{}
		s.AcquiredAt, s.AcquiredBootSec, s.AcquiredBootID, s.Released = 0, 0, "", false
	}
	if s.Phase == PhaseFinished || s.Phase == PhaseNone {
		s.Tombstoned = false // the time stays in the row, as history
	}
	if s.Phase != phase || s.Op != op || s.Process != process || s.Limited != limited || s.LimitReset != reset {
		s.Epoch++
	}
}

func (fx effects) onState(s *State, ev *Event) {
	switch fx {
	case newLife:
		s.Runtime, s.SessionID, s.HandoffTarget = s.HandoffTarget, ev.SessionID, ""
		s.Rescued, s.Rescuing = false, false
	case bindProcess:
		s.Ran = true
		if !ev.Process.Same(s.Process) {
			s.Process, s.EndNoted = ev.Process, ""
			s.Process.rest = ""
		}
	case setLocation:
		s.Ran = s.Ran || ev.Location.PaneID != "" || ev.Location.Mux.Target != ""
	case adoptID:
		switch {
		case ev.Target == "":
			s.SessionID, s.Ran = ev.SessionID, true
		case ev.SessionID == s.SessionID:
			s.SessionID = ""
		}
	case clearLimit:
		s.Limited, s.LimitReset = false, 0
	case setLimit:
		s.Limited = true
		if !ev.ResetAt.IsZero() {
			s.LimitReset = stored(ev.ResetAt).Unix()
		}
	case openCapture:
		s.FreezeMode, s.Capture = ev.FreezeMode, ev.Nonce
	case dropCapture, keepCapture:
		s.FreezeMode, s.Capture = "", ""
	case openRestore:
		s.Restore = RestoreState{Attempt: ev.Nonce, Mode: ev.RestoreMode}
	case setLaunched:
		s.Restore.Launched = ev.Process
	case ackByHook:
		s.Restore.Failed = false
	case failRestore:
		s.Restore.Failed = true
	case setTarget:
		s.HandoffTarget = ev.Target
	case clearTarget:
		s.HandoffTarget = ""
	case setTombstone:
		s.Tombstoned = true
	case clearTombstone:
		s.Tombstoned = false
	case noteEnd:
		s.EndNoted = ev.ProcessKey
	case forgetEnd, setFinish:
		s.EndNoted = ""
	case giveBack:
		s.Released = true
	}
}

// advance applies the event to the row. Write is false where e was not touched; where it
// is true e is to be written, also beside the two refusals that are recorded. A row that
// is to be removed comes back with [PhaseNone].
func advance(e *Entry, ev Event) (out Outcome, write bool, err error) {
	was := e.State()
	m, out, err := decide(&was, &ev)
	at := stored(ev.At)
	switch {
	case m == nil:
		return out, false, err
	case err != nil:
		e.record(&ev, err, at)
		return out, true, err
	}
	next := was
	m.do(&next, &ev)
	for one, rest := m.effects.next(); one != 0; one, rest = rest.next() {
		one.onEntry(e, &ev, &was, at)
	}
	e.follow(&was, &next, at)
	return out, m.effects != yields, nil
}

// follow brings phase, lease, epoch, process and tombstone of the row to the state next.
func (e *Entry) follow(was, next *State, at time.Time) {
	e.Phase, e.Epoch = next.Phase, next.Epoch
	e.Runtime, e.HandoffTarget = next.Runtime, next.HandoffTarget
	switch {
	case next.Op == OpNone:
		e.Lease = nil
	case e.Lease == nil:
		e.Lease = &Lease{AcquiredAt: at}
		fallthrough
	default:
		l := e.Lease
		l.Op, l.Attempt, l.Nonce, l.Owner = next.Op, next.Attempt, next.Nonce, next.Owner
		l.AcquiredBootSec, l.AcquiredBootID, l.Released = next.AcquiredBootSec, next.AcquiredBootID, next.Released
	}
	if next.Process != was.Process {
		p := next.Process
		e.PID, e.PIDStartTicks = p.PID, &p.StartTicks
		e.HostID, e.BootID, e.PIDNamespace, e.TimeNamespace = p.HostID, p.BootID, p.PIDNamespace, p.TimeNamespace
		e.CPUTicks, e.ProcessDescribedAt = nil, time.Time{}
		e.Attention, e.Waiting = nil, nil
	}
	if next.Tombstoned != was.Tombstoned && next.Phase.bit()&fromUnfinished != 0 {
		e.KillIntentAt = time.Time{}
		if next.Tombstoned {
			e.KillIntentAt = at
		}
	}
	if next.EndNoted == "" {
		e.EndNoted = nil
	}
	if next.Phase != was.Phase || next.Op != was.Op {
		e.StateAt = at
		e.settle()
	}
}

// settle forgets that the row was unclear, with the attention which that has raised.
func (e *Entry) settle() {
	if e.Unclear != nil && e.Attention != nil && e.Attention.Reason == e.Unclear.Reason {
		e.Attention = nil
	}
	e.Unclear = nil
}

func (fx effects) onEntry(e *Entry, ev *Event, was *State, at time.Time) {
	switch fx {
	case newLife:
		e.handOff(ev, at)
	case setLocation:
		e.relocate(&ev.Location)
	case adoptID:
		if ev.Target == "" {
			e.adopt(ev, at)
		} else if ev.SessionID == e.SessionID {
			e.cede(ev.Target, at)
		}
	case clearLimit:
		e.Limit = nil
	case setLimit:
		if e.Limit == nil {
			e.Limit = &Limit{ReachedAt: at}
		}
		if !ev.ResetAt.IsZero() {
			e.Limit.ResetAt = stored(ev.ResetAt)
		}
	case openCapture:
		e.keepCapture() // of a stranger's row: what it names is not lost
		if e.Frozen == nil {
			e.Frozen = &Frozen{}
		}
		e.Frozen.Attempt, e.Frozen.Mode = ev.Nonce, ev.FreezeMode
	case closeCapture:
		e.Frozen.At = at
		if ev.Lines > 0 {
			e.Frozen.Lines = ev.Lines
		}
	case dropCapture:
		e.dropCapture()
	case keepCapture:
		e.keepCapture()
	case setStandIn:
		if e.Frozen == nil {
			e.Frozen = &Frozen{}
		}
		e.Frozen.StandIn = ev.Process
	case openRestore:
		if e.Restore == nil {
			e.Restore = &Restore{}
		}
		r := e.Restore
		r.Attempt, r.Mode, r.Launched, r.Ack, r.Error = ev.Nonce, ev.RestoreMode, ProcessID{}, "", nil
	case setLaunched:
		e.restore(was).Launched = ev.Process
	case ackByHook:
		r := e.restore(was)
		r.Ack, r.Error = AckHook, nil
	case ackByLiveness:
		e.restore(was).Ack = AckLiveness
	case failRestore:
		if r := e.restore(was); !was.Restore.Failed {
			r.Error = &RestoreError{Attempt: r.Attempt, Reason: ev.Reason}
		}
	case setFinish:
		e.FinishedAt, e.FinishReason = at, ev.Reason
		if ev.Reason == "" && ev.Kind == EventCommitKill {
			e.FinishReason = "killed"
		}
	case noteEnd:
		e.EndNoted = &EndNoted{At: at, Reason: ev.Reason, ProcessKey: ev.ProcessKey}
	case askAttention:
		reason := ev.Reason
		if reason == "" {
			reason = "whether the session was started is not known"
		}
		e.Attention = &Note{Since: at, Reason: reason}
	}
}

// record writes a refusal that is kept.
func (e *Entry) record(ev *Event, err error, at time.Time) {
	if ev.Kind == EventClaim {
		e.refuseClaim(ev, at)
		return
	}
	was := e.State()
	r := e.restore(&was)
	r.Error = &RestoreError{Attempt: r.Attempt, Reason: err.(*RefusedError).Reason}
}

// restore returns the record of the restore in flight.
func (e *Entry) restore(was *State) *Restore {
	if e.Restore == nil {
		e.Restore = &Restore{Attempt: was.Attempt}
	}
	return e.Restore
}

// stored cuts t to what a row stores.
func stored(t time.Time) time.Time { return t.UTC().Truncate(time.Second) }

// appendCapped appends to a list that has an end: the oldest go, and are counted.
func appendCapped[T any](list []T, more *int, v T) []T {
	list = append(list, v)
	if n := len(list) - maxList; n > 0 {
		*more += n
		list = slices.Delete(list, 0, n)
	}
	return list
}
