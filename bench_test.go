//go:build linux

package ledger

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The store against bare loops that do only the unavoidable work. Commands, limits and
// figures: bench/README.md.

// ratio runs both sides by turns, so that both meet the same disk and the same load, and
// reports the median of what ours takes in units of bare.
func ratio(b *testing.B, bare, ours func()) { b.Helper(); ratioAfter(b, func() {}, bare, ours) }

// ratioAfter is ratio with something to do before each turn, which is not measured.
func ratioAfter(b *testing.B, before, bare, ours func()) {
	b.Helper()
	var quotients []float64
	var total [2]time.Duration
	for i := 0; b.Loop(); i++ {
		before()
		var took [2]time.Duration
		order := [2]int{i % 2, 1 - i%2}
		for _, side := range order {
			start := time.Now()
			[]func(){bare, ours}[side]()
			took[side] = time.Since(start)
			total[side] += took[side]
		}
		quotients = append(quotients, float64(took[1])/float64(took[0]))
	}
	slices.Sort(quotients)
	b.ReportMetric(quotients[len(quotients)/2], "x-of-bare")
	b.ReportMetric(float64(total[1])/float64(total[0]), "x-of-bare(sum)")
	b.ReportMetric(float64(total[0].Microseconds())/float64(b.N), "µs-bare")
	b.ReportMetric(float64(total[1].Microseconds())/float64(b.N), "µs-ours")
	b.ReportMetric(0, "ns/op") // of both sides: it says nothing
}

// benchRow is a row of usual size.
func benchRow(id string) Entry {
	ticks, yes := uint64(123456), true
	at := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	return Entry{
		SchemaVersion: 1, LedgerID: id, Runtime: "claude", StartedAt: at, Host: "host", HostID: "another-host", BootID: "0c4f1d6a-7b7e-4d5b-9a51-3f6f7b1f8f10",
		PIDNamespace: 4026531836, TimeNamespace: 4026531834, Cwd: "/home/user/src/project/" + id, RepoRoot: "/home/user/src/project",
		Project: "project", Branch: "feature/" + id, Worktree: &yes, TTY: "/dev/pts/3", LauncherPID: 4242, LaunchedBy: LaunchedByUser,
		EnrolledBy: EnrolledByHook, PID: 5000, PIDStartTicks: &ticks, CPUTicks: &ticks, SessionID: "1b671a64-40d5-491e-99b0-da01ff1f3341-" + id,
		TranscriptPath: "/home/user/.claude/projects/-home-user-src-project/" + id + ".jsonl", Phase: PhaseLive, StateAt: at,
		ProcessDescribedAt: at, LastActiveAt: at, LastHeartbeatAt: at, Cgroup: "/user.slice/user-1000.slice/session-1.scope", Revision: 1,
	}
}

// fillLedger writes rows past the store, which would sync each.
func fillLedger(tb testing.TB, dir, sub string, n int, change func(*Entry)) {
	tb.Helper()
	fillRows(tb, dir, sub, n, change)
	outgrow()
}

// outgrow waits until what was created is old enough to be cached, by the file system's
// clock: only time makes it older.
func outgrow() { time.Sleep(cacheAge + 100*time.Millisecond) }

func fillRows(tb testing.TB, dir, sub string, n int, change func(*Entry)) {
	tb.Helper()
	path := filepath.Join(dir, sub)
	if err := os.MkdirAll(path, 0o700); err != nil {
		tb.Fatal(err)
	}
	old := time.Now().Add(-time.Hour)
	for i := range n {
		e := benchRow(fmt.Sprintf("claude-20261130T120000Z-%06d", i))
		if sub == dirFinished {
			e.LedgerID = fmt.Sprintf("codex-20261130T120000Z-%06d", i)
			e.Phase, e.FinishedAt = PhaseFinished, old
		}
		if change != nil {
			change(&e)
		}
		data, err := encodeEntry(&e)
		if err != nil {
			tb.Fatal(err)
		}
		name := filepath.Join(path, e.LedgerID+rowExtension)
		if err := errors.Join(os.WriteFile(name, data, 0o600), os.Chtimes(name, old, old)); err != nil {
			tb.Fatal(err)
		}
	}
}

