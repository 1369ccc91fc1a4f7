package ledger

import (
	"fmt"
	"time"
)

const (
	// DefaultAckGrace is how long a restore waits for its agent's hook.
	DefaultAckGrace = 20 * time.Second

	// attentionAfter is how long a row may be unclear, or a lease held, before a person is
	// asked to look.
	attentionAfter = 10 * time.Minute
)

// Plan decides what is to be done about a row that its coordinator left, from what can
// be seen; the first rule that fits counts. Unknown in any input of a state wins over every
// action of that state. It is pure; now is the wall clock, against which
// the row has stored since when it is unclear.
func Plan(e Entry, ob Observation, now time.Time) Action {
	p := planner{Entry: &e, State: e.State(), ob: &ob}
	p.age, p.aged = p.leaseAge(&ob.Lease)
	a := p.plan()
	if a.Begin != EventNone || a.Event != EventNone || a.End != EndNothing {
		return a
	}
	return a.paced(&e, now)
}

// paced turns "it is unclear" into what is to be written, once each.
func (a Action) paced(e *Entry, now time.Time) Action {
	if a.Unclear == "" {
		return Action{Settle: e.Unclear != nil}
	}
	b := Entry{Unclear: clonePtr(e.Unclear), Attention: clonePtr(e.Attention)}
	if !b.unclear(a.Unclear, a.Attention != "", now) {
		return Action{}
	}
	a.Attention = ""
	if e.Attention == nil && b.Attention != nil {
		a.Attention = b.Attention.Reason
	}
	return a
}

// note writes the action's bookkeeping into the row.
func (a Action) note(e *Entry, now time.Time) {
	switch {
	case a.Settle:
		e.settle()
	case a.Unclear != "":
		e.unclear(a.Unclear, a.Attention != "", now)
	}
}

// unclear notes that the row could not be settled, and reports whether that is news.
// After ten minutes, or at once where it is urgent, it asks for attention, unless
// something else has done so.
func (e *Entry) unclear(reason string, urgent bool, now time.Time) (news bool) {
	now = stored(now)
	raised := e.Attention != nil && e.Unclear != nil && e.Attention.Reason == e.Unclear.Reason
	// A wall clock that was stepped back must not hide the row for longer.
	if e.Unclear == nil || now.Before(e.Unclear.Since) {
		e.Unclear, news = &Note{Since: now}, true
	}
	news = news || e.Unclear.Reason != reason
	e.Unclear.Reason = reason
	switch {
	case raised:
		e.Attention.Reason = reason
	case e.Attention == nil && (urgent || now.Sub(e.Unclear.Since) >= attentionAfter):
		e.Attention, news = &Note{Since: now, Reason: reason}, true
	}
	return news
}

// planner holds the inputs of one plan.
type planner struct {
	*Entry
	State
	ob   *Observation
	age  time.Duration
	aged bool
}

// old reports whether the attempt is older than twice the grace, however long that is.
func (p *planner) old() bool { return p.aged && p.age >= 2*min(p.ob.Lease.grace(), forever/2) }

func (p *planner) plan() Action {
	s := &p.State
	switch {
	case s.SchemaTooNew || s.Phase == PhaseNone || s.Phase == PhaseArchived:
		return Action{}
	case s.Op != OpNone:
		if a, held := p.held(); held {
			return a
		}
	case s.Tombstoned:
		return p.doomed()
	}
	switch {
	case s.Op == OpKill:
		return p.kill()
	case s.Op == OpDrop:
		return p.drop()
	case s.Phase == PhaseLive && s.Op == OpNone:
		return p.ended()
	case s.Phase == PhaseLive && s.Op == OpCreate:
		return p.create()
	case s.Phase == PhaseLive && s.Op == OpFreeze:
		return p.freeze()
	case s.Phase == PhaseLive && s.Op == OpHandoff:
		return p.handoff()
	case s.Phase == PhaseLive && s.Op == OpRespawn:
		return p.respawn()
	case s.Phase == PhaseFrozen && s.Op == OpNone:
		return p.frozen()
	case s.Phase == PhaseFrozen && s.Op == OpStandIn:
		return p.standIn()
	case s.Phase == PhaseFrozen && s.Op == OpRestore:
		return p.restore()
	case s.Phase == PhaseFrozen && s.Op == OpAbort:
		return p.abort()
	case s.Op != OpNone:
		return unclear("there is no rule for %s", s.name())
	}
	return Action{}
}

func unclear(format string, args ...any) Action { return Action{Unclear: fmt.Sprintf(format, args...)} }

// urgent is unclear, and no time will make it clear.
func urgent(format string, args ...any) Action {
	reason := fmt.Sprintf(format, args...)
	return Action{Unclear: reason, Attention: reason}
}

