package ledger

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// cells is the transition table as it was specified, written down again by hand: what
// happens to an event for which everything is as it should be. "event: from -> to", with
// "=" for a state that stays and "~" for one that yields. A from of */op or phase/* is
// every phase or op of those that exist. What is not here is illegal, or ErrLeaseHeld
// where the same event is legal in the same phase with no op.
const tableCells = `
Enrol: -/- -> live/-
BeginCreate: -/- -> live/create
Bind: live/create -> live/- ; live/- -> =
RemoveBirth: live/create -> -/-
CreateUnknown: live/create -> live/-
BeginFreeze: live/- -> live/freeze
CommitFreeze: live/freeze -> frozen/-
AbortFreeze: live/freeze -> live/-
BeginRestore: frozen/- -> frozen/restore
Launched: frozen/restore -> =
Acknowledge: frozen/restore -> live/-
ConfirmRestore: frozen/restore -> live/-
FailRestore: frozen/restore -> frozen/abort
StandInReady: frozen/abort -> frozen/-
Adopt: frozen/- -> live/-
BeginStandIn: frozen/- -> frozen/standin
EndStandIn: frozen/standin -> frozen/-
BeginHandoff: live/- -> live/handoff
CommitHandoff: live/handoff -> live/-
ParkHandoff: live/handoff -> live/-
AbortHandoff: live/handoff -> live/-
BeginRespawn: live/- -> live/respawn
CommitRespawn: live/respawn -> live/-
AbortRespawn: live/respawn -> live/-
Claim: live/- -> = ; live/create -> = ; live/* -> ~ ; frozen/* -> ~ ; archived/* -> ~ ; finished/* -> ~
ObserveLimit: live/- -> = ; live/* -> ~ ; frozen/* -> ~ ; archived/* -> ~ ; finished/* -> ~
ClearLimit: live/- -> = ; live/* -> ~ ; frozen/* -> ~ ; archived/* -> ~ ; finished/* -> ~
IntendKill: live/* -> = ; frozen/* -> = ; archived/* -> =
WithdrawKill: live/- -> = ; frozen/- -> = ; archived/- -> =
BeginKill: live/- -> live/kill ; frozen/- -> frozen/kill ; archived/- -> archived/kill
CommitKill: live/kill -> finished/- ; frozen/kill -> finished/- ; archived/kill -> finished/-
AbortKill: live/kill -> live/- ; frozen/kill -> frozen/- ; archived/kill -> archived/-
Finish: live/- -> finished/- ; live/create -> finished/- ; live/* -> ~ ; frozen/* -> ~ ; archived/* -> ~ ; finished/* -> ~
BeginDrop: live/- -> live/drop ; frozen/- -> frozen/drop ; archived/- -> archived/drop ; finished/- -> finished/drop
CommitDrop: live/drop -> -/- ; frozen/drop -> -/- ; archived/drop -> -/- ; finished/drop -> -/-
AbortDrop: live/drop -> live/- ; frozen/drop -> frozen/- ; archived/drop -> archived/- ; finished/drop -> finished/-
Release: live/+ -> = ; frozen/+ -> = ; archived/+ -> = ; finished/+ -> =
TakeOver: live/+ -> = ; frozen/+ -> = ; archived/+ -> = ; finished/+ -> =
ForceTakeOver: live/+ -> = ; frozen/+ -> = ; archived/+ -> = ; finished/+ -> =
`

// expectation is one cell: where the event leads, or how it is turned down.
type expectation struct {
	out Outcome
	to  string
	err error
}

