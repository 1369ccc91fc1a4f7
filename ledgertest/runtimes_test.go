package ledgertest_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sessionledger/ledger/internal/runtimes"
	"github.com/sessionledger/ledger/internal/transcript"
	"github.com/sessionledger/ledger/ledgertest"
)

// TestConversationsAreReadByTheLibrary: what each stand-in writes is found and
// read by the code for the real CLIs, and goes on after a resume by its exact id.
func TestConversationsAreReadByTheLibrary(t *testing.T) {
	for _, runtime := range ledgertest.Runtimes() {
		t.Run(runtime, func(t *testing.T) {
			home := ledgertest.Isolate(t)
			dir := project(t, home)
			s := spec(t, runtime)
			a := start(t, dir, runtime)
			id := a.Session()
			a.Send("first prompt")
			a.Expect("did first prompt")
			a.Send("/edit file.txt some text")
			a.Expect("/edit")
			if status := a.Close(); status != 0 {
				t.Errorf("exit status %d", status)
			}
			if got := read(t, filepath.Join(dir, "file.txt")); got != "some text\n" {
				t.Errorf("file.txt is %q", got)
			}
			ctx := context.Background()
			path, err := s.Find(ctx, homes(), id, dir)
			if err != nil {
				t.Fatalf("Find: %v", err)
			}
			info, err := transcript.Read(ctx, path, s.Format)
			if err != nil {
				t.Fatal(err)
			}
			if info.ID != id {
				t.Errorf("id %q, want %q", info.ID, id)
			}
			if info.Title != "first prompt" {
				t.Errorf("title %q", info.Title)
			}
			if info.Cwd != dir && runtime != "gemini" && runtime != "cursor-agent" {
				t.Errorf("cwd %q, want %q", info.Cwd, dir)
			}
			if want := filepath.Join(dir, "file.txt"); !strings.Contains(info.Activity, want) && runtime != "opencode" {
				t.Errorf("activity %q does not tell of %s", info.Activity, want)
			}
			if info.Subagent == transcript.Yes {
				t.Error("taken for a subagent's")
			}
			if branch := "topic/x"; runtime == "claude" && info.Branch != branch {
				t.Errorf("branch %q", info.Branch)
			}

			args, err := s.ResumeArgs(id)
			if runtime == "aider" {
				return // it has no ids
			}
			if err != nil {
				t.Fatal(err)
			}
			b := start(t, dir, runtime, args...)
			if got := b.Session(); got != id {
				t.Errorf("resumed as %q, want %q", got, id)
			}
			b.Send("second prompt")
			b.Expect("did second prompt")
			b.Close()
			if again, err := s.Find(ctx, homes(), id, dir); err != nil || again != path {
				t.Errorf("now in %s, %v; was in %s", again, err, path)
			}
			now, err := transcript.Read(ctx, path, s.Format)
			if err != nil {
				t.Fatal(err)
			}
			if now.Title != "first prompt" || now.ID != id || runtime != "opencode" && now.Size <= info.Size {
				t.Errorf("after the resume: %+v", now)
			}
		})
	}
}

func TestUnknownIDsAreRefused(t *testing.T) {
	home := ledgertest.Isolate(t)
	dir := project(t, home)
	const unknown = "7a0e0c5e-0000-4000-8000-000000000001"
	for _, runtime := range []string{"claude", "codex", "gemini", "qwen", "opencode", "amp", "cursor-agent", "copilot"} {
		args, err := spec(t, runtime).ResumeArgs(unknown)
		if err != nil {
			t.Fatal(err)
		}
		a := start(t, dir, runtime, args...)
		a.Expect(unknown)
		if status := a.Wait(); status != 1 {
			t.Errorf("%s: exit status %d", runtime, status)
		}
	}
	for _, args := range [][]string{{"claude", "--resume"}, {"codex", "resume"}, {"claude", "--session-id", "x"}} {
		if status := start(t, dir, args[0], args[1:]...).Wait(); status != 1 {
			t.Errorf("%q: exit status %d", args, status)
		}
	}
}

