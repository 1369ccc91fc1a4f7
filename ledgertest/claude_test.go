package ledgertest_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sessionledger/ledger/internal/runtimes"
	"github.com/sessionledger/ledger/internal/transcript"
	"github.com/sessionledger/ledger/ledgertest"
)

func itoa(n int) string { return strconv.Itoa(n) }

func TestIDsOfOneProcess(t *testing.T) {
	home := ledgertest.Isolate(t)
	dir := project(t, home)
	events := hooked(t, home, "claude")
	a := start(t, dir, "claude")
	ids := []string{a.Session()}
	ask := func(line string) string {
		a.Send(line)
		word, _, _ := strings.Cut(line, " ")
		_, said, _ := strings.Cut(a.Expect("claude: "+word), word+" ")
		return said
	}
	a.Send("hello")
	a.Expect("did hello")
	ids = append(ids, ask("/clear"))
	a.Send("again")
	a.Expect("did again")
	ask("/compact")
	ids = append(ids, ask("/fork"))
	ask("/resume " + ids[0])
	ask("/stale")
	a.Close()

	want := []string{
		"start startup", "prompt", "stop", "end clear", "start clear", "prompt", "stop",
		"compact", "start compact", "compact", "start fork", "end resume", "start resume", "start resume", "end prompt_input_exit",
	}
	got := events()
	if diff := cmp.Diff(want, kinds(got)); diff != "" {
		t.Fatalf("events (-want +got):\n%s", diff)
	}
	for i, which := range []int{0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 2, 2, 0, -1, 0} {
		if which >= 0 && got[i].SessionID != ids[which] {
			t.Errorf("event %d, %s, has id %s, want %s", i, got[i].Kind, got[i].SessionID, ids[which])
		}
	}
	stale := got[13]
	if _, err := os.Lstat(stale.TranscriptPath); !os.IsNotExist(err) || stale.SessionID == ids[0] {
		t.Errorf("the stale id %s has a transcript: %v", stale.SessionID, err)
	}
	// The fork has the records of the one before it.
	s := spec(t, "claude")
	for i, title := range []string{"hello", "again", "again"} {
		path, err := s.Find(context.Background(), homes(), ids[i], dir)
		if err != nil {
			t.Fatal(err)
		}
		if info, err := transcript.Read(context.Background(), path, s.Format); err != nil || info.Title != title || info.ID != ids[i] {
			t.Errorf("transcript %d: %+v, %v; want title %q", i, info, err, title)
		}
	}
}

func TestQuirksOfVersions(t *testing.T) {
	tests := []struct {
		quirks string
		want   []string
		check  func(t *testing.T, old, now string, events []runtimes.HookEvent)
	}{
		{"", []string{"start resume", "end prompt_input_exit"}, func(t *testing.T, old, now string, _ []runtimes.HookEvent) {
			if now != old {
				t.Errorf("id became %s", now)
			}
		}},
		{"twice", []string{"start resume", "start resume", "end prompt_input_exit"}, func(t *testing.T, old, _ string, events []runtimes.HookEvent) {
			if events[0].SessionID != old || events[1].SessionID != old {
				t.Error("not the same id twice")
			}
		}},
		{"stale", []string{"start resume", "start resume", "end prompt_input_exit"}, func(t *testing.T, old, _ string, events []runtimes.HookEvent) {
			if events[0].SessionID == old || events[1].SessionID != old {
				t.Errorf("ids %s, %s; the second is to be %s", events[0].SessionID, events[1].SessionID, old)
			}
		}},
		{"newid,lazy", []string{"start resume", "end prompt_input_exit"}, func(t *testing.T, old, now string, events []runtimes.HookEvent) {
			if now == old || events[0].SessionID != now {
				t.Errorf("resumed %s as %s, hook %s", old, now, events[0].SessionID)
			}
		}},
	}
	for _, tt := range tests {
		t.Run(tt.quirks, func(t *testing.T) {
			home := ledgertest.Isolate(t)
			dir := project(t, home)
			a := start(t, dir, "claude")
			old := a.Session()
			a.Send("hello")
			a.Close()
			events := hooked(t, home, "claude")
			t.Setenv("LEDGERTEST_AGENT_QUIRKS", tt.quirks)
			b := start(t, dir, "claude", "--resume", old)
			now := b.Session()
			b.Close()
			got := events()
			if diff := cmp.Diff(tt.want, kinds(got)); diff != "" {
				t.Fatalf("events (-want +got):\n%s", diff)
			}
			tt.check(t, old, now, got)
		})
	}
}

