package ledger

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sessionledger/ledger/internal/runtimes"
)

// forgetHeartbeat takes a row's sign of life away, so that the next one shows.
func forgetHeartbeat(t *testing.T, s *Store, id string) Entry {
	t.Helper()
	e, err := s.Update(t.Context(), id, func(e *Entry) error { e.LastHeartbeatAt = time.Time{}; return nil })
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// While an operation is in flight its session's hooks are signs of life: they move neither
// the conversation nor a limit, end nothing, and leave the lease as it is.
func TestHookUnderAnOperationOfItsOwnRow(t *testing.T) {
	me := self(t)
	for name, begin := range map[string]func(s *Store, id string) Entry{
		"freeze":  func(s *Store, id string) Entry { return apply(t, s, id, BeginFreeze(me)) },
		"handoff": func(s *Store, id string) Entry { return apply(t, s, id, BeginHandoff(me, "codex")) },
		"kill": func(s *Store, id string) Entry {
			apply(t, s, id, IntendKill())
			return apply(t, s, id, BeginKill(me))
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, _, pids := hookTree(t, "claude", nil)
			say := func(id, rest string) HookResult {
				t.Helper()
				return deliver(t, s, "claude", pids["hook"], `{"session_id":"`+id+`","hook_event_name":`+rest+`}`)
			}
			say("c-1", `"SessionStart","source":"startup"`)
			id := single(t, s).LedgerID
			begun := begin(s, id)
			for _, word := range [][2]string{
				{"c-1", `"UserPromptSubmit"`}, {"c-1", `"Stop"`}, {"c-1", `"StopFailure","error":"rate_limit"`},
				{"c-2", `"UserPromptSubmit"`}, {"c-2", `"SessionStart","source":"clear"`},
				{"c-1", `"SessionEnd","reason":"logout"`}, {"c-2", `"Stop"`},
			} {
				rest := word[1]
				forgetHeartbeat(t, s, id)
				if r := say(word[0], rest); r.LedgerID != id || r.Finished || r.Enrolled {
					t.Errorf("%s: %+v", rest, r)
				}
				e := single(t, s)
				if e.SessionID != "c-1" || len(e.SessionIDs) > 0 || e.Limit != nil || e.Phase != PhaseLive || e.Epoch != begun.Epoch {
					t.Errorf("%s: %+v", rest, e)
				}
				if e.Lease == nil || e.Lease.Op != begun.Lease.Op || e.Lease.Nonce != begun.Lease.Nonce || !e.Lease.Owner.Same(me) {
					t.Errorf("%s: lease %+v, was %+v", rest, e.Lease, begun.Lease)
				}
				if e.LastHeartbeatAt.IsZero() {
					t.Errorf("%s: no sign of life", rest)
				}
			}
			if e := single(t, s); e.EndNoted == nil || e.EndNoted.Reason != "logged out" {
				t.Errorf("the end that was told: %+v", e.EndNoted)
			}
		})
	}
}

// A claim file that names another row gives that row no sign of life. The process's own
// row, which its environment names, has it.
func TestHookBesideAStaleClaim(t *testing.T) {
	id := "claude-20260101T000000Z-000001"
	s, home, pids := hookTree(t, "claude", []string{envID + "=" + id})
	deliver(t, s, "claude", pids["hook"], `{"hook_event_name":"SessionStart","session_id":"c-1"}`)
	other, _ := enrolled(t, s, Entry{Cwd: home, SessionID: "c-1-not"})
	own := forgetHeartbeat(t, s, id)
	claim := processClaim(s.local(own.Process()))
	putFile(t, s.path(dirClaims, claim.file()), other.LedgerID+"\n")
	for _, payload := range []string{
		`{"hook_event_name":"Stop"}`, `{"hook_event_name":"Notification","notification_type":"permission_prompt"}`,
		`{"hook_event_name":"StopFailure","error":"rate_limit"}`, `{"hook_event_name":"SessionEnd","reason":"logout"}`,
	} {
		if r := deliver(t, s, "claude", pids["hook"], payload); r.LedgerID != id {
			t.Errorf("%s: %+v", payload, r)
		}
		rows := rowsByID(t, s)
		if got := rows[other.LedgerID]; len(rows) != 2 || got.Revision != other.Revision {
			t.Fatalf("%s: %d rows, the other one %+v", payload, len(rows), got)
		}
	}
	if e := rowsByID(t, s)[id]; e.LastHeartbeatAt.IsZero() || e.FinishReason != "logged out" {
		t.Errorf("its own row: %+v", e)
	}
	putFile(t, s.path(dirClaims, claim.file()), id+"\n")
}

