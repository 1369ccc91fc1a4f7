package ledger

import "time"

// Observation is what was seen of one row that may be in mid-operation: the input of
// [Plan]. Every zero value is "not known".
type Observation struct {
	Agent    Verdict // of the recorded process
	Launched Verdict // of restore.launched
	// LaunchedAge is how long the launched process has run. 0, not known, is too young to
	// be trusted.
	LaunchedAge  time.Duration
	Session      Verdict         // of every session process of the row; see Facts.Session
	Attempt      CarrierSighting // of a process that carries the lease's attempt
	Row          CarrierSighting // of a session process that carries the row's id
	Conversation Answer          // whether that one's conversation is the row's
	Capture      Answer          // whether capture.ansi of frozen.attempt is in place
	Pane         PaneSighting    // of the recorded pane; of no concern where none is recorded

	Lease    LeaseSighting
	Mine     bool          // the caller holds the lease, and goes on
	AckGrace time.Duration // 0: DefaultAckGrace; less than 0: none
}

// CarrierSighting is what was seen of the processes that carry an id.
type CarrierSighting struct {
	Seen    Verdict   // Running: there is one; Gone: none, in a complete view
	Process ProcessID // the outermost of them
	AtGate  bool      // all that were seen wait at their gate: none is a session yet
}

// session is the verdict of the carriers as sessions: one at the gate is none.
func (c CarrierSighting) session() Verdict {
	if c.Seen == Running && c.AtGate {
		return Gone
	}
	return c.Seen
}

// PaneState says whether a pane is there. It is gone only where the recorded server
// process is provably gone, or a complete listing of that very server lacks the pane.
type PaneState int

// The pane states.
const (
	PaneUnknown PaneState = iota
	PaneGone
	PanePresent
)

// PaneSighting is what was seen of the recorded pane. All but State count only where it
// is PanePresent.
type PaneSighting struct {
	State   PaneState
	Ours    Answer    // its stamp is the row's id
	Mark    string    // attempt that its mark names
	Ready   string    // attempt whose stand-in was started in it
	Dead    Answer    // its process has ended
	Process ProcessID // that runs in it
}

// Ending names processes that are to be ended.
type Ending int

// The endings. EndAgent is the recorded process, EndAttempt every process of the attempt.
const (
	EndNothing Ending = iota
	EndAgent
	EndAttempt
)

// Action is what to do about a row, in the order of its members. The zero value is to
// leave it alone. Each step is done only if the ones before it succeeded.
//
// After a fence everything is to be observed again, and Plan asked again with Mine set:
// only an action with the same event goes on.
type Action struct {
	TakeOver bool      // take the stale lease over; nothing to do where it is the caller's
	Begin    EventKind // begin this operation
	Fence    bool      // replace the pane's mark, so that a late command fails its guard
	End      Ending    // end these by identity
	StandIn  bool      // put the stand-in back, in one guarded dispatch
	Rescue   bool      // rescue the work of the dead process
	Event    EventKind // apply this event

	Process    ProcessID // the event's process; zero for the stand-in that was put back, or none
	SessionID  string    // the event's conversation
	ProcessKey string    // of Finish
	Reason     string    // the event's reason, or why
	Files      bool      // afterwards, the attempt's files may go

	Unclear   string // note that the row is unclear, and why
	Attention string // ask a person to look
	Settle    bool   // the row is clear again: forget both
}
