package ledger

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
)

// FinishedExited is the reason of rows that a sweep closed because their process was gone.
const FinishedExited = "process exited"

// closingRule says when an open row whose process is gone is closed, and why.
type closingRule struct {
	name   string
	reason string // %s is the successor
	when   func(c *closingCase) bool
}

// closingCase is what the rules look at.
type closingCase struct {
	entry     *Entry
	runtime   Runtime
	successor string // row that took the session's conversation up; "": there is none
}

// closingRules are tried in order; a row that none fits stays open, ORPHANED: it is a lost
// session that a person may want back.
var closingRules = []closingRule{
	{"resumed", "resumed as ", func(c *closingCase) bool { return c.successor != "" }},
	// Without a hook that reports the end, the end of the process is all there will be.
	{"no end hook", FinishedExited, func(c *closingCase) bool { return !c.runtime.HasEndHook }},
	{"nothing to recover", FinishedExited + ", nothing was recorded to recover", func(c *closingCase) bool {
		return c.entry.SessionID == "" && c.entry.TranscriptPath == "" && len(c.entry.SessionIDs) == 0
	}},
}

// closing says whether a row whose process is provably gone is to be closed, and why. It
// is pure.
func closing(c closingCase) (reason string, ok bool) {
	for _, r := range closingRules {
		if r.when(&c) {
			if r.name == "resumed" {
				return r.reason + c.successor, true
			}
			return r.reason, true
		}
	}
	return "", false
}

// successor finds the row that has taken a lost session's conversation up. find looks a
// row up by its id.
func successor(e *Entry, find func(id string) *Entry) string {
	for _, f := range e.SessionIDs {
		if f.HeldBy == "" || f.HeldBy == e.LedgerID {
			continue
		}
		next := find(f.HeldBy)
		// A claim of this row that was refused says where it came from; one that was
		// ceded does not, and a crash can have kept the successor from being marked.
		if next != nil && (next.ResumedFrom == e.LedgerID || f.From == "" && next.SessionID == f.ID && next.Runtime == e.Runtime) {
			return f.HeldBy
		}
	}
	return ""
}

// isBirth reports whether a row is the birth of a session of which nothing ever came, and
// which names who was to launch it. A birth of this library has a lease, or had one: that
// one is reconcile's.
func isBirth(e *Entry) bool {
	st := e.State()
	return quiet(e) && !st.Ran && st.Epoch == 0 && e.StateAt.IsZero() && e.LauncherPID > 0 &&
		e.Mux.Kind == "" && e.Mux.Socket == "" && e.TmuxSocket == ""
}

// The kinds of paced work.
const (
	paceRescue    = "rescue"
	paceReconcile = "reconcile"
)

// ended reports whether a live row's process is provably gone, and the row this stage's:
// an end that was reported during an operation is reconcile's to settle.
func (sw *sweeper) ended(e *Entry) bool {
	p := e.Process()
	switch {
	case !quiet(e), p.IsZero(), e.EndNoted != nil && p.hasKey(e.EndNoted.ProcessKey):
		return false
	}
	return sw.resolve(e).verdict == Gone
}

// closeRows rescues the work of the sessions whose process is gone, and then closes those
// that the rules say. It does so for several at once: most of it is git's time.
func (sw *sweeper) closeRows(ctx context.Context) error {
	if !sw.whole() {
		return nil
	}
	sw.markSuccessors(ctx)
	ids := sw.pick(func(e *Entry) bool {
		return sw.ended(e) && (sw.needsRescue(e) || sw.closes(e))
	})
	work, cancel := context.WithTimeout(ctx, rescueBudget)
	defer cancel()
	slots := make(chan struct{}, gitAtOnce)
	var group sync.WaitGroup
	started := 0
	sw.cur.turn("close", ids, maxClosed, func(id string) bool {
		select {
		case slots <- struct{}{}:
		case <-work.Done():
			return false
		}
		sw.progress(started, min(len(ids), maxClosed))
		started++
		// The pass is not for several at once: what it says is asked here.
		e := sw.entry(id)
		group.Go(func() {
			defer func() { <-slots }()
			sw.closeRow(ctx, work, e)
		})
		return true
	})
	group.Wait()
	return nil
}

func (sw *sweeper) closes(e *Entry) bool {
	_, ok := sw.closing(e)
	return ok && (!e.RescuedAt.IsZero() || sw.cur.retired(e.LedgerID, paceRescue))
}

func (sw *sweeper) needsRescue(e *Entry) bool {
	return e.RescuedAt.IsZero() && sw.cur.due(e.LedgerID, paceRescue)
}

// closing applies the rules to a row. One whose tmux server was silent waits for it: its
// work is rescued, and nothing is lost by waiting.
func (sw *sweeper) closing(e *Entry) (reason string, ok bool) {
	if sw.silent(e) {
		return "", false
	}
	rt, _ := sw.s.runtimes.Lookup(e.Runtime)
	return closing(closingCase{e, rt, successor(e, sw.find)})
}