// bareWrite is one durable read-modify-write with nothing but the unavoidable calls.
func bareWrite(b *testing.B, dir *os.File, lock, name string, change func(*Entry)) {
	err := func() error {
		l, err := os.OpenFile(lock, os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			return err
		}
		defer l.Close()
		if err := syscall.Flock(int(l.Fd()), syscall.LOCK_EX); err != nil {
			return err
		}
		path := filepath.Join(dir.Name(), name)
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		e, err := decodeEntry(data)
		if err != nil {
			return err
		}
		change(&e)
		e.Revision++
		if data, err = encodeEntry(&e); err != nil {
			return err
		}
		f, err := os.OpenFile(path+".tmp", os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return err
		}
		defer f.Close()
		if _, err := f.Write(data); err != nil {
			return err
		}
		if err := f.Sync(); err != nil {
			return err
		}
		if err := os.Rename(path+".tmp", path); err != nil {
			return err
		}
		return dir.Sync()
	}()
	if err != nil {
		b.Error(err)
	}
}

func openFolder(b *testing.B, path string) *os.File {
	b.Helper()
	dir, err := os.Open(path)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { dir.Close() })
	return dir
}

func benchStore(b *testing.B) *Store {
	b.Helper()
	return openStore(b, filepath.Join(apart(b), "ledger"), nil)
}

// apart makes a folder for files that ext4 allocates far from all others. Without a journal it
// passes over every inode that was freed within the last minutes, one by one, and hours of
// tests and benchmarks beside each other make the creation of a file cost more than its fsync,
// for both sides.
func apart(b *testing.B) string {
	b.Helper()
	dir := b.TempDir()
	if f, err := os.Open(dir); err == nil {
		const topdir = 0x20000 // EXT4_TOPDIR_FL: subfolders are spread over the disk
		if flags, err := unix.IoctlGetInt(int(f.Fd()), unix.FS_IOC_GETFLAGS); err == nil {
			_ = unix.IoctlSetPointerInt(int(f.Fd()), unix.FS_IOC_SETFLAGS, flags|topdir)
		}
		f.Close()
	}
	name := fmt.Sprintf("%x", rand.Uint64()) // its hash is the place
	if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
		b.Fatal(err)
	}
	return filepath.Join(dir, name)
}

// One durable write: at most 1.1 times the bare loop (Update), 1.15 times (Apply).
func BenchmarkDurableTransition(b *testing.B) {
	ctx := context.Background()
	setup := func(b *testing.B) (*Store, func()) {
		s := benchStore(b)
		fillLedger(b, s.root, dirSessions, 1, nil)
		fillLedger(b, s.root, "bare", 1, nil)
		dir := openFolder(b, s.path("bare"))
		n := 0
		return s, func() {
			bareWrite(b, dir, s.path("bare.lock"), "claude-20261130T120000Z-000000.json", func(e *Entry) { n++; e.Operation = strconv.Itoa(n) })
		}
	}
	const id = "claude-20261130T120000Z-000000"
	b.Run("Update", func(b *testing.B) {
		s, bare := setup(b)
		n := 0
		ratio(b, bare, func() {
			if _, err := s.Update(ctx, id, func(e *Entry) error { n++; e.Operation = strconv.Itoa(n); return nil }); err != nil {
				b.Error(err)
			}
		})
	})
	b.Run("Apply", func(b *testing.B) {
		s, bare := setup(b)
		evs, n := []Event{IntendKill(), WithdrawKill()}, 0
		ratio(b, bare, func() {
			n++
			if _, out, err := s.Apply(ctx, id, evs[n%2]); err != nil || out != Applied {
				if _, out, err = s.Apply(ctx, id, evs[n%2]); err != nil {
					b.Error(out, err)
				}
			}
		})
	})
}

