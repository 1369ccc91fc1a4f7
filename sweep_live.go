package ledger

import (
	"context"
	"errors"
	"slices"
	"sync"
)

// The stages of a sweep that concern sessions whose process runs.

// enrol matches the processes with the rows, and makes rows for the sessions that have none.
func (sw *sweeper) enrol(ctx context.Context) error {
	if err := sw.s.completeClaims(ctx); err != nil {
		return err
	}
	sw.readEnvironments()
	view, err := sw.s.rowsOf(sw.pass, sw.open())
	if err != nil {
		return err
	}
	sw.view = view
	sw.rebind(ctx)
	plan := planMatches(sw.pass.candidates(), *sw.view, sw.pass.noDiscovery)
	sw.plan = sw.s.enroller(sw.pass, plan, EnrolOptions{panes: sw.lists.pane})
	for i := range plan {
		if err := ctx.Err(); err != nil {
			return err
		}
		sw.progress(i, len(plan))
		sw.enrolOne(ctx, i)
	}
	clear(sw.found) // a process that has a row now is no other row's
	return nil
}

// readEnvironments reads those of the processes that have rows side by side, so that the
// match finds them read. The pass keeps what cannot be read, too.
func (sw *sweeper) readEnvironments() {
	var pids []int
	for _, r := range sw.rows {
		if e := r.now; e.IsOpen() && e.PID > 0 {
			pids = append(pids, e.PID)
		}
	}
	var group sync.WaitGroup
	for half := range slices.Chunk(pids, max(32, (len(pids)+1)/2)) {
		group.Go(func() {
			for _, pid := range half {
				if _, ok := sw.pass.snap.Get(pid); ok {
					_, _ = sw.pass.snap.Environ(pid)
				}
			}
		})
	}
	group.Wait()
}

// open copies the open rows.
func (sw *sweeper) open() (rows []Entry) {
	for _, r := range sw.rows {
		if r.now != nil && r.now.IsOpen() {
			rows = append(rows, *r.now)
		}
	}
	return rows
}

func (sw *sweeper) enrolOne(ctx context.Context, i int) {
	m := &sw.plan.plan[i]
	if m.warning != "" {
		sw.rep.warn(m.row, sw.stage, errors.New(m.warning))
	}
	switch m.kind {
	case matchUnverifiable:
		sw.rep.unverifiable(m)
	case matchEnrol, matchBind:
		row, adopted, err := sw.plan.adopt(ctx, i)
		if row.LedgerID != "" && row.Process().Same(m.process) {
			sw.put(row.LedgerID, row)
			sw.view.own(m.process, row.LedgerID, false)
			sw.view.byID[row.LedgerID] = rowSight{state: rowThere, entry: row}
		}
		if adopted {
			note(sw.rep, &sw.rep.Enrolled, row.LedgerID, "enrolled", row.LedgerID, "pid", m.process.PID)
			if row.ResumedFrom != "" {
				sw.reread(row.ResumedFrom)
			}
		}
		// What ends while it is being enrolled leaves nothing to report.
		if err != nil && sw.s.procs.verdict(m.process) != Gone {
			sw.rep.failed(row.LedgerID, sw.stage, err)
		}
	}
}

// rebind gives a live row whose process is gone the process that its own carrier has put
// in that one's place. A carrier that is not the row's own, a child that outlived the
// session say, is not taken for it: it gets a row of its own.
func (sw *sweeper) rebind(ctx context.Context) {
	for _, id := range sw.pick(quiet) {
		e := sw.entry(id)
		r := sw.resolve(e)
		if e.Process().IsZero() || r.verdict != Running || r.process.Same(e.Process()) {
			continue
		}
		cs := sw.pass.candidates()
		m := matcher{cs: cs, at: sw.pass.at, rows: *sw.view}
		if !m.adopts(&cs[sw.pass.at[r.process.PID]], e) {
			continue
		}
		bound, out, err := sw.s.Apply(ctx, id, Bind("", r.process, Location{}))
		switch {
		case errors.Is(err, ErrIllegal), errors.Is(err, ErrUnknown), errors.Is(err, ErrExists):
			continue // rescued: a successor takes the process; or it has moved on
		case err != nil:
			sw.rep.failed(id, sw.stage, err)
		case out == Applied:
			note(sw.rep, &sw.rep.Refreshed, id, "bound again", id, "pid", r.process.PID)
			sw.put(id, bound)
			sw.view.own(r.process, id, false)
		}
	}
}

