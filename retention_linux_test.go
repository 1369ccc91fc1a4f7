package ledger

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

const day = 24 * time.Hour

func TestRetentionClauseByClause(t *testing.T) {
	now := newClock().Now()
	over := func(age time.Duration, edit ...func(*Entry)) *Entry {
		e := &Entry{LedgerID: "row", Phase: PhaseFinished, FinishedAt: now.Add(-age), StateAt: now.Add(-age)}
		for _, f := range edit {
			f(e)
		}
		return e
	}
	frozen := &Entry{LedgerID: "row", Phase: PhaseFrozen, Frozen: &Frozen{At: now.Add(-90 * day), Attempt: "a"}, SessionID: "c"}
	for _, c := range []struct {
		name string
		c    retentionCase
		want string
	}{
		{"31 days", retentionCase{entry: over(31 * day)}, "finished"},
		{"30 days", retentionCase{entry: over(30 * day)}, "finished"},
		{"29 days", retentionCase{entry: over(29 * day)}, ""},
		{"in the future", retentionCase{entry: over(-day)}, ""},
		{"kept for ever", retentionCase{entry: over(900 * day), keep: -1}, ""},
		{"open", retentionCase{entry: &Entry{Phase: PhaseLive, StartedAt: now.Add(-90 * day)}}, ""},
		{"open and tombstoned", retentionCase{entry: &Entry{Phase: PhaseLive, KillIntentAt: now.Add(-90 * day)}}, ""},
		{"archived", retentionCase{entry: &Entry{Phase: PhaseArchived, StateAt: now.Add(-90 * day)}}, ""},
		{"frozen", retentionCase{entry: frozen, capture: Yes}, ""},
		{"frozen, not known whether its capture is there", retentionCase{entry: frozen}, ""},
		{"frozen, capture gone", retentionCase{entry: frozen, capture: No}, "capture_missing"},
		{"attention", retentionCase{entry: over(60*day, func(e *Entry) { e.Attention = &Note{} })}, ""},
		{"in an operation", retentionCase{entry: over(60*day, func(e *Entry) { e.Lease = &Lease{Op: OpDrop} })}, ""},
		{"newer version", retentionCase{entry: over(60*day, func(e *Entry) { e.SchemaVersion = 2 })}, ""},
		{"its process lives on", retentionCase{entry: over(60 * day), process: Running}, ""},
		{"its process is elsewhere", retentionCase{entry: over(60 * day)}, "finished"},
		{"a capture kept lately", retentionCase{entry: over(60*day, func(e *Entry) { e.Frozen, e.StateAt = &Frozen{Kept: []string{"k"}}, now.Add(-day) })}, ""},
		{"a capture kept long ago", retentionCase{entry: over(60*day, func(e *Entry) { e.Frozen = &Frozen{Kept: []string{"k"}} })}, "finished"},
	} {
		c.c.now = now
		if c.c.keep == 0 {
			c.c.keep = DefaultRetention
		}
		if got, _ := retention(&c.c); got.name != c.want {
			t.Errorf("%s: %q, want %q", c.name, got.name, c.want)
		}
	}
}

// overRow writes a finished row as it is in finished/.
func overRow(t testing.TB, s *Store, sub, id string, age time.Duration) {
	t.Helper()
	at := s.now().Add(-age)
	writeEntry(t, s, sub, &Entry{SchemaVersion: 1, LedgerID: id, Runtime: hooked, Phase: PhaseFinished, Revision: 3,
		StartedAt: at, FinishedAt: at, StateAt: at, FinishReason: "over"})
}

func prunedIDs(rep Report) (ids []string) {
	for _, p := range rep.Pruned {
		ids = append(ids, p.ID)
	}
	slices.Sort(ids)
	return ids
}

