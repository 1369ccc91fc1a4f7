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

// Bounds in time. A read of a process's memory waits for a lock of that process, which a
// driver or a network file system can hold for ever; such a read cannot be interrupted, so
// it is left behind on a thread of its own.
const (
	scanLimit  = 30 * time.Second
	extraLimit = 2 * time.Second
)

// vanished says whether an error means that the process has ended: its folder is missing,
// or a read through a descriptor of it was refused.
func vanished(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) || errors.Is(err, os.ErrProcessDone)
}

// Stat reads one process, without Args. The error is [ErrGone] when the process certainly
// does not exist; any other means unknown.
func (s *System) Stat(pid int) (Proc, error) {
	st, comm, err := s.stat(pid)
	if err != nil {
		return Proc{}, pidError(pid, err)
	}
	st.Comm = string(comm)
	return st.Proc, nil
}

func (s *System) stat(pid int) (statLine, []byte, error) {
	if pid <= 0 {
		return statLine{}, nil, unix.EINVAL
	}
	fd, err := open(unix.AT_FDCWD, s.path(strconv.Itoa(pid)+"/stat"), unix.O_RDONLY)
	if err != nil {
		if vanished(err) {
			err = s.missing(pid)
		}
		return statLine{}, nil, err
	}
	defer unix.Close(fd)
	st, comm, err := readStat(fd, pid, make([]byte, statSize))
	if vanished(err) {
		err = ErrGone
	}
	return st, comm, err
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

// statSize is more than the longest stat line: 52 numbers of 20 digits and a name.
const statSize = 4096

// readStat reads an open stat file into buf. The kernel writes the whole line in answer to
// one read, at one moment.
func readStat(fd, pid int, buf []byte) (statLine, []byte, error) {
	n, err := pread(fd, buf, 0)
	if err != nil {
		return statLine{}, nil, err
	}
	if n == len(buf) {
		return statLine{}, nil, ErrTooLarge
	}
	st, comm, err := parseStat(buf[:n])
	if err == nil && st.PID != pid {
		err = fmt.Errorf("%w: it is about process %d", errStat, st.PID)
	}
	return st, comm, err
}

// Snapshot reads the process table. When ctx or a limit of 30 seconds ends first, the
// snapshot holds what was read by then and is not complete. An error means that nothing
// was read, or that ctx was cancelled; the snapshot beside it is empty and not complete,
// never nil.
func (s *System) Snapshot(ctx context.Context) (*Snapshot, error) {
	ctx, cancel := context.WithTimeout(ctx, scanLimit)
	defer cancel()
	sc := &scan{sys: s, done: make(chan struct{})}
	go sc.run()
	select {
	case <-sc.done:
	case <-ctx.Done():
	}
	sc.mu.Lock()
	defer sc.mu.Unlock()
	sc.stopped = true
	sn := &Snapshot{sys: s, procs: sc.procs, problem: sc.problem, covers: sc.covers}
	switch err := ctx.Err(); {
	case sc.err != nil:
		sn.procs = nil
		sn.problem = sc.err.Error()
		return sn, sc.err
	case sc.finished:
		sn.whole = sn.problem == ""
	case errors.Is(err, context.Canceled):
		sn.procs = nil
		sn.problem = err.Error()
		return sn, err
	case sn.problem == "":
		sn.problem = "the time allowed for reading the process table has passed"
	}
	if !slices.IsSortedFunc(sn.procs, byPID) {
		sn.procs = slices.SortedFunc(slices.Values(sn.procs), byPID)
	}
	return sn, nil
}

func byPID(a, b Proc) int { return a.PID - b.PID }

// scan is one pass. It runs beside its caller, who leaves it behind at the deadline.
type scan struct {
	sys  *System
	done chan struct{}

	mu       sync.Mutex
	stopped  bool // nobody waits any more
	finished bool
	procs    []Proc
	covers   uint64
	problem  string
	err      error
}

func (sc *scan) run() {
	defer close(sc.done)
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
func (sc *scan) add(p Proc) bool {
	sc.mu.Lock()
	defer sc.mu.Unlock()
	if !sc.stopped {
		sc.procs = append(sc.procs, p)
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
	sc.mu.Lock()
	sc.covers = covers
	sc.procs = make([]Proc, 0, len(names))
	sc.mu.Unlock()

	r := reader{root: int(root.Fd()), stat: make([]byte, statSize), cmdline: make([]byte, maxCmdline+1)}
	found := false
	for _, name := range names {
		pid, ok := parsePID(name)
		if !ok {
			continue
		}
		found = true
		p, err := r.process(name, pid)
		if vanished(err) {
			continue
		}
		if err != nil {
			sc.incomplete(fmt.Sprintf("reading process %d: %v", pid, err))
		}
		if p.PID != 0 && !sc.add(p) {
			return nil
		}
	}
	if !found {
		return fmt.Errorf("%s: %w: it lists no process", sc.sys.root, ErrNotProc)
	}
	return nil
}

func parsePID(name string) (int, bool) {
	if name[0] < '1' || name[0] > '9' {
		return 0, false
	}
	pid, err := strconv.ParseUint(name, 10, 31)
	return int(pid), err == nil
}

// reader reads processes one after the other into the same buffers.
type reader struct {
	root    int
	stat    []byte
	cmdline []byte
}

// process reads one process. With an error, a Proc with a pid is what could be read.
//
// The open stat file is the pin: it belongs to one process, and when it still answers
// after the command line was read, the pid has been that process's all the time. That
// takes two system calls less than a descriptor of the folder.
func (r *reader) process(name string, pid int) (Proc, error) {
	stat, err := open(r.root, name+"/stat", unix.O_RDONLY)
	if err != nil {
		return Proc{}, err
	}
	defer unix.Close(stat)
	n, argsErr := r.args(name)
	st, comm, err := readStat(stat, pid, r.stat)
	if err != nil {
		return Proc{}, err
	}
	p := st.Proc
	text := string(append(r.cmdline[:n], comm...))
	p.Comm = text[n:]
	if argsErr != nil {
		// Not wrapped: the process is there, whatever this says.
		return p, fmt.Errorf("command line: %v", argsErr)
	}
	if n > maxCmdline {
		p.ArgsCut = true
		n = maxCmdline
	}
	var cut bool
	p.Args, cut = splitArgs(text[:n])
	p.ArgsCut = p.ArgsCut || cut
	return p, nil
}

// args reads a command line into r.cmdline.
func (r *reader) args(name string) (int, error) {
	fd, err := open(r.root, name+"/cmdline", unix.O_RDONLY)
	if err != nil {
		return 0, err
	}
	defer unix.Close(fd)
	total := 0
	for total < len(r.cmdline) {
		n, err := pread(fd, r.cmdline[total:], int64(total))
		if err != nil {
			return 0, err
		}
		total += n
		// A read that leaves most of the buffer free has met the end.
		if n == 0 || total < len(r.cmdline)/2 {
			break
		}
	}
	return total, nil
}

func open(dir int, name string, flags int) (int, error) {
	for {
		fd, err := unix.Openat(dir, name, flags|unix.O_CLOEXEC, 0)
		if err != unix.EINTR {
			return fd, err
		}
	}
}

func pread(fd int, buf []byte, offset int64) (int, error) {
	for {
		n, err := unix.Pread(fd, buf, offset)
		if err != unix.EINTR {
			return max(n, 0), err
		}
	}
}
