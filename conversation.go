package ledger

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/sessionledger/ledger/internal/procscan"
	"github.com/sessionledger/ledger/internal/runtimes"
	"github.com/sessionledger/ledger/internal/transcript"
)

// The sources of a conversation id, best first, as the record names them.
const (
	fromHook      = "hook"       // the runtime's own hook, for this very process
	fromLaunch    = "launch"     // an id on the command line
	fromRegistry  = "registry"   // the runtime's list of running sessions, checked by pid and start ticks
	fromOpenFile  = "open file"  // the store file that the process holds open
	fromStoreDiff = "store diff" // the one conversation that began in its folder around its launch: see launchDiff
)

// hookWord is what a runtime's hook said of the conversation of its process.
type hookWord struct {
	id            string
	path          string // may not exist yet, or lie in another folder
	maybeSubagent bool   // only the transcript tells whether the id is a subagent's
}

// conversation is which conversation a process is in, as far as anything says so. An
// empty id is "unbound", for the reason given.
type conversation struct {
	id     string
	path   string // its transcript; "": none was found, or not yet
	source string
	reason string
	silent bool // no source says anything, and none speaks against another
}

// conversationOf asks the sources in order, but for the store diff, which takes a look at
// all processes and rows. The newest file of a folder is no source; a subagent's thread is
// never a session's; where a source names several, it names none. An id from the command
// line or the list of running sessions may have been left behind meanwhile: one of another
// source whose transcript has grown since the process began goes before one whose
// transcript has not.
func (s *Store) conversationOf(ctx context.Context, p *pass, m *match, word *hookWord) conversation {
	a, ok := s.newAsker(ctx, p, m)
	if !ok {
		return conversation{reason: fmt.Sprintf("process %d is gone", m.process.PID)}
	}
	if word != nil {
		if c, ok := a.byHook(*word); ok {
			return c
		}
	}
	var named []finding
	for _, ask := range []func() (string, string, string){a.byArguments, a.byRegistry, a.byOpenFiles} {
		if source, id, path := ask(); id != "" {
			if f, ok := a.find(source, id, path); ok {
				named = append(named, f)
			}
		}
	}
	for _, f := range named {
		if f.grew {
			return f.conversation
		}
	}
	if len(named) > 0 {
		return named[0].conversation
	}
	if len(a.reasons) == 0 {
		return conversation{reason: "nothing names it", silent: true}
	}
	return conversation{reason: strings.Join(a.reasons, "; ")}
}

// asker asks the sources about one process.
type asker struct {
	ctx     context.Context
	pass    *pass
	m       *match
	rt      Runtime
	spec    runtimes.Spec
	env     procscan.Env
	envErr  error
	cwd     string
	began   time.Time // of the process
	procs   []procscan.Proc
	reasons []string
}

// newAsker reads what the sources need of the process. It is not ok for one that is gone.
func (s *Store) newAsker(ctx context.Context, p *pass, m *match) (a asker, ok bool) {
	a = asker{ctx: ctx, pass: p, m: m}
	a.rt, _ = p.runtimes.Lookup(m.runtime)
	a.spec, _ = p.runtimes.table.Lookup(m.runtime)
	q, ok := p.snap.Get(m.process.PID)
	if !ok {
		return a, false
	}
	a.began, _ = p.sys.StartTime(q.Start)
	a.cwd, _ = p.snap.Cwd(q.PID)
	if a.env, a.envErr = p.snap.Environ(q.PID); a.envErr != nil {
		a.refuse("the environment of process %d cannot be read", q.PID)
	}
	a.processes(q)
	return a, true
}

// finding is a conversation that a source named, with what its file shows.
type finding struct {
	conversation
	grew  bool      // the transcript was written to since the process began
	wrote time.Time // when that was last
}

func (a *asker) refuse(format string, args ...any) {
	a.reasons = append(a.reasons, fmt.Sprintf(format, args...))
}

