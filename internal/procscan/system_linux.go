package procscan

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// machine says whether the root is the machine's own /proc.
func (s *System) machine() bool { return s.root == defaultRoot }

func (s *System) path(name string) string { return s.root + "/" + name }

// name of a process's folder: a number, or self for 0.
func pidName(pid int) string {
	if pid == 0 {
		return "self"
	}
	return strconv.Itoa(pid)
}

// pidError says which process an error is about.
func pidError(pid int, err error) error {
	return fmt.Errorf("process %s: %w", pidName(pid), err)
}

// realProc says whether a proc file system is mounted at the root.
func (s *System) realProc() (bool, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(s.root, &st); err != nil {
		return false, &fs.PathError{Op: "statfs", Path: s.root, Err: err}
	}
	return st.Type == unix.PROC_SUPER_MAGIC, nil
}

// usable returns an error unless the root is a proc file system or a tree made to look
// like one. In a container without /proc the folder is there and empty: without this check
// every process would read as gone.
func (s *System) usable() error {
	real, err := s.realProc()
	if err != nil || real {
		return err
	}
	if _, err := os.Stat(s.path(bootIDFile)); err != nil || s.machine() {
		return fmt.Errorf("%s: %w", s.root, ErrNotProc)
	}
	return nil
}

const bootIDFile = "sys/kernel/random/boot_id"

func (s *System) readBootID() (string, error) {
	b, err := ReadFile(s.path(bootIDFile))
	if err != nil {
		return "", err
	}
	id := strings.TrimSpace(string(b))
	if id == "" {
		return "", fmt.Errorf("%s is empty", s.path(bootIDFile))
	}
	return id, nil
}

func (s *System) readBootTime() (time.Time, error) {
	name := s.path("stat")
	b, err := ReadFile(name)
	if err != nil {
		return time.Time{}, err
	}
	for line := range strings.Lines(string(b)) {
		if text, ok := strings.CutPrefix(line, "btime "); ok {
			sec, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
			if err != nil {
				return time.Time{}, fmt.Errorf("%s: btime: %w", name, err)
			}
			return time.Unix(sec, 0).UTC(), nil
		}
	}
	return time.Time{}, fmt.Errorf("%s: no btime", name)
}

// BootSeconds returns how long the machine has been up, suspended time included, in whole
// seconds: the boot clock, or the first number of uptime in a tree of files.
func (s *System) BootSeconds() (int64, error) {
	up, err := s.uptime()
	return int64(up / time.Second), err
}

func (s *System) uptime() (time.Duration, error) {
	if s.machine() {
		var ts unix.Timespec
		if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
			return 0, os.NewSyscallError("clock_gettime", err)
		}
		return time.Duration(ts.Nano()), nil
	}
	b, err := ReadFile(s.path("uptime"))
	if err != nil {
		return 0, err
	}
	text, _, _ := strings.Cut(strings.TrimSpace(string(b)), " ")
	sec, err := strconv.ParseFloat(text, 64)
	if err != nil || !(sec >= 0 && sec < 1e9) {
		return 0, fmt.Errorf("%s: malformed: %q", s.path("uptime"), b)
	}
	return time.Duration(sec * float64(time.Second)), nil
}

// Started returns when a process with these start ticks ran at the latest: the end of the
// tick that it was started in, by the clocks as they are now. Unlike [System.StartTime] it
// is exact to a tick, and moves with the wall clock; on a tree of files it is StartTime.
func (s *System) Started(startTicks uint64) (time.Time, error) {
	if !s.machine() {
		return s.StartTime(startTicks)
	}
	up, err := s.uptime()
	if err != nil {
		return time.Time{}, err
	}
	now := time.Now()
	hz := uint64(s.TicksPerSecond())
	if startTicks >= math.MaxInt64/uint64(time.Second) {
		return time.Time{}, fmt.Errorf("start ticks %d are out of range", startTicks)
	}
	ticks := startTicks + 1
	since := time.Duration(ticks/hz)*time.Second + time.Duration(ticks%hz)*time.Second/time.Duration(hz)
	return now.UTC().Add(since - up), nil
}

// settledTicks returns the start ticks before which every process is listed by now. The
// kernel takes the start time a little before it lists the new process, and may be
// interrupted in between: a second is the margin. A tree of files without uptime does not
// change.
func (s *System) settledTicks() uint64 {
	up, err := s.uptime()
	switch {
	case err == nil:
		hz := s.TicksPerSecond()
		return uint64(max(int64(up/(time.Second/time.Duration(hz)))-hz, 0))
	case s.machine():
		return 0
	default:
		return math.MaxUint64
	}
}

// clockTicks returns USER_HZ.
func clockTicks() int64 {
	const atClockTick = 17 // AT_CLKTCK
	vec, err := unix.Auxv()
	if err != nil {
		return 100
	}
	for _, kv := range vec {
		if kv[0] == atClockTick && kv[1] > 0 && kv[1] <= 1e6 {
			return int64(kv[1])
		}
	}
	return 100
}

