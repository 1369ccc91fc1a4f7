package ledger

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// holdLocks takes row locks and stops: a holder that never gives them back.
var holdLocks = inChild("hold row locks", func(arg struct {
	Dir string
	IDs []string
}) error {
	s, err := Open(arg.Dir, nil)
	if err != nil {
		return err
	}
	taken := map[string]bool{}
	for _, id := range arg.IDs {
		if !taken[stripe(id)] {
			taken[stripe(id)] = true
			if _, err := s.lockRow(context.Background(), id); err != nil {
				return err
			}
		}
	}
	fmt.Println("held")
	return syscall.Kill(os.Getpid(), syscall.SIGSTOP)
})

// stoppedHolder starts a child that holds the locks of the rows and is stopped.
func stoppedHolder(t *testing.T, s *Store, ids []string) *exec.Cmd {
	t.Helper()
	cmd := childCommand(t, holdLocks, struct {
		Dir string
		IDs []string
	}{s.root, ids})
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { endProcess(cmd) })
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatalf("holder: %q, %v", line, err)
	}
	await(t, "the holder is stopped", func() bool {
		st, err := s.procs.sys.Stat(cmd.Process.Pid)
		return err == nil && st.State == 'T'
	})
	return cmd
}

// manyDead writes n dead rows of which the first 64 share no lock with the others.
func manyDead(t *testing.T, s *Store, n int) (first, rest []string) {
	t.Helper()
	locked := map[string]bool{}
	for i := range 64 {
		id := fmt.Sprintf("a%03d", i)
		locked[stripe(id)] = true
		first = append(first, id)
	}
	for i := 0; len(rest) < n-64; i++ {
		if id := fmt.Sprintf("b%04d", i); !locked[stripe(id)] {
			rest = append(rest, id)
		}
	}
	for i, id := range slices.Concat(first, rest) {
		deadRow(t, s, id, hookless, otherTicks(i), rescued)
	}
	return first, rest
}

func TestSweepReachesEveryRowBehindLockedOnes(t *testing.T) {
	s := sweepStore(t, nil)
	first, rest := manyDead(t, s, 500)
	holder := stoppedHolder(t, s, first)
	var order []string
	failed := map[string]bool{}
	passes := 0
	for len(order) < len(rest) {
		if passes++; passes > 500/maxClosed+3 {
			t.Fatalf("%d of %d rows were closed in %d passes", len(order), len(rest), passes)
		}
		rep := mustSweep(t, s, SweepOptions{})
		if len(rep.Closed) > maxClosed {
			t.Errorf("%d rows were closed in one pass", len(rep.Closed))
		}
		order = append(order, closedIDs(rep.Closed)...)
		for _, f := range rep.UpdateFailures {
			if f.Holder != holder.Process.Pid {
				t.Errorf("%+v does not name the holder %d", f, holder.Process.Pid)
			}
			failed[f.ID] = true
		}
	}
	if !slices.IsSorted(order) || len(order) != len(rest) {
		t.Errorf("%d rows in the order %v", len(order), order)
	}
	for _, id := range first {
		if !failed[id] {
			t.Errorf("%s is no update failure", id)
		}
	}
	endProcess(holder)
	for range 3 {
		order = append(order, closedIDs(mustSweep(t, s, SweepOptions{}).Closed)...)
	}
	if len(order) != 500 {
		t.Errorf("%d rows are closed", len(order))
	}
}

func TestSweepReachesEveryRowBehindDamagedOnesWithoutCursors(t *testing.T) {
	s := sweepStore(t, nil)
	first, rest := manyDead(t, s, 164)
	for _, id := range first {
		putFile(t, rowPath(s, id), "{\"ledgerId\": ")
	}
	// A folder in its place: the cursors can be neither read nor kept.
	if err := os.Mkdir(s.path(cursorsFile), 0o700); err != nil {
		t.Fatal(err)
	}
	closed := map[string]bool{}
	for range len(rest)/maxClosed + 1 {
		rep := mustSweep(t, s, SweepOptions{})
		if len(rep.Damaged) != len(first) {
			t.Errorf("%d damaged rows, want %d", len(rep.Damaged), len(first))
		}
		if !slices.ContainsFunc(rep.Warnings, func(w Warning) bool {
			return strings.Contains(w.Error, cursorsFile) || strings.Contains(w.Error, "cursors")
		}) {
			t.Errorf("nothing is said of the cursors: %v", rep.Warnings)
		}
		for _, id := range closedIDs(rep.Closed) {
			closed[id] = true
		}
	}
	if len(closed) != len(rest) {
		t.Errorf("%d of %d rows were closed", len(closed), len(rest))
	}
	for _, id := range first {
		if got := readFile(t, rowPath(s, id)); got != "{\"ledgerId\": " {
			t.Errorf("%s is now %q", id, got)
		}
	}
}

