package ledger

import (
	"fmt"
	"hash/maphash"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

// The small-scope search (case 22): three coordinators over one row, its processes, its
// pane and its captures, in every order, with crashes, take-overs, commands that run
// late, clock steps, a reboot, a person's kill, and a view that goes blind. The
// coordinators do their work by Transition and Plan alone; what they do to the world is
// what a host does in tmux. A state is a plain value, and so its own key.

// world is the row and everything that it speaks of.
type world struct {
	row       State
	unclear   int8 // 0: clear; 1: unclear; 2: for ten minutes
	attention bool

	boot     string
	procs    [6]wproc // 0 is the first agent
	pane     wpane
	captures [3]string // attempts with a complete capture
	gateOf   string    // attempt whose gate is open,
	gateFor  int8      // and for whom
	late     wcommand  // a tmux command that still runs although its client is dead
	blind    bool      // the tmux server does not answer
	co       [3]wcoord

	frozeAgent bool   // a freeze has ended the recorded process
	broke      string // what must never be done was done
	budget     wbudget
}

// wbudget bounds how often the world is unkind. A slip is a step that a coordinator
// believes it has done: then the guards alone stand between it and the row.
type wbudget struct{ crash, exit, close, blind, mismatch, wall, reboot, slip, hand int8 }

type wproc struct {
	kind    int8 // 0: free
	alive   bool
	gate    bool // a carrier that waits
	other   bool // it is in another conversation
	attempt string
}

const (
	isSession int8 = iota + 1
	isStandIn
)

type wpane struct {
	there       bool
	mark, ready string
	dead        bool
	proc        int8
}

type wcommand struct {
	standIn, carrier bool
	mark, attempt    string
	proc             int8 // that must be in the pane
}

type wprogram int8

const (
	idle wprogram = iota
	runFreeze
	runRestore
	runKill
	runReconcile
)

type wcoord struct {
	prog    wprogram
	pc      int8
	dead    bool
	nonce   string
	fenced  bool
	planned bool
	moved   bool // the epoch has moved since
	plan    Action
}

func coordID(i int, boot string) ProcessID {
	p := testProcess(10 + i)
	p.BootID = boot
	return p
}

func (w *world) procID(slot int8) ProcessID {
	p := testProcess(100 + int(slot))
	p.BootID = w.boot
	return p
}

// slot finds the process id; -1 for none and for one of another boot.
func (w *world) slot(p ProcessID) int8 {
	if p.PID < 100 || p.BootID != w.boot {
		return -1
	}
	return int8(p.PID - 100)
}

func (w *world) verdict(p ProcessID) Verdict {
	switch i := w.slot(p); {
	case p.IsZero():
		return Unknown
	case i >= 0 && w.procs[i].alive:
		return Running
	}
	return Gone
}

// fresh is a nonce that nothing refers to.
func (w *world) fresh() string {
	used := []string{w.row.Attempt, w.row.Nonce, w.row.Capture, w.row.Restore.Attempt, w.pane.mark, w.pane.ready, w.gateOf, w.late.mark, w.late.attempt}
	used = append(used, w.captures[:]...)
	for _, p := range w.procs {
		used = append(used, p.attempt)
	}
	for _, c := range w.co {
		used = append(used, c.nonce)
	}
	for n := 1; ; n++ {
		if s := fmt.Sprint(n); !slices.Contains(used, s) {
			return s
		}
	}
}

// spawn takes a slot that nothing refers to.
func (w *world) spawn(p wproc) (int8, bool) {
	for i := range w.procs {
		i := int8(i)
		id := w.procID(i)
		used := w.procs[i].alive || w.row.Process.Same(id) || w.row.Restore.Launched.Same(id) || w.pane.there && w.pane.proc == i ||
			w.late != wcommand{} && w.late.proc == i || w.gateFor == i
		for _, c := range w.co {
			used = used || c.planned && c.plan.Process.Same(id)
		}
		if !used {
			p.alive = true
			w.procs[i] = p
			return i, true
		}
	}
	return -1, false
}

func (w *world) end(i int8) {
	if i < 0 || !w.procs[i].alive {
		return
	}
	w.procs[i].alive, w.procs[i].gate, w.procs[i].other, w.procs[i].attempt = false, false, false, ""
	if w.pane.there && w.pane.proc == i {
		w.pane.dead = true
	}
	if w.gateFor == i && w.gateOf != "" {
		w.gateOf, w.gateFor = "", -1
	}
}

func (w *world) captured(attempt string) bool {
	return attempt != "" && slices.Contains(w.captures[:], attempt)
}

func (w *world) capture(attempt string) {
	if !w.captured(attempt) {
		// Left-over folders that the row does not name are cleared by the sweep.
		for i, c := range w.captures {
			if c == "" || c != w.row.Capture {
				w.captures[i] = attempt
				break
			}
		}
	}
	slices.Sort(w.captures[:])
}

func (w *world) discard(attempt string) {
	for i, c := range w.captures {
		if c == attempt {
			w.captures[i] = ""
		}
	}
	slices.Sort(w.captures[:])
}

// sessions lists the session processes that are past their gate.
func (w *world) sessions() (list []int8) {
	for i, p := range w.procs {
		if p.kind == isSession && p.alive && !p.gate {
			list = append(list, int8(i))
		}
	}
	return list
}

func verdictOf(running bool) Verdict {
	if running {
		return Running
	}
	return Gone
}

func answerOf(yes bool) Answer {
	if yes {
		return Yes
	}
	return No
}

const searchNow = 100_000 // on the boot clock, always: ages move instead

func (w *world) sightLease() LeaseSighting {
	seen := LeaseSighting{Owner: Gone, Here: ProcessID{HostID: "host", BootID: w.boot}, BootSec: searchNow}
	for i, c := range w.co {
		if w.row.Owner.Same(coordID(i, w.boot)) && !c.dead {
			seen.Owner = Running
		}
	}
	return seen
}

func (w *world) carriers(attempt string) CarrierSighting {
	c := CarrierSighting{Seen: Gone, AtGate: true}
	for i, p := range w.procs {
		if p.alive && p.kind == isSession && attempt != "" && p.attempt == attempt {
			if c.Seen == Gone || !p.gate {
				c.Process = w.procID(int8(i))
			}
			c.Seen, c.AtGate = Running, c.AtGate && p.gate
		}
	}
	if c.Seen == Gone {
		c.AtGate = false
	}
	return c
}

func (w *world) facts(ev *Event) Facts {
	i := w.slot(ev.Process)
	carries := i >= 0 && w.procs[i].attempt != "" && w.procs[i].attempt == w.row.Attempt
	return Facts{
		Recorded: w.verdict(w.row.Process), Subject: w.verdict(ev.Process), Launched: w.verdict(w.row.Restore.Launched),
		Session: verdictOf(len(w.sessions()) > 0), Carriers: w.carriers(w.row.Attempt).Seen, Lease: w.sightLease(),
		CarriesRow: Yes, CarriesAttempt: answerOf(carries), Outermost: answerOf(carries), Claimed: No,
		Capture: answerOf(w.captured(w.row.Capture)), Transcript: Yes, HasTranscript: Yes,
		Held: answerOf(ev.Kind == EventBeginRestore && len(w.sessions()) > 0),
	}
}

// apply is Store.Apply.
func (w *world) apply(ev Event) bool {
	ev.Facts, ev.BootSec, ev.At = w.facts(&ev), searchNow, midday
	next, out, err := Transition(w.row, ev)
	if next.Phase != w.row.Phase || next.Op != w.row.Op {
		w.unclear, w.attention = 0, false
	}
	if next.Epoch != w.row.Epoch {
		for i := range w.co {
			w.co[i].moved = true
		}
		next.Epoch = 0
	}
	if next.Process != w.row.Process {
		w.frozeAgent = false
	}
	if out == Applied {
		w.witness(&ev)
	}
	w.row = next
	return out == Applied && err == nil
}

// witness says what no guard may ever let pass, whoever asks: in terms of the world, not
// of the facts that the event came with.
func (w *world) witness(ev *Event) {
	s, i := &w.row, w.slot(ev.Process)
	begins := false
	switch ev.Kind {
	case EventBeginFreeze, EventBeginRestore, EventBeginStandIn:
		begins = true
	case EventTakeOver:
		if w.sightLease().Owner == Running && !s.Released {
			w.broke = "a running owner was taken over"
		}
	case EventConfirmRestore, EventAcknowledge, EventAdopt:
		switch {
		case i < 0 || !w.procs[i].alive:
			w.broke = "the row came back without a process"
		case w.procs[i].other:
			w.broke = "the row came back in another conversation"
		case w.procs[i].gate:
			w.broke = "the row came back with a process that has not started"
		}
		if s.Capture != "" && !w.captured(s.Capture) {
			w.broke = "the capture was lost before the row came back"
		}
	default:
		if ev.Nonce != "" && !ev.Kind.mints() && (ev.Nonce != s.Nonce || s.Released) {
			w.broke = "who lost its lease has written"
		}
	}
	switch {
	case begins && s.Tombstoned:
		w.broke = "an operation began on a session that is to be killed"
	case ev.Kind == EventBeginRestore && len(w.sessions()) > 0:
		w.broke = "a restore began while the conversation was in use"
	case ev.Kind == EventCommitKill && len(w.sessions()) > 0:
		w.broke = "a kill was committed while a process ran"
	}
}

// entry is the row as Plan wants it.
func (w *world) entry() Entry {
	s := w.row
	e := Entry{SchemaVersion: 1, LedgerID: "a", Runtime: s.Runtime, Phase: s.Phase, SessionID: s.SessionID, Epoch: s.Epoch, PaneID: "%1"}
	if p := s.Process; !p.IsZero() {
		e.PID, e.PIDStartTicks, e.HostID, e.BootID, e.PIDNamespace, e.TimeNamespace = p.PID, &p.StartTicks, p.HostID, p.BootID, p.PIDNamespace, p.TimeNamespace
	}
	if s.Op != OpNone {
		e.Lease = &Lease{
			Op: s.Op, Attempt: s.Attempt, Nonce: s.Nonce, Owner: s.Owner, AcquiredAt: midday,
			AcquiredBootSec: s.AcquiredBootSec, AcquiredBootID: s.AcquiredBootID, Released: s.Released,
		}
	}
	if s.Phase == PhaseFinished {
		e.FinishedAt = midday
	}
	if s.Tombstoned {
		e.KillIntentAt = midday
	}
	if s.Capture != "" {
		e.Frozen = &Frozen{Attempt: s.Capture, Mode: s.FreezeMode}
	}
	if r := s.Restore; r.Attempt != "" {
		e.Restore = &Restore{Attempt: r.Attempt, Mode: r.Mode, Launched: r.Launched}
		if r.Failed {
			e.Restore.Error = &RestoreError{Attempt: r.Attempt, Reason: "x"}
		}
	}
	if s.EndNoted != "" {
		e.EndNoted = &EndNoted{At: midday, ProcessKey: s.EndNoted}
	}
	if w.unclear > 0 {
		e.Unclear = &Note{Since: midday.Add(-time.Duration(w.unclear-1) * 20 * time.Minute), Reason: "x"}
	}
	if w.attention {
		e.Attention = &Note{Since: midday, Reason: "x"}
	}
	return e
}

func (w *world) observe(mine bool) Observation {
	ob := Observation{
		Agent: w.verdict(w.row.Process), Launched: w.verdict(w.row.Restore.Launched), LaunchedAge: time.Hour,
		Session: verdictOf(len(w.sessions()) > 0), Attempt: w.carriers(w.row.Attempt), Row: CarrierSighting{Seen: Gone},
		Conversation: Yes, Capture: answerOf(w.captured(w.row.Capture)), Lease: w.sightLease(), Mine: mine,
	}
	if list := w.sessions(); len(list) > 0 {
		ob.Row = CarrierSighting{Seen: Running, Process: w.procID(list[0])}
	}
	switch {
	case w.blind:
	case !w.pane.there:
		ob.Pane = PaneSighting{State: PaneGone}
	default:
		ob.Pane = PaneSighting{State: PanePresent, Ours: Yes, Mark: w.pane.mark, Ready: w.pane.ready, Dead: answerOf(w.pane.dead), Process: w.procID(w.pane.proc)}
	}
	return ob
}

// putStandIn is the guarded dispatch that starts a stand-in: it replaces the mark first.
func (w *world) putStandIn(attempt string) bool {
	if !w.pane.there {
		return false
	}
	old := w.pane.proc
	i, ok := w.spawn(wproc{kind: isStandIn})
	if !ok {
		return false
	}
	w.end(old)
	w.pane = wpane{there: true, mark: attempt, ready: attempt, proc: i}
	return true
}

// startCarrier is the guarded dispatch of a restore; without a pane, in a new window.
func (w *world) startCarrier(attempt string) bool {
	old := w.pane
	i, ok := w.spawn(wproc{kind: isSession, gate: true, attempt: attempt})
	if !ok {
		return false
	}
	if old.there {
		w.end(old.proc)
	}
	w.pane = wpane{there: true, mark: attempt, proc: i}
	return true
}

// runLate runs the command whose client is dead, if its guard still holds.
func (w *world) runLate() {
	c := w.late
	w.late = wcommand{}
	if !w.pane.there || w.pane.mark != c.mark || w.pane.proc != c.proc {
		return
	}
	switch {
	case c.carrier:
		w.startCarrier(c.attempt)
	case c.standIn:
		was := w.slot(w.row.Process)
		ours := was == w.pane.proc && was >= 0 && w.procs[was].alive
		if w.putStandIn(c.attempt) && ours {
			w.frozeAgent = true
		}
	}
}

// step is one step of the coordinator i: none where it has nothing to do now, more than
// one where the world may answer in several ways.
func (w world) step(i int) (next []world) {
	c := &w.co[i]
	self := coordID(i, w.boot)
	mine := c.nonce != "" && w.row.Nonce == c.nonce && !w.row.Released
	stop := func() []world {
		if c.nonce != "" {
			w.apply(Release(c.nonce))
		}
		*c = wcoord{prog: runReconcile, dead: c.dead} // it reconciles after its operation
		return []world{w}
	}
	begin := func(ev Event) bool {
		ev.Nonce = w.fresh()
		if w.apply(ev) {
			c.nonce = ev.Nonce
			return true
		}
		return false
	}
	agent := w.slot(w.row.Process)
	slip := func(pc int8) {
		if w.budget.slip > 0 {
			n := w
			n.budget.slip--
			n.co[i].pc = pc
			next = append(next, n)
		}
	}
	switch c.prog {
	case runFreeze:
		switch c.pc {
		case 1, 4:
			slip(5) // nothing was captured, nothing has ended: and it commits
		case 5:
			slip(6) // it gives up too late
		}
		switch c.pc {
		case 0:
			if !begin(BeginFreeze(self)) {
				return stop()
			}
		case 1:
			if !w.pane.there || w.blind {
				c.pc = 6
				return append(next, w)
			}
			w.capture(c.nonce)
		case 2:
			if w.blind || !w.pane.there || w.pane.dead || w.pane.proc != agent {
				c.pc = 6
				return []world{w}
			}
			w.pane.mark, w.pane.ready = c.nonce, ""
		case 3:
			if w.blind {
				return stop()
			}
			if w.late == (wcommand{}) { // the client dies, and the command runs later
				slow := w
				slow.late = wcommand{standIn: true, mark: c.nonce, attempt: c.nonce, proc: agent}
				slow.co[i].pc = 0
				slow.apply(Release(c.nonce))
				slow.co[i] = wcoord{prog: runReconcile}
				next = append(next, slow)
			}
			if !w.pane.there || w.pane.mark != c.nonce || w.pane.proc != agent {
				return append(next, stop()...)
			}
			survivor := w // it ignores the hang-up
			if survivor.spawnStandInBeside(c.nonce) {
				survivor.co[i].pc++
				next = append(next, survivor)
			}
			if w.putStandIn(c.nonce) {
				w.frozeAgent = true
			}
		case 4:
			if !mine {
				return append(next, stop()...)
			}
			w.end(agent)
			w.frozeAgent = true
		case 5: // a coordinator that was asleep until now does not look first
			standIn := ProcessID{}
			if w.pane.there && !w.pane.dead {
				standIn = w.procID(w.pane.proc)
			}
			w.apply(CommitFreeze(c.nonce, standIn))
			return append(next, stop()...)
		case 6: // give up: fence, then the event
			if mine && !w.blind && w.pane.there {
				w.pane.mark = "fence"
			}
			nonce := c.nonce
			if w.apply(AbortFreeze(nonce)) {
				w.discard(nonce)
			}
			return stop()
		}
		c.pc++
		return append(next, w)
	case runRestore:
		switch c.pc {
		case 4:
			slip(6)
		case 5:
			slip(7)
		}
		switch c.pc {
		case 0:
			if !begin(BeginRestore(self)) {
				return stop()
			}
		case 1:
			switch {
			case !mine:
				return stop()
			case w.blind:
				c.pc = 5
				return []world{w}
			}
			if w.late == (wcommand{}) && w.pane.there {
				slow := w
				slow.late = wcommand{carrier: true, mark: w.pane.mark, attempt: c.nonce, proc: w.pane.proc}
				slow.co[i].pc = 5
				next = append(next, slow)
			}
			if !w.startCarrier(c.nonce) {
				return append(next, stop()...)
			}
		case 2:
			p := w.carriers(c.nonce)
			if p.Seen != Running || !w.apply(Launched(c.nonce, p.Process, Location{})) {
				c.pc = 5
				return []world{w}
			}
		case 3:
			if !mine || w.row.Tombstoned {
				c.pc = 5
				return []world{w}
			}
			if w.verdict(w.row.Restore.Launched) == Running {
				w.gateOf, w.gateFor = c.nonce, w.slot(w.row.Restore.Launched)
			}
		case 4:
			switch {
			case !mine:
				return append(next, stop()...)
			case w.verdict(w.row.Restore.Launched) == Running && !w.row.Restore.Failed && !w.row.Tombstoned:
				if p := w.procs[w.slot(w.row.Restore.Launched)]; p.gate {
					return next // it is about to pass, or to exit
				}
				if w.apply(ConfirmRestore(c.nonce, w.row.Restore.Launched)) {
					return append(next, stop()...)
				}
			}
		case 5: // the failed restore: the plan knows how it goes on
			w.apply(FailRestore(c.nonce, "x"))
			c.prog, c.pc = runReconcile, 0
			return append(next, w)
		case 6: // it confirms without another look
			if i := w.slot(w.row.Restore.Launched); i >= 0 && !w.procs[i].gate {
				w.apply(ConfirmRestore(c.nonce, w.row.Restore.Launched))
			}
			return stop()
		case 7: // it forgets to end what it has started
			w.apply(FailRestore(c.nonce, "x"))
			w.apply(StandInReady(c.nonce, ProcessID{}))
			return stop()
		}
		c.pc++
		return append(next, w)
	case runKill:
		if c.pc == 3 {
			slip(4)
		}
		switch c.pc {
		case 0:
			if !w.apply(IntendKill()) {
				return stop()
			}
			c.pc = 1
			return []world{w}
		case 1:
			switch {
			case w.row.Phase == PhaseFinished:
				return stop()
			case w.row.Op == OpNone:
				if !begin(BeginKill(self)) {
					return stop()
				}
				c.pc = 3
			case w.row.Op == OpKill:
				begin(ForceTakeOver(self))
				c.pc = 3
			default:
				begin(ForceTakeOver(self))
				c.pc = 2
			}
			return []world{w}
		case 2:
			if !mine {
				c.pc, c.planned, c.fenced = 1, false, false
				return []world{w}
			}
			return w.reconcile(i, true)
		case 3:
			if !mine {
				return append(next, stop()...)
			}
			for p := range w.procs {
				if w.procs[p].kind == isSession {
					w.end(int8(p))
				}
			}
			c.pc = 4
			return append(next, w)
		case 4:
			w.apply(CommitKill(c.nonce))
			return stop()
		}
	case runReconcile:
		return w.reconcile(i, false)
	}
	return nil
}

// spawnStandInBeside puts a stand-in into the pane of an agent that lives on.
func (w *world) spawnStandInBeside(attempt string) bool {
	i, ok := w.spawn(wproc{kind: isStandIn})
	if ok {
		w.pane = wpane{there: true, mark: attempt, ready: attempt, proc: i}
	}
	return ok
}

// reconcile is one step of the executor: plan, or one step of what was planned.
func (w world) reconcile(i int, keeps bool) []world {
	c := &w.co[i]
	self := coordID(i, w.boot)
	mine := c.nonce != "" && w.row.Nonce == c.nonce && !w.row.Released
	if !mine {
		c.nonce, c.fenced = "", false
	}
	if !c.planned {
		a := Plan(w.entry(), w.observe(mine), midday)
		acts := a.Event != EventNone || a.Begin != EventNone || a.End != EndNothing
		a.Reason = ""
		switch {
		case acts:
			c.planned, c.moved, c.plan = true, false, a
			return []world{w}
		case a.Unclear != "" && (w.unclear == 0 || a.Attention != "" && !w.attention):
			w.unclear, w.attention = max(w.unclear, 1), w.attention || a.Attention != ""
			return []world{w}
		case a.Settle:
			w.unclear, w.attention = 0, false
			return []world{w}
		case mine && !keeps:
			w.apply(Release(c.nonce))
			c.nonce, c.fenced = "", false
			return []world{w}
		}
		return nil
	}
	a := c.plan
	c.planned, c.plan = false, Action{}
	scope := func(ev Event) Event {
		if c.moved {
			return ev.AtEpoch(w.row.Epoch + 1) // of the epoch that the plan saw, which has passed
		}
		return ev.AtEpoch(w.row.Epoch)
	}
	switch {
	case a.TakeOver && !mine, a.Begin != EventNone:
		ev := TakeOver(self)
		switch a.Begin {
		case EventBeginKill:
			ev = BeginKill(self)
		case EventBeginStandIn:
			ev = BeginStandIn(self)
		}
		ev = scope(ev)
		ev.Nonce = w.fresh()
		if w.apply(ev) {
			c.nonce, c.fenced = ev.Nonce, false
		}
		return []world{w}
	case c.moved && a.Event != EventFinish && a.Event != EventAdopt:
		return []world{w} // the row has moved on: plan again
	case a.Fence && !c.fenced:
		if w.blind {
			return []world{w}
		}
		if w.pane.there {
			w.pane.mark = "fence"
		}
		c.fenced = true
		return []world{w}
	case a.End != EndNothing:
		for p := range w.procs {
			if w.procs[p].kind == isSession && (w.procID(int8(p)).Same(w.row.Process) && a.End == EndAgent || a.End == EndAttempt && (w.procs[p].attempt == w.row.Attempt || w.procID(int8(p)).Same(w.row.Restore.Launched))) {
				w.end(int8(p))
			}
		}
		if a.End == EndAgent {
			w.frozeAgent = true
		}
		return []world{w}
	case a.StandIn:
		if !w.blind {
			w.putStandIn(w.row.Attempt)
		}
		return []world{w}
	}
	attempt := w.row.Attempt
	ev := scope(Event{Kind: a.Event, Nonce: c.nonce, Process: a.Process, SessionID: a.SessionID, ProcessKey: a.ProcessKey})
	if w.apply(ev) && a.Files {
		w.discard(attempt)
	}
	return []world{w}
}

// around is what may happen without any coordinator.
func (w world) around() (next []world) {
	add := func(name string, change func(*world) bool) {
		n := w
		if change(&n) {
			next = append(next, n)
		}
	}
	for i, c := range w.co {
		if c.prog != idle && !c.dead && w.budget.crash > 0 {
			add("crash", func(n *world) bool {
				n.budget.crash--
				n.co[i] = wcoord{dead: true, nonce: ""}
				return true
			})
		}
	}
	add("time", func(n *world) bool { return n.wait(130 * time.Second) })
	add("a long time", func(n *world) bool { return n.wait(20 * time.Minute) })
	if w.budget.wall > 0 && w.unclear > 0 {
		add("wall clock set forward", func(n *world) bool { n.budget.wall--; n.unclear = 2; return true })
	}
	if w.budget.reboot > 0 {
		add("reboot", func(n *world) bool {
			n.budget.reboot--
			n.boot = "boot-2"
			for i := range n.procs {
				n.procs[i] = wproc{}
			}
			for i := range n.co {
				n.co[i] = wcoord{dead: true}
			}
			n.co[2] = wcoord{prog: runReconcile} // the first sweep after it
			n.pane, n.late, n.gateOf, n.gateFor, n.blind = wpane{proc: -1}, wcommand{}, "", -1, false
			return true
		})
	}
	if w.late != (wcommand{}) && !w.blind {
		add("late command", func(n *world) bool { n.runLate(); return true })
	}
	if w.budget.blind > 0 || w.blind {
		add("blind", func(n *world) bool {
			if n.blind = !n.blind; n.blind {
				n.budget.blind--
			}
			return true
		})
	}
	if w.pane.there && w.budget.close > 0 && !w.blind {
		add("a person closes the pane", func(n *world) bool {
			n.budget.close--
			n.end(n.pane.proc)
			n.pane = wpane{proc: -1}
			return true
		})
	}
	if w.budget.hand > 0 && w.row.Phase == PhaseFrozen && len(w.sessions()) == 0 {
		add("a person resumes by hand", func(n *world) bool {
			n.budget.hand--
			_, ok := n.spawn(wproc{kind: isSession})
			return ok
		})
	}
	for i, p := range w.procs {
		i := int8(i)
		switch {
		case !p.alive:
		case p.gate && w.gateOf == p.attempt && w.gateFor == i:
			add("passes the gate", func(n *world) bool { n.procs[i].gate = false; return true })
		case p.gate:
			add("waits no longer", func(n *world) bool { n.end(i); return true })
		case p.kind == isSession && w.budget.exit > 0:
			add("ends, and says so", func(n *world) bool {
				n.budget.exit--
				n.apply(Finish(n.procID(i).Key(), "exited"))
				n.end(i)
				return true
			})
			add("ends", func(n *world) bool { n.budget.exit--; n.end(i); return true })
		}
		if p.alive && !p.gate && p.kind == isSession && p.attempt != "" && w.row.Op == OpRestore && !w.row.Restore.Failed {
			if !p.other {
				add("acknowledges", func(n *world) bool { return n.apply(Acknowledge(p.attempt, n.procID(i), "conv-1")) })
			}
			if w.budget.mismatch > 0 {
				add("another conversation", func(n *world) bool {
					n.budget.mismatch--
					n.procs[i].other = true
					n.apply(Acknowledge(p.attempt, n.procID(i), "conv-9"))
					return true
				})
			}
		}
		if p.alive && p.kind == isStandIn && w.budget.exit > 0 {
			add("stand-in dies", func(n *world) bool { n.budget.exit--; n.end(i); return true })
		}
	}
	return next
}

// wait lets time pass; false where it makes no difference any more.
func (w *world) wait(d time.Duration) bool {
	was := *w
	if w.row.Op != OpNone {
		w.row.AcquiredBootSec = max(w.row.AcquiredBootSec-int64(d/time.Second), searchNow-1200)
	}
	if w.unclear > 0 && d >= attentionAfter {
		w.unclear = 2
	}
	return *w != was
}

// broken says which invariant the world breaks, or "".
func (w *world) broken() string {
	var running []int8 // those that the ledger has started, or has in its row
	for _, i := range w.sessions() {
		if w.procs[i].attempt != "" || w.slot(w.row.Process) == i {
			running = append(running, i)
		}
	}
	owners := 0
	for _, c := range w.co {
		if c.nonce != "" && c.nonce == w.row.Nonce && !w.row.Released {
			owners++
		}
	}
	s := w.row
	recorded := w.verdict(s.Process)
	switch {
	case w.broke != "":
		return w.broke
	case owners > 1:
		return "two owners"
	case (s.Op == OpNone) != (s.Nonce == ""):
		return "half a lease"
	case s.Phase == PhaseFrozen && !w.captured(s.Capture):
		return "a frozen row has lost its capture"
	case s.Phase == PhaseLive && s.Op == OpNone && w.frozeAgent && !s.Tombstoned:
		return "a freeze has ended the agent, and the row is live without it"
	case s.Phase == PhaseLive && s.Op == OpFreeze && w.frozeAgent && !w.captured(s.Capture):
		return "a freeze has ended the agent, and its output is lost"
	case len(running) > 1:
		return "two processes of one session"
	case s.Phase == PhaseFrozen && s.Op == OpNone && len(running) > 0:
		return "a process runs, and the row is frozen"
	case s.Phase == PhaseLive && s.Op == OpNone && len(running) == 1 && recorded != Running:
		return "a process runs, and the row names another one"
	case s.Phase == PhaseFinished && s.Tombstoned:
		return "a tombstone on a finished row"
	}
	return ""
}

// stuck says in what a row stays for ever when nobody but one reconciler is left, or "".
// With the view blind, or the others alive and doing nothing, attention is enough.
func (w world) stuck(othersDie bool) string {
	for i := range w.co {
		if othersDie {
			w.co[i] = wcoord{dead: true}
		}
	}
	// A fourth one, in the place of the last.
	owner := w.row.Owner
	if othersDie || !owner.Same(coordID(2, w.boot)) {
		w.co[2] = wcoord{prog: runReconcile}
	} else {
		w.co[0] = wcoord{prog: runReconcile}
	}
	me := slices.IndexFunc(w.co[:], func(c wcoord) bool { return c.prog == runReconcile && c.nonce == "" && !c.planned && !c.dead })
	if othersDie {
		// A new process: the old one's lease is not its own.
		w.row.Owner = testProcess(9)
	}
	w.runLate()
	for i, p := range w.procs {
		if p.alive && p.gate {
			w.end(int8(i))
		}
	}
	for range 100 { // far more steps than any way out has
		if next := w.step(me); len(next) > 0 {
			w = next[0]
		} else if !w.wait(20 * time.Minute) {
			break
		}
	}
	runs := len(w.sessions()) > 0
	switch {
	case w.attention:
		return ""
	case w.row.Op != OpNone:
		return "it stays in " + w.row.name()
	case w.row.Tombstoned:
		return "its tombstone stays"
	case w.row.Phase == PhaseFrozen && runs:
		return "a process of it runs"
	}
	return ""
}

// settles is stuck for a world in which everything can be seen: then attention is no
// way out, unless a process that is to be killed runs on.
func (w world) settles() string {
	w.blind = false
	runs := len(w.sessions()) > 0
	if reason := w.stuck(true); reason != "" {
		return reason
	}
	w.attention, w.unclear = false, 0
	if runs && w.row.Tombstoned {
		return "" // Kill itself ends processes; reconcile does not
	}
	return w.stuck(true)
}

func newWorld(phase Phase, programs ...wprogram) world {
	w := world{boot: "boot", gateFor: -1}
	w.row = State{Phase: phase, Runtime: "claude", SessionID: "conv-1", Ran: true, Process: w.procID(0)}
	if phase == PhaseLive {
		w.procs[0] = wproc{kind: isSession, alive: true}
		w.pane = wpane{there: true, proc: 0}
	} else {
		w.procs[0] = wproc{kind: isStandIn, alive: true}
		w.procs[1] = wproc{kind: isSession}
		w.row.Process = w.procID(1)
		w.row.Capture, w.row.FreezeMode = "1", FreezePane
		w.captures[2] = "1"
		w.pane = wpane{there: true, proc: 0, mark: "1", ready: "1"}
	}
	for i, p := range programs {
		w.co[i].prog = p
	}
	return w
}

// TestSmallScopeSearch explores, breadth first, what can happen in a small world. By
// default it stops after a number of worlds; with -long it goes much further.
func TestSmallScopeSearch(t *testing.T) {
	limit, walks := 3_000, 300
	if *longSearch {
		limit, walks = 300_000, 50_000
	}
	few := wbudget{crash: 1, exit: 1, slip: 1}
	for _, tt := range []struct {
		name     string
		phase    Phase
		programs []wprogram
		budget   wbudget
	}{
		{"two freezes", PhaseLive, []wprogram{runFreeze, runFreeze, runReconcile}, few},
		{"freeze, crashes", PhaseLive, []wprogram{runFreeze, runReconcile, runReconcile}, wbudget{crash: 2, exit: 1, wall: 1, slip: 1}},
		{"freeze and restore", PhaseLive, []wprogram{runFreeze, runRestore, runReconcile}, few},
		{"freeze and a person's kill", PhaseLive, []wprogram{runFreeze, runKill, runReconcile}, few},
		{"freeze, pane closed, view blind", PhaseLive, []wprogram{runFreeze, runReconcile}, wbudget{crash: 1, close: 1, blind: 1, exit: 1}},
		{"freeze, reboot", PhaseLive, []wprogram{runFreeze, runReconcile}, wbudget{crash: 1, reboot: 1, exit: 1}},
		{"two restores", PhaseFrozen, []wprogram{runRestore, runRestore, runReconcile}, few},
		{"restore, crashes", PhaseFrozen, []wprogram{runRestore, runReconcile, runReconcile}, wbudget{crash: 2, exit: 1, mismatch: 1, slip: 1}},
		{"restore and a person's kill", PhaseFrozen, []wprogram{runRestore, runKill, runReconcile}, few},
		{"restore, another conversation", PhaseFrozen, []wprogram{runRestore, runReconcile}, wbudget{crash: 1, exit: 1, mismatch: 1, close: 1, slip: 1}},
		{"restore, and by hand", PhaseFrozen, []wprogram{runRestore, runReconcile}, wbudget{crash: 1, hand: 1, slip: 1}},
		{"restore, view blind", PhaseFrozen, []wprogram{runRestore, runReconcile}, wbudget{crash: 1, blind: 1, close: 1}},
		{"restore, reboot", PhaseFrozen, []wprogram{runRestore, runReconcile}, wbudget{crash: 1, reboot: 1}},
		{"two kills", PhaseLive, []wprogram{runKill, runKill, runReconcile}, few},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(tt.phase, tt.programs...)
			w.budget = tt.budget
			n, done, reached := search(t, w, limit)
			t.Logf("%d worlds, complete %v, rows seen in %s", n, done, strings.Join(reached, " "))
			if !done {
				wander(t, w, walks)
			}
		})
	}
}

