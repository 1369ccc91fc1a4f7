package ledger

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/sessionledger/ledger/ledgertest"
)

// enrolledAgent starts a stand-in that has said something, and enrols it.
func (b *bed) enrolledAgent(runtime, dir string, args ...string) (*ledgertest.Agent, Entry) {
	b.t.Helper()
	cmd := ledgertest.Command(b.t, runtime, args...)
	cmd.Dir = dir
	a := ledgertest.Start(b.t, cmd)
	id := a.Session()
	a.Send("work")
	a.Expect("did work")
	e, _, err := b.s.Enrol(b.t.Context(), a.PID(), nil)
	if err != nil {
		b.t.Fatal(err)
	}
	if id != "" && e.SessionID == "" {
		// As its hook would have it.
		rt, _ := b.s.runtimes.Lookup(runtime)
		path, _ := rt.Transcript(b.t.Context(), TranscriptQuery{ID: id, Cwd: dir, Home: b.s.home, Env: b.s.environOf(&e)})
		if e, err = b.s.bindConversation(b.t.Context(), e, conversation{id: id, path: path, source: fromHook}); err != nil {
			b.t.Fatal(err)
		}
	}
	return a, e
}

// resumes runs a resume command and returns the conversation that comes up.
func (b *bed) resumes(runtime string, c Command) string {
	b.t.Helper()
	cmd := ledgertest.Command(b.t, runtime, c.Argv[1:]...)
	cmd.Path, cmd.Dir, cmd.Env = c.Argv[0], c.Dir, c.Environ(os.Environ())
	a := ledgertest.Start(b.t, cmd)
	id := a.Session()
	a.Close()
	return id
}

