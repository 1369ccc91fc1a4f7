package ledger

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"
)

// at once makes a reconcile act without the patience that owners get.
var atOnce = ReconcileOptions{Grace: -1, AckGrace: -1, End: quick}

// leftBy applies an event as a coordinator that is dead by now.
func leftBy(t *testing.T, s *Store, id string, ev func(ProcessID) Event) Entry {
	t.Helper()
	owner, cmd := startProcess(t)
	e := apply(t, s, id, ev(owner))
	endProcess(cmd)
	return e
}

// reconcileOnce reconciles one row.
func reconcileOnce(t *testing.T, s *Store, id string) Reconciled {
	t.Helper()
	all, err := (&Host{Store: s}).Reconcile(context.Background(), id, atOnce)
	if err != nil {
		t.Fatal(err)
	}
	if len(all) == 0 {
		return Reconciled{}
	}
	return all[0]
}

// reconciled is reconcileOnce, again as long as what is seen is not complete: on a busy
// machine some process or other is always just starting a program.
func reconciled(t *testing.T, s *Store, id string) (r Reconciled) {
	t.Helper()
	await(t, "everything is seen", func() bool {
		r = reconcileOnce(t, s, id)
		return r.Action != "" && r.Outcome != OutcomeUnknown || strings.Contains(r.Error, "still runs")
	})
	return r
}

