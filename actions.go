package ledger

// The actions that a caller may offer a person.
const (
	ActionFreeze  = "freeze"
	ActionRestore = "restore"
	ActionResume  = "resume" // take up the conversation of an orphaned session as a new row
	ActionHandoff = "handoff"
	ActionKill    = "kill"
	ActionDrop    = "drop"
)

// ActionState says whether an action is open on a session now.
type ActionState struct {
	Action string `json:"action"` // ActionFreeze, ...
	Open   bool   `json:"open"`
	Reason string `json:"reason"` // why not; where it is open, what it comes with, or nothing
}

// Activity is a session as a progress display sees it: something is going on, it waits,
// or nothing more is to be expected.
type Activity string

// The activities.
const (
	ActivityPending  Activity = "pending"
	ActivityIdle     Activity = "idle"
	ActivityTerminal Activity = "terminal"
)

// activity condenses a row and its liveness. A tombstone outranks everything; working
// is what Status says beside DETACHED-ALIVE, nil where it is not known.
func activity(s State, l Liveness, working *bool) Activity {
	switch {
	case s.Tombstoned:
		return ActivityTerminal
	case s.Op != OpNone, s.Limited:
		return ActivityPending
	}
	switch l {
	case LivenessWorking, LivenessUnknown, "":
		return ActivityPending
	case LivenessIdle:
		return ActivityIdle
	case LivenessDetached:
		if working != nil && !*working {
			return ActivityIdle
		}
		return ActivityPending
	}
	return ActivityTerminal
}

// actionView is what the open actions depend on beside the row.
type actionView struct {
	Liveness Liveness
	Session  Verdict // of every session process of the row
	Stale    bool    // the lease of the operation in flight may be taken over
}

// actions says which actions are open on the row, in a fixed order. It reads one
// snapshot, and promises nothing: the table has the last word when the action begins.
func actions(e Entry, v actionView) []ActionState {
	s := e.State()
	list := make([]ActionState, 0, 6)
	add := func(action string, closed ...string) {
		a := ActionState{Action: action, Open: true}
		for _, reason := range closed {
			if reason != "" {
				a.Open, a.Reason = false, reason
				break
			}
		}
		list = append(list, a)
	}
	newer := because(s.SchemaTooNew, "a newer version wrote this row: it is read-only here")
	over := because(s.Phase == PhaseFinished || s.Phase == PhaseNone, "the session is over")
	shelved := because(s.Phase == PhaseArchived, "the session is archived")
	doomed := because(s.Tombstoned, "the session is meant to be killed")
	busy := s.busy(v)
	notLive := because(s.Phase != PhaseLive, "the session is "+string(s.Phase))
	unknown := because(v.Liveness == LivenessUnknown || v.Liveness == "", "whether its process runs is not known")

	add(ActionFreeze, newer, over, shelved, doomed, busy, notLive, unknown,
		because(!v.Liveness.alive(), "its process does not run"),
		because(e.PaneID == "", "it runs in no tmux pane"),
		because(s.SessionID == "", "no conversation is recorded to bring it back by"))
	add(ActionRestore, newer, over, shelved, doomed, busy,
		because(s.Phase != PhaseFrozen, "the session is not frozen"),
		because(v.Session == Running, "a process of the session runs"),
		because(s.SessionID == "", "no conversation is recorded to resume"))
	add(ActionResume, newer, over, shelved, doomed, busy, notLive, unknown,
		because(v.Liveness.alive(), "its process runs: attach"),
		because(s.SessionID == "", "no conversation is recorded to resume"))
	add(ActionHandoff, newer, over, shelved, doomed, busy, notLive, unknown)
	add(ActionKill, newer, over)
	if kill := &list[len(list)-1]; kill.Open {
		kill.Reason = s.killing(v)
	}
	add(ActionDrop, newer,
		because(v.Session == Running || v.Liveness.alive(), "a process of the session runs: kill it first"),
		because(v.Session == Unknown, "whether a process of the session runs is not known"))
	return list
}

// busy says what operation is in the way, if any.
func (s *State) busy(v actionView) string {
	switch {
	case s.Op == OpNone:
		return ""
	case v.Stale:
		return "an interrupted " + string(s.Op) + " is to be settled first: reconcile"
	}
	return "a " + string(s.Op) + " is in flight"
}

// killing says what a kill comes with: it waits for nothing, goes on with what a dead
// coordinator has left, and takes what is held by force alone.
func (s *State) killing(v actionView) string {
	switch {
	case s.Op == OpNone:
		return ""
	case !v.Stale:
		return "a " + string(s.Op) + " is in flight, and only force takes a lease that is held"
	case s.Op == OpKill:
		return "it goes on with the kill that was interrupted"
	}
	return "it settles an interrupted " + string(s.Op) + " first"
}

func because(bad bool, reason string) string {
	if bad {
		return reason
	}
	return ""
}

// Actions says which actions are open on the session now, and why the others are not.
func (s Session) Actions() []ActionState {
	v := actionView{Liveness: s.Status.State, Session: s.Status.process}
	if l := s.Status.Lease; l != nil && l.Stale != nil {
		v.Stale = *l.Stale
	}
	return actions(s.Entry, v)
}

// Activity condenses the session for a progress display.
func (s Session) Activity() Activity {
	return activity(s.Entry.State(), s.Status.State, s.Status.Working)
}
