package ledger

import (
	"fmt"
	"math/rand/v2"
	"time"
)

// EventKind names an event. The zero value names none.
type EventKind int

// The events. docs/state.md says where each is legal and what it does.
const (
	EventNone EventKind = iota
	EventEnrol
	EventBeginCreate
	EventBind
	EventRemoveBirth
	EventCreateUnknown
	EventBeginFreeze
	EventCommitFreeze
	EventAbortFreeze
	EventBeginRestore
	EventLaunched
	EventAcknowledge
	EventConfirmRestore
	EventFailRestore
	EventStandInReady
	EventAdopt
	EventBeginStandIn
	EventEndStandIn
	EventBeginHandoff
	EventCommitHandoff
	EventParkHandoff
	EventAbortHandoff
	EventBeginRespawn
	EventCommitRespawn
	EventAbortRespawn
	EventClaim
	EventObserveLimit
	EventClearLimit
	EventIntendKill
	EventWithdrawKill
	EventBeginKill
	EventCommitKill
	EventAbortKill
	EventFinish
	EventBeginDrop
	EventCommitDrop
	EventAbortDrop
	EventRelease
	EventTakeOver
	EventForceTakeOver
	eventCount
)

var eventNames = [eventCount]string{
	"none", "Enrol", "BeginCreate", "Bind", "RemoveBirth", "CreateUnknown",
	"BeginFreeze", "CommitFreeze", "AbortFreeze",
	"BeginRestore", "Launched", "Acknowledge", "ConfirmRestore", "FailRestore", "StandInReady",
	"Adopt", "BeginStandIn", "EndStandIn",
	"BeginHandoff", "CommitHandoff", "ParkHandoff", "AbortHandoff",
	"BeginRespawn", "CommitRespawn", "AbortRespawn",
	"Claim", "ObserveLimit", "ClearLimit",
	"IntendKill", "WithdrawKill", "BeginKill", "CommitKill", "AbortKill", "Finish",
	"BeginDrop", "CommitDrop", "AbortDrop", "Release", "TakeOver", "ForceTakeOver",
}

// String returns the event's name, as in "BeginFreeze".
func (k EventKind) String() string {
	if k < 0 || k >= eventCount {
		return "unknown event"
	}
	return eventNames[k]
}

// mints reports whether events of this kind bring a new nonce.
func (k EventKind) mints() bool {
	switch k {
	case EventBeginCreate, EventBeginFreeze, EventBeginRestore, EventBeginStandIn, EventBeginHandoff,
		EventBeginRespawn, EventBeginKill, EventBeginDrop, EventTakeOver, EventForceTakeOver:
		return true
	}
	return false
}

// Event is something that happened to a session, or is to happen, with every field that
// it sets. Make one with the constructor of its name. A zero field was not supplied, and
// overwrites nothing; the constructors say which fields may be set beside their
// parameters.
//
// At, BootSec and Facts are filled in by [Store.Apply] under the row's lock. Who calls
// [Transition] directly fills them in by hand.
type Event struct {
	Kind    EventKind
	Nonce   string    // the lease's nonce; of a Begin or a take-over, the new one
	Attempt string    // attempt that the sender's own environment names
	Owner   ProcessID // who will act, of a Begin or a take-over

	Process        ProcessID // the process it speaks of: the agent's, or a stand-in
	ProcessKey     string    // the same as a key, of Claim, ObserveLimit and Finish
	Location       Location  // where the process is
	SessionID      string    // the conversation
	TranscriptPath string    // that conversation's file
	Source         string    // where SessionID comes from, for the record

	FreezeMode  FreezeMode
	Lines       int // captured lines
	RestoreMode RestoreMode
	Command     string    // what a repick will run; only its presence counts
	Target      string    // runtime to hand off to; row that takes a conversation over
	HeadCommit  string    // of the repository, at a handoff
	Brief       string    // what a newcomer is told at a handoff
	Automatic   bool      // a handoff that nobody asked for
	ResetAt     time.Time // when a limit ends
	Reason      string    // in plain words

	At      time.Time // when it is applied
	BootSec int64     // the same on the boot clock, in seconds
	Facts   Facts

	epoch  uint64
	scoped bool
}