// TestEventsOfARun: the events of a short run, in order, as the library reads
// them.
func TestEventsOfARun(t *testing.T) {
	tests := map[string][]string{
		"claude":       {"start startup", "prompt", "stop", "notification permission_prompt", "failure rate_limit", "end clear", "start clear", "end prompt_input_exit"},
		"qwen":         {"start startup", "prompt", "stop", "notification permission_prompt", "end clear", "start clear", "end prompt_input_exit"},
		"gemini":       {"start startup", "prompt", "stop", "notification ToolPermission", "end clear", "start clear", "end exit"},
		"codex":        {"start startup", "prompt", "stop", "start clear"},
		"cursor-agent": {"start startup", "prompt", "stop completed", "end clear", "start clear", "end user_close"},
		"copilot":      {"start new", "prompt", "stop end_turn", "notification permission_prompt", "failure rate_limit", "end clear", "start clear", "end user_exit"},
	}
	for runtime, want := range tests {
		t.Run(runtime, func(t *testing.T) {
			home := ledgertest.Isolate(t)
			dir := project(t, home)
			events := hooked(t, home, runtime)
			a := start(t, dir, runtime)
			first := a.Session()
			for _, line := range []string{"hello", "/wait", "/limit", "/clear"} {
				a.Send(line)
			}
			_, second, _ := strings.Cut(a.Expect("/clear"), "/clear ")
			a.Send("/exit")
			if status := a.Wait(); status != 0 {
				t.Errorf("exit status %d", status)
			}
			got := events()
			if diff := cmp.Diff(want, kinds(got)); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
			cleared := false
			for _, e := range got {
				cleared = cleared || e.Kind == runtimes.HookStart && e.Source == "clear"
				if id := map[bool]string{false: first, true: second}[cleared]; e.SessionID != id {
					t.Errorf("%s has id %s, want %s", e.Kind, e.SessionID, id)
				}
				if e.Cwd != dir {
					t.Errorf("%s has cwd %q", e.Kind, e.Cwd)
				}
				if e.Kind == runtimes.HookPrompt && e.Prompt != "hello" {
					t.Errorf("prompt %q", e.Prompt)
				}
			}
		})
	}
}

func TestCodexKeepsItsRolloutOpen(t *testing.T) {
	if _, err := os.Stat("/proc/self/fd"); err != nil {
		t.Skip("no procfs")
	}
	home := ledgertest.Isolate(t)
	a := start(t, project(t, home), "codex")
	id := a.Session()
	names, err := filepath.Glob(filepath.Join("/proc", itoa(a.PID()), "fd", "*"))
	if err != nil {
		t.Fatal(err)
	}
	var files []string
	for _, name := range names {
		if file, err := os.Readlink(name); err == nil {
			files = append(files, file)
		}
	}
	roots, unsure := runtimes.OpenRollouts(context.Background(), files)
	if len(roots) != 1 || roots[0].ID != id || len(unsure) > 0 {
		t.Errorf("open rollouts: %v, unsure %v; want %s", roots, unsure, id)
	}
}

func TestCodexNotifies(t *testing.T) {
	home := ledgertest.Isolate(t)
	out := filepath.Join(home, "notified")
	write(t, filepath.Join(home, ".codex", "config.toml"),
		"model = \"x\"\nnotify = [\"sh\", \"-c\", \"printf '%s' \\\"$1\\\" >'"+out+".tmp' && mv '"+out+".tmp' '"+out+"'\", \"sh\"]\n")
	a := start(t, project(t, home), "codex")
	id := a.Session()
	a.Send("hello")
	ledgertest.Await(t, "the notification", func() bool { _, err := os.Stat(out); return err == nil })
	e, err := runtimes.ParseHook("codex", []byte(read(t, out)))
	if err != nil || e.SessionID != id || e.Kind != runtimes.HookStop || !e.MaybeSubagent {
		t.Errorf("%+v, %v", e, err)
	}
}

func TestSinglePrompts(t *testing.T) {
	home := ledgertest.Isolate(t)
	dir := project(t, home)
	for _, args := range [][]string{
		{"claude", "-p", "one thing"}, {"claude", "--model", "x", "--print", "one thing"}, {"codex", "exec", "one thing"},
		{"codex", "--profile", "resume", "exec", "one thing"}, {"gemini", "-p", "one thing"}, {"qwen", "-p", "one thing"},
		{"cursor-agent", "-p", "one thing"}, {"copilot", "--prompt", "one thing"},
	} {
		a := start(t, dir, args[0], args[1:]...)
		a.Expect("did one thing")
		if status := a.Wait(); status != 0 {
			t.Errorf("%q: exit status %d", args, status)
		}
	}
}

func TestServicesAreNoSessions(t *testing.T) {
	home := ledgertest.Isolate(t)
	dir := project(t, home)
	for _, args := range [][]string{{"claude", "mcp", "serve"}, {"codex", "app-server"}, {"gemini", "update"}} {
		a := start(t, dir, args[0], args[1:]...)
		if status := a.Close(); status != 0 {
			t.Errorf("%q: exit status %d", args, status)
		}
		if got := a.Output(); got != "" {
			t.Errorf("%q printed %q", args, got)
		}
	}
	for _, name := range []string{".claude", ".codex", ".gemini"} {
		if _, err := os.Lstat(filepath.Join(home, name)); !os.IsNotExist(err) {
			t.Errorf("%s was made: %v", name, err)
		}
	}
}

func TestAnyOtherNameHasNoConversations(t *testing.T) {
	home := ledgertest.Isolate(t)
	a := start(t, project(t, home), "somebodys-agent")
	if id := a.Session(); id != "" {
		t.Errorf("id %q", id)
	}
	a.Send("hello")
	a.Expect("somebodys-agent: did hello")
	a.Send("/clear")
	a.Expect("/clear")
	if status := a.Close(); status != 0 {
		t.Errorf("exit status %d", status)
	}
}