func TestRetentionListsFinishedRowsOnceADayAndGetsThroughABacklog(t *testing.T) {
	clock := newClock()
	s := sweepStore(t, clock)
	minted := func(age time.Duration, n int) string {
		return fmt.Sprintf("x-%s-%06d", clock.Now().Add(-age).Format("20060102T150405Z"), n)
	}
	for i := range 40 {
		overRow(t, s, dirFinished, minted(40*day, i), 40*day)
	}
	overRow(t, s, dirFinished, "foreign-name", 35*day)
	overRow(t, s, dirFinished, minted(50*day, 7), 29*day) // long ago begun, and not so long ago ended
	overRow(t, s, dirFinished, minted(2*day, 8), 2*day)
	putFile(t, s.path(dirFinished, "damaged.json"), "{")
	capture := s.path("frozen", minted(40*day, 0), "attempt", "capture.ansi")
	putFile(t, capture, "output")

	rep := mustSweep(t, s, SweepOptions{})
	if len(rep.Pruned) != maxRetired || rep.Pruned[0].Clause != "finished" {
		t.Fatalf("%d pruned; %+v", len(rep.Pruned), rep.UpdateFailures)
	}
	gone := prunedIDs(rep)
	gone = append(gone, prunedIDs(mustSweep(t, s, SweepOptions{}))...)
	if len(gone) != 41 || len(prunedIDs(mustSweep(t, s, SweepOptions{}))) > 0 {
		t.Errorf("%d rows are gone", len(gone))
	}
	if _, err := os.Stat(capture); err == nil {
		t.Error("its capture is still there")
	}
	overRow(t, s, dirFinished, "late", 35*day)
	clock.advance(23 * time.Hour)
	if got := prunedIDs(mustSweep(t, s, SweepOptions{})); len(got) > 0 {
		t.Errorf("listed again within a day: %v", got)
	}
	clock.advance(2 * day)
	if got := prunedIDs(mustSweep(t, s, SweepOptions{})); len(got) != 2 {
		t.Errorf("after two days: %v", got) // the late one, and the one that has come of age
	}
	if got := readFile(t, s.path(dirFinished, "damaged.json")); got != "{" {
		t.Errorf("the damaged row is now %q", got)
	}
	get(t, s, minted(2*day+23*time.Hour+2*day, 8))
}

func TestRetentionKeepsWhatAPeriodOfItsOwnSays(t *testing.T) {
	clock := newClock()
	s := sweepStore(t, clock)
	overRow(t, s, dirSessions, "old", 400*day)
	overRow(t, s, dirFinished, "older", 500*day)
	if rep := mustSweep(t, s, SweepOptions{Retention: -1}); len(rep.Pruned) > 0 {
		t.Errorf("pruned %v", rep.Pruned)
	}
	clock.advance(2 * day)
	if got := prunedIDs(mustSweep(t, s, SweepOptions{Retention: 450 * day})); !slices.Equal(got, []string{"older"}) {
		t.Errorf("pruned %v", got)
	}
}

func TestAFrozenRowLosesACaptureThatIsGoneAndStays(t *testing.T) {
	s := sweepStore(t, nil)
	frozen := func(session string) func(e *Entry) {
		return func(e *Entry) {
			e.Phase, e.SessionID = PhaseFrozen, session
			e.Frozen = &Frozen{At: e.StartedAt, Attempt: "a1", Mode: FreezeShell, Lines: 3}
		}
	}
	deadRow(t, s, "resumable", hooked, frozen("c"))
	deadRow(t, s, "bare", hooked, otherTicks(1), frozen(""))
	if rep := mustSweep(t, s, SweepOptions{}); len(rep.Pruned) > 0 {
		t.Fatalf("without the folder of captures nothing is known of any: %v", rep.Pruned)
	}
	if err := os.Mkdir(s.path("frozen"), 0o700); err != nil {
		t.Fatal(err)
	}
	rep := mustSweep(t, s, SweepOptions{})
	if got := prunedIDs(rep); !slices.Equal(got, []string{"bare", "resumable"}) || rep.Pruned[0].Clause != "capture_missing" {
		t.Fatalf("pruned %v", rep.Pruned)
	}
	for id, says := range map[string]string{"resumable": "resume still brings", "bare": "no conversation"} {
		e := get(t, s, id)
		if e.Phase != PhaseFrozen || e.Frozen.Attempt != "" || e.Frozen.Mode != FreezeShell || e.Attention == nil || !strings.Contains(e.Attention.Reason, says) {
			t.Errorf("%s: %+v, %+v", id, e.Frozen, e.Attention)
		}
	}
	if rep = mustSweep(t, s, SweepOptions{}); len(rep.Pruned) > 0 {
		t.Errorf("again: %v", rep.Pruned)
	}
}