// AtEpoch scopes the event to an observation: on a row whose epoch is no longer n it is
// [Dropped]. Read state and epoch together, observe, apply with that epoch.
func (ev Event) AtEpoch(n uint64) Event {
	ev.epoch, ev.scoped = n, true
	return ev
}

// Location is where a session runs. The zero value is "not supplied". A pane goes with
// the tmux server process that numbered it, a slot with its window: half of either is
// refused as [ErrInvalid].
type Location struct {
	Mux        Mux
	PaneID     string // tmux pane (%N)
	PaneServer ProcessID
	Window     string // window name
	Slot       int    // from 0; only with Window
}

// mixed says what does not go together, or "".
func (l *Location) mixed() string {
	switch {
	case (l.PaneID == "") != l.PaneServer.IsZero():
		return "a pane and its server process go together"
	case l.PaneID != "" && l.Mux.Kind != "" && l.Mux.Kind != MuxTmux:
		return "only tmux has panes"
	case l.Mux.Kind == "" && (l.Mux.Socket != "" || l.Mux.Target != ""):
		return "a multiplexer without its kind"
	case l.Slot < 0 || l.Slot > 0 && l.Window == "":
		return "a slot goes with its window"
	}
	return ""
}

// newNonce returns 128 random bits in hexadecimal.
func newNonce() string {
	return fmt.Sprintf("%016x%016x", rand.Uint64(), rand.Uint64())
}

func mint(kind EventKind, owner ProcessID) Event {
	return Event{Kind: kind, Nonce: newNonce(), Owner: owner}
}

// Enrol adopts a process that runs already: the first event of its row.
func Enrol(process ProcessID, loc Location) Event {
	return Event{Kind: EventEnrol, Process: process, Location: loc}
}

// BeginCreate is the birth record, written before anything is spawned.
func BeginCreate(owner ProcessID) Event { return mint(EventBeginCreate, owner) }

// Bind records the process of a session and where it is: of a birth with the nonce of
// its lease; of a live row, with no nonce, one that comes after a process that is gone,
// or the recorded process at a new location.
func Bind(nonce string, process ProcessID, loc Location) Event {
	return Event{Kind: EventBind, Nonce: nonce, Process: process, Location: loc}
}

// BindCarrier is the Bind of a birth by a sender without its nonce, for a process that
// carries the attempt in its environment.
func BindCarrier(attempt string, process ProcessID, loc Location) Event {
	return Event{Kind: EventBind, Attempt: attempt, Process: process, Location: loc}
}

// RemoveBirth takes back a birth of which nothing ever ran: the row goes.
func RemoveBirth(nonce string) Event { return Event{Kind: EventRemoveBirth, Nonce: nonce} }

// CreateUnknown ends a creation that was not confirmed: the row stays, without a
// process, for a person to look at. A later Bind settles it.
func CreateUnknown(nonce, reason string) Event {
	return Event{Kind: EventCreateUnknown, Nonce: nonce, Reason: reason}
}

// BeginFreeze starts to freeze the session; its pane will get a stand-in.
func BeginFreeze(owner ProcessID) Event {
	ev := mint(EventBeginFreeze, owner)
	ev.FreezeMode = FreezePane
	return ev
}

// BeginShellFreeze starts to freeze a session that runs below a person's shell: the
// agent alone is ended, the pane stays as it is.
func BeginShellFreeze(owner ProcessID) Event {
	ev := mint(EventBeginFreeze, owner)
	ev.FreezeMode = FreezeShell
	return ev
}

// CommitFreeze says that the agent is gone and its output kept. The stand-in is zero
// where there is none. Lines may be set.
func CommitFreeze(nonce string, standIn ProcessID) Event {
	return Event{Kind: EventCommitFreeze, Nonce: nonce, Process: standIn}
}

// AbortFreeze gives a freeze up.
func AbortFreeze(nonce string) Event { return Event{Kind: EventAbortFreeze, Nonce: nonce} }