// matchOf is the plan's view of a running row's process, or one made for it: the registry
// need not recognise what a person has declared.
func (sw *sweeper) matchOf(e *Entry) *match {
	if sw.plan != nil {
		if i, ok := sw.plan.at[e.PID]; ok && sw.plan.plan[i].process.Same(e.Process()) {
			return &sw.plan.plan[i]
		}
	}
	m := match{candidate: candidate{process: e.Process(), runtime: e.Runtime}}
	if env, err := sw.pass.snap.Environ(e.PID); err == nil {
		m.carries = carried(env.Lookup)
	}
	return &m
}

// runs reports whether a live row's recorded process runs.
func (sw *sweeper) runs(e *Entry) bool {
	if e.Phase != PhaseLive || e.SchemaVersion > SchemaVersion || e.Process().IsZero() {
		return false
	}
	r := sw.resolve(e)
	return r.verdict == Running && r.process.Same(e.Process())
}

// describe gathers what rows lack that were written without looking at their process: by
// another implementation, or by the settling of an interrupted start.
func (sw *sweeper) describe(ctx context.Context) error {
	if sw.pass == nil || sw.plan == nil {
		return nil
	}
	ids := sw.pick(func(e *Entry) bool { return e.ProcessDescribedAt.IsZero() && sw.runs(e) })
	var changes []change
	sw.cur.turn("describe", ids, maxDescribed, func(id string) bool {
		sw.progress(len(changes), min(len(ids), maxDescribed))
		e := sw.entry(id)
		m := sw.matchOf(e)
		facts, _ := sw.pass.describe(ctx, sw.s.procs, m, sw.plan.above(m), nil)
		if facts.Runtime == "" {
			return true // it has ended since the snapshot
		}
		changes = append(changes, change{id, func(e *Entry) (verdict, error) {
			if e.Process().Same(m.process) && e.IsOpen() {
				fillBlanks(e, &facts)
			}
			return unchanged, nil
		}})
		return ctx.Err() == nil
	})
	sw.write(ctx, changes, func(id string) {
		note(sw.rep, &sw.rep.Described, id, "described", id)
	})
	return nil
}

// write makes the changes durable together, and reports those that were needed.
func (sw *sweeper) write(ctx context.Context, changes []change, done func(id string)) {
	if len(changes) == 0 {
		return
	}
	entries, errs := sw.s.batch(ctx, changes)
	for i, c := range changes {
		if errs[i] != nil {
			if !errors.Is(errs[i], ErrNotFound) {
				sw.rep.failed(c.id, sw.stage, errs[i])
			}
			continue
		}
		was := sw.entry(c.id)
		sw.put(c.id, entries[i])
		if was == nil || was.Revision != entries[i].Revision {
			done(c.id)
		}
	}
}

// refresh looks at every live row: whether its process used processor time, where it is,
// and which conversation it is in. A row about which there is nothing new is not written.
func (sw *sweeper) refresh(ctx context.Context) error {
	if sw.pass == nil {
		return nil
	}
	refreshed := map[string]bool{}
	done := func(id string) {
		if !refreshed[id] {
			refreshed[id] = true
			note(sw.rep, &sw.rep.Refreshed, id, "refreshed", id)
		}
	}
	ids := sw.pick(sw.runs)
	var changes []change
	for _, id := range ids {
		if c, needed := sw.cpuChange(sw.entry(id)); needed {
			changes = append(changes, c)
		}
	}
	sw.write(ctx, changes, done)
	for _, id := range ids {
		if err := ctx.Err(); err != nil {
			return err
		}
		sw.relocate(ctx, id, done)
	}
	sw.converse(ctx, ids, done)
	return nil
}

