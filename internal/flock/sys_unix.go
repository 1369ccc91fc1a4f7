//go:build unix

package flock

import (
	"io/fs"
	"syscall"
)

// openFlags keep the open of a lock file from following a symbolic link. It does
// not wait at a FIFO either, since it is for reading and writing. (O_NONBLOCK
// would have package os reset it by four system calls a lock.)
const openFlags = syscall.O_NOFOLLOW

// lax reports whether a lock file's mode is not 0600: made under a umask that
// takes the owner's bits, or by somebody else.
func lax(mode fs.FileMode) bool { return mode.Perm() != 0o600 }
