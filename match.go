package ledger

import (
	"fmt"
	"slices"
)

// A process is a session when it runs a runtime and is no service (candidates), and this
// file says whose: which of the processes have a row, which are the process of a row that
// has none yet, and which are new. All of it is a function of values; the hook, the sweep
// and a person's command carry the same plan out (enrol.go).

// candidate is a process that runs a runtime and is no service, with what is known of it.
type candidate struct {
	process   ProcessID
	runtime   string
	above     []ProcessID // its ancestors, the nearest first
	continues int         // pid of the session process whose work it does itself; 0: it is one of its own
	young     bool        // it may be a fork of its agent parent that has not started its program yet
	unread    string      // why its environment cannot be read; "": it was read
	carries   carriedEnv
	muxes     []muxSight // multiplexers above it, the nearest first; of one that carries an id
}

// carriedEnv is what a process's environment says of the ledger.
type carriedEnv struct {
	id      string // ledger id
	own     string // the same in the carrier that may write the row
	attempt string // of the operation that started it
	pane    string // tmux pane
	factory bool   // a factory's work
}

// envFactory marks what an agent factory starts.
const envFactory = "FACTORY_ADW"

func carried(lookup func(string) (string, bool)) carriedEnv {
	get := func(name string) string {
		v, _ := lookup(name)
		return v
	}
	return carriedEnv{
		id: get(envID), own: get(envOwnID), attempt: get(envAttempt),
		pane: get("TMUX_PANE"), factory: get(envFactory) == "1",
	}
}

// matchKind says what is to happen with a candidate. The zero value decides nothing.
type matchKind int

const (
	matchNone         matchKind = iota
	matchKnown                  // it has the row already
	matchBind                   // it is the process of the row, which has none yet
	matchEnrol                  // it gets a row of its own: row, if that is set, is the id that it carries
	matchPart                   // it does the work of the session process that started it, and has no row of its own
	matchHeld                   // it carries the id of a row that is frozen or in an operation: that decides
	matchWait                   // it cannot be told yet: the next pass looks again
	matchUnverifiable           // its environment or its age cannot be compared, so that it may be enrolled already
	matchRefused                // it carries the id of a damaged row, which a person must repair first
	matchOff                    // discovery is switched off here
)

// match is the decision on one candidate.
type match struct {
	candidate
	kind   matchKind
	row    string // ledger id; see the kinds
	head   int    // of a part: pid of its session process
	parent int    // pid of the session process above it; 0: there is none
	// inherited is the ledger id that it carries and that is not its own: the row of the
	// agent that started it.
	inherited string
	warning   string // something that a person should know
	reason    string // why, where nothing is done
}

// rowState says what is known of a row that an environment names.
type rowState int

const (
	rowUnknown rowState = iota // it could not be looked up
	rowThere
	rowAbsent
	rowDamaged
)

// rowSight is a row as it was looked up.
type rowSight struct {
	state rowState
	entry Entry
	err   error // of rowUnknown and rowDamaged
}

// rowsView is what the plan knows of rows: those that candidates name.
type rowsView struct {
	byID map[string]rowSight
	// owners says which row has a process: for each, the row's id.
	owners map[pidTicks][]owner
	// elsewhere has the open rows by the pids that they recorded in another time namespace:
	// whether a process here with that pid is theirs cannot be told by its ticks.
	elsewhere map[int]string
	// dedicated is the socket of the tmux server that was started for a row.
	dedicated func(id string) string
}

// pidTicks finds the identities that may be the same: a legacy row lacks the rest.
type pidTicks struct {
	pid   int
	ticks uint64
}

type owner struct {
	process ProcessID
	row     string
	damaged bool
}

// own notes that a row has a process.
func (v *rowsView) own(process ProcessID, row string, damaged bool) {
	if process.IsZero() {
		return
	}
	key := pidTicks{process.PID, process.StartTicks}
	v.owners[key] = append(v.owners[key], owner{process, row, damaged})
}

// ownAll notes the processes of a row.
func (v *rowsView) ownAll(e *Entry) {
	v.own(e.Process(), e.LedgerID, false)
	if e.Restore != nil {
		v.own(e.Restore.Launched, e.LedgerID, false)
	}
}

// recordedElsewhere notes an open row whose process was recorded in another time namespace.
func (v *rowsView) recordedElsewhere(e *Entry, here ProcessID) {
	p := e.Process()
	if !e.IsOpen() || p.IsZero() || p.TimeNamespace == 0 || here.TimeNamespace == 0 || p.TimeNamespace == here.TimeNamespace {
		return
	}
	if !samePIDs(e, here) {
		return
	}
	if v.elsewhere == nil {
		v.elsewhere = map[int]string{}
	}
	v.elsewhere[p.PID] = e.LedgerID
}