type tracedHook struct {
	Root, Payload string
	PID           int
}

var runTracedHook = inChild("run-traced-hook", func(arg tracedHook) error {
	s, err := Open(arg.Root, nil)
	if err != nil {
		return err
	}
	_, err = HandleHook(context.Background(), s, "claude", strings.NewReader(arg.Payload), HookOptions{PID: arg.PID, Wait: patience})
	return err
})

// A sign of life is not worth a wait for the disk: losing it with the machine's power loses
// nothing.
func TestHeartbeatsAreNotSynced(t *testing.T) {
	needStrace(t)
	s, _, pids := hookTree(t, "claude", nil)
	syncs := func(payload string) int {
		t.Helper()
		trace := filepath.Join(t.TempDir(), "trace")
		cmd := childCommand(t, runTracedHook, tracedHook{s.root, payload, pids["hook"]})
		cmd.Args = append([]string{"strace", "-f", "-qq", "-o", trace, "-e", "trace=fsync,fdatasync,sync,syncfs", cmd.Path}, cmd.Args[1:]...)
		cmd.Path, _ = exec.LookPath("strace")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", payload, err, out)
		}
		return strings.Count(readFile(t, trace), "sync")
	}
	if n := syncs(`{"hook_event_name":"SessionStart","session_id":"c-1"}`); n == 0 {
		t.Fatal("the first hook's row was not synced, or the trace shows nothing")
	}
	id := single(t, s).LedgerID
	beats := func(when string) {
		t.Helper()
		for _, payload := range []string{
			`{"hook_event_name":"UserPromptSubmit","session_id":"c-1"}`, `{"hook_event_name":"Stop"}`,
			`{"hook_event_name":"Notification","notification_type":"idle_prompt"}`, `{"hook_event_name":"SubagentStop","agent_id":"a"}`,
		} {
			forgetHeartbeat(t, s, id)
			if n := syncs(payload); n > 0 || single(t, s).LastHeartbeatAt.IsZero() {
				t.Errorf("%s: %s: %d syncs, heartbeat at %s", when, payload, n, single(t, s).LastHeartbeatAt)
			}
		}
	}
	beats("usually")
	apply(t, s, id, BeginFreeze(self(t)))
	beats("in an operation")
}

// endless is a payload without an end, which counts what is taken of it.
type endless struct{ taken int }

func (r *endless) Read(p []byte) (int, error) {
	if r.taken > 64*runtimes.MaxHook {
		return 0, io.EOF
	}
	for i := range p {
		p[i] = ' '
	}
	r.taken += len(p)
	return len(p), nil
}

func TestHookReadsNoMoreThanItTakes(t *testing.T) {
	s, _, pids := hookTree(t, "claude", nil)
	var payload endless
	_, err := HandleHook(t.Context(), s, "claude", &payload, HookOptions{PID: pids["hook"], Wait: patience})
	// One byte more tells that there is more.
	if !errors.Is(err, ErrInvalid) || payload.taken > runtimes.MaxHook+1 {
		t.Errorf("%v after %d bytes", err, payload.taken)
	}
}

// askedClock tells when it is asked for the time.
type askedClock struct {
	Clock
	mu    sync.Mutex
	asked func()
}

func (c *askedClock) Now() time.Time {
	c.mu.Lock()
	asked := c.asked
	c.mu.Unlock()
	if asked != nil {
		asked()
	}
	return c.Clock.Now()
}

func (c *askedClock) tell(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked = f
}

