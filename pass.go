package ledger

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/sessionledger/ledger/internal/procscan"
)

// pass is one look at the process table, shared by everything that a sweep, a
// classification or an enrolment asks of it. Environments are read only of processes
// that run a runtime, until a row that has no process asks who carries its id. It is not
// safe for concurrent use.
type pass struct {
	snap     *procscan.Snapshot
	sys      *procscan.System
	here     ProcessID // identity members that its processes share; BootID "" is not known
	runtimes *Runtimes
	home     string                                                   // of the user, for sessions whose environment names none
	socket   func(id string) (string, error)                          // of the server that this library starts for a row
	own      func(ctx context.Context, serverPID int) (socket string) // of a person's tmux servers, where their processes do not tell
	taken    time.Time                                                // when, as rows store it
	uptime   uint64                                                   // the same in ticks after boot; 0: not known

	whole   bool   // every process is in it
	partial string // why not

	noDiscovery string // why processes that nobody names are not to be enrolled; "": they are

	matched []candidate // by candidates; nil before
	at      map[int]int // pid: index in matched
	bears   *bearers    // by carrying
	places  map[string]*place
	gitWait time.Duration // the longest that git may take to say where a session works
}

// newPass reads the process table. A table that cannot be read gives a pass that is not
// whole and shows nothing; the error is the context's alone.
func (s *Store) newPass(ctx context.Context) (*pass, error) {
	snap, err := s.snapshot(ctx)
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	p := s.passOver(snap)
	if err != nil {
		p.whole, p.partial = false, err.Error()
	}
	switch host, err := s.procs.sys.HostUserNamespace(); {
	case err != nil:
		p.noDiscovery = "cannot find out whether this is the host's user namespace: " + err.Error()
	case !host:
		p.noDiscovery = "this is not the host's user namespace, where environments can be read"
	case p.here.BootID == "":
		p.noDiscovery = "this machine cannot be identified"
	}
	return p, nil
}

// snapshot reads the process table, again where it was not whole: on a busy machine some
// process or other is always just starting a program, and can be read a moment later.
func (s *Store) snapshot(ctx context.Context) (snap *procscan.Snapshot, err error) {
	const tries = 3
	for range tries {
		snap, err = s.procs.sys.Snapshot(ctx)
		whole, _ := snap.Complete()
		if hidden, known := s.procs.sys.HidesProcesses(); whole || hidden || !known || ctx.Err() != nil {
			break
		}
	}
	return snap, err
}

// chainPass reads one process and its ancestors. It is never whole, and what it shows was
// asked for by name, so that it needs no discovery. The error is procscan.ErrGone where
// there is no such process.
func (s *Store) chainPass(pid int) (*pass, error) {
	snap, err := s.procs.sys.Chain(pid)
	if err != nil {
		return nil, err
	}
	p := s.passOver(snap)
	if p.here.BootID == "" {
		_, err := s.procs.here()
		return nil, fmt.Errorf("ledger: identify this machine: %w", err)
	}
	return p, nil
}

func (s *Store) passOver(snap *procscan.Snapshot) *pass {
	p := &pass{
		snap: snap, sys: s.procs.sys, runtimes: s.runtimes, home: s.home,
		socket: s.hostSocket, own: s.listings().ownSocket, taken: s.now(), places: map[string]*place{}, gitWait: gitWait,
	}
	p.whole, p.partial = snap.Complete()
	here, err := s.procs.here()
	if err != nil && p.whole {
		p.whole, p.partial = false, err.Error()
	}
	p.here = here
	// Start ticks count on the machine's clock, so the injected one has no say here.
	if boot, err := p.sys.BootSeconds(); err == nil {
		p.uptime = uint64(boot) * uint64(p.sys.TicksPerSecond())
	}
	return p
}

// identity is the full identity of a process of the pass.
func (p *pass) identity(q procscan.Proc) ProcessID {
	id := p.here
	id.PID, id.StartTicks = q.PID, q.Start
	return id
}

// sight is what the pass shows of one process identity. A process that the snapshot may
// have been too early for counts as not looked at.
func (p *pass) sight(id ProcessID) Sighting {
	seen := Sighting{Here: p.here}
	q, ok := p.snap.Get(id.PID)
	if ok {
		seen.Found, seen.Readable = true, true
		seen.StartTicks, seen.Dead = q.Start, q.Gone()
		return seen
	}
	seen.Read = p.whole && p.snap.Covers(id.StartTicks)
	return seen
}

// verdict judges a process identity by the pass, and looks again at one that the pass
// cannot settle.
func (p *pass) verdict(procs *table, id ProcessID) Verdict {
	if v := Judge(id, p.sight(id)); v != Unknown {
		return v
	}
	return procs.verdict(id)
}

// candidates lists the processes that run a runtime and are no service, parents before
// children, with what their environments say. Those that ended meanwhile are left out.
func (p *pass) candidates() []candidate {
	if p.matched != nil {
		return p.matched
	}
	found := []candidate{}
	at := map[int]int{}
	for _, m := range p.match() {
		c, ok := p.candidate(m)
		if !ok {
			continue
		}
		if len(c.above) > 0 {
			if i, ok := at[c.above[0].PID]; ok {
				p.compareToParent(&c, m, &found[i])
			}
		}
		at[m.PID] = len(found)
		found = append(found, c)
	}
	p.matched, p.at = found, at
	return found
}

