package ledger

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/sessionledger/ledger/internal/procscan"
)

// KillOptions say how a session is killed. The zero value is the default.
type KillOptions struct {
	Reason string // recorded as the session's end; "": killed
	Force  bool   // take a lease that another operation holds: only for a person's own kill
	End    EndOptions
}

// Killed says what a [Host.Kill] did.
type Killed struct {
	Entry Entry
	// Near are processes of no session that still sit in the session's folder: not the tmux
	// server that was started for it, nor what that runs without a terminal, nor the caller
	// and its ancestors. They are reported and never touched.
	Near []ProcessID
	// Unrescued is why its uncommitted work could not be rescued; nil where it was, or there
	// was none. [Rescue] can do it later.
	Unrescued error
}

// Kill finishes a session for good. The tombstone comes first and outlives every failure:
// from then on nothing restores the session, and a later reconcile finishes what was
// interrupted. Then its processes are ended by identity (HUP, TERM, KILL, each with a
// bounded wait), those too that carry the session's id without being a session of their
// own, or working for one; its uncommitted work is rescued; and the row is finished, on proof alone. A kill
// that was interrupted is taken over once its lease is stale, and goes on.
//
// Before anything is written the error is [ErrUnknown] for a session whose processes
// cannot be judged from here (of another host or pid namespace), [ErrIllegal] for one that
// is over or whose terminal this process is in, which ends with it, and otherwise that of [Store.Apply]. Once the tombstone is there it is
// [ErrLeaseHeld] while another operation is in flight (see Force), or [ErrUnfinished], in
// an [UnfinishedKillError]: the row then stays, tombstoned.
func (h *Host) Kill(ctx context.Context, id string, opts KillOptions) (Killed, error) {
	e, err := h.Store.Get(ctx, id)
	if err != nil {
		return Killed{Entry: e}, err
	}
	switch {
	case !e.IsOpen():
		return Killed{Entry: e}, fmt.Errorf("ledger: kill %q: %w: it is over", id, ErrIllegal)
	case h.Store.endsWith(&e):
		return Killed{Entry: e}, fmt.Errorf("ledger: kill %q: %w: it is the session of this very terminal, which would end before the kill is done: call it from another one, or detached (setsid)", id, ErrIllegal)
	}
	if why := h.Store.outOfSight(&e); why != "" {
		return Killed{Entry: e}, fmt.Errorf("ledger: kill %q: %w: %s", id, ErrUnknown, why)
	}
	e, _, err = h.Store.Apply(ctx, id, IntendKill())
	if err != nil {
		return Killed{Entry: e}, err
	}
	e, release, err := h.beginKill(ctx, e, opts.Force)
	switch {
	case err == nil:
		defer release()
		return h.kill(ctx, e, opts)
	case errors.Is(err, ErrLeaseHeld):
		return Killed{Entry: e}, err
	case errors.Is(err, ErrNotFound):
		return Killed{Entry: e}, nil // a birth that came to nothing, and was settled
	case errors.Is(err, ErrIllegal):
		// Settling what was in the way has followed the tombstone to its end.
		if now, getErr := h.Store.Get(ctx, id); getErr == nil && now.Phase == PhaseFinished {
			return Killed{Entry: now}, nil
		}
	}
	return Killed{Entry: e}, &UnfinishedKillError{ID: id, Err: err}
}

// endsWith reports whether this process's terminal ends with a session's process, which is
// the first one on its own, as in a pane: it is the same, or one that was opened below that
// process, by script(1) or an editor.
func (s *Store) endsWith(e *Entry) bool {
	pid := os.Getpid()
	p, err := s.chainPass(pid)
	if err != nil {
		return false
	}
	me, ok := p.snap.Get(pid)
	if !ok || me.TTY == 0 {
		return false
	}
	var below procscan.Proc // the session's, once it was met
	for above := range p.snap.Ancestors(pid) {
		switch {
		case below.PID != 0:
			return below.TTY != above.TTY
		case p.identity(above).Same(e.Process()):
			if below = above; below.TTY == 0 {
				return false
			}
		}
	}
	return below.PID != 0
}

