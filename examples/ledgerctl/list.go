package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/sessionledger/ledger"
)

func list(ctx context.Context, a *app, flags *flag.FlagSet) func([]string) error {
	all := flags.Bool("all", false, "finished sessions too")
	state := text(flags, "state", "only sessions in this `state`, such as ORPHANED")
	dirty := flags.Bool("dirty", true, "count uncommitted files")
	return func(args []string) error {
		only := ledger.Liveness(strings.ToUpper(*state))
		if lookOf(only) == (look{}) && only != "" {
			return fmt.Errorf("%w: there is no state %q", errUsage, *state)
		}
		s, err := a.open()
		if err != nil {
			return err
		}
		defer s.Close()
		done := a.busy("looking at the sessions")
		defer done()
		var found []ledger.Session
		var damaged []*ledger.DamagedError
		for sess, err := range s.Sessions(ctx, &ledger.ClassifyOptions{Finished: *all || only == "FINISHED", Dirty: *dirty}) {
			var bad *ledger.DamagedError
			switch {
			case errors.As(err, &bad):
				damaged = append(damaged, bad)
			case err != nil:
				return err
			case only == "" || only == sess.Status.State:
				found = append(found, sess)
			}
		}
		done()
		slices.SortStableFunc(found, func(x, y ledger.Session) int { return lastSign(y).Compare(lastSign(x)) })
		if a.json {
			return a.listLines(found, damaged)
		}
		a.listTable(found, damaged, only)
		return nil
	}
}

// listLines prints sessions as JSON. A damaged row is an object of another shape.
func (a *app) listLines(found []ledger.Session, damaged []*ledger.DamagedError) error {
	for _, sess := range found {
		if err := a.line(sess); err != nil {
			return err
		}
	}
	type row struct {
		ID    string `json:"id"`
		Path  string `json:"path"`
		Error string `json:"error"`
	}
	for _, d := range damaged {
		if err := a.line(map[string]row{"damaged": {d.ID, d.Path, d.Err.Error()}}); err != nil {
			return err
		}
	}
	return nil
}

func (a *app) listTable(found []ledger.Session, damaged []*ledger.DamagedError, only ledger.Liveness) {
	var rows [][]cell
	counts := map[ledger.Liveness]int{}
	for _, sess := range found {
		rows = append(rows, sessionCells(sess))
		counts[sess.Status.State]++
	}
	for _, d := range damaged {
		rows = append(rows, []cell{{"! DAMAGED", "31"}, {"-", ""}, {"-", ""}, {plain(d.ID), ""}, {"-", ""}, {plain(d.Err.Error()), ""}})
	}
	switch {
	case len(rows) > 0:
		a.table(a.stdout, listHead, rows)
	case only != "":
		fmt.Fprintf(a.stdout, "No session is %s.\n", only)
	default:
		fmt.Fprintln(a.stdout, "No sessions. Adopt a running agent with: ledgerctl enrol -runtime NAME -pid N")
	}
	a.listRescues(found)
	switch {
	case len(damaged) > 0:
		a.tip("\nA damaged row is set aside by: ledgerctl doctor -repair ID")
	case counts["ORPHANED"] > 0:
		a.tip("\nReopen an orphaned session, where it was, by: ledgerctl attach ID")
	case len(found) > 0:
		a.tip("\nEverything about one, by the beginning of its id: ledgerctl show ID")
	}
}

// listRescues says how to bring the rescued work of sessions back.
func (a *app) listRescues(found []ledger.Session) {
	const most = 10 // of all finished sessions there can be any number
	n := 0
	for _, sess := range found {
		if e := sess.Entry; e.RescueRef != "" {
			if n++; n <= most {
				fmt.Fprintln(a.stdout, "Rescued work waits: "+cherryPick(e.RepoRoot, e.RescueRef))
			}
		}
	}
	if n > most {
		fmt.Fprintf(a.stdout, "More rescued work waits in %s: ledgerctl rescues REPO\n", count(n-most, "session"))
	}
}

// listHead heads the table of sessions.
var listHead = []string{"STATE", "AGE", "DIRTY", "ID", "PROJECT", "WHAT"}

func sessionCells(sess ledger.Session) []cell {
	dirty := "-"
	if n := sess.Status.DirtyCount; n != nil {
		dirty = fmt.Sprint(*n)
	}
	return []cell{
		stateCell(sess.Status.State),
		{since(lastSign(sess)), ""},
		{dirty, ""},
		{plain(sess.Entry.LedgerID), ""},
		{short(project(sess.Entry), 20), ""},
		{what(sess), ""},
	}
}

// lastSign is when a session was last seen to do anything: to begin, if nothing else.
func lastSign(sess ledger.Session) time.Time {
	e := sess.Entry
	return slices.MaxFunc([]time.Time{sess.Status.LastActiveAt, e.LastHeartbeatAt, e.FinishedAt, e.StartedAt}, time.Time.Compare)
}

// project is where a session works: project and branch, or its folder.
func project(e ledger.Entry) string {
	name := cmp.Or(e.Project, filepath.Base(cmp.Or(e.Cwd, "-")))
	if e.Branch != "" {
		name += ":" + e.Branch
	}
	return plain(name)
}

// what is the most telling line about a session.
func what(sess ledger.Session) string {
	e, st := sess.Entry, sess.Status
	switch {
	case e.Attention != nil:
		return plain("needs you: " + e.Attention.Reason)
	case st.Lease != nil:
		return plain(fmt.Sprintf("%s for %s, by process %d, which is %s", st.Lease.Op, since(st.Lease.Since), st.Lease.Owner.PID, st.Lease.OwnerIs))
	case e.Waiting != nil && st.PID != 0:
		return plain("waits for you: " + e.Waiting.Kind)
	case e.RescueRef != "":
		return count(len(e.RescuedPaths)+e.RescuedMore, "file") + " rescued"
	case st.Title != "" && st.Activity != "":
		return plain(st.Title + " · " + st.Activity)
	case st.Title != "":
		return plain(st.Title)
	}
	return plain(st.Reason)
}
