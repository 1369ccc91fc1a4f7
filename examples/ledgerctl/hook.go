package main

import (
	"context"
	"flag"
	"io"
	"os"
	"strings"
	"time"

	"github.com/sessionledger/ledger"
)

// hookBudget is how long the hook waits for a payload that is not there yet. What it waits
// for beside that is bounded in HandleHook; a file system that hangs is bounded by the time
// limit in the agent's settings.
const hookBudget = time.Second

// hook never fails and never speaks: an agent would show what it says, or stop. What could
// not be recorded is found by the next sweep.
func hook(ctx context.Context, a *app, flags *flag.FlagSet) func([]string) error {
	return func(args []string) error {
		in := &prompt{Reader: a.stdin}
		defer in.stop()
		payload := io.Reader(in)
		switch len(args) {
		case 1:
		case 2: // codex's notify gives it as the last argument
			payload = strings.NewReader(args[1])
			in.limit() // codex does not wait for it, and gives it no time limit
		default:
			return nil
		}
		s, err := a.open()
		if err != nil {
			return nil
		}
		defer s.Close()
		_, _ = ledger.HandleHook(ctx, s, args[0], payload, ledger.HookOptions{})
		return nil
	}
}

// prompt is an agent's standard input: mostly written and closed before the hook looks.
// Where it is not, the hook does not wait longer than its budget. The timer is not made
// before that: a process's first one costs a hook a fortieth of its time.
type prompt struct {
	io.Reader
	late *time.Timer
}

func (p *prompt) Read(b []byte) (int, error) {
	if p.late == nil && !readable(p.Reader) {
		p.limit()
	}
	return p.Reader.Read(b)
}

func (p *prompt) limit() { p.late = time.AfterFunc(hookBudget, func() { os.Exit(exitDone) }) }

func (p *prompt) stop() {
	if p.late != nil {
		p.late.Stop()
	}
}
