//go:build unix

package main

import (
	"os"

	"golang.org/x/sys/unix"
)

// terminalWidth is the number of columns of the terminal that v is, 0 where it does not
// say. ok is false for what is no terminal.
func terminalWidth(v any) (columns int, ok bool) {
	if o, ok := v.(*output); ok {
		v = o.Writer
	}
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
