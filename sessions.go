package ledger

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/sessionledger/ledger/internal/gitcmd"
	"github.com/sessionledger/ledger/tmux"
)

// ClassifyOptions say how much is looked at. The zero value, and nil, are the defaults.
type ClassifyOptions struct {
	Finished  bool          // finished sessions too
	Dirty     bool          // count uncommitted files: one git child process for each distinct folder
	CPUSample time.Duration // how long processor time is watched, where a row needs it; 0: 1.2 s, less than 0: not at all
	Timeout   time.Duration // bound for git and for multiplexers; 0: 2 s
	Mux       MuxProbe      // nil: tmux and dtach are asked, with one child process for each tmux server of the sessions
	Servers   []tmux.Server // a person's own tmux servers, beside Options.Servers
}

// MuxProbe says how the multiplexers of the given sessions stand, by ledger id; one that
// could not be found out is left out. It asks each server at most once and keeps to the
// context's deadline. Every entry has a Mux with a kind.
type MuxProbe func(ctx context.Context, entries []Entry) map[string]MuxState

const (
	defaultCPUSample = 1200 * time.Millisecond
	defaultTimeout   = 2 * time.Second
)

// Sessions yields the open sessions, or all of them, with what each is doing. The evidence
// for all rows is gathered in one pass: one process snapshot, one sample of processor time
// for the rows that need it, bounded windows of transcripts, git once a folder. A damaged
// row yields its *[DamagedError] and the iteration goes on; any other error ends it.
func (s *Store) Sessions(ctx context.Context, opts *ClassifyOptions) iter.Seq2[Session, error] {
	return func(yield func(Session, error) bool) {
		rows := s.OpenEntries
		if opts != nil && opts.Finished {
			rows = s.Entries
		}
		var entries []Entry
		for e, err := range rows(ctx) {
			var damaged *DamagedError
			if err != nil && !errors.As(err, &damaged) {
				yield(Session{}, err)
				return
			}
			if err != nil {
				if !yield(Session{}, err) {
					return
				}
				continue
			}
			entries = append(entries, e)
		}
		for _, sess := range s.classifyAll(ctx, entries, opts) {
			if !yield(sess, nil) {
				return
			}
		}
	}
}

// Session returns one row with what its session is doing. What cannot be found out is
// unknown in the status, and no error; the errors are those of [Store.Get].
func (s *Store) Session(ctx context.Context, id string, opts *ClassifyOptions) (Session, error) {
	e, err := s.Get(ctx, id)
	if err != nil {
		return Session{}, err
	}
	return s.classifyAll(ctx, []Entry{e}, opts)[0], nil
}

// classifyAll gathers the evidence for all entries and classifies them.
func (s *Store) classifyAll(ctx context.Context, entries []Entry, opts *ClassifyOptions) []Session {
	var o ClassifyOptions
	if opts != nil {
		o = *opts
	}
	g := s.gatherEvidence(ctx, entries, o)
	now := s.clock.Now()
	sessions := make([]Session, len(entries))
	for i := range entries {
		sessions[i] = Session{entries[i], Classify(entries[i], g.evidence[i], now)}
	}
	return sessions
}

// gathering is the evidence for some rows, in the making.
type gathering struct {
	store    *Store
	opts     ClassifyOptions
	entries  []Entry
	evidence []Evidence
}

func (s *Store) gatherEvidence(ctx context.Context, entries []Entry, o ClassifyOptions) *gathering {
	o.Timeout = cmp.Or(o.Timeout, defaultTimeout)
	if o.Mux == nil {
		o.Mux = s.probeMux(o.Servers, s.listings())
	}
	g := &gathering{store: s, opts: o, entries: entries, evidence: make([]Evidence, len(entries))}
	g.processes(ctx)
	// What waits for other programs waits at the same time.
	var wait sync.WaitGroup
	wait.Go(func() { g.cpu(ctx) })
	wait.Go(func() { g.mux(ctx) })
	if o.Dirty {
		wait.Go(func() { g.dirty(ctx) })
	}
	g.files(ctx)
	wait.Wait()
	return g
}

// each calls do for the open rows.
func (g *gathering) each(do func(e *Entry, ev *Evidence)) {
	for i := range g.entries {
		if g.entries[i].IsOpen() {
			do(&g.entries[i], &g.evidence[i])
		}
	}
}

// processes resolves each row against one snapshot.
func (g *gathering) processes(ctx context.Context) {
	s := g.store
	here, _ := s.procs.here()
	look := sync.OnceValues(func() (*pass, *rowsView) {
		p, err := s.newPass(ctx)
		if err != nil {
			return nil, nil
		}
		rows, err := s.rowsOf(p, g.entries)
		if err != nil {
			p.whole, p.partial = false, err.Error()
			rows = &rowsView{}
		}
		return p, rows
	})
	g.each(func(e *Entry, ev *Evidence) {
		ev.BootID = here.BootID
		g.resolve(e, ev, look)
		if e.Mux.Kind == "" && ev.Process == Running {
			ev.Mux = MuxNone
		}
		if l := e.Lease; l != nil {
			seen := s.sightLease(l, 0)
			ev.LeaseOwner = seen.Owner
			state := e.State()
			if stale := state.leaseStale(&seen); stale != Unsure {
				yes := stale == Yes
				ev.LeaseStale = &yes
			}
		}
	})
}

