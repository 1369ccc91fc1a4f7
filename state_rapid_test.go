package ledger

import (
	"errors"
	"flag"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

var longSearch = flag.Bool("long", false, "run searches and random sequences at full length")

// Small domains, so that members meet each other often.
var (
	genProcess  = rapid.SampledFrom([]ProcessID{agentProc, secondProc, rivalProc})
	genMaybe    = rapid.SampledFrom([]ProcessID{{}, agentProc, secondProc})
	genID       = rapid.SampledFrom([]string{"conv-1", "conv-2", "conv-3"})
	genMaybeID  = rapid.SampledFrom([]string{"", "conv-1", "conv-2"})
	genNonce    = rapid.SampledFrom([]string{"nonce-1", "attempt-1", "nonce-2", ""})
	genVerdict  = rapid.SampledFrom([]Verdict{Unknown, Running, Gone})
	genAnswer   = rapid.SampledFrom([]Answer{Unsure, Yes, No})
	genReset    = rapid.SampledFrom([]time.Time{{}, midday, midday.Add(time.Hour)})
	genKind     = rapid.IntRange(int(EventNone)+1, int(eventCount)-1)
	genLocation = rapid.SampledFrom([]Location{
		{}, {PaneID: "%1", PaneServer: serverProc}, {Window: "w", Slot: 1}, {PaneID: "%2", PaneServer: ownerProc, Mux: Mux{Kind: MuxTmux, Socket: "/a", Target: "s"}},
		{Mux: Mux{Kind: MuxDtach, Socket: "/d"}}, {Mux: Mux{Kind: MuxTmux, Socket: "/b", Target: "t"}}, {PaneID: "%3"},
	})
)

// drawEntry draws a row as an honest writer could have left it.
func drawEntry(t *rapid.T) Entry {
	s := rapid.SampledFrom(validStates()).Draw(t, "state")
	e := Entry{SchemaVersion: 1, Phase: s.Phase, Epoch: 3, SessionID: genMaybeID.Draw(t, "session")}
	if s.Phase == PhaseNone {
		return Entry{SchemaVersion: 1, LedgerID: "a", Runtime: "claude"}
	}
	e.LedgerID, e.Runtime = "a", "claude"
	if s.Op != OpNone {
		e.Lease = &Lease{
			Op: s.Op, Attempt: "attempt-1", Nonce: rapid.SampledFrom([]string{"nonce-1", "attempt-1"}).Draw(t, "nonce"),
			Owner: ownerProc, AcquiredAt: midday, AcquiredBootSec: 1000, Released: rapid.Bool().Draw(t, "released"),
		}
	}
	if p := genMaybe.Draw(t, "process"); !p.IsZero() {
		e.PID, e.PIDStartTicks, e.HostID, e.BootID = p.PID, &p.StartTicks, p.HostID, p.BootID
		e.PIDNamespace, e.TimeNamespace = p.PIDNamespace, p.TimeNamespace
	}
	flip := func(name string) bool { return rapid.Bool().Draw(t, name) }
	if s.Phase == PhaseFinished {
		e.FinishedAt = midday
	}
	if flip("tombstone") {
		e.KillIntentAt = midday
	}
	if flip("rescued") {
		e.RescuedAt, e.RescueRef, e.RescuedPaths = midday, "refs/rescued/a", []string{"x"}
	}
	if flip("limited") {
		e.Limit = &Limit{ReachedAt: midday, ResetAt: genReset.Draw(t, "reset")}
	}
	if s.Phase == PhaseFrozen || s.Op == OpFreeze || flip("kept") {
		e.Frozen = &Frozen{Kept: rapid.SampledFrom([][]string{nil, {"old"}}).Draw(t, "kept attempts")}
		if s.Phase == PhaseFrozen || s.Op == OpFreeze {
			e.Frozen.Attempt, e.Frozen.Mode = "attempt-1", FreezePane
		} else if e.Frozen.Kept == nil {
			e.Frozen = nil
		}
	}
	if s.Op == OpRestore || s.Op == OpAbort || flip("restored") {
		e.Restore = &Restore{
			Attempt: "attempt-1", Mode: rapid.SampledFrom([]RestoreMode{RestoreResume, RestoreRepick}).Draw(t, "mode"),
			Launched: genMaybe.Draw(t, "launched"),
		}
		if flip("failed") {
			e.Restore.Error = &RestoreError{Attempt: "attempt-1", Reason: "x"}
		}
	}
	if s.Op == OpHandoff {
		e.HandoffTarget = "codex"
	}
	if flip("noted") {
		e.EndNoted = &EndNoted{At: midday, ProcessKey: agentProc.Key(), Reason: "x"}
	}
	if flip("former") {
		e.SessionIDs = []FormerID{{ID: "conv-3", From: "hook", Since: midday}}
	}
	return e
}

func drawFacts(t *rapid.T) Facts {
	v := func(name string) Verdict { return genVerdict.Draw(t, name) }
	a := func(name string) Answer { return genAnswer.Draw(t, name) }
	return Facts{
		Recorded: v("recorded"), Subject: v("subject"), Launched: v("launched alive"), Session: v("session alive"), Carriers: v("carriers"),
		Lease:      LeaseSighting{Owner: v("owner"), Here: rapid.SampledFrom([]ProcessID{{}, hostA}).Draw(t, "here"), BootSec: rapid.SampledFrom([]int64{0, 1010, 5000}).Draw(t, "boot clock")},
		CarriesRow: a("carries row"), CarriesAttempt: a("carries attempt"), Outermost: a("outermost"), Claimed: a("claimed"),
		Capture: a("capture"), Transcript: a("transcript"), HasTranscript: a("has transcript"), Held: a("held"), HeldBy: "b",
		ChangesID: rapid.Bool().Draw(t, "changes id"),
	}
}

// drawEvent draws an event that fits the row more often than chance would have it.
func drawEvent(t *rapid.T, s State) Event {
	kind := EventKind(genKind.Draw(t, "event"))
	if rapid.Bool().Draw(t, "fitting") {
		var fit []EventKind
		for k := EventNone + 1; k < eventCount; k++ {
			if lookUpMove(k, s.Phase, s.Op) != nil {
				fit = append(fit, k)
			}
		}
		kind = rapid.SampledFrom(fit).Draw(t, "fitting event")
	}
	_, ev := goodEvent(kind, s)
	if !kind.mints() {
		ev.Nonce = rapid.SampledFrom([]string{s.Nonce, genNonce.Draw(t, "other nonce")}).Draw(t, "event nonce")
	}
	ev.Attempt = rapid.SampledFrom([]string{s.Attempt, "attempt-2"}).Draw(t, "event attempt")
	if !ev.Process.IsZero() {
		ev.Process = genProcess.Draw(t, "event process")
	}
	ev.Location = genLocation.Draw(t, "location")
	if kind == EventClaim || kind == EventAcknowledge || kind == EventCommitHandoff || kind == EventAdopt {
		ev.SessionID = rapid.OneOf(genID, genMaybeID).Draw(t, "event session")
		ev.TranscriptPath = rapid.SampledFrom([]string{"", "/t"}).Draw(t, "path")
	}
	if kind == EventClaim && rapid.IntRange(0, 3).Draw(t, "cede") == 0 {
		ev.Target = "b"
	}
	ev.Reason = rapid.SampledFrom([]string{"", "r"}).Draw(t, "reason")
	ev.ResetAt = genReset.Draw(t, "event reset")
	ev.Facts = drawFacts(t)
	if rapid.IntRange(0, 4).Draw(t, "scoped") == 0 {
		ev = ev.AtEpoch(rapid.SampledFrom([]uint64{s.Epoch, s.Epoch + 1}).Draw(t, "epoch"))
	}
	return ev
}

// TestAdvanceFollowsTransition: the row moves as the state does, is touched only where
// it is said to be, stays a row that can be stored, and keeps its history.
func TestAdvanceFollowsTransition(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		e := drawEntry(t)
		was := e.clone()
		ev := drawEvent(t, e.State())
		next, out, err := Transition(e.State(), ev)
		gotOut, write, gotErr := advance(&e, ev)
		if out != gotOut || (err == nil) != (gotErr == nil) || err != nil && err.Error() != gotErr.Error() {
			t.Fatalf("transition: %s, %v; advance: %s, %v", out, err, gotOut, gotErr)
		}
		if diff := cmp.Diff(next, e.State(), cmp.AllowUnexported(ProcessID{})); diff != "" {
			t.Fatalf("%s: the row is not in the state that the transition gives (-want +got):\n%s", ev.Kind, diff)
		}
		if !write && !reflect.DeepEqual(was, e) {
			t.Fatalf("%s, %s: the row was touched, and need not be written", ev.Kind, out)
		}
		recorded := errors.Is(err, ErrSessionMismatch) || errors.Is(err, ErrConversationHeld) && ev.Kind == EventClaim
		if write && out != Applied && !recorded && !(out == Yielded && ev.Kind == EventFinish) {
			t.Fatalf("%s, %s, %v: nothing is to be written", ev.Kind, out, err)
		}
		moved := was.State().Phase != next.Phase || was.State().Op != next.Op
		if moved != (!e.StateAt.Equal(was.StateAt)) && next.Phase != PhaseNone {
			t.Fatalf("%s: moved %v, stateAt %v after %v", ev.Kind, moved, e.StateAt, was.StateAt)
		}
		if want := next.Epoch; e.Epoch != want || e.Epoch < was.Epoch {
			t.Fatalf("epoch %d after %d", e.Epoch, was.Epoch)
		}
		if e.Phase == PhaseNone {
			return
		}
		data, encErr := encodeEntry(&e)
		if encErr != nil {
			t.Fatal(encErr)
		}
		back, decErr := decodeEntry(data)
		if decErr != nil {
			t.Fatalf("%s wrote a row that is damaged: %v", ev.Kind, decErr)
		}
		if diff := cmp.Diff(e.State(), back.State(), cmp.AllowUnexported(ProcessID{})); diff != "" {
			t.Fatalf("stored and read again (-before +after):\n%s", diff)
		}
		if !was.StartedAt.Equal(e.StartedAt) || len(e.Handoffs) < len(was.Handoffs) {
			t.Fatal("history was changed")
		}
		if was.SessionID != "" && e.SessionID != was.SessionID &&
			!slices.ContainsFunc(e.SessionIDs, func(f FormerID) bool { return f.ID == was.SessionID }) {
			t.Fatalf("%s lost the conversation %s", ev.Kind, was.SessionID)
		}
	})
}

