package ledger

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// The temp files of writers that are provably gone are cleared, and no others.
func TestTidyClearsTempsOfDeadWritersOnly(t *testing.T) {
	s := newStore(t, nil)
	born(t, s, "row")
	dead, cmd := startProcess(t)
	endProcess(cmd)
	me := self(t)
	tag := func(p ProcessID) string {
		return fmt.Sprintf("%d.%d.%s.%d.%d.%s", p.PIDNamespace, p.TimeNamespace, p.BootID, p.PID, p.StartTicks, p.HostID)
	}
	if tag(me) != s.tag() || !writerOf(s.tag()).Same(me) {
		t.Fatalf("%q is not the tag of %+v", s.tag(), me)
	}
	reused := me
	reused.StartTicks--
	elsewhere, otherSpace, otherBoot := dead, dead, dead
	elsewhere.HostID = "another-host"
	otherSpace.PIDNamespace++
	otherBoot.BootID = "00000000-0000-0000-0000-000000000000"
	stay := []string{".tmp-" + tag(me) + "-1", ".tmp-" + tag(elsewhere) + "-2", ".tmp-" + tag(otherSpace) + "-3",
		".tmp-unknown-4", ".tmp-1.2.3-5", ".tmp-x", ".tmp", "tmp-" + tag(dead) + "-6"}
	gone := []string{".tmp-" + tag(dead) + "-1", ".tmp-" + tag(reused) + "-2", ".tmp-" + tag(otherBoot) + "-3"}
	for _, sub := range []string{".", dirSessions, dirClaims} {
		for _, name := range append(stay, gone...) {
			putFile(t, s.path(sub, name), "x")
		}
	}
	found, err := s.Check(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	named := 0
	for _, f := range found {
		if f.Kind == FindTemp && !f.Broken && slices.Contains(gone, filepath.Base(f.Path)) {
			named++
		}
	}
	if named != 9 {
		t.Errorf("check names %d temp files: %v", named, found)
	}
	tidied, err := s.Tidy(t.Context())
	if err != nil || tidied.Temps != 9 || len(tidied.Warnings) > 0 {
		t.Errorf("%+v, %v", tidied, err)
	}
	for _, sub := range []string{".", dirSessions, dirClaims} {
		for _, name := range stay {
			if _, err := os.Lstat(s.path(sub, name)); err != nil {
				t.Errorf("%s/%s: %v", sub, name, err)
			}
		}
	}
}

// A finished row stays for a minute where a watcher sees it, then it is filed; open rows,
// archived and damaged ones stay.
func TestTidyFilesFinishedRows(t *testing.T) {
	clock := newClock()
	s := newStore(t, &Options{Clock: clock})
	ctx := t.Context()
	born(t, s, "open")
	born(t, s, "over")
	finished(t, s, "over")
	putRow(t, s, "torn", "")
	putRow(t, s, "archived", `{"schemaVersion":1,"ledgerId":"archived","phase":"archived"}`)
	clock.advance(fileAfter - time.Second)
	if tidied, err := s.Tidy(ctx); err != nil || len(tidied.Filed) > 0 {
		t.Errorf("too early: %+v, %v", tidied, err)
	}
	before := readFile(t, rowPath(s, "over"))
	clock.advance(time.Second)
	if tidied, err := s.Tidy(ctx); err != nil || !slices.Equal(tidied.Filed, []string{"over"}) || len(tidied.Warnings) > 0 {
		t.Errorf("%+v, %v", tidied, err)
	}
	if got := readFile(t, s.path(dirFinished, "over.json")); got != before {
		t.Errorf("filing changed the row: %s", got)
	}
	snapshot := snapshotFiles(t, s.root)
	for range 3 { // nothing to do is nothing done
		if tidied, err := s.Tidy(ctx); err != nil || len(tidied.Filed)+tidied.Temps+tidied.Claims+len(tidied.Warnings) > 0 {
			t.Errorf("%+v, %v", tidied, err)
		}
	}
	for path, was := range snapshot {
		if now := snapshotFiles(t, s.root)[path]; now != was {
			t.Errorf("%s: %.200s, was %.200s", path, now, was)
		}
	}
	open := map[string]bool{}
	for e, err := range s.OpenEntries(ctx) {
		if err == nil {
			open[e.LedgerID] = true
		}
	}
	if len(open) != 2 || !open["open"] || !open["archived"] {
		t.Errorf("open: %v", open)
	}
	if rows, _ := listed(t, s); len(rows) != 3 {
		t.Errorf("%d rows", len(rows))
	}
}

// A crash of the two-step rename, where a file system has no other, leaves both names.
func TestTidyEndsAHalfDoneFiling(t *testing.T) {
	clock := newClock()
	s := newStore(t, &Options{Clock: clock})
	born(t, s, "over")
	finished(t, s, "over")
	clock.advance(time.Hour)
	if _, err := s.dir(dirFinished); err != nil {
		t.Fatal(err)
	}
	if err := os.Link(rowPath(s, "over"), s.path(dirFinished, "over.json")); err != nil {
		t.Fatal(err)
	}
	if rows, _ := listed(t, s); len(rows) != 1 {
		t.Errorf("%d rows", len(rows))
	}
	if tidied, err := s.Tidy(t.Context()); err != nil || len(tidied.Filed) != 1 || len(tidied.Warnings) > 0 {
		t.Errorf("%+v, %v", tidied, err)
	}
	if e, err := s.Get(t.Context(), "over"); err != nil || e.Phase != PhaseFinished {
		t.Errorf("%+v, %v", e, err)
	}
}

// Another row's file under the same name is never replaced: the row is named.
func TestTidyNeverReplacesAFiledRow(t *testing.T) {
	clock := newClock()
	s := newBrokenStore(t, &Options{Clock: clock})
	born(t, s, "over")
	finished(t, s, "over")
	clock.advance(time.Hour)
	putFile(t, s.path(dirFinished, "over.json"), "{}")
	tidied, err := s.Tidy(t.Context())
	if err != nil || len(tidied.Filed) > 0 || len(tidied.Warnings) != 1 || !strings.Contains(tidied.Warnings[0].Error(), "over") {
		t.Errorf("%+v, %v", tidied, err)
	}
	if got := readFile(t, s.path(dirFinished, "over.json")); got != "{}" {
		t.Errorf("the filed row is now %s", got)
	}
}

// Case 15: a row that is filed, rewritten or removed while readers scan is listed once, and
// each row that is there throughout is never missed where the view says that it is whole.
func TestFilingBesideReaders(t *testing.T) {
	t.Parallel()
	for range 3 {
		testFilingBesideReaders(t)
	}
}

func testFilingBesideReaders(t *testing.T) {
	s := newStore(t, &Options{Clock: newClock()})
	const rows = 60
	id := func(i int) string { return fmt.Sprintf("over%03d", i%rows) }
	for i := range rows {
		putRow(t, s, id(i), `{"schemaVersion":1,"ledgerId":"`+id(i)+`","finishedAt":"2026-11-30T10:00:00Z"}`)
	}
	stop := make(chan struct{})
	var group, started sync.WaitGroup
	loop := func(do func() error) {
		started.Add(1)
		group.Go(func() {
			for first := true; ; first = false {
				err := do()
				if first {
					started.Done()
				}
				if err != nil {
					t.Error(err)
					return
				}
				select {
				case <-stop:
					return
				default:
				}
			}
		})
	}
	for range 3 {
		reader := openStore(t, s.root, nil)
		loop(func() error {
			seen := map[string]bool{}
			for e, err := range reader.Entries(context.Background()) {
				if err != nil {
					return err
				}
				if seen[e.LedgerID] {
					return fmt.Errorf("%s is listed twice", e.LedgerID)
				}
				seen[e.LedgerID] = true
			}
			if len(seen) != rows {
				return fmt.Errorf("%d of %d rows are listed", len(seen), rows)
			}
			return nil
		})
	}
	writer, n := openStore(t, s.root, nil), 0
	loop(func() error { // rewrites the rows where they lie
		n++
		_, err := writer.Update(context.Background(), id(n), touch, Relaxed())
		return err
	})
	started.Wait()
	if tidied, err := s.Tidy(t.Context()); err != nil || len(tidied.Filed) != rows || len(tidied.Warnings) > 0 {
		t.Errorf("%d filed, %v, %v", len(tidied.Filed), tidied.Warnings, err)
	}
	close(stop)
	group.Wait()
}

// Repair sets a row aside under its own name, as often as needed, and deletes nothing.
func TestRepairKeepsWhatItSetsAside(t *testing.T) {
	s := newStore(t, &Options{Clock: newClock()})
	for i := range 3 {
		putRow(t, s, "row", fmt.Sprintf("{torn %d", i))
		if err := s.Repair(t.Context(), "row"); err != nil {
			t.Fatal(err)
		}
	}
	putFile(t, s.path(dirFinished, "filed.json"), "{torn")
	if err := s.Repair(t.Context(), "filed"); err != nil {
		t.Fatal(err)
	}
	paths, err := filepath.Glob(s.path(dirDamaged, "*", "row.json"))
	if err != nil || len(paths) != 3 {
		t.Fatalf("%v, %v", paths, err)
	}
	for i, path := range paths {
		if got := readFile(t, path); got != fmt.Sprintf("{torn %d", i) {
			t.Errorf("%s holds %q", path, got)
		}
	}
	if rows, damaged := listed(t, s); len(rows)+len(damaged) > 0 {
		t.Errorf("%v %v", rows, damaged)
	}
	if err := s.Repair(t.Context(), "row"); !errors.Is(err, ErrNotFound) {
		t.Errorf("a row that is not there: %v, want ErrNotFound", err)
	}
}

// The warm cache never shows an old row: not after a rewrite that keeps size and time, and
// not after a read that failed.
func TestCacheIsNeverBehind(t *testing.T) {
	s := newStore(t, nil)
	old := time.Now().Add(-time.Hour)
	put := func(branch string) {
		path := rowPath(s, "row")
		putFile(t, path+".new", `{"schemaVersion":1,"ledgerId":"row","branch":"`+branch+`"}`)
		if err := errors.Join(os.Chtimes(path+".new", old, old), os.Rename(path+".new", path)); err != nil {
			t.Fatal(err)
		}
	}
	for _, branch := range []string{"a", "b", "c", "d", "e"} {
		put(branch)
		for range 2 {
			if rows, damaged := listed(t, s); rows["row"].Branch != branch || len(damaged) > 0 {
				t.Fatalf("branch %q, damaged %v, want %q", rows["row"].Branch, damaged, branch)
			}
			if e, err := s.Get(t.Context(), "row"); err != nil || e.Branch != branch {
				t.Fatalf("branch %q, %v, want %q", e.Branch, err, branch)
			}
		}
	}
	// Entries share nothing with the cache.
	putRow(t, s, "row", `{"schemaVersion":1,"ledgerId":"row","rescuedPaths":["a"],"worktree":true,"x":[1]}`)
	e, err := s.Get(t.Context(), "row")
	if err != nil {
		t.Fatal(err)
	}
	e.RescuedPaths[0], *e.Worktree = "changed", false
	if again, err := s.Get(t.Context(), "row"); err != nil || again.RescuedPaths[0] != "a" || !*again.Worktree {
		t.Errorf("the caller's change shows: %+v, %v", again, err)
	}
	// A name that is listed no more is forgotten.
	if err := os.Remove(rowPath(s, "row")); err != nil {
		t.Fatal(err)
	}
	if rows, _ := listed(t, s); len(rows) != 0 || len(s.cache.rows) != 0 {
		t.Errorf("rows %v, cached %d", rows, len(s.cache.rows))
	}
}

// Check finds each kind of fault, and calls broken what breaks a rule.
func TestCheckFindsEachFault(t *testing.T) {
	t.Parallel()
	const live = `{"schemaVersion":1,"ledgerId":"ID","runtime":"claude","phase":"live"`
	row := func(t *testing.T, s *Store, id, more string) {
		putRow(t, s, id, strings.Replace(live, "ID", id, 1)+more+"}")
	}
	lease := `,"lease":{"op":"kill","attempt":"a","nonce":"a","owner":{"bootId":"b","pid":1,"startTicks":1},"acquiredAt":"2026-01-01T00:00:00Z","acquiredBootSec":1}`
	for _, tt := range []struct {
		name   string
		kind   FindingKind
		id     string
		broken bool
		spoil  func(t *testing.T, s *Store)
	}{
		{"a torn row", FindDamaged, "torn", false, func(t *testing.T, s *Store) { putRow(t, s, "torn", "{") }},
		{"two rows, one process", FindDuplicate, "b", true, func(t *testing.T, s *Store) {
			row(t, s, "a", `,"pid":7,"pidStartTicks":7,"bootId":"b"`)
			row(t, s, "b", `,"pid":7,"pidStartTicks":7,"bootId":"b"`)
		}},
		{"two rows, one launched process", FindDuplicate, "b", true, func(t *testing.T, s *Store) {
			row(t, s, "a", `,"pid":7,"pidStartTicks":7,"bootId":"b"`)
			row(t, s, "b", `,"restore":{"attempt":"a","launched":{"pid":7,"startTicks":7,"bootId":"b"}}`)
		}},
		{"two open rows, one conversation", FindDuplicate, "b", true, func(t *testing.T, s *Store) {
			row(t, s, "a", `,"sessionId":"c"`)
			row(t, s, "b", `,"sessionId":"c"`)
		}},
		{"two open rows, one place", FindDuplicate, "b", true, func(t *testing.T, s *Store) {
			row(t, s, "a", `,"cwd":"/w","window":"w","slot":1`)
			row(t, s, "b", `,"repoRoot":"/w","window":"w","slot":1`)
		}},
		{"one id twice", FindDuplicate, "a", true, func(t *testing.T, s *Store) {
			row(t, s, "a", `,"finishedAt":"2026-01-01T00:00:00Z"`)
			putFile(t, s.path(dirFinished, "a.json"), readFile(t, rowPath(s, "a")))
		}},
		{"a claim is missing", FindClaim, "ENROLLED", true, func(t *testing.T, s *Store) { wipeAllClaims(t, s) }},
		{"a claim names another row", FindClaim, "ENROLLED", true, func(t *testing.T, s *Store) {
			e, err := s.Find(t.Context(), Query{Conversation: Conversation{"claude", "mine"}})
			if err != nil {
				t.Fatal(err)
			}
			putFile(t, s.path(dirClaims, processClaim(e.Process()).file()), "other\n")
		}},
		{"filed away and open", FindState, "a", true, func(t *testing.T, s *Store) {
			putFile(t, s.path(dirFinished, "a.json"), strings.Replace(live, "ID", "a", 1)+"}")
		}},
		{"finished without a time", FindState, "a", true, func(t *testing.T, s *Store) {
			putRow(t, s, "a", `{"schemaVersion":1,"ledgerId":"a","phase":"finished"}`)
		}},
		{"frozen without its output", FindState, "a", true, func(t *testing.T, s *Store) {
			putRow(t, s, "a", `{"schemaVersion":1,"ledgerId":"a","phase":"frozen"}`)
		}},
		{"a phase that does not exist", FindState, "a", true, func(t *testing.T, s *Store) {
			putRow(t, s, "a", `{"schemaVersion":1,"ledgerId":"a","phase":"asleep"}`)
		}},
		{"an operation that does not exist", FindState, "a", true, func(t *testing.T, s *Store) {
			row(t, s, "a", strings.Replace(lease, "kill", "dance", 1)+`,"finishedAt":"2026-01-01T00:00:00Z"`)
		}},
		{"a file that others read", FindMode, "", true, func(t *testing.T, s *Store) {
			if err := os.Chmod(s.path(dirLocks), 0o700); err != nil {
				t.Fatal(err)
			}
			row(t, s, "a", "")
			if err := os.Chmod(rowPath(s, "a"), 0o604); err != nil {
				t.Fatal(err)
			}
		}},
		{"a folder that others write to", FindMode, "", true, func(t *testing.T, s *Store) {
			if err := os.Chmod(s.path(dirLocks), 0o720); err != nil {
				t.Fatal(err)
			}
		}},
		{"a folder that others list", FindMode, "", false, func(t *testing.T, s *Store) {
			if err := os.Chmod(s.path(dirLocks), 0o755); err != nil {
				t.Fatal(err)
			}
		}},
		{"a left temp file", FindTemp, "", false, func(t *testing.T, s *Store) {
			tag := strings.Replace(s.tag(), self(t).BootID, "another-boot", 1)
			putFile(t, s.path(dirSessions, ".tmp-"+tag+"-1"), "")
		}},
		{"an operation in flight", FindLease, "a", false, func(t *testing.T, s *Store) { row(t, s, "a", lease) }},
		{"a kill that is to come", FindKill, "a", false, func(t *testing.T, s *Store) { row(t, s, "a", `,"killIntentAt":"2026-01-01T00:00:00Z"`) }},
		{"attention", FindAttention, "a", false, func(t *testing.T, s *Store) {
			row(t, s, "a", `,"attention":{"since":"2026-01-01T00:00:00Z","reason":"look"}`)
		}},
		{"a newer version", FindSchema, "a", false, func(t *testing.T, s *Store) { putRow(t, s, "a", `{"schemaVersion":2,"ledgerId":"a"}`) }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newBrokenStore(t, nil)
			e, _ := enrolled(t, s, Entry{SessionID: "mine", Window: "v", Cwd: "/v"})
			before, err := s.Check(t.Context())
			if err != nil || len(before) > 0 {
				t.Fatalf("a good ledger: %v, %v", before, err)
			}
			tt.spoil(t, s)
			files := snapshotFiles(t, s.root)
			found, err := s.Check(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			id := strings.Replace(tt.id, "ENROLLED", e.LedgerID, 1)
			if !slices.ContainsFunc(found, func(f Finding) bool {
				return f.Kind == tt.kind && f.ID == id && f.Broken == tt.broken && f.Message != "" && (f.ID != "" || f.Path != "")
			}) {
				t.Errorf("found %+v, want %s of %q", found, tt.kind, id)
			}
			for _, f := range found {
				// (The rows of a duplicate, put there by hand, have no claims.)
				if f.Kind != tt.kind && tt.kind != FindDuplicate {
					t.Errorf("found besides: %+v", f)
				}
			}
			for path, was := range files {
				if snapshotFiles(t, s.root)[path] != was {
					t.Errorf("check changed %s", path)
				}
			}
		})
	}
}

// wipeAllClaims removes the claims and leaves the stamp, which says that none is missing.
func wipeAllClaims(t *testing.T, s *Store) {
	t.Helper()
	paths, err := filepath.Glob(s.path(dirClaims, "*-*"))
	if err != nil || len(paths) != 3 {
		t.Fatalf("%v, %v", paths, err)
	}
	for _, path := range paths {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
}
