package main

import (
	"context"
	"flag"
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
		payload := a.stdin
		switch len(args) {
		case 1:
		case 2: // codex's notify gives it as the last argument
			payload = strings.NewReader(args[1])
		default:
			return nil
		}
		// Standard input that never ends, or a file system that hangs, is left behind.
		late := time.AfterFunc(hookBudget, func() { os.Exit(exitDone) })
		defer late.Stop()
		s, err := a.open()
		if err != nil {
			return nil
		}
		defer s.Close()
		_, _ = ledger.HandleHook(ctx, s, args[0], payload, ledger.HookOptions{})
		return nil
	}
}
