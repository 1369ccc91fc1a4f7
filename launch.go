package ledger

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/sessionledger/ledger/internal/durable"
	"github.com/sessionledger/ledger/internal/folder"
	"github.com/sessionledger/ledger/tmux"
)

const (
	// launchWait is for the carrier to pass its gate and become the agent.
	launchWait = 10 * time.Second
	// carrierWait is for the pane's process to start the carrier.
	carrierWait = 5 * time.Second
)

// hostOptions make a hosted session as much as possible like an agent in a terminal of its
// own: no line of the screen for tmux, its long scrollback under the mouse wheel, no delay
// of the escape key. The pane ends with its agent, and the session does not end because
// nobody looks at it.
var hostOptions = [][2]string{
	{"history-limit", "50000"},
	{"status", "off"},
	{"mouse", "on"},
	{"escape-time", "10"},
	{"focus-events", "on"},
	{"remain-on-exit", "off"},
	{"destroy-unattached", "off"},
	{"exit-empty", "on"},
}

// Launch starts an agent in a tmux server of its own, whose socket lies in the ledger's
// folder, so that no terminal and no other session can take it down. (Where that path is too
// long for a socket it lies in $XDG_RUNTIME_DIR/agent-sessions.) The birth record
// comes first; the pane's command then waits at a gate until its process is on record, and
// becomes the agent under the same pid. The row comes back once the agent runs.
//
// The agent's environment names the ledger ($AGENT_SESSIONS_DIR), the row and the attempt.
// Which conversation the agent is in is known from its hooks (see [InstallHooks]) or from
// a [Sweep] while it runs: a session that dies before either cannot be resumed.
//
// A launch that fails leaves no row behind where nothing ran, and then returns none; one
// that could not be told from a start leaves a row that asks for attention; an agent that
// ended at once leaves its row, which comes back with the error. The error is
// [ErrInvalid] for a command or folder that is not there, what is no session, or a path that
// is too long for a socket without $XDG_RUNTIME_DIR,
// [ErrConversationHeld] where SessionID, or the conversation of ResumedFrom, is another
// session's or that one runs, [ErrNotFound] for a ResumedFrom that is no row,
// [ErrKillIntended] where the session was killed meanwhile, or says what failed.
func (h *Host) Launch(ctx context.Context, opts LaunchOptions) (Entry, error) {
	l, err := h.prepareLaunch(ctx, opts)
	if err != nil {
		return Entry{}, err
	}
	e, err := h.Store.Create(ctx, h.Store.birthRow(ctx, l.launchable), BeginCreate(l.self))
	if e.LedgerID == "" {
		return Entry{}, err
	}
	l.row = e
	h.after("born")
	defer func() { h.release(ctx, e.LedgerID, e.Lease.Nonce) }()
	if err != nil && !isUnsynced(err) {
		return l.giveUp(ctx, err)
	}
	if err := l.aloneInResuming(ctx); err != nil {
		return l.giveUp(ctx, err)
	}
	if err := l.spawn(ctx); err != nil {
		return l.giveUp(ctx, err)
	}
	h.after("stamped")
	if err := l.bind(ctx); err != nil {
		return l.giveUp(ctx, err)
	}
	h.after("bound")
	if err := l.start(ctx); err != nil {
		return l.undo(ctx, err)
	}
	h.after("started")
	now, err := l.described(context.WithoutCancel(ctx))
	if err == nil && !now.KillIntentAt.IsZero() {
		return l.undo(ctx, fmt.Errorf("ledger: launch: %w", ErrKillIntended)) // by somebody who did not wait for the birth
	}
	return now, err
}

// launching is one launch on its way.
type launching struct {
	*launchable
	h      *Host
	self   ProcessID
	row    Entry
	socket string
	pane   tmux.Pane // where it was started; zero until then
	gated  ProcessID // the carrier, which becomes the agent
	agent  *pass     // what its process shows once it is the agent
}

