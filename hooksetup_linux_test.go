package ledger

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/sessionledger/ledger/internal/runtimes"
	"github.com/sessionledger/ledger/ledgertest"
)

// Case 77: a person's settings stay, and come back to the byte.
func TestInstallHooksKeepsAPersonsSettings(t *testing.T) {
	home := t.TempDir()
	opts := InstallOptions{Command: "'/opt/a b/ledgerctl' hook claude", Home: home, Getenv: func(string) string { return "" }}
	path := filepath.Join(home, ".claude", "settings.json")
	person := "{\n\t\"model\": \"opus\", \"n\": 1E+2,\n\t\"hooks\": {\"Stop\": [{\"hooks\": [{\"type\": \"command\", \"command\": \"say done\"}]}]}\n}\n"
	putFile(t, path, person)
	if now, missing, err := Hooks("claude", opts); err != nil || len(now.Events) > 0 || len(missing) != 11 || now.Changed {
		t.Errorf("before: %+v, %v, %v", now, missing, err)
	}
	c, err := InstallHooks("claude", opts)
	if err != nil || !c.Changed || c.Path != path || len(c.Events) != 11 || c.Runtime != "claude" {
		t.Fatalf("%+v, %v", c, err)
	}
	installed := readFile(t, path)
	if c, err = InstallHooks("claude", opts); err != nil || c.Changed || readFile(t, path) != installed {
		t.Errorf("again: %+v, %v", c, err)
	}
	if _, missing, err := Hooks("claude", opts); err != nil || len(missing) > 0 {
		t.Errorf("missing %v, %v", missing, err)
	}
	if c, err = UninstallHooks("claude", opts); err != nil || !c.Changed || len(c.Events) > 0 || readFile(t, path) != person {
		t.Errorf("undone: %+v, %v\n%s", c, err, readFile(t, path))
	}
	if c, err = UninstallHooks("claude", opts); err != nil || c.Changed {
		t.Errorf("undone again: %+v, %v", c, err)
	}
	for _, text := range []string{"{", `{"hooks": []}`, `{"hooks": {"Stop": 1}}`, "null x"} {
		putFile(t, path, text)
		if c, err := InstallHooks("claude", opts); err == nil || c.Changed || readFile(t, path) != text {
			t.Errorf("%q: %+v, %v", text, c, err)
		}
	}
	for name, opts := range map[string]InstallOptions{"aider": opts, "home-made": opts, "claude": {Home: home}} {
		if _, err := InstallHooks(name, opts); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The installed hooks of every runtime, run by its stand-in, bring the session in.
func TestInstalledHooksBringTheSessionIn(t *testing.T) {
	b := newBed(t)
	ctl := build(t, ctlPackage)
	for _, runtime := range HookRuntimes() {
		t.Run(runtime, func(t *testing.T) {
			if _, err := InstallHooks(runtime, InstallOptions{Command: ctl + " -dir " + b.s.root + " hook " + runtime}); err != nil {
				t.Fatal(err)
			}
			cmd := ledgertest.Command(t, runtime)
			cmd.Dir = b.dir
			a := ledgertest.Start(t, cmd)
			id := a.Session()
			a.Send("work")
			a.Expect("did work")
			e, err := b.s.Find(t.Context(), Query{PID: a.PID()})
			if err != nil {
				t.Fatal(err)
			}
			if e.SessionID != id || e.EnrolledBy != EnrolledByHook || e.RepoRoot != b.dir || e.TranscriptPath == "" {
				t.Errorf("%+v", e)
			}
			a.Send("/exit")
			a.Wait()
			spec, _ := runtimes.Builtin().Lookup(runtime)
			if e := b.get(e.LedgerID); e.IsOpen() == spec.HasEndHook {
				t.Errorf("after its end: %+v", e)
			}
			c, err := UninstallHooks(runtime, InstallOptions{Command: ctl + " -dir " + b.s.root + " hook " + runtime})
			if err != nil || !c.Changed {
				t.Errorf("%+v, %v", c, err)
			}
		})
	}
}

// The config home of another account is used where its variable names one.
func TestInstallHooksIntoTheAccountsOwnHome(t *testing.T) {
	other := t.TempDir()
	env := func(name string) string { return map[string]string{"CODEX_HOME": other}[name] }
	c, err := InstallHooks("codex", InstallOptions{Command: "x", Home: t.TempDir(), Getenv: env})
	if err != nil || c.Path != filepath.Join(other, "hooks.json") || !slices.Contains(c.Events, "SessionStart") {
		t.Errorf("%+v, %v", c, err)
	}
	if _, err := os.Stat(c.Path); err != nil {
		t.Error(err)
	}
}
