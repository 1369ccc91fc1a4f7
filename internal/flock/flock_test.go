package flock

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/lockedfile"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if role := os.Getenv("FLOCK_TEST_CHILD"); role != "" {
		if err := runChild(role, os.Getenv("FLOCK_TEST_DIR")); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// patience bounds what must happen and does so much sooner.
const patience = 30 * time.Second

func runChild(role, dir string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	defer cancel()
	s := NewSet(dir, "")
	switch role {
	case "hold": // until standard input ends
		unlock, err := s.Lock(ctx, "000")
		if err != nil {
			return err
		}
		fmt.Println("held")
		io.Copy(io.Discard, os.Stdin)
		unlock()
	case "count":
		for range increments {
			if err := increment(ctx, s); err != nil {
				return err
			}
		}
	default:
		return runSystemChild(role, s)
	}
	return nil
}

// child runs the test binary in a role of runChild.
func child(t testing.TB, role, dir string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), "FLOCK_TEST_CHILD="+role, "FLOCK_TEST_DIR="+dir, "GORACE=atexit_sleep_ms=0")
	cmd.Stderr = os.Stderr
	return cmd
}

// holder is a process that has the lock 000.
func holder(t testing.TB, dir string) (cmd *exec.Cmd, letGo func()) {
	t.Helper()
	cmd = child(t, "hold", dir)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	end := sync.OnceFunc(func() {
		in.Close()
		cmd.Wait()
	})
	t.Cleanup(func() {
		cmd.Process.Kill()
		end()
	})
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "held\n" {
		t.Fatalf("holder says %q, %v", line, err)
	}
	return cmd, end
}

// await polls, for want of an event to wait for.
func await(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("still not: %s", what)
		}
	}
}

func within(t testing.TB, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

func lock(t testing.TB, s *Set, name string) (unlock func()) {
	t.Helper()
	unlock, err := s.Lock(within(t, patience), name)
	if err != nil {
		t.Fatal(err)
	}
	return unlock
}

const increments = 20

// increment reads and writes a counter, which loses counts without the lock.
func increment(ctx context.Context, s *Set) error {
	unlock, err := s.Lock(ctx, "000")
	if err != nil {
		return err
	}
	defer unlock()
	path := filepath.Join(s.dir, "counter")
	b, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	n, _ := strconv.Atoi(string(b))
	runtime.Gosched()
	return os.WriteFile(path, strconv.AppendInt(nil, int64(n)+1, 10), 0o600)
}

func wantCount(t *testing.T, s *Set, n int) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(s.dir, "counter"))
	if err != nil || string(b) != fmt.Sprint(n) {
		t.Fatalf("counter %s, %v, want %d", b, err, n)
	}
}

