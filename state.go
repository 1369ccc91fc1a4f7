package ledger

import (
	"errors"
	"fmt"

	"github.com/sessionledger/ledger/internal/runtimes"
)

// Phase is what a session is meant to be. The zero value is "no row": what a session is
// before its birth and after its removal.
type Phase string

// The phases. Archived is reserved: rows that carry it are listed and left alone.
const (
	PhaseNone     Phase = ""
	PhaseLive     Phase = "live"
	PhaseFrozen   Phase = "frozen"
	PhaseArchived Phase = "archived"
	PhaseFinished Phase = "finished"
)

// Op is the multi-step change that is in flight. The zero value is none. An op other
// than none exists exactly while a lease exists.
type Op string

// The operations.
const (
	OpNone    Op = ""
	OpCreate  Op = "create"
	OpFreeze  Op = "freeze"
	OpRestore Op = "restore"
	OpAbort   Op = "abort"
	OpStandIn Op = "standin"
	OpHandoff Op = "handoff"
	OpRespawn Op = "respawn"
	OpKill    Op = "kill"
	OpDrop    Op = "drop"
)

// FreezeMode says what a freeze does with the pane. In mode pane the agent's pane gets
// a stand-in; in mode shell the agent runs below a person's shell, which stays.
type FreezeMode string

// The freeze modes.
const (
	FreezePane  FreezeMode = "pane"
	FreezeShell FreezeMode = "shell"
)

// RestoreMode says how a restore names its conversation: resume by the recorded id, or
// repick by a command of the embedder, whose id is adopted.
type RestoreMode string

// The restore modes.
const (
	RestoreResume RestoreMode = "resume"
	RestoreRepick RestoreMode = "repick"
)

// Ack says how a restore was acknowledged: by the agent's own hook (verified) or only by
// a live process (unverified). Empty: not yet.
type Ack string

// The acknowledgements.
const (
	AckHook     Ack = "hook"
	AckLiveness Ack = "liveness"
)

// Outcome says what became of an event. The zero value says nothing: no event was tried.
type Outcome int

// The outcomes. Refused comes with an error, the others without one.
const (
	Unset   Outcome = iota
	Applied         // the event took effect, or had taken effect before
	Dropped         // it was scoped to an epoch, or to a process, that has passed
	Yielded         // legal, but overtaken by something that outranks it
	Refused
)

// String returns the outcome's name in lower case.
func (o Outcome) String() string {
	switch o {
	case Applied:
		return "applied"
	case Dropped:
		return "dropped"
	case Yielded:
		return "yielded"
	case Refused:
		return "refused"
	}
	return "unset"
}

// State is the part of a row that its transitions read: a value, comparable, and usable
// as the key of a map. [Entry.State] takes it from a row. The zero value is "no row".
type State struct {
	SchemaTooNew bool // the row is read-only here
	Phase        Phase
	Op           Op
	Epoch        uint64

	// The lease; zero where no operation is in flight.
	Attempt         string
	Nonce           string
	Owner           ProcessID
	AcquiredAt      int64  // Unix seconds
	AcquiredBootSec int64  // seconds on the boot clock
	AcquiredBootID  string // boot of that clock, where it is not the owner's
	Released        bool   // the owner gave it back

	Tombstoned bool // a kill is intended, and the session is not over
	Ran        bool // the row holds evidence that a session ran

	Process   ProcessID // the recorded process
	Runtime   string
	SessionID string
	Rescued   bool // its work was rescued
	Rescuing  bool // a rescue is in hand

	Limited    bool  // a usage limit holds
	LimitReset int64 // Unix seconds; 0: not known

	FreezeMode    FreezeMode // of the freeze in flight, or of the frozen session
	Capture       string     // attempt that holds the output of a frozen session
	Restore       RestoreState
	HandoffTarget string // runtime of the swap in flight
	EndNoted      string // key of the process whose end was reported during an operation
}

// RestoreState is the restore in flight, or the last one.
type RestoreState struct {
	Attempt  string
	Mode     RestoreMode
	Launched ProcessID
	Failed   bool // restore.error names this attempt
}

