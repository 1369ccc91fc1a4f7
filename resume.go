package ledger

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/sessionledger/ledger/internal/runtimes"
)

// Command is how to start an agent: what a [Host] runs, or an embedder by itself.
type Command struct {
	Argv  []string          `json:"argv"`  // the first is an absolute path, or, to attach, may be a name on PATH
	Dir   string            `json:"dir"`   // absolute
	Env   map[string]string `json:"env"`   // to set, on top of the starter's own
	Unset []string          `json:"unset"` // names to take out of it first
}

// Environ is the environment to run the command in, made of the starter's own: the
// variables of Unset taken out, those of Env set.
func (c Command) Environ(base []string) []string {
	out := make([]string, 0, len(base)+len(c.Env))
	drop := map[string]bool{}
	for _, name := range c.Unset {
		drop[name] = true
	}
	for _, kv := range base {
		name, _, _ := strings.Cut(kv, "=")
		if _, set := c.Env[name]; !set && !drop[name] {
			out = append(out, kv)
		}
	}
	for name, value := range c.Env {
		out = append(out, name+"="+value)
	}
	return out
}

// ResumeError says what a session lacks to be resumed. It wraps the sentinel that fits.
type ResumeError struct {
	ID   string // ledger id
	Lack string // in plain words
	Err  error
}

// Error implements error.
func (e *ResumeError) Error() string { return fmt.Sprintf("ledger: resume %q: %s", e.ID, e.Lack) }

// Unwrap returns the sentinel.
func (e *ResumeError) Unwrap() error { return e.Err }

// ResumeCommand returns the command that brings the row's own conversation back, by its
// exact id, in the directory under which it is filed. It starts nothing.
//
// The error is a *[ResumeError]: [ErrIllegal] where no conversation is recorded, or the
// runtime cannot resume by id; [ErrNotFound] where the directory, the program or the
// transcript is definitely not there; [ErrConversationHeld] where a living process has the
// conversation; [ErrUnknown] where one of these could not be found out.
func ResumeCommand(ctx context.Context, s *Store, e Entry) (Command, error) {
	lack := func(err error, format string, args ...any) (Command, error) {
		return Command{}, &ResumeError{ID: e.LedgerID, Lack: fmt.Sprintf(format, args...), Err: err}
	}
	if e.SessionID == "" {
		return lack(ErrIllegal, "no conversation is recorded")
	}
	spec, _ := s.runtimes.table.Lookup(e.Runtime)
	args, err := spec.ResumeArgs(e.SessionID)
	if errors.Is(err, runtimes.ErrNoResume) {
		return lack(ErrIllegal, "%s cannot resume a conversation by its id", e.Runtime)
	}
	if err != nil {
		return lack(ErrIllegal, "the recorded conversation %q is no id of %s", e.SessionID, e.Runtime)
	}
	dir, transcript, err := s.resumeDir(ctx, &e)
	if err != nil {
		return Command{}, err
	}
	set, unset, known := configFor(spec, runtimes.Homes{Home: s.home}, transcript)
	if !known || transcript == "" && e.Account != "" {
		return lack(ErrUnknown, "where the account %q keeps its files is not known", e.Account)
	}
	if by, err := s.conversationHolder(ctx, &e); err != nil {
		return lack(ErrUnknown, "whether its conversation is in use could not be found out: %v", err)
	} else if by != "" {
		return lack(ErrConversationHeld, "its conversation is in use by %s", by)
	}
	program, err := s.findProgram(spec)
	if err != nil {
		return lack(ErrNotFound, "the program %s is not on PATH", e.Runtime)
	}
	unset = append(unset, runtimes.Unset(os.Environ())...)
	slices.Sort(unset)
	return Command{Argv: append([]string{program}, args...), Dir: dir, Env: set, Unset: slices.Compact(append([]string{}, unset...))}, nil
}

// resumeDir is where the conversation is filed, which is where it was begun, and the
// conversation's file, if it has one.
func (s *Store) resumeDir(ctx context.Context, e *Entry) (dir, transcript string, err error) {
	lack := func(err error, format string, args ...any) (string, string, error) {
		return "", "", &ResumeError{ID: e.LedgerID, Lack: fmt.Sprintf(format, args...), Err: err}
	}
	dir = e.Cwd
	if rt, _ := s.runtimes.Lookup(e.Runtime); rt.HasTranscripts {
		path, t, err := s.rowTranscript(ctx, e, s.environOf(e))
		switch {
		case errors.Is(err, ErrNotFound):
			return lack(ErrNotFound, "its transcript is gone")
		case err != nil && path == "":
			return lack(ErrUnknown, "its transcript could not be looked up: %v", err)
		case filepath.IsAbs(t.Cwd) && !(filedUnder(rt.Name, path, e.Cwd) && !filedUnder(rt.Name, path, t.Cwd)):
			// The name of its folder fits several directories; of these it says itself which.
			dir = t.Cwd
		}
		transcript = path
	}
	if !filepath.IsAbs(dir) {
		return lack(ErrIllegal, "its folder was never recorded")
	}
	info, err := os.Stat(dir)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return lack(ErrNotFound, "its folder %q is gone", dir)
	case err != nil:
		return lack(ErrUnknown, "its folder %q cannot be looked at: %v", dir, err)
	case !info.IsDir():
		return lack(ErrNotFound, "its folder %q is no folder any more", dir)
	}
	return dir, transcript, nil
}

