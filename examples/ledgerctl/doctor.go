package main

import (
	"context"
	"flag"
	"fmt"

	"github.com/sessionledger/ledger"
)

func doctor(ctx context.Context, a *app, flags *flag.FlagSet) func([]string) error {
	repair := flags.String("repair", "", "set the damaged row `ID` aside, so that its session can be enrolled again")
	return func(args []string) error {
		if len(args) > 0 {
			return fmt.Errorf("%w: doctor takes no arguments", errUsage)
		}
		s, err := a.open()
		if err != nil {
			return err
		}
		defer s.Close()
		if *repair != "" {
			if err := s.Repair(ctx, *repair); err != nil {
				return err
			}
			fmt.Fprintf(a.stderr, "The damaged row %s is now below %s/damaged.\n", plain(*repair), plain(s.Dir()))
		}
		findings, err := s.Check(ctx)
		if err != nil {
			return err
		}
		var rows [][]cell
		for _, st := range hooksStates() {
			// Nobody has to have hooks: what is not installed is no fault.
			if a.json {
				err = a.line(st)
			} else {
				_, err = fmt.Fprintln(a.stdout, plain(st.Message))
			}
			if err != nil {
				return err
			}
		}
		for _, f := range findings {
			if a.json {
				if err := a.line(f); err != nil {
					return err
				}
			}
			rows = append(rows, findingCells(f))
		}
		if len(rows) == 0 {
			if !a.json {
				fmt.Fprintln(a.stdout, "All is well with "+plain(s.Dir()))
			}
			return nil
		}
		if !a.json {
			a.table(a.stdout, []string{"FINDING", "WHERE", "WHAT"}, rows)
		}
		return errSilent
	}
}

func findingCells(f ledger.Finding) []cell {
	color := "33"
	if f.Broken {
		color = "31"
	}
	where := f.ID
	if where == "" {
		where = f.Path
	}
	return []cell{{string(f.Kind), color}, {plain(where), ""}, {plain(f.Message), ""}}
}
