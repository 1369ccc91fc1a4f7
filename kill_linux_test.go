package ledger

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// quick ends processes without the patience that people's agents get.
var quick = EndOptions{Hangup: 50 * time.Millisecond, Term: 50 * time.Millisecond, Kill: 20 * time.Second}

// agentRow enrols a shell that runs script as a claude session, and waits for its word.
func agentRow(t *testing.T, s *Store, dir, script string) (Entry, *exec.Cmd) {
	t.Helper()
	ready := filepath.Join(t.TempDir(), "ready")
	cmd := exec.Command("sh", "-c", script+"\n: > "+ready+"\nwhile :; do sleep 1; done")
	cmd.Args[0] = "claude"
	cmd.Dir = dir
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir()}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL); cmd.Wait() })
	await(t, "the agent is ready", func() bool { return fileExists(ready) })
	e, _, err := s.Enrol(context.Background(), cmd.Process.Pid, &EnrolOptions{Runtime: "claude"})
	if err != nil {
		t.Fatal(err)
	}
	return e, cmd
}

func fileExists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// Whoever is refused for a lease learns whose it is, and when it ends.
func TestALeaseInTheWayNamesItsHolder(t *testing.T) {
	clock := bootedClock{newClock()}
	s := newStore(t, &Options{Clock: clock})
	gone, cmd := startProcess(t)
	endProcess(cmd)
	away := self(t)
	away.HostID = "elsewhere"
	for i, tt := range []struct {
		owner ProcessID
		after time.Duration
		seen  Verdict
		stale Answer
		left  time.Duration
		says  string
	}{
		{self(t), time.Hour, Running, No, 0, ", which runs"},
		{gone, 20 * time.Second, Gone, No, 40 * time.Second, ", which is gone: the lease is held for another 40s"},
		{gone, time.Minute, Gone, Yes, 0, ", which has left it: the lease is stale"},
		{away, time.Hour, Unknown, Unsure, 0, ", of which it is not known whether it runs"},
	} {
		e, _ := enrolled(t, s, Entry{LedgerID: fmt.Sprint("row", i)})
		apply(t, s, e.LedgerID, IntendKill())
		apply(t, s, e.LedgerID, BeginKill(tt.owner))
		clock.advance(tt.after)
		_, _, err := s.Apply(t.Context(), e.LedgerID, BeginKill(self(t)))
		var held *LeaseHeldError
		if !errors.As(err, &held) || !errors.Is(err, ErrLeaseHeld) {
			t.Fatalf("%d: %v", i, err)
		}
		if held.Op != OpKill || !held.Owner.Same(tt.owner) || held.Seen != tt.seen || held.Stale != tt.stale || held.Left != tt.left {
			t.Errorf("%d: %+v", i, held)
		}
		if text := fmt.Sprintf("kill is in flight, by process %d%s", tt.owner.PID, tt.says); !strings.HasSuffix(err.Error(), text) {
			t.Errorf("%d: %v", i, err)
		}
		_, _, err = s.Apply(t.Context(), e.LedgerID, TakeOver(self(t)))
		if tt.stale != Yes && !errors.As(err, &held) {
			t.Errorf("%d: taken over: %v", i, err)
		}
	}
}

func TestKillEndsEvenAnAgentThatIgnoresSignals(t *testing.T) {
	for name, script := range map[string]string{
		"plain":                 "",
		"ignores HUP and TERM":  "trap '' HUP TERM",
		"ignores all but KILL":  "trap '' HUP TERM INT QUIT USR1 USR2",
		"is stopped while told": "",
	} {
		t.Run(name, func(t *testing.T) {
			s := newStore(t, nil)
			e, cmd := agentRow(t, s, t.TempDir(), script)
			if strings.Contains(name, "stopped") {
				if err := cmd.Process.Signal(syscall.SIGSTOP); err != nil {
					t.Fatal(err)
				}
			}
			go cmd.Wait() // a zombie is gone for the ledger, but not for the test's own eyes
			done, err := (&Host{Store: s}).Kill(context.Background(), e.LedgerID, KillOptions{End: quick})
			if err != nil {
				t.Fatal(err)
			}
			if got := done.Entry; got.Phase != PhaseFinished || got.Lease != nil || got.FinishReason != "killed" || got.KillIntentAt.IsZero() {
				t.Errorf("%+v", got)
			}
			if v := s.procs.verdict(e.Process()); v != Gone {
				t.Errorf("its process is %s", v)
			}
		})
	}
}

