package flock

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func runSystemChild(role string, s *Set) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if mask, ok := strings.CutPrefix(role, "umask "); ok {
		var m int
		if _, err := fmt.Sscanf(mask, "%o", &m); err != nil {
			return err
		}
		syscall.Umask(m)
		if os.Getuid() == 0 { // who may open a file of any mode
			if err := syscall.Setuid(65534); err != nil {
				return err
			}
		}
		unlock, err := s.Lock(ctx, "000")
		if err == nil {
			unlock()
		}
		return err
	}
	switch role {
	case "unsupported":
		_, err := s.Lock(ctx, "000")
		var ue *UnsupportedError
		if !errors.As(err, &ue) {
			return fmt.Errorf("lock: %v, want an UnsupportedError", err)
		}
		var errno syscall.Errno
		errors.As(err, &errno)
		return json.NewEncoder(os.Stdout).Encode([]any{ue.Path, ue.FileSystem, errno})
	case "held at exec": // a child of this one outlives the lock
		unlock, err := s.Lock(ctx, "000")
		if err != nil {
			return err
		}
		cmd := exec.Command("sleep", "1000")
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		runtime.LockOSThread() // the signal comes when the thread ends
		if err := cmd.Start(); err != nil {
			return err
		}
		defer cmd.Wait()
		defer cmd.Process.Kill()
		unlock()
		again, err := s.Lock(ctx, "000")
		if err == nil {
			again()
		}
		return err
	}
	return fmt.Errorf("unknown role %s", role)
}

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

func descriptors(t testing.TB) int {
	t.Helper()
	names, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(names)
}

func TestAbandonedWaitsBehindAStoppedHolder(t *testing.T) {
	s := NewSet(t.TempDir(), "")
	cmd, _ := holder(t, s.dir)
	if err := cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	goroutines, fds := runtime.NumGoroutine(), descriptors(t)
	var wg sync.WaitGroup
	for i := range 1000 {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), time.Duration(i%40)*time.Millisecond)
			defer cancel()
			_, err := s.Lock(ctx, "000")
			var we *WaitError
			switch {
			case !errors.As(err, &we) || !errors.Is(err, context.DeadlineExceeded):
				t.Errorf("wait behind a stopped holder: %v, want a WaitError", err)
			case we.HolderPID != cmd.Process.Pid || we.Path != filepath.Join(s.dir, "000"):
				t.Errorf("%+v, want the holder %d", we, cmd.Process.Pid)
			case !strings.Contains(err.Error(), fmt.Sprintf("process %d", cmd.Process.Pid)):
				t.Errorf("%q does not name the holder", err)
			}
		})
	}
	wg.Wait()
	// What is left is the one goroutine in lockedfile and its descriptor, and the
	// poller's two that the runtime opens once.
	await(t, "one goroutine is left", func() bool { return runtime.NumGoroutine() <= goroutines+1 })
	if n := descriptors(t); n > fds+3 {
		t.Errorf("%d descriptors, were %d", n, fds)
	}
	lock(t, s, "001")() // the rest of the ledger works

	// The kernel frees a dead holder's lock; the abandoned wait gives it on.
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	lock(t, s, "000")()
	await(t, "no goroutine is left", func() bool { return runtime.NumGoroutine() <= goroutines })
	if n := descriptors(t); n > fds+2 {
		t.Errorf("%d descriptors in the end, were %d", n, fds)
	}
}

func TestCancellationEndsAWaitAtOnce(t *testing.T) {
	s := NewSet(t.TempDir(), "")
	_, letGo := holder(t, s.dir)
	for _, waiters := range []int{1, 2} { // in the kernel; behind the slot
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error)
		for range waiters {
			go func() {
				_, err := s.Lock(ctx, "000")
				done <- err
			}()
		}
		await(t, "a wait in the kernel", func() bool { return blocked(t, s) })
		cancel()
		for range waiters {
			select {
			case err := <-done:
				if !errors.Is(err, context.Canceled) {
					t.Errorf("cancelled wait: %v", err)
				}
			case <-time.After(patience):
				t.Fatal("a cancelled wait goes on")
			}
		}
	}
	letGo()
	lock(t, s, "000")()
}

