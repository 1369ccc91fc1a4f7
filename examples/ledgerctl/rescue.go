package main

import (
	"context"
	"flag"
	"fmt"
	"path/filepath"

	"github.com/sessionledger/ledger"
)

func rescue(ctx context.Context, a *app, flags *flag.FlagSet) func([]string) error {
	return func(args []string) error {
		s, err := a.open()
		if err != nil {
			return err
		}
		defer s.Close()
		e, err := a.one(ctx, s, args)
		if err != nil {
			return err
		}
		r, err := ledger.Rescue(ctx, s, e.LedgerID, ledger.RescueOptions{})
		if err != nil {
			return err
		}
		return a.rescued(r)
	}
}

func rescues(ctx context.Context, a *app, flags *flag.FlagSet) func([]string) error {
	return func(args []string) error {
		if len(args) > 1 {
			return fmt.Errorf("%w: give one repository, or none for this folder's", errUsage)
		}
		repo, err := filepath.Abs(append(args, ".")[0])
		if err != nil {
			return err
		}
		s, err := a.open()
		if err != nil {
			return err
		}
		defer s.Close()
		list, err := ledger.Rescues(ctx, s, repo)
		if err != nil {
			return err
		}
		for _, r := range list {
			if err := a.rescued(r); err != nil {
				return err
			}
		}
		if len(list) == 0 && !a.json {
			fmt.Fprintln(a.stdout, "Nothing was rescued in "+plain(repo))
		}
		return nil
	}
}

func (a *app) rescued(r ledger.Rescued) error {
	if a.json {
		return a.line(r)
	}
	if r.Ref == "" {
		fmt.Fprintf(a.stdout, "%s: nothing to rescue: %s\n", plain(r.ID), plain(orDash(r.Nothing)))
		return nil
	}
	fmt.Fprintf(a.stdout, "%s: %d files. Bring them back with: git cherry-pick -n %s\n", plain(r.ID), len(r.Paths)+r.More, plain(r.Ref))
	for _, o := range r.Omitted {
		fmt.Fprintf(a.stdout, "  not held: %s: %s\n", plain(o.Path), plain(o.Reason))
	}
	return nil
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