// processes lists the session's own processes: the one that it is known by, and those
// that do its work.
func (a *asker) processes(q procscan.Proc) {
	a.procs = []procscan.Proc{q}
	for _, c := range a.pass.candidates() {
		if c.continues == q.PID {
			if part, ok := a.pass.snap.Get(c.process.PID); ok {
				a.procs = append(a.procs, part)
			}
		}
	}
}

// byHook takes the hook's word, unless it is about a subagent.
func (a *asker) byHook(word hookWord) (conversation, bool) {
	if !runtimes.ValidID(word.id) {
		a.refuse("the hook names no conversation")
		return conversation{}, false
	}
	f, ok := a.find(fromHook, word.id, word.path)
	if !ok {
		return conversation{}, false
	}
	if word.maybeSubagent {
		t, err := a.read(f.path)
		if err != nil || t.Subagent == nil || *t.Subagent {
			a.refuse("the hook's conversation %q may be a subagent's", word.id)
			return conversation{}, false
		}
	}
	return f.conversation, true
}

// find looks a conversation's transcript up. It is not ok for a subagent's.
func (a *asker) find(source, id, path string) (finding, bool) {
	f := finding{conversation: conversation{id: id, source: source}}
	t, err := a.read(path)
	if err != nil || t.ID != "" && t.ID != id {
		// A path can point into a wrong folder, so that the file is looked up by its name.
		if path, err = a.lookUp(id); err == nil {
			t, err = a.read(path)
		}
	}
	if err != nil {
		return f, true // not there yet, or not readable: the id stands by itself
	}
	if t.Subagent != nil && *t.Subagent {
		a.refuse("the conversation %q of the %s is a subagent's", id, source)
		return f, false
	}
	f.path, f.wrote = path, t.ModTime
	f.grew = !a.began.IsZero() && !t.ModTime.Before(a.began)
	return f, true
}

func (a *asker) read(path string) (Transcript, error) {
	if !filepath.IsAbs(path) {
		return Transcript{}, fs.ErrNotExist
	}
	return a.rt.Read(a.ctx, path)
}

func (a *asker) lookUp(id string) (string, error) {
	if a.envErr != nil {
		return "", a.envErr // where the session keeps its files is not known
	}
	return a.rt.Transcript(a.ctx, TranscriptQuery{ID: id, Cwd: a.cwd, Home: a.pass.home, Env: a.pass.homes(a.env).Getenv})
}

// byArguments reads the id that a command line creates or resumes.
func (a *asker) byArguments() (source, id, path string) {
	ids := argumentIDs(a.pass.runtimes.table, a.spec, a.procs[0].Args)
	if len(ids) > 1 {
		a.refuse("the command line names several conversations")
		return "", "", ""
	}
	if len(ids) == 0 {
		return "", "", ""
	}
	if !looksLikeID(ids[0]) {
		// Newer versions resume by a title or a search word, too.
		if path, err := a.lookUp(ids[0]); err != nil || path == "" {
			a.refuse("%q on the command line may be no id", ids[0])
			return "", "", ""
		}
	}
	return fromLaunch, ids[0], ""
}

// byRegistry reads the runtime's own list of running sessions.
func (a *asker) byRegistry() (source, id, path string) {
	if a.spec.Format != transcript.Claude || a.envErr != nil {
		return "", "", ""
	}
	root := a.spec.ConfigHome(a.pass.homes(a.env))
	for _, q := range a.procs {
		live, err := runtimes.ReadLive(root, q.PID)
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			a.refuse("the list of running sessions: %v", err)
		case live.StartTicks != q.Start:
			a.refuse("the list of running sessions names another process with pid %d", q.PID)
		case runtimes.ValidID(live.SessionID):
			return fromRegistry, live.SessionID, ""
		}
	}
	return "", "", ""
}