// prepareLaunch resolves everything that can be wrong before anything is written.
func (h *Host) prepareLaunch(ctx context.Context, opts LaunchOptions) (*launching, error) {
	one, err := h.lookThrough(opts)
	if err != nil {
		return nil, err
	}
	if one.lost != nil {
		return nil, one.lost
	}
	if one.service {
		return nil, fmt.Errorf("ledger: launch: %w: %s %s is no session", ErrInvalid, one.runtime, one.argv[1])
	}
	l := &launching{launchable: one, h: h}
	if l.self, err = h.Store.procs.self(); err != nil {
		return nil, fmt.Errorf("ledger: launch: %w: %w", ErrUnknown, err)
	}
	id, err := NewID(l.runtime, h.Store.now())
	if err != nil {
		return nil, fmt.Errorf("ledger: launch: %w", err)
	}
	if _, err := h.Store.hostSocket(id); err != nil { // as long as the id to come
		return nil, err
	}
	if c := opts.SessionID; c != "" {
		by, err := h.Store.conversationRow(ctx, l.runtime, c)
		if err != nil {
			return nil, err
		}
		if by != "" {
			return nil, fmt.Errorf("ledger: launch: %w: %q by %q", ErrConversationHeld, c, by)
		}
	}
	if id := opts.ResumedFrom; id != "" {
		old, err := h.Store.Get(ctx, id)
		if err != nil {
			return nil, err
		}
		if old.IsOpen() && h.Store.sessionVerdict(ctx, &old) == Running {
			return nil, fmt.Errorf("ledger: launch: %w: %q runs", ErrConversationHeld, id)
		}
	}
	return l, nil
}

// conversationRow is the row that holds a conversation; "" is none.
func (s *Store) conversationRow(ctx context.Context, runtime, id string) (string, error) {
	if err := s.completeClaims(ctx); err != nil && !isReadOnly(err) {
		return "", err
	}
	return s.holder(conversationClaim(runtime, id))
}

// spawn starts the carrier in a server of its own.
func (l *launching) spawn(ctx context.Context) error {
	s := l.h.Store
	var err error
	if l.socket, err = s.hostSocket(l.row.LedgerID); err != nil {
		return err
	}
	if err := s.makeHostDir(filepath.Dir(l.socket)); err != nil {
		return fmt.Errorf("ledger: launch: %w", err)
	}
	server := tmux.Server{Socket: l.socket, Env: l.childEnv(), Wrap: l.h.WrapServer, Config: cmp.Or(l.h.ServerConfig, os.DevNull)}
	rest, err := l.h.layCommand(l.row.Lease.Attempt, l.argv)
	if err != nil {
		return fmt.Errorf("ledger: launch: %w", err)
	}
	o := &l.opts
	l.pane, err = server.NewSession(ctx, tmux.SessionOptions{
		Name: cmp.Or(o.Name, l.row.LedgerID), Window: o.Window, Width: o.Width, Height: o.Height,
		Start:   tmux.Start{Command: l.h.carrier(l.row.LedgerID, l.row.Lease.Attempt, rest), Dir: l.row.Cwd},
		Options: hostOptions,
	})
	if err != nil {
		return fmt.Errorf("ledger: launch: %w", err)
	}
	l.h.after("spawned")
	// The stamp proves the pane, the mark whose operation may act on it.
	_, err = server.Do(ctx, l.pane.Guard(), tmux.Set(tmux.OptionID, l.row.LedgerID), tmux.Set(tmux.OptionAttempt, l.row.Lease.Attempt))
	if err != nil {
		return fmt.Errorf("ledger: launch: %w", err)
	}
	return nil
}

// hostSocket is the path of a row's dedicated tmux server. A path that is too long for a
// socket moves to the user's runtime folder.
func (s *Store) hostSocket(id string) (string, error) {
	const longest = 107
	path := s.path("sock", id)
	if len(path) <= longest {
		return path, nil
	}
	far := farDir()
	if far == "" {
		return "", fmt.Errorf("ledger: launch: %w: the path %q is too long for a socket, and there is no $XDG_RUNTIME_DIR", ErrInvalid, path)
	}
	if path = filepath.Join(far, id); len(path) > longest {
		return "", fmt.Errorf("ledger: launch: %w: the path %q is too long for a socket", ErrInvalid, path)
	}
	return path, nil
}

