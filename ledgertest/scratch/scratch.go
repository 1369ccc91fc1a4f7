// Package scratch gives a test a ledger of its own, which must keep its rules. It is apart
// from package ledgertest so that the ledger's own tests can use that.
package scratch

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/sessionledger/ledger"
)

// checkWait bounds the look through a scratch ledger.
const checkWait = time.Minute

// Open opens a scratch ledger in a folder of the test's own. At the end of the test the
// whole ledger must keep its rules (see Check), and the store is closed. A program that
// opens the default ledger is given it by t.Setenv("AGENT_SESSIONS_DIR", store.Dir()).
//
// The folder is the test's own, the processes are not: Sweep looks at the whole machine,
// also in an isolated test. It enrols agents that the test did not start, a person's own
// too, and a Kill of their rows then ends them. Kill only what the test started, or run
// the test in a pid namespace.
func Open(t testing.TB, opts *ledger.Options) *ledger.Store {
	t.Helper()
	store, err := ledger.Open(filepath.Join(t.TempDir(), "ledger"), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		Check(t, store)
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	return store
}

// Check fails the test for every rule of the ledger that does not hold. What only needs a
// person's or the next sweep's care, such as an operation in flight, is no failure.
func Check(t testing.TB, store *ledger.Store) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), checkWait)
	defer cancel()
	findings, err := store.Check(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range findings {
		if f.Broken {
			t.Errorf("the ledger breaks a rule: %s %s %s %s", f.Kind, f.ID, f.Path, f.Message)
		}
	}
}