// A busy lock is tried once more after the first wait is over, and not for ever. The holder
// lets go once the second try asks for the time, as each look at the processes does.
func TestHookTriesABusyLockOnceMore(t *testing.T) {
	_, home, pids := hookTree(t, "claude", nil)
	clock := &askedClock{Clock: newClock()}
	s := newStore(t, &Options{Home: home, Clock: clock})
	const wait = 2 * oneLockWait
	handle := func(lock func(context.Context, string) (func(), error), name string, lets bool, payload string) (r HookResult, took time.Duration, second bool, err error) {
		t.Helper()
		unlock, err := lock(context.Background(), name)
		if err != nil {
			t.Fatal(err)
		}
		defer unlock()
		began := time.Now()
		clock.tell(func() {
			if lets && time.Since(began) >= wait*9/20 {
				second = true
				unlock()
			}
		})
		defer clock.tell(nil)
		r, err = HandleHook(t.Context(), s, "claude", strings.NewReader(payload), HookOptions{PID: pids["hook"], Wait: wait})
		return r, time.Since(began), second, err
	}
	p, err := s.procs.identify(pids["agent"])
	if err != nil {
		t.Fatal(err)
	}

	// Of a new session it is the lock of its process.
	r, took, second, err := handle(s.lockKey, processClaim(s.local(p)).file(), true, `{"hook_event_name":"SessionStart","session_id":"c-1"}`)
	if err != nil || !r.Enrolled || !second || took < wait*9/20 {
		t.Fatalf("new: let go in the second try (%v): %+v, %v after %v", second, r, err, took)
	}
	id := forgetHeartbeat(t, s, single(t, s).LedgerID).LedgerID
	r, took, second, err = handle(s.lockRow, id, true, `{"hook_event_name":"Stop"}`)
	if err != nil || r.LedgerID != id || !second || took < wait*9/20 || single(t, s).LastHeartbeatAt.IsZero() {
		t.Errorf("known: let go in the second try (%v): %+v, %v after %v", second, r, err, took)
	}
	// Two tries of half the wait each. A third would take a half more at least; a machine
	// that is loaded may take as long, but not each time.
	for range 10 {
		_, took, _, err = handle(s.lockRow, id, false, `{"hook_event_name":"Stop"}`)
		if !errors.Is(err, ErrBusy) || took < wait*9/10 {
			t.Fatalf("never let go: %v after %v", err, took)
		}
		if took < wait*29/20 {
			return
		}
	}
	t.Errorf("never let go: %v after %v", err, took)
}

// paneAgent starts a claude in a person's pane, with a child that stands for its hook's
// process. said are the pane, its pid, and the server's.
func (b *bed) paneAgent() (hook int, said []string, socket string) {
	b.t.Helper()
	socket = filepath.Join(b.home, "own")
	note, script := filepath.Join(b.home, "pid"), filepath.Join(b.home, "agent.sh")
	putFile(b.t, script, "sleep 1000 &\necho $! > "+note+"\nwait\n")
	out, err := exec.Command("tmux", "-S", socket, "-f", "/dev/null", "new-session", "-d", "-P", "-F", "#{pane_id} #{pane_pid} #{pid}",
		"-s", "mine", "-n", "place", "-c", b.dir, "exec bash -c 'exec -a claude bash "+script+"'").CombinedOutput()
	if err != nil {
		b.t.Fatalf("%v: %s", err, out)
	}
	b.t.Cleanup(func() { endServer(b.t, socket) })
	await(b.t, "the hook's process", func() bool {
		text, _ := os.ReadFile(note)
		if !strings.HasSuffix(string(text), "\n") {
			return false
		}
		hook = atoi(b.t, strings.TrimSpace(string(text)))
		args, _ := os.ReadFile("/proc/" + itoa(hook) + "/cmdline")
		return strings.HasPrefix(string(args), "sleep\x00")
	})
	return hook, strings.Fields(string(out)), socket
}

// An agent in a person's pane is recorded with it by its first hook.
func TestHookRecordsThePane(t *testing.T) {
	b := newBed(t)
	hook, said, socket := b.paneAgent()
	deliver(t, b.s, "claude", hook, `{"hook_event_name":"SessionStart","session_id":"c-1"}`)
	e := b.onlyRow()
	if e.EnrolledBy != EnrolledByHook || e.PID != atoi(t, said[1]) || e.SessionID != "c-1" {
		t.Fatalf("%+v", e)
	}
	if e.Mux.Kind != MuxTmux || e.Mux.Socket != socket || e.Mux.Target != "mine" || e.PaneID != said[0] || e.PaneServer.PID != atoi(t, said[2]) || e.Window != "place" {
		t.Errorf("%+v in %q of %d, window %q, want %q", e.Mux, e.PaneID, e.PaneServer.PID, e.Window, said)
	}
	if st := b.status(e.LedgerID); st.Mux != MuxDetached {
		t.Errorf("%+v", st)
	}
}

