package ledger

import (
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sessionledger/ledger/tmux"
)

const killSignal = syscall.SIGKILL

func itoa(n int) string { return strconv.Itoa(n) }

func TestLaunchHostsAnAgentBehindItsRow(t *testing.T) {
	b := newBed(t)
	for name, value := range map[string]string{
		"CLAUDECODE": "1", "CLAUDE_CODE_SESSION_ID": "the-parent's", "TMUX": "/tmp/elsewhere,1,0", "TMUX_PANE": "%7",
		"AGENT_LEDGER_OWN_ID": "another", "AGENT_LEDGER_ATTEMPT": "another", "AGENT_LEDGER_SHIMS": filepath.Join(b.home, "shims"),
	} {
		t.Setenv(name, value)
	}
	// A person's own configuration would end the session, keep dead panes and run programs.
	putFile(t, filepath.Join(b.home, ".tmux.conf"), "set -g destroy-unattached on\nset -g remain-on-exit on\n"+
		"new-session -d -s stray\nset -g default-command 'sleep 100'\nset -g history-limit 3\n")
	e := b.launch(LaunchOptions{Argv: []string{"claude", "--model", "a b"}, TaskID: "task", Window: "w", Name: "my session"})

	if e.Runtime != "claude" || e.EnrolledBy != EnrolledByShim || e.LauncherPID != os.Getpid() || e.Lease != nil ||
		e.TaskID != "task" || e.Window != "w" || e.RepoRoot != b.dir || e.Cwd != b.dir || e.TTY == "" || e.ProcessDescribedAt.IsZero() {
		t.Errorf("row: %+v", e)
	}
	if e.Mux.Kind != MuxTmux || e.Mux.Socket != b.s.path("sock", e.LedgerID) || e.Mux.Target != "my session" ||
		e.TmuxSession != "my session" || e.PaneID == "" || e.PaneServer.IsZero() {
		t.Errorf("location: %+v", e)
	}
	if got := b.agents(); len(got) != 1 || !got[0].Same(e.Process()) {
		t.Errorf("agents %v, recorded %v", got, e.Process())
	}
	env := environ(t, e.PID)
	if env[envID] != e.LedgerID || env[envAttempt] == "" || env[envAttempt] == "another" {
		t.Errorf("identity: %v", env)
	}
	for _, name := range []string{envOwnID, "CLAUDECODE", "CLAUDE_CODE_SESSION_ID"} {
		if v, ok := env[name]; ok {
			t.Errorf("%s=%s reached the agent", name, v)
		}
	}
	if env["TMUX_PANE"] != e.PaneID || env["AGENT_LEDGER_SHIMS"] == "" {
		t.Errorf("TMUX_PANE=%q AGENT_LEDGER_SHIMS=%q", env["TMUX_PANE"], env["AGENT_LEDGER_SHIMS"])
	}
	srv := tmux.Server{Socket: e.Mux.Socket}
	l, err := srv.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(l.Sessions) != 1 || len(l.Panes) != 1 || l.Panes[0].Ledger != e.LedgerID || l.Panes[0].Attempt != env[envAttempt] {
		t.Errorf("server: %+v", l)
	}
	show := func(args ...string) string {
		out, err := exec.Command("tmux", append([]string{"-S", e.Mux.Socket}, args...)...).Output()
		if err != nil {
			t.Fatalf("%v: %v", args, err)
		}
		return strings.TrimSpace(string(out))
	}
	for option, want := range map[string]string{"history-limit": "50000", "remain-on-exit": "off", "destroy-unattached": "off", "status": "off"} {
		if got := show("show-options", "-gv", option); got != want {
			t.Errorf("%s is %q, want %q", option, got, want)
		}
	}
	// A window that a person opens beside the agent is no part of the session.
	if got := show("show-environment", "-t", "=my session:"); strings.Contains(got, "AGENT_LEDGER_ID=") {
		t.Errorf("the session's environment: %s", got)
	}
	if st := b.status(e.LedgerID); st.State != LivenessDetached || st.Mux != MuxDetached {
		t.Errorf("status: %+v", st)
	}
	if gates, _ := filepath.Glob(b.s.path(dirGates, "*")); len(gates) > 0 {
		t.Errorf("gates are left: %v", gates)
	}
	b.say(e, "/exit")
	b.gone(e.Process())
	b.gone(e.PaneServer) // nothing stays behind a dead agent
}

