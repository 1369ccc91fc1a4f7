package ledger

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"golang.org/x/sys/unix"
)

type hammerArg struct {
	Dir, Writer string
	IDs         []string
	Times       int
}

// childHammer waits for the end of its input, and then updates its rows.
var childHammer = inChild("hammer", func(arg hammerArg) error {
	s, err := Open(arg.Dir, nil)
	if err != nil {
		return err
	}
	if _, err := io.Copy(io.Discard, os.Stdin); err != nil {
		return err
	}
	for i := range arg.Times {
		for _, id := range arg.IDs {
			if _, err := s.Update(context.Background(), id, func(e *Entry) error {
				e.AgentString += fmt.Sprintf("%s.%d ", arg.Writer, i)
				return nil
			}); err != nil {
				return fmt.Errorf("writer %s, update %d: %w", arg.Writer, i, err)
			}
		}
	}
	return nil
})

// startTogether starts children that begin their work at the same time.
func startTogether(t *testing.T, name string, args []any) []*runningChild {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	var all []*runningChild
	for _, arg := range args {
		c := &runningChild{Cmd: childCommand(t, name, arg)}
		c.Stdin, c.Stdout, c.Stderr = r, &c.out, &c.errs
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if c.ProcessState == nil {
				c.Process.Kill()
				c.Wait()
			}
		})
		all = append(all, c)
	}
	return all
}

// Cases 9 and 10: many processes update one row, and rows of their own; nothing is lost, the
// revisions are dense, and a reader sees whole rows and rising revisions alone.
func TestManyWriters(t *testing.T) {
	t.Parallel()
	writers, times := 12, 10
	if *storeFull {
		writers, times = 64, 50
	}
	for _, kind := range []string{"one row", "a row each"} {
		t.Run(kind, func(t *testing.T) {
			s := newStore(t, nil)
			updates := map[string]int{} // by row
			var args []any
			for w := range writers {
				id := "row"
				if kind == "a row each" {
					id = fmt.Sprint("row", w)
				}
				if updates[id] == 0 {
					born(t, s, id)
				}
				updates[id] += times
				args = append(args, hammerArg{Dir: s.root, Writer: fmt.Sprint(w), IDs: []string{id}, Times: times})
			}
			children := startTogether(t, childHammer, args)
			stop, stopped := make(chan struct{}), make(chan struct{})
			go func() {
				defer close(stopped)
				readWhile(t, stop, openStore(t, s.root, nil), len(updates))
			}()
			for _, c := range children {
				c.wait(t)
			}
			close(stop)
			<-stopped
			for id, n := range updates {
				e, err := s.Get(t.Context(), id)
				if err != nil || e.Revision != uint64(1+n) {
					t.Errorf("%s is at revision %d after %d updates, %v", id, e.Revision, n, err)
				}
				seen := map[string]int{}
				for _, mark := range strings.Fields(e.AgentString) {
					seen[mark]++
				}
				for mark, n := range seen {
					if n != 1 {
						t.Errorf("update %s is there %d times", mark, n)
					}
				}
				if len(seen) != n {
					t.Errorf("%s has %d of %d updates", id, len(seen), n)
				}
			}
		})
	}
}

// readWhile reads all rows again and again, by each way of reading.
func readWhile(t *testing.T, stop <-chan struct{}, s *Store, rows int) {
	newest := map[string]uint64{}
	check := func(how string, e Entry, err error) {
		n := uint64(len(strings.Fields(e.AgentString)))
		switch {
		case err != nil:
			t.Errorf("%s: %v", how, err)
		case e.Revision != n+1:
			t.Errorf("%s: revision %d has %d updates", how, e.Revision, n)
		case e.Revision < newest[e.LedgerID]:
			t.Errorf("%s: revision %d after %d", how, e.Revision, newest[e.LedgerID])
		}
		newest[e.LedgerID] = e.Revision
	}
	for passes := 0; ; passes++ {
		select {
		case <-stop:
			if passes < 3 {
				t.Errorf("only %d passes", passes)
			}
			return
		default:
		}
		seen := 0
		for e, err := range s.Entries(context.Background()) {
			check("Entries", e, err)
			seen++
		}
		if seen != rows {
			t.Errorf("%d of %d rows are listed", seen, rows)
		}
		for id := range newest {
			e, err := s.Get(context.Background(), id)
			check("Get", e, err)
		}
	}
}

// --- linearizability -----------------------------------------------------------------

type linInput struct {
	Kind string // "create", "add", "add if", "get"
	Row  string
	Rev  uint64 // of "add if"
}

type linOutput struct {
	Value int
	Rev   uint64
	Err   string // "", "exists", "not found", "conflict", or another
}

type linOp struct {
	Input     linInput
	Output    linOutput
	Call, End int64
}

type linArg struct {
	Dir  string
	Seed uint64
	Ops  int
	Rows []string
}

// monotonic is the same clock in all processes.
func monotonic() int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic(err)
	}
	return ts.Nano()
}

