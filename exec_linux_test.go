package ledger

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sessionledger/ledger/ledgertest"
)

// direct is the argument of the child that becomes an agent.
type direct struct {
	Root string
	Argv []string
	Die  string // the step after which it is killed
	Bar  bool   // make it impossible to claim the process
}

var becomeAgent = inChild("become-agent", func(arg direct) error {
	s, err := Open(arg.Root, nil)
	if err != nil {
		return err
	}
	if arg.Bar {
		self, err := s.procs.self()
		if err != nil {
			return err
		}
		if err := os.MkdirAll(s.path(dirLocks, "k"+stripe(processClaim(s.local(self)).file())), 0o700); err != nil {
			return err
		}
	}
	os.Unsetenv(childVar)
	os.Unsetenv(argVar)
	h := &Host{Store: s, step: func(step string) {
		if step == arg.Die {
			syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
	}}
	return h.Exec(context.Background(), LaunchOptions{Argv: arg.Argv})
})

// become starts a child that becomes an agent in the project's folder, driven by pipes.
func (b *bed) become(arg direct) *ledgertest.Agent {
	b.t.Helper()
	if arg.Root == "" {
		arg.Root = b.s.root
	}
	cmd := childCommand(b.t, becomeAgent, arg)
	cmd.Dir = b.dir
	return ledgertest.Start(b.t, cmd)
}

func (b *bed) onlyRow() Entry {
	b.t.Helper()
	rows := rowsByID(b.t, b.s)
	if len(rows) != 1 {
		b.t.Fatalf("%d rows: %v", len(rows), rows)
	}
	for _, e := range rows {
		return e
	}
	panic("unreachable")
}

func TestExecBecomesTheAgent(t *testing.T) {
	b := newBed(t)
	t.Setenv("CLAUDECODE", "1")
	t.Setenv("TMUX", "/tmp/person,1,0") // direct stays in the person's terminal
	t.Setenv(envID, "no-such-row")
	t.Setenv(envOwnID, "no-such-row")
	a := b.become(direct{Argv: []string{"claude"}})
	a.Session()
	e := b.onlyRow()
	if e.PID != a.PID() || e.EnrolledBy != EnrolledByShim || e.Lease != nil || e.LauncherPID != a.PID() || e.ParentLedgerID != "" {
		t.Errorf("%+v", e)
	}
	env := environ(t, a.PID())
	if env[envID] != e.LedgerID || env[envAttempt] == "" || env["TMUX"] == "" || env["CLAUDECODE"] != "" || env[envOwnID] != "" {
		t.Errorf("environment %v", env)
	}
	if status := a.Close(); status != 0 {
		t.Errorf("exit status %d", status)
	}
}

func TestExecPassesStatusAndSignalsThrough(t *testing.T) {
	b := newBed(t)
	for name, tt := range map[string]struct {
		exit   string
		signal os.Signal
		want   int
	}{
		"status":     {exit: "start:7", want: 7},
		"at once":    {exit: "instant:9", want: 9},
		"TERM":       {signal: syscall.SIGTERM, want: 128 + 15},
		"KILL":       {signal: syscall.SIGKILL, want: -1},
		"HUP":        {signal: syscall.SIGHUP, want: 128 + 1},
		"plain exit": {exit: "start:0", want: 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("LEDGERTEST_AGENT_EXIT", tt.exit)
			if tt.exit == "" {
				os.Unsetenv("LEDGERTEST_AGENT_EXIT")
			}
			a := b.become(direct{Argv: []string{"codex"}})
			if tt.signal != nil {
				a.Session()
				a.Signal(tt.signal)
			}
			if got := a.Wait(); got != tt.want {
				t.Errorf("status %d, want %d\n%s", got, tt.want, a.Output())
			}
		})
	}
}

