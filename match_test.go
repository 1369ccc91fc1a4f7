package ledger

import (
	"strings"
	"testing"
)

// here is the machine of the tests of values.
var testHere = ProcessID{HostID: "host", BootID: "boot", PIDNamespace: 1, TimeNamespace: 2}

func valueProcess(pid int) ProcessID {
	p := testHere
	p.PID, p.StartTicks = pid, uint64(pid)
	return p
}

// cand is a candidate below the processes with those pids, the nearest first.
func cand(pid int, runtime, id string, above ...int) candidate {
	c := candidate{process: valueProcess(pid), runtime: runtime, carries: carriedEnv{id: id}}
	for _, a := range above {
		c.above = append(c.above, valueProcess(a))
	}
	return c
}

// tweak returns v changed.
func tweak[T any](v T, changes ...func(*T)) T {
	for _, f := range changes {
		f(&v)
	}
	return v
}

func testRow(id string, changes ...func(*Entry)) Entry {
	return tweak(Entry{LedgerID: id, Runtime: "claude", Phase: PhaseLive, HostID: "host", BootID: "boot", PIDNamespace: 1}, changes...)
}

func hasProcess(pid int) func(*Entry) {
	return func(e *Entry) {
		p := valueProcess(pid)
		e.PID, e.PIDStartTicks = pid, &p.StartTicks
	}
}

func launchedFrom(pid int) func(*Entry) { return func(e *Entry) { e.LauncherPID = pid } }

func inOp(op Op, attempt string) func(*Entry) {
	return func(e *Entry) {
		e.Lease = &Lease{Op: op, Attempt: attempt, Nonce: attempt, Owner: valueProcess(9)}
		if op == OpRestore || op == OpAbort || op == OpStandIn {
			e.Phase = PhaseFrozen
		}
	}
}

// testView is what would be looked up of those rows.
func testView(rows ...Entry) rowsView {
	v := rowsView{byID: map[string]rowSight{}, owners: map[pidTicks][]owner{}, dedicated: func(id string) string { return "/sock/" + id }}
	for _, e := range rows {
		v.byID[e.LedgerID] = rowSight{state: rowThere, entry: e}
		v.own(e.Process(), e.LedgerID, false)
		if e.Restore != nil {
			v.own(e.Restore.Launched, e.LedgerID, false)
		}
	}
	return v
}

func absent(ids ...string) func(*rowsView) {
	return func(v *rowsView) {
		for _, id := range ids {
			v.byID[id] = rowSight{state: rowAbsent}
		}
	}
}

// show writes a decision as the tables below do.
func (m match) show() string {
	s := m.kind.String()
	if m.row != "" {
		s += " " + m.row
	}
	if m.kind == matchEnrol && m.inherited != "" {
		s += " from " + m.inherited
	}
	return s
}

const goneID = "claude-20260101T000000Z-000001"

