package ledger

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// SweepOptions say how a sweep is made. The zero value is the default.
type SweepOptions struct {
	// Grace and AckGrace are those of [ReconcileOptions], for rows in mid-operation.
	Grace    time.Duration
	AckGrace time.Duration
	End      EndOptions

	// Retention is how long finished rows are kept; 0: 30 days, less than 0: for ever.
	Retention time.Duration
	// Rescue says how work is rescued. Its Timeout is for one row; 0: 10 s. All git work
	// together delays a sweep by at most 30 s; what is left over has its turn in the next.
	Rescue RescueOptions

	// Host settles rows in mid-operation. Nil: one without multiplexers.
	Host *Host
	// Mux asks the multiplexers about live sessions. Nil: tmux and dtach are asked.
	Mux MuxProbe
	// Notify delivers what changed to a person: all edges of a pass at once, each once per
	// session and change, across restarts. Its context ends after 10 s. An edge whose
	// delivery failed, or was interrupted, is delivered once more by a later sweep. Nil:
	// the edges stand in the report alone.
	Notify func(ctx context.Context, edges []Edge) error
	// Edges are the changes that a person wants to hear of. Nil: [DefaultEdges].
	Edges []EdgeRule

	// Progress is called before each step of a longer stage. It must not block.
	Progress func(Progress)
	// Wait is how long another sweep is waited for; 0: as long as for any lock.
	Wait time.Duration
}

// Progress says how far a sweep has come.
type Progress struct {
	Stage string // a member of Report.TookMs
	Done  int    // steps of the stage
	Total int
}

// The bounds of one pass. Filing is a mere rename, and has its own: maxFiled.
const (
	maxDescribed  = 32
	maxClosed     = 32
	maxReconciled = 32
	maxRetired    = 32 // of each clause, and of births
	maxBound      = 32 // rows whose conversation is looked for

	// Together they bound the git work of a pass to 30 s.
	rescueBudget    = 15 * time.Second
	reconcileBudget = 15 * time.Second
	rescueTimeout   = 10 * time.Second // for one row

	muxWait    = 5 * time.Second
	notifyWait = 10 * time.Second
)

const sweepLock = "sweep.lock"

// Sweep makes the ledger true without anyone's co-operation: it enrols the sessions that
// nobody announced, refreshes the live ones, rescues and closes those that ended silently,
// settles what dead coordinators left, files and prunes what is over, and says each change
// once. It is one pass, of bounded work; run it every minute or so. It can be killed at any
// point: the next one finishes what it left.
//
// One sweep runs at a time; a second one waits (see Wait), and then fails with [ErrBusy].
// What concerns one row alone stands in the report. The error is a *[SweepError] where
// whole stages failed and the others were done, else what kept the pass from beginning, or
// ended it early; the report says what was done by then.
//
// The stages, in their order: read the rows; look at processes and multiplexers; enrol;
// describe; refresh; rescue and close; reconcile; retain; file; notify.
func Sweep(ctx context.Context, s *Store, opts SweepOptions) (Report, error) {
	rep := newReporter(s.logger)
	if err := s.begin(ctx); err != nil {
		return rep.Report, err
	}
	unlock, err := s.lockFor(ctx, cmp.Or(opts.Wait, s.lockWait))
	if err != nil {
		return rep.Report, err
	}
	defer unlock()
	sw := &sweeper{s: s, h: opts.Host, opts: opts, rep: rep, now: s.now(), lists: s.listings(), found: map[string]resolution{}}
	if sw.h == nil {
		sw.h = &Host{Store: s}
	}
	if sw.opts.Mux == nil {
		sw.opts.Mux = s.probeMux(sw.h.Servers, sw.lists)
	}
	if sw.opts.Edges == nil {
		sw.opts.Edges = DefaultEdges()
	}
	return rep.Report, sw.run(withPassWait(ctx))
}

// lockFor takes the lock of a pass over the whole ledger.
func (s *Store) lockFor(ctx context.Context, wait time.Duration) (unlock func(), err error) {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	return s.lockPass(ctx, sweepLock)
}

