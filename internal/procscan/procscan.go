// Package procscan is the library's one reader of /proc.
//
// It answers three questions about a machine's processes: which process is this
// (boot id, namespaces, pid, start ticks), which processes are there now (one
// [Snapshot], pinned process by process), and, for the few that matter, what they carry
// (environment, cgroup, folder, executable, open files). Next to the answers stands what
// could not be found out: an unreadable process, a mount that hides processes or a
// deadline is reported as such, and never reads as "there is no such process".
//
// prometheus/procfs reads by path, so that a pid can be used again between two reads, costs
// nine system calls a file and stops at 1 MiB of environment; here each process is pinned by
// an open descriptor and each file is read once. The differential test holds both against
// each other.
//
// The root of the proc file system can be a folder of plain files, for tests. Such a tree
// needs sys/kernel/random/boot_id, or it is taken for an unmounted /proc and refused.
// On systems other than Linux every method returns [errors.ErrUnsupported].
package procscan

import (
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"sync"
	"time"
)

// What reading one process can find. Any other error means that it could not be read:
// the process may be there or not.
var (
	// ErrGone says that the process is not there any more.
	ErrGone = errors.New("no such process")
	// ErrChanged says that another process has the pid now.
	ErrChanged = errors.New("pid belongs to another process")
	// ErrHidden says that the mount hides processes and a process with that pid exists or
	// may exist.
	ErrHidden = errors.New("process may be hidden by the proc mount")
	// ErrNoEnviron says that the process is there but has no environment, and will have none:
	// it is a kernel thread, a zombie, or about to become one.
	ErrNoEnviron = errors.New("process has no environment")
	// ErrDeleted says that the file or folder has been deleted; it comes with the path
	// that it had.
	ErrDeleted = errors.New("file is deleted")
	// ErrTooLarge says that there is more than the reader's bound.
	ErrTooLarge = errors.New("more than the reader's bound")
	// ErrNotProc says that no proc file system is mounted at the root.
	ErrNotProc = errors.New("no proc file system")
)

// System reads one mounted proc file system. Use [New]; the zero value does not work.
// It holds no descriptor and is safe for concurrent use.
type System struct {
	root       string
	extraLimit time.Duration // of one read of an extra

	mu       sync.Mutex
	bootID   string
	bootTime time.Time
	ticks    int64
}

// New returns a reader of the proc file system mounted at root; "" is /proc.
func New(root string) *System {
	if root == "" {
		root = defaultRoot
	}
	return &System{root: filepath.Clean(root), extraLimit: 2 * time.Second}
}

const defaultRoot = "/proc"

// BootID returns the kernel's id of this boot. It is kept after the first success.
func (s *System) BootID() (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.bootID == "" {
		id, err := s.readBootID()
		if err != nil {
			return "", err
		}
		s.bootID = id
	}
	return s.bootID, nil
}

// BootTime returns when the machine was booted, in UTC and whole seconds. The kernel
// computes it from the wall clock at every read, so it is read once and kept: start times
// derived from it do not move. It is for people, never for identity.
func (s *System) BootTime() (time.Time, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.bootTime.IsZero() {
		t, err := s.readBootTime()
		if err != nil {
			return time.Time{}, err
		}
		s.bootTime = t
	}
	return s.bootTime, nil
}

// TicksPerSecond returns the unit of start ticks and processor ticks: USER_HZ, which is 100
// on every architecture that Go runs on, as the kernel told this process at its start.
func (s *System) TicksPerSecond() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ticks == 0 {
		s.ticks = clockTicks()
	}
	return s.ticks
}

// StartTime returns when a process with these start ticks was started, in UTC.
func (s *System) StartTime(startTicks uint64) (time.Time, error) {
	boot, err := s.BootTime()
	if err != nil {
		return time.Time{}, err
	}
	hz := uint64(s.TicksPerSecond())
	seconds := startTicks / hz
	if seconds > math.MaxInt64/uint64(time.Second) {
		return time.Time{}, fmt.Errorf("start ticks %d are out of range", startTicks)
	}
	rest := time.Duration(startTicks%hz) * time.Second / time.Duration(hz)
	return boot.Add(time.Duration(seconds)*time.Second + rest), nil
}
