package ledger

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"
)

// listener collects what is delivered.
type listener struct {
	groups [][]Edge
	err    error
}

func (l *listener) options() SweepOptions {
	return SweepOptions{Notify: func(_ context.Context, edges []Edge) error {
		l.groups = append(l.groups, edges)
		return l.err
	}}
}

// take returns what was delivered since, as "id from>to", in order.
func (l *listener) take() (edges []string) {
	edges = shown(slices.Concat(l.groups...))
	l.groups = nil
	return edges
}

func shown(edges []Edge) (list []string) {
	for _, e := range edges {
		list = append(list, fmt.Sprintf("%s %s>%s", e.ID, e.From, e.To))
	}
	slices.Sort(list)
	return list
}

// quietStore is a ledger with one live session whose states are known to have been said.
func quietStore(t *testing.T, l *listener) *Store {
	t.Helper()
	s := sweepStore(t, nil)
	p, _ := startAgent(t, hooked)
	if _, err := s.Create(t.Context(), Entry{LedgerID: "live", Runtime: hooked}, Enrol(p, Location{})); err != nil {
		t.Fatal(err)
	}
	mustSweep(t, s, l.options())
	if got := l.take(); len(got) > 0 {
		t.Fatalf("the first sweep says %v", got)
	}
	return s
}

func TestEdgesComeOncePerTransitionAcrossRestarts(t *testing.T) {
	var l listener
	s := quietStore(t, &l)
	expect := func(what string, want ...string) {
		t.Helper()
		// Each pass in a store of its own: nothing is remembered in the process.
		st := openStore(t, s.root, &Options{Runtimes: sweepRuntimes(hooked, hookless), Home: t.TempDir()})
		rep := mustSweep(t, st, l.options())
		if got := l.take(); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q; warnings %v", what, got, want, rep.Warnings)
		}
		if got := shown(rep.Edges); !slices.Equal(got, want) {
			t.Errorf("%s: the report says %q, want %q", what, got, want)
		}
	}
	dir := t.TempDir()
	p, cmd := startAgent(t, hooked)
	if _, err := s.Create(t.Context(), Entry{LedgerID: "row", Runtime: hooked, SessionID: "c", Cwd: dir}, Enrol(p, Location{})); err != nil {
		t.Fatal(err)
	}
	expect("a new session")
	endProcess(cmd)
	expect("its death", "row ALIVE-IDLE>ORPHANED")
	expect("the same state")
	next, nextCmd := startAgent(t, hooked)
	if _, err := s.rewrite(t.Context(), "row", true, maxRow, func(e *Entry) (verdict, error) { e.RescuedAt = time.Time{}; return unchanged, nil }); err != nil {
		t.Fatal(err)
	}
	apply(t, s, "row", Bind("", next, Location{}))
	expect("another process for it")
	endProcess(nextCmd)
	expect("its second death", "row ALIVE-IDLE>ORPHANED")
	apply(t, s, "row", Finish(get(t, s, "row").Process().Key(), "the hook said so"))
	expect("an end that was announced")

	deadRow(t, s, "hookless", hookless, inFolder(dirtyRepo(t)))
	expect("found dead and closed in one pass", "hookless >FINISHED", "hookless FINISHED>RESCUED")

	attention := func(n *Note) {
		t.Helper()
		if _, err := s.Update(t.Context(), "live", func(e *Entry) error { e.Attention = n; return nil }); err != nil {
			t.Fatal(err)
		}
	}
	since := s.now()
	attention(&Note{Since: since, Reason: "look"})
	expect("attention", "live ALIVE-IDLE>ATTENTION")
	attention(&Note{Since: since, Reason: "look closer"})
	expect("the same attention")
	attention(nil)
	expect("no attention any more")
	attention(&Note{Since: since, Reason: "look"})
	expect("attention again", "live ALIVE-IDLE>ATTENTION")
	apply(t, s, "live", ObserveLimit(get(t, s, "live").Process().Key(), s.now().Add(time.Hour)))
	expect("a limit", "live ALIVE-IDLE>LIMIT")
	expect("the same limit")

	birth(t, s, "never-ran", func(e *Entry) { e.SessionID, e.Attention = "n", &Note{Since: since, Reason: "look"} })
	expect("a row that never had a process")
	deadRow(t, s, "unknown", hooked, otherTicks(9), func(e *Entry) { e.HostID = "another host" })
	expect("a state that is not known")
}

