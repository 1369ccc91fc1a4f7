package ledgertest_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sessionledger/ledger/internal/runtimes"
	"github.com/sessionledger/ledger/internal/settings"
	"github.com/sessionledger/ledger/ledgertest"
)

func TestMain(m *testing.M) { os.Exit(ledgertest.Main(m)) }

// spec is what the library knows of a runtime, against which the stand-in is
// held: the two were written apart.
func spec(t *testing.T, runtime string) runtimes.Spec {
	t.Helper()
	s, ok := runtimes.Builtin().Lookup(runtime)
	if !ok {
		t.Fatalf("no runtime %s", runtime)
	}
	return s
}

// homes are those of the test's environment.
func homes() runtimes.Homes { return runtimes.Homes{Getenv: os.Getenv} }

// project makes a directory to work in.
func project(t *testing.T, home string) string {
	t.Helper()
	dir := filepath.Join(home, "src", "my project.x")
	if err := os.MkdirAll(filepath.Join(dir, ".git"), 0o700); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, ".git", "HEAD"), "ref: refs/heads/topic/x\n")
	return dir
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// start starts a runtime in a directory.
func start(t *testing.T, dir, runtime string, args ...string) *ledgertest.Agent {
	t.Helper()
	cmd := ledgertest.Command(t, runtime, args...)
	cmd.Dir = dir
	return ledgertest.Start(t, cmd)
}

// hookFile is where the stand-in looks for a runtime's hooks.
func hookFile(t *testing.T, runtime string) string {
	t.Helper()
	name := map[string]string{"claude": "settings.json", "gemini": "settings.json", "qwen": "settings.json",
		"codex": "hooks.json", "cursor-agent": "hooks.json", "copilot": "hooks/ledger.json"}[runtime]
	return filepath.Join(spec(t, runtime).ConfigHome(homes()), name)
}

// hooked sets every hook of a runtime up to keep its payloads, one a line, and
// returns a function that reads them.
func hooked(t *testing.T, home, runtime string) func() []runtimes.HookEvent {
	t.Helper()
	path := filepath.Join(home, "payloads-"+runtime)
	form, err := settings.FormOf(runtime)
	if err != nil {
		t.Fatal(err)
	}
	// One write, so that hooks that run side by side do not mix.
	command := "p=$(cat); printf '%s\\n' \"$p\" >>'" + path + "'"
	if _, err := settings.Install(hookFile(t, runtime), form, spec(t, runtime).Hooks, command, 0); err != nil {
		t.Fatal(err)
	}
	return func() (events []runtimes.HookEvent) {
		text, err := os.ReadFile(path)
		if os.IsNotExist(err) {
			return nil
		} else if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			e, err := runtimes.ParseHook(runtime, []byte(line))
			if err != nil {
				t.Fatalf("%v: %s", err, line)
			}
			events = append(events, e)
		}
		return events
	}
}

// kinds are the kinds of events with what says most about them.
func kinds(events []runtimes.HookEvent) (said []string) {
	for _, e := range events {
		s := e.Kind.String()
		for _, detail := range []string{e.Source, e.Reason, e.NotificationType, e.Error} {
			if detail != "" {
				s += " " + detail
				break
			}
		}
		said = append(said, s)
	}
	return said
}