// held decides rows whose lease may not be taken over.
func (p *planner) held() (a Action, held bool) {
	if p.ob.Mine {
		return Action{}, false
	}
	stale := p.leaseStale(&p.ob.Lease)
	switch {
	case stale == Yes:
		return Action{}, false
	case p.aged && p.age >= attentionAfter && stale == No:
		return urgent("its %s has been in flight for over 10 minutes", p.Op), true
	case p.aged && p.age >= attentionAfter:
		return urgent("its %s has been in flight for over 10 minutes, and whether its owner runs is not known", p.Op), true
	case stale == Unsure:
		return unclear("whether the owner of its %s runs is not known", p.Op), true
	}
	return Action{}, true
}

func (p *planner) create() Action {
	switch c := p.ob.Attempt; {
	case c.Seen == Unknown:
		return unclear("whether the session was started is not known")
	case c.session() == Running:
		return Action{TakeOver: true, Event: EventBind, Process: c.Process}
	case !p.old():
		return Action{}
	case p.Ran:
		return Action{TakeOver: true, Fence: true, Event: EventCreateUnknown, Reason: "its start was not confirmed, and left traces"}
	}
	return Action{TakeOver: true, Fence: true, Event: EventRemoveBirth, Reason: "it never ran"}
}

func (p *planner) freeze() Action {
	ob := p.ob
	pane, known := p.pane()
	shell := p.FreezeMode == FreezeShell
	commit := Action{TakeOver: true, Event: EventCommitFreeze}
	switch {
	case ob.Agent == Unknown:
		return unclear("freeze: whether the agent runs is not known")
	case ob.Capture == Unsure:
		return unclear("freeze: whether its output was kept is not known")
	case !shell && !known:
		return unclear("freeze: what its pane holds is not known")
	case ob.Agent == Running && !shell && pane.ours && pane.ready && ob.Capture == Yes:
		commit.End, commit.Process, commit.StandIn = EndAgent, pane.standIn(), pane.dead
		return commit
	case ob.Agent == Running:
		// A person's pane is never marked: there a fresh look is all the fence there is.
		return Action{TakeOver: true, Fence: !shell, Event: EventAbortFreeze, Reason: "the agent still runs", Files: true}
	case ob.Capture == No:
		return Action{TakeOver: true, Fence: !shell, Event: EventAbortFreeze, Reason: "the agent is gone, and its output was not kept", Files: true}
	case shell, !pane.ours:
		return commit
	case pane.ready:
		commit.Process = pane.standIn()
		return commit
	case pane.dead || p.old():
		commit.StandIn = true
		return commit
	}
	return Action{}
}

func (p *planner) frozen() Action {
	switch p.ob.Row.session() {
	case Unknown:
		return unclear("whether a process of the frozen session runs is not known")
	case Running:
		switch p.ob.Conversation {
		case Yes:
			return Action{Event: EventAdopt, Process: p.ob.Row.Process, SessionID: p.State.SessionID}
		case No:
			return urgent("a process of the frozen session runs in another conversation")
		}
		return unclear("a process of the frozen session runs; its conversation is not known yet")
	}
	if p.FreezeMode == FreezeShell {
		return Action{}
	}
	pane, known := p.pane()
	switch {
	case !known:
		return unclear("what its pane holds is not known")
	case pane.ours && pane.dead:
		return Action{Begin: EventBeginStandIn, StandIn: true, Event: EventEndStandIn}
	}
	return Action{}
}

func (p *planner) standIn() Action {
	pane, known := p.pane()
	a := Action{TakeOver: true, Event: EventEndStandIn}
	switch {
	case !known:
		return unclear("what its pane holds is not known")
	case !pane.ours:
	case pane.ready && !pane.dead:
		a.Process = pane.standIn()
	default:
		a.StandIn = true
	}
	return a
}

func (p *planner) restore() Action {
	ob := p.ob
	fail := Action{TakeOver: true, Event: EventFailRestore}
	launched := p.State.Restore.Launched
	switch {
	case !launched.IsZero() && ob.Launched == Unknown:
		return unclear("restore: whether the launched process runs is not known")
	case launched.IsZero() && ob.Attempt.Seen == Unknown:
		return unclear("restore: whether a process was launched is not known")
	case p.State.Restore.Failed:
		if r := p.Entry.Restore; r != nil && r.Error != nil {
			fail.Reason = r.Error.Reason
		}
		return fail
	case !launched.IsZero() && ob.Launched == Gone:
		fail.Reason = "the launched process has ended"
		return fail
	case !launched.IsZero() && ob.Attempt.Seen == Unknown:
		return unclear("restore: whether the launched process has passed its gate is not known")
	case !launched.IsZero() && ob.Attempt.AtGate:
		// Its coordinator ended before it let it pass: it is no agent, and will be none.
		if !p.old() {
			return Action{}
		}
		fail.Reason = "the launched process was not let through its gate"
		return fail
	case !launched.IsZero() && ob.LaunchedAge >= ob.ackGrace() && ob.LaunchedAge > 0:
		return Action{TakeOver: true, Event: EventConfirmRestore, Process: launched}
	case !launched.IsZero():
		return Action{}
	case ob.Attempt.session() == Running:
		return Action{TakeOver: true, Event: EventLaunched, Process: ob.Attempt.Process}
	case p.old():
		fail.Reason = "no process was launched"
		return fail
	}
	return Action{}
}