// find looks up a row that another one names; nil where it is not there or not readable.
func (sw *sweeper) find(id string) *Entry {
	if e := sw.entry(id); e != nil {
		return e
	}
	if !isPlainID(id) {
		return nil
	}
	r := sw.s.sightRow(id)
	if r.state != rowThere {
		return nil
	}
	return &r.entry
}

// closeRow rescues one row's work and closes it. Git has until the work's context ends.
func (sw *sweeper) closeRow(ctx, work context.Context, e *Entry) {
	id, key := e.LedgerID, e.Process().Key()
	if e.RescuedAt.IsZero() && !sw.rescue(work, id) {
		return
	}
	sw.reread(id)
	if e = sw.entry(id); e == nil || !quiet(e) || e.Process().Key() != key {
		return // it has moved on
	}
	reason, ok := sw.closing(e)
	if !ok {
		return
	}
	// The event names the process that was seen gone: with another one now it is dropped.
	after, out, err := sw.s.Apply(ctx, id, Finish(key, reason).AtEpoch(e.Epoch))
	switch {
	case errors.Is(err, ErrNotFound):
	case err != nil && !isUnsynced(err):
		sw.rep.failed(id, sw.stage, err)
	case out == Applied:
		sw.put(id, after)
		sw.rep.closed(&sw.rep.Closed, "closed", id, reason)
	}
}

// rescue looks after one row's uncommitted work, and reports whether the row may be
// closed: the work is safe, or no retry can make it so.
func (sw *sweeper) rescue(ctx context.Context, id string) bool {
	if !sw.locked(func() bool { return sw.cur.due(id, paceRescue) }) {
		return sw.locked(func() bool { return sw.cur.retired(id, paceRescue) })
	}
	opts := sw.opts.Rescue
	opts.Timeout = cmp.Or(opts.Timeout, rescueTimeout)
	r, err := Rescue(ctx, sw.s, id, opts)
	var locked *LockTimeoutError
	switch {
	case err == nil:
		sw.locked(func() bool { sw.cur.succeeded(id, paceRescue); return true })
		if !r.Already {
			note(sw.rep, &sw.rep.Rescued, r, "rescued", id, "ref", r.Ref, "paths", len(r.Paths)+r.More, "nothing", r.Nothing)
		}
		return true
	case errors.Is(err, ErrNotFound), errors.Is(err, ErrIllegal), errors.Is(err, ErrUnknown):
		return false // it has moved on, or what was seen cannot be seen again
	case errors.As(err, &locked):
		sw.rep.failed(id, sw.stage, err)
		return false
	case ctx.Err() != nil:
		return false // cut short by the pass, which is not the row's fault
	case rescueIsHopeless(err) && sw.locked(func() bool { return sw.cur.givesUp(id, paceRescue, err) }):
		sw.rep.warn(id, sw.stage, err)
		if e := sw.entry(id); e != nil {
			if _, closes := sw.closing(e); !closes {
				sw.noteUnrescued(ctx, id, err)
			}
		}
		return true
	}
	if sw.locked(func() bool { return sw.cur.failed(id, paceRescue) }) {
		sw.rep.failed(id, sw.stage, err)
	}
	return false
}

// noteUnrescued says in the row, which may stay open for ever, why its work is not rescued:
// no retry is coming that would say it again.
func (sw *sweeper) noteUnrescued(ctx context.Context, id string, why error) {
	noted, err := sw.s.Update(ctx, id, func(e *Entry) error {
		if e.Attention == nil && e.RescuedAt.IsZero() {
			e.Attention = &Note{Since: sw.s.now(), Reason: fmt.Sprintf("its work could not be rescued, and is not tried again: %.500v", why)}
		}
		return nil
	})
	if err != nil {
		sw.rep.failed(id, sw.stage, err)
		return
	}
	sw.put(id, noted)
}

// locked runs do while no other row's work touches what they share.
func (sw *sweeper) locked(do func() bool) bool {
	sw.mu.Lock()
	defer sw.mu.Unlock()
	return do()
}

// reconcile settles the rows that a dead coordinator left in mid-operation. Whether there
// is anything to do is told from the one snapshot; only then a row is looked at anew.
func (sw *sweeper) reconcile(ctx context.Context) error {
	if !sw.whole() {
		return nil
	}
	opts := ReconcileOptions{Grace: sw.opts.Grace, AckGrace: sw.opts.AckGrace, End: sw.opts.End}
	ids := sw.pick(func(e *Entry) bool {
		return e.IsOpen() && e.mayNeedPlan() && sw.cur.due(e.LedgerID, paceReconcile) &&
			Plan(*e, sw.observe(e, opts), sw.s.clock.Now()) != (Action{})
	})
	work, cancel := context.WithTimeout(ctx, reconcileBudget)
	defer cancel()
	started := 0
	sw.cur.turn("reconcile", ids, maxReconciled, func(id string) bool {
		if work.Err() != nil {
			return false
		}
		sw.progress(started, min(len(ids), maxReconciled))
		started++
		sw.reconcileRow(ctx, work, id, opts)
		return true
	})
	return nil
}