// SelfPID returns the pid of this process as the mount names it, which differs from
// [os.Getpid] when the mount belongs to another pid namespace.
func (s *System) SelfPID() (int, error) {
	text, err := os.Readlink(s.path("self"))
	if err != nil {
		return 0, err
	}
	pid, err := strconv.ParseUint(text, 10, 31)
	if err != nil || pid == 0 {
		return 0, fmt.Errorf("%s refers to %q", s.path("self"), text)
	}
	return int(pid), nil
}

// PIDNamespace returns the inode of the pid namespace that a process lives in. For 0 it is
// the namespace whose numbers the mount shows, to which every pid read through it belongs:
// this process's own, except where the mount came from outside a container.
func (s *System) PIDNamespace(pid int) (uint64, error) {
	if pid != 0 {
		return s.namespace(pid, "pid")
	}
	err := s.ownNamespace()
	if errors.Is(err, errForeign) {
		return s.foreignNamespace()
	}
	if err != nil {
		return 0, err
	}
	return s.namespace(0, "pid")
}

// foreignNamespace returns the namespace of the mount's first process; or, where that may
// not be looked at, of the kernel's threads, if the mount shows any.
func (s *System) foreignNamespace() (uint64, error) {
	ns, err := s.namespace(1, "pid")
	if err == nil {
		return ns, nil
	}
	if p, statErr := s.Stat(2); statErr == nil && p.Kernel {
		return s.namespace(2, "pid")
	}
	return 0, err
}

// TimeNamespace returns the inode of the time namespace of a process, or of this process
// for 0. A time namespace shifts the boot clock and all start ticks that its members read.
// A kernel without them gives an error that is [errors.ErrUnsupported].
func (s *System) TimeNamespace(pid int) (uint64, error) { return s.namespace(pid, "time") }

// namespace reads a link such as "pid:[4026531836]".
func (s *System) namespace(pid int, kind string) (uint64, error) {
	if pid < 0 {
		return 0, pidError(pid, unix.EINVAL)
	}
	name := s.path(pidName(pid) + "/ns/" + kind)
	text, err := os.Readlink(name)
	if err != nil {
		return 0, s.namespaceError(pid, kind, err)
	}
	digits, ok := strings.CutPrefix(text, kind+":[")
	digits, ok2 := strings.CutSuffix(digits, "]")
	inode, err := strconv.ParseUint(digits, 10, 64)
	if !ok || !ok2 || err != nil {
		return 0, fmt.Errorf("%s refers to %q", name, text)
	}
	return inode, nil
}

// namespaceError tells a process that ended from a kernel without such a namespace.
func (s *System) namespaceError(pid int, kind string, err error) error {
	if !vanished(err) || pid == 0 {
		return err
	}
	st, statErr := s.stat(pid)
	switch {
	case statErr != nil:
		return pidError(pid, statErr)
	case st.Gone():
		return pidError(pid, ErrGone)
	case errors.Is(err, unix.ESRCH):
		return err
	}
	if _, statErr := os.Lstat(s.path("self/ns/" + kind)); errors.Is(statErr, fs.ErrNotExist) {
		return fmt.Errorf("%s namespaces: %w", kind, errors.ErrUnsupported)
	}
	return pidError(pid, fmt.Errorf("%s namespace: %v", kind, err))
}

// errForeign says that the mount shows the numbers of another pid namespace than ours.
var errForeign = errors.New("the proc mount belongs to another pid namespace")

// ownNamespace returns nil when pids read through the mount are pids of this process's own
// namespace. NSpid lists one pid for each namespace from the mount's down to ours. A tree
// of files is taken for one of ours.
func (s *System) ownNamespace() error {
	if real, err := s.realProc(); err != nil || !real {
		return err
	}
	b, err := ReadFile(s.path("self/status"))
	if vanished(err) {
		return errForeign // the mount has no name for us
	}
	if err != nil {
		return err
	}
	if pids := strings.Fields(fieldOf(string(b), "NSpid")); len(pids) != 1 {
		return errForeign
	}
	return nil
}

// fieldOf returns the text of one line of a status file, or "" if there is no such line.
func fieldOf(status, field string) string {
	for line := range strings.Lines(status) {
		if text, ok := strings.CutPrefix(line, field+":"); ok {
			return strings.TrimSpace(text)
		}
	}
	return ""
}

// HostUserNamespace says whether this process runs in the user namespace of the host: its
// user ids map to themselves over the full range.
func (s *System) HostUserNamespace() (host bool, err error) {
	b, err := ReadFile(s.path("self/uid_map"))
	if errors.Is(err, fs.ErrNotExist) {
		// A kernel built without user namespaces has no such file.
		if real, _ := s.realProc(); real {
			if _, statErr := os.Stat(s.path("self/status")); statErr == nil {
				return true, nil
			}
		}
	}
	if err != nil {
		return false, err
	}
	fields := strings.Fields(string(b))
	if len(fields) < 3 {
		return false, fmt.Errorf("%s: malformed: %q", s.path("self/uid_map"), b)
	}
	return len(fields) == 3 && fields[0] == "0" && fields[1] == "0" && fields[2] == "4294967295", nil
}