// cpuChange notes that the process has used processor time since the row was written,
// which is a trace of activity only where there is no transcript to tell: a session parked
// at its prompt uses some too.
func (sw *sweeper) cpuChange(e *Entry) (change, bool) {
	rt, _ := sw.s.runtimes.Lookup(e.Runtime)
	q, ok := sw.pass.snap.Get(e.PID)
	if rt.HasTranscripts || !ok || e.CPUTicks != nil && q.Ticks <= *e.CPUTicks {
		return change{}, false
	}
	seen, taken, ticks, first := e.Process(), sw.pass.taken, q.Ticks, e.CPUTicks == nil
	return change{e.LedgerID, func(e *Entry) (verdict, error) {
		if !e.Process().Same(seen) || e.Phase != PhaseLive || e.CPUTicks != nil && ticks <= *e.CPUTicks {
			return unchanged, nil
		}
		e.CPUTicks, e.ProcessDescribedAt = &ticks, taken
		if !first {
			e.LastActiveAt = taken
		}
		return unchanged, nil
	}}, true
}

// relocate records the multiplexer of a row where the process has another one above it
// than the row says, or where the row does not say which pane; and the session of its pane
// where a person has renamed it, or moved the pane to another.
func (sw *sweeper) relocate(ctx context.Context, id string, done func(id string)) {
	e := sw.entry(id)
	kind, server := sw.muxAbove(e.PID)
	if kind == "" {
		return // a multiplexer that is gone is no news: the process may have been moved out
	}
	if kind == e.Mux.Kind && (kind != MuxTmux || e.PaneServer.Same(server)) {
		if loc, ok := sw.renamed(ctx, e); ok {
			sw.moved(ctx, e, loc, done)
		}
		return
	}
	env, err := sw.pass.snap.Environ(e.PID)
	if err != nil {
		return
	}
	loc := sw.pass.locate(ctx, e.PID, env.Lookup, sw.lists.pane)
	next := e.clone()
	next.relocate(&loc)
	if next.Mux.Kind == e.Mux.Kind && next.Mux.Socket == e.Mux.Socket && next.Mux.Target == e.Mux.Target &&
		next.PaneID == e.PaneID && next.PaneServer == e.PaneServer && (loc.Window == "" || loc.Window == e.Window) {
		return
	}
	sw.moved(ctx, e, loc, done)
}

// renamed finds the session that a row's pane is in now, where that is another one than the
// row says. The server was asked already.
func (sw *sweeper) renamed(ctx context.Context, e *Entry) (Location, bool) {
	if e.Mux.Kind != MuxTmux || e.Mux.Socket == "" || e.PaneID == "" {
		return Location{}, false
	}
	l := sw.lists.at(e.Mux.Socket)
	pane, ok := paneOfRow(l.listing, e)
	if l.err != nil || !ok || pane.Session == e.Mux.Target {
		return Location{}, false
	}
	return Location{Mux: Mux{Kind: MuxTmux, Socket: e.Mux.Socket, Target: pane.Session}, PaneID: e.PaneID, PaneServer: e.PaneServer}, true
}

// moved records where a session is now.
func (sw *sweeper) moved(ctx context.Context, e *Entry, loc Location, done func(id string)) {
	after, out, err := sw.s.Apply(ctx, e.LedgerID, Bind("", e.Process(), loc).AtEpoch(e.Epoch))
	switch {
	case errors.Is(err, ErrLeaseHeld), errors.Is(err, ErrIllegal), errors.Is(err, ErrNotFound):
	case err != nil:
		sw.rep.failed(e.LedgerID, sw.stage, err)
	case out == Applied:
		sw.put(e.LedgerID, after)
		done(e.LedgerID)
	}
}

// muxAbove finds the nearest multiplexer above a process, without reading an environment.
func (sw *sweeper) muxAbove(pid int) (kind string, server ProcessID) {
	for q := range sw.pass.snap.Ancestors(pid) {
		if isTmuxServer(q) {
			return MuxTmux, sw.pass.identity(q)
		}
		if _, ok := dtachSocket(q.Args); ok {
			return MuxDtach, sw.pass.identity(q)
		}
	}
	return "", ProcessID{}
}