// TestMoreKnowledgeOverturnsNothing: a decision made with less evidence stands with more.
// So an event may be tried without any, and evidence gathered only where that is not
// enough.
func TestMoreKnowledgeOverturnsNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		e := drawEntry(t)
		ev := drawEvent(t, e.State())
		full := ev
		less := &ev.Facts
		v := reflect.ValueOf(less).Elem()
		for i := range v.NumField() {
			name := v.Type().Field(i).Name
			if name != "HeldBy" && name != "ChangesID" && rapid.Bool().Draw(t, "forget "+name) {
				v.Field(i).Set(reflect.Zero(v.Field(i).Type()))
			}
		}
		little, outLittle, errLittle := Transition(e.State(), ev)
		if errors.Is(errLittle, ErrUnknown) {
			return
		}
		much, outMuch, errMuch := Transition(e.State(), full)
		if outLittle != outMuch || little != much || (errLittle == nil) != (errMuch == nil) {
			t.Fatalf("%s: with less: %s, %v; with more: %s, %v", ev.Kind, outLittle, errLittle, outMuch, errMuch)
		}
		if ill := new(IllegalTransitionError); errors.As(errLittle, &ill) != errors.As(errMuch, &ill) {
			t.Fatalf("%s: with less: %v; with more: %v", ev.Kind, errLittle, errMuch)
		}
	})
}

