package ledger

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// caught returns a row whose coordinator left it in the operation op, with the attempt
// "n".
func caught(phase Phase, op Op, mend func(*Entry)) Entry {
	return rowWith(agentProc, func(e *Entry) {
		e.Phase = phase
		if op != OpNone {
			e.Lease = &Lease{Op: op, Attempt: "n", Nonce: "n", Owner: ownerProc, AcquiredAt: midday, AcquiredBootSec: 1000}
		}
		switch {
		case op == OpFreeze:
			e.Frozen = &Frozen{Attempt: "n", Mode: FreezePane}
		case phase == PhaseFrozen:
			e.Frozen = &Frozen{Attempt: "f", Mode: FreezePane}
		}
		switch op {
		case OpCreate:
			*e = Entry{SchemaVersion: 1, LedgerID: "a", Runtime: "claude", Phase: PhaseLive, Lease: e.Lease}
		case OpRestore, OpAbort:
			e.Restore = &Restore{Attempt: "n", Mode: RestoreResume}
		case OpHandoff:
			e.HandoffTarget = "codex"
		case OpKill:
			e.KillIntentAt = midday
		}
		if mend != nil {
			mend(e)
		}
	})
}

// quiet is an observation in which everything is known and quiet: nothing runs, our pane
// is healthy, the lease is stale and old.
func quietly(mend func(*Observation)) Observation {
	ob := Observation{
		Agent: Gone, Launched: Gone, LaunchedAge: time.Hour, Session: Gone, Attempt: CarrierSighting{Seen: Gone},
		Row: CarrierSighting{Seen: Gone}, Conversation: No, Capture: Yes,
		Pane:  PaneSighting{State: PanePresent, Ours: Yes, Dead: No, Process: viewerProc},
		Lease: LeaseSighting{Owner: Gone, Here: hostA, BootSec: 1000 + 120},
	}
	if mend != nil {
		mend(&ob)
	}
	return ob
}

// inputs makes one input of an observation unknown.
var planInputs = map[string]func(*Observation){
	"agent":        func(ob *Observation) { ob.Agent = Unknown },
	"launched":     func(ob *Observation) { ob.Launched = Unknown },
	"session":      func(ob *Observation) { ob.Session = Unknown },
	"attempt":      func(ob *Observation) { ob.Attempt.Seen = Unknown },
	"row":          func(ob *Observation) { ob.Row.Seen = Unknown },
	"conversation": func(ob *Observation) { ob.Conversation = Unsure },
	"capture":      func(ob *Observation) { ob.Capture = Unsure },
	"pane":         func(ob *Observation) { ob.Pane.State = PaneUnknown },
	"ours":         func(ob *Observation) { ob.Pane.Ours = Unsure },
	"dead":         func(ob *Observation) { ob.Pane.Dead = Unsure },
	"owner":        func(ob *Observation) { ob.Lease.Owner = Unknown },
	"boot":         func(ob *Observation) { ob.Lease.Here.BootID = "" },
}

const (
	ofPane  = " pane ours dead"
	ofLease = " owner boot"
)

