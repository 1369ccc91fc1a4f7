//go:build linux

package procscan

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestSignalReachesExactlyTheProcess(t *testing.T) {
	s := New("")
	cmd := blocked(t, shell(t), "sh")
	pid, begun := cmd.Process.Pid, stat(t, cmd.Process.Pid).Start
	if err := s.Signal(pid, begun, 0); err != nil {
		t.Errorf("check: %v", err)
	}
	for _, wrong := range []uint64{0, begun - 1, begun + 1} {
		if err := s.Signal(pid, wrong, syscall.SIGKILL); !errors.Is(err, ErrChanged) {
			t.Errorf("other ticks: %v", err)
		}
		if _, err := s.OpenExit(pid, wrong); !errors.Is(err, ErrChanged) {
			t.Errorf("OpenExit, other ticks: %v", err)
		}
	}
	if p := stat(t, pid); p.Gone() {
		t.Fatal("a signal for another process reached this one")
	}
	if err := s.Signal(pid, begun, 1000); !errors.Is(err, unix.EINVAL) {
		t.Errorf("invalid signal: %v", err)
	}
	if err := s.Signal(pid, begun, syscall.SIGTERM); err != nil {
		t.Errorf("SIGTERM: %v", err)
	}
	eventually(t, "it is a zombie", func() bool { return stat(t, pid).State == 'Z' })
	if err := s.Signal(pid, begun, 0); !errors.Is(err, ErrGone) {
		t.Errorf("zombie: %v", err)
	}
	if _, err := s.OpenExit(pid, begun); !errors.Is(err, ErrGone) {
		t.Errorf("zombie: OpenExit: %v", err)
	}
	cmd.Wait()
	if status := cmd.ProcessState.Sys().(syscall.WaitStatus); status.Signal() != syscall.SIGTERM {
		t.Errorf("ended by %v", status)
	}
	if err := s.Signal(pid, begun, 0); !errors.Is(err, ErrGone) {
		t.Errorf("collected: %v", err)
	}
	if _, err := s.OpenExit(pid, begun); !errors.Is(err, ErrGone) {
		t.Errorf("collected: OpenExit: %v", err)
	}
}

func TestSignalWithoutPermission(t *testing.T) {
	switch stage() {
	case "":
		needRoot(t)
		rerun(t, "nobody", &syscall.SysProcAttr{Credential: nobody})
	case "nobody":
		s := New("")
		first, err := s.Stat(1)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Signal(1, first.Start, 0); !errors.Is(err, fs.ErrPermission) || errors.Is(err, ErrGone) {
			t.Errorf("Signal: %v", err)
		}
		if e, err := s.OpenExit(1, first.Start); err != nil { // watching needs no permission
			t.Errorf("OpenExit: %v", err)
		} else {
			e.Close()
		}
	}
}

// The number of a process that has ended may be a thread's by now.
func TestThreadIsNoProcess(t *testing.T) {
	s := New("")
	entries, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		tid, _ := strconv.Atoi(e.Name())
		if tid == os.Getpid() {
			continue
		}
		if err := s.Signal(tid, 1, syscall.SIGKILL); !errors.Is(err, ErrChanged) {
			t.Errorf("thread %d: %v", tid, err)
		}
		if _, ok := snapshot(t).Get(tid); ok {
			t.Errorf("thread %d is in the snapshot", tid)
		}
		return
	}
	t.Skip("there is one thread")
}

// How soon a waiter wakes is logged, and only held against a bound that no busy machine
// reaches.
func TestWaitWakesAtExit(t *testing.T) {
	s := New("")
	for range 10 {
		cmd := blocked(t, shell(t), "sh")
		e, err := s.OpenExit(cmd.Process.Pid, stat(t, cmd.Process.Pid).Start)
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close()
		killed := make(chan time.Time, 1)
		time.AfterFunc(5*time.Millisecond, func() {
			killed <- time.Now()
			cmd.Process.Kill()
		})
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		if err := e.Wait(ctx); err != nil { // though nobody collects it
			t.Fatal(err)
		}
		cancel()
		t.Logf("woken after %v", time.Since(<-killed))
		if err := e.Wait(ctx); err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("second Wait: %v", err)
		}
		if err := e.Wait(t.Context()); err != nil {
			t.Errorf("Wait after the exit: %v", err)
		}
		if p := stat(t, cmd.Process.Pid); p.State != 'Z' {
			t.Errorf("Wait collected the process: %+v", p)
		}
	}
}

