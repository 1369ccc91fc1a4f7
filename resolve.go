package ledger

import (
	"fmt"
	"time"
)

// resolution says which process is a row's, if any.
type resolution struct {
	verdict  Verdict
	process  ProcessID // of Running
	launcher Verdict   // of the row's launcher; only for a row that never had a process
	why      string    // how that is known, or why it is not, in plain words
}

// carrierSight is what a pass shows of the processes that carry one row's id.
type carrierSight struct {
	seen    Verdict   // Running: there is one; Gone: none, in a complete view
	process ProcessID // of Running: the outermost session process
	// waiting is a process that carries the id and runs no runtime: a shell, or a program
	// at its gate. It is no session yet.
	waiting ProcessID
	why     string // of Unknown
}

// resolveProcess finds a row's process. own is the verdict of the recorded process; carrier
// is what else carries the row's id; partial, if set, is why the view is not complete. It is
// pure.
//
// The first of these counts: the recorded process while it runs; a session process that
// carries the row's id; else the row's process is gone where the view is complete, and
// unknown where it is not. A recorded process of another boot needs no view: nothing of
// that boot runs.
func resolveProcess(e *Entry, here ProcessID, own Verdict, carrier carrierSight, partial string) resolution {
	p := e.Process()
	switch {
	case !p.IsZero() && own == Running:
		return resolution{verdict: Running, process: p, why: fmt.Sprintf("process %d runs, with the recorded start ticks", p.PID)}
	case carrier.seen == Running && !carrier.process.IsZero():
		return resolution{verdict: Running, process: carrier.process,
			why: fmt.Sprintf("process %d runs and carries the session's id", carrier.process.PID)}
	case p.IsZero():
		return resolveUnbound(carrier, partial)
	case own == Unknown:
		return resolution{why: unknownProcess(p, here)}
	case p.BootID != here.BootID && here.BootID != "":
		return resolution{verdict: Gone, why: "the machine was restarted since"}
	case partial != "":
		return resolution{why: "the process table was not read completely: " + partial}
	}
	return resolution{verdict: Gone, why: fmt.Sprintf("process %d is gone", p.PID)}
}

// resolveUnbound is the rest of resolveProcess for a row that never had a process.
func resolveUnbound(carrier carrierSight, partial string) resolution {
	switch {
	case !carrier.waiting.IsZero():
		return resolution{why: fmt.Sprintf("process %d carries the session's id and runs no agent yet", carrier.waiting.PID)}
	case partial != "":
		return resolution{why: "the process table was not read completely: " + partial}
	case carrier.seen == Gone:
		return resolution{verdict: Gone, why: "no process carries the session's id"}
	}
	return resolution{why: carrier.why}
}

// unknownProcess says why nothing can be said of a recorded process.
func unknownProcess(p, here ProcessID) string {
	switch {
	case here.BootID == "":
		return "this machine cannot be identified"
	case p.HostID != "" && p.HostID != here.HostID:
		return "it was recorded on another host"
	case p.BootID == "":
		return "it was recorded without a boot id"
	case p.PIDNamespace != 0 && p.PIDNamespace != here.PIDNamespace:
		return "it was recorded in another pid namespace"
	case p.TimeNamespace != 0 && p.TimeNamespace != here.TimeNamespace:
		return "it was recorded in another time namespace"
	}
	return fmt.Sprintf("process %d cannot be looked at", p.PID)
}

// resolve finds a row's process in the pass. rows knows which processes have rows of
// their own: such a one is never another row's.
func (p *pass) resolve(procs *table, e *Entry, rows *rowsView) resolution {
	own := Unknown
	id := e.Process()
	if e.PID > 0 && id.IsZero() {
		return p.resolveWithoutTicks(e)
	}
	if !id.IsZero() {
		if own = p.verdict(procs, id); own == Running {
			return resolveProcess(e, p.here, own, carrierSight{}, "")
		}
	}
	partial := ""
	if !p.whole {
		partial = p.partial
	}
	r := resolveProcess(e, p.here, own, p.carrier(e, rows), partial)
	if id.IsZero() && r.verdict != Running {
		r.launcher = p.launcher(procs, e)
	}
	return r
}

// resolveWithoutTicks is for a row of another implementation that recorded a pid alone:
// that the pid is free proves that the process is gone, and that it is not proves nothing.
func (p *pass) resolveWithoutTicks(e *Entry) resolution {
	switch _, there := p.snap.Get(e.PID); {
	case p.here.BootID == "", e.BootID == "", e.HostID != "" && e.HostID != p.here.HostID:
	case e.BootID != p.here.BootID:
		return resolution{verdict: Gone, why: "the machine was restarted since"}
	case !there && p.whole && samePIDs(e, p.here):
		return resolution{verdict: Gone, why: fmt.Sprintf("process %d is gone", e.PID)}
	}
	return resolution{why: fmt.Sprintf("process %d was recorded without its start ticks, and may be another by now", e.PID)}
}