// TestPlanMatches is the table of what is a session, and whose. Each rule stands with its
// evidence, and with each piece of it taken away.
func TestPlanMatches(t *testing.T) {
	unreadable := func(c *candidate) { c.unread, c.carries = "permission denied", carriedEnv{} }
	attempt := func(a string) func(*candidate) { return func(c *candidate) { c.carries.attempt = a } }
	inServer := func(socket string, server int) func(*candidate) {
		return func(c *candidate) {
			c.muxes = append(c.muxes, muxSight{kind: MuxTmux, socket: socket, process: valueProcess(server)})
		}
	}
	inPane := func(pane string) func(*candidate) { return func(c *candidate) { c.carries.pane = pane } }
	damaged := func(ids ...string) func(*rowsView) {
		return func(v *rowsView) {
			for _, id := range ids {
				v.byID[id] = rowSight{state: rowDamaged, err: ErrDamaged}
			}
		}
	}
	tests := []struct {
		name string
		cs   []candidate
		rows rowsView
		off  string
		want []string
	}{
		{"a process without a row", []candidate{cand(10, "claude", "")}, testView(), "", []string{"enrol"}},
		{"discovery is off", []candidate{cand(10, "claude", "")}, testView(), "container", []string{"off"}},
		{"a process with a row", []candidate{cand(10, "claude", "")}, testView(testRow("x", hasProcess(10))), "", []string{"known x"}},
		{"the same with discovery off", []candidate{cand(10, "claude", "")}, testView(testRow("x", hasProcess(10))), "container", []string{"known x"}},
		{"the row ended, the process lives on", []candidate{cand(10, "claude", "")},
			testView(testRow("x", hasProcess(10), func(e *Entry) { e.Phase = PhaseFinished })), "", []string{"known x"}},
		{"the process that a restore launched", []candidate{cand(10, "claude", "x")},
			testView(testRow("x", inOp(OpRestore, "a"), func(e *Entry) { e.Restore = &Restore{Launched: valueProcess(10)} })), "", []string{"known x"}},
		{"another process under the row's pid", []candidate{cand(10, "claude", "")},
			testView(testRow("x", func(e *Entry) { e.PID, e.PIDStartTicks = 10, new(uint64) })), "", []string{"enrol"}},
		{"the row is of another boot", []candidate{cand(10, "claude", "")},
			testView(testRow("x", hasProcess(10), func(e *Entry) { e.BootID = "before" })), "", []string{"enrol"}},

		{"environment unreadable", []candidate{tweak(cand(10, "claude", ""), unreadable)}, testView(), "", []string{"unverifiable"}},
		{"environment unreadable, with a row", []candidate{tweak(cand(10, "claude", ""), unreadable)},
			testView(testRow("x", hasProcess(10))), "", []string{"known x"}},
		{"a child of an unreadable agent", []candidate{tweak(cand(10, "claude", ""), unreadable), cand(11, "codex", "", 10)},
			testView(), "", []string{"unverifiable", "enrol"}},

		{"a fork that has not exec'ed", []candidate{cand(10, "claude", ""), tweak(cand(11, "claude", "", 10), func(c *candidate) { c.young = true })},
			testView(), "", []string{"enrol", "wait"}},
		{"what is below such a fork", []candidate{cand(10, "claude", ""), tweak(cand(11, "claude", "", 10), func(c *candidate) { c.young = true }), cand(12, "codex", "", 11, 10)},
			testView(), "", []string{"enrol", "wait", "wait"}},
		{"a script and its native build", []candidate{cand(10, "codex", ""), tweak(cand(11, "codex", "", 10), func(c *candidate) { c.continues = 10 })},
			testView(), "", []string{"enrol", "part"}},
		{"the native build has the row", []candidate{cand(10, "codex", ""), tweak(cand(11, "codex", "", 10), func(c *candidate) { c.continues = 10 })},
			testView(testRow("x", hasProcess(11))), "", []string{"known x", "part x"}},
		{"both have one", []candidate{cand(10, "codex", ""), tweak(cand(11, "codex", "", 10), func(c *candidate) { c.continues = 10 })},
			testView(testRow("x", hasProcess(10)), testRow("y", hasProcess(11))), "", []string{"known x", "part x"}},

		{"launched, not bound yet", []candidate{cand(10, "claude", "x", 5)}, testView(testRow("x", launchedFrom(5))), "", []string{"bind x"}},
		{"the launcher became the agent", []candidate{cand(10, "claude", "x")}, testView(testRow("x", launchedFrom(10))), "", []string{"bind x"}},
		{"the launcher is elsewhere", []candidate{cand(10, "claude", "x", 5)}, testView(testRow("x", launchedFrom(6))), "", []string{"enrol from x"}},
		{"the launcher's pid is of another boot", []candidate{cand(10, "claude", "x", 5)},
			testView(testRow("x", launchedFrom(5), func(e *Entry) { e.BootID = "before" })), "", []string{"enrol from x"}},
		{"the launcher's pid is of another namespace", []candidate{cand(10, "claude", "x", 5)},
			testView(testRow("x", launchedFrom(5), func(e *Entry) { e.PIDNamespace = 7 })), "", []string{"enrol from x"}},
		{"the row has a process", []candidate{cand(10, "claude", "x", 5)}, testView(testRow("x", launchedFrom(5), hasProcess(8))), "", []string{"enrol from x"}},
		{"the row is of another runtime", []candidate{cand(10, "codex", "x", 5)}, testView(testRow("x", launchedFrom(5))), "", []string{"enrol from x"}},
		{"the row names no runtime", []candidate{cand(10, "codex", "x", 5)},
			testView(testRow("x", launchedFrom(5), func(e *Entry) { e.Runtime = "" })), "", []string{"bind x"}},
		{"the row's own tmux server is above", []candidate{tweak(cand(10, "claude", "x", 5), inServer("/sock/x", 5))}, testView(testRow("x")), "", []string{"bind x"}},
		{"behind another server", []candidate{tweak(cand(10, "claude", "x", 6, 5), inServer("/tmp/other", 6), inServer("/sock/x", 5))}, testView(testRow("x")), "", []string{"bind x"}},
		{"another tmux server is above", []candidate{tweak(cand(10, "claude", "x", 5), inServer("/sock/y", 5))}, testView(testRow("x")), "", []string{"enrol from x"}},
		{"another server behind the row's socket", []candidate{tweak(cand(10, "claude", "x", 5), inServer("/sock/x", 5))},
			testView(testRow("x", func(e *Entry) { e.PaneServer = valueProcess(4) })), "", []string{"enrol from x"}},
		{"the row's own pane", []candidate{tweak(cand(10, "claude", "x", 5), inServer("/tmp/person", 5), inPane("%3"))},
			testView(testRow("x", func(e *Entry) { e.PaneID, e.PaneServer = "%3", valueProcess(5) })), "", []string{"bind x"}},
		{"another pane of that server", []candidate{tweak(cand(10, "claude", "x", 5), inServer("/tmp/person", 5), inPane("%4"))},
			testView(testRow("x", func(e *Entry) { e.PaneID, e.PaneServer = "%3", valueProcess(5) })), "", []string{"enrol from x"}},
		{"the carrier that may write the row", []candidate{tweak(cand(10, "claude", "x"), func(c *candidate) { c.carries.own = "x" })}, testView(testRow("x")), "", []string{"bind x"}},
		{"a carrier of another row's mark", []candidate{tweak(cand(10, "claude", "x"), func(c *candidate) { c.carries.own = "y" })}, testView(testRow("x")), "", []string{"enrol from x"}},

		{"the attempt that creates the row", []candidate{tweak(cand(10, "claude", "x", 5), attempt("a"))}, testView(testRow("x", inOp(OpCreate, "a"))), "", []string{"bind x"}},
		{"another attempt", []candidate{tweak(cand(10, "claude", "x", 5), attempt("b"))}, testView(testRow("x", inOp(OpCreate, "a"), launchedFrom(5))), "", []string{"held x"}},
		{"no attempt, in the operation", []candidate{cand(10, "claude", "x", 5)}, testView(testRow("x", inOp(OpCreate, "a"), launchedFrom(5))), "", []string{"held x"}},
		{"another agent of the attempt", []candidate{tweak(cand(10, "codex", "x", 5), attempt("a"))}, testView(testRow("x", inOp(OpCreate, "a"))), "", []string{"held x"}},
		{"in a freeze", []candidate{cand(10, "codex", "x")}, testView(testRow("x", inOp(OpFreeze, "a"), hasProcess(8))), "", []string{"held x"}},
		{"in a handoff", []candidate{tweak(cand(10, "codex", "x"), attempt("a"))}, testView(testRow("x", inOp(OpHandoff, "a"), hasProcess(8))), "", []string{"held x"}},
		{"frozen", []candidate{cand(10, "claude", "x")}, testView(testRow("x", hasProcess(8), func(e *Entry) { e.Phase = PhaseFrozen })), "", []string{"held x"}},
		{"finished, and never had a process", []candidate{cand(10, "claude", "x", 5)},
			testView(testRow("x", launchedFrom(5), func(e *Entry) { e.Phase = PhaseFinished })), "", []string{"enrol from x"}},

		{"outermost carrier, and the same agent below it", []candidate{cand(10, "claude", "x", 5), cand(12, "claude", "x", 11, 10, 5), cand(13, "codex", "x", 12, 11, 10, 5)},
			testView(testRow("x", launchedFrom(5))), "", []string{"bind x", "enrol from x", "enrol from x"}},
		{"the outermost of the row's runtime, below another agent", []candidate{cand(10, "codex", "x", 5), cand(12, "claude", "x", 10, 5)},
			testView(testRow("x", launchedFrom(5))), "", []string{"enrol from x", "bind x"}},
		{"without a runtime the tree decides", []candidate{cand(10, "codex", "x", 5), cand(12, "claude", "x", 10, 5)},
			testView(testRow("x", launchedFrom(5), func(e *Entry) { e.Runtime = "" })), "", []string{"bind x", "enrol from x"}},
		{"two side by side: the older", []candidate{cand(10, "claude", "x", 5), cand(11, "claude", "x", 5)},
			testView(testRow("x", launchedFrom(5))), "", []string{"bind x", "enrol from x"}},
		{"below one that cannot be read", []candidate{tweak(cand(10, "claude", ""), unreadable), cand(11, "claude", "x", 10, 5)},
			testView(testRow("x", launchedFrom(5))), "", []string{"unverifiable", "wait"}},
		{"below an unreadable one that has another row", []candidate{tweak(cand(10, "claude", ""), unreadable), cand(11, "claude", "x", 10, 5)},
			testView(testRow("x", launchedFrom(5)), testRow("y", hasProcess(10))), "", []string{"known y", "bind x"}},
		{"below an unreadable one of another runtime", []candidate{tweak(cand(10, "codex", ""), unreadable), cand(11, "claude", "x", 10, 5)},
			testView(testRow("x", launchedFrom(5))), "", []string{"unverifiable", "bind x"}},

		{"the row is gone", []candidate{cand(10, "claude", goneID), cand(11, "claude", goneID, 10)}, tweak(testView(), absent(goneID)), "",
			[]string{"enrol " + goneID, "enrol from " + goneID}},
		{"the row is gone, an agent of another runtime is left", []candidate{cand(11, "codex", goneID, 10)}, tweak(testView(), absent(goneID)), "", []string{"enrol"}},
		{"the row is gone, its id tells no runtime", []candidate{cand(11, "codex", "x", 10)}, tweak(testView(), absent("x")), "", []string{"enrol x"}},
		{"the row is gone, and one above cannot be read", []candidate{tweak(cand(10, "claude", ""), unreadable), cand(11, "claude", goneID, 10)},
			tweak(testView(), absent(goneID)), "", []string{"unverifiable", "wait"}},
		{"the row is gone, discovery is off", []candidate{cand(10, "claude", goneID)}, tweak(testView(), absent(goneID)), "container", []string{"off " + goneID}},
		{"the row is damaged", []candidate{cand(10, "claude", "x")}, tweak(testView(), damaged("x")), "", []string{"refused x"}},
		{"the row cannot be looked up", []candidate{cand(10, "claude", "x")}, tweak(testView(), func(v *rowsView) { v.byID["x"] = rowSight{err: ErrUnknown} }), "", []string{"wait"}},
		{"no ledger id at all", []candidate{cand(10, "claude", "../x")}, testView(), "", []string{"enrol"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			plan := planMatches(test.cs, test.rows, test.off)
			var got []string
			for _, m := range plan {
				got = append(got, m.show())
				if m.reason == "" {
					switch m.kind {
					case matchHeld, matchWait, matchUnverifiable, matchRefused, matchOff:
						t.Errorf("process %d is left out without a reason", m.process.PID)
					}
				}
			}
			if strings.Join(got, ", ") != strings.Join(test.want, ", ") {
				t.Errorf("got  %q\nwant %q", got, test.want)
			}
		})
	}
}

