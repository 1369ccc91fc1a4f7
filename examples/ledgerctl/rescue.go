package main

import (
	"cmp"
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
		done := a.busy("rescuing the work of " + plain(e.LedgerID))
		defer done()
		r, err := ledger.Rescue(ctx, s, e.LedgerID, ledger.RescueOptions{})
		if err != nil {
			return err
		}
		done()
		return a.rescued(r, e.RepoRoot)
	}
}

func rescues(ctx context.Context, a *app, flags *flag.FlagSet) func([]string) error {
	return func(args []string) error {
		if len(args) > 1 || len(args) == 1 && args[0] == "" {
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
			if err := a.rescued(r, repo); err != nil {
				return err
			}
		}
		if len(list) == 0 && !a.json {
			fmt.Fprintln(a.stdout, "Nothing was rescued in "+plain(repo))
		}
		return nil
	}
}

// rescued prints what a rescue holds, and how to bring it back into repo.
func (a *app) rescued(r ledger.Rescued, repo string) error {
	r.At = r.At.UTC()
	if a.json {
		return a.line(r)
	}
	if r.Ref == "" {
		fmt.Fprintf(a.stdout, "%s: nothing to rescue: %s\n", plain(r.ID), plain(cmp.Or(r.Nothing, "nothing is uncommitted")))
		return nil
	}
	when := ""
	if r.Already {
		when = " before"
	}
	what := "work" // of a row that is not in this ledger
	if n := len(r.Paths) + r.More; n > 0 {
		what = count(n, "file")
	}
	fmt.Fprintf(a.stdout, "%s: %s rescued%s. Bring the work back by: %s\n", plain(r.ID), what, when, cherryPick(repo, r.Ref))
	for _, o := range r.Omitted {
		fmt.Fprintf(a.stdout, "  not held: %s: %s\n", plain(o.Path), plain(o.Reason))
	}
	return nil
}

// cherryPick is the command that brings rescued work back.
func cherryPick(repo, ref string) string {
	if repo == "" {
		return quote("git", "cherry-pick", "-n", ref)
	}
	return quote("git", "-C", repo, "cherry-pick", "-n", ref)
}
