package ledgertest

import (
	"crypto/rand"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// Marker is the environment variable by which a process is known as one that an
// isolated test started. Its value is the test's own.
const Marker = "LEDGERTEST_ID"

// families are the beginnings of variables that a test must not inherit: those
// of agent CLIs, of this library, of git and of multiplexers.
var families = []string{
	"AGENT_", "CLAUDE", "CODEX_", "GEMINI_", "QWEN_", "OPENCODE", "AMP_", "CURSOR_", "AIDER_", "COPILOT_",
	"LEDGERTEST_", "GIT_", "TMUX", "XDG_", "FACTORY_",
}

// Isolate gives a test an environment of its own, and returns its HOME: a new
// folder, as are the XDG folders below it and TMUX_TMPDIR, all with short paths
// since sockets have few bytes for theirs. git sees no settings of the machine's
// or a person's, and has an author. Variables of agent CLIs, of this library, of
// git and of multiplexers are unset.
//
// When the test ends all is put back, and [Clean] has its say. A test that runs
// in parallel cannot be isolated, as with [testing.T.Setenv].
func Isolate(t testing.TB) (home string) {
	t.Helper()
	base := shortDir(t)
	home = filepath.Join(base, "h")
	for _, dir := range []string{home, filepath.Join(base, "t"), filepath.Join(base, "r")} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, kv := range os.Environ() {
		name, _, _ := strings.Cut(kv, "=")
		if inFamily(name) {
			unset(t, name)
		}
	}
	unset(t, "STY") // screen
	for name, value := range map[string]string{
		"HOME":            home,
		"XDG_CONFIG_HOME": filepath.Join(home, ".config"),
		"XDG_DATA_HOME":   filepath.Join(home, ".local", "share"),
		"XDG_STATE_HOME":  filepath.Join(home, ".local", "state"),
		"XDG_CACHE_HOME":  filepath.Join(home, ".cache"),
		"XDG_RUNTIME_DIR": filepath.Join(base, "r"),
		"TMUX_TMPDIR":     filepath.Join(base, "t"),

		"GIT_CONFIG_GLOBAL":   os.DevNull,
		"GIT_CONFIG_NOSYSTEM": "1",
		"GIT_TERMINAL_PROMPT": "0",
		"GIT_AUTHOR_NAME":     "Test", "GIT_AUTHOR_EMAIL": "test@example.invalid",
		"GIT_COMMITTER_NAME": "Test", "GIT_COMMITTER_EMAIL": "test@example.invalid",

		Marker: rand.Text(),
	} {
		t.Setenv(name, value)
	}
	if runtime.GOOS == "windows" {
		t.Setenv("USERPROFILE", home)
	}
	t.Cleanup(func() { Clean(t) })
	return home
}

// shortDir makes a folder that goes with the test. That of t.TempDir bears the
// test's name, which is too long for sockets.
func shortDir(t testing.TB) string {
	t.Helper()
	parent := ""
	if runtime.GOOS != "windows" {
		parent = "/tmp" // TMPDIR is long on macOS
	}
	dir, err := os.MkdirTemp(parent, "lt")
	if err != nil {
		t.Fatal(err)
	}
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Errorf("ledgertest: %v", err)
		}
	})
	return dir
}

func inFamily(name string) bool {
	for _, f := range families {
		if strings.HasPrefix(name, f) {
			return true
		}
	}
	return false
}

// unset takes a variable away until the test ends.
func unset(t testing.TB, name string) {
	t.Helper()
	t.Setenv(name, "") // which puts it back at the end
	if err := os.Unsetenv(name); err != nil {
		t.Fatal(err)
	}
}
