package gitcmd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

const (
	defaultTimeout = 30 * time.Second
	stdoutLimit    = 64 << 20
	stderrLimit    = 1 << 20

	// A child first gets the chance to remove its lock files, then is killed.
	termGrace = 500 * time.Millisecond
	// pipeDelay is how long a pipe may stay open after its command's end: a filter that lives on
	// must not hang us.
	pipeDelay = 2 * time.Second
)

// Runner runs git. The zero value is ready for use, and a Runner may be used concurrently.
type Runner struct {
	Git     string          // the binary; "": the one in PATH
	Env     func() []string // the environment to start from; nil: os.Environ
	Timeout time.Duration   // for each git command; 0: 30 s
}

// call is one git command.
type call struct {
	dir    string // absolute
	args   []string
	env    []string // GIT_INDEX_FILE and the like
	config []setting
	stdin  []byte
	stdout io.Writer // nil: discarded
}

// output runs c and returns its standard output, at most 64 MiB.
func (r Runner) output(ctx context.Context, c call) (stdout []byte, stderr string, err error) {
	buf := &limited{max: stdoutLimit}
	c.stdout = buf
	stderr, err = r.run(ctx, c)
	if errors.Is(err, ErrTimeout) || errors.Is(err, context.Canceled) {
		return nil, stderr, err // the command may still be writing
	}
	if buf.over {
		// The command itself saw no more than a closed pipe.
		err = &Error{Args: c.args, Dir: c.dir, ExitCode: -1, Stderr: stderr, Err: ErrOutput}
	}
	return buf.Bytes(), stderr, err
}

// run runs c to its end or its deadline. The error is an *Error.
func (r Runner) run(ctx context.Context, c call) (stderr string, err error) {
	fail := func(code int, text string, err error) (string, error) {
		return text, &Error{Args: c.args, Dir: c.dir, ExitCode: code, Stderr: text, Err: err}
	}
	if !filepath.IsAbs(c.dir) {
		return fail(-1, "", fmt.Errorf("%w: %q is not absolute", ErrNoDirectory, c.dir))
	}
	timeout := r.Timeout
	if timeout <= 0 {
		timeout = defaultTimeout
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if err := ctx.Err(); err != nil {
		return fail(-1, "", stopped(err))
	}
	git := r.Git
	if git == "" {
		if git, err = exec.LookPath("git"); err != nil {
			return fail(-1, "", fmt.Errorf("%w: %v", ErrNoGit, err))
		}
	}
	environ := r.Env
	if environ == nil {
		environ = os.Environ
	}

	// Git itself enters the folder: on a hung mount a chdir between fork and exec would hold the
	// fork lock, and with it every other child this process wants to start.
	args := append([]string{"-C", c.dir}, overrides[:]...)
	cmd := exec.Command(git, append(args, c.args...)...)
	cmd.Env = buildEnv(environ(), c.env, c.config)
	errs := &limited{max: stderrLimit, drop: true}
	cmd.Stdout, cmd.Stderr = c.stdout, errs
	if c.stdin != nil {
		cmd.Stdin = bytes.NewReader(c.stdin)
	}
	cmd.WaitDelay = pipeDelay
	ownGroup(cmd)
	if err := cmd.Start(); err != nil {
		return fail(-1, "", fmt.Errorf("%w: %v", ErrNoGit, err))
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()

	select {
	case err = <-done:
	case <-ctx.Done():
		if !end(cmd, done) {
			// Not even killed: it hangs in the kernel. Its goroutine waits on; the buffers are its.
			return fail(-1, "", stopped(ctx.Err()))
		}
		return fail(-1, errs.String(), stopped(ctx.Err()))
	}

	text := errs.String()
	var exit *exec.ExitError
	switch {
	case err == nil:
		return text, nil
	case errors.Is(err, exec.ErrWaitDelay):
		return fail(0, text, fmt.Errorf("%w: %w", ErrTimeout, err))
	case errors.As(err, &exit):
		return fail(exit.ExitCode(), text, classify(text))
	}
	return fail(-1, text, err)
}

// end stops a started command's whole process group. It reports whether the command ended.
func end(cmd *exec.Cmd, done <-chan error) bool {
	for _, step := range []struct {
		signal func(*exec.Cmd)
		wait   time.Duration
	}{{terminateGroup, termGrace}, {killGroup, 2 * pipeDelay}} {
		step.signal(cmd)
		timer := time.NewTimer(step.wait)
		select {
		case <-done:
			timer.Stop()
			return true
		case <-timer.C:
		}
	}
	return false
}

// stopped is the error of a command whose context ended.
func stopped(err error) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("%w: %w", ErrTimeout, err)
	}
	return err
}

// limited keeps at most max bytes. More is an error, or is dropped.
type limited struct {
	bytes.Buffer
	max  int
	drop bool
	over bool
}

func (l *limited) Write(p []byte) (int, error) {
	if free := l.max - l.Len(); len(p) > free {
		l.Buffer.Write(p[:free])
		if !l.drop {
			l.over = true
			return free, ErrOutput
		}
		return len(p), nil
	}
	return l.Buffer.Write(p)
}

// ReadFrom hides the embedded method, which would read past the bound.
func (l *limited) ReadFrom(r io.Reader) (int64, error) {
	return io.Copy(struct{ io.Writer }{l}, r)
}