func TestATurnBeginsBehindTheLastOneAndStarvesNobody(t *testing.T) {
	c := &cursors{After: map[string]string{}}
	ids := []string{"d", "a", "c", "b", "e"}
	var got []string
	turn := func(limit int, stop string) {
		c.turn("x", ids, limit, func(id string) bool {
			if id == stop {
				return false
			}
			got = append(got, id)
			return true
		})
	}
	turn(2, "")
	turn(2, "")
	turn(2, "")
	turn(2, "d") // cut short before d
	ids = []string{"a", "e"}
	turn(2, "")
	if want := "a b c d e a b c e a"; strings.Join(got, " ") != want {
		t.Errorf("turns %v, want %s", got, want)
	}
	if len(c.After) != 0 {
		t.Errorf("a whole turn leaves %v", c.After)
	}
}

func TestAnIncompleteViewClosesAndRemovesNothing(t *testing.T) {
	for name, spoil := range map[string]func(sw *sweeper){
		"processes": func(sw *sweeper) { sw.pass.whole, sw.pass.partial = false, "hidden" },
		"rows":      func(sw *sweeper) { sw.rep.Complete.Rows = false },
		"matching":  func(sw *sweeper) { sw.view = nil },
	} {
		t.Run(name, func(t *testing.T) {
			s := sweepStore(t, nil)
			old := func(e *Entry) { e.FinishedAt = e.StartedAt.AddDate(0, -2, 0); e.Phase = PhaseFinished }
			deadRow(t, s, "dead", hookless)
			deadRow(t, s, "doomed", hookless, otherTicks(1), func(e *Entry) { e.KillIntentAt = e.StartedAt })
			deadRow(t, s, "old", hookless, otherTicks(2), old)
			birth(t, s, "birth")
			sw := stages(t, s, "refresh", SweepOptions{})
			spoil(sw)
			for _, stage := range sweepStages[5:8] {
				if err := stage.do(sw, t.Context()); err != nil {
					t.Error(err)
				}
			}
			r := sw.rep
			if len(r.Closed)+len(r.RemovedBirths)+len(r.Pruned)+len(r.Reconciled)+len(r.Rescued) > 0 {
				t.Errorf("%+v", r.Report)
			}
			for _, id := range []string{"dead", "doomed", "old", "birth"} {
				get(t, s, id)
			}
		})
	}
}

// A process table of files, in which one process cannot be read.
func TestAnUnreadableProcessTableClosesNothing(t *testing.T) {
	proc := t.TempDir()
	boot := deadProcess().BootID
	putFile(t, filepath.Join(proc, "sys/kernel/random/boot_id"), boot+"\n")
	putFile(t, filepath.Join(proc, "stat"), "btime 1700000000\n")
	putFile(t, filepath.Join(proc, "uptime"), "100000.00 100000.00\n")
	putFile(t, filepath.Join(proc, "77/stat"), "77 (broken")
	for _, dir := range []string{"self/ns", "77/ns"} {
		if err := os.MkdirAll(filepath.Join(proc, dir), 0o700); err != nil {
			t.Fatal(err)
		}
		for _, ns := range []string{"pid", "time"} {
			os.Symlink(fmt.Sprintf("%s:[%d]", ns, deadProcess().PIDNamespace), filepath.Join(proc, dir, ns))
		}
	}
	s := newBrokenStore(t, &Options{Runtimes: sweepRuntimes(hooked, hookless), ProcFS: proc, Home: t.TempDir()})
	deadRow(t, s, "row", hookless, func(e *Entry) { e.PIDNamespace, e.TimeNamespace = 0, 0 })
	rep, err := Sweep(t.Context(), s, SweepOptions{})
	var failed *SweepError
	if err != nil && !errors.As(err, &failed) {
		t.Fatal(err)
	}
	if rep.Complete.Processes || len(rep.Closed) > 0 {
		t.Errorf("complete %+v, closed %v", rep.Complete, rep.Closed)
	}
	if e := get(t, s, "row"); !e.IsOpen() {
		t.Errorf("finished for %q", e.FinishReason)
	}
}