// BeginRestore starts to bring a frozen session back by its recorded conversation.
func BeginRestore(owner ProcessID) Event {
	ev := mint(EventBeginRestore, owner)
	ev.RestoreMode = RestoreResume
	return ev
}

// BeginRepick starts to bring a frozen session back by a command of the embedder's, and
// adopts the conversation that comes up.
func BeginRepick(owner ProcessID, command string) Event {
	ev := mint(EventBeginRestore, owner)
	ev.RestoreMode, ev.Command = RestoreRepick, command
	return ev
}

// Launched names the process that a restore has started.
func Launched(nonce string, process ProcessID, loc Location) Event {
	return Event{Kind: EventLaunched, Nonce: nonce, Process: process, Location: loc}
}

// Acknowledge is the word of the restored agent's own hook: which process it is, and
// which conversation came up. TranscriptPath, Source and Location may be set.
func Acknowledge(attempt string, process ProcessID, sessionID string) Event {
	return Event{Kind: EventAcknowledge, Attempt: attempt, Process: process, SessionID: sessionID}
}

// ConfirmRestore settles a restore without its hook's word, by the process alone.
func ConfirmRestore(nonce string, process ProcessID) Event {
	return Event{Kind: EventConfirmRestore, Nonce: nonce, Process: process}
}

// FailRestore starts to clear a restore that failed away.
func FailRestore(nonce, reason string) Event {
	return Event{Kind: EventFailRestore, Nonce: nonce, Reason: reason}
}

// StandInReady ends a failed restore: its processes are gone, and the stand-in is back
// (zero: there is none).
func StandInReady(nonce string, standIn ProcessID) Event {
	return Event{Kind: EventStandInReady, Nonce: nonce, Process: standIn}
}

// Adopt says that a frozen session runs again without a restore: a session process
// carries the row's id, and its conversation is the row's. Location may be set.
func Adopt(process ProcessID, sessionID string) Event {
	return Event{Kind: EventAdopt, Process: process, SessionID: sessionID}
}

// BeginStandIn starts to put a dead stand-in back.
func BeginStandIn(owner ProcessID) Event { return mint(EventBeginStandIn, owner) }

// EndStandIn ends it; the stand-in is zero where there is none.
func EndStandIn(nonce string, standIn ProcessID) Event {
	return Event{Kind: EventEndStandIn, Nonce: nonce, Process: standIn}
}

// BeginHandoff starts to swap the agent for one of the runtime target.
func BeginHandoff(owner ProcessID, target string) Event {
	ev := mint(EventBeginHandoff, owner)
	ev.Target = target
	return ev
}

// CommitHandoff says that the newcomer runs. SessionID is its conversation, if known.
// TranscriptPath, HeadCommit, Brief, Reason and Automatic may be set.
func CommitHandoff(nonce string, process ProcessID, loc Location, sessionID string) Event {
	return Event{Kind: EventCommitHandoff, Nonce: nonce, Process: process, Location: loc, SessionID: sessionID}
}

// ParkHandoff is CommitHandoff for a newcomer that has run into a usage limit, which
// ends at resetAt (zero: not known).
func ParkHandoff(nonce string, process ProcessID, loc Location, sessionID string, resetAt time.Time) Event {
	ev := CommitHandoff(nonce, process, loc, sessionID)
	ev.Kind, ev.ResetAt = EventParkHandoff, resetAt
	return ev
}

// AbortHandoff gives a handoff up.
func AbortHandoff(nonce string) Event { return Event{Kind: EventAbortHandoff, Nonce: nonce} }

// BeginRespawn starts a new process for a live session whose process is gone.
func BeginRespawn(owner ProcessID) Event { return mint(EventBeginRespawn, owner) }

// CommitRespawn says that the new process runs.
func CommitRespawn(nonce string, process ProcessID, loc Location) Event {
	return Event{Kind: EventCommitRespawn, Nonce: nonce, Process: process, Location: loc}
}

// AbortRespawn gives a respawn up.
func AbortRespawn(nonce string) Event { return Event{Kind: EventAbortRespawn, Nonce: nonce} }