// State returns what transitions read of the row.
func (e Entry) State() State {
	s := State{
		SchemaTooNew:  e.SchemaVersion > SchemaVersion,
		Phase:         e.Phase,
		Epoch:         e.Epoch,
		Process:       e.Process(),
		Runtime:       e.Runtime,
		SessionID:     e.SessionID,
		Rescued:       !e.RescuedAt.IsZero(),
		Rescuing:      e.Rescuing != nil,
		HandoffTarget: e.HandoffTarget,
		Ran: e.PID > 0 || e.SessionID != "" || e.TranscriptPath != "" || len(e.SessionIDs) > 0 ||
			e.PaneID != "" || e.TmuxSession != "" || e.Mux.Target != "",
	}
	if !e.FinishedAt.IsZero() && e.Phase != PhaseNone { // a row that was removed is no row, however it ended
		s.Phase = PhaseFinished
	}
	s.Tombstoned = !e.KillIntentAt.IsZero() && s.Phase.bit()&fromUnfinished != 0
	if l := e.Lease; l != nil {
		s.Op, s.Attempt, s.Nonce, s.Owner = l.Op, l.Attempt, l.Nonce, l.Owner
		s.AcquiredAt, s.AcquiredBootSec = l.AcquiredAt.Unix(), l.AcquiredBootSec
		s.AcquiredBootID, s.Released = l.AcquiredBootID, l.Released
	}
	if l := e.Limit; l != nil {
		s.Limited = true
		if !l.ResetAt.IsZero() {
			s.LimitReset = l.ResetAt.Unix()
		}
	}
	if f := e.Frozen; f != nil {
		s.FreezeMode, s.Capture = f.Mode, f.Attempt
	}
	if r := e.Restore; r != nil {
		s.Restore = RestoreState{
			Attempt: r.Attempt, Mode: r.Mode, Launched: r.Launched,
			Failed: r.Error != nil && r.Error.Attempt == r.Attempt,
		}
	}
	if n := e.EndNoted; n != nil {
		s.EndNoted = n.ProcessKey
	}
	return s
}

// Transition says what event does in state s: the table of docs/state.md as a function.
// It is pure, and allocates only for an error.
//
// The order of checks is: the event is well formed ([ErrInvalid]); schema
// ([ErrSchemaTooNew]); epoch (Dropped); phase and op ([ErrLeaseHeld] where the event
// would be legal with no operation in flight, else *[IllegalTransitionError]); nonce
// ([ErrStaleNonce]); tombstone ([ErrKillIntended]); the process that the event names
// (Dropped); evidence in ev.Facts ([ErrUnknown], [ErrExists], [ErrConversationHeld],
// [ErrSessionMismatch], or an *IllegalTransitionError that says what stands against it).
//
// The state returned is s unless the event was applied, or was remembered for later
// (Yielded), or its refusal is one of the two that are recorded: ErrSessionMismatch, and
// the ErrConversationHeld of a claim.
func Transition(s State, ev Event) (State, Outcome, error) {
	m, out, err := decide(&s, &ev)
	switch {
	case m == nil:
	case err != nil:
		// Only two refusals are recorded.
		if errors.Is(err, ErrSessionMismatch) {
			s.Restore.Failed = true
		} else {
			s.Ran = true
		}
	default:
		m.do(&s, &ev)
	}
	return s, out, err
}

// decide finds the move that the event makes. The move is nil where nothing changes; it
// is set beside an error only for the refusals that are recorded.
func decide(s *State, ev *Event) (*move, Outcome, error) {
	reason := ev.malformed()
	if reason == "" && ev.SessionID != "" && ev.SessionID != s.SessionID && !runtimes.ValidID(ev.SessionID) {
		reason = "no runtime has a conversation of that id"
	}
	if reason != "" {
		return nil, Refused, refuse(s, ev, ErrInvalid, reason)
	}
	if s.SchemaTooNew {
		return nil, Refused, refuse(s, ev, ErrSchemaTooNew, "")
	}
	if ev.scoped && ev.epoch != s.Epoch {
		return nil, Dropped, nil
	}
	m := lookUpMove(ev.Kind, s.Phase, s.Op)
	if m == nil {
		if s.Op != OpNone && lookUpMove(ev.Kind, s.Phase, OpNone) != nil {
			return nil, Refused, refuse(s, ev, ErrLeaseHeld, string(s.Op)+" is in flight")
		}
		return nil, Refused, illegal(s, ev, "")
	}
	if err := m.checkLease(s, ev); err != nil {
		return nil, Refused, err
	}
	out, reason, err := m.checkGuards(s, ev)
	switch {
	case err == ErrIllegal:
		return nil, Refused, illegal(s, ev, reason)
	case err == ErrSessionMismatch, err == ErrConversationHeld && ev.Kind == EventClaim:
		return m, Refused, refuse(s, ev, err, reason)
	case err != nil:
		return nil, Refused, refuse(s, ev, err, reason)
	case out != Unset:
		return nil, out, nil
	case m.effects&yields != 0:
		return m, Yielded, nil
	}
	return m, Applied, nil
}

