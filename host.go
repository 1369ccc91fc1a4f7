package ledger

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sessionledger/ledger/tmux"
)

// Host does what takes more than the record of a session: it starts and ends processes,
// and will not leave a session in doubt when it is interrupted. Only Store is needed; its
// other members serve sessions in a multiplexer.
//
// Every method is a coordinator: it holds the lease of its operation while it acts, gives
// it back when it returns early, and leaves what a crash interrupts to [Host.Reconcile].
type Host struct {
	Store *Store

	// Carrier is the command that waits at a gate and then becomes the agent: it is called
	// with the gate's path and the agent's command line. It must stay the same process, wait
	// until the file holds its own pid and a newline, take AGENT_LEDGER_OWN_ID out of the
	// environment, and give up after a bounded time. tmux takes a command line of 16 KiB at
	// most, which a prompt can exceed. Nil: a few lines of sh, for which any command will do.
	Carrier []string
	// Servers are a person's own tmux servers, beside those that rows name: see
	// [Options.Servers], which holds for everything that the store does.
	Servers []tmux.Server
	// WrapServer rewrites the command line that starts a session's tmux server, to place it
	// in a slice, scope or container of its own. Nil: as it is.
	WrapServer func(argv []string) []string
	// ServerConfig is the tmux configuration file of the servers that Launch starts, read
	// before the options of hosted servers are set. "": none. A person's own file is never
	// read by itself: it can start programs, open sessions beside the agent's, or end a
	// session that nobody is attached to.
	ServerConfig string

	step func(name string) // called after each step of a launch; nil but in tests
}

// after tells a test which step is done.
func (h *Host) after(step string) {
	if h.step != nil {
		h.step(step)
	}
}

// releaseWait bounds the clean-up after a context has ended.
const releaseWait = 2 * time.Second

// begin starts an operation of this process on a row. A stale operation in the way is
// settled first. release gives the lease back unless the operation was ended: defer it. It
// is nil beside an error, and no lease is then held.
func (h *Host) begin(ctx context.Context, id string, ev func(owner ProcessID) Event) (e Entry, release func(), err error) {
	self, err := h.Store.procs.self()
	if err != nil {
		return Entry{}, nil, fmt.Errorf("%w: %w", ErrUnknown, err)
	}
	for try := 0; ; try++ {
		e, _, err = h.Store.Apply(ctx, id, ev(self))
		switch {
		case err == nil:
			return e, func() { h.release(ctx, id, e.Lease.Nonce) }, nil
		case isUnsynced(err):
			// The lease stands, and would for as long as this process runs.
			h.release(ctx, id, e.Lease.Nonce)
			return e, nil, err
		}
		if !errors.Is(err, ErrLeaseHeld) || try > 0 {
			return e, nil, err
		}
		if _, settleErr := h.reconcileRow(ctx, id, ReconcileOptions{}); settleErr != nil {
			return e, nil, errors.Join(err, settleErr)
		}
	}
}

// release gives a lease back. It is no failure where the operation is over.
func (h *Host) release(ctx context.Context, id, nonce string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseWait)
	defer cancel()
	_, _, err := h.Store.Apply(ctx, id, Release(nonce))
	if err != nil && !errors.Is(err, ErrStaleNonce) && !errors.Is(err, ErrIllegal) && !errors.Is(err, ErrNotFound) {
		h.Store.logger.Warn("lease not given back", "session", id, "error", err)
	}
}