func TestReconcileSettlesWhatNeedsNoPane(t *testing.T) {
	ctx := context.Background()
	t.Run("a birth that never ran is removed", func(t *testing.T) {
		s := newStore(t, nil)
		owner, cmd := startProcess(t)
		e, err := s.Create(ctx, Entry{Runtime: "claude"}, BeginCreate(owner))
		if err != nil {
			t.Fatal(err)
		}
		endProcess(cmd)
		if r := reconciled(t, s, e.LedgerID); r.Action != "RemoveBirth" || r.Outcome != OutcomeDone {
			t.Errorf("%+v", r)
		}
		if _, err := s.Get(ctx, e.LedgerID); !errors.Is(err, ErrNotFound) {
			t.Errorf("%v", err)
		}
	})
	t.Run("a birth whose process runs is bound", func(t *testing.T) {
		s := newStore(t, nil)
		owner, cmd := startProcess(t)
		e, err := s.Create(ctx, Entry{Runtime: "claude"}, BeginCreate(owner))
		if err != nil {
			t.Fatal(err)
		}
		endProcess(cmd)
		home := t.TempDir()
		pids := growTree(t, node{Name: "agent", Args: []string{"claude"},
			Env: append(treeEnv(home), envID+"="+e.LedgerID, envAttempt+"="+e.Lease.Attempt)})
		if r := reconciled(t, s, e.LedgerID); r.Action != "Bind" {
			t.Errorf("%+v", r)
		}
		if now, err := s.Get(ctx, e.LedgerID); err != nil || now.PID != pids["agent"] || now.Lease != nil {
			t.Errorf("%v %+v", err, now)
		}
	})
	t.Run("a freeze whose agent runs is given up, and its files go", func(t *testing.T) {
		s := newStore(t, nil)
		e, _ := enrolled(t, s, Entry{})
		e = leftBy(t, s, e.LedgerID, BeginShellFreeze)
		dir := s.captureDir(e.LedgerID, e.Lease.Attempt)
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if r := reconciled(t, s, e.LedgerID); r.Action != "AbortFreeze" {
			t.Errorf("%+v", r)
		}
		if now, err := s.Get(ctx, e.LedgerID); err != nil || now.Phase != PhaseLive || now.Lease != nil || now.Frozen != nil {
			t.Errorf("%v %+v", err, now)
		}
		if fileExists(dir) {
			t.Error("its files are left")
		}
	})
	t.Run("a freeze whose agent is gone and captured is committed", func(t *testing.T) {
		s := newStore(t, nil)
		e, agent := enrolled(t, s, Entry{})
		e = leftBy(t, s, e.LedgerID, BeginShellFreeze)
		endProcess(agent)
		dir := s.captureDir(e.LedgerID, e.Lease.Attempt)
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(dir+"/capture.ansi", []byte("out"), 0o600); err != nil {
			t.Fatal(err)
		}
		if r := reconciled(t, s, e.LedgerID); r.Action != "CommitFreeze" {
			t.Errorf("%+v", r)
		}
		if now, err := s.Get(ctx, e.LedgerID); err != nil || now.Phase != PhaseFrozen || now.Lease != nil {
			t.Errorf("%v %+v", err, now)
		}
		if !fileExists(dir + "/capture.ansi") {
			t.Error("the capture is lost")
		}
	})
	t.Run("a kill goes on", func(t *testing.T) {
		s := newStore(t, nil)
		e, agent := enrolled(t, s, Entry{})
		apply(t, s, e.LedgerID, IntendKill())
		leftBy(t, s, e.LedgerID, BeginKill)
		if r := reconciled(t, s, e.LedgerID); r.Action == "CommitKill" {
			t.Errorf("its process runs: %+v", r)
		}
		endProcess(agent)
		if r := reconciled(t, s, e.LedgerID); r.Action != "CommitKill" {
			t.Errorf("%+v", r)
		}
		if now, err := s.Get(ctx, e.LedgerID); err != nil || now.Phase != PhaseFinished {
			t.Errorf("%v %+v", err, now)
		}
	})
	t.Run("a tombstone whose process is gone is finished", func(t *testing.T) {
		s := newStore(t, nil)
		e, agent := enrolled(t, s, Entry{})
		apply(t, s, e.LedgerID, IntendKill())
		endProcess(agent)
		if r := reconciled(t, s, e.LedgerID); r.Action != "CommitKill" {
			t.Errorf("%+v", r)
		}
	})
	t.Run("a drop is finished, or given up while a process runs", func(t *testing.T) {
		s := newStore(t, nil)
		e, agent := enrolled(t, s, Entry{})
		endProcess(agent)
		leftBy(t, s, e.LedgerID, BeginDrop)
		if r := reconciled(t, s, e.LedgerID); r.Action != "CommitDrop" {
			t.Errorf("%+v", r)
		}
		if _, err := s.Get(ctx, e.LedgerID); !errors.Is(err, ErrNotFound) {
			t.Errorf("%v", err)
		}
	})
	t.Run("a respawn that started nothing is given up", func(t *testing.T) {
		s := newStore(t, nil)
		e, agent := enrolled(t, s, Entry{})
		endProcess(agent)
		leftBy(t, s, e.LedgerID, BeginRespawn)
		if r := reconciled(t, s, e.LedgerID); r.Action != "AbortRespawn" {
			t.Errorf("%+v", r)
		}
	})
	t.Run("an end that was reported meanwhile is settled", func(t *testing.T) {
		s := newStore(t, nil)
		e, agent := enrolled(t, s, Entry{})
		begun := apply(t, s, e.LedgerID, BeginShellFreeze(self(t)))
		if _, out, err := s.Apply(ctx, e.LedgerID, Finish(e.Process().Key(), "logged out")); err != nil || out != Yielded {
			t.Fatalf("%v %v", out, err)
		}
		apply(t, s, e.LedgerID, AbortFreeze(begun.Lease.Nonce))
		endProcess(agent)
		if r := reconciled(t, s, e.LedgerID); r.Action != "Finish" {
			t.Errorf("%+v", r)
		}
		if now, err := s.Get(ctx, e.LedgerID); err != nil || now.Phase != PhaseFinished || now.FinishReason != "logged out" {
			t.Errorf("%v %+v", err, now)
		}
	})
}

// TestReconcileTouchesNothingThatNeedsNothing compares the rows' files.
func TestReconcileTouchesNothingThatNeedsNothing(t *testing.T) {
	s := newStore(t, nil)
	live, _ := enrolled(t, s, Entry{})
	held, _ := enrolled(t, s, Entry{})
	owner, _ := startProcess(t)
	apply(t, s, held.LedgerID, BeginShellFreeze(owner))
	before := map[string]os.FileInfo{}
	for _, id := range []string{live.LedgerID, held.LedgerID} {
		info, err := os.Stat(s.path(dirSessions, id+rowExtension))
		if err != nil {
			t.Fatal(err)
		}
		before[id] = info
	}
	all, err := (&Host{Store: s}).Reconcile(context.Background(), "", atOnce)
	if err != nil || len(all) != 0 {
		t.Errorf("%+v %v", all, err)
	}
	for id, was := range before {
		now, err := os.Stat(s.path(dirSessions, id+rowExtension))
		if err != nil || !os.SameFile(was, now) || !was.ModTime().Equal(now.ModTime()) {
			t.Errorf("%s was touched: %v", id, err)
		}
	}
}