// TestKillEndsWhatCarriesTheId has a child that left the agent's tree, and one that only
// sits in its folder: the first goes, the second is reported and stays.
func TestKillEndsWhatCarriesTheId(t *testing.T) {
	s := newStore(t, nil)
	dir := t.TempDir()
	id, err := NewID("claude", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	stray := startShell(t, dir, envID+"="+id)
	near := startShell(t, dir)
	agent := startShell(t, dir, envID+"="+id)
	p, err := s.procs.identify(agent.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	e, err := s.Create(context.Background(), Entry{LedgerID: id, Runtime: "claude", Cwd: dir}, Enrol(p, Location{}))
	if err != nil {
		t.Fatal(err)
	}
	done, err := (&Host{Store: s}).Kill(context.Background(), e.LedgerID, KillOptions{End: quick, Reason: "enough"})
	if err != nil || done.Entry.FinishReason != "enough" {
		t.Fatalf("%v %+v", err, done.Entry)
	}
	for name, cmd := range map[string]*exec.Cmd{"agent": agent, "stray": stray} {
		if err := cmd.Wait(); err == nil {
			t.Errorf("%s: it ended by itself", name)
		}
	}
	if st, err := s.procs.sys.Stat(near.Process.Pid); err != nil || st.Gone() {
		t.Errorf("a bystander was hit: %v", err)
	}
	if len(done.Near) != 1 || done.Near[0].PID != near.Process.Pid {
		t.Errorf("near %+v, want %d", done.Near, near.Process.Pid)
	}
}

// startShell starts a shell that waits.
func startShell(t *testing.T, dir string, env ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("sleep", "1000")
	cmd.Dir = dir
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH")}, env...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	await(t, "the program runs", func() bool {
		p, err := newTable("").sys.Chain(cmd.Process.Pid)
		if err != nil {
			return false
		}
		q, ok := p.Get(cmd.Process.Pid)
		return ok && len(q.Args) > 0 && q.Args[0] == "sleep"
	})
	return cmd
}

// TestKillNeverSignalsAStranger has a row whose pid was re-used: the stranger lives.
func TestKillNeverSignalsAStranger(t *testing.T) {
	s := newStore(t, nil)
	stranger := startShell(t, t.TempDir())
	p, err := s.procs.identify(stranger.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	old := p
	old.StartTicks--
	ticks := old.StartTicks
	putEntry(t, s, Entry{SchemaVersion: 1, LedgerID: "claude-1", Runtime: "claude", Phase: PhaseLive,
		HostID: old.HostID, BootID: old.BootID, PIDNamespace: old.PIDNamespace, PID: old.PID, PIDStartTicks: &ticks})
	done, err := (&Host{Store: s}).Kill(context.Background(), "claude-1", KillOptions{End: quick})
	if err != nil || done.Entry.Phase != PhaseFinished {
		t.Fatalf("%v %+v", err, done.Entry)
	}
	if st, err := s.procs.sys.Stat(stranger.Process.Pid); err != nil || st.Gone() {
		t.Errorf("the stranger is gone: %v", err)
	}
}

// putEntry writes a row as another program could have left it.
func putEntry(t *testing.T, s *Store, e Entry) {
	t.Helper()
	data, err := encodeEntry(&e)
	if err != nil {
		t.Fatal(err)
	}
	d, err := s.dir(dirSessions)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Replace("test", e.LedgerID+rowExtension, data, false); err != nil {
		t.Fatal(err)
	}
}

func TestKillRescuesFirst(t *testing.T) {
	s := newStore(t, nil)
	repo := gitRepo(t)
	e, cmd := agentRow(t, s, repo, "echo work > work.txt")
	go cmd.Wait()
	done, err := (&Host{Store: s}).Kill(context.Background(), e.LedgerID, KillOptions{End: quick})
	if err != nil {
		t.Fatal(err)
	}
	if got := done.Entry; got.RescueRef != "refs/rescued/"+e.LedgerID || len(got.RescuedPaths) != 1 || got.RescuedPaths[0] != "work.txt" {
		t.Errorf("%+v", got)
	}
	if out := gitIn(t, repo, "show", done.Entry.RescueRef+":work.txt"); out != "work\n" {
		t.Errorf("rescued %q", out)
	}
}

// gitRepo is a repository with one commit.
func gitRepo(t *testing.T) string {
	t.Helper()
	_, err := exec.LookPath("git")
	need(t, err == nil, "git")
	dir := t.TempDir()
	gitIn(t, dir, "init", "-q")
	gitIn(t, dir, "-c", "user.name=t", "-c", "user.email=t@t", "commit", "-q", "--allow-empty", "-m", "first")
	return dir
}

func gitIn(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("git %s: %v: %s", args, err, out)
	}
	return string(out)
}