func TestPlanWarnings(t *testing.T) {
	v := testView(testRow("x", hasProcess(12)))
	v.byID["d"] = rowSight{state: rowDamaged, err: ErrDamaged}
	v.own(valueProcess(13), "e", true)
	plan := planMatches([]candidate{cand(10, "claude", "d"), cand(11, "claude", ".."), cand(12, "claude", ""), cand(13, "claude", "")}, v, "")
	for i, want := range []string{`"d", which is damaged`, "no ledger id", "", `"e", which is damaged`} {
		if got := plan[i].warning; want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("process %d: warning %q, want %q", plan[i].process.PID, got, want)
		}
	}
}

func TestPlanParents(t *testing.T) {
	part := tweak(cand(11, "codex", "", 10, 1), func(c *candidate) { c.continues = 10 })
	plan := planMatches([]candidate{cand(10, "codex", "", 1), part, cand(12, "claude", "", 3, 11, 10, 1)}, testView(), "")
	for i, want := range []int{0, 0, 10} {
		if plan[i].parent != want {
			t.Errorf("process %d: parent %d, want %d", plan[i].process.PID, plan[i].parent, want)
		}
	}
	if plan[1].head != 10 {
		t.Errorf("head %d", plan[1].head)
	}
}

func TestIDRuntime(t *testing.T) {
	for id, want := range map[string]string{goneID: "claude", "cursor-agent-20260101T000000Z-123456": "cursor-agent", "claude": "", "claude-2026": ""} {
		if got := idRuntime(id); got != want {
			t.Errorf("%s: %q, want %q", id, got, want)
		}
	}
}

// String returns the kind in lower case.
func (k matchKind) String() string {
	names := [...]string{"none", "known", "bind", "enrol", "part", "held", "wait", "unverifiable", "refused", "off"}
	if k < 0 || int(k) >= len(names) {
		return "none"
	}
	return names[k]
}