var childClient = inChild("client", func(arg linArg) error {
	s, err := Open(arg.Dir, nil)
	if err != nil {
		return err
	}
	owner, err := Self()
	if err != nil {
		return err
	}
	if _, err := io.Copy(io.Discard, os.Stdin); err != nil {
		return err
	}
	out := bufio.NewWriter(os.Stdout)
	defer out.Flush()
	enc := json.NewEncoder(out)
	rnd := rand.New(rand.NewPCG(arg.Seed, 1))
	known := map[string]uint64{}
	for range arg.Ops {
		op := linOp{Input: linInput{Row: arg.Rows[rnd.IntN(len(arg.Rows))]}}
		ctx, in := context.Background(), &op.Input
		add := func(e *Entry) error {
			n, _ := strconv.Atoi(e.Operation)
			e.Operation = strconv.Itoa(n + 1)
			return nil
		}
		var e Entry
		var err error
		kind := rnd.IntN(10)
		op.Call = monotonic()
		switch {
		case kind < 1:
			in.Kind = "create"
			e, err = s.Create(ctx, Entry{LedgerID: in.Row, Runtime: "claude"}, BeginCreate(owner))
		case kind < 4:
			in.Kind = "add"
			e, err = s.Update(ctx, in.Row, add)
		case kind < 7:
			in.Kind, in.Rev = "add if", known[in.Row]
			e, err = s.Update(ctx, in.Row, add, IfRevision(in.Rev))
		default:
			in.Kind = "get"
			e, err = s.Get(ctx, in.Row)
		}
		op.End = monotonic()
		o := &op.Output
		switch {
		case err == nil:
			o.Rev = e.Revision
			o.Value, _ = strconv.Atoi(e.Operation)
			known[in.Row] = e.Revision
		case errors.Is(err, ErrExists):
			o.Err = "exists"
		case errors.Is(err, ErrNotFound):
			o.Err = "not found"
		case errors.Is(err, ErrConflict):
			o.Err = "conflict"
		default:
			o.Err = err.Error()
		}
		if err := enc.Encode(op); err != nil {
			return err
		}
	}
	return nil
})

// rowModel is one row as a value: 0 is "no row".
type rowModel struct {
	rev   uint64
	value int
}

var ledgerModel = porcupine.Model{
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		rows := map[string][]porcupine.Operation{}
		for _, op := range history {
			row := op.Input.(linInput).Row
			rows[row] = append(rows[row], op)
		}
		var parts [][]porcupine.Operation
		for _, part := range rows {
			parts = append(parts, part)
		}
		return parts
	},
	Init: func() any { return rowModel{} },
	Step: func(state, input, output any) (bool, any) {
		s, in, out := state.(rowModel), input.(linInput), output.(linOutput)
		next, want := s, linOutput{}
		switch {
		case in.Kind == "create" && s.rev > 0:
			want.Err = "exists"
		case in.Kind == "create":
			next.rev = 1
		case s.rev == 0:
			want.Err = "not found"
		case in.Kind == "add if" && in.Rev != s.rev:
			want.Err = "conflict"
		case in.Kind != "get":
			next = rowModel{s.rev + 1, s.value + 1}
		}
		if want.Err == "" {
			want.Rev, want.Value = next.rev, next.value
		}
		return out == want, next
	},
	DescribeOperation: func(input, output any) string { return fmt.Sprintf("%+v: %+v", input, output) },
}

// What real processes do to a few rows is linearizable: Create is exclusive, Update is atomic
// and compares revisions, and Get is never behind.
func TestLinearizableAcrossProcesses(t *testing.T) {
	t.Parallel()
	clients, ops := 6, 30
	if *storeFull {
		clients, ops = 16, 300
	}
	s := newStore(t, nil)
	var args []any
	for range clients {
		args = append(args, linArg{Dir: s.root, Seed: rand.Uint64(), Ops: ops, Rows: []string{"a", "b", "c"}})
	}
	var history []porcupine.Operation
	kinds := map[string]int{}
	for c, child := range startTogether(t, childClient, args) {
		for line := range strings.Lines(child.wait(t)) {
			var op linOp
			if err := json.Unmarshal([]byte(line), &op); err != nil {
				t.Fatal(err)
			}
			history = append(history, porcupine.Operation{ClientId: c, Input: op.Input, Call: op.Call, Output: op.Output, Return: op.End})
			kinds[op.Input.Kind+" "+op.Output.Err]++
		}
	}
	if len(history) != clients*ops {
		t.Fatalf("%d of %d operations", len(history), clients*ops)
	}
	t.Logf("operations: %v", kinds)
	for _, kind := range []string{"add if ", "add if conflict", "add ", "get "} {
		if kinds[kind] == 0 {
			t.Errorf("never met: %q", kind)
		}
	}
	if got := porcupine.CheckOperationsTimeout(ledgerModel, history, patience); got != porcupine.Ok {
		t.Errorf("the history is not linearizable (%s, seeds %v)", got, args)
	}
}