func TestEdgesBetweenLiveStatesComeWhereTheyAreAskedFor(t *testing.T) {
	rules := []EdgeRule{{To: string(LivenessWorking)}, {To: string(LivenessIdle)}}
	known := heard{}
	var got []string
	for _, state := range []Liveness{LivenessWorking, LivenessIdle, LivenessUnknown, LivenessIdle, LivenessInFlight, LivenessWorking, LivenessIdle} {
		var edges []Edge
		edges, known = edgesOf(known, &Entry{LedgerID: "row", PID: 7}, state, rules, time.Time{})
		got = append(got, shown(edges)...)
	}
	want := []string{"row >ALIVE-WORKING", "row ALIVE-WORKING>ALIVE-IDLE", "row ALIVE-IDLE>ALIVE-WORKING", "row ALIVE-WORKING>ALIVE-IDLE"}
	if !slices.Equal(got, want) {
		t.Errorf("%q\nwant %q", got, want)
	}
	if edges, _ := edgesOf(heard{signalState: string(LivenessWorking)}, &Entry{PID: 7}, LivenessIdle, DefaultEdges(), time.Time{}); len(edges) > 0 {
		t.Errorf("nobody asked for %q", shown(edges))
	}
}

func TestDeathsByTheDozenAreOneGroup(t *testing.T) {
	var l listener
	s := quietStore(t, &l)
	for i := range 55 {
		deadRow(t, s, fmt.Sprintf("agent%02d", i), hooked, otherTicks(i), func(e *Entry) { e.SessionID, e.RescuedAt = e.LedgerID, e.StartedAt })
	}
	mustSweep(t, s, l.options())
	if len(l.groups) != 1 || len(l.groups[0]) != 55 {
		t.Fatalf("%d groups, %d edges", len(l.groups), len(l.take()))
	}
	if text := EdgesText(l.groups[0]); text != "Sessions: 55 lost their process: resume brings them back" {
		t.Errorf("%q", text)
	}
	l.take()
	mustSweep(t, s, l.options())
	if got := l.take(); len(got) > 0 {
		t.Errorf("said again: %q", got)
	}
	// Those that are closed over several passes are said once for each state.
	for i := range 55 {
		deadRow(t, s, fmt.Sprintf("less%02d", i), hookless, otherTicks(100+i), rescued)
	}
	said := map[string]int{}
	for range 3 {
		mustSweep(t, s, l.options())
		if len(l.groups) > 1 {
			t.Errorf("%d groups in one pass", len(l.groups))
		}
		for _, e := range l.take() {
			said[e]++
		}
	}
	finished := 0
	for edge, n := range said {
		if n != 1 {
			t.Errorf("%q came %d times", edge, n)
		}
		if strings.HasSuffix(edge, ">FINISHED") {
			finished++
		}
	}
	if finished != 55 {
		t.Errorf("%d of 55 ends were said", finished)
	}
}

func TestALostOrDamagedRecordCausesNoFlood(t *testing.T) {
	for name, damage := range map[string]func(t *testing.T, path string){
		"missing":   func(t *testing.T, path string) { os.Remove(path) },
		"torn":      func(t *testing.T, path string) { os.Truncate(path, 20) },
		"empty":     func(t *testing.T, path string) { os.Truncate(path, 0) },
		"a newer":   func(t *testing.T, path string) { putFile(t, path, `{"version":2}`) },
		"not ours":  func(t *testing.T, path string) { putFile(t, path, `[1,2]`) },
		"a strange": func(t *testing.T, path string) { putFile(t, path, `{"version":1,"notify":7}`) },
	} {
		t.Run(name, func(t *testing.T) {
			var l listener
			s := quietStore(t, &l)
			for i := range 20 {
				deadRow(t, s, fmt.Sprintf("agent%02d", i), hooked, otherTicks(i), rescued, func(e *Entry) { e.SessionID = e.LedgerID })
			}
			damage(t, s.path(notifiedFile))
			rep := mustSweep(t, s, l.options())
			if got := l.take(); len(got) > 0 || len(rep.Edges) > 0 {
				t.Errorf("a flood: %q", got)
			}
			if !slices.ContainsFunc(rep.Warnings, func(w Warning) bool { return strings.Contains(w.Error, notifiedFile) }) {
				t.Errorf("nothing is said of it: %v", rep.Warnings)
			}
			deadRow(t, s, "news", hooked, otherTicks(50), rescued, func(e *Entry) { e.SessionID = "n" })
			rep = mustSweep(t, s, l.options())
			if got := l.take(); !slices.Equal(got, []string{"news >ORPHANED"}) || len(rep.Warnings) > 0 {
				t.Errorf("afterwards: %q, %v", got, rep.Warnings)
			}
		})
	}
}

