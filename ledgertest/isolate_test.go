package ledgertest_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sessionledger/ledger/ledgertest"
)

// A recorder is a test whose failures are counted and not its own.
type recorder struct {
	testing.TB
	said []string
}

func (r *recorder) Errorf(format string, args ...any) {
	r.said = append(r.said, fmt.Sprintf(format, args...))
}
func (r *recorder) Logf(string, ...any) {}
func (r *recorder) Helper()             {}

func TestIsolationIsWholeAndEnds(t *testing.T) {
	t.Setenv("CLAUDE_CONFIG_DIR", "/somewhere")
	t.Setenv("CLAUDECODE", "1")
	t.Setenv("AGENT_LEDGER_ID", "x")
	t.Setenv("AGENT_SESSIONS_DIR", "/elsewhere")
	t.Setenv("TMUX", "/tmp/x,1,2")
	t.Setenv("GIT_DIR", "/a/repository")
	t.Setenv("XDG_SOMETHING", "x")
	before := os.Environ()
	var home string
	t.Run("", func(t *testing.T) {
		home = ledgertest.Isolate(t)
		for _, name := range []string{"CLAUDE_CONFIG_DIR", "CLAUDECODE", "AGENT_LEDGER_ID", "AGENT_SESSIONS_DIR", "TMUX", "GIT_DIR", "XDG_SOMETHING"} {
			if v, ok := os.LookupEnv(name); ok {
				t.Errorf("%s is %q", name, v)
			}
		}
		if got, err := os.UserHomeDir(); err != nil || got != home {
			t.Errorf("home %s, %v", got, err)
		}
		for _, name := range []string{"XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME", "XDG_RUNTIME_DIR", "TMUX_TMPDIR"} {
			if v := os.Getenv(name); !strings.HasPrefix(v, filepath.Dir(home)+string(filepath.Separator)) {
				t.Errorf("%s is %q", name, v)
			}
		}
		// tmux puts tmux-<uid>/<name> below it, and has 107 bytes.
		if v := os.Getenv("TMUX_TMPDIR"); len(v) > 40 {
			t.Errorf("TMUX_TMPDIR has %d bytes", len(v))
		}
		if os.Getenv(ledgertest.Marker) == "" {
			t.Error("no marker")
		}
		git := exec.Command("git", "config", "--list")
		git.Dir = home
		if out, err := git.CombinedOutput(); err != nil || len(out) > 0 {
			t.Errorf("git's settings: %s, %v", out, err)
		}
	})
	// What was unset and set again has another place.
	after := os.Environ()
	slices.Sort(before)
	slices.Sort(after)
	if diff := cmp.Diff(before, after); diff != "" {
		t.Errorf("environment (-before +after):\n%s", diff)
	}
	if _, err := os.Lstat(filepath.Dir(home)); !os.IsNotExist(err) {
		t.Errorf("%s is left: %v", home, err)
	}
}

// TestCleanFindsAndKills: a process that is not below this one, with a session
// of its own, and a tmux server that does not bear the marker.
func TestCleanFindsAndKills(t *testing.T) {
	home := ledgertest.Isolate(t)
	want := 0
	if runtime.GOOS == "linux" {
		sleep := exec.Command("sh", "-c", "setsid sleep 1000 </dev/null >/dev/null 2>&1 &")
		sleep.Dir = home
		if out, err := sleep.CombinedOutput(); err != nil {
			t.Fatalf("%s, %v", out, err)
		}
		want++
	}
	if _, err := exec.LookPath("tmux"); err == nil {
		server := exec.Command("tmux", "-L", "x", "-f", os.DevNull, "new-session", "-d", "sleep", "2000")
		server.Env = slices.DeleteFunc(os.Environ(), func(kv string) bool { return strings.HasPrefix(kv, ledgertest.Marker+"=") })
		if out, err := server.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		want++
	} else if os.Getenv("CI") == "true" {
		t.Fatal(err)
	}
	r := &recorder{TB: t}
	ledgertest.Clean(r)
	said := strings.Join(r.said, "\n")
	if len(r.said) != want || want > 0 && runtime.GOOS == "linux" && !strings.Contains(said, "sleep 1000") ||
		strings.Contains(said, "sleep 2000") || want > 1 && !strings.Contains(said, "a tmux server at "+os.Getenv("TMUX_TMPDIR")) {
		t.Errorf("Clean said %q", r.said)
	}
	r = &recorder{TB: t}
	ledgertest.Clean(r)
	if len(r.said) > 0 {
		t.Errorf("after that it said %q", r.said)
	}
}

func TestAwait(t *testing.T) {
	n := 0
	ledgertest.Await(t, "the third look", func() bool { n++; return n == 3 })
	if n != 3 {
		t.Errorf("looked %d times", n)
	}
}