func TestSessionIDIsForNewOnesOnly(t *testing.T) {
	home := ledgertest.Isolate(t)
	dir := project(t, home)
	const id = "7a0e0c5e-0000-4000-8000-00000000000f"
	a := start(t, dir, "claude", "--session-id", id)
	if got := a.Session(); got != id {
		t.Errorf("id %s", got)
	}
	a.Close()
	b := start(t, dir, "claude", "--session-id="+id)
	b.Expect("already in use")
	if status := b.Wait(); status != 1 {
		t.Errorf("exit status %d", status)
	}
	// A resume looks into the folder of its directory alone.
	c := start(t, home, "claude", "--resume", id)
	c.Expect("no conversation found")
	d := start(t, dir, "claude", "--resume", id, "--fork-session")
	if got := d.Session(); got == id {
		t.Error("a fork kept the id")
	}
}

func TestLiveRegistry(t *testing.T) {
	home := ledgertest.Isolate(t)
	dir := project(t, home)
	root := filepath.Join(home, ".claude")
	a := start(t, dir, "claude")
	id := a.Session()
	live, err := runtimes.ReadLive(root, a.PID())
	if err != nil || live.SessionID != id || live.Cwd != dir || live.Status != "idle" {
		t.Errorf("%+v, %v", live, err)
	}
	if stat, err := os.ReadFile("/proc/" + itoa(a.PID()) + "/stat"); err == nil {
		if want := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))[19]; want != strconv.FormatUint(live.StartTicks, 10) {
			t.Errorf("start ticks %d, want %s", live.StartTicks, want)
		}
	}
	a.Send("/wait")
	a.Expect("/wait")
	if live, err := runtimes.ReadLive(root, a.PID()); err != nil || live.Status != "waiting" {
		t.Errorf("%+v, %v", live, err)
	}
	a.Send("/clear")
	_, second, _ := strings.Cut(a.Expect("/clear"), "/clear ")
	if live, err := runtimes.ReadLive(root, a.PID()); err != nil || live.SessionID != second {
		t.Errorf("%+v, %v; want %s", live, err, second)
	}
	a.Close()
	if _, err := runtimes.ReadLive(root, a.PID()); !os.IsNotExist(err) {
		t.Errorf("left in the registry: %v", err)
	}

	t.Setenv("LEDGERTEST_AGENT_QUIRKS", "registry")
	b := start(t, dir, "claude")
	id = b.Session()
	b.Send("/clear")
	b.Expect("/clear")
	b.Send("/crash")
	if status := b.Wait(); status != -1 {
		t.Errorf("exit status %d", status)
	}
	if live, err := runtimes.ReadLive(root, b.PID()); err != nil || live.SessionID != id {
		t.Errorf("after the crash: %+v, %v; want %s", live, err, id)
	}
}

