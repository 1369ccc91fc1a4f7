package ledger

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestStaleLease is the rule of staleness, and case 24.
func TestStaleLease(t *testing.T) {
	lease := Lease{Op: OpFreeze, Attempt: "a", Nonce: "n", Owner: ownerProc, AcquiredAt: midday, AcquiredBootSec: 1000}
	at := func(age time.Duration, v Verdict) LeaseSighting {
		return LeaseSighting{Owner: v, Here: hostA, BootSec: 1000 + int64(age/time.Second)}
	}
	for _, tt := range []struct {
		name string
		mend func(l *Lease, s *LeaseSighting)
		want bool
	}{
		{"gone, at the grace", func(l *Lease, s *LeaseSighting) {}, true},
		{"gone, inside the grace", func(l *Lease, s *LeaseSighting) { s.BootSec-- }, false},
		{"gone, grace of an hour", func(l *Lease, s *LeaseSighting) { s.Grace = time.Hour }, false},
		{"gone, grace of a second", func(l *Lease, s *LeaseSighting) { s.Grace, s.BootSec = time.Second, 1001 }, true},
		{"gone, no grace", func(l *Lease, s *LeaseSighting) { s.Grace, s.BootSec = -1, 1000 }, true},
		{"alive at ten times the grace (stopped, too)", func(l *Lease, s *LeaseSighting) { *s = at(10*DefaultGrace, Running) }, false},
		{"unknown for ever (another host, another namespace, unreadable)", func(l *Lease, s *LeaseSighting) { *s = at(1000*time.Hour, Unknown) }, false},
		{"another boot of this host, at once", func(l *Lease, s *LeaseSighting) {
			*s = at(0, Unknown)
			s.Here.BootID, s.BootSec = "later", 1
		}, true},
		{"another boot of another host", func(l *Lease, s *LeaseSighting) {
			*s = at(0, Unknown)
			s.Here.BootID, s.Here.HostID = "later", "elsewhere"
		}, false},
		{"another boot, host not recorded", func(l *Lease, s *LeaseSighting) {
			l.Owner.HostID = ""
			*s = at(0, Unknown)
			s.Here.BootID = "later"
		}, false},
		{"wall clock a day ahead", func(l *Lease, s *LeaseSighting) {
			l.AcquiredAt = midday.Add(-24 * time.Hour)
			s.BootSec = 1001
		}, false},
		{"wall clock a day behind", func(l *Lease, s *LeaseSighting) { l.AcquiredAt = midday.Add(24 * time.Hour) }, true},
		{"boot clock not known", func(l *Lease, s *LeaseSighting) { s.BootSec = 0 }, false},
		{"boot not known", func(l *Lease, s *LeaseSighting) { s.Here.BootID = "" }, false},
		{"nothing seen", func(l *Lease, s *LeaseSighting) { *s = LeaseSighting{} }, false},
		{"given back, owner alive", func(l *Lease, s *LeaseSighting) { l.Released, *s = true, at(0, Running) }, true},
		{"our own, forgotten", func(l *Lease, s *LeaseSighting) { *s = at(0, Running); s.Abandoned = true }, true},
		{"begun in another boot, owner of this one gone", func(l *Lease, s *LeaseSighting) {
			l.AcquiredBootID, s.BootSec = "earlier", 3
		}, true},
	} {
		l, s := lease, at(DefaultGrace, Gone)
		tt.mend(&l, &s)
		if got := StaleLease(l, s); got != tt.want {
			t.Errorf("%s: %v", tt.name, got)
		}
	}
}

