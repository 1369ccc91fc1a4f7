package ledger

import (
	"errors"
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// rowWith returns a live row with everything in it that an event could lose.
func rowWith(p ProcessID, mend func(*Entry)) Entry {
	ticks := uint64(9)
	e := Entry{
		SchemaVersion: 1, LedgerID: "a", Runtime: "claude", Phase: PhaseLive, Epoch: 3,
		StartedAt: midday.Add(-time.Hour), SessionID: "conv-1", TranscriptPath: "/t/1",
		PID: p.PID, PIDStartTicks: &p.StartTicks, HostID: p.HostID, BootID: p.BootID,
		PIDNamespace: p.PIDNamespace, TimeNamespace: p.TimeNamespace,
		CPUTicks: &ticks, ProcessDescribedAt: midday, Waiting: &Waiting{Kind: "input", Since: midday},
		Mux: Mux{Kind: MuxTmux, Socket: "/s", Target: "t"}, TmuxSession: "t", TmuxSocket: "/s",
		PaneID: "%1", PaneServer: serverProc, Window: "w", Slot: 2,
	}
	if mend != nil {
		mend(&e)
	}
	return e
}

func mustAdvance(t *testing.T, e *Entry, ev Event, facts Facts) {
	t.Helper()
	ev.Facts, ev.At, ev.BootSec = facts, midday, 5000
	if out, _, err := advance(e, ev); out != Applied || err != nil {
		t.Fatalf("%s: %s, %v", ev.Kind, out, err)
	}
}

// TestBlanksNeverOverwrite (case 27).
func TestBlanksNeverOverwrite(t *testing.T) {
	e := rowWith(agentProc, nil)
	want := e.clone()
	mustAdvance(t, &e, Bind("", agentProc, Location{}), Facts{})
	if !reflect.DeepEqual(want, e) {
		t.Errorf("an empty event has changed the row:\n%s", cmp.Diff(want, e, cmp.AllowUnexported(Entry{}, ProcessID{}, unknown{}, Mux{}, Waiting{})))
	}
	claim := Claim("conv-1", "hook")
	mustAdvance(t, &e, claim, Facts{})
	if e.TranscriptPath != "/t/1" {
		t.Errorf("transcript path %q", e.TranscriptPath)
	}
	mustAdvance(t, &e, Bind("", agentProc, Location{PaneID: "%7", PaneServer: serverProc}), Facts{})
	if e.PaneID != "%7" || e.Window != "w" || e.Slot != 2 || e.Mux.Target != "t" || e.CPUTicks == nil || e.Epoch != 3 {
		t.Errorf("a new pane alone: %+v", e)
	}
	mustAdvance(t, &e, Bind("", agentProc, Location{Window: "w2"}), Facts{})
	if e.Window != "w2" || e.Slot != 0 || e.PaneID != "%7" {
		t.Errorf("a new window has its slot 0: %q %d %q", e.Window, e.Slot, e.PaneID)
	}
}

// TestAnotherServerTakesItsNamesAlong: what the old multiplexer called things is not
// mixed with the new one.
func TestAnotherServerTakesItsNamesAlong(t *testing.T) {
	e := rowWith(agentProc, nil)
	mustAdvance(t, &e, Bind("", agentProc, Location{Mux: Mux{Kind: MuxTmux, Socket: "/other"}}), Facts{})
	if e.Mux.Target != "" || e.TmuxSession != "" || e.TmuxSocket != "/other" || e.PaneID != "" || !e.PaneServer.IsZero() {
		t.Errorf("%+v, %q, %q, %q", e.Mux, e.TmuxSession, e.TmuxSocket, e.PaneID)
	}
	e = rowWith(agentProc, nil)
	mustAdvance(t, &e, Bind("", agentProc, Location{Mux: Mux{Kind: MuxDtach, Socket: "/d"}}), Facts{})
	if e.TmuxSession != "" || e.TmuxSocket != "" || e.PaneID != "" || e.Mux.Kind != MuxDtach || e.Mux.Socket != "/d" {
		t.Errorf("tmux names beside dtach: %+v, %q, %q", e.Mux, e.TmuxSession, e.PaneID)
	}
}

// TestProcessChangesWhole: the members of a process identity change together, what was
// measured of the old one goes, and the birth stays.
func TestProcessChangesWhole(t *testing.T) {
	e := rowWith(agentProc, func(e *Entry) {
		e.Attention = &Note{Since: midday, Reason: "x"}
		e.EndNoted = &EndNoted{At: midday, ProcessKey: agentProc.Key()}
	})
	p := secondProc
	p.HostID, p.BootID, p.PIDNamespace, p.TimeNamespace = "h2", "b2", 8, 9
	mustAdvance(t, &e, Bind("", p, Location{}), Facts{Recorded: Gone, Subject: Running, Claimed: No})
	if e.Process() != p {
		t.Errorf("process %+v", e.Process())
	}
	if e.CPUTicks != nil || !e.ProcessDescribedAt.IsZero() || e.Waiting != nil || e.Attention != nil || e.EndNoted != nil {
		t.Error("something of the old process is left")
	}
	if !e.StartedAt.Equal(midday.Add(-time.Hour)) || e.Epoch != 4 {
		t.Errorf("started %v, epoch %d", e.StartedAt, e.Epoch)
	}
}

// TestFreezeAndRestoreKeepCaptures follows the captures of a session through verified
// and unverified restores.
func TestFreezeAndRestoreKeepCaptures(t *testing.T) {
	e := rowWith(agentProc, nil)
	freeze := func() string {
		t.Helper()
		ev := BeginFreeze(ownerProc)
		mustAdvance(t, &e, ev, Facts{Recorded: Running})
		if e.Frozen.Attempt != ev.Nonce || e.Lease.Attempt != ev.Nonce || e.Lease.AcquiredBootSec != 5000 || !e.StateAt.Equal(midday) {
			t.Fatalf("frozen %+v, lease %+v", e.Frozen, e.Lease)
		}
		commit := CommitFreeze(ev.Nonce, viewerProc)
		commit.Lines = 12
		mustAdvance(t, &e, commit, Facts{Recorded: Gone, Capture: Yes})
		if e.Frozen.StandIn != viewerProc || e.Frozen.Lines != 12 || !e.Frozen.At.Equal(midday) || e.Lease != nil {
			t.Fatalf("frozen %+v", e.Frozen)
		}
		return ev.Nonce
	}
	begin := func() Event {
		t.Helper()
		ev, recorded := BeginRestore(ownerProc), e.Process()
		mustAdvance(t, &e, ev, Facts{Held: No})
		mustAdvance(t, &e, Launched(ev.Nonce, secondProc, Location{PaneID: "%9", PaneServer: serverProc}), Facts{})
		if e.Restore.Launched != secondProc || e.PaneID != "%9" || e.Process() != recorded {
			t.Fatalf("restore %+v", e.Restore)
		}
		return ev
	}
	first := freeze()
	ev := begin()
	mustAdvance(t, &e, ConfirmRestore(ev.Nonce, secondProc), Facts{Subject: Running})
	if e.Restore.Ack != AckLiveness || e.Process() != secondProc || e.Frozen == nil || e.Frozen.Attempt != "" || fmt.Sprint(e.Frozen.Kept) != "["+first+"]" {
		t.Errorf("unverified: %+v, %+v", e.Restore, e.Frozen)
	}
	freeze()
	if len(e.Frozen.Kept) != 1 {
		t.Errorf("the second freeze lost the first capture: %+v", e.Frozen)
	}
	ev = begin()
	mustAdvance(t, &e, Acknowledge(ev.Nonce, secondProc, "conv-1"), Facts{Subject: Running, Held: No})
	if e.Restore.Ack != AckHook || e.Phase != PhaseLive || e.Frozen == nil || e.Frozen.Attempt != "" || len(e.Frozen.Kept) != 1 {
		t.Errorf("verified: %+v, %+v", e.Restore, e.Frozen)
	}
	// Without kept ones nothing is left to say.
	e.Frozen.Kept = nil
	ev = BeginFreeze(ownerProc)
	mustAdvance(t, &e, ev, Facts{Recorded: Running})
	mustAdvance(t, &e, AbortFreeze(ev.Nonce), Facts{Recorded: Running})
	if e.Frozen != nil {
		t.Errorf("frozen %+v", e.Frozen)
	}
}

// TestKeptCapturesAreCapped: the list has an end, and the rest is counted.
func TestKeptCapturesAreCapped(t *testing.T) {
	e := rowWith(agentProc, nil)
	for i := range maxList + 5 {
		e.Frozen = &Frozen{Attempt: fmt.Sprint(i), Kept: keptOf(e.Frozen), KeptMore: keptMore(e.Frozen)}
		e.keepCapture()
		e.retire(fmt.Sprint("conv-", i+2), "hook", "", midday)
		e.HandoffTarget = "codex"
		e.handOff(&Event{SessionID: "x"}, midday)
	}
	if len(e.Frozen.Kept) != maxList || e.Frozen.KeptMore != 5 || e.Frozen.Kept[0] != "5" {
		t.Errorf("%d kept from %s, %d more", len(e.Frozen.Kept), e.Frozen.Kept[0], e.Frozen.KeptMore)
	}
	if len(e.Handoffs) != maxList || e.HandoffsMore != 5 {
		t.Errorf("%d handoffs, %d more", len(e.Handoffs), e.HandoffsMore)
	}
	// The ids of the loop and the first of the row: one more.
	if len(e.SessionIDs) != maxList || e.SessionIDsMore != 6 {
		t.Errorf("%d ids, %d more", len(e.SessionIDs), e.SessionIDsMore)
	}
}

func keptOf(f *Frozen) []string {
	if f == nil {
		return nil
	}
	return f.Kept
}

func keptMore(f *Frozen) int {
	if f == nil {
		return 0
	}
	return f.KeptMore
}

// TestRestoreErrors: a mismatch is the refusal that writes; the first reason stays when
// the restore is given up.
func TestRestoreErrors(t *testing.T) {
	e := rowWith(agentProc, func(e *Entry) { e.Phase, e.Frozen = PhaseFrozen, &Frozen{Attempt: "f"} })
	begin := BeginRestore(ownerProc)
	mustAdvance(t, &e, begin, Facts{Held: No})
	mustAdvance(t, &e, Launched(begin.Nonce, secondProc, Location{}), Facts{})
	epoch := e.Epoch
	ev := Acknowledge(begin.Nonce, secondProc, "conv-9")
	ev.Facts, ev.At = Facts{Subject: Running, Held: No, Transcript: Yes}, midday
	out, write, err := advance(&e, ev)
	if out != Refused || !write || !errors.Is(err, ErrSessionMismatch) {
		t.Fatalf("%s, %v, %v", out, write, err)
	}
	if r := e.Restore.Error; r == nil || r.Attempt != begin.Nonce || r.Reason != `the conversation "conv-9" came up` {
		t.Fatalf("%+v", r)
	}
	if e.Phase != PhaseFrozen || e.Lease == nil || e.Epoch != epoch || e.SessionID != "conv-1" {
		t.Errorf("the state has moved: %+v", e)
	}
	mustAdvance(t, &e, FailRestore(begin.Nonce, "timed out"), Facts{})
	if e.Restore.Error.Reason != `the conversation "conv-9" came up` || e.Lease.Op != OpAbort || e.Lease.Attempt != begin.Nonce {
		t.Errorf("%+v, %+v", e.Restore.Error, e.Lease)
	}
	mustAdvance(t, &e, StandInReady(begin.Nonce, viewerProc), Facts{Launched: Gone, Carriers: Gone})
	if e.Frozen.StandIn != viewerProc || e.Frozen.Attempt != "f" || e.Lease != nil {
		t.Errorf("%+v", e.Frozen)
	}
	// The next attempt starts with a clean record.
	mustAdvance(t, &e, BeginRestore(ownerProc), Facts{Held: No})
	if e.Restore.Error != nil || !e.Restore.Launched.IsZero() || e.Restore.Ack != "" {
		t.Errorf("%+v", e.Restore)
	}
}

// TestConversationHistory: former ids are kept once each, newest last; a held one is
// noted once with its holder, and asks for attention.
func TestConversationHistory(t *testing.T) {
	e := rowWith(agentProc, nil)
	free := Facts{Held: No, Transcript: Yes}
	to := Claim("conv-2", "hook")
	to.TranscriptPath = "/t/2"
	mustAdvance(t, &e, to, free)
	mustAdvance(t, &e, Claim("conv-1", "hook"), free)
	mustAdvance(t, &e, Claim("conv-2", "hook"), free)
	var ids []string
	for _, f := range e.SessionIDs {
		ids = append(ids, f.ID)
	}
	if fmt.Sprint(ids) != "[conv-2 conv-1]" || e.SessionID != "conv-2" || e.TranscriptPath != "" {
		t.Errorf("%v, current %q at %q", ids, e.SessionID, e.TranscriptPath)
	}
	held := Claim("conv-9", "store")
	held.Facts, held.At = Facts{Held: Yes, HeldBy: "row-b"}, midday
	for range 2 {
		before := e.clone()
		out, write, err := advance(&e, held)
		if out != Refused || !write || !errors.Is(err, ErrConversationHeld) {
			t.Fatalf("%s, %v, %v", out, write, err)
		}
		if len(before.SessionIDs) == 3 && !reflect.DeepEqual(before, e) {
			t.Error("the second refusal has changed the row")
		}
	}
	last := e.SessionIDs[len(e.SessionIDs)-1]
	if len(e.SessionIDs) != 3 || last.ID != "conv-9" || last.HeldBy != "row-b" || last.From != "store" || e.Attention == nil || e.SessionID != "conv-2" {
		t.Errorf("%+v, attention %+v", e.SessionIDs, e.Attention)
	}
	mustAdvance(t, &e, Cede("conv-2", "row-c"), Facts{Recorded: Gone})
	last = e.SessionIDs[len(e.SessionIDs)-1]
	if e.SessionID != "" || last.ID != "conv-2" || last.HeldBy != "row-c" {
		t.Errorf("ceded: %q, %+v", e.SessionID, e.SessionIDs)
	}
	mustAdvance(t, &e, Cede("conv-2", "row-c"), Facts{}) // again: nothing
	if len(e.SessionIDs) != 3 {
		t.Errorf("%+v", e.SessionIDs)
	}
}

// Attention for a refused claim is cleared by progress: the row gets that conversation or
// another one, or its hook says that it is back in its own. No other source takes the hook's
// refusal back, and no claim takes other attention.
func TestAttentionForARefusedClaimIsClearedByProgress(t *testing.T) {
	free := Facts{Held: No, Transcript: Yes, HasTranscript: Yes}
	for _, tt := range []struct {
		name, id, source string
		refused, cleared bool
	}{
		{"that conversation", "conv-9", fromHook, true, true},
		{"another conversation", "conv-3", fromHook, true, true},
		{"another conversation by the list", "conv-3", fromRegistry, true, true},
		{"back in its own", "conv-1", fromHook, true, true},
		{"its own by an older word", "conv-1", fromRegistry, true, false},
		{"other attention", "conv-3", fromHook, false, false},
	} {
		e := rowWith(agentProc, func(e *Entry) { e.Attention = &Note{Since: midday, Reason: "x"} })
		e.SessionID = "conv-1"
		if tt.refused {
			held := Claim("conv-9", fromHook)
			held.Facts, held.At = Facts{Held: Yes, HeldBy: "row-b"}, midday
			if _, _, err := advance(&e, held); !errors.Is(err, ErrConversationHeld) || !e.refused() {
				t.Fatalf("%v, %+v", err, e.Attention)
			}
		}
		mustAdvance(t, &e, Claim(tt.id, tt.source), free)
		if e.SessionID != tt.id || (e.Attention == nil) != tt.cleared {
			t.Errorf("%s: %q, attention %+v", tt.name, e.SessionID, e.Attention)
		}
		for _, f := range e.SessionIDs {
			if f.ID == e.SessionID && f.HeldBy != "" {
				t.Errorf("%s: the history has the row's own conversation as that of %s", tt.name, f.HeldBy)
			}
		}
	}
}

// TestHandoffIsANewLife.
func TestHandoffIsANewLife(t *testing.T) {
	e := rowWith(agentProc, func(e *Entry) {
		e.RescuedAt, e.RescueRef, e.RescueCommit = midday, "refs/rescued/a", "c0ffee"
		e.RescuedPaths, e.RescuedMore, e.RescueOmitted, e.OmittedMore = []string{"x"}, 1, []Omitted{{Path: "y"}}, 1
		e.Rescuing = &Rescuing{At: midday}
		e.Limit = &Limit{ReachedAt: midday}
	})
	begin := BeginHandoff(ownerProc, "codex")
	mustAdvance(t, &e, begin, Facts{})
	if e.HandoffTarget != "codex" || e.Runtime != "claude" {
		t.Fatalf("target %q, runtime %q", e.HandoffTarget, e.Runtime)
	}
	ev := CommitHandoff(begin.Nonce, secondProc, Location{}, "")
	ev.HeadCommit, ev.Reason, ev.Automatic, ev.Brief = "abc", "limit", true, "go on"
	mustAdvance(t, &e, ev, Facts{Recorded: Gone, CarriesAttempt: Yes, Subject: Running})
	want := Handoff{From: HandoffFrom{Runtime: "claude", SessionID: "conv-1"}, To: "codex", At: midday, HeadCommit: "abc", Reason: "limit", Automatic: true}
	if len(e.Handoffs) != 1 || !reflect.DeepEqual(e.Handoffs[0], want) {
		t.Errorf("handoffs %+v", e.Handoffs)
	}
	if e.Runtime != "codex" || e.SessionID != "" || e.TranscriptPath != "" || e.Process() != secondProc || e.HandoffTarget != "" || e.Limit != nil || e.BriefPending != "go on" {
		t.Errorf("the new life: %+v", e)
	}
	if !e.RescuedAt.IsZero() || e.RescueRef != "" || e.RescueCommit != "" || e.RescuedPaths != nil || e.RescuedMore != 0 || e.RescueOmitted != nil || e.OmittedMore != 0 || e.Rescuing != nil {
		t.Errorf("rescue fields of the old life are left")
	}
	if len(e.SessionIDs) != 1 || e.SessionIDs[0].ID != "conv-1" {
		t.Errorf("history %+v", e.SessionIDs)
	}
	begin = BeginHandoff(ownerProc, "claude")
	mustAdvance(t, &e, begin, Facts{})
	mustAdvance(t, &e, ParkHandoff(begin.Nonce, agentProc, Location{}, "conv-3", midday.Add(time.Hour)), Facts{Recorded: Gone, CarriesAttempt: Yes, Subject: Running, Held: No})
	if e.Limit == nil || !e.Limit.ReachedAt.Equal(midday) || !e.Limit.ResetAt.Equal(midday.Add(time.Hour)) || e.SessionID != "conv-3" || len(e.Handoffs) != 2 {
		t.Errorf("parked: limit %+v, %q", e.Limit, e.SessionID)
	}
	if e.BriefPending != "go on" {
		t.Error("a brief that was not delivered is lost")
	}
	begin = BeginHandoff(ownerProc, "codex")
	mustAdvance(t, &e, begin, Facts{})
	mustAdvance(t, &e, AbortHandoff(begin.Nonce), Facts{})
	if len(e.Handoffs) != 2 || e.HandoffTarget != "" {
		t.Errorf("an aborted handoff left a line: %+v", e.Handoffs)
	}
}

// TestEndDuringAnOperation (case 26): it closes nothing, and is settled when the
// operation has ended without having ended the process itself.
func TestEndDuringAnOperation(t *testing.T) {
	noted := func(op Op, phase Phase) Entry {
		e := rowWith(agentProc, func(e *Entry) {
			e.Phase = phase
			e.Lease = &Lease{Op: op, Attempt: "n", Nonce: "n", Owner: ownerProc, AcquiredAt: midday, AcquiredBootSec: 1}
			e.Frozen = &Frozen{Attempt: "n"}
			e.Restore = &Restore{Attempt: "n", Mode: RestoreResume, Launched: secondProc}
			e.HandoffTarget = "codex"
			if op == OpKill {
				e.KillIntentAt = midday
			}
		})
		ev := Finish(agentProc.Key(), "exited")
		ev.At = midday
		epoch := e.Epoch
		out, write, err := advance(&e, ev)
		if out != Yielded || !write || err != nil || e.EndNoted == nil || e.EndNoted.ProcessKey != agentProc.Key() || e.EndNoted.Reason != "exited" {
			t.Fatalf("%s: %s, %v, %v, %+v", op, out, write, err, e.EndNoted)
		}
		if e.Phase != phase || !e.FinishedAt.IsZero() || e.Epoch != epoch {
			t.Fatalf("%s: the row was closed", op)
		}
		return e
	}
	all := Facts{Recorded: Gone, Subject: Running, CarriesAttempt: Yes, Capture: Yes, Launched: Gone, Carriers: Gone, Session: Gone, Held: No}
	for _, tt := range []struct {
		op    Op
		phase Phase
		ev    Event
		left  bool // the note is still to be settled
	}{
		{OpFreeze, PhaseLive, CommitFreeze("n", viewerProc), false},
		{OpRestore, PhaseFrozen, ConfirmRestore("n", secondProc), false},
		{OpRestore, PhaseFrozen, Acknowledge("n", secondProc, "conv-1"), false},
		{OpAbort, PhaseFrozen, StandInReady("n", viewerProc), false},
		{OpHandoff, PhaseLive, CommitHandoff("n", secondProc, Location{}, ""), false},
		{OpHandoff, PhaseLive, AbortHandoff("n"), false}, // the handoff has ended it
		{OpRespawn, PhaseLive, CommitRespawn("n", secondProc, Location{}), false},
		{OpRespawn, PhaseLive, AbortRespawn("n"), true},
		{OpKill, PhaseLive, CommitKill("n"), false},
		{OpKill, PhaseLive, AbortKill("n"), false}, // the kill has ended it
		{OpDrop, PhaseLive, AbortDrop("n"), true},
	} {
		e := noted(tt.op, tt.phase)
		mustAdvance(t, &e, tt.ev, all)
		if (e.EndNoted != nil) != tt.left {
			t.Errorf("after %s: %+v", tt.ev.Kind, e.EndNoted)
		}
	}
	// A freeze that was aborted although its agent is gone: the capture is not complete.
	e := noted(OpFreeze, PhaseLive)
	mustAdvance(t, &e, AbortFreeze("n"), Facts{Recorded: Gone, Capture: No})
	a := Plan(e, Observation{Agent: Gone}, midday)
	if a.Event != EventFinish || !a.Rescue || a.ProcessKey != agentProc.Key() || a.Reason != "exited" {
		t.Errorf("%+v", a)
	}
	mustAdvance(t, &e, Finish(a.ProcessKey, a.Reason), Facts{})
	if e.Phase != PhaseFinished || !e.FinishedAt.Equal(midday) || e.FinishReason != "exited" || e.EndNoted != nil {
		t.Errorf("%+v", e)
	}
	// On a row that is over, a second word of its end is nothing.
	before := e.clone()
	ev := Finish(agentProc.Key(), "again")
	if out, write, err := advance(&e, ev); out != Yielded || write || err != nil || !reflect.DeepEqual(before, e) {
		t.Errorf("%s, %v, %v", out, write, err)
	}
}

// TestSweepSeesTheFirstProcessDead (case 29b): P1 was seen dead while P2 is bound.
func TestSweepSeesTheFirstProcessDead(t *testing.T) {
	e := rowWith(secondProc, nil)
	ev := Finish(agentProc.Key(), "process exited")
	if out, write, err := advance(&e, ev); out != Dropped || write || err != nil || e.Phase != PhaseLive {
		t.Errorf("%s, %v, %v", out, write, err)
	}
}

// TestProgressClearsWhatWasUnclear, but not what else asks for attention.
func TestProgressClearsWhatWasUnclear(t *testing.T) {
	e := rowWith(agentProc, func(e *Entry) {
		e.Unclear, e.Attention = &Note{Since: midday, Reason: "x"}, &Note{Since: midday, Reason: "x"}
	})
	mustAdvance(t, &e, BeginFreeze(ownerProc), Facts{Recorded: Running})
	if e.Unclear != nil || e.Attention != nil {
		t.Errorf("%+v, %+v", e.Unclear, e.Attention)
	}
	e = rowWith(agentProc, func(e *Entry) {
		e.Unclear, e.Attention = &Note{Since: midday, Reason: "x"}, &Note{Since: midday, Reason: "y"}
	})
	mustAdvance(t, &e, BeginFreeze(ownerProc), Facts{Recorded: Running})
	if e.Unclear != nil || e.Attention == nil {
		t.Errorf("%+v, %+v", e.Unclear, e.Attention)
	}
}

// TestTombstoneInTheRow: set once, withdrawn, and history on a row that is over.
func TestTombstoneInTheRow(t *testing.T) {
	e := rowWith(agentProc, nil)
	mustAdvance(t, &e, IntendKill(), Facts{})
	later := IntendKill()
	later.At = midday.Add(time.Hour)
	if out, _, err := advance(&e, later); out != Applied || err != nil || !e.KillIntentAt.Equal(midday) {
		t.Errorf("%s, %v, %v", out, err, e.KillIntentAt)
	}
	mustAdvance(t, &e, WithdrawKill(), Facts{})
	if !e.KillIntentAt.IsZero() {
		t.Error("not withdrawn")
	}
	mustAdvance(t, &e, IntendKill(), Facts{})
	kill := BeginKill(ownerProc)
	mustAdvance(t, &e, kill, Facts{})
	mustAdvance(t, &e, CommitKill(kill.Nonce), Facts{Session: Gone})
	if e.Phase != PhaseFinished || !e.KillIntentAt.Equal(midday) || e.FinishReason != "killed" || e.State().Tombstoned {
		t.Errorf("%+v", e)
	}
}

// TestUnknownMembersSurviveEvents: what a later version has put into the parts of a row
// is still there after a whole life.
func TestUnknownMembersSurviveEvents(t *testing.T) {
	const row = `{"schemaVersion":1,"ledgerId":"a","runtime":"claude","phase":"live","sessionId":"conv-1","bootId":"boot","hostId":"host",` +
		`"pid":100,"pidStartTicks":1000,"pidNamespace":1,"timeNamespace":2,"new":2.50,"mux":{"kind":"tmux","socket":"/s","target":"t","new":1E+2},` +
		`"frozen":{"attempt":"old","new":3.0},"restore":{"attempt":"old","new":4.0},"sessionIds":[{"id":"conv-0","new":5.0}]}`
	e, err := decodeEntry([]byte(row))
	if err != nil {
		t.Fatal(err)
	}
	freeze := BeginFreeze(ownerProc)
	mustAdvance(t, &e, freeze, Facts{Recorded: Running})
	mustAdvance(t, &e, CommitFreeze(freeze.Nonce, viewerProc), Facts{Recorded: Gone, Capture: Yes})
	restore := BeginRestore(ownerProc)
	mustAdvance(t, &e, restore, Facts{Held: No})
	mustAdvance(t, &e, Acknowledge(restore.Nonce, secondProc, "conv-1"), Facts{Subject: Running, Held: No, Outermost: Yes})
	mustAdvance(t, &e, Bind("", secondProc, Location{Mux: Mux{Kind: MuxTmux, Socket: "/s2", Target: "t2"}}), Facts{})
	mustAdvance(t, &e, Claim("conv-0", "hook"), Facts{Held: No, Transcript: Yes})
	mustAdvance(t, &e, Claim("conv-1", "hook"), Facts{Held: No, Transcript: Yes})
	back, err := decodeEntry(noErr(encodeEntry(&e)))
	if err != nil {
		t.Fatal(err)
	}
	for name, u := range map[string]unknown{"top": back.unknown, "mux": back.Mux.unknown, "frozen": back.Frozen.unknown, "restore": back.Restore.unknown, "former id": back.SessionIDs[len(back.SessionIDs)-1].unknown} {
		if len(u.Members) == 0 {
			t.Errorf("%s has lost its unknown member", name)
		}
	}
	if len(back.Frozen.Kept) != 1 || back.Frozen.Kept[0] != "old" {
		t.Errorf("the capture that was named is lost: %+v", back.Frozen)
	}
}

func noErr[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