func TestSignals(t *testing.T) {
	home := ledgertest.Isolate(t)
	dir := project(t, home)
	events := hooked(t, home, "claude")
	for i, s := range []syscall.Signal{syscall.SIGTERM, syscall.SIGHUP} {
		a := start(t, dir, "claude")
		a.Session()
		a.Signal(s)
		if status := a.Wait(); status != 128+int(s) {
			t.Errorf("%v: exit status %d", s, status)
		}
		if got := kinds(events()); len(got) != 2*(i+1) || got[len(got)-1] != "end other" {
			t.Errorf("%v: events %q", s, got)
		}
	}
	before := len(events())
	a := start(t, dir, "claude")
	a.Session()
	a.Send("/crash")
	a.Wait()
	if got := kinds(events()[before:]); len(got) != 1 {
		t.Errorf("a crash told %q", got)
	}

	t.Setenv("LEDGERTEST_AGENT_IGNORE", "hup, term")
	b := start(t, dir, "claude")
	b.Session()
	b.Signal(syscall.SIGTERM)
	b.Signal(syscall.SIGHUP)
	b.Send("still there")
	b.Expect("did still there")
	b.Signal(syscall.SIGINT)
	b.Expect("interrupted")
	b.Signal(syscall.SIGKILL)
	if status := b.Wait(); status != -1 {
		t.Errorf("exit status %d", status)
	}
}

// TestHooksAreBounded: a hook that hangs, or leaves a child with its pipes,
// keeps the agent no longer than its time limit.
func TestHooksAreBounded(t *testing.T) {
	home := ledgertest.Isolate(t)
	dir := project(t, home)
	log := filepath.Join(home, "log")
	t.Setenv("LEDGERTEST_AGENT_LOG", log)
	write(t, filepath.Join(home, ".claude", "settings.json"), `{"hooks": {
		"SessionStart": [
			{"matcher": "resume", "hooks": [{"type": "command", "command": "echo no"}]},
			{"matcher": "startup|clear", "hooks": [
				{"type": "command", "command": "sleep 100 & sleep 100", "timeout": 0.2},
				{"type": "command", "command": "echo out; echo err >&2; exit 3"},
				{"type": "command", "command": "echo out; echo err >&2; exit 3"}]}],
		"SessionEnd": [{"hooks": [{"type": "command", "command": "sleep 100"}]}]}}`)
	a := start(t, dir, "claude")
	a.Session()
	if status := a.Close(); status != 0 {
		t.Errorf("exit status %d", status)
	}
	if strings.Contains(a.Output(), "out") {
		t.Errorf("a hook's output was shown: %s", a.Output())
	}
	got := read(t, log)
	for _, want := range []string{
		`"command":"sleep 100 \u0026 sleep 100","event":"SessionStart","exit":-1`,
		`exit 3","event":"SessionStart","exit":3`, `"output":"out\nerr\n"`,
		`"command":"sleep 100","event":"SessionEnd","exit":-1`,
	} {
		if strings.Count(got, want) != 1 {
			t.Errorf("the log has %d times %s:\n%s", strings.Count(got, want), want, got)
		}
	}
}

func TestHooksSeeTheAgentsEnvironment(t *testing.T) {
	home := ledgertest.Isolate(t)
	dir := project(t, home)
	out := filepath.Join(home, "env")
	write(t, filepath.Join(dir, ".claude", "settings.json"),
		`{"hooks": {"SessionStart": [{"hooks": [{"type": "command", "command": "env >`+out+`; pwd >>`+out+`; echo PPID=$PPID >>`+out+`"}]}]}}`)
	a := start(t, dir, "claude")
	id := a.Session()
	got := read(t, out)
	for _, want := range []string{"CLAUDECODE=1", "CLAUDE_CODE_SESSION_ID=" + id, "CLAUDE_PID=" + itoa(a.PID()), "PPID=" + itoa(a.PID()), "HOME=" + home, dir} {
		if !strings.Contains("\n"+got, "\n"+want+"\n") {
			t.Errorf("no %s in\n%s", want, got)
		}
	}
}