var planRows = []struct {
	name   string
	e      Entry
	ob     Observation
	want   Action
	inputs string // those whose being unknown wins
}{
	// any op, held
	{"lease held", caught(PhaseLive, OpFreeze, nil), quietly(func(ob *Observation) { ob.Lease.Owner = Running }), Action{}, "owner"},
	{"lease inside the grace", caught(PhaseLive, OpFreeze, nil), quietly(func(ob *Observation) { ob.Lease.BootSec = 1059 }), Action{}, "owner boot"},

	// live/create
	{"create: a session carries the attempt", caught(PhaseLive, OpCreate, nil),
		quietly(func(ob *Observation) { ob.Attempt = CarrierSighting{Seen: Running, Process: secondProc} }),
		Action{TakeOver: true, Event: EventBind, Process: secondProc}, "attempt" + ofLease},
	{"create: none, no evidence", caught(PhaseLive, OpCreate, nil), quietly(nil),
		Action{TakeOver: true, Fence: true, Event: EventRemoveBirth}, "attempt" + ofLease},
	{"create: at the gate is none", caught(PhaseLive, OpCreate, nil),
		quietly(func(ob *Observation) { ob.Attempt = CarrierSighting{Seen: Running, Process: secondProc, AtGate: true} }),
		Action{TakeOver: true, Fence: true, Event: EventRemoveBirth}, "attempt" + ofLease},
	{"create: none, evidence", caught(PhaseLive, OpCreate, func(e *Entry) { e.TmuxSession = "t" }), quietly(nil),
		Action{TakeOver: true, Fence: true, Event: EventCreateUnknown}, "attempt" + ofLease},
	{"create: none, young", caught(PhaseLive, OpCreate, nil), quietly(func(ob *Observation) { ob.Lease.BootSec = 1119 }), Action{}, "attempt" + ofLease},
	{"create: none, a grace beyond counting", caught(PhaseLive, OpCreate, nil),
		quietly(func(ob *Observation) { ob.Lease.Grace, ob.Lease.Abandoned = forever, true }), Action{}, "attempt"},
	{"create: none, another boot, a grace beyond counting", caught(PhaseLive, OpCreate, nil),
		quietly(func(ob *Observation) { ob.Lease.Grace, ob.Lease.Here.BootID = forever, "b2" }),
		Action{TakeOver: true, Fence: true, Event: EventRemoveBirth}, "attempt boot"},

	// live/freeze
	{"freeze in a shell: gone and captured", caught(PhaseLive, OpFreeze, func(e *Entry) { e.Frozen.Mode = FreezeShell }), quietly(nil),
		Action{TakeOver: true, Event: EventCommitFreeze}, "agent capture" + ofLease},
	{"freeze in a shell: running", caught(PhaseLive, OpFreeze, func(e *Entry) { e.Frozen.Mode = FreezeShell }), quietly(func(ob *Observation) { ob.Agent = Running }),
		Action{TakeOver: true, Event: EventAbortFreeze, Files: true}, "agent capture" + ofLease},
	{"freeze in a shell: gone, not captured", caught(PhaseLive, OpFreeze, func(e *Entry) { e.Frozen.Mode = FreezeShell }), quietly(func(ob *Observation) { ob.Capture = No }),
		Action{TakeOver: true, Event: EventAbortFreeze, Files: true}, "agent capture" + ofLease},
	{"freeze: running beside its stand-in", caught(PhaseLive, OpFreeze, nil), quietly(func(ob *Observation) { ob.Agent, ob.Pane.Ready = Running, "n" }),
		Action{TakeOver: true, End: EndAgent, Event: EventCommitFreeze, Process: viewerProc}, "agent capture" + ofPane + ofLease},
	{"freeze: running beside its dead stand-in", caught(PhaseLive, OpFreeze, nil),
		quietly(func(ob *Observation) { ob.Agent, ob.Pane.Ready, ob.Pane.Dead = Running, "n", Yes }),
		Action{TakeOver: true, End: EndAgent, StandIn: true, Event: EventCommitFreeze}, "agent capture" + ofPane + ofLease},
	{"freeze: running beside a stand-in, not captured", caught(PhaseLive, OpFreeze, nil),
		quietly(func(ob *Observation) { ob.Agent, ob.Pane.Ready, ob.Capture = Running, "n", No }),
		Action{TakeOver: true, Fence: true, Event: EventAbortFreeze, Files: true}, "agent capture" + ofPane + ofLease},
	{"freeze: running beside another attempt's stand-in", caught(PhaseLive, OpFreeze, nil),
		quietly(func(ob *Observation) { ob.Agent, ob.Pane.Ready = Running, "m" }),
		Action{TakeOver: true, Fence: true, Event: EventAbortFreeze, Files: true}, "agent capture" + ofPane + ofLease},
	{"freeze: running", caught(PhaseLive, OpFreeze, nil), quietly(func(ob *Observation) { ob.Agent = Running }),
		Action{TakeOver: true, Fence: true, Event: EventAbortFreeze, Files: true}, "agent capture" + ofPane + ofLease},
	{"freeze: gone, not captured", caught(PhaseLive, OpFreeze, nil), quietly(func(ob *Observation) { ob.Capture, ob.Pane.Ready = No, "n" }),
		Action{TakeOver: true, Fence: true, Event: EventAbortFreeze, Files: true}, "agent capture" + ofPane + ofLease},
	{"freeze: gone, ready", caught(PhaseLive, OpFreeze, nil), quietly(func(ob *Observation) { ob.Pane.Ready = "n" }),
		Action{TakeOver: true, Event: EventCommitFreeze, Process: viewerProc}, "agent capture" + ofPane + ofLease},
	{"freeze: gone, pane gone", caught(PhaseLive, OpFreeze, nil), quietly(func(ob *Observation) { ob.Pane = PaneSighting{State: PaneGone} }),
		Action{TakeOver: true, Event: EventCommitFreeze}, "agent capture pane" + ofLease},
	{"freeze: gone, pane not ours", caught(PhaseLive, OpFreeze, nil), quietly(func(ob *Observation) { ob.Pane.Ours = No }),
		Action{TakeOver: true, Event: EventCommitFreeze}, "agent capture pane ours" + ofLease},
	{"freeze: gone, no pane recorded", caught(PhaseLive, OpFreeze, func(e *Entry) { e.PaneID = "" }), quietly(func(ob *Observation) { ob.Pane = PaneSighting{} }),
		Action{TakeOver: true, Event: EventCommitFreeze}, "agent capture" + ofLease},
	{"freeze: gone, pane dead", caught(PhaseLive, OpFreeze, nil), quietly(func(ob *Observation) { ob.Pane.Dead, ob.Lease.BootSec = Yes, 1060 }),
		Action{TakeOver: true, StandIn: true, Event: EventCommitFreeze}, "agent capture" + ofPane + ofLease},
	{"freeze: gone, something else in the pane", caught(PhaseLive, OpFreeze, nil), quietly(nil),
		Action{TakeOver: true, StandIn: true, Event: EventCommitFreeze}, "agent capture" + ofPane + ofLease},
	{"freeze: gone, something else in the pane, young", caught(PhaseLive, OpFreeze, nil), quietly(func(ob *Observation) { ob.Lease.BootSec = 1119 }),
		Action{}, "agent capture" + ofPane + ofLease},

	// frozen/none
	{"frozen: it runs, in its conversation", caught(PhaseFrozen, OpNone, nil),
		quietly(func(ob *Observation) {
			ob.Row, ob.Conversation = CarrierSighting{Seen: Running, Process: secondProc}, Yes
		}),
		Action{Event: EventAdopt, Process: secondProc, SessionID: "conv-1"}, "row conversation"},
	{"frozen: it runs, conversation not known yet", caught(PhaseFrozen, OpNone, nil),
		quietly(func(ob *Observation) {
			ob.Row, ob.Conversation = CarrierSighting{Seen: Running, Process: secondProc}, Unsure
		}),
		Action{Unclear: "?"}, "row"},
	{"frozen: it runs in another one", caught(PhaseFrozen, OpNone, nil),
		quietly(func(ob *Observation) { ob.Row = CarrierSighting{Seen: Running, Process: secondProc} }),
		Action{Unclear: "?", Attention: "?"}, "row conversation"},
	{"frozen: pane dead", caught(PhaseFrozen, OpNone, nil), quietly(func(ob *Observation) { ob.Pane.Dead = Yes }),
		Action{Begin: EventBeginStandIn, StandIn: true, Event: EventEndStandIn}, "row" + ofPane},
	{"frozen: healthy", caught(PhaseFrozen, OpNone, nil), quietly(nil), Action{}, "row" + ofPane},
	{"frozen: pane gone", caught(PhaseFrozen, OpNone, nil), quietly(func(ob *Observation) { ob.Pane = PaneSighting{State: PaneGone} }), Action{}, "row pane"},
	{"frozen: not ours, dead", caught(PhaseFrozen, OpNone, nil), quietly(func(ob *Observation) { ob.Pane.Ours, ob.Pane.Dead = No, Yes }), Action{}, "row pane ours"},
	{"frozen in a shell: the pane is a person's", caught(PhaseFrozen, OpNone, func(e *Entry) { e.Frozen.Mode = FreezeShell }), quietly(func(ob *Observation) { ob.Pane.Dead = Yes }), Action{}, "row"},

	// frozen/standin
	{"stand-in: ready", caught(PhaseFrozen, OpStandIn, nil), quietly(func(ob *Observation) { ob.Pane.Ready = "n" }),
		Action{TakeOver: true, Event: EventEndStandIn, Process: viewerProc}, strings.TrimSpace(ofPane) + ofLease},
	{"stand-in: pane gone", caught(PhaseFrozen, OpStandIn, nil), quietly(func(ob *Observation) { ob.Pane = PaneSighting{State: PaneGone} }),
		Action{TakeOver: true, Event: EventEndStandIn}, "pane" + ofLease},
	{"stand-in: otherwise", caught(PhaseFrozen, OpStandIn, nil), quietly(nil),
		Action{TakeOver: true, StandIn: true, Event: EventEndStandIn}, strings.TrimSpace(ofPane) + ofLease},
	{"stand-in: ready of another attempt", caught(PhaseFrozen, OpStandIn, nil), quietly(func(ob *Observation) { ob.Pane.Ready = "m" }),
		Action{TakeOver: true, StandIn: true, Event: EventEndStandIn}, strings.TrimSpace(ofPane) + ofLease},

	// frozen/restore
	{"restore: failed", caught(PhaseFrozen, OpRestore, func(e *Entry) { e.Restore.Error = &RestoreError{Attempt: "n", Reason: "x"} }), quietly(nil),
		Action{TakeOver: true, Event: EventFailRestore}, "attempt" + ofLease},
	{"restore: an older attempt failed", caught(PhaseFrozen, OpRestore, func(e *Entry) { e.Restore.Error = &RestoreError{Attempt: "m"} }),
		quietly(func(ob *Observation) { ob.Lease.BootSec = 1119 }), Action{}, "attempt" + ofLease},
	{"restore: failed, though it runs", caught(PhaseFrozen, OpRestore, func(e *Entry) {
		e.Restore.Launched, e.Restore.Error = secondProc, &RestoreError{Attempt: "n", Reason: "x"}
	}),
		quietly(func(ob *Observation) { ob.Launched = Running }), Action{TakeOver: true, Event: EventFailRestore}, "launched" + ofLease},
	{"restore: launched, runs, young", caught(PhaseFrozen, OpRestore, func(e *Entry) { e.Restore.Launched = secondProc }),
		quietly(func(ob *Observation) { ob.Launched, ob.LaunchedAge = Running, 19*time.Second }), Action{}, "launched attempt" + ofLease},
	{"restore: launched, runs, age not known", caught(PhaseFrozen, OpRestore, func(e *Entry) { e.Restore.Launched = secondProc }),
		quietly(func(ob *Observation) { ob.Launched, ob.LaunchedAge = Running, 0 }), Action{}, "launched attempt" + ofLease},
	{"restore: launched, runs, older", caught(PhaseFrozen, OpRestore, func(e *Entry) { e.Restore.Launched = secondProc }),
		quietly(func(ob *Observation) { ob.Launched, ob.LaunchedAge = Running, 20*time.Second }),
		Action{TakeOver: true, Event: EventConfirmRestore, Process: secondProc}, "launched attempt" + ofLease},
	{"restore: launched, runs, longer grace", caught(PhaseFrozen, OpRestore, func(e *Entry) { e.Restore.Launched = secondProc }),
		quietly(func(ob *Observation) { ob.Launched, ob.LaunchedAge, ob.AckGrace = Running, 20*time.Second, time.Minute }), Action{}, "launched attempt" + ofLease},
	{"restore: launched, still at its gate, young", caught(PhaseFrozen, OpRestore, func(e *Entry) { e.Restore.Launched = secondProc }),
		quietly(func(ob *Observation) {
			ob.Launched, ob.Lease.BootSec = Running, 1119
			ob.Attempt = CarrierSighting{Seen: Running, Process: secondProc, AtGate: true}
		}), Action{}, "launched attempt" + ofLease},
	{"restore: launched, still at its gate", caught(PhaseFrozen, OpRestore, func(e *Entry) { e.Restore.Launched = secondProc }),
		quietly(func(ob *Observation) {
			ob.Launched, ob.Attempt = Running, CarrierSighting{Seen: Running, Process: secondProc, AtGate: true}
		}), Action{TakeOver: true, Event: EventFailRestore}, "launched attempt" + ofLease},
	{"restore: launched, gone", caught(PhaseFrozen, OpRestore, func(e *Entry) { e.Restore.Launched = secondProc }), quietly(nil),
		Action{TakeOver: true, Event: EventFailRestore}, "launched" + ofLease},
	{"restore: not launched, a survivor", caught(PhaseFrozen, OpRestore, nil),
		quietly(func(ob *Observation) { ob.Attempt = CarrierSighting{Seen: Running, Process: secondProc} }),
		Action{TakeOver: true, Event: EventLaunched, Process: secondProc}, "attempt" + ofLease},
	{"restore: not launched, none", caught(PhaseFrozen, OpRestore, nil), quietly(nil),
		Action{TakeOver: true, Event: EventFailRestore}, "attempt" + ofLease},
	{"restore: not launched, one at the gate", caught(PhaseFrozen, OpRestore, nil),
		quietly(func(ob *Observation) { ob.Attempt = CarrierSighting{Seen: Running, Process: secondProc, AtGate: true} }),
		Action{TakeOver: true, Event: EventFailRestore}, "attempt" + ofLease},
	{"restore: not launched, none, young", caught(PhaseFrozen, OpRestore, nil), quietly(func(ob *Observation) { ob.Lease.BootSec = 1119 }), Action{}, "attempt" + ofLease},

	// frozen/abort
	{"abort: launched runs", caught(PhaseFrozen, OpAbort, func(e *Entry) { e.Restore.Launched = secondProc }),
		quietly(func(ob *Observation) { ob.Launched = Running }),
		Action{TakeOver: true, End: EndAttempt, Process: secondProc}, "attempt launched" + ofPane + ofLease},
	{"abort: a carrier runs, at the gate too", caught(PhaseFrozen, OpAbort, nil),
		quietly(func(ob *Observation) { ob.Attempt = CarrierSighting{Seen: Running, Process: secondProc, AtGate: true} }),
		Action{TakeOver: true, End: EndAttempt, Process: secondProc}, "attempt" + ofPane + ofLease},
	{"abort: ready", caught(PhaseFrozen, OpAbort, nil), quietly(func(ob *Observation) { ob.Pane.Ready = "n" }),
		Action{TakeOver: true, Event: EventStandInReady, Process: viewerProc}, "attempt" + ofPane + ofLease},
	{"abort: pane gone", caught(PhaseFrozen, OpAbort, nil), quietly(func(ob *Observation) { ob.Pane = PaneSighting{State: PaneGone} }),
		Action{TakeOver: true, Event: EventStandInReady}, "attempt pane" + ofLease},
	{"abort: otherwise", caught(PhaseFrozen, OpAbort, nil), quietly(nil),
		Action{TakeOver: true, StandIn: true, Event: EventStandInReady}, "attempt" + ofPane + ofLease},

	// live/handoff
	{"handoff: the newcomer runs", caught(PhaseLive, OpHandoff, nil),
		quietly(func(ob *Observation) { ob.Attempt = CarrierSighting{Seen: Running, Process: secondProc} }),
		Action{TakeOver: true, Event: EventCommitHandoff, Process: secondProc}, "attempt agent" + ofLease},
	{"handoff: both run", caught(PhaseLive, OpHandoff, nil),
		quietly(func(ob *Observation) {
			ob.Attempt, ob.Agent = CarrierSighting{Seen: Running, Process: secondProc}, Running
		}),
		Action{Unclear: "?", Attention: "?"}, "attempt agent" + ofLease},
	{"handoff: old", caught(PhaseLive, OpHandoff, nil), quietly(func(ob *Observation) { ob.Agent = Running }),
		Action{TakeOver: true, Fence: true, Event: EventAbortHandoff}, "attempt agent" + ofLease},
	{"handoff: young", caught(PhaseLive, OpHandoff, nil), quietly(func(ob *Observation) { ob.Lease.BootSec = 1119 }), Action{}, "attempt agent" + ofLease},

	// live/respawn
	{"respawn: it runs", caught(PhaseLive, OpRespawn, nil),
		quietly(func(ob *Observation) { ob.Attempt = CarrierSighting{Seen: Running, Process: secondProc} }),
		Action{TakeOver: true, Event: EventCommitRespawn, Process: secondProc}, "attempt" + ofLease},
	{"respawn: none", caught(PhaseLive, OpRespawn, nil), quietly(nil),
		Action{TakeOver: true, Fence: true, Event: EventAbortRespawn}, "attempt" + ofLease},
	{"respawn: none, young", caught(PhaseLive, OpRespawn, nil), quietly(func(ob *Observation) { ob.Lease.BootSec = 1119 }), Action{}, "attempt" + ofLease},

	// */kill
	{"kill: gone", caught(PhaseLive, OpKill, nil), quietly(nil), Action{TakeOver: true, Rescue: true, Event: EventCommitKill}, "session" + ofLease},
	{"kill: gone, rescued before", caught(PhaseFrozen, OpKill, func(e *Entry) { e.RescuedAt = midday }), quietly(nil),
		Action{TakeOver: true, Event: EventCommitKill}, "session" + ofLease},
	{"kill: it runs", caught(PhaseLive, OpKill, nil), quietly(func(ob *Observation) { ob.Session = Running }), Action{Unclear: "?"}, "session" + ofLease},

	// */drop
	{"drop: gone", caught(PhaseLive, OpDrop, nil), quietly(nil), Action{TakeOver: true, Rescue: true, Event: EventCommitDrop, Files: true}, "session" + ofLease},
	{"drop of a frozen row", caught(PhaseFrozen, OpDrop, nil), quietly(nil), Action{TakeOver: true, Event: EventCommitDrop, Files: true}, "session" + ofLease},
	{"drop: it runs", caught(PhaseLive, OpDrop, nil), quietly(func(ob *Observation) { ob.Session = Running }), Action{TakeOver: true, Event: EventAbortDrop}, "session" + ofLease},

	// tombstoned, op none
	{"tombstoned: gone", caught(PhaseLive, OpNone, func(e *Entry) { e.KillIntentAt = midday }), quietly(nil),
		Action{Begin: EventBeginKill, Rescue: true, Event: EventCommitKill}, "session"},
	{"tombstoned and frozen: gone", caught(PhaseFrozen, OpNone, func(e *Entry) { e.KillIntentAt = midday }), quietly(func(ob *Observation) { ob.Pane.Dead = Yes }),
		Action{Begin: EventBeginKill, Rescue: true, Event: EventCommitKill}, "session"},
	{"tombstoned: it runs", caught(PhaseLive, OpNone, func(e *Entry) { e.KillIntentAt = midday }), quietly(func(ob *Observation) { ob.Session = Running }),
		Action{Unclear: "?"}, "session"},

	// live/none
	{"end noted, gone", caught(PhaseLive, OpNone, func(e *Entry) { e.EndNoted = &EndNoted{At: midday, Reason: "x", ProcessKey: agentProc.Key()} }), quietly(nil),
		Action{Rescue: true, Event: EventFinish, ProcessKey: agentProc.Key()}, "agent"},
	{"end noted, running", caught(PhaseLive, OpNone, func(e *Entry) { e.EndNoted = &EndNoted{At: midday, ProcessKey: agentProc.Key()} }),
		quietly(func(ob *Observation) { ob.Agent = Running }), Action{}, "agent"},
	{"end noted of another process", caught(PhaseLive, OpNone, func(e *Entry) { e.EndNoted = &EndNoted{At: midday, ProcessKey: secondProc.Key()} }), quietly(nil), Action{}, ""},
	{"live", caught(PhaseLive, OpNone, nil), quietly(nil), Action{}, ""},

	// left alone
	{"finished", caught(PhaseFinished, OpNone, func(e *Entry) { e.FinishedAt = midday }), quietly(nil), Action{}, ""},
	{"archived", caught(PhaseArchived, OpNone, nil), quietly(nil), Action{}, ""},
	{"archived and tombstoned", caught(PhaseArchived, OpNone, func(e *Entry) { e.KillIntentAt = midday }), quietly(nil), Action{}, ""},
	{"newer schema", caught(PhaseLive, OpFreeze, func(e *Entry) { e.SchemaVersion = 2 }), quietly(nil), Action{}, ""},
	{"a state that cannot be", caught(PhaseLive, OpAbort, nil), quietly(nil), Action{Unclear: "?"}, strings.TrimSpace(ofLease)},
}