func TestWaitEndsWithItsContext(t *testing.T) {
	s := New("")
	cmd := blocked(t, shell(t), "sh")
	e, err := s.OpenExit(cmd.Process.Pid, stat(t, cmd.Process.Pid).Start)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	if err := e.Wait(cancelled); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled before: %v", err)
	}
	// One that ends must not end or delay the others, nor those that come later.
	var all, early sync.WaitGroup
	for i := range 20 {
		early.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i)*time.Millisecond)
			defer cancel()
			if err := e.Wait(ctx); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("deadline: %v", err)
			}
		})
	}
	for range 5 {
		all.Go(func() {
			if err := e.Wait(t.Context()); err != nil {
				t.Errorf("the exit: %v", err)
			}
		})
	}
	for range 100 {
		ctx, cancel := context.WithCancel(t.Context())
		go cancel()
		if err := e.Wait(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("cancelled: %v", err)
		}
	}
	early.Wait()
	cmd.Process.Kill()
	all.Wait()
}

func TestCloseEndsWait(t *testing.T) {
	s := New("")
	cmd := blocked(t, shell(t), "sh")
	e, err := s.OpenExit(cmd.Process.Pid, stat(t, cmd.Process.Pid).Start)
	if err != nil {
		t.Fatal(err)
	}
	fds := []unix.PollFd{{Fd: int32(e.FD()), Events: unix.POLLIN}}
	if n, err := unix.Poll(fds, 0); n != 0 || err != nil {
		t.Errorf("poll: %d, %v", n, err)
	}
	time.AfterFunc(5*time.Millisecond, func() { e.Close() })
	if err := e.Wait(t.Context()); !errors.Is(err, os.ErrClosed) {
		t.Errorf("Wait: %v", err)
	}
	if err := e.Wait(t.Context()); !errors.Is(err, os.ErrClosed) {
		t.Errorf("Wait after Close: %v", err)
	}
	if err := e.Close(); !errors.Is(err, os.ErrClosed) {
		t.Errorf("second Close: %v", err)
	}
	if e.FD() != -1 {
		t.Errorf("FD after Close: %d", e.FD())
	}
}

// A thousand waits hold a thousand descriptors while they last, no threads, and nothing
// after.
func TestThousandWaitsLeakNothing(t *testing.T) {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil || limit.Cur < 1200 {
		t.Skipf("this process may open only %d files", limit.Cur)
	}
	s := New("")
	count := func(dir string) int { return len(must(os.ReadDir(dir))) }
	cmd := blocked(t, shell(t), "sh")
	begun := stat(t, cmd.Process.Pid).Start
	files, threads, routines := count("/proc/self/fd"), count("/proc/self/task"), runtime.NumGoroutine()
	var waiting, done sync.WaitGroup
	var exits []*Exit
	for range 1000 {
		e, err := s.OpenExit(cmd.Process.Pid, begun)
		if err != nil {
			t.Fatal(err)
		}
		exits = append(exits, e)
		waiting.Add(1)
		done.Go(func() {
			waiting.Done()
			if err := e.Wait(t.Context()); err != nil {
				t.Errorf("Wait: %v", err)
			}
		})
	}
	waiting.Wait()
	if n := count("/proc/self/task"); n > threads+50 {
		t.Errorf("%d threads before, %d while a thousand wait", threads, n)
	}
	if n := runtime.NumGoroutine(); n > routines+1000 {
		t.Errorf("%d goroutines before, %d while a thousand wait", routines, n)
	}
	cmd.Process.Kill()
	done.Wait()
	for _, e := range exits {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	}
	for range 1000 { // those that are given up
		e, err := s.OpenExit(os.Getpid(), stat(t, os.Getpid()).Start)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		e.Wait(ctx)
		e.Close()
	}
	eventually(t, "all is given back", func() bool {
		return count("/proc/self/fd") <= files && runtime.NumGoroutine() <= routines
	})
}