// search visits worlds breadth first until there are no more, or limit were seen.
func search(t *testing.T, first world, limit int) (n int, done bool, reached []string) {
	type visit struct {
		w    world
		from int
	}
	queue := []visit{{w: first, from: -1}}
	// The hash stands for the world: what a collision hides, another order finds.
	seed := maphash.MakeSeed()
	seen := map[uint64]struct{}{maphash.Comparable(seed, first): {}}
	settled := map[uint64]string{}
	rows := map[string]bool{}
	fail := func(i int, what string) {
		t.Helper()
		var path []world
		for ; i >= 0; i = queue[i].from {
			path = append(path, queue[i].w)
		}
		slices.Reverse(path)
		failWorld(t, path, what)
	}
	for i := 0; i < len(queue); i++ {
		w := queue[i].w
		rows[w.row.name()] = true
		if what := w.broken(); what != "" {
			fail(i, what)
		}
		alone := w
		alone.co, alone.budget = [3]wcoord{}, wbudget{}
		key := maphash.Comparable(seed, alone)
		what, known := settled[key]
		if !known {
			if what = w.settles(); what == "" && w.blind {
				what = w.stuck(true)
			}
			settled[key] = what
		}
		if what != "" {
			fail(i, "with one reconciler left, "+what)
		}
		if i%7 == 0 { // the others alive, and doing nothing
			if what := w.stuck(false); what != "" && w.row.Op != OpNone {
				fail(i, "with the others asleep, "+what)
			}
		}
		add := func(list []world) {
			for _, n := range list {
				key := maphash.Comparable(seed, n)
				if _, ok := seen[key]; !ok && len(seen) < limit {
					seen[key] = struct{}{}
					queue = append(queue, visit{n, i})
				}
			}
		}
		for c := range w.co {
			add(w.turn(c))
		}
		add(w.around())
	}
	for name := range rows {
		reached = append(reached, name)
	}
	slices.Sort(reached)
	return len(queue), len(seen) < limit, reached
}

