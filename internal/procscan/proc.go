package procscan

import (
	"bytes"
	"errors"
	"math"
)

// Proc is one process as its stat and cmdline files showed it.
type Proc struct {
	PID   int
	PPID  int    // 0 for the first process and for parents outside the pid namespace
	Start uint64 // start time in ticks after boot (field 22): with the pid, the identity
	Ticks uint64 // processor time used, user and system, in ticks
	TTY   int32  // device number of the controlling terminal; 0 for none
	State byte   // R, S, D, T, t, Z, X, I as in proc(5)

	// Threads is the number of threads. A process whose first thread has ended while
	// others run shows state Z and more than one thread.
	Threads int
	// Kernel marks a kernel thread, which has no command line.
	Kernel bool
	// ArgsCut says that the command line was longer than what Args keeps.
	ArgsCut bool

	Comm string   // the name that the kernel keeps, any bytes
	Args []string // the command line, any bytes; nil for kernel threads and dying processes
}

// Gone says whether the process has ended and only waits to be collected: its state is
// Z or X and no thread of it is left.
func (p Proc) Gone() bool {
	return (p.State == 'Z' || p.State == 'X' || p.State == 'x') && p.Threads <= 1
}

// Bounds of a command line. A program that sets its title pads its arguments with NUL
// bytes, each of which reads as an empty argument.
const (
	maxCmdline  = 64 << 10
	maxArgs     = 4096
	cmdlineSize = 4 << 10 // of the buffer that most fit into
)

// kernelThread is PF_KTHREAD of the flags in field 9. Being a child of process 2 proves
// nothing: inside a pid namespace process 2 is a process like any other.
const kernelThread = 0x00200000

// exiting is PF_EXITING: what the process had is being given back.
const exiting = 0x00000004

// statLine is what a stat file tells beyond Proc.
type statLine struct {
	Proc
	exiting bool

	// Addresses; 0 or 1 when not permitted, or without memory.
	code             uint64
	argStart, argEnd uint64
	envStart, envEnd uint64
}

var errStat = errors.New("malformed stat line")

// parseStat reads a stat line, except for the Comm, which is returned as the part of line
// that holds it. comm may contain spaces, newlines and parentheses, so everything counts
// from the last one.
func parseStat(line []byte) (st statLine, comm []byte, err error) {
	open := bytes.IndexByte(line, '(')
	end := bytes.LastIndexByte(line, ')')
	if open < 2 || end < open || line[open-1] != ' ' {
		return st, nil, errStat
	}
	pid, ok := parseUint(line[:open-1])
	if !ok || pid == 0 || pid > math.MaxInt32 {
		return st, nil, errStat
	}
	st.PID = int(pid)
	comm = line[open+1 : end]

	rest := bytes.TrimSuffix(line[end+1:], []byte("\n"))
	field := 2
	for len(rest) > 0 {
		if rest[0] != ' ' {
			return st, nil, errStat
		}
		rest = rest[1:]
		text := rest
		if i := bytes.IndexByte(rest, ' '); i >= 0 {
			text = rest[:i]
		}
		rest = rest[len(text):]
		field++
		if !st.set(field, text) {
			return st, nil, errStat
		}
		if field == 51 {
			break
		}
	}
	if field < 22 {
		return st, nil, errStat
	}
	return st, comm, nil
}

// set stores one field, numbered as in proc(5).
func (st *statLine) set(field int, text []byte) bool {
	if field == 3 {
		if len(text) != 1 || (text[0]|0x20) < 'a' || (text[0]|0x20) > 'z' {
			return false
		}
		st.State = text[0]
		return true
	}
	switch field {
	case 4, 7, 9, 14, 15, 20, 22, 26, 48, 49, 50, 51:
	default:
		return len(text) > 0
	}
	negative := field == 7 && len(text) > 0 && text[0] == '-'
	if negative {
		text = text[1:]
	}
	n, ok := parseUint(text)
	if !ok {
		return false
	}
	switch field {
	case 4:
		st.PPID = int(n)
		return n <= math.MaxInt32
	case 7:
		st.TTY = int32(n)
		if negative {
			st.TTY = int32(-int64(n))
		}
		return n <= math.MaxInt32 || negative && n == math.MaxInt32+1
	case 9:
		st.Kernel = n&kernelThread != 0
		st.exiting = n&exiting != 0
	case 14:
		st.Ticks = n
	case 15:
		st.Ticks += n
	case 20:
		st.Threads = int(n)
		return n <= math.MaxInt32
	case 22:
		st.Start = n
	case 26:
		st.code = n
	case 48:
		st.argStart = n
	case 49:
		st.argEnd = n
	case 50:
		st.envStart = n
	case 51:
		st.envEnd = n
	}
	return true
}

// parseUint reads a whole decimal number.
func parseUint(text []byte) (uint64, bool) {
	if len(text) == 0 {
		return 0, false
	}
	var n uint64
	for _, c := range text {
		d := uint64(c - '0')
		if d > 9 || n > (math.MaxUint64-d)/10 {
			return 0, false
		}
		n = n*10 + d
	}
	return n, true
}

// splitArgs splits a command line at its NUL bytes. Each argument ends with one; the last
// may lack it, in a title that a program has written over its arguments.
func splitArgs(text string) (args []string, cut bool) {
	if text == "" {
		return nil, false
	}
	count := 0
	for i := range len(text) {
		if text[i] == 0 {
			count++
		}
	}
	if text[len(text)-1] != 0 {
		count++
	}
	cut = count > maxArgs
	args = make([]string, 0, min(count, maxArgs))
	start := 0
	for i := 0; i < len(text) && len(args) < maxArgs; i++ {
		if text[i] == 0 {
			args = append(args, text[start:i])
			start = i + 1
		}
	}
	if start < len(text) && len(args) < maxArgs {
		args = append(args, text[start:])
	}
	return args, cut
}