// A command line that is longer than a message of tmux reaches the agent byte by byte, and
// nothing of it stays behind, nor of a launch that fails.
func TestLaunchOfACommandLongerThanTmuxTakes(t *testing.T) {
	b := newBed(t)
	odd := "it's \"$(touch x)\" `touch x` \\ #{pid};\n\t\x81\x82\x88\xff é"
	argv := []string{"claude", odd + strings.Repeat("prompt ", 100<<10/7), "", "-x", "'"}
	gates := func() []string {
		left, _ := filepath.Glob(b.s.path(dirGates, "*"))
		return left
	}
	during := 0
	b.h.step = func(step string) {
		if step != "stamped" {
			return
		}
		for _, path := range gates() {
			if info, err := os.Stat(path); err != nil || info.Mode() != 0o600 {
				t.Errorf("%s: %v %v", path, info, err)
			}
			during++
		}
	}
	e := b.launch(LaunchOptions{Argv: argv})
	cmdline, err := os.ReadFile("/proc/" + itoa(e.PID) + "/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	got := strings.Split(strings.TrimSuffix(string(cmdline), "\x00"), "\x00")
	if len(got) != len(argv) || filepath.Base(got[0]) != "claude" || !slices.Equal(got[1:], argv[1:]) {
		t.Errorf("%d arguments, the second begins with %.60q", len(got), got[1])
	}
	if left := gates(); during != 1 || len(left) > 0 {
		t.Errorf("%d files while it was started, left: %v", during, left)
	}
	h := &Host{Store: b.s, WrapServer: func([]string) []string { return []string{"/no/such/program"} }}
	if _, err := h.Launch(t.Context(), LaunchOptions{Argv: argv}); err == nil {
		t.Error("launched without a server")
	}
	if left := gates(); len(left) > 0 {
		t.Errorf("left by a launch that failed: %v", left)
	}
}

func TestLaunchOddNames(t *testing.T) {
	b := newBed(t)
	odd := filepath.Join(b.home, "a b\xff\n'$(touch x)#{pid}é;")
	if err := os.MkdirAll(odd, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"w-1", "w-10", "a b", "-x", "=y", "$1", "@2", "a.b:c", "é", "#(touch x)#{pid}", ";"} {
		t.Run(name, func(t *testing.T) {
			e := b.launch(LaunchOptions{Runtime: "codex", Dir: odd, Name: name, Window: name})
			if cwd, err := os.Readlink("/proc/" + itoa(e.PID) + "/cwd"); err != nil || cwd != odd || e.Cwd != odd {
				t.Errorf("runs in %q, recorded %q: %v", cwd, e.Cwd, err)
			}
			if st := b.status(e.LedgerID); st.Mux != MuxDetached || e.Window != name {
				t.Errorf("target %q, window %q: %+v", e.Mux.Target, e.Window, st)
			}
			endServer(t, e.Mux.Socket)
			b.gone(e.Process())
		})
	}
	if found, _ := filepath.Glob(filepath.Join(b.home, "*", "x")); len(found) > 0 {
		t.Errorf("a name was run: %v", found)
	}
}

func TestLaunchRefusesWhatCannotRunAndLeavesNothing(t *testing.T) {
	b := newBed(t)
	held := b.launch(LaunchOptions{Argv: []string{"claude", "--session-id", "11111111-2222-4333-8444-555555555555"},
		SessionID: "11111111-2222-4333-8444-555555555555"})
	if held.SessionID == "" {
		t.Errorf("the conversation that it was given is not recorded: %+v", held)
	}
	file := filepath.Join(b.home, "file")
	putFile(t, file, "")
	for name, tt := range map[string]struct {
		opts LaunchOptions
		err  error
	}{
		"nothing":           {LaunchOptions{}, ErrInvalid},
		"no program":        {LaunchOptions{Argv: []string{"no-such-agent"}}, ErrInvalid},
		"no runtime":        {LaunchOptions{Runtime: "no-such-agent"}, ErrInvalid},
		"folder gone":       {LaunchOptions{Runtime: "claude", Dir: filepath.Join(b.home, "gone")}, ErrInvalid},
		"folder relative":   {LaunchOptions{Runtime: "claude", Dir: "."}, ErrInvalid},
		"folder a file":     {LaunchOptions{Runtime: "claude", Dir: file}, ErrInvalid},
		"a service":         {LaunchOptions{Argv: []string{"claude", "mcp", "serve"}}, ErrInvalid},
		"NUL":               {LaunchOptions{Argv: []string{"claude", "a\x00b"}}, ErrInvalid},
		"conversation held": {LaunchOptions{Runtime: "claude", SessionID: held.SessionID}, ErrConversationHeld},
		"environment":       {LaunchOptions{Runtime: "claude", Env: []string{"A=\x00"}}, ErrInvalid},
	} {
		e, err := b.h.Launch(t.Context(), tt.opts)
		if !errors.Is(err, tt.err) || e.LedgerID != "" {
			t.Errorf("%s: %v, row %q", name, err, e.LedgerID)
		}
	}
	// What fails once it has begun.
	for name, h := range map[string]*Host{
		"server does not start": {Store: b.s, WrapServer: func([]string) []string { return []string{"false"} }},
		"carrier is not there":  {Store: b.s, Carrier: []string{"/no/such/carrier"}},
		"no server to talk to":  {Store: b.s, ServerConfig: "/dev/null", WrapServer: func(argv []string) []string { return []string{"true"} }},
	} {
		if e, err := h.Launch(t.Context(), LaunchOptions{Runtime: "claude", Dir: b.dir}); err == nil || e.LedgerID != "" {
			t.Errorf("%s: %v, row %q", name, err, e.LedgerID)
		}
	}
	if rows, damaged := listed(t, b.s); len(rows) != 1 || len(damaged) > 0 {
		t.Errorf("rows are left: %v", rows)
	}
	if got := b.agents(); len(got) != 1 {
		t.Errorf("agents: %v", got)
	}
}

func TestLaunchOfAnAgentThatEndsAtOnce(t *testing.T) {
	b := newBed(t)
	t.Setenv("LEDGERTEST_AGENT_EXIT", "instant:3")
	e, err := b.h.Launch(t.Context(), LaunchOptions{Runtime: "claude", Dir: b.dir, Wait: patience})
	if err == nil { // it was seen before it ended
		b.gone(e.Process())
	} else if !errors.Is(err, errEnded) {
		t.Fatal(err)
	}
	// It ran, so that its row stays: whether it left work is for the sweep to see.
	if st := b.status(e.LedgerID); st.State != LivenessOrphaned {
		t.Errorf("%+v", st)
	}
}

func TestLaunchThatIsKilledMeanwhileStartsNothing(t *testing.T) {
	for _, at := range []string{"bound", "opened", "started"} {
		t.Run(at, func(t *testing.T) { launchKilledAt(t, at) })
	}
}

func launchKilledAt(t *testing.T, at string) {
	b := newBed(t)
	b.h.step = func(step string) {
		if step == at {
			for id := range rowsByID(t, b.s) {
				apply(t, b.s, id, IntendKill())
			}
		}
	}
	e, err := b.h.Launch(t.Context(), LaunchOptions{Runtime: "claude", Dir: b.dir})
	if !errors.Is(err, ErrKillIntended) || e.IsOpen() {
		t.Errorf("%v, row %+v", err, e)
	}
	if got := b.agents(); len(got) > 0 {
		t.Errorf("agents: %v", got)
	}
	b.gone(e.Process())
}

func TestLaunchWithoutATerminalName(t *testing.T) {
	b := newBed(t)
	t.Setenv("TERM", "")
	os.Unsetenv("TERM")
	if env := environ(t, b.launch(LaunchOptions{Runtime: "claude"}).PID); env["TERM"] == "" {
		t.Error("no TERM in the pane")
	}
}

func TestLaunchUnderALongRoot(t *testing.T) {
	b := newBed(t)
	run := os.Getenv("XDG_RUNTIME_DIR")
	s := b.open(filepath.Join(b.home, strings.Repeat("long/", 20), "ledger"))
	h := &Host{Store: s}
	t.Setenv("XDG_RUNTIME_DIR", "")
	if e, err := h.Launch(t.Context(), LaunchOptions{Runtime: "claude", Dir: b.dir}); !errors.Is(err, ErrInvalid) || e.LedgerID != "" {
		t.Errorf("no runtime folder: %v, %q", err, e.LedgerID)
	}
	t.Setenv("XDG_RUNTIME_DIR", run)
	e, err := h.Launch(t.Context(), LaunchOptions{Runtime: "claude", Dir: b.dir, Wait: patience})
	if err != nil {
		t.Fatal(err)
	}
	defer endServer(t, e.Mux.Socket)
	if want := filepath.Join(run, "agent-sessions", e.LedgerID); e.Mux.Socket != want {
		t.Errorf("socket %q, want %q", e.Mux.Socket, want)
	}
	if rows := rowsByID(t, s); len(rows) != 1 {
		t.Errorf("%d rows", len(rows))
	}
	// What lies there of other ledgers is not this one's to reap.
	others := filepath.Join(run, "agent-sessions", goneID)
	l, err := net.Listen("unix", others)
	if err != nil {
		t.Fatal(err)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	l.Close()
	if _, err := h.Kill(t.Context(), e.LedgerID, KillOptions{}); err != nil {
		t.Fatal(err)
	}
	b.gone(e.PaneServer)
	rep, err := Reap(t.Context(), s, ReapOptions{})
	if err != nil || !rep.Complete || !slices.Equal(rep.Probed, []string{e.LedgerID}) {
		t.Errorf("%+v, %v", rep, err)
	}
	if exists(e.Mux.Socket) == nil || *exists(e.Mux.Socket) || !*exists(others) {
		t.Error("the socket was left, or another ledger's was taken")
	}
	if rep, err := Reap(t.Context(), s, ReapOptions{}); err != nil || !rep.Complete || len(rep.Probed) > 0 {
		t.Errorf("nothing to probe: %+v, %v", rep, err)
	}
}

// The agent's hooks are to speak to the ledger that launched it, whichever is the default.
func TestTheAgentIsToldItsLedger(t *testing.T) {
	b := newBed(t)
	s := b.open(filepath.Join(b.home, "own"))
	h := &Host{Store: s}
	if _, err := InstallHooks("claude", InstallOptions{Command: build(t, ctlPackage) + " hook claude"}); err != nil {
		t.Fatal(err)
	}
	e, err := h.Launch(t.Context(), LaunchOptions{Runtime: "claude", Dir: b.dir, Wait: patience})
	if err != nil {
		t.Fatal(err)
	}
	defer endServer(t, e.Mux.Socket)
	await(t, "the hook's word", func() bool {
		e, err := s.Get(t.Context(), e.LedgerID)
		return err == nil && e.SessionID != "" && e.SessionSource == fromHook
	})
	if rows := rowsByID(t, b.s); len(rows) > 0 {
		t.Errorf("in the default ledger: %v", rows)
	}
}

// crashLaunch is the argument of the child that launches and is killed.
type crashLaunch struct{ Root, Dir, Step string }

var launchAndDie = inChild("launch-and-die", func(arg crashLaunch) error {
	s, err := Open(arg.Root, nil)
	if err != nil {
		return err
	}
	h := &Host{Store: s, step: func(step string) {
		if step == arg.Step {
			syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
	}}
	_, err = h.Launch(context.Background(), LaunchOptions{Runtime: "claude", Dir: arg.Dir, Wait: patience})
	return err
})

// Case 29a, for the launcher.
func TestLauncherKilledAfterEachStep(t *testing.T) {
	b := newBed(t)
	for _, step := range []string{"born", "spawned", "stamped", "bound", "opened", "started"} {
		t.Run(step, func(t *testing.T) {
			root := filepath.Join(b.home, step)
			s := b.open(root)
			h := &Host{Store: s}
			c := startChild(t, launchAndDie, crashLaunch{root, b.dir, step})
			if err := c.Wait(); err == nil || !strings.Contains(err.Error(), "killed") {
				t.Fatalf("the launcher was not killed: %v %s", err, c.errs.String())
			}
			rows := rowsByID(t, s)
			if len(rows) != 1 {
				t.Fatalf("%d rows after the crash", len(rows))
			}
			var id, attempt string
			for id = range rows {
				if l := rows[id].Lease; l != nil {
					attempt = l.Attempt
				}
			}
			if _, err := h.Reconcile(t.Context(), "", ReconcileOptions{}); err != nil {
				t.Fatal(err)
			}
			if after := rowsByID(t, s); len(after) != 1 {
				t.Fatal("a fresh birth was settled before its time")
			}
			// After twice the grace: until a process that was just starting a program can be read.
			await(t, "the birth to be settled", func() bool {
				if _, err := h.Reconcile(t.Context(), "", ReconcileOptions{Grace: -1}); err != nil {
					t.Fatal(err)
				}
				after := rowsByID(t, s)
				return len(after) == 0 || after[id].Lease == nil
			})
			rows = rowsByID(t, s)
			switch step {
			case "born", "spawned", "stamped":
				if len(rows) != 0 {
					t.Errorf("rows: %+v", rows)
				}
				await(t, "nothing to carry the attempt", func() bool {
					p, err := s.newPass(t.Context())
					if err != nil {
						t.Fatal(err)
					}
					found, _ := p.carrying(envAttempt, attempt)
					return len(found) == 0
				})
				if _, err := os.Lstat(s.path(dirGates, attempt)); err == nil {
					t.Error("its gate is left")
				}
				if got := b.agents(); len(got) > 0 {
					t.Errorf("agents nobody knows of: %v", got)
				}
			case "bound":
				if e := rows[id]; len(rows) != 1 || s.procs.verdict(e.Process()) != Running || len(b.agents()) > 0 {
					t.Errorf("rows %+v, agents %v", rows, b.agents())
				}
				b.kill(rows[id].Process()) // it would give up by itself after a minute
			default:
				e := rows[id]
				await(t, "the agent", func() bool { return len(b.agents()) == 1 })
				if got := b.agents(); len(rows) != 1 || !got[0].Same(e.Process()) || !e.IsOpen() {
					t.Errorf("rows %+v, agents %v", rows, got)
				}
				endServer(t, e.Mux.Socket)
				b.gone(e.Process())
			}
			before := snapshotFiles(t, s.path(dirSessions))
			if did, err := h.Reconcile(t.Context(), "", ReconcileOptions{Grace: -1}); err != nil || len(did) > 0 {
				t.Errorf("reconciled again: %+v, %v", did, err)
			}
			if after := snapshotFiles(t, s.path(dirSessions)); !mapsEqual(before, after) {
				t.Error("a settled row was touched")
			}
		})
	}
}

func mapsEqual(a, b map[string]string) bool {
	if len(a) != len(b) {
		return false
	}
	for k, v := range a {
		if b[k] != v {
			return false
		}
	}
	return true
}

// Case 63c, for a launch: a tmux client that is given up on, and a server that runs its
// command later.
func TestCommandThatRunsLateStaysAtItsGate(t *testing.T) {
	b := newBed(t)
	var socket string
	var server tmux.ServerID
	b.h.WrapServer = func(argv []string) []string {
		socket = argv[slices.Index(argv, "-S")+1]
		// A server is there already, and stopped.
		if out, err := exec.Command("tmux", "-S", socket, "-f", "/dev/null", "new-session", "-d", "sleep 1000").CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
		l, err := (tmux.Server{Socket: socket}).List(context.Background())
		if err != nil {
			t.Error(err)
		}
		server = l.Server
		syscall.Kill(server.PID, syscall.SIGSTOP)
		return argv
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	e, err := b.h.Launch(ctx, LaunchOptions{Runtime: "claude", Dir: b.dir})
	syscall.Kill(server.PID, syscall.SIGCONT)
	if !errors.Is(err, tmux.ErrTimeout) || e.LedgerID != "" {
		t.Errorf("%v, row %q", err, e.LedgerID)
	}
	// The listing comes after the late command in the server's queue.
	l, err := (tmux.Server{Socket: socket}).List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(l.Panes) != 2 {
		t.Errorf("%d panes: the command did not run late", len(l.Panes))
	}
	if got := b.agents(); len(got) > 0 {
		t.Errorf("agents nobody knows of: %v", got)
	}
	if gates, _ := filepath.Glob(b.s.path(dirGates, "*")); len(gates) > 0 {
		t.Errorf("a gate is open: %v", gates)
	}
	if rows := rowsByID(t, b.s); len(rows) > 0 {
		t.Errorf("rows: %v", rows)
	}
}

// Behind its gate a carrier is the agent: who interrupts the launch then does not take that
// back, since the agent may have spoken to the ledger already.
func TestLaunchThatIsInterruptedBehindTheGate(t *testing.T) {
	b := newBed(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	b.h.step = func(step string) {
		if step == "opened" {
			cancel()
		}
	}
	e, err := b.h.Launch(ctx, LaunchOptions{Runtime: "claude", Dir: b.dir, Wait: patience})
	if err != nil {
		t.Fatal(err)
	}
	defer endServer(t, e.Mux.Socket)
	if now := b.get(e.LedgerID); now.Phase != PhaseLive || now.Lease != nil || b.s.procs.verdict(now.Process()) != Running {
		t.Errorf("%+v", now)
	}
}
