package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"time"

	"github.com/sessionledger/ledger"
)

func sweep(ctx context.Context, a *app, flags *flag.FlagSet) func([]string) error {
	every := span(flags, "watch", 0, time.Second, "make a pass each `INTERVAL` of a second or more, until interrupted")
	grace := span(flags, "grace", ledger.DefaultGrace, 0, "least `AGE` of a dead owner's lease")
	return func(args []string) error {
		s, err := a.open()
		if err != nil {
			return err
		}
		defer s.Close()
		opts := ledger.SweepOptions{Grace: graceOf(*grace), Progress: a.progress()}
		for {
			rep, err := ledger.Sweep(ctx, s, opts)
			if *every > 0 && ctx.Err() != nil {
				return nil // interrupted, as it was meant to be
			}
			if reportErr := a.sweepReport(rep, err); reportErr != nil {
				return reportErr
			}
			if *every == 0 {
				return err
			}
			if err != nil && !errors.Is(err, ledger.ErrBusy) {
				a.complain(err) // the next pass may do better
			}
			select {
			case <-time.After(*every):
			case <-ctx.Done():
				return nil
			}
		}
	}
}

// progress shows on a terminal what takes longer than a second.
func (a *app) progress() func(ledger.Progress) {
	if a.json || !isTerminal(a.stderr) {
		return nil
	}
	began := time.Now()
	return func(p ledger.Progress) {
		if time.Since(began) > time.Second {
			fmt.Fprintf(a.stderr, "\r\x1b[K%s %d/%d", p.Stage, p.Done, p.Total)
			if p.Done+1 >= p.Total {
				fmt.Fprint(a.stderr, "\r\x1b[K")
			}
		}
	}
}

// sweepReport prints what a pass did. A pass that never began did nothing.
func (a *app) sweepReport(rep ledger.Report, err error) error {
	if err != nil && len(rep.TookMs) == 0 {
		return nil
	}
	if a.json {
		return a.line(rep)
	}
	var rows [][]cell
	add := func(what, color, id, why string) {
		rows = append(rows, []cell{{what, color}, {plain(id), ""}, {short(plain(why), 100), ""}})
	}
	for _, id := range rep.Enrolled {
		add("enrolled", "32", id, "a running session that nobody had announced")
	}
	for _, id := range rep.Described {
		add("described", "", id, "what was missing about its process is on record")
	}
	for _, r := range rep.Rescued {
		if r.Ref != "" {
			add("rescued", "32", r.ID, "bring the work back with: git cherry-pick -n "+r.Ref)
		}
	}
	for _, c := range rep.Closed {
		add("closed", "", c.ID, c.Reason)
	}
	for _, c := range rep.RemovedBirths {
		add("removed", "", c.ID, c.Reason)
	}
	for _, p := range rep.Pruned {
		add("pruned", "", p.ID, p.Clause+": "+p.Reason)
	}
	for _, r := range rep.Reconciled {
		add("reconciled", "", r.ID, r.Action+", "+r.Outcome+" "+r.Error)
	}
	for _, e := range rep.Edges {
		add("news", "33", e.ID, e.Text())
	}
	for _, u := range rep.Unverifiable {
		add("unverifiable", "33", "pid "+u.ID, u.Reason)
	}
	for _, d := range rep.Damaged {
		add("damaged", "31", d.ID, d.Error)
	}
	for _, f := range rep.UpdateFailures {
		add("not written", "31", f.ID, f.Error)
	}
	for _, w := range rep.Warnings {
		add("warning", "33", orDash(w.ID), w.Stage+": "+w.Error)
	}
	if len(rep.Filed) > 0 {
		add("filed", "", fmt.Sprintf("%d rows", len(rep.Filed)), "finished a while ago")
	}
	if len(rows) == 0 {
		fmt.Fprintln(a.stdout, "All is as it was.")
		return nil
	}
	a.table(a.stdout, []string{"WHAT", "ID", "WHY"}, rows)
	return nil
}