// Claim says which conversation the session is in, and where that is known from. The
// newest valid one becomes the row's. TranscriptPath may be set, and ProcessKey, which
// drops the claim once the row has another process.
func Claim(sessionID, source string) Event {
	return Event{Kind: EventClaim, SessionID: sessionID, Source: source}
}

// Cede is the Claim by which a row whose process is gone gives its conversation up to
// the row successor, whose process took it up.
func Cede(sessionID, successor string) Event {
	return Event{Kind: EventClaim, SessionID: sessionID, Target: successor}
}

// ObserveLimit says that the process with that key ran into a usage limit, which ends at
// resetAt (zero: not known).
func ObserveLimit(processKey string, resetAt time.Time) Event {
	return Event{Kind: EventObserveLimit, ProcessKey: processKey, ResetAt: resetAt}
}

// ClearLimit says that no usage limit holds any more.
func ClearLimit() Event { return Event{Kind: EventClearLimit} }

// IntendKill sets the tombstone: finish this session, never restore it. It is the commit
// point of a kill and waits for no lease.
func IntendKill() Event { return Event{Kind: EventIntendKill} }

// WithdrawKill takes the tombstone away.
func WithdrawKill() Event { return Event{Kind: EventWithdrawKill} }

// BeginKill starts to carry the intended kill out.
func BeginKill(owner ProcessID) Event { return mint(EventBeginKill, owner) }

// CommitKill says that the session's processes are gone. Reason may be set.
func CommitKill(nonce string) Event { return Event{Kind: EventCommitKill, Nonce: nonce} }

// AbortKill gives a kill up. The tombstone stays.
func AbortKill(nonce string) Event { return Event{Kind: EventAbortKill, Nonce: nonce} }

// Finish says that the process with that key has ended the session, or ended with it.
// During an operation it is remembered and settled later.
func Finish(processKey, reason string) Event {
	return Event{Kind: EventFinish, ProcessKey: processKey, Reason: reason}
}

// BeginDrop starts to remove a row and its files.
func BeginDrop(owner ProcessID) Event { return mint(EventBeginDrop, owner) }

// CommitDrop removes the row.
func CommitDrop(nonce string) Event { return Event{Kind: EventCommitDrop, Nonce: nonce} }

// AbortDrop gives a drop up.
func AbortDrop(nonce string) Event { return Event{Kind: EventAbortDrop, Nonce: nonce} }

// Release gives a lease back whose operation is not over: it is stale at once, and its
// nonce is dead. A coordinator that returns early and lives on sends it.
func Release(nonce string) Event { return Event{Kind: EventRelease, Nonce: nonce} }

// TakeOver takes a stale lease over: the event's nonce is the lease's from then on.
func TakeOver(owner ProcessID) Event { return mint(EventTakeOver, owner) }

// ForceTakeOver takes any lease over. Only a person's own kill or drop may do that.
func ForceTakeOver(owner ProcessID) Event { return mint(EventForceTakeOver, owner) }

// malformed says what no event of its kind may lack or mix, or "".
func (ev *Event) malformed() string {
	switch {
	case ev.Kind <= EventNone || ev.Kind >= eventCount:
		return "no such event"
	case ev.Kind.mints() && (ev.Nonce == "" || ev.Owner.IsZero()):
		return "no nonce, or no owner"
	}
	switch ev.Kind {
	case EventEnrol, EventBind, EventLaunched, EventAcknowledge, EventConfirmRestore, EventAdopt,
		EventCommitHandoff, EventParkHandoff, EventCommitRespawn:
		if ev.Process.IsZero() || ev.Process.BootID == "" {
			return "no process"
		}
	case EventBeginFreeze:
		if ev.FreezeMode != FreezePane && ev.FreezeMode != FreezeShell {
			return "no freeze mode"
		}
	case EventBeginRestore:
		if ev.RestoreMode != RestoreResume && ev.RestoreMode != RestoreRepick {
			return "no restore mode"
		}
	case EventClaim:
		if ev.SessionID == "" {
			return "no conversation"
		}
	}
	return ev.Location.mixed()
}
