package ledger

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
)

// Exec is a launch without a multiplexer: this very process becomes the agent, so that its
// exit status, its signals and its terminal are the agent's own. It returns only where
// that failed.
//
// Where no row can be written at all the agent runs all the same, since the ledger never
// stops a person from working, and the next sweep finds it. Where a row was written and
// the process could not be put on it, the run is refused before the agent starts: a row
// that lies is worse.
func (h *Host) Exec(ctx context.Context, opts LaunchOptions) error {
	l, err := h.prepareLaunch(ctx, opts)
	if err != nil {
		return err
	}
	if err := os.Chdir(l.row.Cwd); err != nil {
		return fmt.Errorf("ledger: launch: %w", err)
	}
	loc := l.describeSelf(ctx)
	e, err := h.Store.Create(ctx, l.row, BeginCreate(l.self))
	if e.LedgerID == "" || err != nil && !isUnsynced(err) {
		h.Store.logger.Warn("launched without a record", "command", l.argv, "error", err)
		return become(l.argv, l.env)
	}
	nonce := e.Lease.Nonce
	if _, _, err := h.Store.Apply(ctx, e.LedgerID, Bind(nonce, l.self, loc)); err != nil && !isUnsynced(err) {
		_, _, _ = h.Store.Apply(context.WithoutCancel(ctx), e.LedgerID, RemoveBirth(nonce))
		return fmt.Errorf("ledger: launch: its process could not be put on record: %w", err)
	}
	env := slices.DeleteFunc(slices.Clone(l.env), func(kv string) bool { return strings.HasPrefix(kv, "AGENT_LEDGER_") })
	env = append(env, envID+"="+e.LedgerID, envAttempt+"="+e.Lease.Attempt)
	err = become(l.argv, env)
	// It never ran: the row must not say that it did.
	_, _, _ = h.Store.Apply(context.WithoutCancel(ctx), e.LedgerID, Finish(l.self.Key(), "it could not be started"))
	return err
}

// describeSelf adds to the birth row what this process shows of itself, and says where it
// is.
func (l *launching) describeSelf(ctx context.Context) Location {
	p, err := l.h.Store.chainPass(l.self.PID)
	if err != nil {
		return Location{}
	}
	m := &match{candidate: candidate{process: l.self, runtime: l.row.Runtime}}
	facts, loc := p.describe(ctx, l.h.Store.procs, m, agentAbove{}, l.h.Store.LookUpPane)
	l.row.TTY, l.row.Cgroup, l.row.StartedAt = facts.TTY, facts.Cgroup, facts.StartedAt
	l.row.CPUTicks, l.row.ProcessDescribedAt = facts.CPUTicks, facts.ProcessDescribedAt
	return loc
}

// NextOnPath finds the program of that name which a shim stands in front of: the next one
// on PATH outside the shim's folder. The error wraps [exec.ErrNotFound].
func NextOnPath(name, shimFolder string) (string, error) { return lookPath(name, shimFolder) }