// outOfSight says why nothing can be said here of a row's processes; "" is that something
// can.
func (s *Store) outOfSight(e *Entry) string {
	here, err := s.procs.here()
	if err != nil {
		return "this machine cannot be identified: " + err.Error()
	}
	recorded := []ProcessID{{HostID: e.HostID, BootID: e.BootID, PIDNamespace: e.PIDNamespace, TimeNamespace: e.TimeNamespace}}
	if e.Restore != nil && !e.Restore.Launched.IsZero() {
		recorded = append(recorded, e.Restore.Launched)
	}
	for _, p := range recorded {
		switch {
		case p.HostID != "" && p.HostID != here.HostID,
			p.BootID == here.BootID && p.PIDNamespace != 0 && p.PIDNamespace != here.PIDNamespace,
			p.BootID == here.BootID && p.TimeNamespace != 0 && p.TimeNamespace != here.TimeNamespace:
			return unknownProcess(p, here)
		}
	}
	return ""
}

// beginKill gets the lease of a kill: of one that was interrupted, or of a new one.
func (h *Host) beginKill(ctx context.Context, e Entry, force bool) (Entry, func(), error) {
	id := e.LedgerID
	if e.Lease != nil && e.Lease.Op == OpKill {
		after, release, err := h.takeOverKill(ctx, e)
		if !errors.Is(err, ErrLeaseHeld) && !errors.Is(err, ErrConflict) && !errors.Is(err, ErrIllegal) {
			return after, release, err
		}
	}
	e, release, err := h.begin(ctx, id, BeginKill)
	if errors.Is(err, ErrLeaseHeld) && force {
		e, release, err = h.seize(ctx, id)
	}
	if e.LedgerID == "" {
		e.LedgerID = id
	}
	return e, release, err
}

// takeOverKill takes the lease of a kill whose owner has left it.
func (h *Host) takeOverKill(ctx context.Context, e Entry) (Entry, func(), error) {
	self, err := h.Store.procs.self()
	if err != nil {
		return e, nil, fmt.Errorf("%w: %w", ErrUnknown, err)
	}
	after, out, err := h.Store.Apply(ctx, e.LedgerID, TakeOver(self).AtEpoch(e.Epoch))
	release := func() { h.release(ctx, after.LedgerID, after.Lease.Nonce) }
	switch {
	case isUnsynced(err):
		release()
		return after, nil, err
	case err != nil:
		return after, nil, err
	case out != Applied:
		return after, nil, ErrConflict
	}
	return after, release, nil
}

// kill carries out a kill whose lease this process holds.
func (h *Host) kill(ctx context.Context, e Entry, opts KillOptions) (Killed, error) {
	nonce := e.Lease.Nonce
	done := Killed{Entry: e}
	if err := h.Store.procs.end(ctx, func() ([]ProcessID, error) { return h.Store.processesOf(ctx, &e) }, opts.End); err != nil {
		return done, h.abortKill(ctx, &done, false, err)
	}
	done.Near = h.Store.near(ctx, &e)
	if err := h.rescueBeforeEnd(ctx, &e); rescueIsHopeless(err) {
		done.Unrescued = err
	} else if err != nil {
		return done, h.abortKill(ctx, &done, true, err)
	}
	commit := CommitKill(nonce)
	commit.Reason = opts.Reason
	after, err := h.Store.applyOnceSeen(ctx, e.LedgerID, commit)
	if err != nil && !isUnsynced(err) {
		return done, h.abortKill(ctx, &done, true, err)
	}
	done.Entry = after
	return done, err
}

// applyOnceSeen applies an event whose guards may have to look twice: a process that is just
// starting another program hides its environment for some milliseconds.
func (s *Store) applyOnceSeen(ctx context.Context, id string, ev Event) (Entry, error) {
	const tries, wait = 20, 100 * time.Millisecond
	for try := 1; ; try++ {
		e, _, err := s.Apply(ctx, id, ev)
		if !errors.Is(err, ErrUnknown) || try == tries {
			return e, err
		}
		if pause(ctx, wait) != nil {
			return e, err
		}
	}
}

// abortKill ends the operation and keeps the tombstone. It returns why, and what was done.
func (h *Host) abortKill(ctx context.Context, done *Killed, ended bool, why error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseWait)
	defer cancel()
	e, _, err := h.Store.Apply(ctx, done.Entry.LedgerID, AbortKill(done.Entry.Lease.Nonce))
	if err != nil {
		why = errors.Join(why, err)
	} else {
		done.Entry = e
	}
	return &UnfinishedKillError{ID: done.Entry.LedgerID, Ended: ended, Err: why}
}

