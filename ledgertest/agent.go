package ledgertest

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// Command returns the command of the stand-in as that CLI, with those
// arguments, in the test's working directory and environment. It is for [Start],
// or to be run in a terminal.
func Command(t testing.TB, runtime string, args ...string) *exec.Cmd {
	t.Helper()
	dir := BuildAgent(t)
	binary := filepath.Join(dir, runtime+exe())
	if !slices.Contains(Runtimes(), runtime) {
		binary = filepath.Join(dir, "stand-in"+exe())
	}
	cmd := exec.Command(binary, args...)
	cmd.Args[0] = runtime
	return cmd
}

// An Agent is a stand-in that runs, driven through pipes.
type Agent struct {
	t     testing.TB
	cmd   *exec.Cmd
	in    io.WriteCloser
	ended chan struct{} // closed when it was waited for

	mu   sync.Mutex
	text string // what it has printed
	read int    // how much of it Expect has passed
}

// Start starts a command of [Command] and waits for nothing. The agent is ended
// with the test: by the end of its input, and if that does not help by a kill.
func Start(t testing.TB, cmd *exec.Cmd) *Agent {
	t.Helper()
	a := &Agent{t: t, cmd: cmd, ended: make(chan struct{})}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out := output{a}
	cmd.Stdout, cmd.Stderr = out, out
	cmd.WaitDelay = time.Second // what it has started may hold its output open for ever
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	a.in = in
	go func() {
		defer close(a.ended)
		_ = cmd.Wait() // ProcessState tells
	}()
	t.Cleanup(func() {
		in.Close()
		select {
		case <-a.ended:
		case <-time.After(2 * cleanTime):
			_ = cmd.Process.Kill()
			<-a.ended
		}
	})
	return a
}

// output takes what an agent prints.
type output struct{ a *Agent }

func (o output) Write(p []byte) (int, error) {
	o.a.mu.Lock()
	defer o.a.mu.Unlock()
	o.a.text += string(p)
	return len(p), nil
}

// PID is its process.
func (a *Agent) PID() int { return a.cmd.Process.Pid }

// Send sends it a line: a prompt, or a command. It fails the test where the
// agent does not take it.
func (a *Agent) Send(line string) {
	a.t.Helper()
	if _, err := fmt.Fprintln(a.in, line); err != nil {
		a.t.Fatalf("send %q: %v\n%s", line, err, a.Output())
	}
}

// Expect waits for a line that contains text, after those that an earlier
// Expect returned, and returns it. It fails the test where the agent ends
// before, or none comes for a minute.
func (a *Agent) Expect(text string) string {
	a.t.Helper()
	for end := time.Now().Add(awaitTime); ; {
		over := a.Exited()
		if line, ok := a.next(text); ok {
			return line
		}
		if over || time.Now().After(end) {
			a.t.Fatalf("no line with %q (ended: %v); it printed\n%s", text, over, a.Output())
		}
		time.Sleep(pollEvery)
	}
}

// next looks for the line in what has come.
func (a *Agent) next(text string) (string, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	at := a.read
	for line := range strings.Lines(a.text[a.read:]) {
		if at += len(line); strings.Contains(line, text) && strings.HasSuffix(line, "\n") {
			a.read = at
			return strings.TrimRight(line, "\r\n"), true
		}
	}
	return "", false
}

// Session waits for its first line, and returns the id of its conversation: ""
// where the CLI has none.
func (a *Agent) Session() string {
	a.t.Helper()
	_, id, _ := strings.Cut(a.Expect(": session "), ": session ")
	if strings.Contains(id, " ") {
		return ""
	}
	return id
}

// Output is what it has printed so far.
func (a *Agent) Output() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.text
}

// Exited reports whether it has ended and was waited for, so that its process
// is no zombie either.
func (a *Agent) Exited() bool {
	select {
	case <-a.ended:
		return true
	default:
		return false
	}
}

// Close ends its input, waits for its end and returns its exit status: -1 where
// a signal ended it.
func (a *Agent) Close() int {
	a.t.Helper()
	if err := a.in.Close(); err != nil && !errors.Is(err, os.ErrClosed) {
		a.t.Errorf("close the agent's input: %v", err)
	}
	return a.Wait()
}

// Wait waits for its end, a minute at most, and returns its exit status: -1
// where a signal ended it.
func (a *Agent) Wait() int {
	a.t.Helper()
	Await(a.t, "the agent's end", a.Exited)
	return a.cmd.ProcessState.ExitCode()
}

// Signal sends it a signal.
func (a *Agent) Signal(s os.Signal) {
	a.t.Helper()
	if err := a.cmd.Process.Signal(s); err != nil {
		a.t.Errorf("signal the agent: %v", err)
	}
}