func TestExecRunsWithoutARecordWhereNoneCanBeWritten(t *testing.T) {
	b := newBed(t)
	for name, spoil := range map[string]func(root string){
		"no folder for rows":  func(root string) { putFile(t, filepath.Join(root, dirSessions), "") },
		"no folder for locks": func(root string) { putFile(t, filepath.Join(root, dirLocks), "") },
	} {
		t.Run(name, func(t *testing.T) {
			root := filepath.Join(b.home, "spoilt", strings.ReplaceAll(name, " ", "-"))
			if err := os.MkdirAll(root, 0o700); err != nil {
				t.Fatal(err)
			}
			spoil(root)
			t.Setenv(envID, "inherited-row")
			a := b.become(direct{Root: root, Argv: []string{"claude"}})
			a.Session()
			if env := environ(t, a.PID()); env[envID] != "" || env[envAttempt] != "" {
				t.Errorf("it carries another session's identity: %v", env)
			}
			a.Close()
		})
	}
	// A service is no session, and a process that has a row gets no second.
	t.Setenv(envID, "")
	os.Unsetenv(envID)
	a := b.become(direct{Argv: []string{"claude", "mcp"}})
	await(t, "the service", func() bool {
		args, _ := os.ReadFile("/proc/" + itoa(a.PID()) + "/cmdline")
		return strings.Contains(string(args), "claude\x00mcp")
	})
	a.Close()
	if rows := rowsByID(t, b.s); len(rows) > 0 {
		t.Errorf("rows %v", rows)
	}
}

func TestExecIsRefusedWhereItCouldNotBeBound(t *testing.T) {
	b := newBed(t)
	a := b.become(direct{Argv: []string{"claude"}, Bar: true})
	if status := a.Wait(); status != 1 || strings.Contains(a.Output(), "claude: session") {
		t.Errorf("status %d: %s", status, a.Output())
	}
	await(t, "the birth to be removed", func() bool {
		if _, err := b.h.Reconcile(t.Context(), "", ReconcileOptions{Grace: -1}); err != nil {
			t.Fatal(err)
		}
		return len(rowsByID(t, b.s)) == 0
	})
}

func TestExecOfAProgramThatCannotStartEndsItsRow(t *testing.T) {
	b := newBed(t)
	bad := filepath.Join(b.home, "bad")
	putFile(t, bad, "#!/no/such/interpreter\n")
	if err := os.Chmod(bad, 0o700); err != nil {
		t.Fatal(err)
	}
	if status := b.become(direct{Argv: []string{bad}}).Wait(); status != 1 {
		t.Errorf("status %d", status)
	}
	if e := b.onlyRow(); e.Phase != PhaseFinished || e.FinishReason == "" {
		t.Errorf("%+v", e)
	}
}

func TestDirectLauncherKilledAfterEachStep(t *testing.T) {
	b := newBed(t)
	for rows, step := range []string{"born", "bound"} { // of the first nothing is left
		if status := b.become(direct{Argv: []string{"claude"}, Die: step}).Wait(); status != -1 {
			t.Fatalf("%s: status %d", step, status)
		}
		await(t, step, func() bool {
			if _, err := b.h.Reconcile(t.Context(), "", ReconcileOptions{Grace: -1}); err != nil {
				t.Fatal(err)
			}
			return len(rowsByID(t, b.s)) == rows
		})
	}
	if st := b.status(b.onlyRow().LedgerID); st.State != LivenessOrphaned {
		t.Errorf("%+v", st)
	}
}

// A shim that is another link to this very program is passed over, however it is called.
func TestShimNeverFindsItself(t *testing.T) {
	b := newBed(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	agents := ledgertest.BuildAgent(t)
	shims, other := filepath.Join(b.home, "shims"), filepath.Join(b.home, "other shims")
	for _, dir := range []string{shims, other} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(self, filepath.Join(dir, "claude")); err != nil {
			t.Fatal(err)
		}
	}
	linked := filepath.Join(b.home, "linked")
	if err := os.Symlink(shims, linked); err != nil {
		t.Fatal(err)
	}
	for _, path := range [][]string{{shims, agents}, {linked, agents}, {other, shims, agents}, {"", ".", "relative", shims, agents}} {
		t.Setenv("PATH", strings.Join(path, ":"))
		if got, err := NextOnPath("claude", shims); err != nil || got != filepath.Join(agents, "claude") {
			t.Errorf("%q: %q, %v", path, got, err)
		}
	}
	t.Setenv("PATH", other+":"+shims)
	if got, err := NextOnPath("claude", shims); !errors.Is(err, exec.ErrNotFound) {
		t.Errorf("%q, %v", got, err)
	}
}