// The model itself refuses a lost update, so that the test above can fail.
func TestLinearizabilityModelRefusesALostUpdate(t *testing.T) {
	op := func(kind string, rev uint64, value int, call int64) porcupine.Operation {
		return porcupine.Operation{Input: linInput{Kind: kind, Row: "a"}, Output: linOutput{Rev: rev, Value: value}, Call: call, Return: call + 1}
	}
	if porcupine.CheckOperations(ledgerModel, []porcupine.Operation{op("create", 1, 0, 1), op("add", 2, 1, 3), op("add", 2, 1, 5)}) {
		t.Error("a lost update passes")
	}
	if porcupine.CheckOperations(ledgerModel, []porcupine.Operation{op("create", 1, 0, 1), op("add", 2, 1, 3), op("get", 1, 0, 5)}) {
		t.Error("a stale read passes")
	}
}

// --- a stopped holder ---------------------------------------------------------------

type holdArg struct{ Dir, ID string }

// childHold takes locks, says so, and holds them until its input ends.
var childHold = inChild("hold", func(arg holdArg) error {
	s, err := Open(arg.Dir, nil)
	if err != nil {
		return err
	}
	unlock, err := s.lockRow(context.Background(), arg.ID)
	if err != nil {
		return err
	}
	defer unlock()
	fmt.Println("held")
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
})

// sameStripe returns n ids of the row's stripe.
func sameStripe(id string, n int) (ids []string) {
	for i := 0; len(ids) < n; i++ {
		if other := fmt.Sprint("r", i); stripe(other) == stripe(id) && other != id {
			ids = append(ids, other)
		}
	}
	return ids
}

// Case 13: a stopped holder makes its stripe unavailable, not the ledger. Others time out
// with its pid; readers never wait; a pass waits once and names the rows.
func TestStoppedLockHolder(t *testing.T) {
	t.Parallel()
	clock := newClock()
	s := newStore(t, &Options{Clock: clock, LockWait: 200 * time.Millisecond})
	ctx := t.Context()
	born(t, s, "row")
	born(t, s, "other")
	mates := sameStripe("row", 6)
	for _, id := range mates {
		born(t, s, id)
		finished(t, s, id)
	}
	clock.advance(time.Hour)

	cmd := childCommand(t, childHold, holdArg{Dir: s.root, ID: "row"})
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer endProcess(cmd)
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "held\n" {
		t.Fatalf("the holder said %q, %v", line, err)
	}
	if err := cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	named := func(what string, err error) {
		t.Helper()
		var timeout *LockTimeoutError
		if !errors.As(err, &timeout) || !errors.Is(err, ErrBusy) || timeout.HolderPID != cmd.Process.Pid || timeout.Waited < 150*time.Millisecond ||
			!strings.Contains(err.Error(), fmt.Sprintf("process %d", cmd.Process.Pid)) {
			t.Errorf("%s: %v, want a timeout that names %d", what, err, cmd.Process.Pid)
		}
	}
	var group sync.WaitGroup
	for _, id := range append(mates, "row") {
		group.Go(func() {
			_, err := s.Update(ctx, id, touch)
			named("update of "+id, err)
		})
	}
	group.Go(func() {
		_, _, err := s.Apply(ctx, "row", IntendKill())
		named("event", err)
	})
	group.Wait()
	if _, err := s.Update(ctx, "other", touch); err != nil {
		t.Errorf("another stripe: %v", err)
	}
	if rows, damaged := listed(t, s); len(rows) != 8 || len(damaged) > 0 {
		t.Errorf("%d rows, %v", len(rows), damaged)
	}
	if _, err := s.Get(ctx, "row"); err != nil {
		t.Errorf("a reader: %v", err)
	}
	if _, err := s.Find(ctx, Query{Prefix: "ro"}); err != nil {
		t.Errorf("a look-up: %v", err)
	}
	start := time.Now()
	tidied, err := s.Tidy(ctx)
	if err != nil || len(tidied.Filed) != 0 || len(tidied.Warnings) != len(mates) {
		t.Errorf("tidy: %+v, %v", tidied, err)
	}
	for _, err := range tidied.Warnings {
		named("tidy", err)
	}
	var changes []change
	for _, id := range append(mates, "row", "other") {
		changes = append(changes, change{id, func(e *Entry) (verdict, error) { return unchanged, touch(e) }})
	}
	_, errs := s.batch(ctx, changes)
	for i, c := range changes {
		if c.id == "other" {
			if errs[i] != nil {
				t.Errorf("batch: another stripe: %v", errs[i])
			}
			continue
		}
		if !errors.Is(errs[i], ErrBusy) {
			t.Errorf("batch: %s: %v", c.id, errs[i])
		}
	}
	// One wait for each pass, whatever the number of rows.
	if waited := time.Since(start); waited > 10*time.Second {
		t.Errorf("two passes took %s", waited)
	}
	endProcess(cmd)
	if _, err := s.Update(ctx, "row", touch); err != nil {
		t.Errorf("once the holder is killed: %v", err)
	}
	if tidied, err := s.Tidy(ctx); err != nil || len(tidied.Filed) != len(mates) {
		t.Errorf("tidy: %+v, %v", tidied, err)
	}
}
