package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"strings"

	"github.com/sessionledger/ledger"
)

// damagedLine is how a row that cannot be trusted is listed.
type damagedLine struct {
	Damaged damagedRow `json:"damaged"`
}

type damagedRow struct {
	ID    string `json:"id"`
	Path  string `json:"path"`
	Error string `json:"error"`
}

func damagedOf(d *ledger.DamagedError) damagedLine {
	return damagedLine{damagedRow{d.ID, d.Path, d.Err.Error()}}
}

func list(ctx context.Context, a *app, flags *flag.FlagSet) func([]string) error {
	all := flags.Bool("all", false, "finished sessions too")
	state := flags.String("state", "", "only sessions in this `state`, such as ORPHANED")
	dirty := flags.Bool("dirty", true, "count uncommitted files")
	return func(args []string) error {
		if len(args) > 0 {
			return fmt.Errorf("%w: list takes no arguments", errUsage)
		}
		s, err := a.open()
		if err != nil {
			return err
		}
		defer s.Close()
		var rows [][]cell
		for sess, err := range s.Sessions(ctx, &ledger.ClassifyOptions{Finished: *all, Dirty: *dirty}) {
			var damaged *ledger.DamagedError
			switch {
			case errors.As(err, &damaged):
				if a.json {
					err = a.line(damagedOf(damaged))
				} else {
					rows = append(rows, damagedCells(damaged))
					err = nil
				}
				if err != nil {
					return err
				}
				continue
			case err != nil:
				return err
			case *state != "" && !strings.EqualFold(*state, string(sess.Status.State)):
				continue
			}
			if a.json {
				if err := a.line(sess); err != nil {
					return err
				}
				continue
			}
			rows = append(rows, sessionCells(sess))
		}
		if a.json {
			return nil
		}
		if len(rows) == 0 {
			fmt.Fprintln(a.stdout, "No sessions. Adopt a running agent with: ledgerctl enrol -runtime NAME -pid N")
			return nil
		}
		a.table(a.stdout, listHead, rows)
		return nil
	}
}

// listHead heads the table of sessions.
var listHead = []string{"STATE", "AGE", "DIRTY", "ID", "WHAT"}

func sessionCells(sess ledger.Session) []cell {
	e, st := sess.Entry, sess.Status
	look := looks[st.State]
	dirty := "-"
	if st.DirtyCount != nil {
		dirty = fmt.Sprint(*st.DirtyCount)
	}
	return []cell{
		{look.symbol + " " + string(st.State), look.color},
		{since(st.LastActiveAt), ""},
		{dirty, ""},
		{e.LedgerID, ""},
		{short(what(sess), 80), ""},
	}
}

// what is the most telling line about a session.
func what(sess ledger.Session) string {
	e, st := sess.Entry, sess.Status
	switch {
	case e.Attention != nil:
		return "needs you: " + plain(e.Attention.Reason)
	case e.RescueRef != "" && e.IsOpen():
		return plain("rescued; bring it back with: git cherry-pick -n " + e.RescueRef)
	case st.Activity != "" && st.Title != "":
		return plain(st.Title + " · " + st.Activity)
	case st.Title != "":
		return plain(st.Title)
	}
	return plain(st.Reason)
}

func damagedCells(d *ledger.DamagedError) []cell {
	return []cell{{"! DAMAGED", "31"}, {"-", ""}, {"-", ""}, {plain(d.ID), ""}, {short(plain(d.Err.Error()), 80), ""}}
}