// blocked reports whether the kernel lists a waiter for the lock 000.
func blocked(t *testing.T, s *Set) bool {
	t.Helper()
	b, err := os.ReadFile("/proc/locks")
	if err != nil {
		t.Fatal(err)
	}
	fi, err := os.Stat(filepath.Join(s.dir, "000"))
	if err != nil {
		t.Fatal(err)
	}
	inode := fmt.Sprintf(":%d ", fi.Sys().(*syscall.Stat_t).Ino)
	for line := range strings.Lines(string(b)) {
		if strings.Contains(line, "->") && strings.Contains(line, inode) {
			return true
		}
	}
	return false
}

// A wait that succeeds at the moment its caller leaves must not keep the lock.
func TestLockIsNeverLostBetweenCallerAndWaiter(t *testing.T) {
	s := NewSet(t.TempDir(), "")
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			for i := range 300 {
				ctx, cancel := context.WithTimeout(context.Background(), time.Duration(w*i%97)*time.Microsecond)
				if unlock, err := s.Lock(ctx, "000"); err == nil {
					unlock()
				}
				cancel()
			}
		})
	}
	wg.Wait()
	lock(t, s, "000")()
}

func TestKilledHolderFreesTheLock(t *testing.T) {
	s := NewSet(t.TempDir(), "")
	for range 3 {
		cmd, _ := holder(t, s.dir)
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		lock(t, s, "000")()
	}
}

func TestChildProcessDoesNotKeepTheLock(t *testing.T) {
	dir := t.TempDir()
	if err := child(t, "held at exec", dir).Run(); err != nil {
		t.Fatal(err)
	}
	lock(t, NewSet(dir, ""), "000")()
}

func TestLockFileModeWhateverTheUmask(t *testing.T) {
	for _, mask := range []string{"000", "022", "077", "777"} {
		dir := t.TempDir()
		if err := errors.Join(os.Chmod(dir, 0o777), os.Chmod(filepath.Dir(dir), 0o755)); err != nil {
			t.Fatal(err)
		}
		if err := child(t, "umask "+mask, dir).Run(); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, "000")
		if fi, err := os.Stat(path); err != nil || fi.Mode() != 0o600 {
			t.Errorf("umask %s: mode %v, %v, want 0600", mask, fi.Mode(), err)
		}
		if err := os.Chmod(path, 0o666); err != nil {
			t.Fatal(err)
		}
		lock(t, NewSet(dir, ""), "000")()
		if fi, err := os.Stat(path); err != nil || fi.Mode() != 0o600 {
			t.Errorf("a lax lock file: mode %v, %v, want 0600", fi.Mode(), err)
		}
	}
}

func TestOtherThingsInPlaceOfALockFile(t *testing.T) {
	kinds := map[string]func(path string) error{
		"folder":        func(path string) error { return os.Mkdir(path, 0o700) },
		"FIFO":          func(path string) error { return unix.Mkfifo(path, 0o600) },
		"dangling link": func(path string) error { return os.Symlink("nowhere", path) },
		"link to a file": func(path string) error {
			if err := os.WriteFile(path+".target", nil, 0o600); err != nil {
				return err
			}
			return os.Symlink(path+".target", path)
		},
		"socket": func(path string) error {
			l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
			if err != nil {
				return err
			}
			l.SetUnlinkOnClose(false)
			return l.Close()
		},
	}
	if os.Getuid() == 0 {
		kinds["device"] = func(path string) error { return unix.Mknod(path, unix.S_IFCHR|0o600, int(unix.Mkdev(1, 3))) }
	}
	for kind, mk := range kinds {
		t.Run(kind, func(t *testing.T) {
			s := NewSet(t.TempDir(), "")
			path := filepath.Join(s.dir, "000")
			if err := mk(path); err != nil {
				t.Fatal(err)
			}
			before, err := os.Lstat(path)
			if err != nil {
				t.Fatal(err)
			}
			fds := descriptors(t)
			for range 5 {
				_, err := s.Lock(within(t, patience), "000")
				if err == nil || errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), path) {
					t.Fatalf("lock: %v, want an error at once that names the path", err)
				}
			}
			if n := descriptors(t); n > fds+2 {
				t.Errorf("%d descriptors, were %d", n, fds)
			}
			after, err := os.Lstat(path)
			if err != nil || after.Mode() != before.Mode() {
				t.Errorf("%v has become %v, %v", before.Mode(), after.Mode(), err)
			}
			lock(t, s, "001")()
		})
	}
}