// sweepStages are the steps of a pass, in their order.
var sweepStages = []struct {
	name string
	do   func(*sweeper, context.Context) error
}{
	{"read", (*sweeper).read},
	{"look", (*sweeper).look},
	{"enrol", (*sweeper).enrol},
	{"describe", (*sweeper).describe},
	{"refresh", (*sweeper).refresh},
	{"close", (*sweeper).closeRows},
	{"reconcile", (*sweeper).reconcile},
	{"retain", (*sweeper).retain},
	{"file", (*sweeper).file},
	{"notify", (*sweeper).notify},
}

// sweeper is one pass.
type sweeper struct {
	lists *listings // each tmux server is asked for one
	s     *Store
	h     *Host
	opts  SweepOptions
	rep   *reporter
	cur   *cursors
	now   time.Time

	first bool // no pass has left anything yet

	stage string // for the report

	rows  []sweepRow     // of sessions/, sorted by id
	at    map[string]int // id: index in rows
	pass  *pass
	view  *rowsView // nil where it could not be had
	plan  *enroller // the same
	found map[string]resolution
	mux   map[string]MuxState

	filedIDs map[string]bool // by filed

	mu sync.Mutex // of cur, found and rows, while rows are worked on side by side
}

// sweepRow is a row as the pass found it and as it left it. Both may be shared: neither is
// changed in place.
type sweepRow struct {
	was *Entry // nil for a row that the pass made
	now *Entry // nil for one that it removed
}

// run makes the stages one after the other. A stage that fails does not keep the others
// from being made; without rows there is nothing to do.
func (sw *sweeper) run(ctx context.Context) error {
	var failed SweepError
	for i, stage := range sweepStages {
		sw.stage = stage.name
		began := time.Now()
		err := stage.do(sw, ctx)
		sw.rep.took(stage.name, time.Since(began))
		if ctx.Err() != nil {
			sw.saveCursors()
			return ctx.Err()
		}
		if err != nil {
			failed.Errs = append(failed.Errs, stageError(stage.name, err))
			if i == 0 {
				break
			}
		}
	}
	sw.saveCursors()
	if len(failed.Errs) > 0 {
		return &failed
	}
	return nil
}

// saveCursors keeps the cursors, if that is possible.
func (sw *sweeper) saveCursors() {
	if sw.cur == nil {
		return
	}
	if err := sw.s.saveCursors(sw.cur); err != nil {
		sw.rep.warn("", sw.stage, err)
	}
}

func (sw *sweeper) progress(done, total int) {
	if sw.opts.Progress != nil {
		sw.opts.Progress(Progress{sw.stage, done, total})
	}
}

// read reads the rows of sessions/, and what the last pass left.
func (sw *sweeper) read(ctx context.Context) error {
	cur, err := sw.s.loadCursors()
	if err != nil {
		sw.rep.warn("", sw.stage, err)
	}
	sw.cur, sw.first = cur, err == nil && cur.saved == nil
	sw.at = map[string]int{}
	whole, err := sw.s.scan(ctx, dirSessions, func(name string, r *row) bool {
		var damaged *DamagedError
		if errors.As(r.err, &damaged) {
			note(sw.rep, &sw.rep.Damaged, DamagedRow{damaged.ID, damaged.Path, damaged.Err.Error()}, "", "")
			return true
		}
		sw.at[r.entry.LedgerID] = len(sw.rows)
		sw.rows = append(sw.rows, sweepRow{&r.entry, &r.entry})
		return true
	})
	sw.rep.Complete.Rows = whole
	if whole {
		damaged := sw.damaged()
		sw.cur.keep(func(id string) bool {
			i, there := sw.at[id]
			return there && sw.rows[i].now.IsOpen() || damaged[id]
		})
	}
	return err
}

func (sw *sweeper) damaged() map[string]bool {
	ids := map[string]bool{}
	for _, d := range sw.rep.Damaged {
		ids[d.ID] = true
	}
	return ids
}

// put notes what a row has become; the zero entry is a row that was removed.
func (sw *sweeper) put(id string, e Entry) {
	sw.mu.Lock()
	defer sw.mu.Unlock()
	delete(sw.found, id)
	i, there := sw.at[id]
	if !there {
		i = len(sw.rows)
		sw.at[id] = i
		sw.rows = append(sw.rows, sweepRow{})
	}
	sw.rows[i].now = nil
	if e.LedgerID != "" {
		sw.rows[i].now = &e
	}
}

