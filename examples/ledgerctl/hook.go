package main

import (
	"context"
	"flag"
	"os"
	"strings"
	"time"

	"github.com/sessionledger/ledger"
)

// hookBudget is the longest that the hook takes, whatever hangs: a payload that does not
// come, or a file system. The agent waits for it.
const hookBudget = time.Second

// hook never fails and never speaks: an agent would show what it says, or stop. What could
// not be recorded is found by the next sweep.
func hook(ctx context.Context, a *app, flags *flag.FlagSet) func([]string) error {
	return func(args []string) error {
		late := time.AfterFunc(hookBudget, func() { os.Exit(exitDone) })
		defer late.Stop()
		payload := a.stdin
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
