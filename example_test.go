package ledger_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"time"

	"github.com/sessionledger/ledger"
)

// exampleStore is a ledger in a folder of its own; a program gives Open "" for the user's.
func exampleStore() (store *ledger.Store, done func()) {
	dir, err := os.MkdirTemp("", "ledger-example-")
	if err != nil {
		log.Fatal(err)
	}
	store, err = ledger.Open(filepath.Join(dir, "ledger"), nil)
	if err != nil {
		log.Fatal(err)
	}
	return store, func() {
		store.Close()
		os.RemoveAll(dir)
	}
}

// enrol records the process of the example itself, as if it were a session.
func enrol(ctx context.Context, store *ledger.Store, id string) ledger.Entry {
	self, err := ledger.Self()
	if err != nil {
		log.Fatal(err)
	}
	e, err := store.Create(ctx, ledger.Entry{LedgerID: id, Runtime: "claude"}, ledger.Enrol(self, ledger.Location{}))
	if err != nil {
		log.Fatal(err)
	}
	return e
}

func ExampleOpen() {
	dir, err := os.MkdirTemp("", "ledger-example-")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)

	store, err := ledger.Open(filepath.Join(dir, "ledger"), nil) // "" is the user's own
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()

	// A folder that others control is refused.
	link := filepath.Join(dir, "link")
	if err := os.Symlink(store.Dir(), link); err != nil {
		log.Fatal(err)
	}
	_, err = ledger.Open(link, nil)
	fmt.Println(errors.Is(err, ledger.ErrInsecureRoot))
	// Output: true
}

func ExampleStore_Create() {
	ctx := context.Background()
	store, done := exampleStore()
	defer done()

	self, err := ledger.Self() // stands for the agent's process here
	if err != nil {
		log.Fatal(err)
	}
	e, err := store.Create(ctx, ledger.Entry{Runtime: "claude", SessionID: "9f1c", Cwd: "/src/app"},
		ledger.Enrol(self, ledger.Location{Window: "app"}))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(e.Phase, e.SessionID, e.Window, e.Slot)

	// A process has one row, whoever enrols it.
	again, err := store.Create(ctx, ledger.Entry{Runtime: "claude"}, ledger.Enrol(self, ledger.Location{}))
	fmt.Println(errors.Is(err, ledger.ErrExists), again.LedgerID == e.LedgerID)
	// Output:
	// live 9f1c app 0
	// true true
}

func ExampleStore_Update() {
	ctx := context.Background()
	store, done := exampleStore()
	defer done()
	before := enrol(ctx, store, "claude-1")

	after, err := store.Update(ctx, "claude-1", func(e *ledger.Entry) error {
		e.TaskID = "T-17"
		return nil
	}, ledger.IfRevision(before.Revision))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(after.TaskID, after.Revision-before.Revision)

	// What only events may move is refused by name.
	_, err = store.Update(ctx, "claude-1", func(e *ledger.Entry) error {
		e.Phase = ledger.PhaseFinished
		return nil
	})
	var protected *ledger.ProtectedFieldError
	fmt.Println(errors.As(err, &protected), protected.Field)
	// Output:
	// T-17 1
	// true phase
}

func ExampleStore_Entries() {
	ctx := context.Background()
	store, done := exampleStore()
	defer done()
	enrol(ctx, store, "claude-1")
	torn := filepath.Join(store.Dir(), "sessions", "claude-0.json")
	if err := os.WriteFile(torn, []byte(`{"schemaVersion":1,`), 0o600); err != nil {
		log.Fatal(err)
	}

	for e, err := range store.Entries(ctx) {
		var damaged *ledger.DamagedError
		if errors.As(err, &damaged) {
			fmt.Println("damaged:", damaged.ID) // the others are listed all the same
			continue
		}
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(e.LedgerID, e.Phase)
	}
	// Output:
	// damaged: claude-0
	// claude-1 live
}

func ExampleStore_Find() {
	ctx := context.Background()
	store, done := exampleStore()
	defer done()
	enrol(ctx, store, "claude-1")

	// A hook, started below the agent, finds its row by its own ancestors.
	e, err := store.Find(ctx, ledger.Query{Ancestor: os.Getpid()})
	fmt.Println(e.LedgerID, err)

	_, err = store.Find(ctx, ledger.Query{Conversation: ledger.Conversation{Runtime: "claude", ID: "9f1c"}})
	fmt.Println(errors.Is(err, ledger.ErrNotFound))
	// Output:
	// claude-1 <nil>
	// true
}

func ExampleStore_Apply() {
	ctx := context.Background()
	store, done := exampleStore()
	defer done()
	e := enrol(ctx, store, "claude-1")

	// What was decided from an observation is scoped to it: on a row that has moved on it
	// is dropped.
	observed := ledger.ClearLimit().AtEpoch(e.Epoch + 1)
	_, outcome, err := store.Apply(ctx, e.LedgerID, observed)
	fmt.Println(outcome, err)

	e, outcome, err = store.Apply(ctx, e.LedgerID, ledger.Finish(e.Process().Key(), "exit"))
	fmt.Println(outcome, err, e.Phase, e.FinishReason)
	// Output:
	// dropped <nil>
	// applied <nil> finished exit
}