func TestKillRespectsAnothersLease(t *testing.T) {
	ctx := context.Background()
	s := newStore(t, nil)
	e, cmd := agentRow(t, s, t.TempDir(), "")
	go cmd.Wait()
	owner := startShell(t, t.TempDir())
	self, err := s.procs.identify(owner.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.Apply(ctx, e.LedgerID, BeginFreeze(self)); err != nil {
		t.Fatal(err)
	}
	h := &Host{Store: s}
	_, err = h.Kill(ctx, e.LedgerID, KillOptions{End: quick})
	if !errors.Is(err, ErrLeaseHeld) {
		t.Fatalf("%v", err)
	}
	// The tombstone is set all the same: nothing restores this session.
	if now, err := s.Get(ctx, e.LedgerID); err != nil || now.KillIntentAt.IsZero() || s.procs.verdict(e.Process()) != Running {
		t.Fatalf("%v %+v", err, now)
	}
	done, err := h.Kill(ctx, e.LedgerID, KillOptions{End: quick, Force: true})
	if err != nil || done.Entry.Phase != PhaseFinished {
		t.Fatalf("%v %+v", err, done.Entry)
	}
}

// A row of another host or pid namespace cannot be ended from here. That is known before
// anything is written, so nothing is.
func TestKillOfWhatIsOutOfSightWritesNothing(t *testing.T) {
	ctx := context.Background()
	s := newStore(t, nil)
	me := self(t)
	ticks := uint64(1)
	for id, p := range map[string]ProcessID{
		"claude-1": {HostID: "another", BootID: "another"},
		"claude-2": {HostID: me.HostID, BootID: me.BootID, PIDNamespace: me.PIDNamespace + 1},
	} {
		putEntry(t, s, Entry{SchemaVersion: 1, LedgerID: id, Runtime: "claude", Phase: PhaseLive,
			HostID: p.HostID, BootID: p.BootID, PIDNamespace: p.PIDNamespace, PID: 1, PIDStartTicks: &ticks})
		before, err := s.Get(ctx, id)
		if err != nil {
			t.Fatal(err)
		}
		for _, force := range []bool{false, true} {
			_, err := (&Host{Store: s}).Kill(ctx, id, KillOptions{End: quick, Force: force})
			if !errors.Is(err, ErrUnknown) || errors.Is(err, ErrUnfinished) {
				t.Errorf("%s: %v", id, err)
			}
			if now, err := s.Get(ctx, id); err != nil || now.Revision != before.Revision || !now.KillIntentAt.IsZero() {
				t.Errorf("%s: %v %+v", id, err, now)
			}
		}
	}
}

// Where the agent has ended and that cannot be proven, the error says what was done, is not
// the one of "nothing was done", and another kill goes on.
func TestKillThatIsNotFinishedSaysWhatItDid(t *testing.T) {
	ctx := context.Background()
	s := newStore(t, nil)
	e, cmd := agentRow(t, s, t.TempDir(), "")
	go cmd.Wait()
	agentRow(t, s, t.TempDir(), "") // whose it is, a claim alone tells
	claims := s.path(dirClaims)
	if err := os.Rename(claims, claims+".away"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(claims, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	blind, err := Open(s.Dir(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer blind.Close()
	_, err = (&Host{Store: blind}).Kill(ctx, e.LedgerID, KillOptions{End: quick})
	var far *UnfinishedKillError
	if !errors.As(err, &far) || !errors.Is(err, ErrUnfinished) || !far.Ended || far.ID != e.LedgerID {
		t.Fatalf("%v", err)
	}
	if OutcomeOf(err) != OutcomeFailed {
		t.Errorf("it is reported as %s", OutcomeOf(err))
	}
	if err := errors.Join(os.Remove(claims), os.Rename(claims+".away", claims)); err != nil {
		t.Fatal(err)
	}
	now, err := s.Get(ctx, e.LedgerID)
	if err != nil || now.Phase != PhaseLive || now.Lease != nil || now.KillIntentAt.IsZero() || s.procs.verdict(e.Process()) != Gone {
		t.Fatalf("%v %+v", err, now)
	}
	done, err := (&Host{Store: s}).Kill(ctx, e.LedgerID, KillOptions{End: quick})
	if err != nil || done.Entry.Phase != PhaseFinished {
		t.Errorf("%v %+v", err, done.Entry)
	}
}

// A kill whose coordinator died is held for the grace, and then taken over by the next one
// without force; what is said of it agrees.
func TestKillTakesOverAKillWhoseOwnerIsGone(t *testing.T) {
	ctx := context.Background()
	clock := bootedClock{newClock()}
	s := newStore(t, &Options{Clock: clock})
	e, cmd := agentRow(t, s, t.TempDir(), "trap '' HUP TERM")
	go cmd.Wait()
	owner, dead := startProcess(t)
	endProcess(dead)
	apply(t, s, e.LedgerID, IntendKill())
	apply(t, s, e.LedgerID, BeginKill(owner))
	clock.advance(20 * time.Second)
	h := &Host{Store: s}
	says := func() string {
		t.Helper()
		sess, err := s.Session(ctx, e.LedgerID, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range sess.Actions() {
			if a.Action == ActionKill && a.Open {
				return a.Reason
			}
		}
		t.Fatal("no kill is open")
		return ""
	}

	_, err := h.Kill(ctx, e.LedgerID, KillOptions{End: quick})
	var held *LeaseHeldError
	if !errors.As(err, &held) || held.Left != 40*time.Second || s.procs.verdict(e.Process()) != Running {
		t.Fatalf("within the grace: %v", err)
	}
	if got := says(); !strings.Contains(got, "only force") {
		t.Errorf("within the grace: kill: %s", got)
	}
	clock.advance(40 * time.Second)
	if got := says(); !strings.Contains(got, "goes on") {
		t.Errorf("after it: kill: %s", got)
	}
	// A reconcile ends nobody, and names the way.
	await(t, "the plan is made", func() bool {
		did, err := h.Reconcile(ctx, e.LedgerID, ReconcileOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return len(did) == 1 && did[0].Action == "leave" && strings.Contains(did[0].Error, "to kill it again ends it")
	})
	done, err := h.Kill(ctx, e.LedgerID, KillOptions{End: quick})
	if err != nil || done.Entry.Phase != PhaseFinished || done.Entry.FinishReason != "killed" || s.procs.verdict(e.Process()) != Gone {
		t.Fatalf("after it: %v %+v", err, done.Entry)
	}
}

// What was left half done is settled on the way, and may end the session by itself.
func TestKillOfWhatSettlingEnds(t *testing.T) {
	ctx := context.Background()
	clock := bootedClock{newClock()}
	s := newStore(t, &Options{Clock: clock})
	owner, dead := startProcess(t)
	endProcess(dead)
	frozen, cmd := agentRow(t, s, t.TempDir(), "")
	apply(t, s, frozen.LedgerID, BeginFreeze(owner))
	endProcess(cmd)
	born, err := s.Create(ctx, Entry{Runtime: "claude"}, BeginCreate(owner))
	if err != nil {
		t.Fatal(err)
	}
	clock.advance(time.Hour)
	for _, id := range []string{frozen.LedgerID, born.LedgerID} {
		// A process of another test that is just starting a program makes the view incomplete.
		await(t, "it is over", func() bool {
			_, err := (&Host{Store: s}).Kill(ctx, id, KillOptions{End: quick})
			if err != nil && !errors.Is(err, ErrUnknown) && !errors.Is(err, ErrLeaseHeld) {
				t.Fatalf("%s: %v", id, err)
			}
			return err == nil
		})
	}
	if now, err := s.Get(ctx, frozen.LedgerID); err != nil || now.Phase != PhaseFinished {
		t.Errorf("%v %+v", err, now)
	}
	if _, err := s.Get(ctx, born.LedgerID); !errors.Is(err, ErrNotFound) {
		t.Errorf("the birth: %v", err)
	}
}

func TestKillOfWhatIsOver(t *testing.T) {
	ctx := context.Background()
	s := newStore(t, nil)
	e, cmd := agentRow(t, s, t.TempDir(), "")
	go cmd.Wait()
	h := &Host{Store: s}
	if _, err := h.Kill(ctx, e.LedgerID, KillOptions{End: quick}); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Kill(ctx, e.LedgerID, KillOptions{End: quick}); !errors.Is(err, ErrIllegal) {
		t.Errorf("again: %v", err)
	}
	if _, err := h.Kill(ctx, "claude-none", KillOptions{}); !errors.Is(err, ErrNotFound) {
		t.Errorf("unknown: %v", err)
	}
}

// A hosted session's own tmux server sits in its folder as well, and is nothing that was
// left alone. What a person started there is, in a window of that server or elsewhere.
func TestKillDoesNotReportTheSessionsOwnServer(t *testing.T) {
	b := newBed(t)
	t.Chdir(b.dir) // the server's folder is that of whoever starts it
	stranger := startShell(t, b.dir)
	e := b.launch(LaunchOptions{Runtime: "claude"})
	pane, err := exec.Command("tmux", "-S", e.Mux.Socket, "new-window", "-d", "-P", "-F", "#{pane_pid}", "-c", b.dir, "exec sleep 1000").Output()
	if err != nil {
		t.Fatal(err)
	}
	window, err := strconv.Atoi(strings.TrimSpace(string(pane)))
	if err != nil {
		t.Fatal(err)
	}
	for _, pid := range []int{window, e.PaneServer.PID} {
		await(t, "it is in the folder", func() bool {
			cwd, err := os.Readlink(fmt.Sprintf("/proc/%d/cwd", pid))
			return err == nil && cwd == e.Cwd
		})
	}
	done, err := b.h.Kill(t.Context(), e.LedgerID, KillOptions{End: quick})
	if err != nil {
		t.Fatal(err)
	}
	var near []int
	for _, p := range done.Near {
		near = append(near, p.PID)
	}
	want := []int{stranger.Process.Pid, window}
	slices.Sort(near)
	slices.Sort(want)
	if !slices.Equal(near, want) || b.s.procs.verdict(e.PaneServer) != Running {
		t.Errorf("left alone: %v, want %v without the server %d", near, want, e.PaneServer.PID)
	}
}

// What an agent forks while it is being killed ends with it.
func TestKillEndsWhatIsForkedMeanwhile(t *testing.T) {
	s := newStore(t, nil)
	dir := t.TempDir()
	for range 5 {
		id, err := NewID("claude", time.Now())
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command("sh", "-c", `trap '' HUP TERM; while :; do sleep 1000 & sleep 0.01; done`)
		cmd.Args[0], cmd.Dir = "claude", dir
		cmd.Env = []string{"PATH=" + os.Getenv("PATH"), envID + "=" + id}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		go cmd.Wait()
		carriers := func() (n int) {
			p, err := s.newPass(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			ids, _ := p.carrying(envID, id)
			return len(ids)
		}
		await(t, "it forks", func() bool { return carriers() > 3 })
		p, err := s.procs.identify(cmd.Process.Pid)
		if err != nil {
			t.Fatal(err)
		}
		e, err := s.Create(t.Context(), Entry{LedgerID: id, Runtime: "claude", Cwd: dir}, Enrol(p, Location{}))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := (&Host{Store: s}).Kill(t.Context(), e.LedgerID, KillOptions{End: quick}); err != nil {
			t.Error(err)
		}
		if n := carriers(); n > 0 {
			t.Errorf("%d processes are left", n)
		}
	}
}

// A kill from the session's own pane would end with it, half done: nothing is begun. One
// that is detached from the terminal is carried out.
func TestKillFromInsideThePane(t *testing.T) {
	b := newBed(t)
	e := b.launch(LaunchOptions{Runtime: "claude"})
	said := filepath.Join(b.home, "said")
	kill := build(t, ctlPackage) + " -dir " + b.s.root + " kill " + e.LedgerID
	b.say(e, "/spawn "+kill+" > "+said+" 2>&1; echo status $? >> "+said)
	await(t, "its answer", func() bool {
		text, _ := os.ReadFile(said)
		return strings.Contains(string(text), "status ")
	})
	if text := readFile(t, said); !strings.Contains(text, "status 5") || !strings.Contains(text, "setsid") {
		t.Errorf("%s", text)
	}
	if now := b.get(e.LedgerID); !now.KillIntentAt.IsZero() || now.Lease != nil || now.Phase != PhaseLive {
		t.Errorf("%+v", now)
	}
	if _, err := exec.LookPath("script"); err == nil { // a terminal below it ends with it too
		os.Remove(said)
		b.say(e, "/spawn script -qec '"+kill+"' /dev/null > "+said+" 2>&1; echo status $? >> "+said)
		await(t, "its answer", func() bool {
			text, _ := os.ReadFile(said)
			return strings.Contains(string(text), "status ")
		})
		if now := b.get(e.LedgerID); !now.KillIntentAt.IsZero() || now.Phase != PhaseLive {
			t.Errorf("from a terminal below: %+v, %s", now, readFile(t, said))
		}
	}
	b.say(e, "/spawn setsid "+kill)
	b.gone(e.Process())
	await(t, "the row's end", func() bool { return b.get(e.LedgerID).Phase == PhaseFinished })
}

// A nested agent with a row of its own survives the kill of the session around it, and so do
// its tools, which inherit that session's id.
func TestKillSparesTheToolsOfANestedAgent(t *testing.T) {
	s, home := treeStore(t)
	id := "claude-20260101T000000Z-000001"
	marked := append(treeEnv(home), envID+"="+id)
	pids := growTree(t, shell("shell", treeEnv(home),
		agent("agent", "claude", marked, shell("own tool", marked), agent("nested", "codex", marked, shell("tool", marked)))))
	mustEnrol(t, s, pids["nested"], nil)
	identify := func(name string) ProcessID {
		t.Helper()
		p, err := s.procs.identify(pids[name])
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	own, nested, tool := identify("own tool"), identify("nested"), identify("tool")
	if _, err := (&Host{Store: s}).Kill(t.Context(), id, KillOptions{End: quick}); err != nil {
		t.Fatal(err)
	}
	for p, want := range map[ProcessID]Verdict{own: Gone, nested: Running, tool: Running} {
		if got := s.procs.verdict(p); got != want {
			t.Errorf("process %d is %s, want %s", p.PID, got, want)
		}
	}
}

// An outer agent that reaps orphans, as pid 1 of a container does, is no agent between a
// killed session and what that left behind: it does not carry the session's id.
func TestKillEndsWhatAnOuterAgentReaps(t *testing.T) {
	s, home := treeStore(t)
	id := "codex-20260101T000000Z-000001"
	env := treeEnv(home)
	marked := append(slices.Clone(env), envID+"="+id)
	pids := growTree(t, agent("outer", "claude", env, shell("left", marked), agent("own", "codex", marked)))
	mustEnrol(t, s, pids["outer"], nil)
	mustEnrol(t, s, pids["own"], nil)
	verdicts := map[string]Verdict{"outer": Running, "left": Gone, "own": Gone}
	before := map[string]ProcessID{}
	for name := range verdicts {
		p, err := s.procs.identify(pids[name])
		if err != nil {
			t.Fatal(err)
		}
		before[name] = p
	}
	if _, err := (&Host{Store: s}).Kill(t.Context(), id, KillOptions{End: quick}); err != nil {
		t.Fatal(err)
	}
	for name, want := range verdicts {
		if got := s.procs.verdict(before[name]); got != want {
			t.Errorf("%s is %s, want %s", name, got, want)
		}
	}
}
