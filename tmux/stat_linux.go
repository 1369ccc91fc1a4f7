package tmux

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"strconv"
	"syscall"
	"unsafe"
)

// processStat is what of /proc/PID/stat this package needs.
type processStat struct {
	name       string // field 2, without its parentheses
	group      int    // field 5
	foreground int    // field 8: the foreground group of its terminal
	ticks      uint64 // field 22: start time in clock ticks after boot
}

func readStat(pid int) (processStat, Presence) {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
			if _, err := os.Stat("/proc/self/stat"); err == nil {
				return processStat{}, Absent
			}
		}
		return processStat{}, Unknown
	}
	// The name in parentheses may hold blanks and parentheses itself.
	begin, end := bytes.IndexByte(data, '('), bytes.LastIndexByte(data, ')')
	if begin < 0 || end < begin {
		return processStat{}, Unknown
	}
	f := bytes.Fields(data[end+1:])
	if len(f) < 20 {
		return processStat{}, Unknown
	}
	group, err1 := strconv.Atoi(string(f[2]))
	foreground, err2 := strconv.Atoi(string(f[5]))
	ticks, err3 := strconv.ParseUint(string(f[19]), 10, 64)
	if err1 != nil || err2 != nil || err3 != nil {
		return processStat{}, Unknown
	}
	if f[0][0] == 'Z' || f[0][0] == 'X' {
		return processStat{}, Absent
	}
	return processStat{string(data[begin+1 : end]), group, foreground, ticks}, Present
}

// unread returns how much input of a terminal its reader has not taken yet.
// That is known only in raw mode: in line mode the kernel does not count an
// unfinished line.
func unread(tty string) (n int, known bool) {
	f, err := os.OpenFile(tty, os.O_RDONLY|syscall.O_NOCTTY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return 0, false
	}
	defer f.Close()
	raw, err := f.SyscallConn()
	if err != nil {
		return 0, false
	}
	var modes syscall.Termios
	var count int32
	err = raw.Control(func(fd uintptr) {
		_, _, e1 := syscall.Syscall(syscall.SYS_IOCTL, fd, syscall.TCGETS, uintptr(unsafe.Pointer(&modes)))
		_, _, e2 := syscall.Syscall(syscall.SYS_IOCTL, fd, syscall.TIOCINQ, uintptr(unsafe.Pointer(&count)))
		known = e1 == 0 && e2 == 0 && modes.Lflag&syscall.ICANON == 0
	})
	return int(count), known && err == nil
}
