package ledger

import (
	"context"
	"errors"
	"iter"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"
)

// changes runs a watch and hands its changes to next, which fails the test when none
// comes in time.
func changes(t *testing.T, s *Store) (next func(what string) Change) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	pull, stop := iter.Pull2(s.Watch(ctx))
	t.Cleanup(func() { cancel(); stop() })
	return func(what string) Change {
		t.Helper()
		c, err, ok := pull()
		if err != nil || !ok {
			t.Fatalf("waiting for %s: %v (ok %v)", what, err, ok)
		}
		return c
	}
}

// sleeper starts a process that does nothing, and returns its identity.
func sleeper(t *testing.T, s *Store) (*exec.Cmd, ProcessID) {
	t.Helper()
	cmd := exec.Command("sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	p, err := s.procs.identify(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	return cmd, p
}

func TestWatchRowsAndExits(t *testing.T) {
	ctx := context.Background()
	s, err := Open(filepath.Join(t.TempDir(), "ledger"), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	before, p1 := sleeper(t, s)
	old, err := s.Create(ctx, Entry{Runtime: "claude"}, Enrol(p1, Location{}))
	if err != nil {
		t.Fatal(err)
	}
	next := changes(t, s)

	// The watch is set when it is first asked for a change: write until it notices.
	set, written := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(written)
		for n := 0; ; n++ {
			select {
			case <-set:
				return
			case <-time.After(10 * time.Millisecond):
				s.Update(ctx, old.LedgerID, func(e *Entry) error { e.Model = strconv.Itoa(n); return nil })
			}
		}
	}()
	c := next("update")
	if c.ID != old.LedgerID || c.Kind != ChangeUpdated || c.From != "live/none" || c.To != "live/none" {
		t.Fatalf("%+v", c)
	}
	close(set)
	<-written
	before.Process.Kill()
	for c.Kind == ChangeUpdated {
		c = next("exit of a process that ran before")
	}
	if c.ID != old.LedgerID || c.Kind != ChangeExited || c.To != "gone" {
		t.Fatalf("%+v", c)
	}
	during, p2 := sleeper(t, s)
	e, err := s.Create(ctx, Entry{Runtime: "claude"}, Enrol(p2, Location{}))
	if err != nil {
		t.Fatal(err)
	}
	if c := next("birth"); c.ID != e.LedgerID || c.Kind != ChangeCreated || c.From != "" || c.To != "live/none" {
		t.Fatalf("%+v", c)
	}
	during.Process.Kill()
	if c := next("exit"); c.ID != e.LedgerID || c.Kind != ChangeExited || c.Entry.PID != p2.PID {
		t.Fatalf("%+v", c)
	}
	if _, _, err := s.Apply(ctx, e.LedgerID, Finish(p2.Key(), "over")); err != nil {
		t.Fatal(err)
	}
	if c := next("end"); c.Kind != ChangeUpdated || c.To != "finished/none" {
		t.Fatalf("%+v", c)
	}
	path := s.path(dirSessions, old.LedgerID+rowExtension)
	if err := os.WriteFile(path, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	c = next("damage")
	for c.Kind != ChangeDamaged { // the file is seen empty first, or whole at once
		c = next("damage")
	}
	if c.ID != old.LedgerID {
		t.Fatalf("%+v", c)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if c := next("removal"); c.ID != old.LedgerID || c.Kind != ChangeRemoved {
		t.Fatalf("%+v", c)
	}
}

func TestWatchEndsWithItsContext(t *testing.T) {
	s, err := Open(filepath.Join(t.TempDir(), "ledger"), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	ctx, cancel := context.WithCancel(context.Background())
	_, p := sleeper(t, s)
	if _, err := s.Create(ctx, Entry{Runtime: "claude"}, Enrol(p, Location{})); err != nil {
		t.Fatal(err)
	}
	done := make(chan error)
	go func() {
		for _, err := range s.Watch(ctx) {
			done <- err
		}
		close(done)
	}()
	cancel()
	select {
	case err, open := <-done:
		if open {
			t.Errorf("yielded %v", err)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("the watch outlives its context")
	}
}

func TestWatchSaysWhenTheLedgerGoesAway(t *testing.T) {
	root := filepath.Join(t.TempDir(), "ledger")
	s, err := Open(root, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	go func() {
		// Once the folder is there the watch is set, or about to be: move it until it tells.
		for ctx.Err() == nil {
			os.Rename(s.path(dirSessions), root+".away")
			time.Sleep(5 * time.Millisecond) // a poll, until the watch has been set
			os.RemoveAll(root + ".away")
		}
	}()
	for c, err := range s.Watch(ctx) {
		if err == nil {
			t.Fatalf("%+v", c)
		}
		if errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		return
	}
	t.Fatal("it ended in silence")
}

// BenchmarkWatchExit measures from the kill of a live process to its change: at most 50 ms.
func BenchmarkWatchExit(b *testing.B) {
	s := newStore(b, nil)
	ctx, cancel := context.WithCancel(b.Context())
	seen := make(chan Change)
	go func() {
		defer close(seen)
		for c, err := range s.Watch(ctx) {
			if err != nil {
				b.Error(err)
				return
			}
			seen <- c
		}
	}()
	defer func() {
		cancel()
		for range seen {
		}
	}()
	// A row that is there when the watch is set is no change: the first is written until
	// it is noticed.
	first, _ := enrolled(b, s, Entry{})
	for noticed := false; !noticed; {
		apply(b, s, first.LedgerID, IntendKill())
		apply(b, s, first.LedgerID, WithdrawKill())
		select {
		case <-seen:
			noticed = true
		case <-time.After(10 * time.Millisecond):
		}
	}
	var total time.Duration
	n := 0
	for b.Loop() {
		b.StopTimer()
		e, cmd := enrolled(b, s, Entry{})
		for c := range seen {
			if c.ID == e.LedgerID {
				break
			}
		}
		b.StartTimer()
		began := time.Now()
		cmd.Process.Kill()
		for c := range seen {
			if c.ID == e.LedgerID && c.Kind == ChangeExited {
				break
			}
		}
		total += time.Since(began)
		n++
		cmd.Wait()
	}
	b.ReportMetric(float64(total.Microseconds())/1000/float64(n), "ms/exit")
}

// TestWatchSaysNothingTwiceOfARowThatWasFiled: a reader that lags behind can get several
// notices of a row after it was filed away; none of them makes it a new one.
func TestWatchSaysNothingTwiceOfARowThatWasFiled(t *testing.T) {
	s := newStore(t, nil)
	e, cmd := enrolled(t, s, Entry{})
	endProcess(cmd)
	name := e.LedgerID + rowExtension
	w := &watcher{s: s, ctx: t.Context(), rows: map[string]watched{name: {entry: e}}}
	e = finished(t, s, e.LedgerID)
	if err := os.MkdirAll(s.path(dirFinished), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(s.path(dirSessions, name), s.path(dirFinished, name)); err != nil {
		t.Fatal(err)
	}
	var said []Change
	for range 3 {
		if err := w.look(name, func(c Change) bool { said = append(said, c); return true }, false); err != nil {
			t.Fatal(err)
		}
	}
	if len(said) != 1 || said[0].Kind != ChangeUpdated || said[0].Entry.Phase != e.Phase {
		t.Errorf("%+v", said)
	}
}

// Who lists and then watches misses no exit in between: of a process that has ended already,
// in this boot or in another, the watch tells first.
func TestWatchTellsOfWhatEndedBefore(t *testing.T) {
	s := newStore(t, nil)
	e, cmd := enrolled(t, s, Entry{})
	old := "claude-20200101T000000Z-000001"
	writeLegacyRow(t, s, old, map[string]any{"phase": "live", "pid": e.PID, "pidStartTicks": 1, "bootId": "00000000-0000-4000-8000-000000000000"})
	endProcess(cmd)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	told := map[string]bool{}
	for c, err := range s.Watch(ctx) {
		if err != nil || c.Kind != ChangeExited || told[c.ID] {
			t.Fatalf("%+v, %v", c, err)
		}
		if told[c.ID] = true; len(told) == 2 {
			break
		}
	}
	if !told[e.LedgerID] || !told[old] {
		t.Errorf("told of %v", told)
	}
}

// An exit is told once, also of a row that cannot be read for a while, and not of a frozen
// session, whose process is meant to be gone.
func TestWatchTellsAnExitOnce(t *testing.T) {
	s := newStore(t, nil)
	e, cmd := enrolled(t, s, Entry{})
	endProcess(cmd)
	const frozen = "claude-20200101T000000Z-000001"
	writeLegacyRow(t, s, frozen, map[string]any{"phase": "frozen", "pid": e.PID, "pidStartTicks": 1, "bootId": "00000000-0000-4000-8000-000000000000"})
	path := s.path(dirSessions, e.LedgerID+rowExtension)
	whole := readFile(t, path)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var kinds []ChangeKind
	for c, err := range s.Watch(ctx) {
		if err != nil || c.ID != e.LedgerID {
			t.Fatalf("%+v, %v", c, err)
		}
		kinds = append(kinds, c.Kind)
		switch len(kinds) {
		case 1:
			putFile(t, path, whole[:20])
		case 2:
			putFile(t, path, whole)
		case 3:
			if _, err := s.Update(ctx, e.LedgerID, func(e *Entry) error { e.TaskID = "last"; return nil }); err != nil {
				t.Fatal(err)
			}
		}
		if c.Entry.TaskID == "last" {
			break
		}
	}
	if kinds[0] != ChangeExited || slices.Contains(kinds[1:], ChangeExited) {
		t.Errorf("%v", kinds)
	}
	os.Remove(s.path(dirSessions, frozen+rowExtension)) // it has no capture
}
