package procscan

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// scanLimit bounds a snapshot in time. A read of a process's memory waits for a lock of that
// process, which a driver or a network file system can hold for ever; such a read cannot be
// interrupted, so it is left behind on a thread of its own.
const scanLimit = 30 * time.Second

// vanished says whether an error means that the process has ended: its folder is missing,
// or a read through a descriptor of it was refused.
func vanished(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) || errors.Is(err, os.ErrProcessDone)
}

// Stat reads one process, without Args. The error is [ErrGone] when the process certainly
// does not exist; any other means unknown.
func (s *System) Stat(pid int) (Proc, error) {
	st, err := s.stat(pid)
	if err != nil {
		return Proc{}, pidError(pid, err)
	}
	return st.Proc, nil
}

func (s *System) stat(pid int) (statLine, error) {
	if pid <= 0 {
		return statLine{}, unix.EINVAL
	}
	fd, err := open(unix.AT_FDCWD, s.path(strconv.Itoa(pid)+"/stat"), unix.O_RDONLY)
	if err != nil {
		if vanished(err) {
			err = s.missing(pid)
		}
		return statLine{}, err
	}
	defer unix.Close(fd)
	var buf [statSize]byte
	st, comm, err := readStat(fd, pid, buf[:])
	if vanished(err) {
		err = ErrGone
	}
	st.Comm = string(comm)
	return st, err
}

// missing tells what it means that a process has no folder: it is gone, unless this is no
// proc file system at all or one that hides processes.
func (s *System) missing(pid int) error {
	if err := s.usable(); err != nil {
		return err
	}
	if hidden, known := s.HidesProcesses(); known && !hidden {
		return ErrGone
	}
	// The mount may hide it; the kernel's answer to pidfd_open is the same for everybody.
	if err := s.ownNamespace(); err != nil {
		return ErrHidden
	}
	fd, err := unix.PidfdOpen(pid, 0)
	if err == nil {
		unix.Close(fd)
	}
	if errors.Is(err, unix.ESRCH) {
		return ErrGone
	}
	return ErrHidden
}

// statSize is more than the longest stat line: 52 numbers of 20 digits and a name of 64 bytes.
const statSize = 1280

// readStat reads an open stat file into buf. It must be about pid, unless that is 0. The
// kernel writes the whole line in answer to one read, at one moment.
func readStat(fd, pid int, buf []byte) (statLine, []byte, error) {
	n, err := pread(fd, buf, 0)
	if err != nil {
		return statLine{}, nil, err
	}
	if n == len(buf) {
		return statLine{}, nil, ErrTooLarge
	}
	st, comm, err := parseStat(buf[:n])
	if err == nil && pid != 0 && st.PID != pid {
		err = fmt.Errorf("%w: it is about process %d", errStat, st.PID)
	}
	return st, comm, err
}

// Snapshot reads the process table. When ctx or a limit of 30 seconds ends first, the
// snapshot holds what was read by then and is not complete. An error means that nothing
// was read, or that ctx was cancelled; the snapshot beside it is empty and not complete,
// never nil.
func (s *System) Snapshot(ctx context.Context) (*Snapshot, error) {
	return s.snapshot(ctx, &scan{sys: s})
}

// SnapshotEnviron is [System.Snapshot] with the environment of every process, which
// [Snapshot.Environ] then returns. It costs much less than asking for most of them one by
// one afterwards. An environment that may not be read does not make a snapshot incomplete.
func (s *System) SnapshotEnviron(ctx context.Context) (*Snapshot, error) {
	return s.snapshot(ctx, &scan{sys: s, environ: true})
}

func (s *System) snapshot(ctx context.Context, sc *scan) (*Snapshot, error) {
	ctx, cancel := context.WithTimeout(ctx, scanLimit)
	defer cancel()
	done := make(chan struct{})
	go func() {
		defer close(done)
		sc.run()
	}()
	select {
	case <-done:
	case <-ctx.Done():
	}
	return sc.take(ctx.Err())
}

// scan is one pass. It runs beside its caller, who leaves it behind at the deadline.
type scan struct {
	sys     *System
	environ bool

	mu       sync.Mutex
	stopped  bool // nobody waits any more
	finished bool
	procs    []Proc
	extras   []*extras // beside procs
	covers   uint64
	problem  string
	err      error
}

// take ends the scan and returns what it has, given why the wait for it ended.
func (sc *scan) take(ctxErr error) (*Snapshot, error) {
	sc.mu.Lock()
	defer sc.mu.Unlock()
	sc.stopped = true
	err := sc.err
	if err == nil && !sc.finished && errors.Is(ctxErr, context.Canceled) {
		err = ctxErr
	}
	if err != nil {
		return &Snapshot{sys: sc.sys, problem: err.Error()}, err
	}
	sn := &Snapshot{sys: sc.sys, procs: sc.procs, extras: sc.extras, problem: sc.problem, covers: sc.covers}
	if !sc.finished && sn.problem == "" {
		sn.problem = "the time allowed for reading the process table has passed"
	}
	sn.whole = sn.problem == ""
	return sn, nil
}

func (sc *scan) run() {
	err := sc.table()
	sc.mu.Lock()
	defer sc.mu.Unlock()
	sc.finished, sc.err = err == nil, err
}

// incomplete keeps the first reason.
func (sc *scan) incomplete(reason string) {
	sc.mu.Lock()
	defer sc.mu.Unlock()
	if sc.problem == "" {
		sc.problem = reason
	}
}

// add stores a process and says whether to go on.
func (sc *scan) add(p Proc, x *extras) bool {
	sc.mu.Lock()
	defer sc.mu.Unlock()
	if !sc.stopped {
		sc.procs = append(sc.procs, p)
		sc.extras = append(sc.extras, x)
	}
	return !sc.stopped
}

func (sc *scan) table() error {
	if err := sc.sys.usable(); err != nil {
		return err
	}
	covers := sc.sys.settledTicks()
	root, err := os.Open(sc.sys.root)
	if err != nil {
		return err
	}
	defer root.Close()
	switch hidden, known := sc.sys.HidesProcesses(); {
	case !known:
		sc.incomplete("cannot find out whether the proc mount hides processes")
	case hidden:
		sc.incomplete("the proc mount hides other users' processes (hidepid)")
	}
	// The kernel lists in the order of pids, from where it left off: every process that
	// lives through the listing is in it.
	names, err := root.Readdirnames(-1)
	if err != nil {
		sc.incomplete("listing the processes: " + err.Error())
	}
	names = slices.DeleteFunc(names, func(name string) bool { return parsePID(name) == 0 })
	if len(names) == 0 {
		return fmt.Errorf("%s: %w: it lists no process", sc.sys.root, ErrNotProc)
	}
	byPID := func(a, b string) int { return parsePID(a) - parsePID(b) }
	if !slices.IsSortedFunc(names, byPID) { // a tree of files
		slices.SortFunc(names, byPID)
	}
	sc.mu.Lock()
	sc.covers = covers
	sc.procs = make([]Proc, 0, len(names))
	sc.extras = make([]*extras, 0, len(names))
	sc.mu.Unlock()

	r, err := sc.sys.newReader(int(root.Fd()), sc.environ)
	if err != nil {
		return err
	}
	for _, name := range names {
		p, err := r.process(name)
		if vanished(err) {
			continue
		}
		if err != nil {
			sc.incomplete(fmt.Sprintf("reading process %s: %v", name, err))
		}
		if p.PID != 0 && !sc.add(p, r.extras) {
			break
		}
	}
	return nil
}