func TestASilentTmuxServerKeepsItsRowsOpen(t *testing.T) {
	s := sweepStore(t, nil)
	in := func(e *Entry) { e.Mux = Mux{Kind: MuxTmux, Socket: "/s", Target: e.LedgerID} }
	deadRow(t, s, "silent", hookless, in)
	deadRow(t, s, "answers", hookless, otherTicks(1), in)
	var asked []string
	rep := mustSweep(t, s, SweepOptions{Mux: func(_ context.Context, entries []Entry) map[string]MuxState {
		for _, e := range entries {
			asked = append(asked, e.LedgerID)
		}
		return map[string]MuxState{"answers": MuxUnreachable}
	}})
	if got := closedIDs(rep.Closed); !slices.Equal(got, []string{"answers"}) || rep.Complete.Mux || len(asked) != 2 {
		t.Errorf("closed %v, complete %+v, asked %v", got, rep.Complete, asked)
	}
}

// A real server that is stopped, and then ended: what ran in it is rescued at once, and
// closed once the server has answered or gone.
func TestAStoppedTmuxServerKeepsItsRowsOpenUntilItIsGone(t *testing.T) {
	s := reapStore(t)
	srv, pane := host(t, s, "host", "host", "sleep", "1000")
	server, err := s.procs.identify(pane.Server.PID)
	if err != nil {
		t.Fatal(err)
	}
	deadRow(t, s, "row", hookless, inFolder(dirtyRepo(t)), func(e *Entry) {
		e.Mux = Mux{Kind: MuxTmux, Socket: srv.Socket, Target: "host"}
		e.PaneID, e.PaneServer = pane.ID, server
	})
	if err := syscall.Kill(server.PID, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	defer syscall.Kill(server.PID, syscall.SIGCONT)
	rep := mustSweep(t, s, SweepOptions{Mux: func(ctx context.Context, entries []Entry) map[string]MuxState {
		ctx, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
		defer cancel()
		return s.probeMux(nil, s.listings())(ctx, entries)
	}})
	if len(rep.Closed) > 0 || len(rep.Rescued) != 1 || rep.Complete.Mux {
		t.Errorf("closed %v, rescued %v, complete %+v", rep.Closed, rep.Rescued, rep.Complete)
	}
	syscall.Kill(server.PID, syscall.SIGCONT)
	if err := srv.KillServer(t.Context(), pane.Server); err != nil {
		t.Fatal(err)
	}
	if rep = mustSweep(t, s, SweepOptions{}); len(rep.Closed) != 1 || !rep.Complete.Mux {
		t.Errorf("closed %v, complete %+v", rep.Closed, rep.Complete)
	}
}

func TestARescueThatFailsIsPacedAndKeepsTheRowOpen(t *testing.T) {
	s := sweepStore(t, nil)
	repo := dirtyRepo(t)
	// A lock that another git left makes nothing fail; an object that cannot be written does.
	deadRow(t, s, "row", hookless, inFolder(repo))
	git := filepath.Join(t.TempDir(), "git")
	putFile(t, git, "#!/bin/sh\necho 'fatal: out of luck' >&2\nexit 128\n")
	if err := os.Chmod(git, 0o700); err != nil {
		t.Fatal(err)
	}
	opts := SweepOptions{Rescue: RescueOptions{Git: git}}
	rep := mustSweep(t, s, opts)
	if w := about(rep.Warnings); len(w) != 1 || w[0].ID != "row" || len(rep.Closed) > 0 {
		t.Fatalf("warnings %v, closed %v", rep.Warnings, rep.Closed)
	}
	if rep = mustSweep(t, s, opts); len(rep.Warnings) > 0 {
		t.Errorf("tried again at once: %v", rep.Warnings)
	}
	if e := get(t, s, "row"); !e.IsOpen() || e.Rescuing != nil {
		t.Errorf("row %+v", e)
	}
	cur, err := s.loadCursors()
	if err != nil || cur.due("row", paceRescue) || cur.Pacing["row"][paceRescue].Failures != 1 {
		t.Errorf("pacing %+v, %v", cur.Pacing, err)
	}
	cur.now += 11
	if !cur.due("row", paceRescue) {
		t.Error("not due after 10 s")
	}
	cur.succeeded("row", paceRescue)
	if err := s.saveCursors(cur); err != nil {
		t.Fatal(err)
	}
	rep = mustSweep(t, s, SweepOptions{})
	if len(rep.Rescued) != 1 || rep.Rescued[0].Ref == "" || len(rep.Closed) != 1 {
		t.Errorf("rescued %v, closed %v, warnings %v", rep.Rescued, rep.Closed, rep.Warnings)
	}
}

// about are the warnings that concern a row: a first pass also says that nothing is known
// to have been notified.
func about(all []Warning) []Warning {
	return slices.DeleteFunc(slices.Clone(all), func(w Warning) bool { return w.ID == "" })
}

// A repository that is away may come back: its row stays open and is tried again, until a
// day of tries has shown that it does not.
func TestARepositoryThatIsAwayKeepsItsRowOpenForADay(t *testing.T) {
	s := sweepStore(t, nil)
	gone := filepath.Join(t.TempDir(), "gone")
	deadRow(t, s, "over", hookless, inFolder(gone))
	rep := mustSweep(t, s, SweepOptions{})
	if len(rep.Closed) > 0 || len(about(rep.Warnings)) != 1 {
		t.Errorf("closed %v, warnings %v", rep.Closed, rep.Warnings)
	}
	if rep = mustSweep(t, s, SweepOptions{}); len(rep.Warnings) > 0 || len(rep.Closed) > 0 {
		t.Errorf("said again, or closed: %v %v", rep.Warnings, rep.Closed)
	}
	c, err := s.loadCursors()
	if err != nil {
		t.Fatal(err)
	}
	c.pace("over", paceRescue, Backoff{Failures: rescuePatience})
	if err := s.saveCursors(c); err != nil {
		t.Fatal(err)
	}
	if rep = mustSweep(t, s, SweepOptions{}); !slices.Equal(closedIDs(rep.Closed), []string{"over"}) || len(about(rep.Warnings)) != 1 {
		t.Errorf("closed %v, warnings %v", rep.Closed, rep.Warnings)
	}
}

// A lost session that stays open though its work can no longer be rescued says so itself,
// once.
func TestARowWhoseWorkIsGivenUpAsksForAttention(t *testing.T) {
	s := sweepStore(t, nil)
	deadRow(t, s, "lost", hooked, inFolder(filepath.Join(t.TempDir(), "gone")), func(e *Entry) { e.SessionID = "c" })
	mustSweep(t, s, SweepOptions{})
	if e := get(t, s, "lost"); e.Attention != nil {
		t.Errorf("before a day of tries: %+v", e.Attention)
	}
	c, err := s.loadCursors()
	if err != nil {
		t.Fatal(err)
	}
	c.pace("lost", paceRescue, Backoff{Failures: rescuePatience})
	if err := s.saveCursors(c); err != nil {
		t.Fatal(err)
	}
	mustSweep(t, s, SweepOptions{})
	e := get(t, s, "lost")
	if !e.IsOpen() || e.Attention == nil || !strings.Contains(e.Attention.Reason, "no such folder") {
		t.Fatalf("%+v", e)
	}
	found, err := s.Check(t.Context())
	if err != nil || !slices.ContainsFunc(found, func(f Finding) bool { return f.Kind == FindAttention && f.ID == "lost" }) {
		t.Errorf("check: %+v, %v", found, err)
	}
	for range 2 {
		mustSweep(t, s, SweepOptions{})
	}
	if again := get(t, s, "lost"); again.Revision != e.Revision {
		t.Errorf("written again: %+v", again)
	}
}

// What could not be rescued before the end can be rescued after it.
func TestRescueOfAFinishedRow(t *testing.T) {
	s := sweepStore(t, nil)
	repo := gitRepo(t)
	if err := os.WriteFile(filepath.Join(repo, "work"), []byte("w"), 0o600); err != nil {
		t.Fatal(err)
	}
	away := repo + ".away"
	if err := os.Rename(repo, away); err != nil {
		t.Fatal(err)
	}
	deadRow(t, s, "over", hookless, inFolder(repo))
	done, err := (&Host{Store: s}).Kill(t.Context(), "over", KillOptions{End: quick})
	if err != nil || done.Unrescued == nil || done.Entry.Phase != PhaseFinished {
		t.Fatalf("%v %+v", err, done)
	}
	if err := os.Rename(away, repo); err != nil {
		t.Fatal(err)
	}
	r, err := Rescue(t.Context(), s, "over", RescueOptions{})
	if err != nil || r.Ref == "" {
		t.Errorf("%v %+v", err, r)
	}
}

func TestASecondSweepWaitsAndIsBusy(t *testing.T) {
	s := sweepStore(t, nil)
	unlock, err := s.lockPass(t.Context(), sweepLock)
	if err != nil {
		t.Fatal(err)
	}
	other := openStore(t, s.root, nil)
	if _, err = Sweep(t.Context(), other, SweepOptions{Wait: 30 * time.Millisecond}); !errors.Is(err, ErrBusy) {
		t.Errorf("%v", err)
	}
	done := make(chan error, 1)
	go func() { _, err := Sweep(context.Background(), s, SweepOptions{Wait: patience}); done <- err }()
	unlock()
	if err := <-done; err != nil {
		t.Errorf("the one that waited: %v", err)
	}
}

// Sweeps, enrolments and writers at the same time lose nothing and close nothing wrongly.
func TestSweepsBesideEnrolmentsAndWriters(t *testing.T) {
	s := sweepStore(t, nil)
	other := openStore(t, s.root, &Options{Runtimes: sweepRuntimes(hooked, hookless), Home: t.TempDir()})
	for i := range 20 {
		deadRow(t, s, fmt.Sprintf("dead%02d", i), hookless, otherTicks(i), rescued)
	}
	var pids []int
	for range 6 {
		p, _ := startAgent(t, hooked)
		pids = append(pids, p.PID)
	}
	live, _ := startAgent(t, hookless)
	if _, err := s.Create(t.Context(), Entry{LedgerID: "live", Runtime: hookless}, Enrol(live, Location{})); err != nil {
		t.Fatal(err)
	}
	const writes = 40
	var group sync.WaitGroup
	for _, st := range []*Store{s, other} {
		group.Go(func() {
			for range 5 {
				if _, err := Sweep(t.Context(), st, SweepOptions{Wait: patience}); err != nil {
					t.Error(err)
				}
			}
		})
		group.Go(func() {
			for _, pid := range pids {
				if _, _, err := st.Enrol(t.Context(), pid, &EnrolOptions{By: EnrolledByHook}); err != nil {
					t.Error(err)
				}
			}
		})
		group.Go(func() {
			for range writes {
				if _, err := st.Update(t.Context(), "live", touch); err != nil {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
	rows, _ := listed(t, s)
	if got := len(rows["live"].Operation); got != 2*writes {
		t.Errorf("%d of %d writes are left", got, 2*writes)
	}
	open := 0
	for _, e := range rows {
		if e.IsOpen() {
			open++
		}
	}
	if len(rows) != 20+6+1 || open != 6+1 {
		t.Errorf("%d rows, %d open", len(rows), open)
	}
}

// killedSweep is one sweep in a process of its own, which writes what it notifies.
type killedSweep struct{ Dir, Home, Hooked, Hookless, Said string }

var sweepOnce = inChild("sweep", func(a killedSweep) error {
	s, err := Open(a.Dir, &Options{Runtimes: sweepRuntimes(a.Hooked, a.Hookless), Home: a.Home})
	if err != nil {
		return err
	}
	defer s.Close()
	_, err = Sweep(context.Background(), s, a.options())
	return err
})

func (a killedSweep) options() SweepOptions {
	return SweepOptions{Notify: func(_ context.Context, edges []Edge) error {
		f, err := os.OpenFile(a.Said, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
		if err != nil {
			return err
		}
		defer f.Close()
		var b strings.Builder
		for _, e := range edges {
			fmt.Fprintf(&b, "%s %s\n", e.ID, e.To)
		}
		_, err = f.WriteString(b.String())
		return err
	}}
}

// killLedger is a ledger with something to do in every stage.
func killLedger(t *testing.T, s *Store) {
	t.Helper()
	// The first sweep takes what it finds as notified: there is one before anything happens.
	live, _ := startAgent(t, hookless)
	if _, err := s.Create(t.Context(), Entry{LedgerID: "live", Runtime: hookless}, Enrol(live, Location{})); err != nil {
		t.Fatal(err)
	}
	mustSweep(t, s, SweepOptions{Notify: func(context.Context, []Edge) error { return nil }})
	for i := range 4 {
		deadRow(t, s, fmt.Sprintf("work%d", i), hookless, otherTicks(i), inFolder(dirtyRepo(t)))
		deadRow(t, s, fmt.Sprintf("lost%d", i), hooked, otherTicks(10+i), inFolder(dirtyRepo(t)), func(e *Entry) { e.SessionID = e.LedgerID })
		deadRow(t, s, fmt.Sprintf("doomed%d", i), hooked, otherTicks(20+i), inFolder(dirtyRepo(t)), func(e *Entry) { e.KillIntentAt = e.StartedAt })
		birth(t, s, fmt.Sprintf("birth%d", i))
		over := func(age time.Duration) func(*Entry) {
			return func(e *Entry) { e.Phase, e.FinishedAt, e.FinishReason = PhaseFinished, s.now().Add(-age), "over" }
		}
		deadRow(t, s, fmt.Sprintf("over%d", i), hooked, otherTicks(30+i), over(2*time.Hour))
		deadRow(t, s, fmt.Sprintf("old%d", i), hooked, otherTicks(40+i), over(60*24*time.Hour))
		putFile(t, s.path("frozen", fmt.Sprintf("old%d", i), "attempt", "capture.ansi"), "output")
	}
}

// outcome is what a ledger has come to, without what depends on the time.
func outcome(t *testing.T, s *Store) map[string]string {
	t.Helper()
	rows, damaged := listed(t, s)
	if len(damaged) > 0 {
		t.Errorf("damaged rows %v", damaged)
	}
	result := map[string]string{}
	for id, e := range rows {
		_, sub, err := s.lookUp(id)
		if err != nil {
			t.Fatal(err)
		}
		filed := sub == dirFinished
		result[id] = fmt.Sprintf("%s %q lease %v rescued %v ref %q filed %v", e.Phase, e.FinishReason, e.Lease != nil, !e.RescuedAt.IsZero(), e.RescueRef, filed)
		if e.Rescuing != nil {
			t.Errorf("%s is still in rescue", id)
		}
		if e.RescueRef != "" {
			cmd := exec.Command("git", "-C", e.RepoRoot, "for-each-ref", "--format=%(refname)", "refs/rescued/")
			if out, err := cmd.Output(); err != nil || strings.TrimSpace(string(out)) != e.RescueRef {
				t.Errorf("%s: refs %q, %v", id, out, err)
			}
		}
	}
	left, _ := os.ReadDir(s.path("frozen"))
	result["captures"] = fmt.Sprint(len(left))
	return result
}

func TestAKilledSweepIsFinishedByTheNext(t *testing.T) {
	points := 8
	if *sweepFull {
		points = 200
	}
	settled := func(t *testing.T, s *Store, a killedSweep) {
		opts := SweepOptions{Notify: a.options().Notify, Grace: -1}
		for range 3 {
			mustSweep(t, s, opts)
		}
		// While some process is just starting, it is not known what it carries.
		await(t, "the births are removed", func() bool {
			mustSweep(t, s, opts)
			rows, _ := listed(t, s)
			return rows["birth0"].LedgerID+rows["birth1"].LedgerID+rows["birth2"].LedgerID+rows["birth3"].LedgerID == ""
		})
	}
	arg := func(t *testing.T, s *Store) killedSweep {
		return killedSweep{s.root, t.TempDir(), hooked, hookless, filepath.Join(t.TempDir(), "said")}
	}
	var want map[string]string
	var edges map[string]int
	var took time.Duration
	t.Run("undisturbed", func(t *testing.T) {
		s := sweepStore(t, nil)
		killLedger(t, s)
		a := arg(t, s)
		began := time.Now()
		startChild(t, sweepOnce, a).wait(t)
		took = time.Since(began)
		settled(t, s, a)
		want, edges = outcome(t, s), count(t, a.Said)
		if len(edges) < 12 {
			t.Fatalf("only %v was notified", edges)
		}
	})
	for done := 0; done < points && !t.Failed(); done += 4 {
		t.Run("", func(t *testing.T) {
			s := sweepStore(t, nil)
			killLedger(t, s)
			a := arg(t, s)
			for range 4 {
				c := startChild(t, sweepOnce, a)
				timer := time.AfterFunc(time.Duration(rand.Int64N(int64(took))), func() { c.Process.Kill() })
				c.Wait()
				timer.Stop()
			}
			settled(t, s, a)
			if diff := cmp.Diff(want, outcome(t, s)); diff != "" {
				t.Errorf("undisturbed -, here +\n%s", diff)
			}
			said := count(t, a.Said)
			for edge := range edges {
				if said[edge] == 0 {
					t.Errorf("%q was not notified", edge)
				}
			}
			for edge, n := range said {
				if n > 2 {
					t.Errorf("%q was notified %d times", edge, n)
				}
			}
		})
	}
}

func count(t *testing.T, path string) map[string]int {
	t.Helper()
	lines := map[string]int{}
	data, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		lines[strings.TrimSpace(line)]++
	}
	return lines
}
