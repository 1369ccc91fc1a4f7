package ledger

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
)

// spoilings are what can become of a claim that is lost.
var spoilings = map[string]func(path string) error{
	"deleted": os.Remove,
	"empty":   func(path string) error { return os.WriteFile(path, nil, 0o600) },
	"torn":    func(path string) error { return os.WriteFile(path, []byte("\x00\x00garbage/../x\n"), 0o600) },
	"of a row that is not there": func(path string) error {
		return os.WriteFile(path, []byte("claude-20200101T000000Z-000001\n"), 0o600)
	},
	"a pipe": func(path string) error {
		if err := os.Remove(path); err != nil {
			return err
		}
		return syscall.Mkfifo(path, 0o600)
	},
}

// spoil does so to all claims of a row.
func spoil(t *testing.T, s *Store, id string, do func(path string) error) {
	t.Helper()
	n := 0
	list, err := os.ReadDir(s.path(dirClaims))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range list {
		path := s.path(dirClaims, e.Name())
		if isClaim(e.Name()) && e.Type().IsRegular() && readFile(t, path) == id+"\n" {
			n++
			if err := do(path); err != nil {
				t.Fatal(err)
			}
		}
	}
	if n < 2 {
		t.Fatalf("%d claims of %q", n, id)
	}
}

// A claim that was lost costs no row its process or conversation, and the next sweep
// writes it again.
func TestLostClaimsMakeNoSecondRowAndHeal(t *testing.T) {
	for name, do := range spoilings {
		for _, carries := range []bool{false, true} {
			t.Run(fmt.Sprint(name, " carries ", carries), func(t *testing.T) {
				s := sweepStore(t, nil)
				env := treeEnv(s.home)
				if carries {
					env = append(env, envID+"="+hooked+"-20260101T000000Z-000001")
				}
				pids := growTree(t, shell("shell", env, agent("agent", hooked, env, shell("hook", env))))
				payload := `{"hook_event_name":"SessionStart","session_id":"6c1e0a52-6d5e-4a1e-9b8e-0123456789ab"}`
				hook := func() HookResult { return deliver(t, s, AnyRuntime, pids["hook"], payload) }
				first := hook()
				if first.LedgerID == "" || strings.HasSuffix(first.LedgerID, "Z-000001") != carries {
					t.Fatalf("%+v", first)
				}
				heal := func(what string) {
					t.Helper()
					rep := mustSweep(t, s, SweepOptions{})
					if len(rep.UpdateFailures) > 0 {
						t.Errorf("%s: %+v", what, rep)
					}
					if e := single(t, s); e.LedgerID != first.LedgerID {
						t.Errorf("%s: another row: %+v", what, e)
					}
					checkLedger(t, s.root)
				}
				spoil(t, s, first.LedgerID, do)
				if name != "deleted" || carries {
					hook()
				}
				heal("after a hook")
				spoil(t, s, first.LedgerID, do)
				heal("before a hook")
				if again := hook(); again.LedgerID != first.LedgerID {
					t.Errorf("%+v", again)
				}
				if e := single(t, s); e.LedgerID != first.LedgerID || e.Attention != nil || !strings.HasPrefix(e.SessionID, "6c1e") {
					t.Errorf("%+v", e)
				}
			})
		}
	}
}