func (sw *sweeper) reconcileRow(ctx, work context.Context, id string, opts ReconcileOptions) {
	was := sw.entry(id)
	r, err := sw.h.reconcileRow(work, id, opts)
	sw.reread(id)
	switch {
	case err == nil:
		sw.cur.succeeded(id, paceReconcile)
	case work.Err() != nil && ctx.Err() == nil:
		return // cut short by the pass
	case errors.Is(err, ErrNotFound):
		return
	case sw.cur.failed(id, paceReconcile):
		r.ID, r.Outcome, r.Error = id, OutcomeOf(err), err.Error()
		sw.rep.failed(id, sw.stage, err)
	default:
		return
	}
	if r.Action == "" && r.Error == "" {
		return
	}
	note(sw.rep, &sw.rep.Reconciled, r, "", id)
	// A kill or drop that was carried on has rescued first.
	if now := sw.entry(id); now != nil && was.RescuedAt.IsZero() && !now.RescuedAt.IsZero() {
		done := rescuedOf(now)
		done.Already = false
		note(sw.rep, &sw.rep.Rescued, done, "", id)
	}
}

// observe is what the pass shows of a row that may be in mid-operation. What it cannot
// show, such as panes, is unknown: the row is then looked at by itself.
func (sw *sweeper) observe(e *Entry, opts ReconcileOptions) Observation {
	s, r := sw.s, sw.resolve(e)
	ob := Observation{Agent: r.verdict, Session: r.verdict, AckGrace: opts.AckGrace}
	if p := e.Process(); !p.IsZero() {
		ob.Agent = sw.pass.verdict(s.procs, p)
	}
	if e.Restore != nil && !e.Restore.Launched.IsZero() {
		ob.Launched = sw.pass.verdict(s.procs, e.Restore.Launched)
		ob.LaunchedAge = s.procs.age(e.Restore.Launched)
		if ob.Session == Gone {
			ob.Session = ob.Launched
		}
	}
	if e.Frozen != nil {
		ob.Capture = s.captured(e.LedgerID, e.Frozen.Attempt)
	}
	if l := e.Lease; l != nil {
		ob.Lease = s.sightLease(l, opts.Grace)
		ob.Attempt.Seen, ob.Attempt.Process, ob.Attempt.AtGate = sw.pass.attempt(l.Attempt)
	} else if e.Phase == PhaseFrozen {
		c := sw.pass.carrier(e, sw.view)
		ob.Row = CarrierSighting{Seen: c.seen, Process: c.process}
	}
	return ob
}

// removeBirths takes births back of which nothing came and whose launcher is gone.
func (sw *sweeper) removeBirths(ctx context.Context) {
	ids := sw.pick(func(e *Entry) bool { return isBirth(e) && sw.launchFailed(sw.resolve(e)) })
	sw.cur.turn("births", ids, maxRetired, func(id string) bool {
		removed := false
		_, err := sw.s.rewrite(ctx, id, true, maxRow, func(e *Entry) (verdict, error) {
			// Evidence may have come meanwhile: the newest row is tested, by a new look.
			removed = isBirth(e) && sw.s.launcherGone(ctx, e) && sw.s.sessionVerdict(ctx, e) == Gone
			if removed {
				return remove, nil
			}
			return unchanged, nil
		})
		switch {
		case errors.Is(err, ErrNotFound):
		case err != nil && !isUnsynced(err):
			sw.rep.failed(id, sw.stage, err)
		case removed:
			sw.put(id, Entry{})
			sw.rep.closed(&sw.rep.RemovedBirths, "birth removed", id, "its launcher is gone, and nothing ever ran")
		}
		return ctx.Err() == nil
	})
}

// launchFailed reports whether neither the session nor its launcher runs.
func (sw *sweeper) launchFailed(r resolution) bool { return r.verdict == Gone && r.launcher == Gone }

// launcherGone looks at a row's launcher anew.
func (s *Store) launcherGone(ctx context.Context, e *Entry) bool {
	p, err := s.newPass(ctx)
	return err == nil && p.whole && p.launcher(s.procs, e) == Gone
}

// markSuccessors finishes what a crash has left of a conversation's move from a lost
// session's row to its successor's.
func (sw *sweeper) markSuccessors(ctx context.Context) {
	for _, id := range sw.pick(func(e *Entry) bool { return quiet(e) && e.SessionID == "" && len(e.SessionIDs) > 0 }) {
		next := sw.find(successor(sw.entry(id), sw.find))
		if next == nil || next.ResumedFrom != "" || !next.IsOpen() {
			continue
		}
		marked, err := sw.s.Update(ctx, next.LedgerID, func(e *Entry) error {
			if e.ResumedFrom == "" {
				e.ResumedFrom = id
			}
			return nil
		})
		if err != nil {
			sw.rep.failed(next.LedgerID, sw.stage, err)
			continue
		}
		sw.put(next.LedgerID, marked)
	}
}
