package ledger

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"github.com/sessionledger/ledger/internal/runtimes"
)

// EnrolOptions say how [Store.Enrol] adopts a process. Nil and the zero value are the
// defaults.
type EnrolOptions struct {
	// Runtime is the registry name of the process's runtime, for one that the registry
	// does not recognise. "": the registry decides.
	Runtime string
	// By is recorded as [Entry.EnrolledBy]. "": EnrolledByDiscovery.
	By string

	panes paneLookup         // nil: each server is asked for one listing
	word  *hookWord          // what a hook said of the conversation
	sign  func(*Entry) error // notes the hook itself in a row that it makes or binds
}

// Enrol adopts the running process pid as a session, with every fact that evidence can be
// had of, and binds the conversation that it is in where one is known for sure. A process
// that is the session of a row which has none yet is bound to that row; agents above it
// that have no row are enrolled first. Where pid belongs to a session of several
// processes (a script and the program that it started), the session is adopted.
//
// It is idempotent: a process that has a row already gives that row, whatever its phase,
// and adopted is false.
//
// The error is [ErrNotFound] where there is no such process or it runs no session of a
// runtime; [ErrInvalid] for what is no pid; [ErrUnknown] where its environment cannot be
// read, so that it may be enrolled already, or where it cannot be told yet what it is; a
// *[DamagedError] where its row is damaged; [ErrLeaseHeld] and [ErrIllegal] where it carries
// the id of a row that is in an operation, or frozen, which only that operation and the
// hook of the session settle; else those of [Store.Create] and [Store.Apply].
func (s *Store) Enrol(ctx context.Context, pid int, opts *EnrolOptions) (row Entry, adopted bool, err error) {
	if err := s.begin(ctx); err != nil {
		return Entry{}, false, err
	}
	if pid <= 0 {
		return Entry{}, false, fmt.Errorf("ledger: enrol: %w: %d is no pid", ErrInvalid, pid)
	}
	o := EnrolOptions{}
	if opts != nil {
		o = *opts
	}
	p, err := s.chainPass(pid)
	if isGone(err) {
		return Entry{}, false, fmt.Errorf("ledger: enrol: %w: process %d does not run", ErrNotFound, pid)
	}
	if err != nil {
		return Entry{}, false, fmt.Errorf("ledger: enrol process %d: %w: %w", pid, ErrUnknown, err)
	}
	if o.Runtime != "" {
		if err := checkRuntime(o.Runtime); err != nil {
			return Entry{}, false, err
		}
		if q, ok := p.snap.Get(pid); ok && (pid == 1 || q.Kernel || isTmuxServer(q) || runtimes.Wrapper(q.Args)) {
			return Entry{}, false, fmt.Errorf("ledger: enrol: %w: process %d (%.40q) runs other programs, and is no session", ErrInvalid, pid, q.Comm)
		}
		p.declare(pid, o.Runtime)
	}
	plan, err := s.plan(ctx, p, nil)
	if err != nil {
		return Entry{}, false, err
	}
	en := s.enroller(p, plan, o)
	i, ok := en.at[pid]
	if !ok {
		return Entry{}, false, fmt.Errorf("ledger: enrol: %w: process %d runs no session of a known runtime", ErrNotFound, pid)
	}
	return en.adopt(ctx, i)
}

// plan decides on every session process of the pass. open are the rows that the caller
// has read; the others are looked up by claims and by the ids that processes carry.
func (s *Store) plan(ctx context.Context, p *pass, open []Entry) ([]match, error) {
	if err := s.completeClaims(ctx); err != nil {
		return nil, err
	}
	rows, err := s.rowsOf(p, open)
	if err != nil {
		return nil, err
	}
	return planMatches(p.candidates(), *rows, p.noDiscovery), nil
}

// rowsOf looks up the rows that concern the session processes of the pass.
func (s *Store) rowsOf(p *pass, open []Entry) (*rowsView, error) {
	v := &rowsView{byID: map[string]rowSight{}, owners: map[pidTicks][]owner{}, dedicated: p.dedicatedSocket}
	for i := range open {
		e := &open[i]
		v.byID[e.LedgerID] = rowSight{state: rowThere, entry: *e}
		v.ownAll(e)
		v.recordedElsewhere(e, p.here)
	}
	for _, c := range p.candidates() {
		if _, owned := v.ownerOf(c.process); !owned {
			if err := s.ownByClaim(v, c.process); err != nil {
				return nil, err
			}
		}
		if id := c.carries.id; isPlainID(id) {
			if _, seen := v.byID[id]; !seen {
				sight := s.sightRow(id)
				v.byID[id] = sight
				v.ownAll(&sight.entry) // its claims may be lost
				v.recordedElsewhere(&sight.entry, p.here)
			}
		}
	}
	return v, nil
}

