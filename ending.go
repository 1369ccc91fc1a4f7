package ledger

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"syscall"
	"time"

	"github.com/sessionledger/ledger/internal/procscan"
)

// EndOptions say how long processes get to end after each signal. The zero value is the
// default.
type EndOptions struct {
	Hangup time.Duration // after HUP, as when a terminal closes; 0: 2 s
	Term   time.Duration // after TERM; 0: 3 s
	Kill   time.Duration // after KILL; 0: 5 s
}

// stages are the signals in their order, each with its patience.
func (o EndOptions) stages() []stage {
	return []stage{
		{syscall.SIGHUP, cmp.Or(o.Hangup, 2*time.Second)},
		{syscall.SIGTERM, cmp.Or(o.Term, 3*time.Second)},
		{syscall.SIGKILL, cmp.Or(o.Kill, 5*time.Second)},
	}
}

type stage struct {
	signal   syscall.Signal
	patience time.Duration
}

// end ends the processes that list names, by identity: through a pidfd that is checked
// against the start ticks first, so that a stranger under a re-used pid is never met. list
// is asked again before each signal, and after KILL until it names none or the time is over,
// for what was forked meanwhile: what it then still names is left, and comes back with an
// error.
//
// A signal that may not be sent, or to a process that cannot be looked at, is ErrUnknown.
func (t *table) end(ctx context.Context, list func() ([]ProcessID, error), o EndOptions) error {
	for _, st := range o.stages() {
		for until := time.Now().Add(st.patience); ; {
			targets, err := list()
			if err != nil {
				return err
			}
			if targets = t.notGone(targets); len(targets) == 0 {
				return nil
			}
			if err := t.signal(targets, st.signal); err != nil {
				return err
			}
			if err := t.awaitExits(ctx, targets, time.Until(until)); err != nil {
				return err
			}
			if st.signal != syscall.SIGKILL || !time.Now().Before(until) {
				break
			}
		}
	}
	targets, err := list()
	if err != nil {
		return err
	}
	if targets = t.notGone(targets); len(targets) > 0 {
		return fmt.Errorf("ledger: %w: process %d does not end", ErrUnknown, targets[0].PID)
	}
	return nil
}

func (t *table) signal(ps []ProcessID, sig syscall.Signal) error {
	for _, p := range ps {
		err := t.sys.Signal(p.PID, p.StartTicks, sig)
		if err != nil && !errors.Is(err, procscan.ErrGone) && !errors.Is(err, procscan.ErrChanged) {
			return fmt.Errorf("ledger: end process %d: %w: %w", p.PID, ErrUnknown, err)
		}
	}
	return nil
}

// notGone drops the processes that are provably gone.
func (t *table) notGone(ps []ProcessID) []ProcessID {
	return slices.DeleteFunc(ps, func(p ProcessID) bool { return p.IsZero() || t.verdict(p) == Gone })
}

// awaitExits waits until all processes have exited, or for so long. The error is the
// context's.
func (t *table) awaitExits(ctx context.Context, ps []ProcessID, patience time.Duration) error {
	bounded, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for _, p := range ps {
		x, err := t.sys.OpenExit(p.PID, p.StartTicks)
		if err != nil {
			continue // gone, or not to be looked at: the list tells
		}
		_ = x.Wait(bounded)
		x.Close()
	}
	return ctx.Err()
}