func TestFileSystemWithoutLocksIsNamed(t *testing.T) {
	_, err := exec.LookPath("strace")
	need(t, err == nil, "strace")
	need(t, exec.Command("strace", "-qq", "-o", os.DevNull, "true").Run() == nil, "leave to trace")
	dir, kind := t.TempDir(), ""
	if os.Getuid() == 0 && unix.Mount("flock-test", dir, "tmpfs", 0, "size=64k") == nil {
		kind = "tmpfs"
		t.Cleanup(func() {
			if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
				t.Error(err)
			}
		})
	}
	for name, errno := range map[string]syscall.Errno{"ENOLCK": syscall.ENOLCK, "EOPNOTSUPP": syscall.EOPNOTSUPP, "ENOSYS": syscall.ENOSYS} {
		cmd := child(t, "unsupported", dir)
		cmd.Args = []string{"strace", "-f", "-qq", "-o", os.DevNull, "-e", "inject=flock:error=" + name, cmd.Path}
		if cmd.Path, err = exec.LookPath("strace"); err != nil {
			t.Fatal(err)
		}
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		var got struct {
			path, kind string
			errno      syscall.Errno
		}
		if err := json.Unmarshal(out, &[]any{&got.path, &got.kind, &got.errno}); err != nil {
			t.Fatalf("%q: %v", out, err)
		}
		if got.path != filepath.Join(dir, "000") || got.errno != errno || got.kind == "" || kind != "" && got.kind != kind {
			t.Errorf("%s: %+v, want the file system %s", name, got, kind)
		}
	}
}

func TestHolder(t *testing.T) {
	s := NewSet(t.TempDir(), "")
	if pid, ok := s.Holder("000"); ok {
		t.Errorf("holder of a missing file: %d", pid)
	}
	unlock := lock(t, s, "000")
	if pid, ok := s.Holder("000"); !ok || pid != os.Getpid() {
		t.Errorf("holder %d, %t, want this process, %d", pid, ok, os.Getpid())
	}
	unlock()
	if pid, ok := s.Holder("000"); ok {
		t.Errorf("holder of a free lock: %d", pid)
	}
}

