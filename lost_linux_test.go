package ledger

import (
	"errors"
	"os"
	"slices"
	"testing"
	"time"
)

// A folder of rows that is renamed or not mounted leaves the rows unknown, not gone.
func TestALostFolderOfRowsIsNoEmptyLedger(t *testing.T) {
	s := reapStore(t)
	row, _ := enrolled(t, s, Entry{Runtime: hooked, SessionID: "c"})
	_, pane := host(t, s, "over", "over", "sleep", "1000")
	overRow(t, s, dirSessions, "over", 30*time.Second)
	startAgent(t, hookless)
	claims := func() []string {
		list, err := os.ReadDir(s.path(dirClaims))
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, e := range list {
			if isClaim(e.Name()) {
				names = append(names, e.Name())
			}
		}
		return names
	}
	held := claims()
	away := s.root + ".away"
	if err := os.Rename(s.path(dirSessions), away); err != nil {
		t.Fatal(err)
	}
	for name, do := range map[string]func() error{
		"sweep": func() error {
			rep, err := Sweep(t.Context(), s, SweepOptions{})
			if rep.Complete.Rows || len(rep.Enrolled) > 0 {
				t.Errorf("sweep: %+v", rep)
			}
			return err
		},
		"reap": func() error {
			rep, err := Reap(t.Context(), s, ReapOptions{})
			if rep.Complete || len(rep.Reaped) > 0 {
				t.Errorf("reap: %+v", rep)
			}
			return err
		},
		"tidy": func() error { _, err := s.Tidy(t.Context()); return err },
		"get":  func() error { _, err := s.Get(t.Context(), row.LedgerID); return err },
		"find": func() error { _, err := s.Find(t.Context(), Query{Process: row.Process()}); return err },
		"list": func() error {
			for _, err := range s.Entries(t.Context()) {
				return err
			}
			return nil
		},
		"update": func() error { _, err := s.Update(t.Context(), row.LedgerID, touch); return err },
		"enrol":  func() error { _, _, err := s.Enrol(t.Context(), row.PID, &EnrolOptions{Runtime: hooked}); return err },
		"rebuild the claims": func() error {
			putFile(t, s.path(dirClaims, claimsStamp), "another boot\n")
			return s.completeClaims(t.Context())
		},
	} {
		if err := do(); !errors.Is(err, ErrUnknown) || errors.Is(err, ErrNotFound) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := os.Lstat(s.path(dirSessions)); !os.IsNotExist(err) {
		t.Errorf("the folder was made again: %v", err)
	}
	if now := claims(); !slices.Equal(now, held) {
		t.Errorf("claims %v, were %v", now, held)
	}
	if _, err := s.procs.identify(pane.PID); err != nil {
		t.Errorf("the server was ended: %v", err)
	}
	found, err := s.Check(t.Context())
	if err != nil || len(found) != 1 || !found[0].Broken || found[0].Path != s.path(dirSessions) {
		t.Errorf("check: %+v, %v", found, err)
	}
	if _, err := s.CheckMachine(t.Context()); err != nil {
		t.Errorf("check of the machine: %v", err)
	}
	if err := os.Rename(away, s.path(dirSessions)); err != nil {
		t.Fatal(err)
	}
	if got := get(t, s, row.LedgerID); got.PID != row.PID || got.Revision != row.Revision {
		t.Errorf("brought back: %+v", got)
	}
	if rep := mustSweep(t, s, SweepOptions{}); !rep.Complete.Rows || len(rep.Enrolled) != 1 {
		t.Errorf("%+v", rep)
	}
}

// A new ledger has no folder yet, and one that a person begins anew gets one with its first
// session.
func TestALedgerBeginsWithItsFirstSession(t *testing.T) {
	s := sweepStore(t, nil)
	for range 2 {
		if rep := mustSweep(t, s, SweepOptions{}); !rep.Complete.Rows {
			t.Errorf("%+v", rep.Complete)
		}
		if rep, err := Reap(t.Context(), s, ReapOptions{}); err != nil {
			t.Errorf("%+v, %v", rep, err)
		}
	}
	lost, _ := enrolled(t, s, Entry{})
	if err := os.RemoveAll(s.path(dirSessions)); err != nil {
		t.Fatal(err)
	}
	next, _ := enrolled(t, s, Entry{})
	rows, _ := listed(t, s)
	if _, there := rows[next.LedgerID]; len(rows) != 1 || !there {
		t.Errorf("%v", rows)
	}
	if _, err := s.Get(t.Context(), lost.LedgerID); !errors.Is(err, ErrNotFound) {
		t.Error(err)
	}
}
