package durable

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// report is what a child says about the errors it met.
type report struct {
	Err    string // "" for success
	Errno  syscall.Errno
	Path   string // the SyncError's
	Synced bool   // false: a SyncError
}

func reportOf(err error) report {
	r := report{Synced: true}
	if err != nil {
		r.Err = err.Error()
	}
	errors.As(err, &r.Errno)
	if se := new(SyncError); errors.As(err, &se) {
		r.Synced, r.Path = false, se.Path
	}
	return r
}

// tell writes the child's reports to standard output, a file, by a system call
// that no test injects faults into, and ends the child.
func tell(errs ...error) {
	var reports []report
	for _, err := range errs {
		reports = append(reports, reportOf(err))
	}
	b, err := json.Marshal(reports)
	if err == nil {
		_, err = unix.Pwrite(1, b, 0)
	}
	if err != nil {
		os.Exit(3)
	}
	os.Exit(0)
}

func init() {
	// strace counts the calls of each thread; the main goroutine stays on the first.
	if os.Getenv("DURABLE_TEST_CHILD") != "" {
		runtime.LockOSThread()
	}
}

// runChild does one step in the folder named by the environment, and exits.
func runChild(step string) {
	path := os.Getenv("DURABLE_TEST_DIR")
	if mask := os.Getenv("DURABLE_TEST_UMASK"); mask != "" {
		var m int
		if _, err := fmt.Sscanf(mask, "%o", &m); err != nil {
			os.Exit(3)
		}
		syscall.Umask(m)
	}
	d, err := OpenDir(path)
	if err != nil {
		os.Exit(3)
	}
	switch step {
	case "replace":
		tell(d.Replace("child", "row", []byte(newRow), true))
	case "create":
		tell(d.Create("child", "row", []byte(newRow), true))
	case "rename":
		to, err := OpenDir(filepath.Join(path, "finished"))
		if err != nil {
			os.Exit(3)
		}
		tell(d.Rename("row", to))
	case "mkdir":
		tell(MkdirAll(filepath.Join(path, "a", "b"), 0o750))
	case "fds":
		var lim unix.Rlimit
		if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &lim); err != nil {
			os.Exit(3)
		}
		f, err := os.Open(os.DevNull)
		if err != nil {
			os.Exit(3)
		}
		fd := uint64(f.Fd())
		f.Close() // the lowest free number is now the limit
		full := unix.Rlimit{Cur: fd, Max: lim.Max}
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &full); err != nil {
			os.Exit(3)
		}
		first := d.Replace("child", "row", []byte(newRow), true)
		_, second := d.Temps()
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &lim); err != nil {
			os.Exit(3)
		}
		tell(first, second, d.Replace("child", "row", []byte(newRow), true))
	case "shared-failure":
		// The test lets the first fsync of the folder fail.
		a, errA := d.Stage("child", "a", []byte(newRow), false)
		b, errB := d.Stage("child", "b", []byte(newRow), false)
		if err := errors.Join(errA, errB, a.Replace(), b.Replace()); err != nil {
			os.Exit(3)
		}
		first, second := d.Sync(a), d.Sync(b)
		c, err := d.Stage("child", "c", []byte(newRow), false)
		if err != nil || c.Replace() != nil {
			os.Exit(3)
		}
		tell(first, second, d.Sync(c), d.Sync())
	default:
		os.Exit(3)
	}
}

var (
	oldRow = strings.Repeat("old", 500)
	newRow = strings.Repeat("newer", 700)
)

// need skips the test where the machine lacks what it needs, and fails it in CI.
func need(t testing.TB, ok bool, what string) {
	t.Helper()
	if ok {
		return
	}
	if os.Getenv("CI") == "true" {
		t.Fatalf("needs %s", what)
	}
	t.Skipf("needs %s", what)
}

// outcome is how a child ended.
type outcome struct {
	killed   bool     // by SIGKILL
	injected bool     // the fault was met
	reports  []report // of the steps, nil where it was killed
}

// child runs a step in dir under strace with the given injections, or bare where
// there are none.
func child(t testing.TB, step, dir string, env []string, inject ...string) outcome {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	argv := []string{self}
	tmp := t.TempDir()
	log := filepath.Join(tmp, "strace")
	if len(inject) > 0 {
		argv = []string{"strace", "-f", "-qq", "-o", log}
		for _, i := range inject {
			argv = append(argv, "-e", "inject="+i)
		}
		argv = append(argv, self)
	}
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = append(os.Environ(), "DURABLE_TEST_CHILD="+step, "DURABLE_TEST_DIR="+dir)
	cmd.Env = append(cmd.Env, "GORACE=atexit_sleep_ms=0") // the default is a second
	cmd.Env = append(cmd.Env, env...)
	out, err := os.Create(filepath.Join(tmp, "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	var stderr strings.Builder
	cmd.Stdout, cmd.Stderr = out, &stderr
	err = cmd.Run()

	var o outcome
	if len(inject) > 0 {
		b, err := os.ReadFile(log)
		if err != nil {
			t.Fatal(err)
		}
		o.injected = strings.Contains(string(b), "INJECTED")
	}
	if err != nil {
		ws, _ := cmd.ProcessState.Sys().(syscall.WaitStatus)
		if ws.Signaled() && ws.Signal() == syscall.SIGKILL {
			o.killed = true
			return o
		}
		if o.injected {
			return o // the fault hit the set-up
		}
		t.Fatalf("%s %v: %v\n%s", step, inject, err, &stderr)
	}
	b, err := os.ReadFile(out.Name())
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, &o.reports); err != nil {
		t.Fatalf("%s %v: %v in %q\n%s", step, inject, err, b, &stderr)
	}
	return o
}
