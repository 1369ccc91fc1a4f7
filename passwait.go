package ledger

import (
	"context"
	"sync"
	"time"
)

// passWait bounds what one pass waits for locks, all of them together, and remembers those
// that were not to be had: a stopped holder then costs a pass one short wait, and not one
// for each row of its stripe.
type passWait struct {
	mu   sync.Mutex
	left time.Duration
	busy map[string]error // by the lock's name
}

const (
	passLockWait  = 3 * time.Second        // of a pass
	oneLockWait   = 500 * time.Millisecond // for one lock
	leastLockWait = 20 * time.Millisecond  // for one lock once the pass has none left: a holder at work needs no more
)

type passWaitKey struct{}

// withPassWait makes all locks that are taken under the context share one wait.
func withPassWait(ctx context.Context) context.Context { return withLockWait(ctx, passLockWait) }

// withLockWait is withPassWait with another wait.
func withLockWait(ctx context.Context, all time.Duration) context.Context {
	return context.WithValue(ctx, passWaitKey{}, &passWait{left: all, busy: map[string]error{}})
}

// passWaitOf returns the context's, or nil, which waits as it was told.
func passWaitOf(ctx context.Context) *passWait {
	p, _ := ctx.Value(passWaitKey{}).(*passWait)
	return p
}

// wait returns how long to wait for a lock. The error is that of an earlier wait in vain.
func (p *passWait) wait(name string, otherwise time.Duration) (time.Duration, error) {
	if p == nil {
		return otherwise, nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return max(leastLockWait, min(oneLockWait, p.left)), p.busy[name]
}

// waited notes a wait in vain.
func (p *passWait) waited(name string, err *LockTimeoutError) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.left -= err.Waited
	p.busy[name] = err
}