// checkLease checks nonce and tombstone.
func (m *move) checkLease(s *State, ev *Event) error {
	switch m.lease {
	case needsNonce:
		if ev.Nonce != s.Nonce || s.Released {
			return refuse(s, ev, ErrStaleNonce, "")
		}
	case needsAttempt:
		if ev.Attempt != s.Attempt {
			return refuse(s, ev, ErrStaleNonce, "of another attempt")
		}
	case needsEither:
		// An attempt is its lease's first nonce, so one must not pass for the other: who was
		// taken over still knows the attempt.
		if ev.Nonce != "" && (ev.Nonce != s.Nonce || s.Released) || ev.Nonce == "" && ev.Attempt != s.Attempt {
			return refuse(s, ev, ErrStaleNonce, "")
		}
	case mints:
		switch {
		case m.op == OpKill && !s.Tombstoned:
			return illegal(s, ev, "no kill is intended")
		case m.op != OpKill && m.op != OpDrop && s.Tombstoned:
			return refuse(s, ev, ErrKillIntended, "")
		}
	}
	return nil
}

// RefusedError is a refusal that is no illegal transition. It wraps one of the sentinel
// errors, for example [ErrLeaseHeld] or [ErrUnknown]; Reason adds what stood against the
// event, or which evidence was not to be had.
type RefusedError struct {
	From   State
	Event  EventKind
	Reason string // may be empty
	Err    error  // the sentinel
}

// Error implements error.
func (e *RefusedError) Error() string {
	text := fmt.Sprintf("ledger: %s in %s: %v", e.Event, e.From.name(), e.Err)
	if e.Reason != "" {
		text += ": " + e.Reason
	}
	return text
}

// Unwrap returns the sentinel. A take-over that could not judge the lease's owner is
// ErrLeaseHeld too: a lease that is not provably stale is held.
func (e *RefusedError) Unwrap() []error {
	if e.Event == EventTakeOver && e.Err == ErrUnknown {
		return []error{ErrUnknown, ErrLeaseHeld}
	}
	return []error{e.Err}
}

// IllegalTransitionError says that an event does not fit the state: it is not in the
// table there (Reason is empty), or known facts stand against it.
type IllegalTransitionError struct {
	From   State
	Event  EventKind
	Reason string

	stale bool
}

// Error implements error.
func (e *IllegalTransitionError) Error() string {
	text := fmt.Sprintf("ledger: %s is illegal in %s", e.Event, e.From.name())
	if e.Reason != "" {
		text += ": " + e.Reason
	}
	return text
}

// Unwrap returns ErrIllegal; and ErrStaleNonce as well where the event came with the
// nonce of an operation that is over.
func (e *IllegalTransitionError) Unwrap() []error {
	if e.stale {
		return []error{ErrIllegal, ErrStaleNonce}
	}
	return []error{ErrIllegal}
}

func refuse(s *State, ev *Event, err error, reason string) error {
	return &RefusedError{From: *s, Event: ev.Kind, Reason: reason, Err: err}
}

func illegal(s *State, ev *Event, reason string) error {
	return &IllegalTransitionError{
		From: *s, Event: ev.Kind, Reason: reason,
		stale: ev.Nonce != "" && !ev.Kind.mints() && ev.Nonce != s.Nonce,
	}
}

// name is the state as people read it: live/freeze.
func (s State) name() string {
	if s.Phase == PhaseNone {
		return "no row"
	}
	if s.Op == OpNone {
		return string(s.Phase) + "/none"
	}
	return string(s.Phase) + "/" + string(s.Op)
}