func TestWhatCannotBeWrittenDownIsNotNotified(t *testing.T) {
	var l listener
	s := quietStore(t, &l)
	os.Remove(s.path(notifiedFile))
	if err := os.Mkdir(s.path(notifiedFile), 0o700); err != nil {
		t.Fatal(err)
	}
	deadRow(t, s, "row", hookless, rescued)
	_, err := Sweep(t.Context(), s, l.options())
	var failed *SweepError
	if !errors.As(err, &failed) || len(l.take()) > 0 {
		t.Errorf("%v", err)
	}
	if e := get(t, s, "row"); e.IsOpen() {
		t.Error("the other stages were not made")
	}
}

func TestADeliveryThatFailsIsMadeOnceMore(t *testing.T) {
	var l listener
	s := quietStore(t, &l)
	lost := func(e *Entry) { e.SessionID = e.LedgerID }
	deadRow(t, s, "row", hooked, rescued, lost)
	l.err = errors.New("no display")
	rep := mustSweep(t, s, l.options())
	if got := l.take(); len(got) != 1 || len(rep.Warnings) != 1 {
		t.Fatalf("%q, %v", got, rep.Warnings)
	}
	deadRow(t, s, "other", hooked, otherTicks(1), rescued, lost)
	mustSweep(t, s, l.options())
	if got := l.take(); len(got) != 2 {
		t.Fatalf("the second delivery: %q", got)
	}
	mustSweep(t, s, l.options())
	if got := l.take(); !slices.Equal(got, []string{"other >ORPHANED"}) {
		t.Errorf("the third delivery: %q", got)
	}
	mustSweep(t, s, l.options())
	if got := l.take(); len(got) > 0 {
		t.Errorf("the fourth delivery: %q", got)
	}
}

func TestTheClaimOfAnOwnerThatRunsIsLeftAlone(t *testing.T) {
	for name, c := range map[string]struct {
		owner func(t *testing.T) ProcessID
		again bool
		want  int // deliveries
		left  int // claims
	}{
		"runs":             {func(t *testing.T) ProcessID { p, _ := startProcess(t); return p }, false, 0, 1},
		"gone":             {func(*testing.T) ProcessID { return deadProcess() }, false, 1, 0},
		"gone twice":       {func(*testing.T) ProcessID { return deadProcess() }, true, 0, 0},
		"another host's":   {func(*testing.T) ProcessID { p := deadProcess(); p.HostID = "x"; return p }, false, 0, 1},
		"of a former boot": {func(*testing.T) ProcessID { p := deadProcess(); p.BootID = "x"; return p }, false, 1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			var l listener
			s := quietStore(t, &l)
			n, err := s.loadNotified()
			if err != nil {
				t.Fatal(err)
			}
			n.Claims = []edgeClaim{{Token: "t", Owner: c.owner(t), Again: c.again, Edges: []Edge{{ID: "live", From: "ALIVE-IDLE", To: "ATTENTION"}}}}
			if err := s.saveNotified(&n, nil); err != nil {
				t.Fatal(err)
			}
			for range 2 {
				mustSweep(t, s, l.options())
			}
			if got := l.take(); len(got) != c.want {
				t.Errorf("delivered %q", got)
			}
			if n, err = s.loadNotified(); err != nil || len(n.Claims) != c.left {
				t.Errorf("claims %+v, %v", n.Claims, err)
			}
		})
	}
}