// carrier finds the session process that carries a row's id, by the rule of carriers: the
// outermost of the row's runtime, of several the oldest, and none that has another row.
func (p *pass) carrier(e *Entry, rows *rowsView) carrierSight {
	cs := p.candidates()
	m := matcher{cs: cs, at: p.at, rows: *rows}
	unsure := ""
	for i := range cs {
		c := &cs[i]
		if e.Runtime != "" && c.runtime != e.Runtime || c.continues != 0 {
			continue
		}
		if o, owned := rows.ownerOf(c.process); owned && o.row != e.LedgerID {
			continue
		}
		switch {
		case c.unread != "":
			unsure = fmt.Sprintf("process %d may be the session, and its environment cannot be read", c.process.PID)
		case c.carries.id == e.LedgerID:
			outermost, known := m.outermost(c, e.LedgerID, e.Runtime)
			if !known {
				unsure = fmt.Sprintf("process %d may be the session, and one above it cannot be read", c.process.PID)
			} else if outermost {
				return carrierSight{seen: Running, process: c.process}
			}
		}
	}
	if !e.Process().IsZero() {
		return carrierSight{why: unsure} // its recorded process decides
	}
	waiting, known := p.carrying(envID, e.LedgerID)
	for _, w := range waiting {
		i, runs := p.at[w.PID]
		if !runs {
			return carrierSight{seen: Running, waiting: w}
		}
		// What is left of the session's own: a child, or one that has a row.
		if _, owned := rows.ownerOf(w); !owned && e.Runtime != "" && cs[i].runtime != e.Runtime {
			unsure = fmt.Sprintf("process %d carries the session's id and runs %s", w.PID, cs[i].runtime)
		}
	}
	if unsure != "" || !known {
		if unsure == "" {
			unsure = "a process that may carry the session's id cannot be read"
		}
		return carrierSight{why: unsure}
	}
	return carrierSight{seen: Gone}
}

// attempt finds the processes that carry an operation's attempt: the outermost of them,
// and whether all of them wait at their gate, running no agent yet. Running: there is
// one; Gone: none, in a complete view.
func (p *pass) attempt(attempt string) (seen Verdict, outermost ProcessID, atGate bool) {
	found, known := p.carrying(envAttempt, attempt)
	if len(found) == 0 {
		if known {
			return Gone, ProcessID{}, false
		}
		return Unknown, ProcessID{}, false
	}
	atGate = true
	bears := map[int]bool{}
	for _, f := range found {
		bears[f.PID] = true
	}
	for _, c := range p.candidates() {
		if bears[c.process.PID] {
			atGate = false
		}
	}
	for _, f := range found {
		below := false
		for above := range p.snap.Ancestors(f.PID) {
			below = below || bears[above.PID]
		}
		if !below && (outermost.IsZero() || f.StartTicks < outermost.StartTicks) {
			outermost = f
		}
	}
	return Running, outermost, atGate
}

// clockSlack is how far two readings of the boot time, of which start times are made, and
// the rounding of stored times can be apart.
const clockSlack = 3 * time.Second

// launcher is the verdict of the process that a row names as its launcher. A row records
// the pid alone, so that one which began after the row may be a stranger's: that is not
// known, rather than running or gone.
func (p *pass) launcher(procs *table, e *Entry) Verdict {
	if l := e.Lease; l != nil && (e.LauncherPID == 0 || l.Owner.PID == e.LauncherPID) {
		return p.verdict(procs, l.Owner)
	}
	switch {
	case e.LauncherPID <= 0, p.here.BootID == "", e.HostID != "" && e.HostID != p.here.HostID, e.BootID == "":
		return Unknown
	case e.BootID != p.here.BootID:
		return Gone
	case !samePIDs(e, p.here):
		return Unknown
	}
	st, ok := p.snap.Get(e.LauncherPID)
	if !ok {
		var err error
		st, err = procs.sys.Stat(e.LauncherPID)
		if isGone(err) {
			return Gone
		}
		if err != nil {
			return Unknown
		}
	}
	if st.Gone() {
		return Gone
	}
	born, err := p.sys.StartTime(st.Start)
	if err != nil || e.StartedAt.IsZero() || born.After(e.StartedAt.Add(clockSlack)) {
		return Unknown
	}
	return Running
}
