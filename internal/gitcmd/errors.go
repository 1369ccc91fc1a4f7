package gitcmd

import (
	"errors"
	"fmt"
	"strings"
)

// Why git could not answer. Each is found with errors.Is on an error of this package.
var (
	// ErrNotRepository: no repository here, and nothing on the way up looks like one.
	ErrNotRepository = errors.New("not a git repository")
	// ErrBroken: there is a repository, and git cannot use it: its files are damaged or missing,
	// or the worktree's main repository has gone. Never to be read as "no repository".
	ErrBroken = errors.New("git repository is damaged or incomplete")
	// ErrForeignOwner: git refuses the repository of another user (safe.directory).
	ErrForeignOwner = errors.New("git repository belongs to another user")
	// ErrNoWorkTree: a bare repository, or a folder inside a git directory.
	ErrNoWorkTree = errors.New("git repository has no working tree here")
	// ErrNoDirectory: the folder does not exist or cannot be entered.
	ErrNoDirectory = errors.New("no such folder")
	// ErrNoGit: no git binary was found.
	ErrNoGit = errors.New("no git binary")

	// ErrTimeout: git, or the file system under it, did not answer in time.
	ErrTimeout = errors.New("git did not finish in time")
	// ErrOutput: git wrote more than the bound.
	ErrOutput = errors.New("git wrote too much")

	// ErrEmptySnapshot: there is uncommitted work, and a snapshot would hold nothing of it.
	ErrEmptySnapshot = errors.New("snapshot holds none of the uncommitted work")
)

// errNotRegular: a FIFO, device or folder where a file should be.
var errNotRegular = errors.New("not a regular file")

// Error is a git command that failed.
type Error struct {
	Args     []string // without the fixed overrides, from the subcommand on
	Dir      string   // where it ran
	ExitCode int      // -1: it did not run to its end
	Stderr   string   // the beginning of what it wrote there, as it is
	Err      error    // a sentinel of this package, or the reason it did not run; nil: only the exit code is known
}

// Error names the command, its end and git's last line, free of control characters.
func (e *Error) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "git %s in %q", e.Args[0], e.Dir)
	if e.Err != nil {
		fmt.Fprintf(&b, ": %v", e.Err)
	}
	if e.ExitCode > 0 {
		fmt.Fprintf(&b, ": exit status %d", e.ExitCode)
	}
	if line := lastLine(e.Stderr); line != "" {
		fmt.Fprintf(&b, ": %s", line)
	}
	return b.String()
}

// Unwrap returns Err.
func (e *Error) Unwrap() error { return e.Err }

// classify names the condition behind git's own message. The locale is fixed, so the text is too.
func classify(stderr string) error {
	for _, c := range []struct {
		text string
		err  error
	}{
		{"detected dubious ownership in repository", ErrForeignOwner},
		{"unsafe repository (", ErrForeignOwner}, // git 2.35.2
		{"must be run in a work tree", ErrNoWorkTree},
		{"cannot change to '", ErrNoDirectory},
		{"not a git repository (or any", ErrNotRepository},
		{"not a git repository", ErrBroken}, // a .git file that leads nowhere
	} {
		if strings.Contains(stderr, c.text) {
			return c.err
		}
	}
	return nil
}

// lastLine is the last non-empty line of git's message, printable.
func lastLine(s string) string {
	s = strings.TrimRight(s, "\n")
	if i := strings.LastIndexByte(s, '\n'); i >= 0 {
		s = s[i+1:]
	}
	return printable(s)
}

// printable replaces what could steer a terminal.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r < 0x20 || r >= 0x7f && r < 0xa0 {
			return '?'
		}
		return r
	}, strings.ToValidUTF8(s, "?"))
}