func TestSweepFilesABacklogInLargeBatches(t *testing.T) {
	s := sweepStore(t, newClock())
	n := 1_200
	if *sweepFull {
		n = 25_000
	}
	for i := range n {
		overRow(t, s, dirSessions, fmt.Sprintf("row%05d", i), time.Hour)
	}
	overRow(t, s, dirSessions, "just-now", 10*time.Second)
	left := n
	for left > 0 {
		rep := mustSweep(t, s, SweepOptions{})
		if len(rep.Filed) < min(left, 10_000) {
			t.Fatalf("%d of %d rows were filed", len(rep.Filed), left)
		}
		left -= len(rep.Filed)
	}
	names, _, err := s.list(t.Context(), dirSessions)
	if err != nil || !slices.Equal(names, []string{"just-now.json"}) {
		t.Errorf("%d names are left, %v", len(names), err)
	}
}

func TestSweepClearsWhatIsLeftOver(t *testing.T) {
	s := sweepStore(t, nil)
	named := func(e *Entry) {
		e.Phase, e.SessionID = PhaseFrozen, "c"
		e.Frozen = &Frozen{At: e.StartedAt, Attempt: "now", Kept: []string{"kept"}, Mode: FreezeShell}
	}
	deadRow(t, s, "frozen", hooked, named)
	deadRow(t, s, "capped", hooked, otherTicks(1), named, func(e *Entry) { e.SessionID, e.Frozen.KeptMore = "d", 1 })
	putFile(t, rowPath(s, "damaged"), "{")
	begun := born(t, s, "begun")
	for _, path := range []string{"frozen/now", "frozen/kept", "frozen/left", "capped/now", "capped/left", "damaged/left", "absent/left",
		"begun/" + begun.Lease.Attempt} {
		putFile(t, s.path("frozen", path, "capture.ansi"), "output")
	}
	outside := t.TempDir()
	putFile(t, filepath.Join(outside, "sub", "file"), "a person's")
	if err := os.Symlink(outside, s.path("frozen", "linked")); err != nil {
		t.Fatal(err)
	}
	dead, alive := deadProcess(), self(t)
	temp := func(p ProcessID) string {
		return s.path(dirSessions, fmt.Sprintf(".tmp-%d.%d.%s.%d.%d.%s-0000000000000001", p.PIDNamespace, p.TimeNamespace, p.BootID, p.PID, p.StartTicks, p.HostID))
	}
	old, fresh := s.path(dirScratch, "rescue-old"), s.path(dirScratch, "rescue-new")
	for _, path := range []string{temp(dead), temp(alive), filepath.Join(old, "index"), filepath.Join(fresh, "index")} {
		putFile(t, path, "x")
	}
	long := time.Now().Add(-2 * time.Hour)
	if err := os.Chtimes(old, long, long); err != nil {
		t.Fatal(err)
	}
	mustSweep(t, s, SweepOptions{})
	for path, want := range map[string]bool{
		"frozen/frozen/now": true, "frozen/frozen/kept": true, "frozen/frozen/left": false, "frozen/capped/now": true,
		"frozen/capped/left": true, "frozen/damaged/left": true, "frozen/absent": false,
		"frozen/begun/" + begun.Lease.Attempt: true, "frozen/linked/sub/file": true,
		strings.TrimPrefix(old, s.root+"/"): false, strings.TrimPrefix(fresh, s.root+"/"): true,
		strings.TrimPrefix(temp(dead), s.root+"/"): false, strings.TrimPrefix(temp(alive), s.root+"/"): true,
	} {
		if _, err := os.Stat(s.path(path)); (err == nil) != want {
			t.Errorf("%s: there %v, want %v", path, err == nil, want)
		}
	}
}

func TestASharedFolderOfCapturesKeepsThoseOfOtherLedgers(t *testing.T) {
	shared := t.TempDir()
	t.Setenv("AGENT_FROZEN_DIR", shared)
	s := sweepStore(t, nil)
	putFile(t, filepath.Join(shared, "elsewhere", "attempt", "capture.ansi"), "output")
	mustSweep(t, s, SweepOptions{})
	if _, err := os.Stat(filepath.Join(shared, "elsewhere", "attempt", "capture.ansi")); err != nil {
		t.Error(err)
	}
}