// farDir is where sockets lie whose path under the root would be too long; "": nowhere.
func farDir() string {
	run := os.Getenv("XDG_RUNTIME_DIR")
	if !filepath.IsAbs(run) {
		return ""
	}
	return filepath.Join(run, "agent-sessions")
}

// makeHostDir makes the folder of sockets: whoever can write to it could put a server of
// his own behind one.
func (s *Store) makeHostDir(dir string) error {
	if err := durable.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	return folder.Secure(dir)
}

// bind puts the carrier's process on record, and the conversation that it is given.
func (l *launching) bind(ctx context.Context) error {
	s := l.h.Store
	loc := Location{Mux: Mux{Kind: MuxTmux, Socket: l.socket, Target: l.pane.Session}}
	var err error
	if l.gated, loc.PaneServer, err = l.findCarrier(ctx); err != nil {
		return err
	}
	if !loc.PaneServer.IsZero() {
		loc.PaneID = l.pane.ID
	}
	e, _, err := s.Apply(ctx, l.row.LedgerID, Bind(l.row.Lease.Nonce, l.gated, loc))
	if err != nil && !isUnsynced(err) {
		return err
	}
	lease := l.row.Lease
	l.row = e
	l.row.Lease = lease // what the attempt was
	return nil
}

// findCarrier identifies the process in the pane by the attempt in its environment: the
// pid that tmux tells is another process's where the server was put into a container, so
// that now and then the whole table is looked through. The server is zero there.
func (l *launching) findCarrier(ctx context.Context) (carrier, server ProcessID, err error) {
	s, attempt := l.h.Store, l.row.Lease.Attempt
	ctx, cancel := context.WithTimeout(ctx, carrierWait)
	defer cancel()
	for try := 1; ; try++ {
		p, err := s.chainPass(l.pane.PID)
		if err == nil {
			env, envErr := p.snap.Environ(l.pane.PID)
			if v, _ := env.Lookup(envAttempt); envErr == nil && v == attempt {
				q, _ := p.snap.Get(l.pane.PID)
				carrier = p.identity(q)
			}
		}
		if carrier.IsZero() && try%16 == 0 {
			if p, err = s.newPass(ctx); err == nil {
				if _, found, atGate := p.attempt(attempt); atGate {
					carrier = found
				}
			}
		}
		if !carrier.IsZero() {
			for above := range p.snap.Ancestors(carrier.PID) {
				if above.PID == l.pane.Server.PID && isTmuxServer(above) {
					server = p.identity(above)
				}
			}
			return carrier, server, nil
		}
		if pause(ctx, lookPause) != nil {
			return carrier, server, fmt.Errorf("ledger: launch: %w: the pane's process %d does not carry the attempt", ErrUnknown, l.pane.PID)
		}
	}
}

// lookPause is between two looks at what gives no notice, such as an exec.
const lookPause = 3 * time.Millisecond

// pause waits, or says why the wait ended early.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// start lets the carrier through its gate, and waits until it has become the agent.
func (l *launching) start(ctx context.Context) error {
	defer l.h.Store.closeGate(l.row.Lease.Attempt)
	if err := l.h.claimGiven(ctx, l.row.LedgerID, l.launchable); err != nil {
		return err
	}
	if err := l.openGate(ctx); err != nil {
		return err
	}
	l.h.after("opened")
	// Behind its gate it is the agent, which may have spoken to the ledger already: who
	// interrupts the launch now does not take that back.
	return l.awaitAgent(context.WithoutCancel(ctx))
}

// errEnded says that an agent ran and is gone again: it is no launch that failed.
var errEnded = errors.New("it ended at once")

