package ledger

import (
	"strings"
	"testing"
	"time"
)

// TestActions: which actions are open, for every kind of row, from one snapshot.
func TestActions(t *testing.T) {
	live := Entry{SchemaVersion: 1, Phase: PhaseLive, Runtime: "claude", SessionID: "c", PaneID: "%1", PID: 1}
	frozenRow := live
	frozenRow.Phase, frozenRow.Frozen = PhaseFrozen, &Frozen{Attempt: "a"}
	lease := &Lease{Op: OpFreeze, Attempt: "a", Nonce: "n", Owner: ownerProc, AcquiredAt: midday}
	with := func(e Entry, mend func(*Entry)) Entry { mend(&e); return e }
	for _, tt := range []struct {
		name string
		e    Entry
		v    actionView
		open string
	}{
		{"working", live, actionView{Liveness: LivenessWorking, Session: Running}, "freeze handoff kill"},
		{"detached", live, actionView{Liveness: LivenessDetached, Session: Running}, "freeze handoff kill"},
		{"without a pane", with(live, func(e *Entry) { e.PaneID = "" }), actionView{Liveness: LivenessIdle, Session: Running}, "handoff kill"},
		{"without a conversation", with(live, func(e *Entry) { e.SessionID = "" }), actionView{Liveness: LivenessIdle, Session: Running}, "handoff kill"},
		{"unknown", live, actionView{Liveness: LivenessUnknown}, "kill"},
		{"not classified", live, actionView{}, "kill"},
		{"orphaned", live, actionView{Liveness: LivenessOrphaned, Session: Gone}, "resume handoff kill drop"},
		{"orphaned, without a conversation", with(live, func(e *Entry) { e.SessionID = "" }), actionView{Liveness: LivenessOrphaned, Session: Gone}, "handoff kill drop"},
		{"tombstoned", with(live, func(e *Entry) { e.KillIntentAt = midday }), actionView{Liveness: LivenessOrphaned, Session: Gone}, "kill drop"},
		{"in flight", with(live, func(e *Entry) { e.Lease = lease }), actionView{Liveness: LivenessInFlight, Session: Running}, "kill"},
		{"in flight, stale, process gone", with(live, func(e *Entry) { e.Lease = lease }), actionView{Liveness: LivenessInFlight, Session: Gone, Stale: true}, "kill drop"},
		{"frozen", frozenRow, actionView{Liveness: LivenessFrozen, Session: Gone}, "restore kill drop"},
		{"frozen, and a process runs", frozenRow, actionView{Liveness: LivenessFrozen, Session: Running}, "kill"},
		{"frozen, without a conversation", with(frozenRow, func(e *Entry) { e.SessionID = "" }), actionView{Liveness: LivenessFrozen, Session: Gone}, "kill drop"},
		{"archived", with(live, func(e *Entry) { e.Phase = PhaseArchived }), actionView{Liveness: LivenessArchived, Session: Gone}, "kill drop"},
		{"finished", with(live, func(e *Entry) { e.Phase, e.FinishedAt = PhaseFinished, midday }), actionView{Liveness: LivenessFinished, Session: Gone}, "drop"},
		{"attention leaves kill and drop open", with(live, func(e *Entry) { e.Attention = &Note{Since: midday, Reason: "x"} }), actionView{Liveness: LivenessOrphaned, Session: Gone}, "resume handoff kill drop"},
		{"newer schema", with(live, func(e *Entry) { e.SchemaVersion = 2 }), actionView{Liveness: LivenessOrphaned, Session: Gone}, ""},
	} {
		var open []string
		list := actions(tt.e, tt.v)
		for _, a := range list {
			if a.Open {
				open = append(open, a.Action)
			}
			comes := a.Open && a.Action == ActionKill && tt.e.Lease != nil // with what it does about the operation
			if a.Open != (a.Reason == "") && !comes || comes && a.Reason == "" {
				t.Errorf("%s: %s is open %v with the reason %q", tt.name, a.Action, a.Open, a.Reason)
			}
		}
		if got := strings.Join(open, " "); got != tt.open || len(list) != 6 {
			t.Errorf("%s: open are %q of %d, want %q", tt.name, got, len(list), tt.open)
		}
	}
}

// TestActivity: a tombstone outranks everything, an operation and a limit are pending.
func TestActivity(t *testing.T) {
	yes, no := true, false
	for _, tt := range []struct {
		name    string
		s       State
		l       Liveness
		working *bool
		want    Activity
	}{
		{"tombstone over op, limit and work", State{Phase: PhaseLive, Tombstoned: true, Op: OpFreeze, Limited: true}, LivenessWorking, &yes, ActivityTerminal},
		{"op over idle", State{Phase: PhaseLive, Op: OpFreeze}, LivenessIdle, nil, ActivityPending},
		{"op over frozen", State{Phase: PhaseFrozen, Op: OpRestore}, LivenessFrozen, nil, ActivityPending},
		{"limit over idle", State{Phase: PhaseLive, Limited: true}, LivenessIdle, nil, ActivityPending},
		{"working", State{Phase: PhaseLive}, LivenessWorking, nil, ActivityPending},
		{"unknown", State{Phase: PhaseLive}, LivenessUnknown, nil, ActivityPending},
		{"not classified", State{Phase: PhaseLive}, "", nil, ActivityPending},
		{"idle", State{Phase: PhaseLive}, LivenessIdle, nil, ActivityIdle},
		{"detached and working", State{Phase: PhaseLive}, LivenessDetached, &yes, ActivityPending},
		{"detached and idle", State{Phase: PhaseLive}, LivenessDetached, &no, ActivityIdle},
		{"detached, not known", State{Phase: PhaseLive}, LivenessDetached, nil, ActivityPending},
		{"orphaned", State{Phase: PhaseLive}, LivenessOrphaned, nil, ActivityTerminal},
		{"frozen", State{Phase: PhaseFrozen}, LivenessFrozen, nil, ActivityTerminal},
		{"finished", State{Phase: PhaseFinished}, LivenessFinished, nil, ActivityTerminal},
	} {
		if got := activity(tt.s, tt.l, tt.working); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}
}

// TestBackoff: 10 s doubling to 5 min, one report a streak, another boot is later.
func TestBackoff(t *testing.T) {
	var b Backoff
	if !b.Due("boot", 0) {
		t.Error("the zero value is not due")
	}
	now := int64(100)
	for i, want := range []time.Duration{10, 20, 40, 80, 160, 300, 300, 300} {
		next, report := b.Fail("boot", now)
		if report != (i == 0) {
			t.Errorf("failure %d: report %v", i+1, report)
		}
		if next.Due("boot", now+int64(want)-1) || !next.Due("boot", now+int64(want)) {
			t.Errorf("failure %d: due at %d, want %d later than %d", i+1, next.DueBoot, want, now)
		}
		if !next.Due("later boot", 0) {
			t.Errorf("failure %d: not due in another boot", i+1)
		}
		b, now = next, now+int64(want)
	}
	if b.Retire().Due("boot", 1<<40) || b.Retire().Due("later boot", 0) {
		t.Error("retired work is due")
	}
	if next, report := (Backoff{}).Fail("boot", now); !report || next.DueBoot != now+10 {
		t.Errorf("after a success: %+v, %v", next, report)
	}
	// Thousands of failures overflow nothing.
	b.Failures = 1 << 30
	if next, _ := b.Fail("boot", 0); next.DueBoot != 300 {
		t.Errorf("due at %d", next.DueBoot)
	}
}