// byOpenFiles looks at what the session's processes hold open.
func (a *asker) byOpenFiles() (source, id, path string) {
	if a.spec.Format == transcript.None || a.spec.Format == transcript.Aider {
		return "", "", ""
	}
	var files []string
	for _, q := range a.procs {
		open, err := a.pass.snap.OpenFiles(q.PID)
		if err != nil {
			a.refuse("the open files of process %d cannot be read", q.PID)
			return "", "", ""
		}
		files = append(files, open...)
	}
	threads, unsure := a.openThreads(files)
	switch {
	case len(unsure) > 0:
		a.refuse("%q does not tell yet what it is", unsure[0])
	case len(threads) > 1:
		a.refuse("several conversations are open")
	case len(threads) == 1:
		return fromOpenFile, threads[0].ID, threads[0].Path
	}
	return "", "", ""
}

// openThreads picks the conversations out of the files that are open.
func (a *asker) openThreads(files []string) (threads []runtimes.Rollout, unsure []string) {
	if a.spec.Format == transcript.Codex {
		return runtimes.OpenRollouts(a.ctx, files)
	}
	if a.envErr != nil {
		return nil, nil
	}
	root := a.spec.ConfigHome(a.pass.homes(a.env))
	if root == "" {
		return nil, nil
	}
	if resolved, err := filepath.EvalSymlinks(root); err == nil {
		root = resolved // the kernel names files so
	}
	slices.Sort(files)
	for _, file := range slices.Compact(files) {
		if !strings.HasPrefix(file, root+"/") {
			continue
		}
		t, err := a.rt.Read(a.ctx, file)
		if err != nil || t.ID == "" || t.Subagent != nil && *t.Subagent {
			continue
		}
		// Only what the look-up by its id leads to is that conversation's file.
		if at, err := a.lookUp(t.ID); err == nil && sameFile(at, file) {
			threads = append(threads, runtimes.Rollout{Path: file, ID: t.ID, Cwd: t.Cwd})
		}
	}
	return threads, nil
}

func sameFile(a, b string) bool {
	fa, errA := os.Stat(a)
	fb, errB := os.Stat(b)
	return errA == nil && errB == nil && os.SameFile(fa, fb)
}

// rowTranscript finds and reads the transcript of a row, within the bounds of package
// transcript: at its recorded path, else by its id. env is the session's environment; nil
// where it is not known, and then only the default account's store is looked through. A
// path without an error was read. The error is [ErrNotFound] where there is definitely
// none; any other means that this is not known.
func (s *Store) rowTranscript(ctx context.Context, e *Entry, env func(string) string) (path string, t Transcript, err error) {
	rt, _ := s.runtimes.Lookup(e.Runtime)
	if t, ok := e.transcriptAt(ctx, rt, e.TranscriptPath); ok {
		return e.TranscriptPath, t, nil
	}
	spec, _ := s.runtimes.table.Lookup(e.Runtime)
	if e.SessionID == "" && spec.Format != transcript.Aider { // which has no ids
		return "", Transcript{}, fmt.Errorf("ledger: transcript of %q: %w: no conversation is known", e.LedgerID, ErrUnknown)
	}
	if path, err = s.findTranscript(ctx, rt, e, e.SessionID, env); err == nil {
		t, err = rt.Read(ctx, path)
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("%w: %w", ErrUnknown, err) // it went away while it was looked at
	}
	return path, t, err
}

// findTranscript looks the file of a conversation up where the row's session keeps its
// files. env and the error are those of rowTranscript.
func (s *Store) findTranscript(ctx context.Context, rt Runtime, e *Entry, id string, env func(string) string) (string, error) {
	if env == nil && e.Account != "" {
		return "", fmt.Errorf("ledger: transcript of %q: %w: where the account %q keeps its files is not known", e.LedgerID, ErrUnknown, e.Account)
	}
	return rt.Transcript(ctx, TranscriptQuery{ID: id, Cwd: e.Cwd, Home: s.home, Env: env})
}

// transcriptAt reads the file at path if that is the row's: a recorded path can point into
// a wrong folder, or at what has another conversation by now.
func (e *Entry) transcriptAt(ctx context.Context, rt Runtime, path string) (t Transcript, ok bool) {
	if !filepath.IsAbs(path) {
		return t, false
	}
	t, err := rt.Read(ctx, path)
	return t, err == nil && (t.ID == "" || e.SessionID == "" || t.ID == e.SessionID)
}
