package ledger

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/sessionledger/ledger/internal/durable"
	"github.com/sessionledger/ledger/internal/procscan"
	"github.com/sessionledger/ledger/internal/runtimes"
	"github.com/sessionledger/ledger/tmux"
)

// LaunchOptions say what is launched, and how. Runtime or Argv is required.
type LaunchOptions struct {
	Runtime string   // registry name; "": the base name of Argv[0]
	Argv    []string // command line; its program is looked up on PATH, outside a shim folder. Nil: the runtime's
	Dir     string   // where it runs; "": this process's folder
	Env     []string // environment, each "NAME=value"; nil: this process's

	// What the row records beside the facts of its process.
	TaskID, Operation, Model, AgentString string
	SessionID                             string // a conversation id that Argv gives the agent
	Window                                string // name of the place in the project; "": none
	ResumedFrom                           string // row whose conversation is taken up

	Name          string        // of the tmux session; "": the ledger id. tmux may change some characters
	Width, Height int           // of the terminal until a client attaches; 0: tmux's own
	Wait          time.Duration // for the agent to come up; 0: 10 s
}

// launchWait is for the carrier to pass its gate and become the agent.
const launchWait = 10 * time.Second

// Launch starts an agent in a tmux server of its own, whose socket lies in the ledger's
// folder, so that no terminal and no other session can take it down. The birth record
// comes first; the pane's command then waits at a gate until its process is on record, and
// becomes the agent under the same pid. The row comes back once the agent runs.
//
// A launch that fails leaves no row behind where nothing ran, and one that asks for
// attention where that is not known. The error is [ErrInvalid] for a command that is not
// there, or says what failed.
func (h *Host) Launch(ctx context.Context, opts LaunchOptions) (Entry, error) {
	l, err := h.prepareLaunch(ctx, opts)
	if err != nil {
		return Entry{}, err
	}
	e, err := h.Store.Create(ctx, l.row, BeginCreate(l.self))
	if err != nil && !isUnsynced(err) {
		return e, err
	}
	l.row = e
	defer func() { h.release(ctx, e.LedgerID, e.Lease.Nonce) }()
	pane, err := l.spawn(ctx)
	if err != nil {
		return e, l.giveUp(ctx, err)
	}
	bound, err := l.bind(ctx, pane)
	if err != nil {
		return e, l.giveUp(ctx, err)
	}
	defer l.closeGate()
	if err := l.openGate(ctx, bound); err != nil {
		return bound, err
	}
	return l.describe(ctx, bound)
}

// launching is one launch on its way.
type launching struct {
	h      *Host
	opts   LaunchOptions
	self   ProcessID
	row    Entry
	argv   []string
	env    []string
	socket string
	pane   tmux.Pane // where it was started; zero until then
	gated  ProcessID // the carrier, which becomes the agent
}

// prepareLaunch resolves everything that can be wrong before anything is written.
func (h *Host) prepareLaunch(ctx context.Context, opts LaunchOptions) (*launching, error) {
	l := &launching{h: h, opts: opts, argv: slices.Clone(opts.Argv)}
	invalid := func(format string, args ...any) error {
		return fmt.Errorf("ledger: launch: %w: "+format, append([]any{ErrInvalid}, args...)...)
	}
	if len(l.argv) == 0 && opts.Runtime == "" {
		return nil, invalid("neither a runtime nor a command")
	}
	if len(l.argv) == 0 {
		spec, _ := h.Store.runtimes.table.Lookup(opts.Runtime)
		program, err := h.Store.findProgram(spec)
		if err != nil {
			return nil, invalid("%v", err)
		}
		l.argv = []string{program}
	}
	program, err := lookPath(l.argv[0], h.Store.runtimes.shims)
	if err != nil {
		return nil, invalid("%v", err)
	}
	if l.argv[0], err = filepath.Abs(program); err != nil {
		return nil, invalid("%v", err)
	}
	runtime := orElse(opts.Runtime, filepath.Base(l.argv[0]))
	dir := opts.Dir
	if dir == "" {
		if dir, err = os.Getwd(); err != nil {
			return nil, fmt.Errorf("ledger: launch: %w", err)
		}
	}
	if info, err := os.Stat(dir); err != nil || !info.IsDir() || !filepath.IsAbs(dir) {
		return nil, invalid("%q is no folder to launch in", dir)
	}
	if l.self, err = h.Store.procs.self(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnknown, err)
	}
	l.env = opts.Env
	if l.env == nil {
		l.env = os.Environ()
	}
	l.row = h.Store.birthRow(ctx, runtime, dir, l.env)
	o := &l.row
	o.TaskID, o.Operation, o.Model, o.AgentString = opts.TaskID, opts.Operation, opts.Model, opts.AgentString
	o.SessionID, o.Window, o.ResumedFrom = opts.SessionID, opts.Window, opts.ResumedFrom
	return l, nil
}