// candidate reads what the environment of a process says. It is not ok for one that has
// ended.
func (p *pass) candidate(m matchedProc) (candidate, bool) {
	c := candidate{process: p.identity(m.Proc), runtime: m.runtime, above: m.above}
	env, err := p.environ(m.Proc)
	switch {
	case isGone(err):
		return c, false
	case err != nil:
		c.unread = err.Error()
		return c, true
	}
	c.carries = carried(env.Lookup)
	if c.carries.id != "" {
		c.muxes = p.muxesAbove(m.PID, env.Lookup)
	}
	return c, true
}

// matchedProc is a process of the pass that runs a runtime.
type matchedProc struct {
	procscan.Proc
	runtime string
	above   []ProcessID
}

// match finds the session processes, by age and among those of one tick by depth, so that
// no one comes before its parent.
func (p *pass) match() []matchedProc {
	var found []matchedProc
	for q := range p.snap.All() {
		if q.Kernel || q.Gone() || len(q.Args) == 0 {
			continue
		}
		name, session := p.runtimes.Match(q.Args, p.exe(q.PID))
		if !session {
			continue
		}
		found = append(found, matchedProc{Proc: q, runtime: name, above: p.above(q.PID)})
	}
	slices.SortFunc(found, func(a, b matchedProc) int {
		return cmp.Or(cmp.Compare(a.Start, b.Start), len(a.above)-len(b.above), a.PID-b.PID)
	})
	return found
}

// above lists a process's ancestors, the nearest first.
func (p *pass) above(pid int) (ids []ProcessID) {
	for q := range p.snap.Ancestors(pid) {
		ids = append(ids, p.identity(q))
	}
	return ids
}

// exe names a process's program file, where a name is too common to decide.
func (p *pass) exe(pid int) func() (string, error) {
	return func() (string, error) {
		path, err := p.snap.Exe(pid)
		if errors.Is(err, procscan.ErrDeleted) {
			err = nil // replaced by an update: the path still tells what it is
		}
		return path, err
	}
}

// compareToParent says what a process has in common with the session process that
// started it.
func (p *pass) compareToParent(c *candidate, m matchedProc, parent *candidate) {
	q, _ := p.snap.Get(parent.process.PID)
	if p.runtimes.table.Continues(q.Args, m.Args, p.exe(m.PID)) {
		c.continues = cmp.Or(parent.continues, q.PID)
		return
	}
	c.young = slices.Equal(q.Args, m.Args) && p.maybeYounger(m.Start, forkAge)
}

// forkAge is how long a child with its agent parent's own command line may still be a
// fork that has not started its program yet.
const forkAge = 5 * time.Second

// maybeYounger reports whether a process may be younger than age.
func (p *pass) maybeYounger(start uint64, age time.Duration) bool {
	ticks := uint64(age/time.Second) * uint64(p.sys.TicksPerSecond())
	return p.uptime == 0 || start+ticks > p.uptime
}

// bearers are all processes whose environment names a row or an attempt, shells and
// programs at a gate among them.
type bearers struct {
	by    map[[2]string][]ProcessID // variable and value: in the order of their pids
	known bool                      // none that may be one is missing
}

// carrying lists the processes of the pass whose environment has the variable, envID or
// envAttempt, with that value. known is false where one that may be could not be read.
func (p *pass) carrying(name, value string) (found []ProcessID, known bool) {
	if p.bears == nil {
		p.bears = p.readBearers()
	}
	return p.bears.by[[2]string{name, value}], p.bears.known
}

func (p *pass) readBearers() *bearers {
	b := &bearers{by: map[[2]string][]ProcessID{}, known: p.whole}
	for q := range p.snap.All() {
		if q.Kernel || q.Gone() {
			continue
		}
		env, err := p.environ(q)
		switch {
		case err == nil:
			for _, name := range []string{envID, envAttempt} {
				if v, ok := env.Lookup(name); ok && v != "" {
					key := [2]string{name, v}
					b.by[key] = append(b.by[key], p.identity(q))
				}
			}
		case isGone(err):
		case errors.Is(err, procscan.ErrNoEnviron):
			b.known = false
		default:
			// Programs that guard a secret hide their environment, and are no runtime.
			if _, session := p.runtimes.Match(q.Args, p.exe(q.PID)); session {
				b.known = false
			}
		}
	}
	return b
}

// environ reads the environment of a process of the pass, and looks again at one that was
// just starting a program, or ending.
func (p *pass) environ(q procscan.Proc) (procscan.Env, error) {
	env, err := p.snap.Environ(q.PID)
	if !errors.Is(err, procscan.ErrNoEnviron) {
		return env, err
	}
	again, err := p.sys.ChainTo(q.PID, itself)
	if err != nil {
		return procscan.Env{}, err
	}
	if now, ok := again.Get(q.PID); !ok || now.Start != q.Start || now.Gone() {
		return procscan.Env{}, procscan.ErrGone
	}
	return again.Environ(q.PID)
}

// dedicatedSocket is the socket of the tmux server that this library starts for a row; ""
// where there can be none.
func (p *pass) dedicatedSocket(id string) string {
	socket, _ := p.socket(id)
	return socket
}
