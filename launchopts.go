package ledger

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/sessionledger/ledger/internal/runtimes"
)

// LaunchOptions say what is launched, and how. Runtime or Argv is required.
type LaunchOptions struct {
	Runtime string   // registry name; "": the runtime that Argv runs, else the base name of its program
	Argv    []string // command line; its program is looked up on this process's PATH, outside a shim folder. Nil: the runtime's
	Dir     string   // where it runs, absolute; "": this process's folder
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

// launchable is a launch that was looked through and not begun.
type launchable struct {
	opts    LaunchOptions
	runtime string
	argv    []string // the first is absolute
	dir     string   // real and absolute
	env     []string
	root    string // of the ledger
	service bool   // it is one of the runtime's services, and no session
	lost    error  // why this process's own folder is not known, where it is to run in that
}

// lookThrough resolves what can be wrong with a launch. The error is ErrInvalid.
func (h *Host) lookThrough(opts LaunchOptions) (*launchable, error) {
	l := &launchable{opts: opts, argv: slices.Clone(opts.Argv), env: opts.Env, root: h.Store.root}
	invalid := func(format string, args ...any) error {
		return fmt.Errorf("ledger: launch: %w: "+format, append([]any{ErrInvalid}, args...)...)
	}
	if opts.SessionID != "" && !runtimes.ValidID(opts.SessionID) {
		return nil, invalid("%.140q is no conversation id", opts.SessionID)
	}
	rts := h.Store.runtimes
	if len(l.argv) == 0 && opts.Runtime == "" {
		return nil, invalid("neither a runtime nor a command")
	}
	if len(l.argv) == 0 {
		spec, _ := rts.table.Lookup(opts.Runtime)
		program, err := h.Store.findProgram(spec)
		if err != nil {
			return nil, invalid("%w", err)
		}
		l.argv = []string{program}
	}
	program, err := lookPath(l.argv[0], rts.shims)
	if err == nil {
		l.argv[0], err = filepath.Abs(program)
	}
	if err != nil {
		return nil, invalid("%w", err)
	}
	name, session := rts.Match(l.argv, nil)
	l.runtime = cmp.Or(opts.Runtime, name, plainName(filepath.Base(l.argv[0])))
	if err := checkRuntime(l.runtime); err != nil {
		return nil, err
	}
	l.service = name != "" && name == l.runtime && !session
	if l.env == nil {
		l.env = os.Environ()
	}
	if i := slices.IndexFunc(append(slices.Clone(l.argv), l.env...), func(s string) bool { return strings.ContainsRune(s, 0) }); i >= 0 {
		return nil, invalid("a NUL in the command or its environment")
	}
	if l.dir, err = launchDir(opts.Dir); err != nil {
		if err = invalid("%w", err); opts.Dir != "" {
			return nil, err
		}
		l.lost = err
	}
	return l, nil
}

// launchDir is the real path of the folder to launch in, as the kernel will name it.
func launchDir(dir string) (string, error) {
	if dir == "" {
		var err error
		if dir, err = os.Getwd(); err != nil {
			return "", err
		}
	}
	if !filepath.IsAbs(dir) {
		return "", fmt.Errorf("%q is no absolute path", dir)
	}
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return "", err
	}
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return "", fmt.Errorf("%q is no folder", dir)
	}
	return dir, nil
}

// plainName makes a program's name one that can begin a ledger id.
func plainName(name string) string {
	const longest = 64
	name = strings.Map(func(r rune) rune {
		switch {
		case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', '0' <= r && r <= '9', r == '_', r == '-', r == '.':
			return r
		}
		return '-'
	}, name)
	for strings.Contains(name, "..") {
		name = strings.ReplaceAll(name, "..", ".")
	}
	name = strings.TrimLeft(name, "-._")
	if len(name) > longest {
		name = name[:longest]
	}
	for strings.HasSuffix(name, ".lock") {
		name = strings.TrimSuffix(name, ".lock")
	}
	return cmp.Or(name, "agent")
}

