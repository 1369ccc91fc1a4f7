package main

import (
	"context"
	"flag"
	"fmt"

	"github.com/sessionledger/ledger"
)

func enrol(ctx context.Context, a *app, flags *flag.FlagSet) func([]string) error {
	name := text(flags, "runtime", "the agent's `name`, such as claude")
	pid := flags.Int("pid", 0, "its process `id`")
	return func(args []string) error {
		if len(args) > 0 || *name == "" || *pid <= 0 {
			return fmt.Errorf("%w: give -runtime NAME and -pid N", errUsage)
		}
		s, err := a.open()
		if err != nil {
			return err
		}
		defer s.Close()
		e, _, err := s.Enrol(ctx, *pid, &ledger.EnrolOptions{Runtime: *name, By: ledger.EnrolledByDiscovery})
		if err != nil {
			return err
		}
		return a.showOne(ctx, s, e.LedgerID)
	}
}