// sameSession compares rows of one process, whoever wrote them.
func sameSession(t *testing.T, what string, got, want Entry) {
	t.Helper()
	members := func(e Entry) map[string]any {
		text, err := encodeEntry(&e)
		if err != nil {
			t.Fatal(err)
		}
		var m map[string]any
		if err := json.Unmarshal(text, &m); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"ledgerId", "enrolledBy", "launcherPid", "revision", "epoch", "cpuTicks",
			"processDescribedAt", "lastHeartbeatAt", "lastActiveAt", "stateAt", "sessionSource"} {
			delete(m, name)
		}
		return m
	}
	if diff := cmp.Diff(members(want), members(got)); diff != "" {
		t.Errorf("%s wrote another row than the launcher (-launcher):\n%s", what, diff)
	}
}

// Cases 35 and 38, and "three points, one result".
func TestLauncherHookAndDiscoveryWriteTheSame(t *testing.T) {
	b := newBed(t)
	work := filepath.Join(b.home, "accounts", "work")
	t.Setenv("CLAUDE_CONFIG_DIR", filepath.Join(work, ".claude"))
	a := b.become(direct{Argv: []string{"claude"}})
	id := a.Session()
	a.Send("work")
	a.Expect("did work")
	hook := func(s *Store) Entry {
		a.Send("/spawn exec sleep 1000")
		pid := a.Expect("/spawn ")
		pid = pid[strings.LastIndexByte(pid, ' ')+1:]
		payload := `{"hook_event_name":"SessionStart","source":"startup","session_id":"` + id + `"}`
		r, err := HandleHook(t.Context(), s, "claude", strings.NewReader(payload), HookOptions{PID: atoi(t, pid), Wait: patience})
		syscall.Kill(atoi(t, pid), syscall.SIGKILL)
		if err != nil || r.LedgerID == "" {
			t.Fatalf("%+v, %v", r, err)
		}
		e, err := s.Get(t.Context(), r.LedgerID)
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	want := hook(b.s) // the launcher's row, once its agent has told its conversation
	if want.EnrolledBy != EnrolledByShim || want.SessionID != id || want.Account != "work" || want.Project != "project" ||
		want.TranscriptPath == "" || want.LaunchedBy == LaunchedByAgent {
		t.Errorf("launcher: %+v", want)
	}
	byHook := hook(b.open(filepath.Join(b.home, "hook")))
	if byHook.EnrolledBy != EnrolledByHook {
		t.Errorf("hook: %+v", byHook)
	}
	sameSession(t, "the hook", byHook, want)
	found, _, err := b.open(filepath.Join(b.home, "found")).Enrol(t.Context(), a.PID(), nil)
	if err != nil || found.EnrolledBy != EnrolledByDiscovery {
		t.Errorf("discovery: %v, %+v", err, found)
	}
	sameSession(t, "discovery", found, want)
}

// Case 29a: one process, three enrolment points at once, and the hooks of the real binary.
func TestEnrolledFromThreeSidesAtOnceIsOneRow(t *testing.T) {
	b := newBed(t)
	command := build(t, ctlPackage) + " -dir " + b.s.root + " hook claude"
	if _, err := InstallHooks("claude", InstallOptions{Command: command}); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		a := b.become(direct{Argv: []string{"claude"}})
		pid := a.PID()
		var found Entry
		await(t, "discovery", func() bool {
			e, _, err := b.s.Enrol(t.Context(), pid, nil)
			found = e
			return err == nil && e.LedgerID != ""
		})
		id := a.Session()
		await(t, "the hook's word", func() bool { return b.get(found.LedgerID).SessionID == id })
		var of []string
		for _, e := range rowsByID(t, b.s) {
			if e.PID == pid {
				of = append(of, e.LedgerID)
			}
		}
		if !slices.Equal(of, []string{found.LedgerID}) {
			t.Errorf("rows of the process: %v, found %v", of, found.LedgerID)
		}
		a.Send("/exit")
		a.Wait()
		await(t, "the end", func() bool { return b.get(found.LedgerID).FinishReason == "exited at the prompt" })
	}
}

// Exec that fails leaves the process where it was.
func TestExecThatFailsStaysInItsFolder(t *testing.T) {
	b := newBed(t)
	bad := filepath.Join(b.home, "bad")
	if err := os.WriteFile(bad, []byte{0x7f, 'E', 'L', 'F'}, 0o700); err != nil {
		t.Fatal(err)
	}
	before := t.TempDir()
	t.Chdir(before)
	err := b.h.Exec(t.Context(), LaunchOptions{Argv: []string{bad}, Dir: b.dir})
	if now, _ := os.Getwd(); err == nil || now != mustReal(t, before) {
		t.Errorf("%v, now in %s", err, now)
	}
}