// seize takes the lease of whatever is in flight, for a person's kill, and turns it into
// a kill: what the other operation had begun is settled as its table says.
func (h *Host) seize(ctx context.Context, id string) (Entry, func(), error) {
	self, err := h.Store.procs.self()
	if err != nil {
		return Entry{}, nil, fmt.Errorf("%w: %w", ErrUnknown, err)
	}
	e, _, err := h.Store.Apply(ctx, id, ForceTakeOver(self))
	if isUnsynced(err) {
		h.release(ctx, id, e.Lease.Nonce)
	}
	if err != nil {
		return e, nil, err
	}
	if e.Lease.Op == OpKill {
		return e, func() { h.release(ctx, id, e.Lease.Nonce) }, nil
	}
	// The waits of a reconcile are for owners that may come back; this one was sent away.
	_, err = h.reconcileRow(ctx, id, ReconcileOptions{nonce: e.Lease.Nonce, Grace: -1, AckGrace: -1})
	h.release(ctx, id, e.Lease.Nonce)
	if err != nil {
		return e, nil, err
	}
	return h.begin(ctx, id, BeginKill)
}

// processesOf lists the processes that end with a session: its recorded and its launched
// one, and whatever carries its id or its attempt, but sessions with a row of their own,
// what works for those, and this very process. An environment that cannot be read hides a process that is not
// the session's: what proves its end is asked separately.
func (s *Store) processesOf(ctx context.Context, e *Entry) ([]ProcessID, error) {
	me, err := s.procs.self()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnknown, err)
	}
	p, err := s.newPass(ctx)
	if err != nil {
		return nil, err
	}
	list := []ProcessID{e.Process()}
	if e.Restore != nil {
		list = append(list, e.Restore.Launched)
	}
	spared := map[int]Answer{} // by pid: whether it is a session of another row
	ofAnother := func(id ProcessID) bool {
		known, ok := spared[id.PID]
		if !ok {
			known = s.claimedByOther(e, processClaim(id))
			spared[id.PID] = known
		}
		return known != No
	}
	carriers, _ := p.carrying(envID, e.LedgerID)
	if e.Lease != nil {
		bearers, _ := p.carrying(envAttempt, e.Lease.Attempt)
		carriers = append(carriers, bearers...)
	}
	carries := func(id ProcessID) bool { return slices.ContainsFunc(carriers, id.Same) }
	for _, c := range carriers {
		q, ok := p.snap.Get(c.PID)
		if !ok || c.Same(me) || isTmuxServer(q) {
			continue // a server may hold a person's other sessions; what it runs for this one is listed
		}
		if !ofAnother(c) && !p.belowAnother(c, e.Process(), func(id ProcessID) bool { return carries(id) && ofAnother(id) }) {
			list = append(list, c)
		}
	}
	return list, nil
}

// belowAnother reports whether a process works for an agent between it and the session's own
// process for which ofAnother holds: that one's tools inherit the session's id.
func (p *pass) belowAnother(c, own ProcessID, ofAnother func(ProcessID) bool) bool {
	cs := p.candidates()
	for above := range p.snap.Ancestors(c.PID) {
		if p.identity(above).Same(own) {
			return false
		}
		if i, isAgent := p.at[above.PID]; isAgent && ofAnother(cs[i].process) {
			return true
		}
	}
	return false
}

// near lists the processes that still sit in the session's folder. The tmux server that was
// started for the session is no stranger there: it ends with its last pane. Neither are its
// children without a terminal, as that which takes a pane out of utmp: no pane's process is.
func (s *Store) near(ctx context.Context, e *Entry) (near []ProcessID) {
	p, err := s.newPass(ctx)
	if err != nil || e.Cwd == "" {
		return nil
	}
	caller := []int{os.Getpid()} // and what it was started by: a person's shell, as a rule
	for q := range p.snap.Ancestors(os.Getpid()) {
		caller = append(caller, q.PID)
	}
	isServer := func(pid int) bool {
		q, ok := p.snap.Get(pid)
		return ok && p.identity(q).Same(e.PaneServer)
	}
	hosted := e.Mux.Socket != "" && e.Mux.Socket == p.dedicatedSocket(e.LedgerID)
	for q := range p.snap.All() {
		if cwd, err := p.snap.Cwd(q.PID); err != nil || cwd != e.Cwd || q.Gone() || slices.Contains(caller, q.PID) {
			continue
		}
		if hosted && (isServer(q.PID) || q.TTY == 0 && isServer(q.PPID)) {
			continue
		}
		near = append(near, p.identity(q))
	}
	return near
}