// birthRow is what is known of a session before it has a process: the same facts, from the
// launcher's evidence.
func (s *Store) birthRow(ctx context.Context, runtime, dir string, env []string) Entry {
	e := Entry{Runtime: runtime, Cwd: dir, LauncherPID: os.Getpid(), EnrolledBy: EnrolledByShim}
	p, err := s.chainPass(os.Getpid())
	if err != nil {
		return e
	}
	at := p.place(ctx, dir)
	e.RepoRoot, e.Project, e.Branch, e.Worktree = at.root, at.project, at.branch, clonePtr(at.linked)
	lookup := func(name string) (string, bool) {
		for _, kv := range slices.Backward(env) {
			if v, ok := strings.CutPrefix(kv, name+"="); ok {
				return v, true
			}
		}
		return "", false
	}
	spec, _ := s.runtimes.table.Lookup(runtime)
	e.Account = spec.Account(runtimes.Homes{Home: s.home, Getenv: func(name string) string { v, _ := lookup(name); return v }})
	m := &match{candidate: candidate{carries: carried(lookup)}}
	if id := m.carries.id; isPlainID(id) {
		m.inherited = id
	}
	q, ok := p.snap.Get(os.Getpid())
	if !ok {
		return e
	}
	var above agentAbove
	if i := p.nearestAgent(os.Getpid()); i >= 0 {
		c := p.candidates()[i]
		above.pid, above.name = c.process.PID, c.runtime
		if row, err := s.Find(ctx, Query{Process: c.process}); err == nil {
			above.row = row.LedgerID
		}
	}
	p.describeLauncher(&e, m, q, above, true)
	return e
}

// nearestAgent is the index among the candidates of the session process nearest above pid.
func (p *pass) nearestAgent(pid int) int {
	cs := p.candidates()
	for i := len(cs) - 1; i >= 0; i-- {
		if cs[i].process.PID != pid {
			return i
		}
	}
	return -1
}

// childEnv is the environment of the tmux server: the launcher's, without what belongs to
// the agent that it runs under or to its terminal.
func (l *launching) childEnv() []string {
	unset := runtimes.Unset(l.env)
	return slices.DeleteFunc(slices.Clone(l.env), func(kv string) bool {
		name, _, _ := strings.Cut(kv, "=")
		return slices.Contains(unset, name) || strings.HasPrefix(name, "AGENT_LEDGER_")
	})
}

// spawn starts the carrier in a server of its own.
func (l *launching) spawn(ctx context.Context) (tmux.Pane, error) {
	var err error
	if l.socket, err = l.h.Store.hostSocket(l.row.LedgerID); err != nil {
		return tmux.Pane{}, err
	}
	server := tmux.Server{Socket: l.socket, Env: l.childEnv(), Wrap: l.h.WrapServer}
	l.pane, err = server.NewSession(ctx, tmux.SessionOptions{
		Name: orElse(l.opts.Name, l.row.LedgerID), Window: l.opts.Window, Width: l.opts.Width, Height: l.opts.Height,
		Start: tmux.Start{
			Command: l.h.carrier(l.h.Store.gate(l.row.Lease.Attempt), l.argv),
			Dir:     l.row.Cwd,
			Env:     identityEnv(l.row.LedgerID, l.row.Lease.Attempt),
		},
	})
	pane := l.pane
	if err != nil {
		return pane, fmt.Errorf("ledger: launch: %w", err)
	}
	// The stamp proves the pane, the mark whose operation may act on it.
	_, err = server.Do(ctx, pane.Guard(), tmux.Set(tmux.OptionID, l.row.LedgerID), tmux.Set(tmux.OptionAttempt, l.row.Lease.Attempt))
	if err != nil {
		return pane, fmt.Errorf("ledger: launch: %w", err)
	}
	return pane, nil
}

// identityEnv is how a session's processes know whose they are. The carrier takes the own
// id out before it becomes the agent.
func identityEnv(id, attempt string) []string {
	return []string{envID + "=" + id, envOwnID + "=" + id, envAttempt + "=" + attempt}
}