// act strips an action of its texts, after checking that they are there where they must
// be.
func textless(t *testing.T, a Action) Action {
	t.Helper()
	switch a.Event {
	case EventAbortFreeze, EventRemoveBirth, EventCreateUnknown, EventFailRestore, EventAbortHandoff, EventAbortRespawn, EventAbortDrop:
		if a.Reason == "" {
			t.Errorf("%s without a reason", a.Event)
		}
	}
	a.Reason = ""
	for _, text := range []*string{&a.Unclear, &a.Attention} {
		if *text != "" {
			*text = "?"
		}
	}
	return a
}

// TestPlan is the table of reconcile, each row, and each row with every one of its inputs
// unknown: then nothing is done (case 28).
func TestPlan(t *testing.T) {
	for _, tt := range planRows {
		t.Run(tt.name, func(t *testing.T) {
			before := tt.e.clone()
			got := Plan(tt.e, tt.ob, midday)
			if diff := cmp.Diff(tt.want, textless(t, got), cmp.AllowUnexported(ProcessID{})); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			if !reflect.DeepEqual(before, tt.e) {
				t.Error("the plan has changed the row")
			}
			named := strings.Fields(tt.inputs)
			for _, name := range named {
				ob := tt.ob
				planInputs[name](&ob)
				a := Plan(tt.e, ob, midday)
				if a.Event != EventNone || a.Begin != EventNone || a.End != EndNothing || a.TakeOver || a.Settle {
					t.Errorf("%s unknown: %+v", name, a)
				}
				// A lease of which little is known is held until it is old.
				if a.Unclear == "" && !reflect.DeepEqual(a, Action{}) {
					t.Errorf("%s unknown: %+v", name, a)
				}
			}
			// What is not named has no say.
			for name, forget := range planInputs {
				if strings.Contains(" "+tt.inputs+" ", " "+name+" ") {
					continue
				}
				ob := tt.ob
				forget(&ob)
				if a := Plan(tt.e, ob, midday); !reflect.DeepEqual(a, got) {
					t.Errorf("%s unknown, which this row does not ask for: %+v", name, a)
				}
			}
		})
	}
}