// ownByClaim finds the row of a process by its claim: that of an open row, or of one that
// ended while its process lives on.
func (s *Store) ownByClaim(v *rowsView, p ProcessID) error {
	id, err := s.holder(processClaim(p))
	if err == nil && id != "" {
		v.own(p, id, s.sightRow(id).state == rowDamaged)
	}
	return err
}

// sightRow looks one row up. Only "there is none" means that there is none.
func (s *Store) sightRow(id string) rowSight {
	r, _, err := s.lookUp(id)
	switch {
	case errors.Is(err, ErrNotFound):
		return rowSight{state: rowAbsent}
	case err != nil:
		return rowSight{err: err}
	case r.err != nil:
		return rowSight{state: rowDamaged, err: r.err}
	}
	return rowSight{state: rowThere, entry: r.entry}
}

// declare makes the process a session of a runtime on a person's word.
func (p *pass) declare(pid int, runtime string) {
	q, ok := p.snap.Get(pid)
	if !ok || q.Gone() {
		return
	}
	cs := p.candidates()
	for i := range cs {
		if cs[i].process.PID == pid {
			cs[i].runtime, cs[i].young, cs[i].continues = runtime, false, 0
			return
		}
	}
	if c, ok := p.candidate(matchedProc{Proc: q, runtime: runtime, above: p.above(pid)}); ok {
		p.at[pid] = len(cs) // of a chain it is the last: all the others are above it
		p.matched = append(cs, c)
	}
}

// enroller carries a plan out, one process at a time and parents first.
type enroller struct {
	store *Store
	pass  *pass
	plan  []match
	opts  EnrolOptions
	at    map[int]int    // pid: index in plan
	rows  map[int]string // pid: its row, as far as the plan was carried out
}

func (s *Store) enroller(p *pass, plan []match, o EnrolOptions) *enroller {
	if o.panes == nil {
		o.panes = s.listings().pane
	}
	en := &enroller{store: s, pass: p, plan: plan, opts: o, at: make(map[int]int, len(plan)), rows: map[int]string{}}
	for i := range plan {
		en.at[plan[i].process.PID] = i
		if plan[i].kind == matchKnown {
			en.rows[plan[i].process.PID] = plan[i].row
		}
	}
	return en
}

// adopt carries out the decision on one process, and before it those on the agents above
// it. It returns the process's row.
func (en *enroller) adopt(ctx context.Context, i int) (row Entry, adopted bool, err error) {
	m := &en.plan[i]
	if m.kind == matchPart {
		if head, ok := en.at[m.head]; ok {
			return en.adopt(ctx, head)
		}
	}
	if m.kind == matchEnrol || m.kind == matchBind {
		if id := en.rows[m.process.PID]; id != "" { // it was, for the sake of one below it
			row, err = en.store.Get(ctx, id)
			return row, false, err
		}
		en.adoptAbove(ctx, m)
	}
	switch m.kind {
	case matchKnown:
		row, err = en.store.Get(ctx, m.row)
		return row, false, err
	case matchBind:
		row, adopted, err = en.bind(ctx, m)
	case matchEnrol:
		row, adopted, err = en.enrol(ctx, m)
	case matchRefused:
		if _, err = en.store.Get(ctx, m.row); err == nil {
			err = ErrUnknown // repaired meanwhile: the next look will tell
		}
		return Entry{}, false, en.failed(m, err)
	case matchHeld:
		switch held, err := en.store.Get(ctx, m.row); {
		case err != nil:
			return Entry{}, false, en.failed(m, ErrLeaseHeld)
		case held.Lease == nil:
			return Entry{}, false, en.failed(m, ErrIllegal)
		default:
			return Entry{}, false, en.store.leaseHeld(held.Lease, en.failed(m, ErrLeaseHeld))
		}
	default:
		return Entry{}, false, en.failed(m, ErrUnknown)
	}
	if row.LedgerID != "" {
		en.rows[m.process.PID] = row.LedgerID
	}
	if err != nil && !isUnsynced(err) || !adopted {
		return row, adopted, err
	}
	c := en.store.conversationOf(ctx, en.pass, m, en.opts.word)
	if c.id == "" {
		return row, adopted, err
	}
	bound, bindErr := en.store.bindConversation(ctx, row, c)
	if bindErr != nil {
		return row, adopted, errors.Join(err, bindErr)
	}
	return bound, adopted, err
}

func (en *enroller) failed(m *match, err error) error {
	return fmt.Errorf("ledger: enrol process %d: %w: %s", m.process.PID, err, m.reason)
}

