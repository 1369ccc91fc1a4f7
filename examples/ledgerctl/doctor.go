package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"

	"github.com/sessionledger/ledger"
)

func doctor(ctx context.Context, a *app, flags *flag.FlagSet) func([]string) error {
	repair := text(flags, "repair", "set the damaged row `ID` aside, so that its session can be enrolled again")
	return func(args []string) error {
		s, err := a.open()
		if err != nil {
			return err
		}
		defer s.Close()
		if *repair != "" {
			if err := s.Repair(ctx, *repair); err != nil {
				return err
			}
			a.note("The damaged row %s is now below %s/damaged.", plain(*repair), plain(s.Dir()))
		}
		done := a.busy("looking through the ledger")
		defer done()
		findings, err := s.Check(ctx)
		if err != nil {
			return err
		}
		now, err := s.CheckMachine(ctx)
		if err != nil {
			return err
		}
		done()
		if err := a.hooks(); err != nil {
			return err
		}
		return a.findings(s.Dir(), append(findings, now...))
	}
}

// hooks says for each runtime whether its hooks are installed. Nobody has to have them: what
// is not installed is no finding.
func (a *app) hooks() (err error) {
	for _, st := range a.hooksStates() {
		switch {
		case a.json && st.none:
		case a.json:
			err = a.line(st)
		default:
			_, err = fmt.Fprintln(a.stdout, plain(st.Message))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// findings prints what was found. Its error says that there is something.
func (a *app) findings(dir string, found []ledger.Finding) error {
	if a.json {
		for _, f := range found {
			if err := a.line(f); err != nil {
				return err
			}
		}
	} else if len(found) == 0 {
		fmt.Fprintln(a.stdout, "All is well with "+plain(dir))
	} else {
		a.diagnosis(found)
	}
	if len(found) > 0 {
		return errSilent
	}
	return nil
}

// diagnosis prints findings for a person, and what to do about each kind.
func (a *app) diagnosis(found []ledger.Finding) {
	var rows [][]cell
	seen := map[ledger.FindingKind]bool{}
	var advice []string
	for _, f := range found {
		color := "33"
		if f.Broken {
			color = "31"
		}
		rows = append(rows, []cell{{string(f.Kind), color}, {plain(cmp.Or(f.ID, f.Path, "-")), ""}, {plain(f.Message), ""}})
		if r := remedy(f.Kind); r != "" && !seen[f.Kind] {
			advice = append(advice, fmt.Sprintf("%-10s %s", f.Kind, r))
		}
		seen[f.Kind] = true
	}
	a.tableOf(a.stdout, 0, []string{"FINDING", "WHERE", "WHAT"}, rows)
	if len(advice) > 0 {
		fmt.Fprintln(a.stdout)
	}
	for _, line := range advice {
		fmt.Fprintln(a.stdout, line)
	}
}

// remedy says what a person can do about a finding; "" is nothing.
func remedy(kind ledger.FindingKind) string {
	switch kind {
	case ledger.FindDamaged:
		return "set it aside: ledgerctl doctor -repair ID"
	case ledger.FindLease:
		return "a stale lease is settled by: ledgerctl reconcile; that of a kill whose session runs by: ledgerctl kill ID"
	case ledger.FindKill:
		return "finish it: ledgerctl kill ID, which says so if another one is at it"
	case ledger.FindAttention:
		return "look at it: ledgerctl show ID"
	case ledger.FindLock:
		return "it goes with its process, which may still be at work"
	case ledger.FindMode:
		return "take the others' rights away: chmod go-rwx PATH"
	case ledger.FindTemp:
		return "clear it: ledgerctl sweep"
	case ledger.FindSchema:
		return "change it with the newer version"
	}
	return ""
}
