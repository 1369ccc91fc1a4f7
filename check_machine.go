package ledger

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/sessionledger/ledger/internal/flock"
)

// CheckMachine says what stands in the ledger's way at this moment and is on no record:
// which of its locks are held, and by whom ([FindLock]), and what this process cannot see
// of the machine ([FindView]), so that verdicts stay unknown and nothing is closed or
// enrolled. What cannot be seen is itself a finding; the error is the context's.
// It changes nothing and takes no lock.
func (s *Store) CheckMachine(ctx context.Context) ([]Finding, error) {
	if err := s.begin(ctx); err != nil {
		return nil, err
	}
	c := &checker{s: s}
	c.locks(s.rows, dirLocks)
	c.locks(s.passes, ".")
	c.processView(ctx)
	if s.lostRows() == nil { // else [Store.Check] says so
		c.muxView(ctx)
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return c.found, nil
}

// locks reports the locks of one folder that are held now.
func (c *checker) locks(set *flock.Set, sub string) {
	holders, err := set.Holders()
	if err != nil {
		c.add(FindView, false, "", "who holds the locks in %q cannot be seen: %v", c.s.path(sub), err)
		return
	}
	for name, pid := range holders {
		c.found = append(c.found, Finding{Kind: FindLock, Path: c.s.path(sub, name), PID: pid, Message: c.s.heldBy(pid)})
	}
	slices.SortStableFunc(c.found, func(a, b Finding) int { return cmp.Compare(a.Path, b.Path) })
}

// heldBy describes the holder of a lock.
func (s *Store) heldBy(pid int) string {
	if pid <= 0 {
		return "held by a process that cannot be named from here"
	}
	p, err := s.procs.sys.Stat(pid)
	switch {
	case err != nil:
		return fmt.Sprintf("held by process %d", pid)
	case p.State == 'T' || p.State == 't':
		return fmt.Sprintf("held by process %d (%q), which is stopped: what it locks waits until it goes on or ends", pid, p.Comm)
	}
	return fmt.Sprintf("held by process %d (%q)", pid, p.Comm)
}

// processView reports what is missing from the view of processes.
func (c *checker) processView(ctx context.Context) {
	p, err := c.s.newPass(ctx)
	if err != nil {
		c.unseen("", err)
		return
	}
	if !p.whole {
		c.add(FindView, false, "", "the process table is not complete: %s", p.partial)
	}
	if p.noDiscovery != "" {
		c.add(FindView, false, "", "running sessions are not discovered: %s", p.noDiscovery)
	}
}

// muxView reports the open sessions whose multiplexer does not say how they stand.
func (c *checker) muxView(ctx context.Context) {
	var in []Entry
	for e, err := range c.s.OpenEntries(ctx) {
		var damaged *DamagedError
		if err != nil && !errors.As(err, &damaged) {
			c.unseen("", fmt.Errorf("the sessions' multiplexers: %w", err))
			break
		}
		if err == nil && e.Mux.Kind != "" {
			in = append(in, e)
		}
	}
	bounded, cancel := context.WithTimeout(ctx, defaultTimeout)
	defer cancel()
	states := c.s.probeMux(nil, c.s.listings())(bounded, in)
	for _, e := range in {
		switch states[e.LedgerID] {
		case MuxUnknown, MuxUnreachable:
			c.add(FindView, false, e.LedgerID, "its %s at %q does not answer", e.Mux.Kind, e.Mux.Socket)
		}
	}
}
