package ledger

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/sessionledger/ledger/internal/durable"
	"github.com/sessionledger/ledger/internal/flock"
)

// The order of locks, so that no cycle exists: the lock of a pass (sweep.lock,
// claims.lock), then at most one key lock, then at most one row lock. Never two row
// locks: what concerns two rows is two writes in sequence, each safe to be the last. No
// row or key lock is held across a command.

// lockRow takes the lock of a row's stripe.
func (s *Store) lockRow(ctx context.Context, id string) (unlock func(), err error) {
	return s.lock(ctx, s.rows, dirLocks, stripe(id))
}

// lockKey takes the lock of a claim's stripe.
func (s *Store) lockKey(ctx context.Context, claim string) (unlock func(), err error) {
	return s.lock(ctx, s.rows, dirLocks, "k"+stripe(claim))
}

// lockPass takes one of the locks in the ledger's folder itself.
func (s *Store) lockPass(ctx context.Context, name string) (unlock func(), err error) {
	return s.lock(ctx, s.passes, ".", name)
}

func (s *Store) lock(ctx context.Context, set *flock.Set, sub, name string) (func(), error) {
	shared := passWaitOf(ctx)
	longest, err := shared.wait(name, s.lockWait)
	if err != nil {
		return nil, err
	}
	if err := s.ownLocks(); err != nil {
		return nil, fmt.Errorf("ledger: lock: %w", err)
	}
	if ctx.Err() == nil {
		if unlock, ok := set.Try(name); ok {
			return unlock, nil
		}
	}
	if _, bounded := ctx.Deadline(); !bounded || shared != nil {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, longest)
		defer cancel()
	}
	unlock, err := set.Lock(ctx, name)
	if errors.Is(err, fs.ErrNotExist) {
		if err := durable.MkdirAll(s.path(sub), 0o700); err != nil {
			return nil, fmt.Errorf("ledger: lock: %w", err)
		}
		unlock, err = set.Lock(ctx, name)
	}
	var wait *flock.WaitError
	switch {
	case errors.As(err, &wait):
		timeout := &LockTimeoutError{Path: wait.Path, HolderPID: wait.HolderPID, Waited: wait.Waited, Err: wait.Err}
		shared.waited(name, timeout)
		return nil, timeout
	case err != nil:
		return nil, fmt.Errorf("ledger: lock: %w", err)
	}
	return unlock, nil
}
