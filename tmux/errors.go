package tmux

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// What a call can fail with; test with errors.Is. None of these, except
// ErrNotFound, ErrExists and ErrRefused, says anything about a session or pane: see
// [Server.Presence] for what a failure proves about the server.
var (
	// ErrNoServer: nothing answered at the socket.
	ErrNoServer = errors.New("tmux: no server")
	// ErrTimeout: the deadline passed. The command may still run later, when
	// a stopped server wakes up.
	ErrTimeout = errors.New("tmux: timed out")
	// ErrVersionMismatch: client and server speak different protocols.
	ErrVersionMismatch = errors.New("tmux: protocol version mismatch")
	// ErrUnsupported: this tmux (or this system) lacks the feature.
	ErrUnsupported = errors.New("tmux: not supported")
	// ErrRefused: a guard did not hold, nothing was done.
	ErrRefused = errors.New("tmux: guard refused")
	// ErrNotFound: a complete answer of the server lacks the target.
	ErrNotFound = errors.New("tmux: not found")
	// ErrExists: a session of that name exists.
	ErrExists = errors.New("tmux: session exists")
	// ErrInvalid: an argument cannot be passed on safely, nothing was done.
	ErrInvalid = errors.New("tmux: invalid argument")
)

// Error is a failed tmux command. It unwraps to one of the sentinels above, to
// the context's error, or to the error of the process.
type Error struct {
	// Args is the tmux command line after the server options. Values of
	// environment variables are left out and long arguments are cut.
	Args []string
	// Stderr is what tmux said, at most 1 KiB; it may hold any bytes.
	Stderr string
	Err    error

	definite bool // tmux's own definite "no server running"
}

// Error formats the failure on one line, safe to print on a terminal.
func (e *Error) Error() string {
	op := "tmux"
	if len(e.Args) > 0 {
		op += " " + e.Args[0]
	}
	if e.Stderr == "" {
		return fmt.Sprintf("%s: %v", op, e.Err)
	}
	return fmt.Sprintf("%s: %v: %s", op, e.Err, printable(e.Stderr))
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// classify maps a message of tmux, as measured on 3.2a to 3.8, to a sentinel.
func classify(stderr string) (err error, definite bool) {
	switch {
	case strings.HasPrefix(stderr, "no server running on "):
		return ErrNoServer, true
	case strings.HasPrefix(stderr, "error connecting to ") && strings.Contains(stderr, "(No such file or directory)"):
		return ErrNoServer, false
	case strings.Contains(stderr, "protocol version mismatch"):
		return ErrVersionMismatch, false
	case strings.HasPrefix(stderr, "can't find "):
		return ErrNotFound, false
	case strings.HasPrefix(stderr, "duplicate session"):
		return ErrExists, false
	case strings.HasPrefix(stderr, "invalid session"), strings.HasPrefix(stderr, "bad session name"),
		strings.HasPrefix(stderr, "invalid window name"):
		return ErrInvalid, false
	case strings.HasPrefix(stderr, "usage: "), strings.Contains(stderr, "unknown option"),
		strings.Contains(stderr, "unknown flag"), strings.Contains(stderr, "unknown command"):
		return ErrUnsupported, false
	}
	return nil, false
}

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrInvalid, fmt.Sprintf(format, args...))
}

// printable keeps escape sequences in foreign text away from a terminal.
func printable(s string) string {
	q := strconv.Quote(s)
	return q[1 : len(q)-1]
}

// redact prepares a command line for an error: environment values and long
// arguments may hold secrets or a whole prompt.
func redact(args []string) []string {
	out := make([]string, len(args))
	for i, a := range args {
		if i > 0 && args[i-1] == "-e" {
			a, _, _ = strings.Cut(a, "=")
			a += "=..."
		} else {
			// A branch of if-shell holds whole commands.
			if branch, _, has := strings.Cut(a, `"-e" "`); has {
				a = branch + "..."
			}
			if len(a) > 64 {
				a = a[:64] + "..."
			}
		}
		out[i] = a
	}
	return out
}