// TestReconcileAsksForAttentionAndForgets: a row that cannot be settled says so, once it
// has been unclear for ten minutes, and no longer once it is clear.
func TestReconcileAsksForAttentionAndForgets(t *testing.T) {
	ctx := context.Background()
	clock := newClock()
	s := newStore(t, &Options{Clock: clock})
	ticks := uint64(1)
	putEntry(t, s, Entry{SchemaVersion: 1, LedgerID: "claude-1", Runtime: "claude", Phase: PhaseLive, KillIntentAt: clock.Now(),
		HostID: "another", BootID: "another", PID: 1, PIDStartTicks: &ticks})
	reconcileOnce(t, s, "claude-1")
	now, err := s.Get(ctx, "claude-1")
	if err != nil || now.Unclear == nil || now.Attention != nil {
		t.Fatalf("%v %+v", err, now)
	}
	revision := now.Revision
	reconcileOnce(t, s, "claude-1")
	if now, _ = s.Get(ctx, "claude-1"); now.Revision != revision {
		t.Errorf("said twice: %+v", now)
	}
	clock.advance(attentionAfter)
	if r := reconcileOnce(t, s, "claude-1"); r.Outcome != OutcomeUnknown || r.Error == "" {
		t.Errorf("%+v", r)
	}
	if now, _ = s.Get(ctx, "claude-1"); now.Attention == nil || !strings.Contains(now.Attention.Reason, "not known") {
		t.Fatalf("%+v", now)
	}
	apply(t, s, "claude-1", WithdrawKill())
	reconcileOnce(t, s, "claude-1")
	if now, _ = s.Get(ctx, "claude-1"); now.Attention != nil || now.Unclear != nil {
		t.Errorf("not forgotten: %+v", now)
	}
}

// TestOneOfManyTakesAStaleLease has 16 processes after one lease.
func TestOneOfManyTakesAStaleLease(t *testing.T) {
	s := newStore(t, nil)
	e, _ := enrolled(t, s, Entry{})
	leftBy(t, s, e.LedgerID, BeginShellFreeze)
	const contenders = 16
	var kids []*runningChild
	for range contenders {
		kids = append(kids, startChild(t, contendChild, contend{s.root, e.LedgerID}))
	}
	won := 0
	for _, c := range kids {
		switch out := strings.TrimSpace(c.wait(t)); out {
		case "won":
			won++
		case "held":
		default:
			t.Errorf("%q", out)
		}
	}
	if won != 1 {
		t.Errorf("%d won", won)
	}
}

type contend struct{ Dir, ID string }

var contendChild = inChild("contend", func(c contend) error {
	s, err := Open(c.Dir, &Options{Grace: -1})
	if err != nil {
		return err
	}
	defer s.Close()
	me, err := Self()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	_, _, err = s.Apply(ctx, c.ID, TakeOver(me))
	switch {
	case err == nil:
		fmt.Println("won")
		time.Sleep(time.Second) // an owner that lives: whoever comes later meets it
	case errors.Is(err, ErrLeaseHeld):
		fmt.Println("held")
	default:
		return err
	}
	return nil
})

// TestTwoReconcilersAndALateCoordinator: one settles the row, the others write nothing.
func TestTwoReconcilersAndALateCoordinator(t *testing.T) {
	ctx := context.Background()
	s := newStore(t, nil)
	e, _ := enrolled(t, s, Entry{})
	begun := leftBy(t, s, e.LedgerID, BeginShellFreeze)
	var wait sync.WaitGroup
	for range 2 {
		wait.Go(func() {
			if _, err := (&Host{Store: s}).Reconcile(ctx, e.LedgerID, atOnce); err != nil {
				t.Error(err)
			}
		})
	}
	wait.Wait()
	settled, err := s.Get(ctx, e.LedgerID)
	if err != nil || settled.Lease != nil || settled.Phase != PhaseLive {
		t.Fatalf("%v %+v", err, settled)
	}
	// The coordinator that was thought dead wakes up: its next call tells it, and changes nothing.
	for _, late := range []Event{CommitFreeze(begun.Lease.Nonce, ProcessID{}), AbortFreeze(begun.Lease.Nonce), Release(begun.Lease.Nonce)} {
		if _, _, err := s.Apply(ctx, e.LedgerID, late); !errors.Is(err, ErrStaleNonce) {
			t.Errorf("%s: %v", late.Kind, err)
		}
	}
	if now, err := s.Get(ctx, e.LedgerID); err != nil || now.Revision != settled.Revision {
		t.Errorf("%v: revision %d, was %d", err, now.Revision, settled.Revision)
	}
}
