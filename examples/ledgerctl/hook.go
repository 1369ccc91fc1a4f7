package main

import (
	"context"
	"flag"
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
		ctx, cancel := context.WithTimeout(ctx, hookBudget)
		defer cancel()
		done := make(chan struct{})
		go func() {
			defer close(done)
			s, err := a.open()
			if err != nil {
				return
			}
			defer s.Close()
			_, _ = ledger.HandleHook(ctx, s, args[0], payload, ledger.HookOptions{})
		}()
		select {
		case <-done:
		case <-ctx.Done(): // standard input that never ends, or a file system that hangs
		}
		return nil
	}
}