// The kernel's list, from a procfs of the test's own.
func TestHolderReadsLocks(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "000")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		t.Fatal(err)
	}
	var stx unix.Statx_t
	if err := unix.Statx(unix.AT_FDCWD, dir, 0, unix.STATX_MNT_ID, &stx); err != nil {
		t.Fatal(err)
	}
	ours := fmt.Sprintf("%02x:%02x:%d", unix.Major(st.Dev), unix.Minor(st.Dev), st.Ino)
	// As on btrfs: stat(2) and the kernel's list differ about the device.
	volume := fmt.Sprintf("00:2b:%d", st.Ino)
	mountinfo := fmt.Sprintf("%d 1 0:43 / / rw - btrfs /dev/sda rw\n", stx.Mnt_id)
	for _, tt := range []struct {
		name, locks, mountinfo string
		pid                    int
	}{
		{"among others", "1: POSIX  ADVISORY  WRITE 7 " + ours + " 0 EOF\n" +
			"2: FLOCK  ADVISORY  WRITE 8 ff:ff:1 0 EOF\n" +
			"3: FLOCK  ADVISORY  WRITE 42 " + ours + " 0 EOF\n" +
			"3: -> FLOCK  ADVISORY  WRITE 9 " + ours + " 0 EOF\n", "", 42},
		{"waiters alone", "3: -> FLOCK  ADVISORY  WRITE 9 " + ours + " 0 EOF\n", "", 0},
		{"other inode", "3: FLOCK  ADVISORY  WRITE 9 " + ours + "1 0 EOF\n", "", 0},
		{"pid of another namespace", "3: FLOCK  ADVISORY  WRITE 0 " + ours + " 0 EOF\n", "", 0},
		{"negative pid", "3: FLOCK  ADVISORY  WRITE -1 " + ours + " 0 EOF\n", "", 0},
		{"torn line", "3: FLOCK  ADVISORY  WRITE\n", "", 0},
		{"empty", "", "", 0},
		{"device of the file system", "3: FLOCK  ADVISORY  WRITE 42 " + volume + " 0 EOF\n", mountinfo, 42},
		{"device of the file system, no mountinfo", "3: FLOCK  ADVISORY  WRITE 42 " + volume + " 0 EOF\n", "", 0},
		{"two files of one number", "3: FLOCK  ADVISORY  WRITE 42 " + volume + " 0 EOF\n" +
			"4: FLOCK  ADVISORY  WRITE 43 " + volume + " 0 EOF\n", mountinfo, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			proc := t.TempDir()
			if err := os.Mkdir(filepath.Join(proc, "self"), 0o700); err != nil {
				t.Fatal(err)
			}
			for file, content := range map[string]string{"locks": tt.locks, "self/mountinfo": tt.mountinfo} {
				if err := os.WriteFile(filepath.Join(proc, file), []byte(content), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			pid, ok := NewSet(dir, proc).Holder("000")
			if pid != tt.pid || ok != (tt.pid != 0) {
				t.Errorf("holder %d, %t, want %d", pid, ok, tt.pid)
			}
		})
	}
	if pid, ok := NewSet(dir, t.TempDir()).Holder("000"); ok {
		t.Errorf("holder without procfs: %d", pid)
	}
}

// All locks of a folder that are held, and by whom.
func TestHolders(t *testing.T) {
	s := NewSet(t.TempDir(), "")
	lock(t, s, "000")()
	defer lock(t, s, "001")()
	cmd, letGo := holder(t, s.dir)
	held, err := s.Holders()
	if err != nil || len(held) != 2 || held["001"] != os.Getpid() || held["000"] != cmd.Process.Pid {
		t.Errorf("holders %v, %v", held, err)
	}
	letGo()
	if held, err := s.Holders(); err != nil || len(held) != 1 {
		t.Errorf("holders %v, %v, once one has let go", held, err)
	}
	if held, err := NewSet(s.dir, t.TempDir()).Holders(); err == nil {
		t.Errorf("holders without procfs: %v", held)
	}
	if held, err := NewSet(s.dir+"/none", "").Holders(); err != nil || len(held) > 0 {
		t.Errorf("holders in a folder that is not there: %v, %v", held, err)
	}
}

// What is not known to be free is not taken without a wait, and nothing is left open.
func TestOnlyFreeLocksAreTakenWithoutAWait(t *testing.T) {
	s := NewSet(t.TempDir(), "")
	fds := descriptors(t)
	refused := func(why, name string) {
		t.Helper()
		if f, ok := try(filepath.Join(s.dir, name)); ok {
			t.Errorf("taken: %s", why)
			f.Close()
		}
	}
	refused("no folder", "none/000")
	unlock := lock(t, s, "000")
	refused("held in this process", "000")
	unlock()
	f, ok := try(filepath.Join(s.dir, "000"))
	if !ok {
		t.Fatal("a free lock is not taken")
	}
	if pid, ok := s.Holder("000"); !ok || pid != os.Getpid() {
		t.Errorf("holder %d, %t", pid, ok)
	}
	if _, err := s.Lock(within(t, 50*time.Millisecond), "000"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("lock held: %v, want DeadlineExceeded", err)
	}
	f.Close()
	_, letGo := holder(t, s.dir)
	refused("held by another process", "000")
	letGo()
	await(t, "the lock is free", func() bool {
		f, ok := try(filepath.Join(s.dir, "000"))
		if ok {
			f.Close()
		}
		return ok
	})
	if err := os.Symlink("000", filepath.Join(s.dir, "001")); err != nil {
		t.Fatal(err)
	}
	refused("a link", "001")
	await(t, "no descriptor is left", func() bool { return descriptors(t) <= fds+2 })
}