func (ob *Observation) ackGrace() time.Duration {
	switch {
	case ob.AckGrace == 0:
		return DefaultAckGrace
	case ob.AckGrace < 0:
		return 0
	}
	return ob.AckGrace
}

func (p *planner) abort() Action {
	ob := p.ob
	launched := p.State.Restore.Launched
	pane, known := p.pane()
	a := Action{TakeOver: true, Event: EventStandInReady}
	switch {
	case ob.Attempt.Seen == Unknown, !launched.IsZero() && ob.Launched == Unknown:
		return unclear("failed restore: whether a process of it runs is not known")
	case !known:
		return unclear("failed restore: what its pane holds is not known")
	case !launched.IsZero() && ob.Launched == Running:
		return Action{TakeOver: true, End: EndAttempt, Process: launched}
	case ob.Attempt.Seen == Running:
		return Action{TakeOver: true, End: EndAttempt, Process: ob.Attempt.Process}
	case !pane.ours:
	case pane.ready:
		a.Process = pane.standIn()
	default:
		a.StandIn = true
	}
	return a
}

func (p *planner) handoff() Action {
	switch c := p.ob.Attempt; {
	case c.Seen == Unknown:
		return unclear("handoff: whether the newcomer runs is not known")
	case p.ob.Agent == Unknown:
		return unclear("handoff: whether the old agent runs is not known")
	case c.session() == Running && p.ob.Agent == Running:
		return urgent("handoff: the old agent and the newcomer both run")
	case c.session() == Running:
		return Action{TakeOver: true, Event: EventCommitHandoff, Process: c.Process}
	case p.old():
		return Action{TakeOver: true, Fence: true, Event: EventAbortHandoff, Reason: "the newcomer does not run"}
	}
	return Action{}
}

func (p *planner) respawn() Action {
	switch c := p.ob.Attempt; {
	case c.Seen == Unknown:
		return unclear("respawn: whether the new process runs is not known")
	case c.session() == Running:
		return Action{TakeOver: true, Event: EventCommitRespawn, Process: c.Process}
	case p.old():
		return Action{TakeOver: true, Fence: true, Event: EventAbortRespawn, Reason: "the new process does not run"}
	}
	return Action{}
}

func (p *planner) kill() Action {
	if p.ob.Session != Gone {
		return unclear("kill: %s", p.remains())
	}
	return Action{TakeOver: true, Rescue: p.unrescued(), Event: EventCommitKill}
}

// doomed is a row with a tombstone and no operation.
func (p *planner) doomed() Action {
	if p.ob.Session != Gone {
		return unclear("it is meant to be killed: %s", p.remains())
	}
	return Action{Begin: EventBeginKill, Rescue: p.unrescued(), Event: EventCommitKill}
}

func (p *planner) remains() string {
	if p.ob.Session == Running {
		return "a process of it still runs: to kill it again ends it"
	}
	return "whether a process of it runs is not known"
}

func (p *planner) drop() Action {
	switch p.ob.Session {
	case Gone:
		return Action{TakeOver: true, Rescue: p.unrescued() && p.State.Phase == PhaseLive, Event: EventCommitDrop, Files: true}
	case Running:
		return Action{TakeOver: true, Event: EventAbortDrop, Reason: "a process of it runs"}
	}
	return unclear("drop: whether a process of it runs is not known")
}

// ended settles an end that was reported while an operation was in flight.
func (p *planner) ended() Action {
	if p.State.EndNoted == "" || !p.State.Process.hasKey(p.State.EndNoted) {
		return Action{}
	}
	switch p.ob.Agent {
	case Unknown:
		return unclear("its end was reported; whether its process runs is not known")
	case Gone:
		return Action{Rescue: p.unrescued(), Event: EventFinish, ProcessKey: p.State.EndNoted, Reason: p.Entry.EndNoted.Reason}
	}
	return Action{}
}

// unrescued reports whether a process ran whose work was not rescued.
func (p *planner) unrescued() bool { return p.PID > 0 && !p.Rescued }

// pane is the recorded pane as the plan sees it. Known is false where any of it is not.
func (p *planner) pane() (v paneView, known bool) {
	o := p.ob.Pane
	switch {
	case p.PaneID == "" || o.State == PaneGone:
		return paneView{}, true
	case o.State != PanePresent || o.Ours == Unsure:
		return paneView{}, false
	case o.Ours == No:
		return paneView{}, true
	}
	return paneView{
		ours: true, dead: o.Dead == Yes, process: o.Process,
		ready: o.Ready != "" && o.Ready == p.Attempt,
	}, o.Dead != Unsure
}

// paneView is a pane: ours or (gone, or a person's) not.
type paneView struct {
	ours, ready, dead bool
	process           ProcessID
}

// standIn is the process of a pane whose stand-in is ready.
func (v paneView) standIn() ProcessID {
	if v.dead {
		return ProcessID{}
	}
	return v.process
}