// getenv looks a variable up in an environment, where the last one counts.
func getenv(env []string, name string) (string, bool) {
	for _, kv := range slices.Backward(env) {
		if v, ok := strings.CutPrefix(kv, name+"="); ok {
			return v, true
		}
	}
	return "", false
}

// birthRow is what is known of a session before it has a process: the same facts as
// describe gathers, from the launcher's evidence.
func (s *Store) birthRow(ctx context.Context, l *launchable) Entry {
	o := &l.opts
	e := Entry{
		Runtime: l.runtime, Cwd: l.dir, LauncherPID: os.Getpid(), EnrolledBy: EnrolledByShim,
		TaskID: o.TaskID, Operation: o.Operation, Model: o.Model, AgentString: o.AgentString,
		Window: o.Window, ResumedFrom: o.ResumedFrom,
	}
	lookup := func(name string) (string, bool) { return getenv(l.env, name) }
	spec, _ := s.runtimes.table.Lookup(l.runtime)
	e.Account = spec.Account(runtimes.Homes{Home: s.home, Getenv: func(name string) string { v, _ := lookup(name); return v }})
	self := os.Getpid()
	p, err := s.chainPass(self)
	if err != nil {
		return e
	}
	at := p.place(ctx, l.dir)
	e.RepoRoot, e.Project, e.Branch, e.Worktree = at.root, at.project, at.branch, clonePtr(at.linked)
	q, ok := p.snap.Get(self)
	if !ok {
		return e
	}
	e.TTY = ttyName(q.TTY)
	e.Cgroup, _ = p.snap.Cgroup(self)
	m := &match{candidate: candidate{carries: carried(lookup)}}
	if id := m.carries.id; isPlainID(id) && s.sightRow(id).state == rowThere {
		m.inherited = id
	}
	p.describeLauncher(&e, m, q, s.agentsAbove(ctx, p, self), true)
	return e
}

// agentsAbove finds the nearest agent above a process of a chain, and the nearest that has
// a row. A nearest one without a row is enrolled: parents come before children.
func (s *Store) agentsAbove(ctx context.Context, p *pass, pid int) (a agentAbove) {
	for _, c := range slices.Backward(p.candidates()) {
		if c.process.PID == pid || c.continues == pid {
			continue
		}
		row, err := s.Find(ctx, Query{Process: c.process})
		if a.pid == 0 {
			a.pid, a.name = c.process.PID, c.runtime
			if c.continues != 0 {
				a.pid = c.continues
			}
			if errors.Is(err, ErrNotFound) {
				row, _, err = s.Enrol(ctx, a.pid, nil)
			}
		}
		if err == nil && row.LedgerID != "" {
			a.row = row.LedgerID
			return a
		}
	}
	return a
}

// identity are the variables by which a session's processes know whose they are.
var identity = []string{envID, envOwnID, envAttempt}

// childEnv is a session's environment, made of its launcher's: without what belongs to the
// agent that the launcher runs under, whose session it is not, and, for a session in a
// terminal of its own, without what belongs to the launcher's. It names the ledger, so that
// the agent's hooks do not speak to another one.
func (l *launchable) childEnv(keep ...string) []string {
	unset := slices.DeleteFunc(runtimes.Unset(l.env), func(name string) bool { return slices.Contains(keep, name) })
	unset = append(unset, identity...)
	env := slices.DeleteFunc(slices.Clone(l.env), func(kv string) bool {
		name, _, _ := strings.Cut(kv, "=")
		return slices.Contains(unset, name)
	})
	return setenv(env, envDir, l.root)
}

// setenv sets a variable of an environment, of which some programs read the first and some
// the last.
func setenv(env []string, name, value string) []string {
	env = slices.DeleteFunc(env, func(kv string) bool { return strings.HasPrefix(kv, name+"=") })
	return append(env, name+"="+value)
}