// turn is step for a coordinator that is there.
func (w world) turn(i int) []world {
	if w.co[i].prog == idle || w.co[i].dead {
		return nil
	}
	return w.step(i)
}

// wander takes random ways from the first world, deeper than the search can afford.
func wander(t *testing.T, first world, walks int) {
	random := rand.New(rand.NewPCG(1, 2))
	for range walks {
		w := first
		path := []world{w}
		for range 80 {
			var next []world
			// Coordinators have their turn more often than accidents.
			if i := random.IntN(5); i < 3 {
				next = w.turn(i)
			} else {
				next = w.around()
			}
			if len(next) == 0 {
				continue
			}
			w = next[random.IntN(len(next))]
			path = append(path, w)
			if what := w.broken(); what != "" {
				failWorld(t, path, what)
			}
		}
		if what := w.settles(); what != "" {
			failWorld(t, path, "with one reconciler left, "+what)
		}
	}
}

func failWorld(t *testing.T, path []world, what string) {
	t.Helper()
	var b strings.Builder
	for _, w := range path {
		fmt.Fprintf(&b, "%s froze=%v tombstone=%v failed=%v lease=%q:%q released=%v capture=%q of %q pane=%v late=%v blind=%v procs", w.row.name(), w.frozeAgent, w.row.Tombstoned, w.row.Restore.Failed,
			w.row.Attempt, w.row.Nonce, w.row.Released, w.row.Capture, w.captures, w.pane, w.late, w.blind)
		for i, p := range w.procs {
			if p.alive {
				fmt.Fprintf(&b, " %d:%+v", i, p)
			}
		}
		for i, c := range w.co {
			if c.prog != idle {
				fmt.Fprintf(&b, " | %d: program %d at %d nonce %q dead=%v", i, c.prog, c.pc, c.nonce, c.dead)
			}
			if c.planned {
				fmt.Fprintf(&b, " plans %s", c.plan.Event)
			}
		}
		b.WriteString("\n")
	}
	t.Fatalf("%s:\n%s", what, b.String())
}
