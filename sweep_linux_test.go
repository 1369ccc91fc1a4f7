package ledger

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// sweepFull turns the long searches on: 1,000 idle passes, 200 kills.
var sweepFull = flag.Bool("sweep.full", false, "run the sweep's long searches too")

// The runtimes of these tests have names of their own, so that no pass meets a session of
// the machine that runs them.
var (
	hooked   = fmt.Sprintf("hooked%d", os.Getpid())   // has an end hook
	hookless = fmt.Sprintf("hookless%d", os.Getpid()) // has none
)

func sweepRuntimes(hooked, hookless string) *Runtimes {
	return (&Runtimes{}).With(Runtime{Name: hooked, HasEndHook: true}).With(Runtime{Name: hookless})
}

// sweepStore opens a ledger whose sweeps see no process but the test's own.
func sweepStore(t testing.TB, clock Clock) *Store {
	t.Helper()
	return newStore(t, &Options{Runtimes: sweepRuntimes(hooked, hookless), Clock: clock, Home: t.TempDir()})
}

// startAgent starts a stand-in of a runtime: a program that only its command line makes one.
func startAgent(t testing.TB, runtime string, env ...string) (ProcessID, *exec.Cmd) {
	t.Helper()
	path, err := exec.LookPath("sleep")
	if err != nil {
		t.Fatal(err)
	}
	cmd := &exec.Cmd{Path: path, Args: []string{runtime, "1000"}, Dir: t.TempDir(), Env: append(os.Environ(), env...)}
	return started(t, cmd), cmd
}

// deadProcess is a process of this boot that has ended.
var deadProcess = sync.OnceValue(func() ProcessID {
	cmd := exec.Command("sleep", "1000")
	if err := cmd.Start(); err != nil {
		panic(err)
	}
	p, err := newTable("").identify(cmd.Process.Pid)
	endProcess(cmd)
	if err != nil {
		panic(err)
	}
	return p
})

// deadRow writes a live row whose process is gone, as a hook or a launcher left it.
func deadRow(t testing.TB, s *Store, id, runtime string, edit ...func(*Entry)) {
	t.Helper()
	p := deadProcess()
	e := Entry{SchemaVersion: 1, LedgerID: id, Runtime: runtime, Phase: PhaseLive, Revision: 1, Epoch: 1,
		StartedAt: s.now().Add(-time.Hour), StateAt: s.now().Add(-time.Hour), ProcessDescribedAt: s.now().Add(-time.Hour),
		PID: p.PID, PIDStartTicks: &p.StartTicks, BootID: p.BootID, HostID: p.HostID, PIDNamespace: p.PIDNamespace, TimeNamespace: p.TimeNamespace}
	for _, f := range edit {
		f(&e)
	}
	writeEntry(t, s, dirSessions, &e)
}

func writeEntry(t testing.TB, s *Store, sub string, e *Entry) {
	t.Helper()
	data, err := encodeEntry(e)
	if err != nil {
		t.Fatal(err)
	}
	putFile(t, s.path(sub, e.LedgerID+rowExtension), string(data))
	os.Remove(s.path(dirClaims, claimsStamp)) // a row that was put there by hand has no claims
}

// rescued makes a row one whose work was looked after.
func rescued(e *Entry) { e.RescuedAt = e.StartedAt }

// otherTicks gives each dead row a process of its own: no two rows name one.
func otherTicks(n int) func(*Entry) {
	return func(e *Entry) {
		ticks := *e.PIDStartTicks - uint64(n) - 1
		e.PIDStartTicks = &ticks
	}
}

func inFolder(dir string) func(*Entry) {
	return func(e *Entry) { e.Cwd, e.RepoRoot = dir, dir }
}

// dirtyRepo is a repository with one commit and uncommitted work.
func dirtyRepo(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	for _, args := range [][]string{
		{"init", "-q", "-b", "main"},
		{"-c", "user.name=t", "-c", "user.email=t@t", "commit", "-q", "--allow-empty", "-m", "begin"},
	} {
		cmd := exec.Command("git", args...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v\n%s", args, err, out)
		}
	}
	putFile(t, filepath.Join(dir, "work.txt"), "uncommitted\n")
	return dir
}

func mustSweep(t testing.TB, s *Store, opts SweepOptions) Report {
	t.Helper()
	rep, err := Sweep(t.Context(), s, opts)
	if err != nil {
		t.Fatalf("sweep: %v", err)
	}
	return rep
}