// filedUnder reports whether a transcript's folder is named after a directory, as some
// runtimes do it.
func filedUnder(runtime, path, dir string) bool {
	folder := filepath.Dir(path)
	switch runtime {
	case "claude":
	case "qwen":
		folder = filepath.Dir(folder)
	default:
		return false
	}
	return filepath.IsAbs(dir) && runtimes.FiledUnder(filepath.Base(folder), dir)
}

// configFor is what a resume sets and takes out of the environment so that the runtime
// looks into the config home under which the transcript is filed. It is not known where no
// variable leads there.
func configFor(spec runtimes.Spec, homes runtimes.Homes, transcript string) (set map[string]string, unset []string, known bool) {
	set = map[string]string{}
	usual := spec.ConfigHome(homes)
	home, ok := spec.ConfigHomeOf(transcript)
	switch {
	case usual == "" || transcript == "":
		return set, nil, true // it needs none
	case !ok:
		return set, nil, false
	case home == usual || sameFile(home, usual):
		if spec.ConfigEnv != "" {
			unset = append(unset, spec.ConfigEnv)
		}
		return set, unset, true
	case spec.ConfigEnv == "":
		set["HOME"], known = strings.CutSuffix(home, "/"+spec.ConfigDir)
	case spec.ConfigSub == "":
		set[spec.ConfigEnv], known = home, true
	default:
		set[spec.ConfigEnv], known = strings.CutSuffix(home, "/"+spec.ConfigSub)
	}
	return set, nil, known
}

// conversationHolder says who has the row's conversation in use: another open row, or the
// row's own process while it runs.
func (s *Store) conversationHolder(ctx context.Context, e *Entry) (string, error) {
	by, err := s.conversationRow(ctx, e.Runtime, e.SessionID)
	if err != nil {
		return "", err
	}
	if by != "" && by != e.LedgerID {
		return by, nil
	}
	switch s.sessionVerdict(ctx, e) {
	case Running:
		return fmt.Sprintf("its own process %d", e.PID), nil
	case Unknown:
		return "", errors.New("its process could not be resolved")
	}
	return s.strangerInConversation(ctx, e)
}

// strangerInConversation finds a process that is in the row's conversation and on no record
// of one: a person has resumed it, and nothing has enrolled that yet.
func (s *Store) strangerInConversation(ctx context.Context, e *Entry) (string, error) {
	p, err := s.newPass(ctx)
	if err != nil {
		return "", err
	}
	if !p.whole {
		return "", fmt.Errorf("%w: %s", ErrUnknown, p.partial)
	}
	spec, _ := s.runtimes.table.Lookup(e.Runtime)
	for _, c := range p.candidates() {
		q, ok := p.snap.Get(c.process.PID)
		if !ok || c.runtime != e.Runtime {
			continue
		}
		// One with a row may have left that conversation long ago: its row tells.
		by, err := s.holder(processClaim(c.process))
		if err != nil {
			return "", err
		}
		if by != "" && s.sightRow(by).entry.SessionID != "" {
			continue
		}
		if slices.Contains(argumentIDs(s.runtimes.table, spec, q.Args), e.SessionID) ||
			s.conversationOf(ctx, p, &match{candidate: c}, nil).id == e.SessionID {
			return fmt.Sprintf("process %d", q.PID), nil
		}
	}
	return "", nil
}

// findProgram finds the runtime's program on PATH, outside the shim folder.
func (s *Store) findProgram(spec runtimes.Spec) (string, error) {
	for _, name := range append([]string{spec.Name}, spec.Argv0...) {
		if path, err := lookPath(name, s.runtimes.shims); err == nil {
			return path, nil
		}
	}
	for _, name := range spec.Common {
		// Others use the name too: the program's real path tells whose it is.
		path, err := lookPath(name, s.runtimes.shims)
		if err != nil {
			continue
		}
		if real, err := filepath.EvalSymlinks(path); err == nil && slices.Contains(strings.Split(real, "/"), spec.Proof) {
			return path, nil
		}
	}
	return "", fmt.Errorf("%q: %w", spec.Name, exec.ErrNotFound)
}

// lookPath is exec.LookPath without the folder skip, in which the shims are.
func lookPath(name, skip string) (string, error) { return lookPathBut(name, skip, nil) }

// lookPathBut passes over another file too, whatever it is called.
func lookPathBut(name, skip string, own os.FileInfo) (string, error) {
	if strings.ContainsRune(name, '/') {
		return exec.LookPath(name)
	}
	for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
		if !filepath.IsAbs(dir) || sameFile(dir, skip) {
			continue
		}
		path, err := exec.LookPath(filepath.Join(dir, name))
		if err != nil {
			continue
		}
		if found, err := os.Stat(path); err == nil && own != nil && os.SameFile(found, own) {
			continue
		}
		return path, nil
	}
	return "", fmt.Errorf("%q: %w", name, exec.ErrNotFound)
}

// isReadOnly reports whether a write failed because the ledger can only be read.
func isReadOnly(err error) bool {
	return errors.Is(err, syscall.EROFS) || errors.Is(err, os.ErrPermission)
}