// The first word of a session that takes a lost one up says what was rescued of that.
func TestHookNoticeOfARescuedPredecessor(t *testing.T) {
	s, home, pids := hookTree(t, "claude", nil)
	repo := gitRepo(t)
	start := `{"hook_event_name":"SessionStart","source":"resume","session_id":"c-1"}`
	clean, work := "c-0", "c-1"
	lost := map[string]Entry{}
	for _, id := range []string{clean, work} {
		e, cmd := enrolled(t, s, Entry{Cwd: repo, RepoRoot: repo, SessionID: id})
		endProcess(cmd)
		if id == work {
			putFile(t, filepath.Join(repo, "work.txt"), "work")
		}
		if _, err := Rescue(t.Context(), s, e.LedgerID, RescueOptions{}); err != nil {
			t.Fatal(err)
		}
		lost[id] = e
	}
	// Of the one that had nothing there is nothing to say.
	env := treeEnv(home)
	beside := growTree(t, shell("shell", env, agent("beside", "claude", env, shell("hook", env))))
	if r := deliver(t, s, "claude", beside["hook"], strings.Replace(start, work, clean, 1)); !r.Enrolled || r.Notice != "" {
		t.Errorf("%+v", r)
	}
	want := "uncommitted work of " + lost[work].LedgerID + " was rescued: git cherry-pick -n refs/rescued/" + lost[work].LedgerID
	for range 2 { // SessionStart can come twice
		if r := deliver(t, s, "claude", pids["hook"], start); r.Notice != want || strings.ContainsRune(r.Notice, '\n') {
			t.Errorf("%+v, want notice %q", r, want)
		}
	}
	if r := deliver(t, s, "claude", pids["hook"], `{"hook_event_name":"Stop","session_id":"c-1"}`); r.Notice != "" {
		t.Errorf("at the end of a turn: %+v", r)
	}
	if out := gitIn(t, repo, "show", strings.Fields(want)[len(strings.Fields(want))-1]+":work.txt"); out != "work" {
		t.Errorf("rescued %q", out)
	}
}

// Where the agent goes to is observed; the folder that it was launched in stays.
func TestHookOfAChangedDirectoryLeavesTheLaunchFolder(t *testing.T) {
	s, home := treeStore(t)
	env, dir := treeEnv(home), t.TempDir()
	a := agent("agent", "claude", env, shell("hook", env))
	a.Dir = dir
	pids := growTree(t, shell("shell", env, a))
	elsewhere := t.TempDir()
	for _, payload := range []string{
		`{"hook_event_name":"SessionStart","session_id":"c-1","cwd":"` + elsewhere + `"}`,
		`{"hook_event_name":"CwdChanged","session_id":"c-1","cwd":"` + elsewhere + `","old_cwd":"` + dir + `","new_cwd":"` + elsewhere + `"}`,
		`{"hook_event_name":"CwdChanged","session_id":"c-2","old_cwd":"/","new_cwd":"` + elsewhere + `"}`,
	} {
		deliver(t, s, "claude", pids["hook"], payload)
		if e := single(t, s); e.Cwd != dir {
			t.Errorf("%s: %q", payload, e.Cwd)
		}
	}
}

