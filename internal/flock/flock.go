// Package flock takes the lock files of one folder, with a wait that ends with
// its context.
//
// The locks are those of package lockedfile, flock(2), which the kernel frees
// when the holder dies; on Linux a free one is taken without that package, by the
// same call. A lock file is therefore never stale, and is never removed: a holder
// of the removed file and one of its successor would both have the lock.
package flock

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/rogpeppe/go-internal/lockedfile"
)

// Set is the locks of one folder. It is safe for concurrent use.
//
// lockedfile blocks in the kernel with neither deadline nor cancellation, and
// each wait occupies an OS thread. So whoever wants a lock first takes the slot
// of its name, a wait that its context can end, and one goroutine a name at most
// is in lockedfile. If its caller leaves, it keeps the slot until the kernel
// gives it the lock, and gives both back at once.
type Set struct {
	dir  string
	proc string

	mu    sync.Mutex
	slots map[string]chan struct{} // by name; full: taken
}

// NewSet is the set of the locks in dir, which must exist when a lock is taken.
// procRoot is where procfs is mounted, "" for /proc; holders are read from it.
func NewSet(dir, procRoot string) *Set {
	if procRoot == "" {
		procRoot = "/proc"
	}
	return &Set{dir: dir, proc: procRoot, slots: make(map[string]chan struct{})}
}

// WaitError says that the context ended before the lock was free.
type WaitError struct {
	Path      string        // the lock file
	HolderPID int           // the process that holds it, 0 where that is unknown
	Waited    time.Duration // how long
	Err       error         // the context's error
}

func (e *WaitError) Error() string {
	holder := "an unknown process"
	if e.HolderPID != 0 {
		holder = fmt.Sprintf("process %d", e.HolderPID)
	}
	return fmt.Sprintf("lock %s: %v after %v, held by %s", e.Path, e.Err, e.Waited.Round(time.Millisecond), holder)
}

func (e *WaitError) Unwrap() error { return e.Err }

// UnsupportedError says that the file system has no locks.
type UnsupportedError struct {
	Path       string // the lock file
	FileSystem string // its type as mountinfo(5) has it, "" where that is unknown
	Err        error
}

func (e *UnsupportedError) Error() string {
	kind := e.FileSystem
	if kind == "" {
		kind = "of unknown type"
	}
	return fmt.Sprintf("lock %s: the file system (%s) has no file locks: %v", e.Path, kind, e.Err)
}

func (e *UnsupportedError) Unwrap() error { return e.Err }

// Try takes the lock called name where nobody holds it, with neither a wait nor a timer.
// Where it fails, [Set.Lock] says why: the lock is held, or only a wait can tell.
func (s *Set) Try(name string) (unlock func(), ok bool) {
	if !isName(name) {
		return nil, false
	}
	slot := s.slot(name)
	select {
	case slot <- struct{}{}:
	default:
		return nil, false
	}
	f, ok := try(filepath.Join(s.dir, name))
	if !ok {
		<-slot
		return nil, false
	}
	return sync.OnceFunc(func() { release(f, slot) }), true
}

// Lock takes the lock called name, whose file it creates where it is missing,
// with mode 0600. It waits until ctx ends, then fails with a *[WaitError]. Where
// the file system has no locks the error is an *[UnsupportedError]. unlock may be
// called more than once, and must be called.
func (s *Set) Lock(ctx context.Context, name string) (unlock func(), err error) {
	path := filepath.Join(s.dir, name)
	if !isName(name) {
		return nil, &fs.PathError{Op: "lock", Path: path, Err: fs.ErrInvalid}
	}
	start := time.Now()
	if ctx.Err() != nil {
		return nil, s.gaveUp(ctx, name, start)
	}
	slot := s.slot(name)
	select {
	case slot <- struct{}{}:
	case <-ctx.Done():
		return nil, s.gaveUp(ctx, name, start)
	}
	if f, ok := try(path); ok {
		return sync.OnceFunc(func() { release(f, slot) }), nil
	}

	type result struct {
		f   *lockedfile.File
		err error
	}
	taken := make(chan result)
	go func() {
		f, err := open(path)
		select {
		case taken <- result{f, err}:
		case <-ctx.Done():
			// The caller leaves, or has left.
			if err != nil {
				<-slot
			} else {
				release(f, slot)
			}
		}
	}()
	select {
	case r := <-taken:
		if r.err != nil {
			<-slot
			return nil, s.failed(path, r.err)
		}
		return sync.OnceFunc(func() { release(r.f, slot) }), nil
	case <-ctx.Done():
		return nil, s.gaveUp(ctx, name, start)
	}
}

func (s *Set) slot(name string) chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	slot := s.slots[name]
	if slot == nil {
		slot = make(chan struct{}, 1)
		s.slots[name] = slot
	}
	return slot
}

func isName(name string) bool {
	return name != "" && name != "." && name != ".." && !strings.ContainsAny(name, "/\\\x00")
}

// release gives back the lock and then its slot.
func release(f io.Closer, slot chan struct{}) {
	f.Close() // which frees the lock even where it reports an error
	<-slot
}

// open takes the lock on the file at path.
//
// lockedfile.Mutex does the same with other flags and mode 0666.
func open(path string) (*lockedfile.File, error) {
	f, err := lockedfile.OpenFile(path, os.O_RDWR|os.O_CREATE|openFlags, 0o600)
	if err != nil {
		return nil, err
	}
	fi, err := f.Stat()
	if err == nil && !fi.Mode().IsRegular() {
		err = &fs.PathError{Op: "lock", Path: path, Err: errors.New("not a regular file")}
	}
	if err == nil && lax(fi.Mode()) {
		err = f.Chmod(0o600)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// gaveUp is the error of a wait that its context ended.
func (s *Set) gaveUp(ctx context.Context, name string, start time.Time) error {
	waited := time.Since(start)
	pid, _ := s.Holder(name)
	return &WaitError{Path: filepath.Join(s.dir, name), HolderPID: pid, Waited: waited, Err: ctx.Err()}
}

// failed names the file system where that is to blame.
func (s *Set) failed(path string, err error) error {
	// ErrUnsupported is ENOSYS, ENOTSUP and EOPNOTSUPP. NFS without its lock
	// service says ENOLCK.
	if errors.Is(err, errors.ErrUnsupported) || errors.Is(err, syscall.ENOLCK) {
		kind := mountOf(s.dir, s.proc).kind
		return &UnsupportedError{Path: path, FileSystem: kind, Err: err}
	}
	return err
}