// A batch of 100: at most 0.55 times 100 single updates.
func BenchmarkBatch100(b *testing.B) {
	// Each turn frees 200 inodes: it has a ledger of its own, so as not to slow the next.
	stores := make([]*Store, 32)
	for i := range stores {
		stores[i] = benchStore(b)
		fillRows(b, stores[i].root, dirSessions, 100, nil)
	}
	outgrow()
	turn, s := 0, stores[0]
	ctx := context.Background()
	var changes []change
	for i := range 100 {
		changes = append(changes, change{fmt.Sprintf("claude-20261130T120000Z-%06d", i), func(e *Entry) (verdict, error) {
			e.Operation = strconv.FormatUint(e.Revision, 10)
			return unchanged, nil
		}})
	}
	ratioAfter(b, func() {
		s = stores[turn%len(stores)]
		turn++
	}, func() {
		for _, c := range changes {
			if _, err := s.Update(ctx, c.id, func(e *Entry) error { _, err := c.edit(e); return err }); err != nil {
				b.Error(err)
			}
		}
	}, func() {
		if _, errs := s.batch(ctx, changes); errors.Join(errs...) != nil {
			b.Error(errors.Join(errs...))
		}
	})
}

const manyRows = 10_000

func countOpen(b *testing.B, s *Store, want int) {
	n := 0
	for _, err := range s.OpenEntries(context.Background()) {
		if err != nil {
			b.Error(err)
		}
		n++
	}
	if n != want {
		b.Errorf("%d rows, want %d", n, want)
	}
}

// A cold list of 10,000 open rows: at most 0.7 times a bare loop of one goroutine.
func BenchmarkColdList(b *testing.B) {
	s := benchStore(b)
	fillLedger(b, s.root, dirSessions, manyRows, nil)
	ratio(b, func() {
		entries, err := os.ReadDir(s.path(dirSessions))
		if err != nil {
			b.Error(err)
		}
		n := 0
		for _, d := range entries {
			data, err := os.ReadFile(s.path(dirSessions, d.Name()))
			if err == nil {
				_, err = decodeEntry(data)
			}
			if err != nil {
				b.Error(err)
			}
			n++
		}
		if n != manyRows {
			b.Error(n)
		}
	}, func() {
		fresh, err := Open(s.root, nil)
		if err != nil {
			b.Fatal(err)
		}
		countOpen(b, fresh, manyRows)
		fresh.Close()
	})
}

// A warm list of 10,000 open rows of which 10 have changed: at most 1.1 times readdir and
// lstat.
func BenchmarkWarmList(b *testing.B) {
	s := benchStore(b)
	fillLedger(b, s.root, dirSessions, manyRows, nil)
	countOpen(b, s, manyRows)
	change := func() {
		for i := range 10 {
			if _, err := s.Update(context.Background(), fmt.Sprintf("claude-20261130T120000Z-%06d", i*997), touch, Relaxed()); err != nil {
				b.Error(err)
			}
		}
	}
	ratioAfter(b, change, func() {
		dir, err := os.Open(s.path(dirSessions))
		if err != nil {
			b.Fatal(err)
		}
		names, err := dir.Readdirnames(-1)
		dir.Close()
		if err != nil {
			b.Error(err)
		}
		for _, name := range names {
			if _, err := os.Lstat(s.path(dirSessions) + "/" + name); err != nil {
				b.Error(err)
			}
		}
	}, func() { countOpen(b, s, manyRows) })
}