// TestNeeds: facts that an event does not name change nothing.
func TestNeeds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		e := drawEntry(t)
		ev := drawEvent(t, e.State())
		needs := ev.needs()
		other := ev
		other.Facts = drawFacts(t)
		keep := func(f facts, set func(to, from *Facts)) {
			if needs&f != 0 {
				set(&other.Facts, &ev.Facts)
			}
		}
		keep(factRecorded, func(to, from *Facts) { to.Recorded = from.Recorded })
		keep(factSubject, func(to, from *Facts) { to.Subject = from.Subject })
		keep(factLaunched, func(to, from *Facts) { to.Launched = from.Launched })
		keep(factSession, func(to, from *Facts) { to.Session = from.Session })
		keep(factCarriers, func(to, from *Facts) { to.Carriers = from.Carriers })
		keep(factLease, func(to, from *Facts) { to.Lease = from.Lease })
		keep(factCarriesRow, func(to, from *Facts) { to.CarriesRow = from.CarriesRow })
		keep(factCarriesAttempt, func(to, from *Facts) { to.CarriesAttempt = from.CarriesAttempt })
		keep(factOutermost, func(to, from *Facts) { to.Outermost = from.Outermost })
		keep(factClaimed, func(to, from *Facts) { to.Claimed = from.Claimed })
		keep(factCapture, func(to, from *Facts) { to.Capture = from.Capture })
		keep(factTranscript, func(to, from *Facts) { to.Transcript = from.Transcript })
		keep(factHasTranscript, func(to, from *Facts) { to.HasTranscript = from.HasTranscript })
		keep(factHeld, func(to, from *Facts) { to.Held = from.Held })
		keep(factChangesID, func(to, from *Facts) { to.ChangesID = from.ChangesID })
		a, outA, errA := Transition(e.State(), ev)
		b, outB, errB := Transition(e.State(), other)
		if a != b || outA != outB || (errA == nil) != (errB == nil) || errA != nil && errA.Error() != errB.Error() {
			t.Fatalf("%s needs %b, and was swayed by something else: %s, %v; %s, %v", ev.Kind, needs, outA, errA, outB, errB)
		}
	})
	if n := (Event{}).needs() | (Event{Kind: eventCount + 3}).needs(); n != 0 {
		t.Errorf("no event needs %b", n)
	}
}

