package ledger

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/sessionledger/ledger/internal/gitcmd"
	"github.com/sessionledger/ledger/internal/procscan"
	"github.com/sessionledger/ledger/internal/runtimes"
)

// paneLookup asks the tmux server behind socket, whose process is serverPID, in which of
// its panes one of the processes panePIDs was started. ok is false where the server could
// not be asked, is another process by now, or has no such pane: nothing is then known.
type paneLookup func(ctx context.Context, socket string, serverPID int, panePIDs []int) (session, window, pane string, ok bool)

// agentAbove is what the agents above a session are.
type agentAbove struct {
	row  string // ledger id of the nearest that has a row; "": none has
	name string // runtime of the nearest
	pid  int    // its pid; 0: there is none
}

// describe gathers what is known of one session process of the pass: the one set of facts
// that the launcher, the hook and the sweep write. Each comes from its own evidence; what
// has none stays zero.
//
// What moves by events alone, process and location, comes beside the entry.
func (p *pass) describe(ctx context.Context, procs *table, m *match, above agentAbove, panes paneLookup) (Entry, Location) {
	pid := m.process.PID
	q, ok := p.snap.Get(pid)
	if !ok {
		return Entry{}, Location{}
	}
	env, envErr := p.snap.Environ(pid)
	cgroup, _ := p.snap.Cgroup(pid)
	ticks := q.Ticks
	e := Entry{
		Runtime: m.runtime, TTY: ttyName(q.TTY), Cgroup: cgroup,
		CPUTicks: &ticks, ProcessDescribedAt: p.taken,
	}
	e.Host, _ = os.Hostname()
	if at, err := procs.sys.StartTime(q.Start); err == nil {
		e.StartedAt = at.UTC().Truncate(time.Second)
	}
	// The folder of a process is there by its path also when it was removed meanwhile.
	if cwd, err := p.snap.Cwd(pid); (err == nil || errors.Is(err, procscan.ErrDeleted)) && filepath.IsAbs(cwd) {
		e.Cwd = cwd
		at := p.place(ctx, cwd)
		e.RepoRoot, e.Project, e.Branch, e.Worktree = at.root, at.project, at.branch, clonePtr(at.linked)
	}
	if envErr == nil {
		spec, _ := p.runtimes.table.Lookup(m.runtime)
		e.Account = spec.Account(p.homes(env))
	}
	p.describeLauncher(&e, m, q, above, envErr == nil)
	return e, p.locate(ctx, pid, env.Lookup, panes)
}

// describeLauncher fills in who launched the session, and the parent, which only an agent
// is.
func (p *pass) describeLauncher(e *Entry, m *match, q procscan.Proc, above agentAbove, read bool) {
	e.LaunchedBy = launchedBy(launchEvidence{
		read: read, factory: m.carries.factory, inherited: m.inherited != "",
		above:  p.tellerAbove(q.PID),
		scoped: q.TTY != 0 && isInteractive(e.Cgroup),
	})
	if e.LaunchedBy != LaunchedByAgent {
		return
	}
	switch {
	case above.row != "":
		e.ParentLedgerID, e.Parent = above.row, above.row
	case m.inherited != "":
		e.ParentLedgerID, e.Parent = m.inherited, m.inherited
	case above.pid != 0:
		e.Parent = fmt.Sprintf("%s (pid %d)", above.name, above.pid)
	}
}

// homes are where the session with that environment keeps its files.
func (p *pass) homes(env procscan.Env) runtimes.Homes {
	return runtimes.Homes{Home: p.home, Getenv: func(name string) string {
		v, _ := env.Lookup(name)
		return v
	}}
}

// locate says where a session process runs, by the nearest multiplexer above it. A tmux
// server is asked which of its panes holds the chain, where somebody can ask it.
func (p *pass) locate(ctx context.Context, pid int, environ func(string) (string, bool), panes paneLookup) Location {
	found := p.muxesAbove(pid, environ)
	if len(found) == 0 {
		return Location{}
	}
	m := found[0]
	if m.kind == MuxTmux && m.socket == "" && panes != nil {
		m.socket = p.own(ctx, m.process.PID)
	}
	loc := Location{Mux: Mux{Kind: m.kind, Socket: m.socket}}
	if m.kind != MuxTmux || m.socket == "" || panes == nil {
		return loc
	}
	session, window, pane, ok := panes(ctx, m.socket, m.process.PID, m.below)
	if !ok {
		return loc
	}
	loc.Mux.Target, loc.Window = session, window
	if pane != "" {
		loc.PaneID, loc.PaneServer = pane, m.process
	}
	return loc
}

// place is what git says of a folder. The zero value is "not known, or no repository".
type place struct {
	root, project, branch string
	linked                *bool
}

// gitWait is the usual patience with git.
const gitWait = 2 * time.Second

// place asks git about a folder, once in a pass. It reads git's own files where these are
// as expected, which takes no child process.
func (p *pass) place(ctx context.Context, dir string) *place {
	if known, ok := p.places[dir]; ok {
		return known
	}
	ctx, cancel := context.WithTimeout(ctx, p.gitWait)
	defer cancel()
	// A file system that hangs is left behind.
	answer := make(chan *place, 1)
	go func() { answer <- askGit(ctx, dir) }()
	at := &place{}
	select {
	case at = <-answer:
	case <-ctx.Done():
	}
	p.places[dir] = at
	return at
}

func askGit(ctx context.Context, dir string) *place {
	at, ok := gitcmd.DescribeFast(dir)
	if !ok {
		repo, err := gitcmd.Runner{}.Describe(ctx, dir)
		if err != nil {
			return &place{}
		}
		at = repo.Place
	}
	if at.Root == "" {
		return &place{}
	}
	return &place{root: at.Root, project: at.Project, branch: at.Branch, linked: &at.Linked}
}