// hostSocket is the path of a row's dedicated tmux server. A path that is too long for a
// socket moves to the runtime folder.
func (s *Store) hostSocket(id string) (string, error) {
	dir := s.path("sock")
	const maxSocket = 107
	if len(dir)+1+len(id) > maxSocket {
		run := os.Getenv("XDG_RUNTIME_DIR")
		if !filepath.IsAbs(run) {
			return "", fmt.Errorf("ledger: launch: %w: the path %q is too long for a socket, and there is no $XDG_RUNTIME_DIR", ErrInvalid, filepath.Join(dir, id))
		}
		dir = filepath.Join(run, "agent-sessions")
	}
	if err := durable.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("ledger: launch: %w", err)
	}
	return filepath.Join(dir, id), nil
}

// bind puts the carrier's process on record.
func (l *launching) bind(ctx context.Context, pane tmux.Pane) (Entry, error) {
	s := l.h.Store
	process, err := s.procs.identify(pane.PID)
	if err != nil {
		return Entry{}, err
	}
	server, err := s.procs.identify(pane.Server.PID)
	if err != nil {
		return Entry{}, err
	}
	if pane.Server.StartTicks != 0 && server.StartTicks != pane.Server.StartTicks {
		return Entry{}, fmt.Errorf("ledger: launch: %w: the tmux server is another one by now", ErrUnknown)
	}
	l.gated = process
	loc := Location{Mux: Mux{Kind: MuxTmux, Socket: l.socket, Target: pane.Session}, PaneID: pane.ID, PaneServer: server}
	e, _, err := s.Apply(ctx, l.row.LedgerID, Bind(l.row.Lease.Nonce, process, loc))
	if isUnsynced(err) {
		err = nil // on record, and as durable as the disk allows
	}
	return e, err
}

// giveUp settles a birth that failed: nothing may be left that could still start.
func (l *launching) giveUp(ctx context.Context, why error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*tmux.DefaultTimeout)
	defer cancel()
	l.closeGate()
	if server := l.pane.Server; server.PID != 0 {
		// It is this launch's alone, and whatever waits in it.
		if err := (tmux.Server{Socket: l.socket}).KillServer(ctx, server); err != nil {
			why = errors.Join(why, err)
		}
	}
	_, err := l.h.reconcileRow(ctx, l.row.LedgerID, ReconcileOptions{nonce: l.row.Lease.Nonce, Grace: -1})
	return errors.Join(why, err)
}

// describe waits until the carrier has become the agent, and records what its process then
// shows of it.
func (l *launching) describe(ctx context.Context, e Entry) (Entry, error) {
	s := l.h.Store
	p, err := l.awaitAgent(ctx)
	if err != nil {
		return e, err
	}
	facts, _ := p.describe(ctx, s.procs, &match{candidate: candidate{process: l.gated, runtime: e.Runtime}}, agentAbove{}, s.LookUpPane)
	described, err := s.Update(ctx, e.LedgerID, func(e *Entry) error {
		if !e.Process().Same(l.gated) {
			return nil // it has gone on without us
		}
		e.TTY, e.Cgroup, e.CPUTicks, e.ProcessDescribedAt = facts.TTY, facts.Cgroup, facts.CPUTicks, facts.ProcessDescribedAt
		return nil
	}, Relaxed())
	if err != nil {
		return e, nil // the next sweep describes it
	}
	return described, nil
}

// awaitAgent waits until the gated process runs another command line than the carrier's.
func (l *launching) awaitAgent(ctx context.Context) (*pass, error) {
	s := l.h.Store
	ctx, cancel := context.WithTimeout(ctx, orDefault(l.opts.Wait, launchWait))
	defer cancel()
	gate := s.gate(l.row.Lease.Attempt)
	for {
		p, err := s.chainPass(l.gated.PID)
		if errors.Is(err, procscan.ErrGone) {
			return nil, fmt.Errorf("ledger: launch %q: %w: it ended at once", l.row.LedgerID, ErrIllegal)
		}
		if err == nil {
			q, ok := p.snap.Get(l.gated.PID)
			switch {
			case !ok || q.Start != l.gated.StartTicks || q.Gone():
				return nil, fmt.Errorf("ledger: launch %q: %w: it ended at once", l.row.LedgerID, ErrIllegal)
			case !slices.Contains(q.Args, gate):
				return p, nil
			}
		}
		// An exec gives no notice, so this polls; it takes a few milliseconds.
		select {
		case <-time.After(2 * time.Millisecond):
		case <-ctx.Done():
			return nil, fmt.Errorf("ledger: launch %q: %w: its carrier did not start it: %w", l.row.LedgerID, ErrUnknown, ctx.Err())
		}
	}
}