// reread looks a row up again that others may have written to as well.
func (sw *sweeper) reread(id string) {
	e := Entry{}
	r, _, err := sw.s.lookUp(id)
	switch {
	case errors.Is(err, ErrNotFound):
	case err != nil || r.err != nil:
		return // as it was seen last
	default:
		e = r.entry
	}
	sw.put(id, e)
}

// entry returns the row as it is now; nil where the pass removed it.
func (sw *sweeper) entry(id string) *Entry {
	sw.mu.Lock()
	defer sw.mu.Unlock()
	if i, ok := sw.at[id]; ok {
		return sw.rows[i].now
	}
	return nil
}

// pick lists the ids of the rows that are wanted.
func (sw *sweeper) pick(want func(e *Entry) bool) (ids []string) {
	for _, r := range slices.Clone(sw.rows) {
		if r.now != nil && want(r.now) {
			ids = append(ids, r.now.LedgerID)
		}
	}
	return ids
}

// look takes the process snapshot, and asks the multiplexers about the live sessions,
// all servers side by side.
func (sw *sweeper) look(ctx context.Context) error {
	p, err := sw.s.newPass(ctx)
	if err != nil {
		return err
	}
	sw.pass, p.own = p, sw.lists.ownSocket
	sw.rep.Complete.Processes, sw.rep.Complete.Discovery = p.whole, p.noDiscovery == ""
	if !p.whole {
		sw.rep.warn("", sw.stage, fmt.Errorf("the process table was not read completely: %s", p.partial))
	}
	sw.rep.Complete.Mux = true
	var in []Entry
	for _, r := range sw.rows {
		if e := r.now; e.IsOpen() && e.Mux.Kind != "" && (e.Phase == PhaseLive || e.Lease != nil) {
			in = append(in, *e)
		}
	}
	if len(in) == 0 {
		return nil
	}
	muxCtx, cancel := context.WithTimeout(ctx, muxWait)
	defer cancel()
	sw.mux = sw.opts.Mux(muxCtx, in)
	for i := range in {
		if sw.silent(&in[i]) {
			sw.rep.Complete.Mux = false
		}
	}
	return nil
}

// silent reports whether a row's tmux server did not say how its session stands though it
// may be there: it could not be asked, or it runs and did not answer.
func (sw *sweeper) silent(e *Entry) bool {
	if e.Mux.Kind != MuxTmux || e.Mux.Socket == "" {
		return false
	}
	switch sw.mux[e.LedgerID] {
	case MuxUnknown:
		return true
	case MuxUnreachable:
		return sw.verdict(e.PaneServer) == Running
	}
	return false
}

// whole reports whether what the pass does not show is not there. Only then is anything
// closed or removed.
func (sw *sweeper) whole() bool {
	return sw.rep.Complete.Rows && sw.pass != nil && sw.pass.whole && sw.view != nil
}

// resolve finds the row's process, by the one snapshot of the pass.
func (sw *sweeper) resolve(e *Entry) resolution {
	sw.mu.Lock()
	defer sw.mu.Unlock()
	if r, known := sw.found[e.LedgerID]; known {
		return r
	}
	r := resolution{why: "the process table could not be read"}
	switch {
	case sw.pass == nil:
	case sw.pass.verdict(sw.s.procs, e.Process()) == Running:
		r = resolution{verdict: Running, process: e.Process()}
	case sw.view != nil:
		r = sw.pass.resolve(sw.s.procs, e, sw.view)
	}
	sw.found[e.LedgerID] = r
	return r
}

// verdict judges one process by the pass.
func (sw *sweeper) verdict(p ProcessID) Verdict {
	if sw.pass == nil {
		return sw.s.procs.verdict(p)
	}
	return sw.pass.verdict(sw.s.procs, p)
}

// quiet reports whether a live row is in no operation and not meant to be killed: the rows
// that the stages before reconcile are for.
func quiet(e *Entry) bool {
	st := e.State()
	return st.Phase == PhaseLive && st.Op == OpNone && !st.Tombstoned && !st.SchemaTooNew
}
