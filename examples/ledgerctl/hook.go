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

// hookBudget is how long an agent may be kept waiting.
const hookBudget = time.Second

// hook never fails and never speaks: an agent would show what it says, or stop. What could
// not be recorded is found by the next sweep.
func hook(ctx context.Context, a *app, flags *flag.FlagSet) func([]string) error {
	return func(args []string) error {
		payload := io.Reader(&prompt{Reader: a.stdin})
		switch len(args) {
		case 1:
		case 2: // codex's notify gives it as the last argument
			payload = strings.NewReader(args[1])
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
	late bool
}

func (p *prompt) Read(b []byte) (int, error) {
	if !p.late && !readable(p.Reader) {
		p.late = true
		time.AfterFunc(hookBudget, func() { os.Exit(exitDone) })
	}
	return p.Reader.Read(b)
}