// reference is a small model of one row, written without the table: what a reader of
// docs/state.md keeps in mind.
type reference struct {
	exists, over, cold bool // a row; finished; frozen
	op                 Op
	nonce, attempt     string
	gaveBack           bool
	tombstone          bool
	process            ProcessID
	epoch              uint64
	limit              bool
	kept               int // captures that are referred to
	capture            bool
	noted              string
	launched           ProcessID
}

// TestRandomSequencesAgainstModel drives a row and the model with the same random
// events. By default 2,000 sequences, with -long 100,000 (case 22).
func TestRandomSequencesAgainstModel(t *testing.T) {
	sequences := 2000
	if *longSearch {
		sequences = 100_000
	}
	// rapid's own number of checks is global; sequences are packed into each.
	const checks = 100
	applied := map[EventKind]int{}
	rapid.Check(t, func(t *rapid.T) {
		for range sequences / checks {
			driveModel(t, applied)
		}
	})
	for kind := EventNone + 1; kind < eventCount; kind++ {
		if applied[kind] == 0 {
			t.Errorf("no sequence applied %s", kind)
		}
	}
}

func driveModel(t *rapid.T, applied map[EventKind]int) {
	e := Entry{SchemaVersion: 1, LedgerID: "a", Runtime: "claude"}
	m := reference{}
	seed := rapid.Uint64().Draw(t, "seed")
	next := func(n int) int { // a generator of its own: a sequence is one draw
		seed += 0x9e3779b97f4a7c15
		z := seed
		z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
		z = (z ^ z>>27) * 0x94d049bb133111eb
		return int((z ^ z>>31) % uint64(n))
	}
	old := []string{"x"}
	for range 100 {
		s := e.State()
		kind := EventKind(next(int(eventCount)-1) + 1)
		for range 6 { // mostly one that fits
			if lookUpMove(kind, s.Phase, s.Op) != nil {
				break
			}
			kind = EventKind(next(int(eventCount)-1) + 1)
		}
		switch kind { // else most sequences are short
		case EventCommitDrop, EventFinish, EventIntendKill, EventBeginKill, EventBeginDrop, EventRemoveBirth:
			if next(8) > 0 {
				continue
			}
		case EventRelease, EventTakeOver, EventForceTakeOver:
			if next(3) > 0 {
				continue
			}
		}
		_, ev := goodEvent(kind, s)
		ev.Kind, ev.Facts.Lease.Owner, ev.Facts.Lease.BootSec = kind, []Verdict{Gone, Gone, Running}[next(3)], 6000
		ev.Facts.Recorded = []Verdict{Gone, Running, Unknown}[next(3)]
		ev.Facts.Capture = []Answer{Yes, Yes, No}[next(3)]
		ev.Facts.Session = []Verdict{Gone, Gone, Running}[next(3)]
		if kind == EventClaim || kind == EventAcknowledge {
			ev.SessionID = []string{"conv-1", "conv-1", "conv-2"}[next(3)]
		}
		if !kind.mints() && ev.Nonce != "" && next(4) == 0 {
			ev.Nonce = old[next(len(old))]
		}
		if kind != EventEnrol && !ev.Process.IsZero() && next(3) == 0 {
			ev.Process = testProcess(1000 + next(3))
		}
		if next(8) == 0 {
			ev = ev.AtEpoch(uint64(max(0, int(m.epoch)-next(2))))
		}
		out, _, err := advance(&e, ev)
		want, wantErr := m.step(&ev, s)
		if out != want || !errors.Is(err, wantErr) || wantErr == nil && err != nil {
			t.Fatalf("%s in %s: %s, %v; the model says %s, %v", kind, s.name(), out, err, want, wantErr)
		}
		m.check(t, e, ev.Kind)
		if out == Applied {
			applied[kind]++
		}
		if kind.mints() && out == Applied {
			old = append(old, ev.Nonce)
		}
		if !m.exists {
			e = Entry{SchemaVersion: 1, LedgerID: "a", Runtime: "claude"}
			m = reference{}
		}
	}
}

