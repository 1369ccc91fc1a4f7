package runtimes

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const (
	idA = "0d3f6a52-7c1e-4b8a-9f00-1a2b3c4d5e6f"
	idB = "7b1e9c44-0a2d-4f6e-8b3c-5d6e7f809a1b"
)

func TestResumeArguments(t *testing.T) {
	for name, want := range map[string]string{
		"claude": "--resume ID", "codex": "resume ID", "gemini": "--resume ID", "qwen": "--resume ID",
		"opencode": "--session ID", "amp": "threads continue ID", "cursor-agent": "--resume ID", "copilot": "--resume=ID",
	} {
		s, _ := Builtin().Lookup(name)
		got, err := s.ResumeArgs(idA)
		if diff := cmp.Diff(strings.Fields(strings.ReplaceAll(want, "ID", idA)), got); diff != "" || err != nil {
			t.Errorf("%s: %v %s", name, err, diff)
		}
	}
	for _, name := range []string{"aider", "mycli"} {
		s, _ := Builtin().Lookup(name)
		if _, err := s.ResumeArgs(idA); !errors.Is(err, ErrNoResume) || s.ResumesByID() {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// An id is what a stranger wrote: nothing that a CLI would take for an option,
// for "the newest" or for a place in its list becomes an argument.
func TestIDsThatAreNoneAreRefused(t *testing.T) {
	table := Builtin()
	for _, id := range []string{"", "-x", "--last", "a b", "a\nb", "a\x00b", "\x1b[1m", "a\u009bb", "a\xff", "a\u00a0b", "\ufffd", strings.Repeat("a", 256),
		".", "..", "../../etc/passwd", "/etc/passwd", "a/b", `a\b`} {
		if ValidID(id) {
			t.Errorf("%q is valid", id)
		}
		for _, s := range table {
			if _, err := s.ResumeArgs(id); s.ResumesByID() && !errors.Is(err, ErrBadID) {
				t.Errorf("%s: %q: %v", s.Name, id, err)
			}
		}
	}
	gemini, _ := table.Lookup("gemini")
	for _, id := range []string{"latest", "0", "17"} {
		if _, err := gemini.ResumeArgs(id); !errors.Is(err, ErrBadID) {
			t.Errorf("gemini %q: %v", id, err)
		}
	}
	if _, err := gemini.ResumeArgs("17a"); err != nil {
		t.Error(err)
	}
}

func TestResumeArgumentsAreCopies(t *testing.T) {
	s, _ := Builtin().Lookup("amp")
	a, _ := s.ResumeArgs("T-1")
	a[0] = "changed"
	if b, _ := s.ResumeArgs("T-2"); strings.Join(b, " ") != "threads continue T-2" {
		t.Error(b)
	}
}

func TestInheritedVariables(t *testing.T) {
	env := []string{"PATH=/bin", "TMUX=/tmp/x,1,0", "TMUX_PANE=%1", "CLAUDECODE=1", "CLAUDE_CODE_SESSION_ID=x", "CLAUDE_CODE_NEW=",
		"CLAUDE_PID=3", "CLAUDE_CONFIG_DIR=/c", "CODEX_HOME=/c", "CLAUDE_CODE_OAUTH_TOKEN=secret", "CLAUDE_CODE_USE_BEDROCK=1",
		"CLAUDECODEX=1", "TMUX_TMPDIR=/t", "GEMINI_CLI=1", "GEMINI_API_KEY=k", "TMUX=again", "=odd", "odd"}
	want := []string{"CLAUDECODE", "CLAUDE_CODE_NEW", "CLAUDE_CODE_SESSION_ID", "CLAUDE_PID", "GEMINI_CLI", "TMUX", "TMUX_PANE"}
	if diff := cmp.Diff(want, Unset(env)); diff != "" {
		t.Error(diff)
	}
}

func homesOf(home string, env ...string) Homes {
	return Homes{Home: home, Getenv: func(name string) string {
		for _, kv := range env {
			if n, v, _ := strings.Cut(kv, "="); n == name {
				return v
			}
		}
		return ""
	}}
}

func TestConfigHome(t *testing.T) {
	for _, c := range []struct {
		runtime string
		homes   Homes
		want    string
	}{
		{"claude", homesOf("/h"), "/h/.claude"},
		{"claude", homesOf("/h", "CLAUDE_CONFIG_DIR=/a/b"), "/a/b"},
		{"claude", homesOf("/h", "CLAUDE_CONFIG_DIR=relative"), "/h/.claude"},
		{"claude", homesOf("/h", "HOME=/other"), "/other/.claude"},
		{"claude", Homes{}, ""},
		{"claude", Homes{Home: "/h"}, "/h/.claude"},
		{"codex", homesOf("/h", "CODEX_HOME=/c", "CLAUDE_CONFIG_DIR=/a"), "/c"},
		{"gemini", homesOf("/h"), "/h/.gemini"},
		{"qwen", homesOf("/h", "QWEN_HOME=/q"), "/q"},
		{"opencode", homesOf("/h"), "/h/.local/share/opencode"},
		{"opencode", homesOf("/h", "XDG_DATA_HOME=/d"), "/d/opencode"},
		{"amp", homesOf("/h", "XDG_DATA_HOME=/d"), "/d/amp"},
		{"cursor-agent", homesOf("/h", "XDG_DATA_HOME=/d"), "/h/.cursor"},
		{"copilot", homesOf("/h", "COPILOT_HOME=/c"), "/c"},
		{"aider", homesOf("/h"), ""},
		{"mycli", homesOf("/h"), ""},
	} {
		s, _ := Builtin().Lookup(c.runtime)
		if got := s.ConfigHome(c.homes); got != c.want {
			t.Errorf("%s: %q, want %q", c.runtime, got, c.want)
		}
	}
}

func TestAccount(t *testing.T) {
	for _, c := range []struct {
		runtime string
		homes   Homes
		want    string
	}{
		{"claude", homesOf("/h"), ""},
		{"claude", homesOf("/h", "CLAUDE_CONFIG_DIR=/srv/accounts/work/.claude"), "work"},
		{"claude", homesOf("/h", "CLAUDE_CONFIG_DIR=/srv/accounts/work"), "work"},
		{"claude", homesOf("/h", "CLAUDE_CONFIG_DIR=/srv/accounts/"), ""},
		{"claude", homesOf("/h", "CLAUDE_CONFIG_DIR=accounts/work"), ""},
		{"claude", homesOf("/h", "CLAUDE_CONFIG_DIR=/srv/myaccounts/work"), ""},
		{"claude", homesOf("/h", "CLAUDE_CONFIG_DIR=/srv/accounts/a/accounts/b/.c"), "b"},
		{"claude", homesOf("/srv/accounts/home1"), "home1"},
		{"claude", homesOf("/h", "HOME=/srv/accounts/home2"), "home2"},
		{"claude", homesOf("/h", "CODEX_HOME=/srv/accounts/cx", "CLAUDE_CONFIG_DIR=/srv/accounts/cl"), "cl"},
		{"codex", homesOf("/h", "CODEX_HOME=/srv/accounts/cx", "CLAUDE_CONFIG_DIR=/srv/accounts/cl"), "cx"},
		{"gemini", homesOf("/h", "CODEX_HOME=/srv/accounts/cx", "CLAUDE_CONFIG_DIR=/srv/accounts/cl"), "cl"},
	} {
		s, _ := Builtin().Lookup(c.runtime)
		if got := s.Account(c.homes); got != c.want {
			t.Errorf("%s %v: %q, want %q", c.runtime, c.homes.Home, got, c.want)
		}
	}
}
