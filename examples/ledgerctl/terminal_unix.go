//go:build unix

package main

import (
	"os"

	"golang.org/x/sys/unix"
)

// terminalWidth is the number of columns of the terminal that v is, 0 where it does not
// say. ok is false for what is no terminal.
func terminalWidth(v any) (columns int, ok bool) {
	f, isFile := v.(*os.File)
	if !isFile {
		return 0, false
	}
	size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return 0, false
	}
	return int(size.Col), true
}

// readable reports whether a read of v is known not to wait.
func readable(v any) bool {
	f, isFile := v.(*os.File)
	if !isFile {
		return false
	}
	fds := []unix.PollFd{{Fd: int32(f.Fd()), Events: unix.POLLIN}}
	n, err := unix.Poll(fds, 0)
	return err == nil && n > 0 && fds[0].Revents&unix.POLLNVAL == 0 // which some systems say of a terminal
}