// TestAgesRunFromTheBegin: a take-over changes neither the attempt nor its age, also
// across boots.
func TestAgesRunFromTheBegin(t *testing.T) {
	s := fillState(State{Phase: PhaseLive, Op: OpFreeze})
	later := hostA
	later.BootID = "later"
	heir := rivalProc
	heir.BootID = "later"
	take := TakeOver(heir)
	take.Facts.Lease = LeaseSighting{Here: later, BootSec: 5}
	taken, out, err := Transition(s, take)
	if out != Applied || taken.Attempt != s.Attempt || taken.AcquiredAt != s.AcquiredAt || taken.AcquiredBootSec != s.AcquiredBootSec {
		t.Fatalf("%s, %v: %+v", out, err, taken)
	}
	if age, known := taken.leaseAge(&LeaseSighting{Here: later, BootSec: 6}); !known || age != forever {
		t.Errorf("age %v, %v", age, known)
	}
	if age, known := s.leaseAge(&LeaseSighting{Here: hostA, BootSec: 900}); !known || age != 0 {
		t.Errorf("a boot clock that runs backwards: %v, %v", age, known)
	}
	again := TakeOver(ownerProc) // back in the boot of the Begin, which cannot be, but must not lie
	again.Facts.Lease = LeaseSighting{Owner: Gone, Here: later, BootSec: 100}
	if back, out, _ := Transition(taken, again); out != Applied || back.AcquiredBootID != s.Owner.BootID {
		t.Errorf("%s: %+v", out, back)
	}
}

// TestOneOfManyTakesOver: sixteen contenders for one stale lease, each with its own look
// at the row; whoever comes second finds a held one (case 24).
func TestOneOfManyTakesOver(t *testing.T) {
	var mu sync.Mutex
	e := Entry{SchemaVersion: 1, Phase: PhaseLive, Lease: &Lease{Op: OpFreeze, Attempt: "a", Nonce: "n", Owner: ownerProc, AcquiredAt: midday, AcquiredBootSec: 1}}
	var wg sync.WaitGroup
	wins := make(chan string, 16)
	for i := range 16 {
		wg.Go(func() {
			ev := TakeOver(testProcess(1000 + i))
			mu.Lock() // the row's lock: facts are gathered under it
			defer mu.Unlock()
			ev.Facts.Lease = LeaseSighting{Owner: Running, Here: hostA, BootSec: 500}
			if e.Lease.Owner.Same(ownerProc) {
				ev.Facts.Lease.Owner = Gone
			}
			out, write, err := advance(&e, ev)
			switch {
			case out == Applied && write:
				wins <- ev.Nonce
			case !errors.Is(err, ErrLeaseHeld) || write:
				t.Errorf("a loser: %s, %v, %v", out, write, err)
			}
		})
	}
	wg.Wait()
	if len(wins) != 1 || <-wins != e.Lease.Nonce {
		t.Errorf("%d winners, lease %+v", len(wins)+1, e.Lease)
	}
}

// TestReleaseEndsTheNonce: who gave its lease back has no say any more, and the next one
// need not wait.
func TestReleaseEndsTheNonce(t *testing.T) {
	s := fillState(State{Phase: PhaseLive, Op: OpFreeze})
	s, out, err := Transition(s, Release("nonce-1"))
	if out != Applied {
		t.Fatal(out, err)
	}
	for _, ev := range []Event{AbortFreeze("nonce-1"), Release("nonce-1")} {
		ev.Facts.Recorded = Running
		if _, out, err := Transition(s, ev); !errors.Is(err, ErrStaleNonce) {
			t.Errorf("%s after the release: %s, %v", ev.Kind, out, err)
		}
	}
	s, out, err = Transition(s, TakeOver(rivalProc))
	if out != Applied || s.Released || s.Attempt != "attempt-1" {
		t.Errorf("%s, %v: %+v", out, err, s)
	}
}

// The error says of the owner what was seen, and no more.
func TestLeaseHeldErrorSaysWhatWasSeen(t *testing.T) {
	for want, e := range map[string]LeaseHeldError{
		"which has left it":                 {Seen: Running, Stale: Yes},
		"which runs":                        {Seen: Running, Stale: No},
		"not known whether it runs":         {},
		"held for another 40s":              {Seen: Gone, Stale: No, Left: 40 * time.Second},
		"the age of the lease is not known": {Seen: Gone, Stale: Unsure},
	} {
		e.Owner.PID, e.Err = 7, ErrLeaseHeld
		if text := e.Error(); !strings.Contains(text, want) || !strings.Contains(text, "by process 7") {
			t.Errorf("%q, want %q", text, want)
		}
		if !errors.Is(&e, ErrLeaseHeld) {
			t.Errorf("%q is not ErrLeaseHeld", want)
		}
	}
}