func dashed(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func cellName(s State) string { return dashed(string(s.Phase)) + "/" + dashed(string(s.Op)) }

func parseCells(t *testing.T) map[string]map[string]expectation {
	t.Helper()
	all := map[string]map[string]expectation{}
	for line := range strings.Lines(strings.TrimSpace(tableCells)) {
		event, rules, ok := strings.Cut(strings.TrimSpace(line), ": ")
		if !ok {
			t.Fatalf("cannot read %q", line)
		}
		row := map[string]expectation{}
		for rule := range strings.SplitSeq(rules, " ; ") {
			from, to, _ := strings.Cut(rule, " -> ")
			for _, s := range everyState() {
				phase, op, _ := strings.Cut(from, "/")
				fits := dashed(string(s.Phase)) == phase &&
					(op == "*" || op == "+" && s.Op != OpNone || op == dashed(string(s.Op)))
				if _, taken := row[cellName(s)]; !fits || taken {
					continue
				}
				switch to {
				case "=":
					row[cellName(s)] = expectation{out: Applied, to: cellName(s)}
				case "~":
					row[cellName(s)] = expectation{out: Yielded, to: cellName(s)}
				default:
					row[cellName(s)] = expectation{out: Applied, to: to}
				}
			}
		}
		for _, s := range everyState() {
			if _, ok := row[cellName(s)]; ok {
				continue
			}
			err := ErrIllegal
			if idle := row[cellName(State{Phase: s.Phase})]; idle.out != Refused && idle.out != Unset && s.Op != OpNone {
				err = ErrLeaseHeld
			}
			row[cellName(s)] = expectation{out: Refused, to: cellName(s), err: err}
		}
		all[event] = row
	}
	return all
}

// everyState is every phase with every op, those that cannot be as well.
func everyState() []State {
	var list []State
	for _, p := range []Phase{PhaseNone, PhaseLive, PhaseFrozen, PhaseArchived, PhaseFinished} {
		for _, o := range []Op{OpNone, OpCreate, OpFreeze, OpRestore, OpAbort, OpStandIn, OpHandoff, OpRespawn, OpKill, OpDrop} {
			list = append(list, State{Phase: p, Op: o})
		}
	}
	return list
}

var (
	hostA      = ProcessID{HostID: "host", BootID: "boot"}
	agentProc  = testProcess(100)
	secondProc = testProcess(200)
	ownerProc  = testProcess(300)
	rivalProc  = testProcess(400)
	serverProc = testProcess(500)
	viewerProc = testProcess(600)
	midday     = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
)

func testProcess(pid int) ProcessID {
	p := hostA
	p.PID, p.StartTicks, p.PIDNamespace, p.TimeNamespace = pid, uint64(pid)*10, 1, 2
	return p
}

// fill makes a state in which every event of its cell can pass: its lease, its process,
// its conversation.
func fillState(s State) State {
	s.Epoch = 7
	if s.Phase != PhaseNone {
		s.Process, s.Runtime, s.SessionID = agentProc, "claude", "conv-1"
	}
	if s.Phase == PhaseFrozen {
		s.Capture, s.FreezeMode = "freeze-1", FreezePane
	}
	if s.Op != OpNone {
		s.Attempt, s.Nonce, s.Owner, s.AcquiredBootSec = "attempt-1", "nonce-1", ownerProc, 1000
		s.AcquiredAt = midday.Unix()
	}
	switch s.Op {
	case OpCreate:
		s.Process, s.SessionID = ProcessID{}, ""
	case OpRestore, OpAbort:
		s.Restore = RestoreState{Attempt: s.Attempt, Mode: RestoreResume, Launched: secondProc}
	case OpFreeze:
		s.Capture, s.FreezeMode = s.Attempt, FreezePane
	case OpHandoff:
		s.HandoffTarget = "codex"
	case OpKill:
		s.Tombstoned = true
	}
	return s
}

// good returns the event with every argument and every fact that lets it pass from s.
func goodEvent(kind EventKind, s State) (State, Event) {
	gone := Facts{
		Recorded: Gone, Subject: Running, Launched: Gone, Session: Gone, Carriers: Gone,
		CarriesRow: Yes, CarriesAttempt: Yes, Outermost: Yes, Claimed: No,
		Capture: Yes, Transcript: Yes, HasTranscript: Yes, Held: No,
		Lease: LeaseSighting{Owner: Gone, Here: hostA, BootSec: 5000},
	}
	var ev Event
	switch n := s.Nonce; kind {
	case EventEnrol:
		ev = Enrol(agentProc, Location{})
	case EventBeginCreate:
		ev = BeginCreate(ownerProc)
	case EventBind:
		ev = Bind(n, secondProc, Location{PaneID: "%1", PaneServer: serverProc})
	case EventRemoveBirth:
		ev = RemoveBirth(n)
	case EventCreateUnknown:
		ev = CreateUnknown(n, "")
	case EventBeginFreeze:
		ev = BeginFreeze(ownerProc)
		gone.Recorded = Running
	case EventCommitFreeze:
		ev = CommitFreeze(n, viewerProc)
	case EventAbortFreeze:
		ev = AbortFreeze(n)
		gone.Recorded = Running
	case EventBeginRestore:
		ev = BeginRestore(ownerProc)
	case EventLaunched:
		ev = Launched(n, secondProc, Location{})
	case EventAcknowledge:
		ev = Acknowledge(s.Attempt, secondProc, "conv-1")
	case EventConfirmRestore:
		ev = ConfirmRestore(n, secondProc)
	case EventFailRestore:
		ev = FailRestore(n, "no")
	case EventStandInReady:
		ev = StandInReady(n, viewerProc)
	case EventAdopt:
		ev = Adopt(secondProc, "conv-1")
	case EventBeginStandIn:
		ev = BeginStandIn(ownerProc)
	case EventEndStandIn:
		ev = EndStandIn(n, viewerProc)
	case EventBeginHandoff:
		ev = BeginHandoff(ownerProc, "codex")
	case EventCommitHandoff:
		ev = CommitHandoff(n, secondProc, Location{}, "conv-2")
	case EventParkHandoff:
		ev = ParkHandoff(n, secondProc, Location{}, "conv-2", midday)
	case EventAbortHandoff:
		ev = AbortHandoff(n)
	case EventBeginRespawn:
		ev = BeginRespawn(ownerProc)
	case EventCommitRespawn:
		ev = CommitRespawn(n, secondProc, Location{})
	case EventAbortRespawn:
		ev = AbortRespawn(n)
	case EventClaim:
		ev = Claim("conv-2", "hook")
	case EventObserveLimit:
		ev = ObserveLimit(s.Process.Key(), midday)
	case EventClearLimit:
		ev = ClearLimit()
	case EventIntendKill:
		ev = IntendKill()
	case EventWithdrawKill:
		ev = WithdrawKill()
	case EventBeginKill:
		ev = BeginKill(ownerProc)
		s.Tombstoned = s.Phase != PhaseNone && s.Phase != PhaseFinished
	case EventCommitKill:
		ev = CommitKill(n)
	case EventAbortKill:
		ev = AbortKill(n)
	case EventFinish:
		ev = Finish(s.Process.Key(), "done")
	case EventBeginDrop:
		ev = BeginDrop(ownerProc)
	case EventCommitDrop:
		ev = CommitDrop(n)
	case EventAbortDrop:
		ev = AbortDrop(n)
	case EventRelease:
		ev = Release(n)
	case EventTakeOver:
		ev = TakeOver(rivalProc)
	case EventForceTakeOver:
		ev = ForceTakeOver(rivalProc)
	default:
		panic(fmt.Sprint("no event for ", kind))
	}
	if ev.Kind != kind {
		panic(fmt.Sprintf("the constructor of %s makes a %s", kind, ev.Kind))
	}
	ev.Facts, ev.At, ev.BootSec = gone, midday, 5000
	return s, ev
}

// TestEveryCell walks every state x event against the table written down by hand.
func TestEveryCell(t *testing.T) {
	want := parseCells(t)
	if len(want) != int(eventCount)-1 {
		t.Fatalf("%d events expected, %d exist", len(want), eventCount-1)
	}
	n := 0
	for kind := EventNone + 1; kind < eventCount; kind++ {
		row, ok := want[kind.String()]
		if !ok {
			t.Errorf("%s is not in the expected table", kind)
			continue
		}
		for _, s := range everyState() {
			from, ev := goodEvent(kind, fillState(s))
			to, out, err := Transition(from, ev)
			got := expectation{out, cellName(to), nil}
			w := row[cellName(s)]
			if got.out != w.out || got.to != w.to || !errors.Is(err, w.err) || err != nil && w.err == nil {
				t.Errorf("%s in %s: %s to %s, %v; want %s to %s, %v", kind, cellName(s), out, got.to, err, w.out, w.to, w.err)
			}
			if out == Refused && to != from {
				t.Errorf("%s in %s: refused, and the state has changed", kind, cellName(s))
			}
			if moved := to.Phase != from.Phase || to.Op != from.Op || to.Process != from.Process || to.Limited != from.Limited; to.Epoch != from.Epoch+uint64(btoi(moved)) {
				t.Errorf("%s in %s: epoch %d after %d, moved %v", kind, cellName(s), to.Epoch, from.Epoch, moved)
			}
			if (to.Op == OpNone) != (to.Nonce == "") || (to.Op == OpNone) != (to.Attempt == "") || (to.Op == OpNone) != to.Owner.IsZero() {
				t.Errorf("%s in %s: half a lease: %+v", kind, cellName(s), to)
			}
			n++
		}
	}
	t.Logf("%d cells", n)
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// TestOrderOfChecks breaks everything at once, then mends one thing after the other in
// the order of the specification: each time the next check has the word.
func TestOrderOfChecks(t *testing.T) {
	want := parseCells(t)
	for kind := EventNone + 1; kind < eventCount; kind++ {
		for _, s := range everyState() {
			if want[kind.String()][cellName(s)].out != Applied {
				continue
			}
			from, ev := goodEvent(kind, fillState(s))
			name := kind.String() + " in " + cellName(s)
			rule := lookUpMove(kind, s.Phase, s.Op).lease

			// Everything is wrong.
			bad := ev.AtEpoch(from.Epoch + 1)
			bad.Location = Location{PaneID: "%1"}
			bad.Facts = Facts{}
			state := from
			state.SchemaTooNew = true
			hasNonce := rule == needsNonce || rule == needsAttempt || rule == needsEither
			if hasNonce {
				state.Nonce, state.Attempt = "nonce-2", "attempt-2"
			}
			tombstone := rule == mints && s.Phase != PhaseNone && kind != EventBeginKill && kind != EventBeginDrop
			if tombstone {
				state.Tombstoned = true
			}
			// A phase where the event is illegal, whatever the op.
			wrong := state
			wrong.Phase = "no such phase"

			expect := func(what string, s State, ev Event, out Outcome, target error) {
				t.Helper()
				to, gotOut, err := Transition(s, ev)
				if gotOut != out || !errors.Is(err, target) || target == nil && err != nil {
					t.Errorf("%s, %s: %s, %v; want %s, %v", name, what, gotOut, err, out, target)
				}
				if to != s && out != Applied {
					t.Errorf("%s, %s: the state has changed", name, what)
				}
			}
			expect("malformed", wrong, bad, Refused, ErrInvalid)
			bad.Location = ev.Location
			expect("schema", wrong, bad, Refused, ErrSchemaTooNew)
			wrong.SchemaTooNew, state.SchemaTooNew = false, false
			expect("epoch", wrong, bad, Dropped, nil)
			bad = bad.AtEpoch(from.Epoch)
			expect("phase and op", wrong, bad, Refused, ErrIllegal)
			if hasNonce {
				expect("nonce", state, bad, Refused, ErrStaleNonce)
				state.Nonce, state.Attempt = from.Nonce, from.Attempt
			}
			if tombstone {
				expect("tombstone", state, bad, Refused, ErrKillIntended)
				state.Tombstoned = from.Tombstoned
			}
			if _, out, err := Transition(state, bad); out != Applied {
				expect("evidence", state, bad, Refused, ErrUnknown)
			} else if kind.needsFacts(s) {
				t.Errorf("%s, evidence: applied without any, %v", name, err)
			}
			bad.Facts = ev.Facts
			expect("all is well", state, bad, Applied, nil)
		}
	}
}

// needsFacts lists by hand the events that no evidence at all may let pass.
func (k EventKind) needsFacts(s State) bool {
	switch k {
	case EventEnrol, EventBind, EventRemoveBirth, EventBeginFreeze, EventCommitFreeze, EventAbortFreeze,
		EventBeginRestore, EventAcknowledge, EventConfirmRestore, EventStandInReady, EventAdopt,
		EventCommitHandoff, EventParkHandoff, EventBeginRespawn, EventCommitRespawn, EventClaim,
		EventCommitKill, EventBeginDrop, EventCommitDrop, EventTakeOver:
		return true
	}
	return false
}

// TestUnknownNeverPasses takes away one fact at a time: the event either never asked for
// it, or is refused as unknown.
func TestUnknownNeverPasses(t *testing.T) {
	want := parseCells(t)
	asked := map[string]bool{}
	for kind := EventNone + 1; kind < eventCount; kind++ {
		for _, s := range everyState() {
			if want[kind.String()][cellName(s)].out != Applied {
				continue
			}
			from, ev := goodEvent(kind, fillState(s))
			all := reflect.ValueOf(&ev.Facts).Elem()
			for i := range all.NumField() {
				name := all.Type().Field(i).Name
				if name == "HeldBy" || name == "ChangesID" {
					continue
				}
				less := ev
				field := reflect.ValueOf(&less.Facts).Elem().Field(i)
				field.Set(reflect.Zero(field.Type()))
				_, out, err := Transition(from, less)
				switch {
				case out == Applied:
				case errors.Is(err, ErrUnknown):
					asked[kind.String()+"."+name] = true
				default:
					t.Errorf("%s in %s without %s: %s, %v", kind, cellName(s), name, out, err)
				}
			}
		}
	}
	for _, noErr := range []string{
		"Enrol.Subject", "Enrol.Claimed", "Bind.Subject", "Bind.Claimed", "Bind.Recorded", "RemoveBirth.Carriers",
		"BeginFreeze.Recorded", "CommitFreeze.Recorded", "CommitFreeze.Capture", "BeginRestore.Held",
		"Acknowledge.Subject", "Acknowledge.Held", "ConfirmRestore.Subject", "StandInReady.Launched", "StandInReady.Carriers",
		"Adopt.Subject", "Adopt.CarriesRow", "Adopt.Claimed", "CommitHandoff.Recorded", "CommitHandoff.CarriesAttempt",
		"CommitHandoff.Subject", "CommitHandoff.Held", "ParkHandoff.CarriesAttempt", "BeginRespawn.Recorded",
		"CommitRespawn.CarriesAttempt", "CommitRespawn.Subject", "Claim.Held", "CommitKill.Session", "BeginDrop.Session",
		"CommitDrop.Session", "TakeOver.Lease",
	} {
		if !asked[noErr] {
			t.Errorf("%s is never asked for", noErr)
		}
	}
}

// TestGuards gives each guard what it stands against.
func TestGuards(t *testing.T) {
	at := func(phase Phase, op Op) State { return State{Phase: phase, Op: op} }
	mismatch := func(s *State, ev *Event) { ev.SessionID = "conv-9" }
	for _, tt := range []struct {
		name  string
		kind  EventKind
		state State
		spoil func(s *State, ev *Event)
		out   Outcome
		err   error
	}{
		{"enrol a dead process", EventEnrol, at(PhaseNone, OpNone), func(s *State, ev *Event) { ev.Facts.Subject = Gone }, Refused, ErrIllegal},
		{"enrol a process that has a row", EventEnrol, at(PhaseNone, OpNone), func(s *State, ev *Event) { ev.Facts.Claimed = Yes }, Refused, ErrExists},
		{"bind a process that has a row", EventBind, at(PhaseLive, OpCreate), func(s *State, ev *Event) { ev.Facts.Claimed = Yes }, Refused, ErrExists},
		{"bind a dead process", EventBind, at(PhaseLive, OpCreate), func(s *State, ev *Event) { ev.Facts.Subject = Gone }, Refused, ErrIllegal},
		{"bind by the attempt", EventBind, at(PhaseLive, OpCreate), func(s *State, ev *Event) { ev.Nonce, ev.Attempt = "", "attempt-1" }, Applied, nil},
		{"bind by an attempt that the process does not carry", EventBind, at(PhaseLive, OpCreate), func(s *State, ev *Event) {
			ev.Nonce, ev.Attempt, ev.Facts.CarriesAttempt = "", "attempt-1", No
		}, Refused, ErrIllegal},
		{"the attempt does not pass for the nonce", EventBind, at(PhaseLive, OpCreate), func(s *State, ev *Event) { ev.Nonce = "attempt-1" }, Refused, ErrStaleNonce},
		{"bind neither by nonce nor attempt", EventBind, at(PhaseLive, OpCreate), func(s *State, ev *Event) { ev.Nonce = "" }, Refused, ErrStaleNonce},
		{"rebind while the recorded process runs", EventBind, at(PhaseLive, OpNone), func(s *State, ev *Event) { ev.Facts.Recorded = Running }, Refused, ErrIllegal},
		{"rebind a rescued row", EventBind, at(PhaseLive, OpNone), func(s *State, ev *Event) { s.Rescued = true }, Refused, ErrIllegal},
		{"rebind a row in rescue", EventBind, at(PhaseLive, OpNone), func(s *State, ev *Event) { s.Rescuing = true }, Refused, ErrIllegal},
		{"rebind a process that has a row", EventBind, at(PhaseLive, OpNone), func(s *State, ev *Event) { ev.Facts.Claimed = Yes }, Refused, ErrExists},
		{"rebind a dead process", EventBind, at(PhaseLive, OpNone), func(s *State, ev *Event) { ev.Facts.Subject = Gone }, Refused, ErrIllegal},
		{"same process, new location, knowing nothing", EventBind, at(PhaseLive, OpNone), func(s *State, ev *Event) {
			ev.Process, ev.Facts, s.Rescued = agentProc, Facts{}, true
		}, Applied, nil},
		{"bind a row that never had a process", EventBind, at(PhaseLive, OpNone), func(s *State, ev *Event) {
			s.Process, ev.Facts.Recorded = ProcessID{}, Unknown
		}, Applied, nil},
		{"remove a birth with evidence", EventRemoveBirth, at(PhaseLive, OpCreate), func(s *State, ev *Event) { s.Ran = true }, Refused, ErrIllegal},
		{"remove a birth of which a process runs", EventRemoveBirth, at(PhaseLive, OpCreate), func(s *State, ev *Event) { ev.Facts.Carriers = Running }, Refused, ErrIllegal},
		{"freeze what does not run", EventBeginFreeze, at(PhaseLive, OpNone), func(s *State, ev *Event) { ev.Facts.Recorded = Gone }, Refused, ErrIllegal},
		{"commit a freeze without a capture", EventCommitFreeze, at(PhaseLive, OpFreeze), func(s *State, ev *Event) { ev.Facts.Capture = No }, Refused, ErrIllegal},
		{"commit a freeze while the agent runs", EventCommitFreeze, at(PhaseLive, OpFreeze), func(s *State, ev *Event) { ev.Facts.Recorded = Running }, Refused, ErrIllegal},
		{"abort a freeze that can only be committed", EventAbortFreeze, at(PhaseLive, OpFreeze), func(s *State, ev *Event) { ev.Facts.Recorded = Gone }, Refused, ErrIllegal},
		{"abort a freeze: gone, capture unknown", EventAbortFreeze, at(PhaseLive, OpFreeze), func(s *State, ev *Event) {
			ev.Facts.Recorded, ev.Facts.Capture = Gone, Unsure
		}, Refused, ErrUnknown},
		{"abort a freeze: unknown, captured", EventAbortFreeze, at(PhaseLive, OpFreeze), func(s *State, ev *Event) { ev.Facts.Recorded = Unknown }, Refused, ErrUnknown},
		{"abort a freeze: no capture, whatever runs", EventAbortFreeze, at(PhaseLive, OpFreeze), func(s *State, ev *Event) {
			ev.Facts.Recorded, ev.Facts.Capture = Unknown, No
		}, Applied, nil},
		{"resume without a conversation", EventBeginRestore, at(PhaseFrozen, OpNone), func(s *State, ev *Event) { s.SessionID = "" }, Refused, ErrIllegal},
		{"repick without a command", EventBeginRestore, at(PhaseFrozen, OpNone), func(s *State, ev *Event) { ev.RestoreMode = RestoreRepick }, Refused, ErrIllegal},
		{"repick without a conversation", EventBeginRestore, at(PhaseFrozen, OpNone), func(s *State, ev *Event) {
			ev.RestoreMode, ev.Command, s.SessionID, ev.Facts = RestoreRepick, "pick", "", Facts{}
		}, Applied, nil},
		{"resume a held conversation", EventBeginRestore, at(PhaseFrozen, OpNone), func(s *State, ev *Event) { ev.Facts.Held = Yes }, Refused, ErrConversationHeld},
		{"acknowledge of another attempt", EventAcknowledge, at(PhaseFrozen, OpRestore), func(s *State, ev *Event) { ev.Attempt = "attempt-2" }, Refused, ErrStaleNonce},
		{"acknowledge by a stranger", EventAcknowledge, at(PhaseFrozen, OpRestore), func(s *State, ev *Event) { ev.Process = rivalProc }, Refused, ErrIllegal},
		{"acknowledge before Launched", EventAcknowledge, at(PhaseFrozen, OpRestore), func(s *State, ev *Event) { s.Restore.Launched = ProcessID{} }, Applied, nil},
		{"acknowledge before Launched by an inner carrier", EventAcknowledge, at(PhaseFrozen, OpRestore), func(s *State, ev *Event) {
			s.Restore.Launched, ev.Facts.Outermost = ProcessID{}, No
		}, Refused, ErrIllegal},
		{"acknowledge before Launched, carrier unknown", EventAcknowledge, at(PhaseFrozen, OpRestore), func(s *State, ev *Event) {
			s.Restore.Launched, ev.Facts.Outermost = ProcessID{}, Unsure
		}, Refused, ErrUnknown},
		{"acknowledge by a dead process", EventAcknowledge, at(PhaseFrozen, OpRestore), func(s *State, ev *Event) { ev.Facts.Subject = Gone }, Refused, ErrIllegal},
		{"another conversation with a transcript", EventAcknowledge, at(PhaseFrozen, OpRestore), mismatch, Refused, ErrSessionMismatch},
		{"a passing conversation", EventAcknowledge, at(PhaseFrozen, OpRestore), func(s *State, ev *Event) {
			ev.SessionID, ev.Facts.Transcript = "conv-9", No
		}, Refused, ErrIllegal},
		{"another conversation, transcript unknown", EventAcknowledge, at(PhaseFrozen, OpRestore), func(s *State, ev *Event) {
			ev.SessionID, ev.Facts.Transcript = "conv-9", Unsure
		}, Refused, ErrUnknown},
		{"another conversation of a runtime that changes ids", EventAcknowledge, at(PhaseFrozen, OpRestore), func(s *State, ev *Event) {
			ev.SessionID, ev.Facts.ChangesID = "conv-9", true
		}, Applied, nil},
		{"a held conversation", EventAcknowledge, at(PhaseFrozen, OpRestore), func(s *State, ev *Event) { ev.Facts.Held = Yes }, Refused, ErrSessionMismatch},
		{"a repick adopts", EventAcknowledge, at(PhaseFrozen, OpRestore), func(s *State, ev *Event) {
			ev.SessionID, s.Restore.Mode = "conv-9", RestoreRepick
		}, Applied, nil},
		{"a repick does not adopt what is held", EventAcknowledge, at(PhaseFrozen, OpRestore), func(s *State, ev *Event) {
			ev.SessionID, s.Restore.Mode, ev.Facts.Held = "conv-9", RestoreRepick, Yes
		}, Refused, ErrSessionMismatch},
		{"acknowledge without a conversation", EventAcknowledge, at(PhaseFrozen, OpRestore), func(s *State, ev *Event) { ev.SessionID = "" }, Refused, ErrIllegal},
		{"confirm another process", EventConfirmRestore, at(PhaseFrozen, OpRestore), func(s *State, ev *Event) { ev.Process = rivalProc }, Refused, ErrIllegal},
		{"confirm what has failed", EventConfirmRestore, at(PhaseFrozen, OpRestore), func(s *State, ev *Event) { s.Restore.Failed = true }, Refused, ErrIllegal},
		{"confirm a dead process", EventConfirmRestore, at(PhaseFrozen, OpRestore), func(s *State, ev *Event) { ev.Facts.Subject = Gone }, Refused, ErrIllegal},
		{"stand-in ready, launched runs", EventStandInReady, at(PhaseFrozen, OpAbort), func(s *State, ev *Event) { ev.Facts.Launched = Running }, Refused, ErrIllegal},
		{"stand-in ready, a carrier runs", EventStandInReady, at(PhaseFrozen, OpAbort), func(s *State, ev *Event) { ev.Facts.Carriers = Running }, Refused, ErrIllegal},
		{"stand-in ready, nothing launched", EventStandInReady, at(PhaseFrozen, OpAbort), func(s *State, ev *Event) {
			s.Restore.Launched, ev.Facts.Launched = ProcessID{}, Unknown
		}, Applied, nil},
		{"adopt another conversation", EventAdopt, at(PhaseFrozen, OpNone), mismatch, Refused, ErrIllegal},
		{"adopt without a conversation", EventAdopt, at(PhaseFrozen, OpNone), func(s *State, ev *Event) { s.SessionID, ev.SessionID = "", "" }, Refused, ErrIllegal},
		{"adopt a dead process", EventAdopt, at(PhaseFrozen, OpNone), func(s *State, ev *Event) { ev.Facts.Subject = Gone }, Refused, ErrIllegal},
		{"adopt a process without the row's id", EventAdopt, at(PhaseFrozen, OpNone), func(s *State, ev *Event) { ev.Facts.CarriesRow = No }, Refused, ErrIllegal},
		{"adopt another row's process", EventAdopt, at(PhaseFrozen, OpNone), func(s *State, ev *Event) { ev.Facts.Claimed = Yes }, Refused, ErrExists},
		{"hand off to the same runtime", EventBeginHandoff, at(PhaseLive, OpNone), func(s *State, ev *Event) { ev.Target = "claude" }, Refused, ErrIllegal},
		{"hand off to nothing", EventBeginHandoff, at(PhaseLive, OpNone), func(s *State, ev *Event) { ev.Target = "" }, Refused, ErrIllegal},
		{"commit a handoff to a stranger", EventCommitHandoff, at(PhaseLive, OpHandoff), func(s *State, ev *Event) { ev.Facts.CarriesAttempt = No }, Refused, ErrIllegal},
		{"commit a handoff while the old agent runs", EventCommitHandoff, at(PhaseLive, OpHandoff), func(s *State, ev *Event) { ev.Facts.Recorded = Running }, Refused, ErrIllegal},
		{"commit a handoff to a dead process", EventCommitHandoff, at(PhaseLive, OpHandoff), func(s *State, ev *Event) { ev.Facts.Subject = Gone }, Refused, ErrIllegal},
		{"commit a handoff into a held conversation", EventCommitHandoff, at(PhaseLive, OpHandoff), func(s *State, ev *Event) { ev.Facts.Held = Yes }, Refused, ErrConversationHeld},
		{"commit a handoff, conversation not known yet", EventCommitHandoff, at(PhaseLive, OpHandoff), func(s *State, ev *Event) {
			ev.SessionID, ev.Facts.Held = "", Unsure
		}, Applied, nil},
		{"respawn what runs", EventBeginRespawn, at(PhaseLive, OpNone), func(s *State, ev *Event) { ev.Facts.Recorded = Running }, Refused, ErrIllegal},
		{"respawn a rescued row", EventBeginRespawn, at(PhaseLive, OpNone), func(s *State, ev *Event) { s.Rescued = true }, Refused, ErrIllegal},
		{"respawn a row in rescue", EventBeginRespawn, at(PhaseLive, OpNone), func(s *State, ev *Event) { s.Rescuing = true }, Refused, ErrIllegal},
		{"commit a respawn of a stranger", EventCommitRespawn, at(PhaseLive, OpRespawn), func(s *State, ev *Event) { ev.Facts.CarriesAttempt = No }, Refused, ErrIllegal},
		{"claim again", EventClaim, at(PhaseLive, OpNone), func(s *State, ev *Event) { ev.SessionID, ev.Facts = "conv-1", Facts{} }, Applied, nil},
		{"claim what is held", EventClaim, at(PhaseLive, OpNone), func(s *State, ev *Event) { ev.Facts.Held, ev.Facts.HeldBy = Yes, "b" }, Refused, ErrConversationHeld},
		{"claim without a transcript against one with", EventClaim, at(PhaseLive, OpNone), func(s *State, ev *Event) { ev.Facts.Transcript = No }, Yielded, nil},
		{"claim without a transcript against one without", EventClaim, at(PhaseLive, OpNone), func(s *State, ev *Event) {
			ev.Facts.Transcript, ev.Facts.HasTranscript = No, No
		}, Applied, nil},
		{"claim, transcripts unknown", EventClaim, at(PhaseLive, OpNone), func(s *State, ev *Event) {
			ev.Facts.Transcript, ev.Facts.HasTranscript = Unsure, Unsure
		}, Refused, ErrUnknown},
		{"claim for a row without one", EventClaim, at(PhaseLive, OpNone), func(s *State, ev *Event) {
			s.SessionID, ev.Facts.Transcript = "", Unsure
		}, Applied, nil},
		{"claim of another process", EventClaim, at(PhaseLive, OpNone), func(s *State, ev *Event) { ev.ProcessKey = secondProc.Key() }, Dropped, nil},
		{"cede while the process runs", EventClaim, at(PhaseLive, OpNone), func(s *State, ev *Event) {
			*ev = Cede("conv-1", "row-b")
			ev.Facts.Recorded = Running
		}, Refused, ErrIllegal},
		{"cede", EventClaim, at(PhaseLive, OpNone), func(s *State, ev *Event) {
			*ev = Cede("conv-1", "row-b")
			ev.Facts.Recorded = Gone
		}, Applied, nil},
		{"limit of another process", EventObserveLimit, at(PhaseLive, OpNone), func(s *State, ev *Event) { ev.ProcessKey = secondProc.Key() }, Dropped, nil},
		{"kill without a tombstone", EventBeginKill, at(PhaseLive, OpNone), func(s *State, ev *Event) { s.Tombstoned = false }, Refused, ErrIllegal},
		{"commit a kill while a process runs", EventCommitKill, at(PhaseFrozen, OpKill), func(s *State, ev *Event) { ev.Facts.Session = Running }, Refused, ErrIllegal},
		{"finish by the end of another process", EventFinish, at(PhaseLive, OpNone), func(s *State, ev *Event) { ev.ProcessKey = secondProc.Key() }, Dropped, nil},
		{"finish of no process", EventFinish, at(PhaseLive, OpNone), func(s *State, ev *Event) { ev.ProcessKey = "" }, Refused, ErrInvalid},
		{"drop while a process runs", EventBeginDrop, at(PhaseFinished, OpNone), func(s *State, ev *Event) { ev.Facts.Session = Running }, Refused, ErrIllegal},
		{"commit a drop while a process runs", EventCommitDrop, at(PhaseLive, OpDrop), func(s *State, ev *Event) { ev.Facts.Session = Running }, Refused, ErrIllegal},
		{"drop a tombstoned row", EventBeginDrop, at(PhaseLive, OpNone), func(s *State, ev *Event) { s.Tombstoned = true }, Applied, nil},
		{"take a held lease over", EventTakeOver, at(PhaseLive, OpFreeze), func(s *State, ev *Event) { ev.Facts.Lease.Owner = Running }, Refused, ErrLeaseHeld},
		{"take a lease over, owner unknown", EventTakeOver, at(PhaseLive, OpFreeze), func(s *State, ev *Event) { ev.Facts.Lease.Owner = Unknown }, Refused, ErrUnknown},
		{"a lease not provably stale is held", EventTakeOver, at(PhaseLive, OpFreeze), func(s *State, ev *Event) { ev.Facts.Lease.Owner = Unknown }, Refused, ErrLeaseHeld},
		{"force a held lease", EventForceTakeOver, at(PhaseLive, OpFreeze), func(s *State, ev *Event) { ev.Facts.Lease.Owner = Running }, Applied, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s, ev := goodEvent(tt.kind, fillState(tt.state))
			tt.spoil(&s, &ev)
			to, out, err := Transition(s, ev)
			if out != tt.out || !errors.Is(err, tt.err) || tt.err == nil && err != nil {
				t.Errorf("%s, %v; want %s, %v", out, err, tt.out, tt.err)
			}
			recorded := errors.Is(err, ErrSessionMismatch) || errors.Is(err, ErrConversationHeld) && tt.kind == EventClaim
			if out != Applied && !recorded && to != s {
				t.Errorf("nothing was applied, and the state has changed:\n%s", cmp.Diff(s, to, cmp.AllowUnexported(ProcessID{})))
			}
			if want := err != nil; (out == Refused) != want {
				t.Errorf("outcome %s with the error %v", out, err)
			}
		})
	}
}

// TestMalformedEvents refuses what no event of its kind may lack, and locations of which
// half is missing (case 27).
func TestMalformedEvents(t *testing.T) {
	pane := Location{PaneID: "%1", PaneServer: serverProc}
	tmux := Mux{Kind: MuxTmux, Socket: "/s", Target: "t"}
	for _, tt := range []struct {
		name string
		ev   Event
		ok   bool
	}{
		{"no event", Event{}, false},
		{"an event of the future", Event{Kind: eventCount}, false},
		{"no owner", BeginFreeze(ProcessID{}), false},
		{"no nonce", Event{Kind: EventBeginFreeze, Owner: ownerProc, FreezeMode: FreezePane}, false},
		{"no freeze mode", Event{Kind: EventBeginFreeze, Owner: ownerProc, Nonce: "n"}, false},
		{"no restore mode", Event{Kind: EventBeginRestore, Owner: ownerProc, Nonce: "n"}, false},
		{"no process", Bind("n", ProcessID{}, pane), false},
		{"a process without its boot", Bind("n", ProcessID{PID: 1}, pane), false},
		{"no conversation", Claim("", "hook"), false},
		{"a path for a conversation", Claim("../../etc/passwd", "hook"), false},
		{"a conversation of the newcomer that is none", Acknowledge("a", agentProc, "a b"), false},
		{"the conversation that the row has", Acknowledge("a", agentProc, "odd id/of another writer"), true},
		{"pane without its server", Bind("n", agentProc, Location{PaneID: "%1"}), false},
		{"server without a pane", Bind("n", agentProc, Location{PaneServer: serverProc}), false},
		{"pane of dtach", Bind("n", agentProc, Location{PaneID: "%1", PaneServer: serverProc, Mux: Mux{Kind: MuxDtach}}), false},
		{"socket of no multiplexer", Bind("n", agentProc, Location{Mux: Mux{Socket: "/s"}}), false},
		{"slot without a window", Bind("n", agentProc, Location{Slot: 1}), false},
		{"negative slot", Bind("n", agentProc, Location{Window: "w", Slot: -1}), false},
		{"whole location", Bind("n", agentProc, Location{Mux: tmux, PaneID: "%1", PaneServer: serverProc, Window: "w", Slot: 1}), true},
		{"no location", Bind("n", agentProc, Location{}), true},
		{"shell freeze", BeginShellFreeze(ownerProc), true},
		{"repick", BeginRepick(ownerProc, "x"), true},
		{"bind by the attempt", BindCarrier("a", agentProc, pane), true},
	} {
		from := fillState(State{Phase: PhaseArchived})
		from.SessionID = "odd id/of another writer"
		_, _, err := Transition(from, tt.ev)
		if got := errors.Is(err, ErrInvalid); got == tt.ok {
			t.Errorf("%s: %v", tt.name, err)
		}
		// A refusal reaches the row as little as the state.
		e := Entry{SchemaVersion: 1, Phase: PhaseLive, Lease: &Lease{Op: OpCreate, Attempt: "n", Nonce: "n", Owner: ownerProc}}
		before := e.clone()
		if _, write, err := advance(&e, tt.ev); errors.Is(err, ErrInvalid) && (write || !reflect.DeepEqual(before, e)) {
			t.Errorf("%s: the row was touched", tt.name)
		}
	}
}

// TestErrorsTellWhy checks what the typed errors say and unwrap to.
func TestErrorsTellWhy(t *testing.T) {
	s, ev := goodEvent(EventBeginFreeze, fillState(State{Phase: PhaseFrozen}))
	_, _, err := Transition(s, ev)
	var ill *IllegalTransitionError
	if !errors.As(err, &ill) || ill.From != s || ill.Event != EventBeginFreeze || ill.Reason != "" || errors.Is(err, ErrStaleNonce) {
		t.Errorf("not in the table: %+v", ill)
	}
	if got, want := err.Error(), "ledger: BeginFreeze is illegal in frozen/none"; got != want {
		t.Errorf("%q, want %q", got, want)
	}

	s, ev = goodEvent(EventBeginFreeze, fillState(State{Phase: PhaseLive}))
	ev.Facts.Recorded = Gone
	if _, _, err = Transition(s, ev); !errors.As(err, &ill) || ill.Reason != "the recorded process is gone" {
		t.Errorf("a fact against it: %v", err)
	}

	// An operation that is over takes its nonce with it: both are true, and both are said.
	s, ev = goodEvent(EventCommitFreeze, fillState(State{Phase: PhaseLive}))
	ev.Nonce = "nonce-0"
	if _, _, err = Transition(s, ev); !errors.Is(err, ErrIllegal) || !errors.Is(err, ErrStaleNonce) {
		t.Errorf("the operation is over: %v", err)
	}

	s, ev = goodEvent(EventCommitFreeze, fillState(State{Phase: PhaseLive, Op: OpFreeze}))
	ev.Facts.Capture = Unsure
	_, _, err = Transition(s, ev)
	var ref *RefusedError
	if !errors.As(err, &ref) || ref.From != s || ref.Event != EventCommitFreeze || !errors.Is(err, ErrUnknown) || errors.Is(err, ErrIllegal) {
		t.Errorf("unknown: %v", err)
	}
	if !strings.Contains(err.Error(), "capture") {
		t.Errorf("it does not name the evidence: %v", err)
	}
}

// TestOutcomeNames (case 20).
func TestOutcomeNames(t *testing.T) {
	var got []string
	for o := Unset; o <= Refused; o++ {
		got = append(got, o.String())
	}
	if want := []string{"unset", "applied", "dropped", "yielded", "refused"}; !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}

// TestABA: a full cycle back to the same state does not revive an old nonce (case 23).
func TestABA(t *testing.T) {
	s := fillState(State{Phase: PhaseLive})
	apply := func(ev Event) {
		t.Helper()
		_, with := goodEvent(ev.Kind, s)
		ev.Facts = with.Facts
		next, out, err := Transition(s, ev)
		if out != Applied {
			t.Fatalf("%s: %s, %v", ev.Kind, out, err)
		}
		s = next
	}
	first := BeginFreeze(ownerProc)
	apply(first)
	inFlight := s
	apply(AbortFreeze(first.Nonce))
	again := BeginFreeze(ownerProc)
	if again.Nonce == first.Nonce || len(first.Nonce) != 32 {
		t.Fatalf("nonces %q and %q", first.Nonce, again.Nonce)
	}
	apply(again)
	if s.Phase != inFlight.Phase || s.Op != inFlight.Op || s.Epoch == inFlight.Epoch {
		t.Fatalf("not the same state again: %+v", s)
	}
	for _, ev := range []Event{CommitFreeze(first.Nonce, viewerProc), AbortFreeze(first.Nonce), Release(first.Nonce)} {
		_, with := goodEvent(ev.Kind, s)
		ev.Facts = with.Facts
		to, out, err := Transition(s, ev)
		if out != Refused || !errors.Is(err, ErrStaleNonce) || to != s {
			t.Errorf("%s with the old nonce: %s, %v", ev.Kind, out, err)
		}
	}
	// The same after a take-over: the attempt stays, the old nonce is dead, also as the
	// attempt's own name.
	take := TakeOver(rivalProc)
	apply(take)
	if s.Attempt != again.Nonce || s.Nonce != take.Nonce || !s.Owner.Same(rivalProc) {
		t.Errorf("after the take-over: %+v", s)
	}
	ev := AbortFreeze(again.Nonce)
	ev.Facts.Recorded = Running
	if _, out, err := Transition(s, ev); out != Refused || !errors.Is(err, ErrStaleNonce) {
		t.Errorf("who was taken over goes on: %s, %v", out, err)
	}
	apply(AbortFreeze(take.Nonce))
}

// TestEpochScope: a scoped event is dropped once the epoch has moved, and lands while it
// has not (case 21).
func TestEpochScope(t *testing.T) {
	s := fillState(State{Phase: PhaseLive})
	ev := ObserveLimit(agentProc.Key(), midday).AtEpoch(s.Epoch)
	limited, out, _ := Transition(s, ev)
	if out != Applied || limited.Epoch != s.Epoch+1 {
		t.Fatalf("a fresh one: %s, epoch %d", out, limited.Epoch)
	}
	if to, out, err := Transition(limited, ev); out != Dropped || err != nil || to != limited {
		t.Errorf("a stale one: %s, %v", out, err)
	}
	// The same limit again is no change, a later end is one, an unknown end is none.
	for _, tt := range []struct {
		reset time.Time
		moved bool
	}{{midday, false}, {time.Time{}, false}, {midday.Add(time.Hour), true}} {
		to, out, _ := Transition(limited, ObserveLimit(agentProc.Key(), tt.reset))
		if out != Applied || (to.Epoch != limited.Epoch) != tt.moved {
			t.Errorf("limit until %v: %s, epoch %d after %d", tt.reset, out, to.Epoch, limited.Epoch)
		}
	}
	// What is no phase, op, limit or process moves no epoch.
	for _, kind := range []EventKind{EventIntendKill, EventClaim, EventWithdrawKill} {
		from, ev := goodEvent(kind, s)
		if to, out, _ := Transition(from, ev); out != Applied || to.Epoch != from.Epoch {
			t.Errorf("%s: %s, epoch %d after %d", kind, out, to.Epoch, from.Epoch)
		}
	}
}

// TestTombstone (case 25): it waits for no lease, is idempotent, and refuses every new
// operation but kill and drop.
func TestTombstone(t *testing.T) {
	for _, s := range validStates() {
		if s.Phase == PhaseNone || s.Phase == PhaseFinished {
			continue
		}
		s = fillState(s)
		s.Tombstoned = false
		once, out, err := Transition(s, IntendKill())
		if out != Applied || !once.Tombstoned || err != nil {
			t.Errorf("%s: %s, %v", s.name(), out, err)
		}
		if twice, out, _ := Transition(once, IntendKill()); out != Applied || twice != once {
			t.Errorf("%s: the second time: %s", s.name(), out)
		}
		if got := activity(once, LivenessWorking, nil); got != ActivityTerminal {
			t.Errorf("%s: activity %s", s.name(), got)
		}
	}
	for kind := EventNone + 1; kind < eventCount; kind++ {
		for _, phase := range []Phase{PhaseLive, PhaseFrozen} {
			m := lookUpMove(kind, phase, OpNone)
			if m == nil || m.lease != mints {
				continue
			}
			s, ev := goodEvent(kind, fillState(State{Phase: phase}))
			s.Tombstoned = true
			_, out, err := Transition(s, ev)
			if open := kind == EventBeginKill || kind == EventBeginDrop; open != (out == Applied) || !open && !errors.Is(err, ErrKillIntended) {
				t.Errorf("%s on a tombstoned row: %s, %v", kind, out, err)
			}
		}
	}
}

// TestTransitionAllocatesNothing covers every cell that is no error.
func TestTransitionAllocatesNothing(t *testing.T) {
	for kind := EventNone + 1; kind < eventCount; kind++ {
		for _, s := range validStates() {
			from, ev := goodEvent(kind, fillState(s))
			if _, _, err := Transition(from, ev); err != nil {
				continue
			}
			if n := testing.AllocsPerRun(20, func() { Transition(from, ev) }); n != 0 {
				t.Errorf("%s in %s: %v allocations", kind, s.name(), n)
			}
		}
	}
}

// BenchmarkTransition compares a transition with the bare look-up of a two-level array,
// the least that any table costs.
func BenchmarkTransition(b *testing.B) {
	s, ev := goodEvent(EventCommitFreeze, fillState(State{Phase: PhaseLive, Op: OpFreeze}))
	b.Run("bare", func(b *testing.B) {
		var index [eventCount][16]*move
		index[EventCommitFreeze][2] = &transitions[0]
		b.ReportAllocs()
		for b.Loop() {
			if index[ev.Kind][2] == nil {
				b.Fatal("not there")
			}
		}
	})
	b.Run("transition", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, out, err := Transition(s, ev); out != Applied {
				b.Fatal(out, err)
			}
		}
	})
}
