package ledger

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/sessionledger/ledger/internal/runtimes"
)

// Command is how to start an agent: what a [Host] runs, or an embedder by itself.
type Command struct {
	Argv  []string          `json:"argv"`  // the first is an absolute path
	Dir   string            `json:"dir"`   // absolute
	Env   map[string]string `json:"env"`   // to set, on top of the starter's own
	Unset []string          `json:"unset"` // names to take out of it first
}

// environ applies the command to an environment.
func (c Command) environ(base []string) []string {
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
	home, known := accountHome(&e, spec, runtimes.Homes{Home: s.home}, transcript)
	if !known {
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
	c := Command{Argv: append([]string{program}, args...), Dir: dir, Env: map[string]string{}, Unset: runtimes.Unset(os.Environ())}
	if home != "" {
		c.Env[spec.ConfigEnv] = home
	}
	return c, nil
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
		case filepath.IsAbs(t.Cwd):
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

// accountHome is the config home that a session of another account is resumed with, as
// the place of its transcript tells; "" is the default one.
func accountHome(e *Entry, spec runtimes.Spec, homes runtimes.Homes, transcript string) (home string, known bool) {
	for dir := filepath.Dir(transcript); transcript != "" && len(dir) > 1; dir = filepath.Dir(dir) {
		switch filepath.Base(dir) {
		case "projects", "sessions", "archived_sessions", "session-state", "tmp", "chats", "threads":
			if home = filepath.Dir(dir); home == spec.ConfigHome(homes) {
				return "", true
			}
			if spec.ConfigEnv != "" && strings.HasSuffix(home, spec.ConfigSub) && e.Account != "" {
				return strings.TrimSuffix(strings.TrimSuffix(home, spec.ConfigSub), "/"), true
			}
		}
	}
	return "", e.Account == ""
}

// conversationHolder says who has the row's conversation in use: another open row, or the
// row's own process while it runs.
func (s *Store) conversationHolder(ctx context.Context, e *Entry) (string, error) {
	if err := s.completeClaims(ctx); err != nil && !isReadOnly(err) {
		return "", err
	}
	by, err := s.holder(conversationClaim(e.Runtime, e.SessionID))
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
	return "", nil
}

// findProgram finds the runtime's program on PATH, outside the shim folder.
func (s *Store) findProgram(spec runtimes.Spec) (string, error) {
	var last error = exec.ErrNotFound
	for _, name := range append([]string{spec.Name}, spec.Argv0...) {
		path, err := lookPath(name, s.runtimes.shims)
		if err == nil {
			return path, nil
		}
		last = err
	}
	return "", last
}

// lookPath is exec.LookPath without the folder skip, in which the shims are.
func lookPath(name, skip string) (string, error) {
	if strings.ContainsRune(name, '/') {
		return exec.LookPath(name)
	}
	for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
		if !filepath.IsAbs(dir) || sameFolder(dir, skip) {
			continue
		}
		if path, err := exec.LookPath(filepath.Join(dir, name)); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("%q: %w", name, exec.ErrNotFound)
}

func sameFolder(a, b string) bool {
	if b == "" {
		return false
	}
	x, errX := os.Stat(a)
	y, errY := os.Stat(b)
	return errX == nil && errY == nil && os.SameFile(x, y)
}

// isReadOnly reports whether a write failed because the ledger can only be read.
func isReadOnly(err error) bool {
	return errors.Is(err, syscall.EROFS) || errors.Is(err, os.ErrPermission)
}
