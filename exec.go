package ledger

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
)

// multiplexer are the variables of the terminal that a direct launch stays in.
var multiplexer = []string{"TMUX", "TMUX_PANE", "STY", "WINDOW"}

// Exec is a launch without a multiplexer: this very process becomes the agent, so that its
// exit status, its signals and its terminal are the agent's own. It returns only where
// that failed.
//
// Where no row can be written at all the agent runs all the same, since the ledger never
// stops a person from working, and the next sweep finds it. Where a row was written and
// the process could not be put on it, the run is refused before the agent starts: a row
// that lies is worse. What is a service of a runtime (claude mcp) is no session: it runs
// without a row; so does a process that has one already, or that stands in a folder which is
// gone.
//
// The error is [ErrInvalid] for a command that is not there.
func (h *Host) Exec(ctx context.Context, opts LaunchOptions) error {
	l, err := h.lookThrough(opts)
	if err != nil {
		return err
	}
	env := l.childEnv(multiplexer...)
	if l.opts.Dir != "" {
		before, _ := os.Getwd() // "" is one that is gone
		if err := os.Chdir(l.dir); err != nil {
			return fmt.Errorf("ledger: launch: %w", err)
		}
		defer func() { _ = os.Chdir(before) }() // which is not come to where the command runs
		env = setenv(env, "PWD", l.dir)
	}
	if l.service || l.lost != nil {
		return become(l.argv, env)
	}
	row, err := h.record(ctx, l)
	switch {
	case err != nil && (row.LedgerID != "" || ctx.Err() != nil):
		return fmt.Errorf("ledger: launch: %w", err)
	case err != nil:
		h.Store.logger.Warn("launched without a record", "command", l.argv[0], "error", err)
	case row.LedgerID != "":
		env = append(env, envID+"="+row.LedgerID)
		if row.Lease != nil {
			env = append(env, envAttempt+"="+row.Lease.Attempt)
		} else if id, _ := getenv(l.env, envID); id == row.LedgerID {
			attempt, _ := getenv(l.env, envAttempt)
			env = append(env, envAttempt+"="+attempt)
		}
	}
	err = become(l.argv, env)
	if row.Lease != nil {
		// It never ran: the row must not say that it did.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseWait)
		defer cancel()
		_, _, endErr := h.Store.Apply(ctx, row.LedgerID, Finish(row.Lease.Owner.Key(), "it could not be started"))
		err = errors.Join(err, endErr)
	}
	return err
}

// record writes the birth row of this very process and binds it. The row comes back as it
// was born, with its lease; it is zero where none was written, or where the process has
// one. An error with a row means that the process could not be bound to it.
func (h *Host) record(ctx context.Context, l *launchable) (Entry, error) {
	s := h.Store
	self, err := s.procs.self()
	if err != nil {
		return Entry{}, fmt.Errorf("%w: %w", ErrUnknown, err)
	}
	if row, err := s.Find(ctx, Query{Process: self}); err == nil && row.IsOpen() {
		row.Lease = nil
		return row, nil // a wrapper that has been launched launches what it wraps
	}
	row := s.birthRow(ctx, l)
	p, err := s.chainPass(self.PID)
	if err != nil {
		return Entry{}, err
	}
	m := &match{candidate: candidate{process: self, runtime: l.runtime}}
	facts, loc := p.describe(ctx, s.procs, m, agentAbove{}, s.listings().pane)
	row.StartedAt, row.CPUTicks, row.ProcessDescribedAt = facts.StartedAt, facts.CPUTicks, facts.ProcessDescribedAt
	born, err := s.Create(ctx, row, BeginCreate(self))
	if born.LedgerID == "" {
		return Entry{}, err
	}
	h.after("born")
	if err != nil && !isUnsynced(err) {
		s.logger.Warn("birth", "session", born.LedgerID, "error", err)
	}
	if _, _, err := s.Apply(ctx, born.LedgerID, Bind(born.Lease.Nonce, self, loc)); err != nil && !isUnsynced(err) {
		_, _, _ = s.Apply(context.WithoutCancel(ctx), born.LedgerID, RemoveBirth(born.Lease.Nonce))
		h.release(ctx, born.LedgerID, born.Lease.Nonce)
		return born, fmt.Errorf("its process could not be put on record: %w", err)
	}
	h.after("bound")
	if err := h.claimGiven(ctx, born.LedgerID, l); err != nil {
		s.logger.Warn("conversation not claimed", "session", born.LedgerID, "error", err)
	}
	return born, nil
}

// claimGiven makes the conversation that the command line gives the agent the row's. It
// comes after the process, so that a launch that fails leaves no trace of a conversation
// which never was.
func (h *Host) claimGiven(ctx context.Context, id string, l *launchable) error {
	if l.opts.SessionID == "" {
		return nil
	}
	_, _, err := h.Store.Apply(ctx, id, Claim(l.opts.SessionID, fromLaunch))
	if isUnsynced(err) {
		err = nil
	}
	return err
}

// become replaces this process's program. It returns only on failure, which is certain on
// systems where no process can become another program.
func become(argv, env []string) error {
	return fmt.Errorf("ledger: launch %q: %w", argv[0], syscall.Exec(argv[0], argv, env))
}

// NextOnPath finds the program of that name which a shim stands in front of: the next one
// on PATH outside the shim's folder that is not this very program, by whatever link. The
// error wraps [exec.ErrNotFound].
func NextOnPath(name, shimFolder string) (string, error) {
	var own os.FileInfo // a shim that found itself would never end
	if self, err := os.Executable(); err == nil {
		own, _ = os.Stat(self)
	}
	return lookPathBut(name, shimFolder, own)
}