// stages runs a pass up to and with the named stage.
func stages(t testing.TB, s *Store, last string, opts SweepOptions) *sweeper {
	t.Helper()
	sw := &sweeper{s: s, h: &Host{Store: s}, opts: opts, rep: newReporter(s.logger), now: s.now(), found: map[string]resolution{}}
	for _, stage := range sweepStages {
		sw.stage = stage.name
		if err := stage.do(sw, t.Context()); err != nil {
			t.Fatalf("%s: %v", stage.name, err)
		}
		if stage.name == last {
			return sw
		}
	}
	t.Fatalf("there is no stage %q", last)
	return nil
}

func get(t testing.TB, s *Store, id string) Entry {
	t.Helper()
	e, err := s.Get(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func closedIDs(list []Closed) (ids []string) {
	for _, c := range list {
		ids = append(ids, c.ID)
	}
	slices.Sort(ids)
	return ids
}

// diskState is everything below a folder that a write would change.
func diskState(t testing.TB, root string) map[string]string {
	t.Helper()
	state := map[string]string{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		state[path] = fmt.Sprintf("%v %d %d %d", info.Mode(), info.Size(), info.ModTime().UnixNano(), info.Sys().(*syscall.Stat_t).Ino)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return state
}

func TestSweepEnrolsWhatNobodyAnnounced(t *testing.T) {
	s := sweepStore(t, nil)
	p, cmd := startAgent(t, hookless)
	rep := mustSweep(t, s, SweepOptions{})
	if len(rep.Enrolled) != 1 {
		t.Fatalf("enrolled %v, warnings %v", rep.Enrolled, rep.Warnings)
	}
	e := get(t, s, rep.Enrolled[0])
	if !e.Process().Same(p) || e.EnrolledBy != EnrolledByDiscovery || e.Cwd != cmd.Dir {
		t.Errorf("row %+v", e)
	}
	if rep = mustSweep(t, s, SweepOptions{}); len(rep.Enrolled) != 0 {
		t.Errorf("enrolled again: %v", rep.Enrolled)
	}
	endProcess(cmd)
	rep = mustSweep(t, s, SweepOptions{})
	if got := closedIDs(rep.Closed); !slices.Equal(got, []string{e.LedgerID}) {
		t.Fatalf("closed %v, warnings %v", got, rep.Warnings)
	}
	if e = get(t, s, e.LedgerID); e.FinishReason != FinishedExited || e.RescuedAt.IsZero() {
		t.Errorf("finished for %q, rescued at %v", e.FinishReason, e.RescuedAt)
	}
	if !rep.Complete.Rows || !rep.Complete.Processes || len(rep.TookMs) != len(sweepStages) {
		t.Errorf("report %+v", rep)
	}
}

func TestIdleSweepsWriteNothing(t *testing.T) {
	s := sweepStore(t, nil)
	for range 3 {
		startAgent(t, hookless)
		startAgent(t, hooked)
	}
	deadRow(t, s, "orphan", hooked, inFolder(t.TempDir()), func(e *Entry) { e.SessionID = "c" })
	deadRow(t, s, "frozen", hooked, otherTicks(1), func(e *Entry) {
		e.Phase, e.Frozen, e.SessionID = PhaseFrozen, &Frozen{At: e.StartedAt, Attempt: "a1", Mode: FreezeShell}, "d"
	})
	putFile(t, s.path("frozen", "frozen", "a1", "capture.ansi"), "output")
	deadRow(t, s, "archived", hooked, otherTicks(2), func(e *Entry) { e.Phase = PhaseArchived })
	deadRow(t, s, "elsewhere", hooked, otherTicks(3), func(e *Entry) { e.HostID = "another host" })
	var edges int
	opts := SweepOptions{Notify: func(_ context.Context, group []Edge) error { edges += len(group); return nil }}
	for range 3 { // what there was to do is done
		mustSweep(t, s, opts)
	}
	edges = 0
	before := diskState(t, s.root)
	passes := 60
	if *sweepFull {
		passes = 1000
	}
	for range passes {
		rep := mustSweep(t, s, opts)
		if len(rep.Warnings)+len(rep.Edges)+len(rep.Refreshed)+len(rep.Reconciled) > 0 {
			t.Fatalf("report %+v", rep)
		}
	}
	after := diskState(t, s.root)
	for path, state := range after {
		if before[path] != state {
			t.Errorf("%s: %q, was %q", path, state, before[path])
		}
	}
	if len(after) != len(before) || edges != 0 {
		t.Errorf("%d files, were %d; %d edges", len(after), len(before), edges)
	}
}

func TestClosingRules(t *testing.T) {
	with := Runtime{HasEndHook: true}
	id := func(e *Entry) { e.SessionID = "c" }
	path := func(e *Entry) { e.TranscriptPath = "/t" }
	refused := func(e *Entry) { e.SessionIDs = []FormerID{{ID: "c", HeldBy: "other", From: "hook"}} }
	for _, c := range []struct {
		name      string
		runtime   Runtime
		edit      func(*Entry)
		successor string
		want      string
	}{
		{"no end hook", Runtime{}, func(*Entry) {}, "", "process exited"},
		{"no end hook, with a conversation", Runtime{}, id, "", "process exited"},
		{"end hook, nothing recorded", with, func(*Entry) {}, "", "process exited, nothing was recorded to recover"},
		{"end hook, a conversation", with, id, "", ""},
		{"end hook, a transcript", with, path, "", ""},
		{"end hook, a refused claim is evidence", with, refused, "", ""},
		{"end hook, resumed", with, func(*Entry) {}, "next", "resumed as next"},
		{"no end hook, resumed", Runtime{}, id, "next", "resumed as next"},
	} {
		e := Entry{LedgerID: "row", PID: 7}
		c.edit(&e)
		if got, ok := closing(closingCase{&e, c.runtime, c.successor}); got != c.want || ok != (c.want != "") {
			t.Errorf("%s: %q, %v; want %q", c.name, got, ok, c.want)
		}
	}
}

func TestSweepClosesByTheRules(t *testing.T) {
	s := sweepStore(t, nil)
	deadRow(t, s, "hookless", hookless, func(e *Entry) { e.SessionID = "a" })
	deadRow(t, s, "lost", hooked, otherTicks(1), inFolder(t.TempDir()), func(e *Entry) { e.SessionID = "b" })
	deadRow(t, s, "nothing", hooked, otherTicks(2))
	deadRow(t, s, "unregistered", "no-such-runtime", otherTicks(3))
	deadRow(t, s, "tombstoned", hookless, otherTicks(4), func(e *Entry) { e.KillIntentAt = e.StartedAt })
	deadRow(t, s, "newer", hookless, otherTicks(5), func(e *Entry) { e.SchemaVersion = 2 })
	deadRow(t, s, "elsewhere", hookless, otherTicks(6), func(e *Entry) { e.HostID = "another host" })
	deadRow(t, s, "ceded", hooked, otherTicks(7), func(e *Entry) { e.SessionIDs = []FormerID{{ID: "x", HeldBy: "heir"}} })
	p, _ := startAgent(t, hooked)
	if _, err := s.Create(t.Context(), Entry{LedgerID: "heir", Runtime: hooked, ResumedFrom: "ceded"}, Enrol(p, Location{})); err != nil {
		t.Fatal(err)
	}
	rep := mustSweep(t, s, SweepOptions{})
	want := []Closed{{"ceded", "resumed as heir"}, {"hookless", "process exited"},
		{"nothing", "process exited, nothing was recorded to recover"}, {"unregistered", "process exited"}}
	slices.SortFunc(rep.Closed, func(a, b Closed) int { return strings.Compare(a.ID, b.ID) })
	if !slices.Equal(rep.Closed, want) {
		t.Errorf("closed %v\nwant %v", rep.Closed, want)
	}
	// A kill that was intended is finished by reconcile, and the lost session stays.
	if e := get(t, s, "tombstoned"); e.FinishReason != "killed" {
		t.Errorf("tombstoned: %q %q; reconciled %v, warnings %v", e.Phase, e.FinishReason, rep.Reconciled, rep.Warnings)
	}
	if e := get(t, s, "lost"); !e.IsOpen() || e.RescuedAt.IsZero() {
		t.Errorf("lost: %q, rescued at %v", e.Phase, e.RescuedAt)
	}
	for _, id := range []string{"newer", "elsewhere"} {
		if e := get(t, s, id); !e.IsOpen() || e.Revision != 1 {
			t.Errorf("%s was touched: %+v", id, e)
		}
	}
}

func TestSweepMarksASuccessorThatACrashLeftUnmarked(t *testing.T) {
	s := sweepStore(t, nil)
	deadRow(t, s, "old", hooked, func(e *Entry) { e.SessionIDs = []FormerID{{ID: "x", HeldBy: "heir"}} })
	p, _ := startAgent(t, hooked)
	if _, err := s.Create(t.Context(), Entry{LedgerID: "heir", Runtime: hooked, SessionID: "x"}, Enrol(p, Location{})); err != nil {
		t.Fatal(err)
	}
	mustSweep(t, s, SweepOptions{})
	if heir, old := get(t, s, "heir"), get(t, s, "old"); heir.ResumedFrom != "old" || old.FinishReason != "resumed as heir" {
		t.Errorf("heir resumes %q, old finished for %q", heir.ResumedFrom, old.FinishReason)
	}
}

func TestSweepDoesNotCloseWhatIsBoundMeanwhile(t *testing.T) {
	s := sweepStore(t, nil)
	deadRow(t, s, "row", hookless)
	sw := stages(t, s, "refresh", SweepOptions{})
	if got := sw.resolve(sw.entry("row")).verdict; got != Gone {
		t.Fatalf("the process is %v", got)
	}
	p2, _ := startProcess(t)
	apply(t, s, "row", Bind("", p2, Location{}))
	if err := sw.closeRows(t.Context()); err != nil {
		t.Fatal(err)
	}
	e := get(t, s, "row")
	if !e.IsOpen() || !e.RescuedAt.IsZero() || e.Rescuing != nil || len(sw.rep.Closed)+len(sw.rep.Rescued) > 0 {
		t.Errorf("%+v", e)
	}
}

// birth writes a row of another implementation's launcher that has ended.
func birth(t testing.TB, s *Store, id string, edit ...func(*Entry)) {
	t.Helper()
	p := deadProcess()
	e := Entry{SchemaVersion: 1, LedgerID: id, Runtime: hooked, StartedAt: s.now(), BootID: p.BootID, LauncherPID: p.PID}
	for _, f := range edit {
		f(&e)
	}
	writeEntry(t, s, dirSessions, &e)
}

func TestSweepRemovesBirthsWithoutEvidence(t *testing.T) {
	s := sweepStore(t, nil)
	birth(t, s, "birth")
	birth(t, s, "no-launcher", func(e *Entry) { e.LauncherPID = 0 })
	birth(t, s, "launcher-runs", func(e *Entry) { e.LauncherPID = os.Getpid() })
	birth(t, s, "conversation", func(e *Entry) { e.SessionID = "c" })
	birth(t, s, "mux", func(e *Entry) { e.Mux = Mux{Kind: MuxDtach, Socket: "/s"} })
	birth(t, s, "old-boot", func(e *Entry) { e.BootID = "another" })
	birth(t, s, "carried")
	startAgent(t, "some-shell", envID+"=carried")
	born(t, s, "leased")
	var removed []Closed
	// While some process is just starting, it is not known what it carries.
	await(t, "two births are removed", func() bool {
		removed = append(removed, mustSweep(t, s, SweepOptions{}).RemovedBirths...)
		return len(removed) >= 2
	})
	if got := closedIDs(removed); !slices.Equal(got, []string{"birth", "old-boot"}) {
		t.Errorf("removed %v", got)
	}
	for _, id := range []string{"no-launcher", "launcher-runs", "conversation", "mux", "carried", "leased"} {
		get(t, s, id)
	}
	if _, err := s.Get(t.Context(), "birth"); !errors.Is(err, ErrNotFound) {
		t.Errorf("birth: %v", err)
	}
}

func TestBirthIsSavedByLateEvidence(t *testing.T) {
	for name, evidence := range map[string]func(t *testing.T, s *Store){
		"process": func(t *testing.T, s *Store) {
			p, _ := startProcess(t)
			apply(t, s, "birth", Bind("", p, Location{}))
		},
		"conversation": func(t *testing.T, s *Store) { apply(t, s, "birth", Claim("c", "hook")) },
		"carrier":      func(t *testing.T, s *Store) { startAgent(t, hooked, envID+"=birth") },
	} {
		t.Run(name, func(t *testing.T) {
			s := sweepStore(t, nil)
			birth(t, s, "birth")
			var sw *sweeper
			await(t, "the birth is due", func() bool {
				sw = stages(t, s, "reconcile", SweepOptions{})
				return sw.launchFailed(sw.resolve(sw.entry("birth")))
			})
			evidence(t, s)
			if err := sw.retain(t.Context()); err != nil {
				t.Fatal(err)
			}
			get(t, s, "birth")
		})
	}
}

func TestSweepGivesARowTheProcessOfItsOwnCarrier(t *testing.T) {
	s := sweepStore(t, nil)
	mine := func(e *Entry) { e.LauncherPID = os.Getpid() }
	deadRow(t, s, "wrapped", hooked, mine)
	deadRow(t, s, "parent", hooked, otherTicks(1), inFolder(t.TempDir()), func(e *Entry) { e.SessionID = "p" })
	again, _ := startAgent(t, hooked, envID+"=wrapped")
	child, _ := startAgent(t, hooked, envID+"=parent") // outlived its parent
	rep := mustSweep(t, s, SweepOptions{})
	if e := get(t, s, "wrapped"); !e.Process().Same(again) {
		t.Errorf("wrapped has %v, warnings %v", e.Process(), rep.Warnings)
	}
	if e := get(t, s, "parent"); e.Process().Same(child) || e.RescuedAt.IsZero() {
		t.Errorf("parent has %v, rescued at %v", e.Process(), e.RescuedAt)
	}
	if len(rep.Enrolled) != 1 || get(t, s, rep.Enrolled[0]).ParentLedgerID != "parent" {
		t.Errorf("enrolled %v", rep.Enrolled)
	}
}

func TestSweepAfterARebootSaysSo(t *testing.T) {
	s := sweepStore(t, nil)
	reboot := func(e *Entry) { e.BootID = "00000000-0000-0000-0000-000000000000" }
	deadRow(t, s, "lost", hooked, reboot, func(e *Entry) { e.SessionID = "a" })
	deadRow(t, s, "server-died", hooked, otherTicks(1), func(e *Entry) { e.SessionID = "b" })
	deadRow(t, s, "over", hookless, otherTicks(2), reboot)
	mustSweep(t, s, SweepOptions{})
	reasons := map[string]string{}
	for sess, err := range s.Sessions(t.Context(), nil) {
		if err != nil {
			t.Fatal(err)
		}
		if sess.Status.State != LivenessOrphaned {
			t.Errorf("%s is %s", sess.Entry.LedgerID, sess.Status.State)
		}
		reasons[sess.Entry.LedgerID] = sess.Status.Reason
	}
	if len(reasons) != 2 || !strings.Contains(reasons["lost"], "rebooted") || strings.Contains(reasons["server-died"], "reboot") {
		t.Errorf("reasons %q", reasons)
	}
	if e := get(t, s, "over"); e.FinishReason != FinishedExited {
		t.Errorf("over: %q", e.FinishReason)
	}
}

func TestSweepStampsActivityOfRuntimesWithoutTranscripts(t *testing.T) {
	clock := newClock()
	s := sweepStore(t, clock)
	p, _ := startAgent(t, hookless)
	e, err := s.Create(t.Context(), Entry{LedgerID: "row", Runtime: hookless}, Enrol(p, Location{}))
	if err != nil {
		t.Fatal(err)
	}
	if rep := mustSweep(t, s, SweepOptions{}); !slices.Equal(rep.Described, []string{"row"}) {
		t.Fatalf("described %v", rep.Described)
	}
	if e = get(t, s, "row"); e.CPUTicks == nil || !e.LastActiveAt.IsZero() || e.Cwd == "" {
		t.Fatalf("row %+v", e)
	}
	// The ticks of a sleep do not grow: the record is made older instead.
	busy := *e.CPUTicks + 5
	if _, err := s.rewrite(t.Context(), "row", true, maxRow, func(e *Entry) (verdict, error) { e.CPUTicks = &busy; return unchanged, nil }); err != nil {
		t.Fatal(err)
	}
	mustSweep(t, s, SweepOptions{})
	if e = get(t, s, "row"); *e.CPUTicks != busy {
		t.Errorf("fewer ticks were written: %d", *e.CPUTicks)
	}
	sw := stages(t, s, "describe", SweepOptions{})
	c, needed := sw.cpuChange(&Entry{Runtime: hookless, PID: os.Getpid(), CPUTicks: new(uint64)})
	if !needed {
		t.Fatal("a process that used time needs no change")
	}
	e = Entry{Phase: PhaseLive, CPUTicks: new(uint64)}
	if _, err := c.edit(&e); err != nil || !e.LastActiveAt.IsZero() {
		t.Errorf("a row of another process was changed: %+v", e)
	}
}
