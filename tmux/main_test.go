//go:build unix

package tmux

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
)

// The tests run against real servers, each on a socket of its own, with the
// binary that LEDGER_TMUX names (default: tmux on PATH). With LEDGER_TMUX_FAKE set,
// the test binary itself plays a tmux that misbehaves.

func TestMain(m *testing.M) {
	if mode := os.Getenv("LEDGER_TMUX_FAKE"); mode != "" {
		fake(mode)
	}
	if len(os.Args) > 1 && os.Args[1] == "ledger-test-program" {
		program(os.Args[2])
	}
	os.Exit(m.Run())
}

// fake is a tmux that lies, hangs or floods.
func fake(mode string) {
	kind, arg, _ := strings.Cut(mode, ":")
	switch kind {
	case "hang":
		select {}
	case "hang-with-child": // the group must die, not the client alone
		c := exec.Command("sleep", "1000")
		c.Stdout = os.Stdout
		c.Start()
		os.WriteFile(arg, []byte(fmt.Sprint(c.Process.Pid)), 0o600)
		select {}
	case "pipe-held":
		c := exec.Command("sleep", "1000")
		c.Stdout = os.Stdout
		c.Start()
		os.WriteFile(arg, []byte(fmt.Sprint(c.Process.Pid)), 0o600)
	case "flood":
		b := make([]byte, 1<<16)
		for {
			if _, err := os.Stdout.Write(b); err != nil {
				os.Exit(1)
			}
		}
	case "say":
		fmt.Fprintln(os.Stderr, arg)
		os.Exit(1)
	case "print":
		fmt.Print(arg)
	case "argv":
		for _, a := range os.Args[1:] {
			fmt.Printf("%q\n", a)
		}
	}
	os.Exit(0)
}

func fakeServer(t *testing.T, mode string) Server {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return Server{Binary: self, Socket: "/nonexistent/s", Env: append(os.Environ(), "LEDGER_TMUX_FAKE="+mode,
		"GORACE=atexit_sleep_ms=0")} // else each exit takes a second under -race
}

func binary(t testing.TB) string {
	t.Helper()
	bin := os.Getenv("LEDGER_TMUX")
	if bin == "" {
		bin = "tmux"
	}
	return needTool(t, bin)
}

// needTool finds a program. Without it the test is skipped, but fails in CI.
func needTool(t testing.TB, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	return path
}

// newServer returns a server value on a fresh socket, and makes the test parallel,
// since it mostly waits for other processes. Nothing runs yet; whatever a test starts
// there is ended and verified gone.
func newServer(t testing.TB) Server {
	t.Helper()
	s := oldServer(t)
	v, err := s.Version(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if older(v, 3, 2) {
		t.Skipf("tmux %s is not supported", v)
	}
	return s
}

// oldServer is newServer with a tmux of any release.
func oldServer(t testing.TB) Server {
	t.Helper()
	if t, ok := t.(*testing.T); ok {
		t.Parallel()
	}
	dir, err := os.MkdirTemp("/tmp", "lt")
	if err != nil {
		t.Fatal(err)
	}
	s := Server{
		Socket: filepath.Join(dir, "s"), Binary: binary(t), Config: "/dev/null", Timeout: 20 * time.Second,
		// The C locale is part of the test: names must survive it.
		Env: []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "LC_ALL=C", "TERM=xterm-256color", "SHELL=/bin/sh", "TMUX_TMPDIR=" + dir},
	}
	t.Cleanup(func() {
		endServer(t, s)
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return s
}

// endServer ends whatever answers at a socket and waits until it is gone.
func endServer(t testing.TB, s Server) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	var l Listing
	var err error
	for { // a server that is just ending answers with a failure, once
		l, err = s.List(ctx)
		if e := asError(err); e == nil || e.Stderr != "server exited unexpectedly" || ctx.Err() != nil {
			break
		}
	}
	if s.Presence(err) == Absent {
		return
	}
	if err != nil {
		if os.IsNotExist(statErr(s.Socket)) {
			return // never started; tests that unlink a socket put it back
		}
		if is(err, ErrUnsupported) { // an old server: without a guard, then
			_, _ = s.run(ctx, command{"kill-server"})
			return
		}
		t.Errorf("cannot end the server: %v", err)
		return
	}
	if err := s.KillServer(ctx, l.Server); err != nil {
		t.Errorf("server %d is not gone: %v", l.Server.PID, err)
	}
}

func statErr(path string) error { _, err := os.Lstat(path); return err }

func start(t testing.TB, s Server, name string, argv ...string) Pane {
	t.Helper()
	if len(argv) == 0 {
		argv = []string{"sleep", "1000"}
	}
	p, err := s.NewSession(context.Background(), SessionOptions{Name: name, Start: Start{Command: argv}})
	if err != nil {
		t.Fatalf("NewSession %q: %v", name, err)
	}
	return p
}

func list(t testing.TB, s Server) Listing {
	t.Helper()
	l, err := s.List(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// raw runs the binary without this package's own checks.
func raw(t testing.TB, s Server, args ...string) string {
	t.Helper()
	c := exec.Command(s.Binary, append([]string{"-u", "-S", s.Socket, "-f", "/dev/null"}, args...)...)
	c.Env = s.environ()
	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("tmux %q: %v\n%s", args, err, out)
	}
	return string(out)
}

// trimmed is the text of a capture without the blanks that 3.2 pads lines with.
func trimmed(c Capture) string {
	rows := strings.Split(string(c.Text), "\n")
	for i := range rows {
		rows[i] = strings.TrimRight(rows[i], " ")
	}
	return strings.Join(rows, "\n")
}

// eventually polls, since what happens in another process has no other signal.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	end := time.Now().Add(20 * time.Second)
	for !ok() {
		if time.Now().After(end) {
			t.Fatalf("never happened: %s", what)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// awaitDead waits until tmux has reaped the process of p and says that the pane is dead.
// A tmux with libutempter loses the SIGCHLD of a child that ends while the pane is being
// made (https://github.com/tmux/tmux/issues/311): the child stays a zombie and its status
// unknown until the next SIGCHLD, which is sent here.
func awaitDead(t testing.TB, s Server, p Pane) Pane {
	t.Helper()
	pid := p.PID
	eventually(t, "pane dies", func() bool {
		if err := syscall.Kill(p.Server.PID, syscall.SIGCHLD); err != nil {
			t.Fatal(err)
		}
		reaped := syscall.Kill(pid, 0) != nil // succeeds for a zombie
		l := list(t, s)
		got, ok := l.Pane(p.ID)
		if !ok {
			t.Fatalf("pane %s is gone: %+v", p.ID, l)
		}
		p = got
		return reaped && p.Dead
	})
	return p
}

func needLinux(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("needs /proc")
	}
}

func alive(pid int) bool {
	if runtime.GOOS == "linux" {
		_, p := readStat(pid)
		return p == Present
	}
	return syscall.Kill(pid, 0) == nil
}

// stopServer stops a server process until the test ends or wake is called.
func stopServer(t testing.TB, pid int) (wake func()) {
	t.Helper()
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	wake = func() { syscall.Kill(pid, syscall.SIGCONT) }
	t.Cleanup(wake)
	return wake
}

func is(err, target error) bool { return errors.Is(err, target) }