// TestPlanGoesOnWithItsOwnLease: who holds the lease is not in its own way.
func TestPlanGoesOnWithItsOwnLease(t *testing.T) {
	ob := quietly(func(ob *Observation) { ob.Lease.Owner, ob.Mine, ob.Pane.Ready = Running, true, "n" })
	if a := Plan(caught(PhaseLive, OpFreeze, nil), ob, midday); a.Event != EventCommitFreeze {
		t.Errorf("%+v", a)
	}
}

// TestAttention (case 28): an unclear row is noted once, asks for a person after ten
// minutes, is then left alone, and is clear again without a trace.
func TestAttention(t *testing.T) {
	e := caught(PhaseLive, OpKill, nil)
	runs := quietly(func(ob *Observation) { ob.Session = Running })
	step := func(now time.Time, ob Observation) Action {
		t.Helper()
		a := Plan(e, ob, now)
		if a.Event == EventNone {
			a.note(&e, now)
			if again := Plan(e, ob, now); !reflect.DeepEqual(again, Action{}) {
				t.Errorf("at %s: not settled by its own bookkeeping: %+v", now, again)
			}
		}
		return a
	}
	if a := step(midday, runs); a.Unclear == "" || a.Attention != "" || e.Unclear == nil || !e.Unclear.Since.Equal(midday) {
		t.Errorf("first: %+v, %+v", a, e.Unclear)
	}
	if a := step(midday.Add(9*time.Minute), runs); a != (Action{}) {
		t.Errorf("later: %+v", a)
	}
	if a := step(midday.Add(10*time.Minute), runs); a.Attention == "" || e.Attention == nil || !strings.Contains(e.Attention.Reason, "still runs") {
		t.Errorf("after ten minutes: %+v, %+v", a, e.Attention)
	}
	// Another reason is named, the time stays.
	if a := step(midday.Add(11*time.Minute), quietly(func(ob *Observation) { ob.Session = Unknown })); a.Unclear == "" || !e.Unclear.Since.Equal(midday) || e.Attention.Reason != e.Unclear.Reason || !e.Attention.Since.Equal(midday.Add(10*time.Minute)) {
		t.Errorf("another reason: %+v, %+v, %+v", a, e.Unclear, e.Attention)
	}
	// A clock that was set back by a day must not hide it for a day.
	back := e.clone()
	if a := Plan(back, runs, midday.Add(-24*time.Hour)); a.Unclear == "" {
		t.Errorf("clock set back: %+v", a)
	}
	// Clear again, by itself.
	e.Lease, e.KillIntentAt = nil, time.Time{}
	if a := step(midday.Add(12*time.Minute), quietly(nil)); !a.Settle || e.Unclear != nil || e.Attention != nil {
		t.Errorf("settled: %+v, %+v, %+v", a, e.Unclear, e.Attention)
	}
	// What something else asked stays asked.
	e = caught(PhaseLive, OpKill, func(e *Entry) { e.Attention = &Note{Since: midday, Reason: "held"} })
	step(midday, runs)
	step(midday.Add(time.Hour), runs)
	if e.Attention.Reason != "held" {
		t.Errorf("%+v", e.Attention)
	}
}

// TestHeldLeaseAsksForAttention after ten minutes on the boot clock, whatever the wall
// clock says.
func TestHeldLeaseAsksForAttention(t *testing.T) {
	for _, v := range []Verdict{Running, Unknown} {
		for _, now := range []time.Time{midday, midday.Add(-48 * time.Hour), midday.Add(48 * time.Hour)} {
			e := caught(PhaseLive, OpFreeze, nil)
			held := quietly(func(ob *Observation) { ob.Lease.Owner, ob.Lease.BootSec = v, 1599 })
			if a := Plan(e, held, now); a.Attention != "" {
				t.Errorf("%s, before ten minutes: %+v", v, a)
			}
			held.Lease.BootSec = 1600
			a := Plan(e, held, now)
			if a.Attention == "" || a.Event != EventNone || strings.Contains(a.Attention, "not known") != (v == Unknown) {
				t.Errorf("%s, after ten minutes: %+v", v, a)
			}
			a.note(&e, now)
			if a := Plan(e, held, now.Add(time.Hour)); a != (Action{}) {
				t.Errorf("%s, once more: %+v", v, a)
			}
		}
	}
}