// ownerOf returns which row has a process.
func (v *rowsView) ownerOf(p ProcessID) (owner, bool) {
	for _, o := range v.owners[pidTicks{p.PID, p.StartTicks}] {
		if o.process.Same(p) {
			return o, true
		}
	}
	return owner{}, false
}

// planMatches decides on every candidate, in their order, which has parents before
// children. off, if set, is why discovery is switched off.
func planMatches(cs []candidate, rows rowsView, off string) []match {
	m := matcher{rows: rows, off: off, at: make(map[int]int, len(cs)), taken: map[string]bool{}}
	for i := range cs {
		m.at[cs[i].process.PID] = i
	}
	m.cs = cs
	m.ownHeads()
	for i := range cs {
		m.plan = append(m.plan, m.decide(&cs[i]))
	}
	return m.plan
}

// matcher is one run of planMatches.
type matcher struct {
	cs    []candidate
	rows  rowsView
	off   string
	at    map[int]int // pid: index in cs, and in plan
	heads map[int]owner
	taken map[string]bool // rows that got a process in this plan
	plan  []match
}

// ownHeads notes which sessions have a row by any of their processes: another writer may
// have recorded the native build rather than the script that started it.
func (m *matcher) ownHeads() {
	m.heads = map[int]owner{}
	for i := range m.cs {
		if o, ok := m.rows.ownerOf(m.cs[i].process); ok {
			head := m.cs[i].process.PID
			if m.cs[i].continues != 0 {
				head = m.cs[i].continues
			}
			if _, taken := m.heads[head]; !taken || head == m.cs[i].process.PID {
				m.heads[head] = o
			}
		}
	}
}

// decide applies the rules to one candidate; the first that fits wins.
func (m *matcher) decide(c *candidate) match {
	d := match{candidate: *c, parent: m.parentOf(c)}
	if c.continues != 0 {
		d.kind, d.head, d.parent = matchPart, c.continues, 0
		d.row = m.heads[c.continues].row
		return d
	}
	if o, ok := m.heads[c.process.PID]; ok {
		d.kind, d.row = matchKnown, o.row
		if o.damaged {
			d.warning = fmt.Sprintf("process %d has the row %q, which is damaged", c.process.PID, o.row)
		}
		return d
	}
	if row := m.rows.elsewhere[c.process.PID]; row != "" {
		d.kind, d.row = matchUnverifiable, row
		d.reason = fmt.Sprintf("it may be the process of %q, which was recorded in another time namespace", row)
		return d
	}
	if c.unread != "" {
		d.kind, d.reason = matchUnverifiable, "its environment cannot be read: "+c.unread
		return d
	}
	if c.young {
		d.kind, d.reason = matchWait, "it may be a fork of its parent that has not started its program yet"
		return d
	}
	if c.carries.id != "" {
		if m.byCarriedID(&d); d.kind != matchNone {
			return d
		}
	}
	m.enrol(&d)
	return d
}

// enrol gives a process a row of its own.
func (m *matcher) enrol(d *match) {
	if d.parent != 0 && m.plan[m.at[d.parent]].kind == matchWait {
		d.kind, d.reason = matchWait, fmt.Sprintf("its parent %d waits too", d.parent)
		return
	}
	if m.off != "" {
		d.kind, d.reason = matchOff, m.off
		return
	}
	d.kind = matchEnrol
	if d.row != "" {
		m.taken[d.row] = true
	}
}

// byCarriedID decides on a process whose environment carries a ledger id. It leaves the
// kind alone where the process is to get a row of its own.
func (m *matcher) byCarriedID(d *match) {
	id := d.carries.id
	if !isPlainID(id) {
		d.warning = fmt.Sprintf("process %d carries %.140q, which is no ledger id", d.process.PID, id)
		return
	}
	sight := m.rows.byID[id]
	switch sight.state {
	case rowUnknown:
		d.kind, d.reason = matchWait, fmt.Sprintf("the row %q, whose id it carries, cannot be read: %v", id, sight.err)
		return
	case rowDamaged:
		d.kind, d.row = matchRefused, id
		d.reason = fmt.Sprintf("it carries the id of %q, which is damaged", id)
		d.warning = fmt.Sprintf("process %d is not enrolled: %s", d.process.PID, d.reason)
		return
	case rowAbsent:
		m.byAbsentRow(d, id)
		return
	}
	e := &sight.entry
	st := e.State()
	switch {
	case st.Phase == PhaseLive && (st.Op == OpNone || st.Op == OpCreate) && st.Process.IsZero() && !m.taken[id]:
		m.byUnboundRow(d, e)
	case st.Op != OpNone:
		d.kind, d.row = matchHeld, id
		d.reason = fmt.Sprintf("it carries the id of %q, which is in the operation %s", id, st.Op)
	case st.Phase == PhaseFrozen:
		d.kind, d.row = matchHeld, id
		d.reason = fmt.Sprintf("it carries the id of %q, which is frozen", id)
	default:
		d.inherited = id
	}
}

