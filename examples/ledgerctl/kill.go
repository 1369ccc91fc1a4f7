package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"slices"
	"time"

	"github.com/sessionledger/ledger"
)

// result is what the verbs that act on sessions print for each.
type result struct {
	ID      string `json:"id"`
	Outcome string `json:"outcome"`
	Error   string `json:"error,omitempty"`
}

func kill(ctx context.Context, a *app, flags *flag.FlagSet) func([]string) error {
	all := flags.Bool("all", false, "all open sessions")
	force := flags.Bool("force", false, "also while another operation is in flight")
	return func(args []string) error {
		return a.act(ctx, args, *all, func(h *ledger.Host, t *target) {
			done, err := h.Kill(ctx, t.id, ledger.KillOptions{Force: *force})
			for _, p := range done.Near {
				t.note("left alone, in the session's folder: process %d", p.PID)
			}
			if done.Unrescued != nil {
				t.note("its work is not rescued: %s; once that is mended: ledgerctl rescue %s", plain(done.Unrescued.Error()), t.id)
			}
			if errors.Is(err, ledger.ErrLeaseHeld) {
				t.note("%s is meant to be killed from now on, and not yet", plain(t.id))
			}
			t.err = err
		})
	}
}

// atOnce is how many sessions are worked on at a time: what takes long is to wait for
// their processes.
const atOnce = 8

// act does one thing to each of the named sessions, several at a time, goes on after a
// failure and reports each. Its error is the only session's, or that some failed.
func (a *app) act(ctx context.Context, args []string, all bool, do func(h *ledger.Host, t *target)) error {
	if all == (len(args) > 0) {
		return fmt.Errorf("%w: give ids, or -all", errUsage)
	}
	s, err := a.open()
	if err != nil {
		return err
	}
	defer s.Close()
	targets, err := a.targets(ctx, s, args)
	if err != nil {
		return err
	}
	if len(targets) == 0 && !a.json {
		fmt.Fprintln(a.stdout, "No sessions are open.")
	}
	h := &ledger.Host{Store: s}
	slots := make(chan struct{}, atOnce)
	for _, t := range targets {
		go func() {
			defer close(t.done)
			slots <- struct{}{}
			defer func() { <-slots }()
			if t.err == nil {
				do(h, t)
			}
		}()
	}
	failed := 0
	var unsaid error // the others are at work: their leases would be left behind
	for _, t := range targets {
		idle := a.busy(a.command + " " + plain(t.id))
		<-t.done
		idle()
		for _, line := range t.notes {
			if len(targets) > 1 {
				line = plain(t.id) + ": " + line
			}
			a.note("%s", line)
		}
		if t.err != nil {
			failed++
		}
		if err := a.report(t.id, t.err, len(targets) > 1 || a.json); unsaid == nil {
			unsaid = err
		}
	}
	switch {
	case unsaid != nil:
		return unsaid
	case failed == 0:
		return nil
	case len(targets) == 1:
		return targets[0].err
	}
	return fmt.Errorf("%d of %d sessions failed", failed, len(targets))
}

// target is a session to act on, or why it is none, and what became of it.
type target struct {
	id    string
	err   error
	notes []string
	done  chan struct{}
}

func newTarget(id string, err error) *target {
	return &target{id: id, err: err, done: make(chan struct{})}
}

func (t *target) note(format string, args ...any) {
	t.notes = append(t.notes, fmt.Sprintf(format, args...))
}

// targets finds the sessions that are named, or all open ones.
func (a *app) targets(ctx context.Context, s *ledger.Store, named []string) (list []*target, err error) {
	for _, id := range named {
		e, err := a.one(ctx, s, []string{id})
		if err == nil {
			id = e.LedgerID
		}
		if slices.ContainsFunc(list, func(t *target) bool { return t.id == id }) {
			continue
		}
		list = append(list, newTarget(id, err))
	}
	if len(named) > 0 {
		return list, nil
	}
	for e, err := range s.OpenEntries(ctx) {
		var damaged *ledger.DamagedError
		switch {
		case errors.As(err, &damaged):
			list = append(list, newTarget(damaged.ID, err))
		case err != nil:
			return nil, err
		default:
			list = append(list, newTarget(e.LedgerID, nil))
		}
	}
	return list, nil
}

// report says what became of one session. A single failure is reported by the exit alone.
func (a *app) report(id string, err error, always bool) error {
	r := result{ID: id, Outcome: ledger.OutcomeOf(err)}
	if err != nil {
		r.Error = err.Error()
	}
	switch {
	case a.json:
		return a.line(r)
	case err == nil:
		fmt.Fprintln(a.stdout, plain(id)+": "+r.Outcome)
	case always:
		fmt.Fprintln(a.stdout, plain(id)+": "+r.Outcome+": "+plain(r.Error))
	}
	return nil
}

func reconcile(ctx context.Context, a *app, flags *flag.FlagSet) func([]string) error {
	grace := span(flags, "grace", ledger.DefaultGrace, 0, "least `AGE` of a dead owner's lease; what else is waited for is waited for twice as long")
	return func(args []string) error {
		s, err := a.open()
		if err != nil {
			return err
		}
		defer s.Close()
		h := &ledger.Host{Store: s}
		done := a.busy("settling what was left half done")
		settled, err := h.Reconcile(ctx, "", ledger.ReconcileOptions{Grace: graceOf(*grace)})
		done()
		if err != nil {
			return err
		}
		var rows [][]cell
		for _, r := range settled {
			if a.json {
				if err := a.line(r); err != nil {
					return err
				}
			}
			rows = append(rows, []cell{{plain(r.ID), ""}, {r.Action, ""}, {r.Outcome, ""}, {plain(r.Error), ""}})
		}
		if a.json {
			return nil
		}
		if len(rows) == 0 {
			fmt.Fprintln(a.stdout, "Nothing has to be settled.")
			return nil
		}
		a.table(a.stdout, []string{"ID", "ACTION", "OUTCOME", "WHY"}, rows)
		return nil
	}
}

// graceOf maps a flag to the library's option, in which 0 is the default.
func graceOf(d time.Duration) time.Duration {
	if d == 0 {
		return -1
	}
	return d
}