// 100,000 finished rows cost what none do: at most 1.1 times, for a list of open rows and
// for the upkeep of a sweep, each from a store that was just opened.
func BenchmarkFinishedRows(b *testing.B) {
	none, many := benchStore(b), benchStore(b)
	fillLedger(b, none.root, dirSessions, 1000, nil)
	fillLedger(b, many.root, dirSessions, 1000, nil)
	fillLedger(b, many.root, dirFinished, 100_000, nil)
	do := func(dir string, f func(*Store)) func() {
		return func() {
			s, err := Open(dir, nil)
			if err != nil {
				b.Fatal(err)
			}
			f(s)
			s.Close()
		}
	}
	for name, f := range map[string]func(*Store){
		"list": func(s *Store) { countOpen(b, s, 1000) },
		"tidy": func(s *Store) {
			if _, err := s.Tidy(context.Background()); err != nil {
				b.Error(err)
			}
		},
		"find": func(s *Store) {
			if _, err := s.Find(context.Background(), Query{Prefix: "claude-20261130T120000Z-000001"}); err != nil {
				b.Error(err)
			}
		},
	} {
		b.Run(name, func(b *testing.B) { ratio(b, do(none.root, f), do(many.root, f)) })
	}
}

// 64 writers on rows of their own: at most 1.5 times the bare loop, 64 side by side.
func Benchmark64Writers(b *testing.B) {
	s := benchStore(b)
	fillLedger(b, s.root, dirSessions, 64, nil)
	fillLedger(b, s.root, "bare", 64, nil)
	if err := os.Mkdir(s.path("bare.locks"), 0o700); err != nil {
		b.Fatal(err)
	}
	dir := openFolder(b, s.path("bare"))
	// Each writer goes on until all have done 640 writes together: throughput, not the
	// latency of the slowest.
	all := func(write func(id string)) func() {
		return func() {
			var group sync.WaitGroup
			var done atomic.Int64
			for i := range 64 {
				group.Go(func() {
					for done.Add(1) <= 640 {
						write(fmt.Sprintf("claude-20261130T120000Z-%06d", i))
					}
				})
			}
			group.Wait()
		}
	}
	change := func(e *Entry) { e.Operation = strconv.FormatUint(e.Revision, 10) }
	ratio(b, all(func(id string) {
		bareWrite(b, dir, s.path("bare.locks", id), id+rowExtension, change)
	}), all(func(id string) {
		if _, err := s.Update(context.Background(), id, func(e *Entry) error { change(e); return nil }); err != nil {
			b.Error(err)
		}
	}))
}

// childMemory lists a ledger again and again, and prints the memory that it has resident.
var childMemory = inChild("memory", func(dir string) error {
	s, err := Open(dir, nil)
	if err != nil {
		return err
	}
	ctx := context.Background()
	for range 20 {
		n := 0
		for _, err := range s.OpenEntries(ctx) {
			if err != nil {
				return err
			}
			n++
		}
		if n != 1000 {
			return fmt.Errorf("%d open rows", n)
		}
		if _, err := s.Tidy(ctx); err != nil {
			return err
		}
	}
	n := 0
	for _, err := range s.Entries(ctx) {
		if err != nil {
			return err
		}
		n++
	}
	if n != 101_000 {
		return fmt.Errorf("%d rows", n)
	}
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return err
	}
	for line := range bytes.Lines(status) {
		if bytes.HasPrefix(line, []byte("VmRSS:")) || bytes.HasPrefix(line, []byte("VmHWM:")) {
			os.Stdout.Write(line)
		}
	}
	runtime.KeepAlive(s)
	return nil
})

// 100,000 finished and 1,000 open rows in a store that is kept open: at most 64 MB.
func BenchmarkMemory(b *testing.B) {
	s := benchStore(b)
	fillLedger(b, s.root, dirSessions, 1000, nil)
	fillLedger(b, s.root, dirFinished, 100_000, nil)
	peak := math.Inf(-1)
	for b.Loop() {
		for line := range strings.Lines(startChild(b, childMemory, s.root).wait(b)) {
			var kib float64
			if _, err := fmt.Sscanf(line, "VmHWM: %f kB", &kib); err == nil {
				peak = max(peak, kib/1024)
			}
		}
	}
	b.ReportMetric(peak, "MB-peak")
	b.ReportMetric(0, "ns/op")
}