// byAbsentRow enrols the outermost carrier of a row that is gone under the id it carries:
// a session keeps its identity. What is left of its children has none to keep.
func (m *matcher) byAbsentRow(d *match, id string) {
	outermost, known := m.outermost(&d.candidate, id, idRuntime(id))
	switch {
	case !known:
		d.kind, d.reason = matchWait, "a process above it, which may carry the same id, cannot be read"
	case outermost && !m.taken[id] && (idRuntime(id) == "" || idRuntime(id) == d.runtime):
		d.row = id
	case m.taken[id]:
		d.inherited = id
	}
}

// byUnboundRow decides whether the process is that of a row which has none yet.
func (m *matcher) byUnboundRow(d *match, e *Entry) {
	outermost, known := m.outermost(&d.candidate, e.LedgerID, e.Runtime)
	fits := e.Runtime == "" || e.Runtime == d.runtime
	switch {
	case fits && !known:
		d.kind, d.reason = matchWait, "a process above it, which may carry the same id, cannot be read"
	case fits && outermost && m.adopts(&d.candidate, e):
		d.kind, d.row = matchBind, e.LedgerID
		m.taken[e.LedgerID] = true
	case e.Lease != nil:
		d.kind, d.row = matchHeld, e.LedgerID
		d.reason = fmt.Sprintf("it carries the id of %q, which is in the operation %s", e.LedgerID, e.Lease.Op)
	default:
		d.inherited = e.LedgerID
	}
}

// adopts reports whether an inherited id is the process's own: the attempt that creates
// the row started it, or the row's launcher is the process or above it, or the row's own
// tmux server or pane is.
func (m *matcher) adopts(c *candidate, e *Entry) bool {
	if e.Lease != nil {
		return c.carries.attempt != "" && c.carries.attempt == e.Lease.Attempt
	}
	if c.carries.own == e.LedgerID {
		return true // the carrier that may write the row says so itself
	}
	isLauncher := func(p ProcessID) bool { return p.PID == e.LauncherPID }
	if e.LauncherPID > 0 && samePIDs(e, c.process) && (isLauncher(c.process) || slices.ContainsFunc(c.above, isLauncher)) {
		return true
	}
	for _, x := range c.muxes {
		if x.kind != MuxTmux {
			continue
		}
		if !e.PaneServer.IsZero() && !e.PaneServer.Same(x.process) {
			continue
		}
		if x.socket != "" && x.socket == m.rows.dedicated(e.LedgerID) {
			return true
		}
		if e.PaneID != "" && !e.PaneServer.IsZero() && c.carries.pane == e.PaneID {
			return true
		}
	}
	return false
}

// samePIDs reports whether the pids that a row names count in the same boot and
// namespace as p. A member that the row lacks is taken to be this machine's.
func samePIDs(e *Entry, p ProcessID) bool {
	return (e.HostID == "" || e.HostID == p.HostID) && (e.BootID == "" || e.BootID == p.BootID) &&
		(e.PIDNamespace == 0 || e.PIDNamespace == p.PIDNamespace)
}

// outermost reports whether no process of the runtime above c carries the id too. It is
// not known where one above cannot be read. runtime "" is any.
func (m *matcher) outermost(c *candidate, id, runtime string) (outermost, known bool) {
	known = true
	for _, p := range c.above {
		i, ok := m.at[p.PID]
		if !ok || runtime != "" && m.cs[i].runtime != runtime {
			continue
		}
		if m.cs[i].unread != "" {
			if o, owned := m.rows.ownerOf(m.cs[i].process); !owned || o.row == id {
				known = false
			}
			continue
		}
		if m.cs[i].carries.id == id {
			return false, true
		}
	}
	return true, known
}

// parentOf finds the session process above a candidate.
func (m *matcher) parentOf(c *candidate) int {
	for _, p := range c.above {
		if i, ok := m.at[p.PID]; ok {
			if head := m.cs[i].continues; head != 0 {
				return head
			}
			return p.PID
		}
	}
	return 0
}

// idRuntime is the runtime that an id was minted for; "" where it does not tell.
func idRuntime(id string) string {
	runtime, _, _ := splitID(id)
	return runtime
}
