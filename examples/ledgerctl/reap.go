package main

import (
	"context"
	"flag"
	"fmt"

	"github.com/sessionledger/ledger"
)

func reap(ctx context.Context, a *app, flags *flag.FlagSet) func([]string) error {
	return func(args []string) error {
		s, err := a.open()
		if err != nil {
			return err
		}
		defer s.Close()
		rep, err := ledger.Reap(ctx, s, ledger.ReapOptions{})
		for _, r := range rep.Reaped {
			if a.json {
				if err := a.line(result{ID: r.ID, Outcome: r.Outcome, Error: r.Error}); err != nil {
					return err
				}
				continue
			}
			fmt.Fprintln(a.stdout, plain(r.ID)+": "+r.Action+": "+r.Outcome+" "+plain(r.Error))
		}
		for _, sp := range rep.Spared {
			if a.json {
				if err := a.line(result{ID: sp.ID, Outcome: "refused", Error: sp.Reason}); err != nil {
					return err
				}
				continue
			}
			fmt.Fprintln(a.stdout, plain(sp.ID)+": left: "+plain(sp.Reason))
		}
		if err == nil && len(rep.Reaped)+len(rep.Spared) == 0 && !a.json {
			fmt.Fprintln(a.stdout, "Nothing is left behind.")
		}
		return err
	}
}
