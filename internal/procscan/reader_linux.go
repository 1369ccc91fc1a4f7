package procscan

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// parsePID returns the pid that names a folder, or 0.
func parsePID(name string) int {
	if name[0] < '1' || name[0] > '9' {
		return 0
	}
	pid, err := strconv.ParseUint(name, 10, 31)
	if err != nil {
		return 0
	}
	return int(pid)
}

// reader reads processes one after the other into the same buffers.
type reader struct {
	root    int
	real    bool // a proc file system, no tree of files
	stat    []byte
	cmdline []byte
	environ []byte  // nil when environments are not wanted
	extras  *extras // of the last process
}

func (s *System) newReader(root int, environ bool) (*reader, error) {
	real, err := s.realProc()
	r := &reader{root: root, real: real, stat: make([]byte, statSize), cmdline: make([]byte, cmdlineSize)}
	if environ {
		r.environ = make([]byte, environSize)
	}
	return r, err
}

// process reads one process. With an error, a Proc with a pid is what could be read.
//
// The open stat file is the pin: it belongs to one process, and when it still answers
// after all else was read, the pid has been that process's all the time. That takes two
// system calls less than a descriptor of the folder.
func (r *reader) process(name string) (Proc, error) {
	r.extras = nil
	pin, err := open(r.root, name+"/stat", unix.O_RDONLY)
	if err != nil {
		return Proc{}, err
	}
	defer unix.Close(pin)
	n, argsErr := r.args(name)
	var block []byte
	var envErr error
	if r.environ != nil {
		block, envErr = readEnviron(r.root, name+"/environ", r.environ)
	}
	st, comm, err := readStat(pin, parsePID(name), r.stat)
	if err != nil {
		return Proc{}, err
	}
	if r.environ != nil {
		if env, err, ok := settleEnviron(block, envErr, st); ok {
			r.extras = new(extras)
			x := &r.extras.environ
			x.v, x.err, x.done = env, extraError(st.PID, "environment", err), true
		}
	}
	if n == 0 && argsErr == nil && r.real && !st.Kernel && !st.dying() {
		n, argsErr = r.argsAgain(name, pin, &st)
		if vanished(argsErr) {
			return Proc{}, argsErr
		}
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

// dying says that the process has given back its memory, for good. Of a process with
// several threads that may be true of the first one only.
func (st *statLine) dying() bool { return st.Gone() || st.exiting && st.Threads <= 1 }

// loaded says that the addresses are to be seen and final. While a program is set up, those
// of arguments and environment enclose nothing; that of the code is stored after them.
func (st *statLine) loaded() bool { return st.code > 1 && st.envEnd != 0 }

// leaderless says that the first thread has ended, while others may run. What the process
// has shows only in their folders.
func (p *Proc) leaderless() bool { return p.State == 'Z' && p.Threads > 1 }

// settling is how long to wait, between tries, for a process to get on with starting
// another program: while that is set up, it has neither arguments nor an environment.
var settling = [...]time.Duration{0, time.Millisecond, 5 * time.Millisecond, 20 * time.Millisecond, 100 * time.Millisecond}

// argsAgain reads the command line of a process that seemed to have none.
func (r *reader) argsAgain(name string, pin int, st *statLine) (int, error) {
	buf := make([]byte, statSize)
	for _, pause := range settling {
		if st.loaded() && st.argStart == st.argEnd {
			return 0, nil // it was started without
		}
		time.Sleep(pause)
		folder := name
		if st.exiting {
			thread, err := livingThread(r.root, name)
			if err != nil || thread == "" {
				return 0, err // all of it is ending
			}
			folder += thread
		}
		n, err := r.args(folder)
		if err != nil && !vanished(err) {
			return 0, err
		}
		again, _, err := readStat(pin, st.PID, buf)
		if err != nil {
			return 0, err
		}
		again.Comm = st.Comm
		*st = again
		if n > 0 || st.dying() {
			return n, nil
		}
	}
	return 0, errors.New("it is empty")
}

// livingThread returns the folder of a thread that is not ending, below that of its process
// whose first thread is: "/task/7". It returns "" if there is none.
func livingThread(dir int, process string) (string, error) {
	fd, err := open(dir, process+"/task", unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return "", err
	}
	task := os.NewFile(uintptr(fd), "task")
	defer task.Close()
	names, err := task.Readdirnames(-1)
	for _, name := range names {
		stat, statErr := open(fd, name+"/stat", unix.O_RDONLY)
		if statErr == nil {
			var buf [statSize]byte
			var st statLine
			st, _, statErr = readStat(stat, parsePID(name), buf[:])
			unix.Close(stat)
			if statErr == nil && !st.exiting {
				return "/task/" + name, nil
			}
		}
		if statErr != nil && !vanished(statErr) {
			err = statErr
		}
	}
	return "", err
}

// args reads a command line into r.cmdline, and one byte more than is kept of a longer one.
func (r *reader) args(name string) (int, error) {
	fd, err := open(r.root, name+"/cmdline", unix.O_RDONLY)
	if err != nil {
		return 0, err
	}
	defer unix.Close(fd)
	for total := 0; ; {
		n, err := pread(fd, r.cmdline[total:], int64(total))
		if err != nil {
			return 0, err
		}
		total += n
		if total < len(r.cmdline) || total > maxCmdline {
			return total, nil
		}
		more := min(len(r.cmdline), maxCmdline+1-total)
		r.cmdline = append(r.cmdline, make([]byte, more)...)
	}
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

// ReadFile reads a file whole. Package os offers each file to the poller first, which
// knows some of the kernel's and then sees them change: a dozen system calls and a thread
// that wakes, for each of those that tell one process which machine it is on.
func ReadFile(path string) ([]byte, error) { return readUpTo(path, math.MaxInt) }

// readUpTo is ReadFile that stops behind the first limit bytes.
func readUpTo(path string, limit int) ([]byte, error) {
	fd, err := open(unix.AT_FDCWD, path, unix.O_RDONLY)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	defer unix.Close(fd)
	data := make([]byte, 0, 2048)
	for {
		n, err := pread(fd, data[len(data):cap(data)], int64(len(data)))
		if err != nil {
			return nil, &fs.PathError{Op: "read", Path: path, Err: err}
		}
		if data = data[:len(data)+n]; n == 0 || len(data) > limit {
			return data, nil
		}
		data = slices.Grow(data, 1)
	}
}
