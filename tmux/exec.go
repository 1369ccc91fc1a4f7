package tmux

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"sync"
	"time"
)

const (
	maxOutput  = 16 << 20 // of one command
	maxCapture = 64 << 20 // of one capture, both forms
	maxStderr  = 1 << 10

	// pipeGrace is how long output may stay open after the client has ended:
	// a process that inherited it may hold it, and so does a stopped server, to
	// which the client sent it. On a loaded machine our own reader is late too.
	pipeGrace = 500 * time.Millisecond

	// killGrace is how long a call waits for the end of a client that it has
	// killed. Whose pipe a stopped server holds is left behind then.
	killGrace = 20 * time.Millisecond
)

// errTooLarge is the cause when a command printed more than its bound.
var errTooLarge = errors.New("output too large")

// request is one run of the binary.
type request struct {
	argv  []string // rendered tmux commands
	stdin []byte
	limit int                     // of output; 0 is maxOutput
	wrap  func([]string) []string // rewrites the whole command line
	bare  bool                    // argv needs no server (tmux -V)
}

// run executes commands as one sequence, which the server performs without
// anything in between and stops at the first failure. Output comes back with an
// error too, if there is any.
func (s Server) run(ctx context.Context, cmds ...command) ([]byte, error) {
	argv, err := renderArgv(cmds)
	if err != nil {
		return nil, err
	}
	return s.exec(ctx, request{argv: argv})
}

func (s Server) exec(ctx context.Context, r request) ([]byte, error) {
	line, err := s.prefix()
	if err != nil {
		return nil, err
	}
	if r.bare {
		line = line[:1]
	}
	line = append(line, r.argv...)
	if r.wrap != nil {
		line = r.wrap(line)
	}
	if len(line) == 0 {
		return nil, invalid("empty command line")
	}
	if r.limit == 0 {
		r.limit = maxOutput
	}

	ctx, cancel := context.WithTimeout(ctx, s.timeout())
	defer cancel()
	cmd := exec.CommandContext(ctx, line[0], line[1:]...)
	cmd.Env = s.environ()
	if r.stdin != nil {
		cmd.Stdin = bytes.NewReader(r.stdin)
	}
	out := &bounded{max: r.limit, cut: false}
	diag := &bounded{max: maxStderr, cut: true}
	cmd.Stdout, cmd.Stderr = out, diag
	cmd.WaitDelay = pipeGrace
	ownGroup(cmd)
	cmd.Cancel = func() error { return killGroup(cmd) }

	err = finish(ctx, cmd)
	printed, over := out.take()
	told, _ := diag.take()
	if err == nil {
		return printed, nil
	}
	if errors.Is(err, exec.ErrWaitDelay) {
		_ = killGroup(cmd) // whoever holds the pipe; it may be gone by now
	}
	e := &Error{Args: redact(r.argv), Stderr: strings.TrimSpace(string(told))}
	switch {
	case over:
		e.Err = errTooLarge // before the signal that it ends in
	case ctx.Err() == context.Canceled:
		e.Err = context.Canceled
	case ctx.Err() != nil:
		e.Err = fmt.Errorf("%w: %w", ErrTimeout, ctx.Err())
	case errors.Is(err, exec.ErrWaitDelay):
		// The client ended, but a child of it may have written what we read.
		e.Err = fmt.Errorf("%w: output held open after exit", ErrTimeout)
	default:
		if e.Err, e.definite = classify(e.Stderr); e.Err == nil {
			e.Err = err
		}
	}
	return printed, e
}

// finish runs a client. It does not wait for one that it has killed and whose pipes
// somebody holds: that one ends by itself, pipeGrace later.
func finish(ctx context.Context, cmd *exec.Cmd) error {
	if err := cmd.Start(); err != nil {
		return err
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	late := time.NewTimer(killGrace)
	defer late.Stop()
	select {
	case err := <-done:
		return err
	case <-late.C:
		return ctx.Err()
	}
}

// bounded keeps at most max bytes; more is dropped (cut) or an error, which
// makes the copy end and the writer fail. What comes after take is lost.
type bounded struct {
	max int
	cut bool

	mu   sync.Mutex
	buf  []byte
	over bool // there was more
}

func (b *bounded) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	room := b.max - len(b.buf)
	if len(p) <= room {
		b.buf = append(b.buf, p...)
		return len(p), nil
	}
	b.buf, b.over = append(b.buf, p[:room]...), true
	if b.cut {
		return len(p), nil
	}
	return room, errTooLarge
}

// take returns what was kept, and whether there was more. It ends the collection: the
// writer may still be at it.
func (b *bounded) take() (kept []byte, over bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	kept, over = b.buf, b.over
	b.buf, b.max, b.cut = nil, 0, true
	return kept, over
}

func asError(err error) *Error {
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	return nil
}