// check compares what both know, and what must hold of every row.
func (m *reference) check(t *rapid.T, e Entry, after EventKind) {
	s := e.State()
	phase := PhaseNone
	switch {
	case m.exists && m.over:
		phase = PhaseFinished
	case m.exists && m.cold:
		phase = PhaseFrozen
	case m.exists:
		phase = PhaseLive
	}
	captures := 0
	if e.Frozen != nil {
		captures = len(e.Frozen.Kept)
		if e.Frozen.Attempt != "" {
			captures++
		}
	}
	switch {
	case s.Phase != phase || s.Op != m.op:
		t.Fatalf("after %s: %s; the model is in %s/%s", after, s.name(), phase, m.op)
	case s.Nonce != m.nonce || s.Attempt != m.attempt:
		t.Fatalf("after %s: lease %q of %q; the model has %q of %q", after, s.Nonce, s.Attempt, m.nonce, m.attempt)
	case m.exists && s.Tombstoned != (m.tombstone && !m.over):
		t.Fatalf("after %s: tombstone %v", after, s.Tombstoned)
	case m.exists && s.Process != m.process:
		t.Fatalf("after %s: process %v; the model has %v", after, s.Process, m.process)
	case m.exists && s.Limited != m.limit:
		t.Fatalf("after %s: limit %v", after, s.Limited)
	case m.exists && s.Epoch != m.epoch:
		t.Fatalf("after %s: epoch %d; the model has %d", after, s.Epoch, m.epoch)
	case (e.Lease != nil) != (m.op != OpNone):
		t.Fatalf("after %s: op %q, lease %v", after, m.op, e.Lease)
	case m.exists && captures != m.kept+btoi(m.capture):
		t.Fatalf("after %s: %d captures; the model has %d and %v", after, captures, m.kept, m.capture)
	case m.exists && s.EndNoted != m.noted:
		t.Fatalf("after %s: end noted %q; the model has %q", after, s.EndNoted, m.noted)
	}
}

// step is what the specification says of one event, in the order of its checks.
func (m *reference) step(ev *Event, s State) (Outcome, error) {
	if ev.scoped && ev.epoch != m.epoch {
		return Dropped, nil
	}
	was := *m
	out, err := m.move(ev, s)
	if out != Applied && !(out == Yielded && ev.Kind == EventFinish) {
		*m = was
		return out, err
	}
	if m.op == OpNone {
		m.nonce, m.attempt, m.gaveBack = "", "", false
	}
	if m.exists != was.exists || m.over != was.over || m.cold != was.cold || m.op != was.op || m.limit != was.limit || m.process != was.process {
		m.epoch++
	}
	return out, nil
}