// resolve finds the row's process. Its recorded one is looked up by itself, which costs
// one small file; the whole table is read where that one does not run.
func (g *gathering) resolve(e *Entry, ev *Evidence, look func() (*pass, *rowsView)) {
	procs := g.store.procs
	if own := e.Process(); procs.verdict(own) == Running {
		ev.Process, ev.ProcessID = Running, own
		return
	}
	p, rows := look()
	if p == nil {
		ev.ProcessWhy = "the process table could not be read"
		return
	}
	r := p.resolve(procs, e, rows)
	ev.Process, ev.ProcessID, ev.ProcessWhy, ev.Launcher = r.verdict, r.process, r.why, r.launcher
}

// files looks at what lies on disk: terminals, transcripts, what a resume would need.
func (g *gathering) files(ctx context.Context) {
	s := g.store
	for i := range g.entries {
		e, ev := &g.entries[i], &g.evidence[i]
		rt, _ := s.runtimes.Lookup(e.Runtime)
		ev.HasTranscripts = rt.HasTranscripts
		ev.Transcript = s.transcripts.read(ctx, s, rt, e)
		if !e.IsOpen() {
			continue
		}
		if e.TTY != "" {
			ev.TTY = exists("/dev/" + strings.TrimPrefix(e.TTY, "/dev/"))
		}
		if e.Phase == PhaseFrozen {
			ev.RestoreLacks = restoreLacks(e, ev)
		}
	}
}

// restoreLacks says what a resume of a frozen session needs and definitely lacks.
func restoreLacks(e *Entry, ev *Evidence) (lacks []string) {
	if e.SessionID == "" {
		lacks = append(lacks, "a conversation id")
	}
	if there := exists(e.Cwd); e.Cwd != "" && there != nil && !*there {
		lacks = append(lacks, "its folder "+e.Cwd)
	}
	if there := exists(e.TranscriptPath); ev.HasTranscripts && ev.Transcript == nil &&
		e.TranscriptPath != "" && there != nil && !*there {
		lacks = append(lacks, "its transcript")
	}
	return lacks
}

// exists reports whether there is something at path; nil where that is not known.
func exists(path string) *bool {
	_, err := os.Lstat(path)
	yes := err == nil
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return &yes
}

// cpu watches the processor time of running sessions that have no transcripts to tell
// their progress, all at once, and only where no older trace of it decides.
func (g *gathering) cpu(ctx context.Context) {
	s := g.store
	now := s.clock.Now()
	var idle []int
	ticks := map[int]uint64{}
	for i := range g.entries {
		e, ev := &g.entries[i], &g.evidence[i]
		rt, _ := s.runtimes.Lookup(e.Runtime)
		if ev.Process != Running || rt.HasTranscripts || !e.IsOpen() {
			continue
		}
		st, err := s.procs.sys.Stat(ev.ProcessID.PID)
		if err != nil || st.Start != ev.ProcessID.StartTicks {
			continue
		}
		if e.CPUTicks != nil && st.Ticks > *e.CPUTicks && ev.ProcessID.Same(e.Process()) {
			ev.CPUGrewAt = e.ProcessDescribedAt // it grew after that
		}
		if e.LastActiveAt.After(ev.CPUGrewAt) {
			ev.CPUGrewAt = e.LastActiveAt // the stamp of a sweep that saw it grow
		}
		if now.Sub(ev.CPUGrewAt) >= IdleAfter {
			idle = append(idle, i)
			ticks[i] = st.Ticks
		}
	}
	sample := g.opts.CPUSample
	if sample == 0 {
		sample = defaultCPUSample
	}
	if len(idle) == 0 || sample < 0 {
		return
	}
	if pause(ctx, sample) != nil {
		return
	}
	for _, i := range idle {
		ev := &g.evidence[i]
		st, err := s.procs.sys.Stat(ev.ProcessID.PID)
		if err != nil || st.Start != ev.ProcessID.StartTicks {
			continue
		}
		if ev.CPUSampled = true; st.Ticks > ticks[i] {
			ev.CPUGrewAt = s.clock.Now()
		}
	}
}

// mux asks the multiplexers of the sessions that are in one.
func (g *gathering) mux(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, g.opts.Timeout)
	defer cancel()
	var in []Entry
	g.each(func(e *Entry, _ *Evidence) {
		if e.Mux.Kind != "" {
			in = append(in, *e)
		}
	})
	if len(in) == 0 {
		return
	}
	states := g.opts.Mux(ctx, in)
	g.each(func(e *Entry, ev *Evidence) {
		if e.Mux.Kind == "" {
			return
		}
		ev.Mux = states[e.LedgerID]
		// A live process outranks what its multiplexer says of the session.
		if ev.Process == Running && ev.Mux == MuxNone {
			ev.Mux = MuxUnreachable
		}
	})
}

// gitAtOnce is how many git processes count at the same time.
const gitAtOnce = 4

// dirty counts uncommitted files, once for each folder.
func (g *gathering) dirty(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, g.opts.Timeout)
	defer cancel()
	folders := map[string][]int{}
	for i := range g.entries {
		if e := &g.entries[i]; e.IsOpen() && e.RepoRoot != "" {
			folders[e.RepoRoot] = append(folders[e.RepoRoot], i)
		}
	}
	var wait sync.WaitGroup
	slots := make(chan struct{}, gitAtOnce)
	for dir, rows := range folders {
		wait.Go(func() {
			select {
			case slots <- struct{}{}:
				defer func() { <-slots }()
			case <-ctx.Done():
				return
			}
			n, err := gitcmd.Runner{}.DirtyCount(ctx, dir)
			if err != nil {
				return // gone, foreign, hung: not known
			}
			for _, i := range rows {
				g.evidence[i].DirtyCount = &n
			}
		})
	}
	wait.Wait()
}
