//go:build unix

package flock

import (
	"io/fs"
	"syscall"
)

// openFlags keep the open of a lock file from following a symbolic link, and from
// waiting where a FIFO or a terminal has its name.
const openFlags = syscall.O_NOFOLLOW | syscall.O_NONBLOCK

// lax reports whether a lock file's mode is not 0600: made under a umask that
// takes the owner's bits, or by somebody else.
func lax(mode fs.FileMode) bool { return mode.Perm() != 0o600 }