func (m *reference) move(ev *Event, s State) (Outcome, error) {
	live, idle := m.exists && !m.over && !m.cold, m.exists && m.op == OpNone
	frozen := m.exists && m.cold && !m.over
	open := live || frozen
	no := func(err error) (Outcome, error) { return Refused, err }
	// begin starts an operation that is legal in the phase.
	begin := func(op Op, phase bool) error {
		switch {
		case !phase:
			return ErrIllegal
		case m.op != OpNone:
			return ErrLeaseHeld
		case op == OpKill && !m.tombstone:
			return ErrIllegal
		case op != OpKill && op != OpDrop && m.tombstone && !m.over:
			return ErrKillIntended
		}
		return nil
	}
	started := func(op Op) (Outcome, error) {
		m.op, m.nonce, m.attempt, m.gaveBack = op, ev.Nonce, ev.Nonce, false
		return Applied, nil
	}
	holds := func(op Op) error {
		switch {
		case m.op != op:
			return ErrIllegal
		case ev.Nonce != m.nonce || m.gaveBack:
			return ErrStaleNonce
		}
		return nil
	}
	bind := func() {
		if m.process != ev.Process {
			m.process, m.noted = ev.Process, ""
		}
	}
	done := func(err error) (Outcome, error) {
		if err != nil {
			return no(err)
		}
		m.op = OpNone
		return Applied, nil
	}
	against := func(v, want Verdict) error {
		switch v {
		case want:
			return nil
		case Unknown:
			return ErrUnknown
		}
		return ErrIllegal
	}
	f := &ev.Facts
	switch ev.Kind {
	case EventEnrol, EventBeginCreate:
		if m.exists {
			return no(ErrIllegal)
		}
		m.exists = true
		if ev.Kind == EventEnrol {
			bind()
			return Applied, nil
		}
		return started(OpCreate)
	case EventBind:
		switch {
		case live && m.op == OpCreate:
			err := holds(OpCreate)
			if err == nil {
				bind()
				m.noted = ""
			}
			return done(err)
		case live && m.op != OpNone:
			return no(ErrLeaseHeld)
		case !live:
			return no(ErrIllegal)
		case ev.Process.Same(m.process):
			return Applied, nil
		case !m.process.IsZero() && f.Recorded != Gone:
			return no(against(f.Recorded, Gone))
		}
		bind()
		return Applied, nil
	case EventRemoveBirth:
		if err := holds(OpCreate); err != nil {
			return no(err)
		}
		if s.Ran {
			return no(ErrIllegal)
		}
		*m = reference{epoch: m.epoch}
		return Applied, nil
	case EventCreateUnknown:
		return done(holds(OpCreate))
	case EventBeginFreeze:
		if err := begin(OpFreeze, live); err != nil {
			return no(err)
		}
		if err := against(f.Recorded, Running); err != nil {
			return no(err)
		}
		m.capture = true
		return started(OpFreeze)
	case EventCommitFreeze:
		if err := holds(OpFreeze); err != nil {
			return no(err)
		}
		if err := against(f.Recorded, Gone); err != nil {
			return no(err)
		}
		if f.Capture != Yes {
			return no(ErrIllegal)
		}
		m.cold, m.noted = true, ""
		return done(nil)
	case EventAbortFreeze:
		if err := holds(OpFreeze); err != nil {
			return no(err)
		}
		switch {
		case f.Recorded == Gone && f.Capture == Yes:
			return no(ErrIllegal)
		case f.Recorded == Unknown && f.Capture != No:
			return no(ErrUnknown)
		}
		m.capture = false
		return done(nil)
	case EventBeginRestore:
		if err := begin(OpRestore, frozen); err != nil {
			return no(err)
		}
		if s.SessionID == "" {
			return no(ErrIllegal)
		}
		m.launched = ProcessID{}
		return started(OpRestore)
	case EventLaunched:
		if err := holds(OpRestore); err != nil {
			return no(err)
		}
		m.launched = ev.Process
		return Applied, nil
	case EventAcknowledge:
		switch {
		case m.op != OpRestore:
			return no(ErrIllegal)
		case ev.Attempt != m.attempt:
			return no(ErrStaleNonce)
		case !m.launched.IsZero() && ev.Process != m.launched:
			return no(ErrIllegal)
		case ev.SessionID != s.SessionID:
			return no(ErrSessionMismatch)
		}
		m.cold, m.capture, m.noted = false, false, ""
		bind()
		return done(nil)
	case EventConfirmRestore:
		if err := holds(OpRestore); err != nil {
			return no(err)
		}
		if ev.Process != m.launched || s.Restore.Failed {
			return no(ErrIllegal)
		}
		m.cold, m.noted = false, ""
		m.kept, m.capture = m.kept+btoi(m.capture), false
		bind()
		return done(nil)
	case EventFailRestore:
		if err := holds(OpRestore); err != nil {
			return no(err)
		}
		m.op = OpAbort
		return Applied, nil
	case EventStandInReady:
		err := holds(OpAbort)
		if err == nil {
			m.noted = ""
		}
		return done(err)
	case EventAdopt:
		switch {
		case !frozen:
			return no(ErrIllegal)
		case m.op != OpNone:
			return no(ErrLeaseHeld)
		case ev.SessionID != s.SessionID:
			return no(ErrIllegal)
		}
		m.cold, m.noted = false, ""
		m.kept, m.capture = m.kept+btoi(m.capture), false
		bind()
		return Applied, nil
	case EventBeginStandIn:
		if err := begin(OpStandIn, frozen); err != nil {
			return no(err)
		}
		return started(OpStandIn)
	case EventEndStandIn:
		return done(holds(OpStandIn))
	case EventBeginHandoff:
		if err := begin(OpHandoff, live); err != nil {
			return no(err)
		}
		if s.Runtime == ev.Target {
			return no(ErrIllegal)
		}
		return started(OpHandoff)
	case EventCommitHandoff, EventParkHandoff:
		if err := holds(OpHandoff); err != nil {
			return no(err)
		}
		if err := against(f.Recorded, Gone); err != nil {
			return no(err)
		}
		bind()
		m.limit, m.noted = ev.Kind == EventParkHandoff, ""
		return done(nil)
	case EventAbortHandoff:
		err := holds(OpHandoff)
		if err == nil {
			m.noted = ""
		}
		return done(err)
	case EventBeginRespawn:
		if err := begin(OpRespawn, live); err != nil {
			return no(err)
		}
		if err := against(f.Recorded, Gone); err != nil {
			return no(err)
		}
		return started(OpRespawn)
	case EventCommitRespawn:
		if err := holds(OpRespawn); err != nil {
			return no(err)
		}
		bind()
		m.limit, m.noted = false, ""
		return done(nil)
	case EventAbortRespawn:
		return done(holds(OpRespawn))
	case EventClaim:
		switch {
		case !m.exists:
			return no(ErrIllegal)
		case live && (m.op == OpNone || m.op == OpCreate):
			return Applied, nil
		}
		return Yielded, nil
	case EventObserveLimit, EventClearLimit:
		switch {
		case !m.exists:
			return no(ErrIllegal)
		case live && idle:
			m.limit = ev.Kind == EventObserveLimit
			return Applied, nil
		}
		return Yielded, nil
	case EventIntendKill, EventWithdrawKill:
		switch {
		case !open:
			return no(ErrIllegal)
		case ev.Kind == EventWithdrawKill && m.op != OpNone:
			return no(ErrLeaseHeld)
		}
		m.tombstone = ev.Kind == EventIntendKill
		return Applied, nil
	case EventBeginKill:
		if err := begin(OpKill, open); err != nil {
			return no(err)
		}
		return started(OpKill)
	case EventCommitKill:
		if err := holds(OpKill); err != nil {
			return no(err)
		}
		if err := against(f.Session, Gone); err != nil {
			return no(err)
		}
		m.over, m.noted = true, ""
		return done(nil)
	case EventAbortKill:
		err := holds(OpKill)
		if err == nil {
			m.noted = ""
		}
		return done(err)
	case EventFinish:
		switch {
		case !m.exists:
			return no(ErrIllegal)
		case live && (m.op == OpNone || m.op == OpCreate):
			m.over, m.noted = true, ""
			return done(nil)
		case open:
			m.noted = ev.ProcessKey
		}
		return Yielded, nil
	case EventBeginDrop:
		if err := begin(OpDrop, m.exists); err != nil {
			return no(err)
		}
		if err := against(f.Session, Gone); err != nil {
			return no(err)
		}
		return started(OpDrop)
	case EventCommitDrop:
		if err := holds(OpDrop); err != nil {
			return no(err)
		}
		if err := against(f.Session, Gone); err != nil {
			return no(err)
		}
		*m = reference{epoch: m.epoch}
		return Applied, nil
	case EventAbortDrop:
		return done(holds(OpDrop))
	case EventRelease, EventTakeOver, EventForceTakeOver:
		switch {
		case m.op == OpNone:
			return no(ErrIllegal)
		case ev.Kind == EventRelease && (ev.Nonce != m.nonce || m.gaveBack):
			return no(ErrStaleNonce)
		case ev.Kind == EventRelease:
			m.gaveBack = true
			return Applied, nil
		case ev.Kind == EventTakeOver && !m.gaveBack && f.Lease.Owner != Gone:
			return no(ErrLeaseHeld)
		}
		m.nonce, m.gaveBack = ev.Nonce, false
		return Applied, nil
	}
	return Unset, errors.New("the model does not know the event")
}