// A native build that a script started is a part of the script's session: its hook, and
// that of the script itself, speak for one row.
func TestHookBelowANativeBuildSpeaksForItsScript(t *testing.T) {
	s, home := treeStore(t)
	env := treeEnv(home)
	pids := growTree(t, shell("shell", env, node{Name: "script", Args: []string{"node", "/x/@openai/codex/bin/codex.js", "-q"}, Env: env,
		Children: []node{{Name: "native", Args: []string{"/opt/codex", "-q"}, Env: env, Children: []node{shell("hook", env)}}}}))
	for i, payload := range []string{
		`{"hook_event_name":"SessionStart","session_id":"x-1"}`, `{"hook_event_name":"Stop","session_id":"x-1"}`,
		`{"hook_event_name":"UserPromptSubmit","session_id":"x-2"}`,
	} {
		r := deliver(t, s, "codex", pids["hook"], payload)
		if e := single(t, s); e.PID != pids["script"] || e.Runtime != "codex" || r.LedgerID != e.LedgerID || r.Enrolled != (i == 0) {
			t.Errorf("%s: %+v, %+v", payload, r, e)
		}
	}
	if e := single(t, s); e.SessionID != "x-2" || e.LastHeartbeatAt.IsZero() {
		t.Errorf("%+v", e)
	}
	// What names its process names the script.
	deliver(t, s, "codex", pids["hook"], `{"hook_event_name":"StopFailure","session_id":"x-2","error":"rate_limit"}`)
	if e := single(t, s); e.Limit == nil {
		t.Errorf("no limit: %+v", e)
	}
	if r := deliver(t, s, "codex", pids["hook"], `{"hook_event_name":"SessionEnd","session_id":"x-2","reason":"logout"}`); !r.Finished {
		t.Errorf("not finished: %+v", r)
	}
}

// The real command below a real agent, without a standard input: silent, status 0, and the
// row is what it was.
func TestHookCommandWithoutInputLeavesTheRowWhole(t *testing.T) {
	b := newBed(t)
	command := build(t, ctlPackage) + " -dir " + b.s.root + " hook claude"
	file := func(name string) string { return filepath.Join(b.home, name) }
	script := `printf '%s' '{"hook_event_name":"SessionStart","session_id":"c-1"}' | ` + command + ` > ` + file("out") + ` 2>&1
echo $? > ` + file("one") + `
until [ -e ` + file("go") + ` ]; do sleep 0.05; done
` + command + ` <&- >> ` + file("out") + ` 2>&1
echo $? > ` + file("two") + `
` + command + ` < /dev/null >> ` + file("out") + ` 2>&1
echo $? > ` + file("three") + `
exec sleep 1000`
	cmd := exec.Command("sh", "-c", script)
	cmd.Args[0] = "claude"
	started(t, cmd)
	done := func(name string) {
		t.Helper()
		await(t, "hook "+name, func() bool { text, _ := os.ReadFile(file(name)); return strings.HasSuffix(string(text), "\n") })
		if got := readFile(t, file(name)) + readFile(t, file("out")); got != "0\n" {
			t.Errorf("hook %s: status and output %q", name, got)
		}
	}
	done("one")
	e := b.onlyRow()
	if e.PID != cmd.Process.Pid || e.SessionID != "c-1" {
		t.Fatalf("%+v", e)
	}
	before := readFile(t, rowPath(b.s, e.LedgerID))
	putFile(t, file("go"), "")
	done("two")
	done("three")
	if after := readFile(t, rowPath(b.s, e.LedgerID)); after != before || len(rowsByID(t, b.s)) != 1 {
		t.Errorf("the row was\n%s\nand is\n%s", before, after)
	}
}

// The agents above that a nested agent's first hook enrols with it have heard nothing: the
// word, and the sign of life, are those of the one that the hook speaks for.
func TestFirstHookOfANestedAgentSpeaksForItAlone(t *testing.T) {
	s, home := treeStore(t)
	env := treeEnv(home)
	pids := growTree(t, shell("shell", env, agent("outer", "claude", env, shell("tool", env, agent("inner", "claude", env, shell("hook", env))))))
	r := deliver(t, s, "claude", pids["hook"], `{"hook_event_name":"Notification","notification_type":"permission_prompt","session_id":"c-1","model":"opus"}`)
	rows := rowsByID(t, s)
	inner := rows[r.LedgerID]
	outer := rows[inner.ParentLedgerID]
	if len(rows) != 2 || inner.PID != pids["inner"] || inner.SessionID != "c-1" || inner.LastHeartbeatAt.IsZero() || inner.Model != "opus" {
		t.Errorf("%d rows: %+v", len(rows), inner)
	}
	if outer.PID != pids["outer"] || outer.SessionID != "" || outer.Waiting != nil || !outer.LastHeartbeatAt.IsZero() || outer.Model != "" {
		t.Errorf("the outer one: %+v", outer)
	}
}