// Case 76: the arguments are exact, and the stand-in comes up in that very conversation.
func TestResumeCommandOfEachRuntime(t *testing.T) {
	b := newBed(t)
	t.Setenv("CLAUDECODE", "1")
	dir := filepath.Join(b.home, "a b'\"$x é")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for runtime, want := range map[string][]string{
		"claude": {"--resume", "ID"}, "codex": {"resume", "ID"}, "gemini": {"--resume", "ID"}, "qwen": {"--resume", "ID"},
		"opencode": {"--session", "ID"}, "amp": {"threads", "continue", "ID"}, "cursor-agent": {"--resume", "ID"},
		"copilot": {"--resume=ID"}, "aider": nil,
	} {
		t.Run(runtime, func(t *testing.T) {
			var flags []string
			if runtime == "claude" {
				flags = []string{"--session-id", "11111111-2222-4333-8444-555555555555"} // never replayed
			}
			a, e := b.enrolledAgent(runtime, dir, flags...)
			if _, err := ResumeCommand(t.Context(), b.s, e); want != nil && !errors.Is(err, ErrConversationHeld) {
				t.Errorf("while it runs: %v", err)
			}
			a.Send("/crash")
			a.Wait()
			b.gone(e.Process())
			c, err := ResumeCommand(t.Context(), b.s, e)
			var lacks *ResumeError
			if want == nil {
				if !errors.As(err, &lacks) || !errors.Is(err, ErrIllegal) {
					t.Errorf("%+v, %v", c, err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			args := strings.Split(strings.ReplaceAll(strings.Join(want, "\x00"), "ID", e.SessionID), "\x00")
			if !slices.Equal(c.Argv[1:], args) || !filepath.IsAbs(c.Argv[0]) || filepath.Base(c.Argv[0]) != runtime {
				t.Errorf("argv %q, want %q", c.Argv, args)
			}
			if c.Dir != dir || !slices.Contains(c.Unset, "CLAUDECODE") || len(c.Env) != 0 {
				t.Errorf("%+v", c)
			}
			if got := b.resumes(runtime, c); got != e.SessionID {
				t.Errorf("resumed %q, want %q", got, e.SessionID)
			}
		})
	}
}

// Case 75.
func TestThreeSessionsInOneFolderEachResumeTheirOwn(t *testing.T) {
	b := newBed(t)
	for _, runtime := range []string{"claude", "codex"} {
		var rows []Entry
		for range 3 {
			a, e := b.enrolledAgent(runtime, b.dir)
			a.Send("/crash")
			a.Wait()
			rows = append(rows, e)
		}
		for _, e := range rows {
			c, err := ResumeCommand(t.Context(), b.s, e)
			if err != nil {
				t.Fatal(err)
			}
			if got := b.resumes(runtime, c); got != e.SessionID {
				t.Errorf("%s: resumed %q, want %q", runtime, got, e.SessionID)
			}
		}
		unknown := rows[0]
		unknown.SessionID, unknown.TranscriptPath = "", ""
		if _, err := ResumeCommand(t.Context(), b.s, unknown); !errors.Is(err, ErrIllegal) {
			t.Errorf("%s: one that is not known: %v", runtime, err)
		}
	}
}

// The account's config home is set, and only where it is not the default one.
func TestResumeInTheConfigHomeOfTheTranscript(t *testing.T) {
	b := newBed(t)
	for _, tt := range []struct {
		runtime, name, value string // set for the agent
		set, to              string // of the command
	}{
		{"claude", "CLAUDE_CONFIG_DIR", filepath.Join(b.home, "accounts/work/.claude"), "CLAUDE_CONFIG_DIR", filepath.Join(b.home, "accounts/work/.claude")},
		{"claude", "CLAUDE_CONFIG_DIR", filepath.Join(b.home, "elsewhere"), "CLAUDE_CONFIG_DIR", filepath.Join(b.home, "elsewhere")},
		{"codex", "CODEX_HOME", filepath.Join(b.home, "accounts/two/codex"), "CODEX_HOME", filepath.Join(b.home, "accounts/two/codex")},
		{"qwen", "QWEN_HOME", filepath.Join(b.home, "accounts/two/qwen"), "QWEN_HOME", filepath.Join(b.home, "accounts/two/qwen")},
		{"copilot", "COPILOT_HOME", filepath.Join(b.home, "accounts/two/pilot"), "COPILOT_HOME", filepath.Join(b.home, "accounts/two/pilot")},
		{"amp", "XDG_DATA_HOME", filepath.Join(b.home, "data"), "XDG_DATA_HOME", filepath.Join(b.home, "data")},
		{"gemini", "HOME", filepath.Join(b.home, "accounts/work"), "HOME", filepath.Join(b.home, "accounts/work")},
	} {
		t.Run(tt.runtime+" "+filepath.Base(tt.value), func(t *testing.T) {
			if err := os.MkdirAll(tt.value, 0o700); err != nil {
				t.Fatal(err)
			}
			before := os.Getenv(tt.name)
			t.Setenv(tt.name, tt.value)
			a, e := b.enrolledAgent(tt.runtime, b.dir)
			a.Send("/crash")
			a.Wait()
			b.gone(e.Process())
			os.Setenv(tt.name, before)
			if before == "" {
				os.Unsetenv(tt.name)
			}
			c, err := ResumeCommand(t.Context(), b.s, e)
			if err != nil {
				t.Fatal(err)
			}
			if len(c.Env) != 1 || c.Env[tt.set] != tt.to {
				t.Errorf("env %v", c.Env)
			}
			if got := b.resumes(tt.runtime, c); got != e.SessionID {
				t.Errorf("resumed %q, want %q", got, e.SessionID)
			}
		})
	}
	// From an account's own shell, a session of the default one.
	a, e := b.enrolledAgent("claude", b.dir)
	a.Send("/crash")
	a.Wait()
	t.Setenv("CLAUDE_CONFIG_DIR", filepath.Join(b.home, "accounts/work/.claude"))
	c, err := ResumeCommand(t.Context(), b.s, e)
	if err != nil || len(c.Env) > 0 || !slices.Contains(c.Unset, "CLAUDE_CONFIG_DIR") {
		t.Fatalf("%+v, %v", c, err)
	}
	if got := b.resumes("claude", c); got != e.SessionID {
		t.Errorf("resumed %q, want %q", got, e.SessionID)
	}
}

// Every refusal says what is lacking, by its type.
func TestResumeRefusals(t *testing.T) {
	b := newBed(t)
	fresh := func(t *testing.T) Entry {
		dir := filepath.Join(b.home, "dirs", strings.ReplaceAll(t.Name(), "/", "-"))
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		a, e := b.enrolledAgent("claude", dir)
		a.Send("/crash")
		a.Wait()
		b.gone(e.Process())
		return e
	}
	for name, tt := range map[string]struct {
		spoil func(t *testing.T, e *Entry)
		err   error
		says  string
	}{
		"no conversation":     {func(t *testing.T, e *Entry) { e.SessionID, e.TranscriptPath = "", "" }, ErrIllegal, "no conversation"},
		"an id that is none":  {func(t *testing.T, e *Entry) { e.SessionID = "--latest" }, ErrIllegal, "is no id"},
		"no resume by id":     {func(t *testing.T, e *Entry) { e.Runtime = "home-made" }, ErrIllegal, "cannot resume"},
		"transcript gone":     {func(t *testing.T, e *Entry) { os.Remove(e.TranscriptPath) }, ErrNotFound, "transcript is gone"},
		"folder gone":         {func(t *testing.T, e *Entry) { os.Remove(e.Cwd) }, ErrNotFound, "is gone"},
		"folder a file":       {func(t *testing.T, e *Entry) { os.Remove(e.Cwd); putFile(t, e.Cwd, "") }, ErrNotFound, "no folder any more"},
		"program gone":        {func(t *testing.T, e *Entry) { t.Setenv("PATH", "/usr/bin:/bin") }, ErrNotFound, "not on PATH"},
		"an unknown account":  {func(t *testing.T, e *Entry) { e.Account = "lost"; os.Remove(e.TranscriptPath) }, ErrUnknown, "could not be looked up"},
		"another row has it":  {func(t *testing.T, e *Entry) { cedeTo(t, b.s, *e) }, ErrConversationHeld, "in use by"},
		"resumed by a person": {func(t *testing.T, e *Entry) { b.person(*e) }, ErrConversationHeld, "in use by process"},
	} {
		t.Run(name, func(t *testing.T) {
			e := fresh(t)
			tt.spoil(t, &e)
			c, err := ResumeCommand(t.Context(), b.s, e)
			var lacks *ResumeError
			if !errors.Is(err, tt.err) || !errors.As(err, &lacks) || !strings.Contains(lacks.Lack, tt.says) {
				t.Errorf("%+v, %v", c, err)
			}
		})
	}
}

// cedeTo gives a dead row's conversation to another row, whose process runs.
func cedeTo(t *testing.T, s *Store, e Entry) {
	t.Helper()
	other, _ := enrolled(t, s, Entry{Runtime: e.Runtime})
	apply(t, s, e.LedgerID, Cede(e.SessionID, other.LedgerID))
	apply(t, s, other.LedgerID, Claim(e.SessionID, fromHook))
}

// person resumes a session by hand.
func (b *bed) person(e Entry) {
	b.t.Helper()
	cmd := ledgertest.Command(b.t, "claude", "--resume", e.SessionID)
	cmd.Dir = e.Cwd
	ledgertest.Start(b.t, cmd).Session()
}

// An orphaned session comes back as a row of its own, which has the conversation; of
// several who reopen it at once, one does.
func TestReopenTakesALostSessionUpOnce(t *testing.T) {
	b := newBed(t)
	e := b.launch(LaunchOptions{Argv: []string{"claude"}})
	b.say(e, "work")
	await(t, "the conversation", func() bool {
		found, _ := filepath.Glob(filepath.Join(b.home, ".claude/projects/*/*.jsonl"))
		return len(found) == 1
	})
	found, _ := filepath.Glob(filepath.Join(b.home, ".claude/projects/*/*.jsonl"))
	id := strings.TrimSuffix(filepath.Base(found[0]), ".jsonl")
	apply(t, b.s, e.LedgerID, Claim(id, fromHook))
	if got, err := b.h.Reopen(t.Context(), e.LedgerID, AttachOptions{}); err != nil || got.LedgerID != e.LedgerID {
		t.Errorf("one that runs: %v, %v", got.LedgerID, err)
	}
	b.kill(e.Process())
	var wait sync.WaitGroup
	next := make([]Entry, 3)
	errs := make([]error, len(next))
	for i := range next {
		wait.Go(func() {
			next[i], errs[i] = b.h.Reopen(t.Context(), e.LedgerID, AttachOptions{Launch: LaunchOptions{Wait: patience}})
		})
	}
	wait.Wait()
	var up []Entry
	for i, err := range errs {
		if err == nil && (len(up) == 0 || up[0].LedgerID != next[i].LedgerID) { // a late one finds the successor
			up = append(up, next[i])
		} else if err != nil && !errors.Is(err, ErrConversationHeld) && !errors.Is(err, ErrIllegal) {
			t.Errorf("%v", err)
		}
	}
	if len(up) != 1 || len(b.agents()) != 1 {
		t.Fatalf("%d came up, agents %v: %v", len(up), b.agents(), errs)
	}
	old, successor := b.get(e.LedgerID), b.get(up[0].LedgerID)
	if successor.SessionID != id || successor.ResumedFrom != e.LedgerID || successor.LedgerID == e.LedgerID {
		t.Errorf("successor: %+v", successor)
	}
	if old.SessionID != "" || len(old.SessionIDs) == 0 || old.SessionIDs[len(old.SessionIDs)-1].HeldBy != successor.LedgerID || !old.IsOpen() {
		t.Errorf("old: %+v", old)
	}
	if len(rowsByID(t, b.s)) != 2 {
		t.Errorf("rows: %v", rowsByID(t, b.s))
	}
	args, _ := os.ReadFile("/proc/" + itoa(successor.PID) + "/cmdline")
	if !strings.Contains(string(args), "--resume\x00"+id) {
		t.Errorf("command line %q", args)
	}
}