// adoptAbove enrols the agents above a session that have no row. One that cannot be
// enrolled does not keep the session below from it: it is named without a row.
func (en *enroller) adoptAbove(ctx context.Context, m *match) {
	i, ok := en.at[m.parent]
	if !ok || en.rows[m.parent] != "" || en.plan[i].kind != matchEnrol && en.plan[i].kind != matchBind {
		return
	}
	upper := *en
	upper.opts.word, upper.opts.sign = nil, nil // the hook spoke of the session below
	_, _, _ = upper.adopt(ctx, i)
}

// above finds the nearest agent above a session, and the nearest that has a row.
func (en *enroller) above(m *match) agentAbove {
	var a agentAbove
	for pid := m.parent; pid != 0; {
		i, ok := en.at[pid]
		if !ok {
			break
		}
		if a.pid == 0 {
			a.pid, a.name = pid, en.plan[i].runtime
		}
		if a.row = en.rows[pid]; a.row != "" {
			break
		}
		pid = en.plan[i].parent
	}
	return a
}

// note marks a row that a hook makes or fills with the hook's own sign of life.
func (en *enroller) note(e *Entry) error {
	if en.opts.sign == nil {
		return nil
	}
	return en.opts.sign(e)
}

// enrol makes a row for a process that has none.
func (en *enroller) enrol(ctx context.Context, m *match) (Entry, bool, error) {
	e, loc := en.pass.describe(ctx, en.store.procs, m, en.above(m), en.opts.panes)
	e.LedgerID, e.EnrolledBy = m.row, cmp.Or(en.opts.By, EnrolledByDiscovery)
	if err := en.note(&e); err != nil {
		return Entry{}, false, err
	}
	row, err := en.store.Create(ctx, e, Enrol(m.process, loc))
	switch {
	case err == nil, isUnsynced(err):
		return row, true, err
	case errors.Is(err, ErrExists) && m.process.Same(row.Process()):
		return row, false, nil // another enrolment point was faster
	case errors.Is(err, ErrExists) && m.row != "":
		// The row whose id the process carries has come back: it is a plain row again.
		if row, getErr := en.store.Get(ctx, m.row); getErr == nil && m.process.Same(row.Process()) {
			return row, false, nil
		}
	}
	return row, row.LedgerID != "", err
}

// bind gives a process to the row that waits for it.
func (en *enroller) bind(ctx context.Context, m *match) (Entry, bool, error) {
	facts, loc := en.pass.describe(ctx, en.store.procs, m, en.above(m), en.opts.panes)
	ev := Bind("", m.process, loc)
	if m.carries.attempt != "" {
		if r := en.store.sightRow(m.row); r.state == rowThere && r.entry.Lease != nil {
			ev = BindCarrier(m.carries.attempt, m.process, loc)
		}
	}
	row, out, err := en.store.Apply(ctx, m.row, ev)
	if err != nil && !isUnsynced(err) {
		if other, getErr := en.store.Find(ctx, Query{Process: m.process}); getErr == nil {
			return other, false, nil // another enrolment point was faster
		}
		return row, false, err
	}
	if out != Applied {
		return row, false, en.failed(m, fmt.Errorf("%w: the bind was %s", ErrConflict, out))
	}
	filled, fillErr := en.store.Update(ctx, m.row, func(e *Entry) error {
		fillBlanks(e, &facts)
		return en.note(e)
	}, Relaxed())
	if fillErr == nil {
		row = filled
	}
	return row, true, errors.Join(err, fillErr)
}

// fillBlanks adds what was observed to a row where it says nothing yet.
func fillBlanks(e, facts *Entry) {
	fill := func(to *string, from string) {
		if *to == "" {
			*to = from
		}
	}
	fill(&e.Runtime, facts.Runtime)
	fill(&e.Host, facts.Host)
	if e.Cwd == "" {
		e.Cwd = facts.Cwd
	}
	if e.Cwd == facts.Cwd && e.RepoRoot == "" {
		e.RepoRoot, e.Project, e.Branch, e.Worktree = facts.RepoRoot, facts.Project, facts.Branch, facts.Worktree
	}
	fill(&e.TTY, facts.TTY)
	fill(&e.Account, facts.Account)
	fill(&e.Cgroup, facts.Cgroup)
	if e.LaunchedBy == "" {
		e.LaunchedBy, e.Parent, e.ParentLedgerID = facts.LaunchedBy, facts.Parent, facts.ParentLedgerID
	}
	if e.StartedAt.IsZero() {
		e.StartedAt = facts.StartedAt
	}
	e.CPUTicks, e.ProcessDescribedAt = facts.CPUTicks, facts.ProcessDescribedAt
}
