package scratch_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/sessionledger/ledger"
	"github.com/sessionledger/ledger/ledgertest/scratch"
)

func TestOpenGivesALedgerOfItsOwn(t *testing.T) {
	a, b := scratch.Open(t, nil), scratch.Open(t, nil)
	self, err := ledger.Self()
	if err != nil {
		t.Skip("no process identities here")
	}
	e, err := a.Create(t.Context(), ledger.Entry{Runtime: "claude"}, ledger.BeginCreate(self))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.Get(t.Context(), e.LedgerID); err == nil {
		t.Error("two scratch ledgers share a row")
	}
}

// notes is a testing.TB that counts failures instead of failing.
type notes struct {
	testing.TB
	failed int
}

func (r *notes) Helper()               {}
func (r *notes) Errorf(string, ...any) { r.failed++ }
func (r *notes) Fatal(...any)          { r.failed++ }

func TestCheckFindsABrokenRule(t *testing.T) {
	store, err := ledger.Open(filepath.Join(t.TempDir(), "ledger"), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	r := &notes{TB: t}
	if scratch.Check(r, store); r.failed != 0 {
		t.Errorf("an empty ledger breaks %d rules", r.failed)
	}
	// An open row among the finished ones is what no writer leaves.
	dir := filepath.Join(store.Dir(), "sessions", "finished")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	row := `{"schemaVersion":1,"ledgerId":"claude-1","runtime":"claude","phase":"live"}`
	if err := os.WriteFile(filepath.Join(dir, "claude-1.json"), []byte(row), 0o600); err != nil {
		t.Fatal(err)
	}
	if scratch.Check(r, store); r.failed == 0 {
		t.Error("a broken rule was not found")
	}
}