func TestNestedAgents(t *testing.T) {
	home := ledgertest.Isolate(t)
	dir := project(t, home)
	t.Setenv("PATH", ledgertest.BuildAgent(t)+string(filepath.ListSeparator)+os.Getenv("PATH"))
	outer, inner := hooked(t, home, "claude"), hooked(t, home, "codex")
	a := start(t, dir, "claude")
	id := a.Session()
	a.Send("/nested codex --model x")
	a.Expect("codex: session ")
	a.Send("/to /env CLAUDE_CODE_SESSION_ID")
	a.Expect("codex: /env " + id)
	a.Send("/to /nested claude -p deep down")
	a.Expect("claude: did deep down")
	a.Send("/to hello")
	a.Expect("codex: did hello")
	a.Send("/join")
	a.Expect("/join")
	a.Close()
	if got := kinds(inner()); len(got) != 3 || got[0] != "start startup" {
		t.Errorf("the inner one told %q", got)
	}
	ids := map[string]bool{}
	for _, e := range outer() {
		ids[e.SessionID] = true
	}
	if len(ids) != 2 || !ids[id] {
		t.Errorf("claude's hooks told of %v", ids)
	}
}

// TestNestedAgentsEndWithACrash: none is left when its parent is killed.
func TestNestedAgentsEndWithACrash(t *testing.T) {
	home := ledgertest.Isolate(t)
	a := start(t, project(t, home), "claude")
	a.Session()
	a.Send("/nested gemini")
	a.Expect("gemini: session")
	a.Send("/crash")
	a.Wait() // and Clean finds nothing
}

func TestSubagentsHaveTheirParentsID(t *testing.T) {
	home := ledgertest.Isolate(t)
	events := hooked(t, home, "claude")
	a := start(t, project(t, home), "claude")
	id := a.Session()
	a.Send("/subagent")
	a.Expect("/subagent")
	a.Close()
	n := 0
	for _, e := range events() {
		if e.SessionID != id {
			t.Errorf("%s has id %s", e.Kind, e.SessionID)
		}
		if e.Subagent() {
			n++
		}
	}
	if n != 2 {
		t.Errorf("%d events of a subagent", n)
	}
	files, err := filepath.Glob(filepath.Join(home, ".claude", "projects", "*", id, "subagents", "*.jsonl"))
	if err != nil || len(files) != 1 {
		t.Fatalf("%v, %v", files, err)
	}
	if info, err := transcript.Read(context.Background(), files[0], transcript.Claude); err != nil || info.Subagent != transcript.Yes {
		t.Errorf("%+v, %v", info, err)
	}
}

func TestTitleAndDirectory(t *testing.T) {
	home := ledgertest.Isolate(t)
	dir := project(t, home)
	events := hooked(t, home, "claude")
	a := start(t, dir, "claude")
	id := a.Session()
	for _, line := range []string{"hello", "/title A better title", "/cd ..", "/end something_new"} {
		a.Send(line)
	}
	a.Wait()
	path, err := spec(t, "claude").Find(context.Background(), homes(), id, dir)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := transcript.Read(context.Background(), path, transcript.Claude); err != nil || info.Title != "A better title" {
		t.Errorf("%+v, %v", info, err)
	}
	got := events()
	last := got[len(got)-2:]
	if last[0].Kind != runtimes.HookCwd || last[0].NewCwd != filepath.Dir(dir) {
		t.Errorf("%+v", last[0])
	}
	if last[1].Reason != "something_new" {
		t.Errorf("%+v", last[1])
	}
}

func TestExitOnRequest(t *testing.T) {
	home := ledgertest.Isolate(t)
	dir := project(t, home)
	events := hooked(t, home, "claude")
	t.Setenv("LEDGERTEST_AGENT_EXIT", "instant:3")
	if status := start(t, dir, "claude").Wait(); status != 3 {
		t.Errorf("exit status %d", status)
	}
	if got := events(); len(got) > 0 {
		t.Errorf("events %v", kinds(got))
	}
	t.Setenv("LEDGERTEST_AGENT_EXIT", "start:4")
	if status := start(t, dir, "claude").Wait(); status != 4 {
		t.Errorf("exit status %d", status)
	}
	if got := kinds(events()); len(got) != 1 {
		t.Errorf("events %v", got)
	}
}