func TestNoLockIsHeldAcrossADelivery(t *testing.T) {
	var l listener
	s := quietStore(t, &l)
	deadRow(t, s, "row", hookless, rescued)
	called := false
	mustSweep(t, s, SweepOptions{Notify: func(ctx context.Context, edges []Edge) error {
		called = true
		if _, bounded := ctx.Deadline(); !bounded {
			t.Error("the delivery has no bound")
		}
		for _, lock := range []string{notifiedLock} {
			unlock, err := s.lockPass(ctx, lock)
			if err != nil {
				return err
			}
			unlock()
		}
		// The claim stands while it is delivered.
		n, err := s.loadNotified()
		if err != nil || len(n.Claims) != 1 || !n.Claims[0].Owner.Same(self(t)) {
			t.Errorf("claims %+v, %v", n.Claims, err)
		}
		_, err = s.Update(ctx, edges[0].ID, touch)
		return err
	}})
	if n, err := s.loadNotified(); !called || err != nil || len(n.Claims) > 0 {
		t.Errorf("called %v, claims %+v, %v", called, n.Claims, err)
	}
}

func TestWhatWasSaidLeavesWithItsRow(t *testing.T) {
	clock := newClock()
	var l listener
	s := sweepStore(t, clock)
	deadRow(t, s, "filed", hookless, rescued)
	deadRow(t, s, "dropped", hooked, otherTicks(1), rescued, func(e *Entry) { e.SessionID = "d" })
	mustSweep(t, s, l.options())
	if n, _ := s.loadNotified(); len(n.Notify) != 2 || len(n.Report) != 2 {
		t.Fatalf("%+v", n)
	}
	if err := os.Remove(rowPath(s, "dropped")); err != nil {
		t.Fatal(err)
	}
	clock.advance(2 * time.Minute)
	rep := mustSweep(t, s, l.options())
	if n, _ := s.loadNotified(); len(rep.Filed) != 1 || len(n.Notify)+len(n.Report) > 0 {
		t.Errorf("filed %v, left %+v", rep.Filed, n)
	}
}

func TestASweepWithoutANotifierKeepsTheEdgesForOneWith(t *testing.T) {
	var l listener
	s := quietStore(t, &l)
	deadRow(t, s, "row", hooked, rescued, func(e *Entry) { e.SessionID = "c" })
	if rep := mustSweep(t, s, SweepOptions{}); len(rep.Edges) != 1 {
		t.Errorf("the report says %q", shown(rep.Edges))
	}
	rep := mustSweep(t, s, l.options())
	if got := l.take(); !slices.Equal(got, []string{"row >ORPHANED"}) || len(rep.Edges) > 0 {
		t.Errorf("delivered %q, reported %q", got, shown(rep.Edges))
	}
}

func TestTheTextOfEdgesIsForPeople(t *testing.T) {
	row := Entry{Runtime: "claude", Project: "shop\x1b[31m\n", SessionID: "c", FinishReason: "process exited", Limit: &Limit{},
		Attention: &Note{Reason: "look"}, Restore: &Restore{Error: &RestoreError{Reason: "no pane"}}, RescueRef: "refs/rescued/x", RescuedPaths: []string{"a"}}
	for _, to := range []string{"ORPHANED", "FINISHED", "DETACHED-ALIVE", "FROZEN", "ALIVE-IDLE", EdgeRescued, EdgeRestoreFailed, EdgeAttention, EdgeLimit} {
		text := Edge{To: to, Entry: row}.Text()
		if !strings.HasPrefix(text, "claude in shop") || strings.ContainsFunc(text, unicode.IsControl) || strings.Contains(text, "tmux") {
			t.Errorf("%s: %q", to, text)
		}
	}
	if text := EdgesText([]Edge{{To: "ORPHANED", Entry: row}}); !strings.Contains(text, "resume brings its conversation back") {
		t.Errorf("%q", text)
	}
	if EdgesText(nil) != "" {
		t.Error("nothing has a text")
	}
}
