//go:build linux

package ledger

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// agent is a process that the registry takes for a session.
func agent(name, runtime string, env []string, children ...node) node {
	return node{Name: name, Args: []string{runtime, "--for", name}, Env: env, Children: children}
}

func shell(name string, env []string, children ...node) node {
	return node{Name: name, Args: []string{"/bin/bash"}, Env: env, Children: children}
}

// deepTree is shell > claude > shell > claude > codex, with services and wrappers beside.
func deepTree(env []string) node {
	service := node{Name: "service", Args: []string{"claude", "mcp", "serve"}, Env: env}
	wrapper := node{Name: "wrapper", Args: []string{"timeout", "60", "claude"}, Env: env}
	return shell("shell", env, agent("outer", "claude", env, service, wrapper,
		shell("inner shell", env, agent("inner", "claude", env, agent("other", "codex", env)))))
}

// rowsByID reads the ledger.
func rowsByID(t *testing.T, s *Store) map[string]Entry {
	t.Helper()
	rows := map[string]Entry{}
	for e, err := range s.Entries(context.Background()) {
		if err != nil {
			t.Fatal(err)
		}
		rows[e.LedgerID] = e
	}
	return rows
}

// writeLegacyRow writes a row as another implementation would have.
func writeLegacyRow(t *testing.T, s *Store, id string, members map[string]any) {
	t.Helper()
	row := map[string]any{"schemaVersion": 1, "ledgerId": id, "runtime": "claude"}
	for name, v := range members {
		row[name] = v
	}
	text, err := json.Marshal(row)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(s.path(dirSessions), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(s.path(dirSessions, id+rowExtension), text, 0o600); err != nil {
		t.Fatal(err)
	}
}

func mustEnrol(t *testing.T, s *Store, pid int, opts *EnrolOptions) Entry {
	t.Helper()
	e, adopted, err := s.Enrol(context.Background(), pid, opts)
	if err != nil || !adopted {
		t.Fatalf("enrol %d: adopted %v, %v", pid, adopted, err)
	}
	return e
}

// Case 33.
func TestEnrolTreeOneRowEachWithParents(t *testing.T) {
	s, home := treeStore(t)
	pids := growTree(t, deepTree(treeEnv(home)))
	ours, en := treePlan(t, s, pids)
	for _, name := range []string{"outer", "inner", "other"} {
		if got := ours[name].kind; got != matchEnrol {
			t.Errorf("%s: %v", name, got)
		}
	}
	if len(ours) != 3 {
		t.Errorf("sessions: %v", ours)
	}
	row := map[string]Entry{}
	for _, name := range []string{"outer", "inner", "other"} {
		e, adopted, err := en.adopt(context.Background(), en.at[pids[name]])
		if err != nil || !adopted {
			t.Fatalf("%s: %v %v", name, adopted, err)
		}
		row[name] = e
	}
	for name, parent := range map[string]string{"inner": "outer", "other": "inner"} {
		e := row[name]
		if e.ParentLedgerID != row[parent].LedgerID || e.Parent != e.ParentLedgerID || e.LaunchedBy != LaunchedByAgent {
			t.Errorf("%s: parent %q (%q), launched by %q, want %q", name, e.ParentLedgerID, e.Parent, e.LaunchedBy, row[parent].LedgerID)
		}
	}
	if e := row["outer"]; e.Parent != "" || e.ParentLedgerID != "" || e.LaunchedBy == LaunchedByAgent {
		t.Errorf("outer has a parent: %+v", e)
	}
	if e := row["other"]; e.Runtime != "codex" || e.PID != pids["other"] || e.EnrolledBy != EnrolledByDiscovery {
		t.Errorf("other: %+v", e)
	}
	ours, _ = treePlan(t, s, pids)
	for name, m := range ours {
		if m.kind != matchKnown || m.row != row[name].LedgerID {
			t.Errorf("second pass: %s: %s", name, m.show())
		}
	}
	if n := len(rowsByID(t, s)); n != 3 {
		t.Errorf("%d rows", n)
	}
	e, adopted, err := s.Enrol(context.Background(), pids["inner"], nil)
	if err != nil || adopted || e.LedgerID != row["inner"].LedgerID {
		t.Errorf("enrolled again: %v %v %v", e.LedgerID, adopted, err)
	}
}

func TestEnrolInnerEnrolsThoseAboveFirst(t *testing.T) {
	s, home := treeStore(t)
	pids := growTree(t, deepTree(treeEnv(home)))
	e := mustEnrol(t, s, pids["other"], &EnrolOptions{By: EnrolledByHook})
	rows := rowsByID(t, s)
	parent, ok := rows[e.ParentLedgerID]
	if !ok || parent.PID != pids["inner"] {
		t.Fatalf("parent %q: %+v", e.ParentLedgerID, parent)
	}
	if top := rows[parent.ParentLedgerID]; top.PID != pids["outer"] || len(rows) != 3 {
		t.Fatalf("%d rows, top %+v", len(rows), top)
	}
}

func TestEnrolRefusesWhatIsNoSession(t *testing.T) {
	s, home := treeStore(t)
	pids := growTree(t, deepTree(treeEnv(home)))
	for _, name := range []string{"shell", "inner shell", "service", "wrapper"} {
		if _, _, err := s.Enrol(context.Background(), pids[name], nil); !errors.Is(err, ErrNotFound) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, _, err := s.Enrol(context.Background(), 1<<30, nil); !errors.Is(err, ErrNotFound) {
		t.Errorf("no such process: %v", err)
	}
	mine := growTree(t, node{Name: "mine", Args: []string{"my-agent"}, Env: treeEnv(home)})["mine"]
	e := mustEnrol(t, s, mine, &EnrolOptions{Runtime: "mine"})
	if e.Runtime != "mine" || e.PID != mine || !strings.HasPrefix(e.LedgerID, "mine-") {
		t.Errorf("declared: %+v", e)
	}
}

func TestEnrolBindsTheOutermostCarrier(t *testing.T) {
	s, home := treeStore(t)
	const id = "claude-20260101T000000Z-000042"
	pids := growTree(t, shell("shell", treeEnv(home), agent("outer", "claude", treeEnv(home, envID+"="+id),
		agent("inner", "claude", treeEnv(home, envID+"="+id), agent("other", "codex", treeEnv(home, envID+"="+id))))))
	writeLegacyRow(t, s, id, map[string]any{"launcherPid": pids["shell"], "launchedBy": "user", "cwd": "/elsewhere"})

	e := mustEnrol(t, s, pids["other"], nil)
	rows := rowsByID(t, s)
	outer := rows[id]
	if outer.PID != pids["outer"] || outer.PIDStartTicks == nil || outer.Phase != PhaseLive {
		t.Fatalf("outer: %+v", outer)
	}
	if outer.LaunchedBy != LaunchedByUser || outer.Cwd != "/elsewhere" || outer.RepoRoot != "" {
		t.Errorf("what the launcher wrote was overwritten: %+v", outer)
	}
	if outer.CPUTicks == nil || outer.ProcessDescribedAt.IsZero() || outer.Cgroup == "" {
		t.Errorf("what was blank was not filled in: %+v", outer)
	}
	if inner := rows[e.ParentLedgerID]; inner.PID != pids["inner"] || inner.ParentLedgerID != id || len(rows) != 3 {
		t.Errorf("%d rows; inner: %+v", len(rows), inner)
	}
}

func TestEnrolBindsTheAttemptOfABirth(t *testing.T) {
	s, home := treeStore(t)
	self, err := Self()
	if err != nil {
		t.Fatal(err)
	}
	birth, err := s.Create(context.Background(), Entry{Runtime: "claude"}, BeginCreate(self))
	if err != nil {
		t.Fatal(err)
	}
	carrying := treeEnv(home, envID+"="+birth.LedgerID, envAttempt+"="+birth.Lease.Attempt)
	pids := growTree(t, shell("gate", carrying, agent("agent", "claude", carrying), agent("helper", "codex", carrying)))

	if _, _, err := s.Enrol(context.Background(), pids["helper"], nil); !errors.Is(err, ErrLeaseHeld) {
		t.Errorf("another agent in the operation: %v", err)
	}
	e := mustEnrol(t, s, pids["agent"], nil)
	if e.LedgerID != birth.LedgerID || e.PID != pids["agent"] || e.Lease != nil {
		t.Fatalf("%+v", e)
	}
	h := mustEnrol(t, s, pids["helper"], nil) // the operation is over
	if h.ParentLedgerID != birth.LedgerID || h.LaunchedBy != LaunchedByAgent {
		t.Errorf("helper: %+v", h)
	}
}

func TestEnrolUnderTheIDThatIsCarried(t *testing.T) {
	s, home := treeStore(t)
	carrying := treeEnv(home, envID+"="+goneID)
	pids := growTree(t, agent("outer", "claude", carrying, agent("inner", "claude", carrying)))
	inner := mustEnrol(t, s, pids["inner"], nil)
	if inner.ParentLedgerID != goneID {
		t.Errorf("inner: %+v", inner)
	}
	if outer, err := s.Get(context.Background(), goneID); err != nil || outer.PID != pids["outer"] {
		t.Errorf("outer: %+v, %v", outer, err)
	}
}

func TestEnrolRefusesTheCarrierOfADamagedRow(t *testing.T) {
	s, home := treeStore(t)
	pids := growTree(t, agent("agent", "claude", treeEnv(home, envID+"="+goneID)))
	writeLegacyRow(t, s, goneID, nil)
	path := s.path(dirSessions, goneID+rowExtension)
	if err := os.WriteFile(path, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	var damaged *DamagedError
	if _, _, err := s.Enrol(context.Background(), pids["agent"], nil); !errors.As(err, &damaged) || damaged.ID != goneID {
		t.Errorf("%v", err)
	}
	if text, err := os.ReadFile(path); err != nil || string(text) != "{" {
		t.Errorf("the damaged row was touched: %q %v", text, err)
	}
	ours, _ := treePlan(t, s, pids)
	if m := ours["agent"]; m.kind != matchRefused || m.warning == "" {
		t.Errorf("%s, warning %q", m.show(), m.warning)
	}
}

func TestEnrolLeavesFrozenRowsAndOperationsAlone(t *testing.T) {
	s, home := treeStore(t)
	ctx := context.Background()
	first := growTree(t, agent("agent", "claude", treeEnv(home)))
	row := mustEnrol(t, s, first["agent"], nil)
	self, err := Self()
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.Apply(ctx, row.LedgerID, BeginFreeze(self)); err != nil {
		t.Fatal(err)
	}
	carrier := growTree(t, agent("carrier", "claude", treeEnv(home, envID+"="+row.LedgerID)))
	if _, _, err := s.Enrol(ctx, carrier["carrier"], nil); !errors.Is(err, ErrLeaseHeld) {
		t.Errorf("in a freeze: %v", err)
	}
	frozen := "claude-20260101T000000Z-000077"
	writeLegacyRow(t, s, frozen, map[string]any{"phase": "frozen", "frozen": map[string]any{"at": "2026-01-01T00:00:00Z", "attempt": "a"}})
	other := growTree(t, agent("carrier", "claude", treeEnv(home, envID+"="+frozen)))
	if _, _, err := s.Enrol(ctx, other["carrier"], nil); !errors.Is(err, ErrIllegal) {
		t.Errorf("frozen: %v", err)
	}
	if n := len(rowsByID(t, s)); n != 2 {
		t.Errorf("%d rows", n)
	}
}

// A session that ended by its hook, and whose process lives on, keeps its row, filed away
// or not.
func TestEnrolKnowsTheProcessOfAFinishedRow(t *testing.T) {
	s, home := treeStore(t)
	ctx := context.Background()
	pids := growTree(t, agent("agent", "claude", treeEnv(home)))
	row := mustEnrol(t, s, pids["agent"], nil)
	if _, _, err := s.Apply(ctx, row.LedgerID, Finish(row.Process().Key(), "over")); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(s.path(dirFinished), 0o700); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		e, adopted, err := s.Enrol(ctx, pids["agent"], nil)
		if err != nil || adopted || e.LedgerID != row.LedgerID {
			t.Fatalf("%v %v %v", e.LedgerID, adopted, err)
		}
		ours, _ := treePlan(t, s, pids)
		if m := ours["agent"]; m.kind != matchKnown || m.row != row.LedgerID {
			t.Fatal(m.show())
		}
		name := row.LedgerID + rowExtension
		os.Rename(s.path(dirSessions, name), s.path(dirFinished, name))
	}
}

// Rows of other implementations record no namespaces, and their claims have none either.
func TestEnrolKnowsTheProcessOfALegacyRow(t *testing.T) {
	s, home := treeStore(t)
	pids := growTree(t, agent("agent", "claude", treeEnv(home)))
	p, err := s.procs.identify(pids["agent"])
	if err != nil {
		t.Fatal(err)
	}
	const id = "claude-20260101T000000Z-000099"
	writeLegacyRow(t, s, id, map[string]any{"pid": p.PID, "pidStartTicks": p.StartTicks, "bootId": p.BootID})
	e, adopted, err := s.Enrol(context.Background(), p.PID, nil)
	if err != nil || adopted || e.LedgerID != id {
		t.Fatalf("%q %v %v", e.LedgerID, adopted, err)
	}
}

// Case 35.
func TestEnrolAtTheSameTimeMakesOneRow(t *testing.T) {
	s, home := treeStore(t)
	pids := growTree(t, deepTree(treeEnv(home)))
	p := treePass(t, s)
	p.candidates()
	var group sync.WaitGroup
	ids := make([]string, 8)
	adopted := make([]bool, len(ids))
	for i := range ids {
		group.Go(func() {
			own, err := Open(s.Dir(), &Options{Home: home})
			if err != nil {
				t.Error(err)
				return
			}
			defer own.Close()
			e, new, err := own.Enrol(context.Background(), pids["other"], nil)
			if err != nil {
				t.Error(err)
			}
			ids[i], adopted[i] = e.LedgerID, new
		})
	}
	group.Wait()
	if n := len(slices.Compact(slices.Sorted(slices.Values(ids)))); n != 1 {
		t.Errorf("%d rows for one process: %q", n, ids)
	}
	if n := len(slices.DeleteFunc(adopted, func(b bool) bool { return !b })); n != 1 {
		t.Errorf("%d say that they adopted it", n)
	}
	if n := len(rowsByID(t, s)); n != 3 {
		t.Errorf("%d rows", n)
	}
}

func TestForkThatHasNotExecedWaits(t *testing.T) {
	s, home := treeStore(t)
	twin := node{Name: "child", Args: []string{"claude", "x"}, Env: treeEnv(home)}
	hook := shell("hook", treeEnv(home))
	twin.Children = []node{hook}
	pids := growTree(t, node{Name: "parent", Args: []string{"claude", "x"}, Env: treeEnv(home), Children: []node{twin}})
	p := treePass(t, s)
	child := func(p *pass) candidate { return p.candidates()[p.at[pids["child"]]] }
	born, _ := p.snap.Get(pids["child"])
	p.uptime = born.Start + uint64(p.sys.TicksPerSecond())
	if !child(p).young {
		t.Error("a second old, and not young")
	}
	p = treePass(t, s)
	p.uptime = born.Start + 6*uint64(p.sys.TicksPerSecond())
	if child(p).young {
		t.Error("six seconds old, and young")
	}
	if parent := p.candidates()[p.at[pids["parent"]]]; parent.young {
		t.Error("the parent is young")
	}
	// A hook speaks for the nearest session of its runtime above it.
	p, err := s.chainPass(pids["hook"])
	if err != nil {
		t.Fatal(err)
	}
	at := p.nearest("claude", pids["hook"])
	if at < 0 || p.candidates()[at].process.PID != pids["child"] {
		t.Errorf("nearest claude: %d", at)
	}
	if at := p.nearest("codex", pids["hook"]); at >= 0 {
		t.Errorf("nearest codex: %d", at)
	}
}

func TestScriptAndItsNativeBuildAreOneSession(t *testing.T) {
	s, home := treeStore(t)
	env := treeEnv(home)
	native := node{Name: "native", Args: []string{"/opt/codex/codex", "--full-auto"}, Env: env, Children: []node{agent("below", "claude", env)}}
	pids := growTree(t, node{Name: "script", Args: []string{"node", "/usr/lib/node_modules/@openai/codex/bin/codex.js", "--full-auto"}, Env: env, Children: []node{native}})
	e := mustEnrol(t, s, pids["native"], nil)
	if e.PID != pids["script"] || e.Runtime != "codex" {
		t.Errorf("%+v", e)
	}
	ours, _ := treePlan(t, s, pids)
	if m := ours["native"]; m.kind != matchPart || m.head != pids["script"] || m.row != e.LedgerID {
		t.Errorf("native: %s", m.show())
	}
	below := mustEnrol(t, s, pids["below"], nil)
	if below.ParentLedgerID != e.LedgerID || len(rowsByID(t, s)) != 2 {
		t.Errorf("below: %+v", below)
	}
}

// resolved is what a pass says of the process of a row.
func resolved(t *testing.T, s *Store, p *pass, row Entry) resolution {
	t.Helper()
	rows, err := s.rowsOf(p, []Entry{row})
	if err != nil {
		t.Fatal(err)
	}
	return p.resolve(s.procs, &row, rows)
}

func TestResolveStoppedZombieAndGone(t *testing.T) {
	s, home := treeStore(t)
	env := treeEnv(home)
	sleep := node{Name: "sleep", Args: []string{"claude", "1000"}, Exec: []string{"sleep"}, Env: env}
	idle := node{Name: "idle", Args: []string{"codex", "1000"}, Exec: []string{"sleep"}, Env: env}
	pids := growTree(t, node{Name: "root", Args: []string{"bash"}, Env: env, Leave: true, Children: []node{sleep, idle}})
	if err := pollUntil(func() bool { // until both run their own program
		ours, _ := treePlan(t, s, pids)
		return len(ours) == 2
	}); err != nil {
		t.Fatal(err)
	}
	row := mustEnrol(t, s, pids["sleep"], nil)
	resolve := func() resolution { return resolved(t, s, treePass(t, s), row) }
	if r := resolve(); r.verdict != Running || r.process.PID != pids["sleep"] {
		t.Fatalf("%+v", r)
	}
	if err := syscall.Kill(pids["sleep"], syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if err := pollUntil(func() bool { st, err := s.procs.sys.Stat(pids["sleep"]); return err == nil && st.State == 'T' }); err != nil {
		t.Fatal(err)
	}
	if r := resolve(); r.verdict != Running {
		t.Errorf("stopped: %+v", r)
	}
	if err := syscall.Kill(pids["sleep"], syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := pollUntil(func() bool { st, err := s.procs.sys.Stat(pids["sleep"]); return err == nil && st.State == 'Z' }); err != nil {
		t.Fatal(err)
	}
	if r := resolve(); r.verdict != Gone {
		t.Errorf("zombie: %+v", r)
	}
	ours, _ := treePlan(t, s, pids)
	if m, found := ours["sleep"]; found {
		t.Errorf("a zombie is a session: %s", m.show())
	}
	p := treePass(t, s)
	p.whole, p.partial = false, "for the test"
	if r := resolved(t, s, p, row); r.verdict != Unknown || !strings.Contains(r.why, "for the test") {
		t.Errorf("incomplete view: %+v", r)
	}
}

func TestResolveARowThatNeverHadAProcess(t *testing.T) {
	s, home := treeStore(t)
	const id = "claude-20260101T000000Z-000055"
	look := func(members map[string]any) resolution {
		t.Helper()
		writeLegacyRow(t, s, id, members)
		row, err := s.Get(context.Background(), id)
		if err != nil {
			t.Fatal(err)
		}
		p := treePass(t, s)
		if p.whole && os.Geteuid() != 0 {
			p.carrying(envID, id)
			p.bears.known = true // another user's agents may run beside the test
		}
		return resolved(t, s, p, row)
	}
	// A process of the machine that is just starting a program may be one that carries the
	// id: that is not known, until it has started.
	resolve := func(members map[string]any) (r resolution) {
		t.Helper()
		_ = pollUntil(func() bool {
			r = look(members)
			return !strings.Contains(r.why, "may carry")
		})
		return r
	}
	boot, err := s.procs.sys.BootID()
	if err != nil {
		t.Fatal(err)
	}
	started := time.Now().UTC().Format(time.RFC3339)
	pids := growTree(t, shell("launcher", treeEnv(home)))
	if r := resolve(map[string]any{"launcherPid": pids["launcher"], "bootId": boot, "startedAt": started}); r.verdict != Gone || r.launcher != Running {
		t.Errorf("launcher runs: %+v", r)
	}
	if r := resolve(map[string]any{"launcherPid": 1 << 29, "bootId": boot, "startedAt": started}); r.verdict != Gone || r.launcher != Gone {
		t.Errorf("launcher gone: %+v", r)
	}
	if r := resolve(map[string]any{"launcherPid": pids["launcher"], "bootId": "before", "startedAt": started}); r.launcher != Gone {
		t.Errorf("launcher of another boot: %+v", r)
	}
	if r := resolve(map[string]any{"bootId": boot, "startedAt": started}); r.launcher != Unknown {
		t.Errorf("no launcher: %+v", r)
	}
	if r := resolve(map[string]any{"launcherPid": pids["launcher"], "bootId": boot, "startedAt": "2020-01-01T00:00:00Z"}); r.launcher != Unknown {
		t.Errorf("the pid may be another's: %+v", r)
	}
	if r := resolve(map[string]any{"launcherPid": pids["launcher"], "startedAt": started}); r.launcher != Unknown {
		t.Errorf("the boot is not known: %+v", r)
	}
	carrying := treeEnv(home, envID+"="+id)
	waits := growTree(t, shell("waiting", carrying))
	if r := resolve(nil); r.verdict != Unknown || !strings.Contains(r.why, fmt.Sprint(waits["waiting"])) {
		t.Errorf("a shell carries its id: %+v", r)
	}
	runs := growTree(t, agent("agent", "claude", carrying))
	if r := resolve(nil); r.verdict != Running || r.process.PID != runs["agent"] {
		t.Errorf("an agent carries its id: %+v", r)
	}
}

// What carries the id of a session that is gone counts as that session only as long as it
// has no row of its own.
func TestResolveByACarrierWithoutARow(t *testing.T) {
	s, home := treeStore(t)
	first, stop := startTree(agent("agent", "claude", treeEnv(home)), true)
	row := mustEnrol(t, s, first["agent"], nil)
	carrying := treeEnv(home, envID+"="+row.LedgerID)
	pids := growTree(t, shell("root", carrying, agent("other", "codex", carrying), agent("left", "claude", carrying)))
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	resolve := func() resolution { return resolved(t, s, treePass(t, s), row) }
	if r := resolve(); r.verdict != Running || r.process.PID != pids["left"] {
		t.Errorf("a carrier of its runtime is left: %+v", r)
	}
	if e := mustEnrol(t, s, pids["left"], nil); e.LedgerID == row.LedgerID || e.ParentLedgerID != row.LedgerID {
		t.Errorf("enrolled as %+v", e)
	}
	if r := resolve(); r.verdict != Gone {
		t.Errorf("the carrier has a row: %+v", r)
	}
}

func TestAttemptCarriers(t *testing.T) {
	s, home := treeStore(t)
	env := treeEnv(home, envAttempt+"=feed")
	look := func() (Verdict, int, bool) {
		p := treePass(t, s)
		p.carrying(envAttempt, "")
		if os.Geteuid() != 0 {
			p.bears.known = p.whole
		}
		seen, outermost, gate := p.attempt("feed")
		return seen, outermost.PID, gate
	}
	// What is just starting a program may carry anything, until it has started.
	if err := pollUntil(func() bool { seen, _, _ := look(); return seen == Gone }); err != nil {
		t.Error("it is not known that none carries it")
	}
	gate := growTree(t, shell("gate", env))
	if seen, pid, atGate := look(); seen != Running || pid != gate["gate"] || !atGate {
		t.Errorf("at the gate: %v %d %v", seen, pid, atGate)
	}
	agents := growTree(t, agent("agent", "claude", env, agent("child", "claude", env)))
	if seen, pid, atGate := look(); seen != Running || atGate || pid != gate["gate"] && pid != agents["agent"] {
		t.Errorf("started: %v %d %v", seen, pid, atGate)
	}
}

// Case 34: in a user namespace of its own, a process cannot read the environment of those
// outside.
func TestEnvironmentUnreadableIsUnverifiable(t *testing.T) {
	s, home := treeStore(t)
	env := treeEnv(home)
	pids := growTree(t, shell("shell", env, agent("known", "claude", env), agent("unknown", "codex", env)))
	row := mustEnrol(t, s, pids["known"], nil)
	inNamespace(t, syscall.CLONE_NEWUSER, "userns", fmt.Sprintf("%s %d %d %s", row.LedgerID, pids["known"], pids["unknown"], s.Dir()))
	if n := len(rowsByID(t, s)); n != 1 {
		t.Errorf("%d rows", n)
	}
}

func init() {
	namespaced["userns"] = func(arg string) error {
		var id, dir string
		var known, unknown int
		if _, err := fmt.Sscan(arg, &id, &known, &unknown, &dir); err != nil {
			return err
		}
		ctx := context.Background()
		s, err := Open(dir, nil)
		if err != nil {
			return err
		}
		defer s.Close()
		p, err := s.newPass(ctx)
		if err != nil {
			return err
		}
		if p.noDiscovery == "" {
			return errors.New("discovery is on")
		}
		row, err := s.Get(ctx, id)
		if err != nil {
			return err
		}
		plan, err := s.plan(ctx, p, []Entry{row})
		if err != nil {
			return err
		}
		for _, m := range plan {
			switch {
			case m.process.PID == known && (m.kind != matchKnown || m.row != id):
				return fmt.Errorf("with a row: %s", m.show())
			case m.process.PID == unknown && (m.kind != matchUnverifiable || !strings.Contains(m.unread, "permission")):
				return fmt.Errorf("without a row: %s (%s)", m.show(), m.unread)
			}
		}
		rows, err := s.rowsOf(p, []Entry{row})
		if err != nil {
			return err
		}
		if r := p.resolve(s.procs, &row, rows); r.verdict != Running || r.process.PID != known {
			return fmt.Errorf("resolved: %+v", r)
		}
		if _, _, err := s.Enrol(ctx, unknown, nil); !errors.Is(err, ErrUnknown) {
			return fmt.Errorf("enrolled: %v", err)
		}
		return nil
	}
}

// Case 30.
func TestPidReuseInAPidNamespace(t *testing.T) {
	need(t, os.Geteuid() == 0, "root, to mount proc")
	inNamespace(t, syscall.CLONE_NEWPID|syscall.CLONE_NEWNS, "reuse", t.TempDir())
}

func init() {
	namespaced["reuse"] = func(dir string) error {
		if err := syscall.Mount("", "/", "", syscall.MS_PRIVATE|syscall.MS_REC, ""); err != nil {
			return err
		}
		if err := syscall.Mount("proc", "/proc", "proc", 0, ""); err != nil {
			return err
		}
		ctx := context.Background()
		s, err := Open(filepath.Join(dir, "ledger"), &Options{Home: dir})
		if err != nil {
			return err
		}
		defer s.Close()
		sleep, err := exec.LookPath("sleep")
		if err != nil {
			return err
		}
		start := func(args ...string) (*exec.Cmd, error) {
			cmd := &exec.Cmd{Path: sleep, Args: args, Env: treeEnv(dir)}
			return cmd, cmd.Start()
		}
		end := func(cmd *exec.Cmd) { cmd.Process.Kill(); cmd.Wait() }
		reuse := func(pid int, args ...string) (*exec.Cmd, error) {
			for range 1000 {
				// The runtime's own threads may take the number: try again.
				if err := os.WriteFile("/proc/sys/kernel/ns_last_pid", fmt.Append(nil, pid-1), 0); err != nil {
					return nil, err
				}
				cmd, err := start(args...)
				if err != nil || cmd.Process.Pid == pid {
					return cmd, err
				}
				end(cmd)
			}
			return nil, errors.New("the pid was not used again")
		}
		first, err := start("claude", "1000")
		if err != nil {
			return err
		}
		pid := first.Process.Pid
		row, adopted, err := s.Enrol(ctx, pid, nil)
		if err != nil || !adopted {
			return fmt.Errorf("first: %v", err)
		}
		end(first)
		time.Sleep(30 * time.Millisecond) // three clock ticks: the next one's start differs

		stranger, err := reuse(pid, "sleep", "1000")
		if err != nil {
			return err
		}
		if _, _, err := s.Enrol(ctx, pid, nil); !errors.Is(err, ErrNotFound) {
			return fmt.Errorf("a stranger under the pid: %v", err)
		}
		if err := isGoneRow(s, row); err != nil {
			return err
		}
		err = s.procs.sys.Signal(pid, *row.PIDStartTicks, syscall.SIGKILL)
		if err == nil || s.procs.sys.Signal(pid, *row.PIDStartTicks, 0) == nil {
			return errors.New("the stranger was signalled")
		}
		if st, err := s.procs.sys.Stat(pid); err != nil || st.Gone() {
			return fmt.Errorf("the stranger is gone: %v", err)
		}
		end(stranger)
		time.Sleep(30 * time.Millisecond) // as above

		second, err := reuse(pid, "claude", "1000")
		if err != nil {
			return err
		}
		defer end(second)
		other, adopted, err := s.Enrol(ctx, pid, nil)
		if err != nil || !adopted || other.LedgerID == row.LedgerID || other.PID != row.PID {
			return fmt.Errorf("second: %+v %v %v", other, adopted, err)
		}
		return isGoneRow(s, row)
	}
}

func isGoneRow(s *Store, row Entry) error {
	p, err := s.newPass(context.Background())
	if err != nil {
		return err
	}
	rows, err := s.rowsOf(p, []Entry{row})
	if err != nil {
		return err
	}
	if r := p.resolve(s.procs, &row, rows); r.verdict != Gone {
		return fmt.Errorf("the old row: %+v", r)
	}
	return nil
}

// A pid without start ticks, as another implementation may have recorded it, is gone only
// where nothing has the pid.
func TestResolveAPidWithoutStartTicks(t *testing.T) {
	s, _ := treeStore(t)
	pids := growTree(t, agent("agent", "claude", treeEnv(t.TempDir())))
	p := treePass(t, s)
	row := func(pid int, boot string) *Entry {
		return &Entry{LedgerID: "legacy", Runtime: "claude", Phase: PhaseLive, PID: pid, BootID: boot}
	}
	const free = 1 << 22 // above pid_max
	for _, tt := range []struct {
		name string
		row  *Entry
		want Verdict
	}{
		{"the pid is in use", row(pids["agent"], p.here.BootID), Unknown},
		{"the pid is free", row(free, p.here.BootID), Gone},
		{"another boot", row(pids["agent"], "another"), Gone},
		{"no boot", row(free, ""), Unknown},
	} {
		if got := p.resolve(s.procs, tt.row, &rowsView{}); got.verdict != tt.want {
			t.Errorf("%s: %s (%s), want %s", tt.name, got.verdict, got.why, tt.want)
		}
	}
}

// A runtime's name begins ids and so file names: what cannot is refused wherever a name
// comes in, before anything is written.
func TestRuntimeNamesArePlain(t *testing.T) {
	s, home, pids := hookTree(t, "claude", nil)
	for _, name := range []string{"x.lock", "a b", "../x", "a/b", ".x", "-x", "a..b", "x\x00", "ä", "x\n", strings.Repeat("x", maxID-len(idTail)+1)} {
		if _, err := NewID(name, time.Now()); !errors.Is(err, ErrInvalid) {
			t.Errorf("%.20q: id: %v", name, err)
		}
		if _, _, err := s.Enrol(t.Context(), pids["agent"], &EnrolOptions{Runtime: name}); !errors.Is(err, ErrInvalid) {
			t.Errorf("%.20q: enrol: %v", name, err)
		}
		if _, err := s.Create(t.Context(), Entry{LedgerID: "row", Runtime: name}, BeginCreate(self(t))); !errors.Is(err, ErrInvalid) {
			t.Errorf("%.20q: create: %v", name, err)
		}
		h := &Host{Store: s}
		opts := LaunchOptions{Runtime: name, Argv: []string{"false"}, Dir: home} // which, in the place of this test, fails it
		if _, err := h.Launch(t.Context(), opts); !errors.Is(err, ErrInvalid) {
			t.Errorf("%.20q: launch: %v", name, err)
		}
		if err := h.Exec(t.Context(), opts); !errors.Is(err, ErrInvalid) {
			t.Errorf("%.20q: exec: %v", name, err)
		}
		if r := deliver(t, s, name, pids["hook"], `{"event":"start","session_id":"c-1"}`); r.LedgerID != "" {
			t.Errorf("%.20q: hook: %+v", name, r)
		}
		if got := plainName(name); checkRuntime(got) != nil {
			t.Errorf("%.20q: a program's name becomes %q", name, got)
		}
	}
	if rows := rowsByID(t, s); len(rows) > 0 {
		t.Errorf("rows: %v", rows)
	}
	longest := strings.Repeat("x", maxID-len(idTail))
	if id, err := NewID(longest, time.Now()); err != nil || checkID(id) != nil {
		t.Errorf("%q: %v", id, err)
	}

	shims := t.TempDir()
	for _, name := range []string{"x.lock", "a b", "mine"} {
		if err := os.Symlink(os.Args[0], filepath.Join(shims, name)); err != nil {
			t.Fatal(err)
		}
	}
	if set, err := RuntimesFromShims(shims, os.Args[0]); err != nil || !slices.Equal(set.Names(), []string{"mine"}) {
		t.Errorf("from shims: %v, %v", set.Names(), err)
	}
	plain := filepath.Join(shims, "plain")
	if err := os.WriteFile(plain, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{t.TempDir(), "/nonexistent", plain} {
		if set, err := RuntimesFromShims(dir, os.Args[0]); !errors.Is(err, ErrInvalid) || set != nil {
			t.Errorf("from %q, which has no shims: %v", dir, err)
		}
	}
}

func TestEnrolRefusesWhatRunsOthers(t *testing.T) {
	s, _ := treeStore(t)
	env := treeEnv(t.TempDir())
	pids := growTree(t, node{Name: "bash", Args: []string{"-bash"}, Env: env, Children: []node{
		{Name: "tmux", Args: []string{"tmux", "new"}, Env: env}}})
	for _, pid := range []int{1, pids["bash"], pids["tmux"]} {
		if e, _, err := s.Enrol(t.Context(), pid, &EnrolOptions{Runtime: "claude"}); !errors.Is(err, ErrInvalid) {
			t.Errorf("process %d: %v %q", pid, err, e.LedgerID)
		}
	}
}