func TestMutualExclusionOfGoroutines(t *testing.T) {
	// Two sets, so that both the slots and the kernel's locks are between them.
	dir := t.TempDir()
	sets := []*Set{NewSet(dir, ""), NewSet(dir, "")}
	ctx := within(t, 2*patience)
	var wg sync.WaitGroup
	for i := range 64 {
		wg.Go(func() {
			for range increments {
				if err := increment(ctx, sets[i%2]); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	wantCount(t, sets[0], 64*increments)
}

func TestMutualExclusionOfProcesses(t *testing.T) {
	s := NewSet(t.TempDir(), "")
	const processes = 64
	var wg sync.WaitGroup
	for range processes {
		cmd := child(t, "count", s.dir)
		wg.Go(func() {
			if err := cmd.Run(); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	wantCount(t, s, processes*increments)
}

func TestLockedfileIsExcludedToo(t *testing.T) {
	s := NewSet(t.TempDir(), "")
	unlockMutex, err := lockedfile.MutexAt(filepath.Join(s.dir, "000")).Lock()
	if err != nil {
		t.Fatal(err)
	}
	var we *WaitError
	if _, err := s.Lock(within(t, 50*time.Millisecond), "000"); !errors.As(err, &we) {
		t.Errorf("lock held by lockedfile: %v, want a WaitError", err)
	}
	unlockMutex()
	lock(t, s, "000")()
}

func TestUnlockIsIdempotent(t *testing.T) {
	s := NewSet(t.TempDir(), "")
	first := lock(t, s, "000")
	first()
	second := lock(t, s, "000")
	first() // must not free the second's lock
	if _, err := s.Lock(within(t, 50*time.Millisecond), "000"); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("lock held: %v, want DeadlineExceeded", err)
	}
	second()
	lock(t, s, "000")()
}

func TestLocksOfOtherNamesAreFree(t *testing.T) {
	s := NewSet(t.TempDir(), "")
	defer lock(t, s, "000")()
	lock(t, s, "001")()
	lock(t, s, "k000")()
}

func TestEndedContextTakesNothing(t *testing.T) {
	s := NewSet(t.TempDir(), "")
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	for range 100 {
		_, err := s.Lock(ctx, "000")
		if we := new(WaitError); !errors.As(err, &we) || !errors.Is(err, context.Canceled) {
			t.Fatalf("lock with an ended context: %v, want a WaitError of Canceled", err)
		}
	}
	if _, err := os.Lstat(filepath.Join(s.dir, "000")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("lock file: %v, want none", err)
	}
	lock(t, s, "000")()
}

func TestLockFileIsNeverRemoved(t *testing.T) {
	s := NewSet(t.TempDir(), "")
	lock(t, s, "000")()
	before, err := os.Stat(filepath.Join(s.dir, "000"))
	if err != nil {
		t.Fatal(err)
	}
	lock(t, s, "000")()
	after, err := os.Stat(filepath.Join(s.dir, "000"))
	if err != nil || !os.SameFile(before, after) {
		t.Fatalf("the lock file is another one: %v", err)
	}
}

func TestNamesWithPathsAreRefused(t *testing.T) {
	s := NewSet(t.TempDir(), "")
	for _, name := range []string{"", ".", "..", "a/b", "../000", "a\x00"} {
		if _, err := s.Lock(within(t, patience), name); !errors.Is(err, fs.ErrInvalid) {
			t.Errorf("lock %q: %v, want ErrInvalid", name, err)
		}
	}
}

func TestMissingFolder(t *testing.T) {
	s := NewSet(filepath.Join(t.TempDir(), "missing"), "")
	for range 2 { // an error gives the slot back
		if _, err := s.Lock(within(t, patience), "000"); !errors.Is(err, fs.ErrNotExist) {
			t.Fatalf("lock in a missing folder: %v, want ErrNotExist", err)
		}
	}
}

func TestOneGoroutineOfANameWaitsInTheKernel(t *testing.T) {
	s := NewSet(t.TempDir(), "")
	_, letGo := holder(t, s.dir)
	ctx := within(t, patience)
	before := runtime.NumGoroutine()
	var wg sync.WaitGroup
	const callers = 50
	for range callers {
		wg.Go(func() {
			unlock, err := s.Lock(ctx, "000")
			if err != nil {
				t.Error(err)
				return
			}
			unlock()
		})
	}
	inLockedfile := func() int {
		buf := make([]byte, 1<<20)
		return strings.Count(string(buf[:runtime.Stack(buf, true)]), "lockedfile.OpenFile(")
	}
	await(t, "all callers wait, one in lockedfile", func() bool {
		return runtime.NumGoroutine() >= before+callers+1 && inLockedfile() == 1
	})
	if n := runtime.NumGoroutine(); n > before+callers+1 {
		t.Errorf("%d goroutines for %d callers", n-before, callers)
	}
	letGo()
	wg.Wait()
}

func BenchmarkLock(b *testing.B) {
	// Against the library's own mutex, by turns.
	//
	//	go test -run '^$' -bench . ./internal/flock
	dir := b.TempDir()
	s, mu := NewSet(dir, ""), lockedfile.MutexAt(filepath.Join(dir, "mutex"))
	ctx := within(b, time.Hour)
	var times [2]time.Duration
	for b.Loop() {
		start := time.Now()
		unlock, err := mu.Lock()
		if err != nil {
			b.Fatal(err)
		}
		unlock()
		middle := time.Now()
		unlock, err = s.Lock(ctx, "set")
		if err != nil {
			b.Fatal(err)
		}
		unlock()
		times[0] += middle.Sub(start)
		times[1] += time.Since(middle)
	}
	b.ReportMetric(float64(times[0].Nanoseconds())/float64(b.N), "ns/mutex")
	b.ReportMetric(float64(times[1].Nanoseconds())/float64(b.N), "ns/ours")
	b.ReportMetric(float64(times[1])/float64(times[0]), "ours/mutex")
}
