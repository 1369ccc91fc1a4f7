package ledger

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
)

// linearInput is one event that a process applied.
type linearInput struct{ Op, Nonce string }

// linearCall is one Apply as its process saw it.
type linearCall struct {
	Input          linearInput
	Output         string // applied, held, stale, killed
	Called, Return int64
}

type linearArg struct {
	Dir, ID string
	Seed    uint64
	Calls   int
}

var linearChild = inChild("linear", func(arg linearArg) error {
	s, err := Open(arg.Dir, &Options{LockWait: patience})
	if err != nil {
		return err
	}
	defer s.Close()
	me, err := Self()
	if err != nil {
		return err
	}
	rnd := rand.New(rand.NewPCG(arg.Seed, 1))
	out := json.NewEncoder(os.Stdout)
	nonce := ""
	for range arg.Calls {
		ev := []Event{BeginShellFreeze(me), AbortFreeze(nonce), AbortFreeze(nonce), IntendKill(), WithdrawKill()}[rnd.IntN(5)]
		if ev.Kind == EventAbortFreeze && nonce == "" {
			ev = BeginShellFreeze(me)
		}
		call := linearCall{Input: linearInput{ev.Kind.String(), ev.Nonce}, Called: time.Now().UnixNano()}
		_, outcome, err := s.Apply(context.Background(), arg.ID, ev)
		call.Return = time.Now().UnixNano()
		switch {
		case err == nil:
			call.Output = outcome.String()
			if ev.Kind == EventBeginFreeze {
				nonce = ev.Nonce
			}
		case errors.Is(err, ErrStaleNonce):
			call.Output = "stale"
		case errors.Is(err, ErrLeaseHeld):
			call.Output = "held"
		case errors.Is(err, ErrKillIntended):
			call.Output = "killed"
		default:
			return err
		}
		if err := out.Encode(call); err != nil {
			return err
		}
	}
	return nil
})

// linearState is the whole row as far as these events move it.
type linearState struct {
	nonce  string
	killed bool
}

var linearModel = porcupine.Model{
	Init: func() any { return linearState{} },
	Step: func(state, input, output any) (bool, any) {
		st, in := state.(linearState), input.(linearInput)
		next, want := st, "applied"
		switch in.Op {
		case "BeginFreeze":
			switch {
			case st.nonce != "":
				want = "held"
			case st.killed:
				want = "killed"
			default:
				next.nonce = in.Nonce
			}
		case "AbortFreeze":
			if st.nonce != in.Nonce {
				want = "stale"
			} else {
				next.nonce = ""
			}
		case "IntendKill":
			next.killed = true
		case "WithdrawKill":
			if st.nonce != "" {
				want = "held"
			} else {
				next.killed = false
			}
		}
		return output.(string) == want, next
	},
}

// TestApplyIsLinearizable applies events to one row from several processes, and looks for
// an order in which one after the other would have given the same outcomes.
func TestApplyIsLinearizable(t *testing.T) {
	procs, calls := 4, 12
	if *storeFull {
		procs, calls = 8, 60
	}
	s := newStore(t, nil)
	e, _ := enrolled(t, s, Entry{})
	var kids []*runningChild
	for i := range procs {
		kids = append(kids, startChild(t, linearChild, linearArg{s.root, e.LedgerID, uint64(i), calls}))
	}
	var history []porcupine.Operation
	for i, c := range kids {
		for lines := bufio.NewScanner(strings.NewReader(c.wait(t))); lines.Scan(); {
			var call linearCall
			if err := json.Unmarshal(lines.Bytes(), &call); err != nil {
				t.Fatal(err)
			}
			history = append(history, porcupine.Operation{
				ClientId: i, Input: call.Input, Output: call.Output, Call: call.Called, Return: call.Return,
			})
		}
	}
	if len(history) != procs*calls {
		t.Fatalf("%d calls", len(history))
	}
	if got := porcupine.CheckOperationsTimeout(linearModel, history, patience); got != porcupine.Ok {
		t.Errorf("%s:\n%s", got, fmt.Sprint(history))
	}
}