// TestWorkAndRest: an agent that is told to uses a processor, and one that
// waits uses none.
func TestWorkAndRest(t *testing.T) {
	home := ledgertest.Isolate(t)
	a := start(t, project(t, home), "claude")
	a.Session()
	if _, ok := ticks(a.PID()); !ok {
		t.Skip("no procfs")
	}
	ledgertest.Await(t, "the agent to rest", func() bool { return rests(a.PID()) })
	a.Send("/work 10ms")
	a.Expect("/work")
	ledgertest.Await(t, "the agent to rest after its work", func() bool { return rests(a.PID()) })
	before, _ := ticks(a.PID())
	a.Send("/work 100s")
	// A second of a processor, which one that mostly sleeps does not use in a minute.
	ledgertest.Await(t, "the agent to work", func() bool {
		now, _ := ticks(a.PID())
		return now >= before+100
	})
	a.Signal(syscall.SIGTERM)
	if status := a.Wait(); status != 128+int(syscall.SIGTERM) {
		t.Errorf("exit status %d", status)
	}
}

// rests looks at a process for a while, and reports whether none of its threads
// ran or was about to: a processor that others keep busy makes no difference.
func rests(pid int) bool {
	first, asleep := switches(pid)
	for range 20 {
		time.Sleep(5 * time.Millisecond)
		now, still := switches(pid)
		if asleep = asleep && still; !asleep || now != first {
			return false
		}
	}
	return true
}

// switches are how often the threads of a process were given a processor or
// gave it back, and whether all of them sleep.
func switches(pid int) (n int, asleep bool) {
	threads, _ := filepath.Glob("/proc/" + itoa(pid) + "/task/*/status")
	asleep = len(threads) > 0
	for _, path := range threads {
		status, err := os.ReadFile(path)
		asleep = asleep && err == nil
		for line := range strings.Lines(string(status)) {
			switch name, value, _ := strings.Cut(strings.TrimSpace(line), ":\t"); name {
			case "State":
				asleep = asleep && strings.HasPrefix(value, "S")
			case "voluntary_ctxt_switches", "nonvoluntary_ctxt_switches":
				count, _ := strconv.Atoi(value)
				n += count
			}
		}
	}
	return n, asleep
}

// ticks are a process's user and system time.
func ticks(pid int) (int, bool) {
	stat, err := os.ReadFile("/proc/" + itoa(pid) + "/stat")
	if err != nil {
		return 0, false
	}
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	user, _ := strconv.Atoi(fields[11])
	system, _ := strconv.Atoi(fields[12])
	return user + system, true
}

func TestNamesOfTheProgram(t *testing.T) {
	ledgertest.Isolate(t)
	dir := ledgertest.BuildAgent(t)
	for _, args := range [][]string{
		{filepath.Join(dir, "claude"), "--version"},
		{filepath.Join(dir, "stand-in"), "-as", "claude", "--version"},
	} {
		out, err := exec.Command(args[0], args[1:]...).Output()
		if err != nil || !strings.Contains(string(out), "(claude, a stand-in)") {
			t.Errorf("%q: %q, %v", args, out, err)
		}
	}
}

func TestWhenTranscriptsAreWritten(t *testing.T) {
	home := ledgertest.Isolate(t)
	dir := project(t, home)
	t.Setenv("LEDGERTEST_AGENT_QUIRKS", "lazy,unsaved")
	find := func(id string) error {
		_, err := spec(t, "claude").Find(context.Background(), homes(), id, dir)
		return err
	}
	a := start(t, dir, "claude")
	id := a.Session()
	if err := find(id); !errors.Is(err, runtimes.ErrNoTranscript) {
		t.Errorf("before the first prompt: %v", err)
	}
	a.Send("hello")
	a.Expect("did hello")
	if err := find(id); err != nil {
		t.Errorf("after it: %v", err)
	}
	// One that inherits a parent's variables is taken for that one's child.
	a.Send("/nested claude -p hello")
	nested := a.Expect("claude: session")
	a.Expect("did hello")
	if err := find(nested[len(nested)-36:]); !errors.Is(err, runtimes.ErrNoTranscript) {
		t.Errorf("the nested one: %v", err)
	}
}