func ExampleStore_Repair() {
	ctx := context.Background()
	store, done := exampleStore()
	defer done()
	torn := filepath.Join(store.Dir(), "sessions", "claude-1.json")
	if err := os.MkdirAll(filepath.Dir(torn), 0o700); err != nil {
		log.Fatal(err)
	}
	if err := os.WriteFile(torn, nil, 0o600); err != nil {
		log.Fatal(err)
	}

	_, err := store.Get(ctx, "claude-1")
	fmt.Println(errors.Is(err, ledger.ErrDamaged))

	// Nothing but this moves a damaged row, and it goes to damaged/, not away.
	if err := store.Repair(ctx, "claude-1"); err != nil {
		log.Fatal(err)
	}
	fmt.Println(enrol(ctx, store, "claude-1").Phase)
	// Output:
	// true
	// live
}

func ExampleTransition() {
	coordinator := ledger.ProcessID{BootID: "b", PID: 7, StartTicks: 70}
	agent := ledger.ProcessID{BootID: "b", PID: 42, StartTicks: 4200}
	live := ledger.State{Phase: ledger.PhaseLive, Process: agent}

	// What is not known refuses; it never counts as no.
	begin := ledger.BeginFreeze(coordinator)
	_, outcome, err := ledger.Transition(live, begin)
	fmt.Println(outcome, errors.Is(err, ledger.ErrUnknown))

	begin.Facts.Recorded = ledger.Running
	freezing, outcome, err := ledger.Transition(live, begin)
	fmt.Println(outcome, err, freezing.Phase, freezing.Op)

	// Who does not hold the lease can neither end the operation nor begin another.
	_, _, err = ledger.Transition(freezing, ledger.AbortFreeze("somebody else's"))
	fmt.Println(errors.Is(err, ledger.ErrStaleNonce))
	_, _, err = ledger.Transition(freezing, ledger.BeginHandoff(coordinator, "codex"))
	fmt.Println(errors.Is(err, ledger.ErrLeaseHeld))
	// Output:
	// refused true
	// applied <nil> live freeze
	// true
	// true
}

func ExampleJudge() {
	here := ledger.ProcessID{HostID: "m", BootID: "b"}
	agent := ledger.ProcessID{HostID: "m", BootID: "b", PID: 42, StartTicks: 4200}

	fmt.Println("not looked:", ledger.Judge(agent, ledger.Sighting{Here: here}))
	fmt.Println("no such pid:", ledger.Judge(agent, ledger.Sighting{Here: here, Read: true}))
	fmt.Println("pid re-used:", ledger.Judge(agent, ledger.Sighting{Here: here, Found: true, Readable: true, StartTicks: 9900}))
	fmt.Println("the same:", ledger.Judge(agent, ledger.Sighting{Here: here, Found: true, Readable: true, StartTicks: 4200}))
	here.BootID = "c"
	fmt.Println("rebooted:", ledger.Judge(agent, ledger.Sighting{Here: here}))
	// Output:
	// not looked: unknown
	// no such pid: gone
	// pid re-used: gone
	// the same: running
	// rebooted: gone
}

func ExampleClassify() {
	now := time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)
	e := ledger.Entry{Runtime: "claude", Phase: ledger.PhaseLive, SessionID: "9f1c", PID: 42}

	// A session that burns processor time at its prompt is idle: its transcript decides.
	ev := ledger.Evidence{Process: ledger.Running, HasTranscripts: true, CPUSampled: true, CPUGrewAt: now,
		Transcript: &ledger.TranscriptEvidence{ModTime: now.Add(-time.Hour), Title: "mend the tests"}}
	st := ledger.Classify(e, ev, now)
	fmt.Println(st.State, st.Title)

	ev.Process = ledger.Gone
	fmt.Println(ledger.Classify(e, ev, now).State)

	fmt.Println(ledger.Classify(e, ledger.Evidence{}, now).State) // nothing was found out
	// Output:
	// ALIVE-IDLE mend the tests
	// ORPHANED
	// UNKNOWN
}

func ExamplePlan() {
	now := time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)
	e := ledger.Entry{Phase: ledger.PhaseLive, PID: 42, KillIntentAt: now.Add(-time.Hour)}

	fmt.Println(ledger.Plan(e, ledger.Observation{}, now).Unclear)

	// Once the processes are provably gone the kill can be finished, and keeps the work.
	a := ledger.Plan(e, ledger.Observation{Session: ledger.Gone}, now)
	fmt.Println(a.Begin, a.Rescue, a.Event)
	// Output:
	// it is meant to be killed: whether a process of it runs is not known
	// BeginKill true CommitKill
}

func ExampleSession_Actions() {
	s := ledger.Session{Entry: ledger.Entry{Phase: ledger.PhaseFrozen}}
	s.Status = ledger.Classify(s.Entry, ledger.Evidence{Process: ledger.Gone}, time.Now())
	for _, a := range s.Actions() {
		fmt.Printf("%s: %t %s.\n", a.Action, a.Open, a.Reason)
	}
	// Output:
	// freeze: false the session is frozen.
	// restore: false no conversation is recorded to resume.
	// resume: false the session is frozen.
	// handoff: false the session is frozen.
	// kill: true .
	// drop: true .
}