// awaitAgent waits until the gated process runs another command line than the carrier's.
func (l *launching) awaitAgent(ctx context.Context) error {
	s := l.h.Store
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(l.opts.Wait, launchWait))
	defer cancel()
	gate := s.gate(l.row.Lease.Attempt)
	for {
		p, err := s.chainPass(l.gated.PID)
		if isGone(err) {
			return errEnded
		}
		if err == nil {
			q, ok := p.snap.Get(l.gated.PID)
			switch {
			case !ok || q.Start != l.gated.StartTicks || q.Gone():
				return errEnded
			case len(q.Args) > 0 && !slices.Contains(q.Args, gate):
				l.agent = p
				return nil
			}
		}
		if err := pause(ctx, lookPause); err != nil {
			return fmt.Errorf("%w: its carrier did not start it: %w", ErrUnknown, err)
		}
	}
}

// described records what the agent's own process shows beside the birth's facts.
func (l *launching) described(ctx context.Context) (Entry, error) {
	s := l.h.Store
	m := &match{candidate: candidate{process: l.gated, runtime: l.runtime}}
	facts, _ := l.agent.describe(ctx, s.procs, m, agentAbove{}, nil)
	e, err := s.Update(ctx, l.row.LedgerID, func(e *Entry) error {
		if !e.Process().Same(l.gated) {
			return nil // it has gone on without us
		}
		e.TTY, e.Cgroup, e.CPUTicks, e.ProcessDescribedAt = facts.TTY, facts.Cgroup, facts.CPUTicks, facts.ProcessDescribedAt
		return nil
	}, Relaxed())
	if err != nil {
		return s.Get(ctx, l.row.LedgerID) // the next sweep describes it
	}
	return e, nil
}

// giveUpTries is how often the process table is looked at again.
const giveUpTries = 100

// giveUp settles a birth that was not bound: nothing may be left that could still start.
// The row comes back if it had to stay.
func (l *launching) giveUp(ctx context.Context, why error) (Entry, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*tmux.DefaultTimeout)
	defer cancel()
	why = errors.Join(why, l.endServer(ctx))
	for try := 0; ; try++ {
		_, err := l.h.reconcileRow(ctx, l.row.LedgerID, ReconcileOptions{nonce: l.row.Lease.Nonce, Grace: -1})
		e, getErr := l.h.Store.Get(ctx, l.row.LedgerID)
		switch {
		case errors.Is(getErr, ErrNotFound):
			return Entry{}, why
		case getErr == nil && e.Lease == nil:
			return e, why
		case err != nil && !errors.Is(err, ErrUnknown) && !errors.Is(err, ErrIllegal), getErr != nil, try == giveUpTries:
			return e, errors.Join(why, err)
		}
		// A process that was just starting a program could not be read, or its end was not
		// seen yet.
		if pause(ctx, lookPause) != nil {
			return e, why
		}
	}
}

// endServer ends the server that the launch has started: it is this launch's alone, with
// whatever waits in it.
func (l *launching) endServer(ctx context.Context) error {
	l.h.Store.closeGate(l.row.Lease.Attempt)
	if l.pane.Server.PID == 0 {
		return nil
	}
	if err := (tmux.Server{Socket: l.socket}).KillServer(ctx, l.pane.Server); err != nil {
		return err
	}
	if err := os.Remove(l.socket); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// undo settles a launch that is on record and came to nothing: the row ends with the proof
// that its process has.
func (l *launching) undo(ctx context.Context, why error) (Entry, error) {
	s, id := l.h.Store, l.row.LedgerID
	why = fmt.Errorf("ledger: launch %q: %w", id, why)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*tmux.DefaultTimeout)
	defer cancel()
	if !errors.Is(why, errEnded) {
		if err := l.endServer(ctx); err != nil {
			why = errors.Join(why, err)
		}
		if err := s.procs.end(ctx, func() ([]ProcessID, error) { return []ProcessID{l.gated}, nil }, EndOptions{}); err != nil {
			why = errors.Join(why, err)
		} else if _, _, err := s.Apply(ctx, id, Finish(l.gated.Key(), "it could not be started")); err != nil && !isUnsynced(err) {
			why = errors.Join(why, err)
		}
	}
	e, err := s.Get(ctx, id)
	return e, errors.Join(why, err)
}
