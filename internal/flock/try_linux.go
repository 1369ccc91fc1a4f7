package flock

import (
	"io"

	"golang.org/x/sys/unix"
)

// descriptor is a lock file with its lock.
type descriptor int

// Close frees the lock before it closes: a child that was forked at this moment has the
// descriptor too, until it starts its program.
func (d descriptor) Close() error {
	_ = unix.Flock(int(d), unix.LOCK_UN)
	return unix.Close(int(d))
}

// try takes a lock that nobody holds, without waiting, which lockedfile cannot: its wait needs
// a goroutine, and a hand-over from that one costs as much as the rest of an update's
// processor time. Anything unusual is left to the wait.
func try(path string) (io.Closer, bool) {
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_CREAT|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, false
	}
	var st unix.Stat_t
	// A umask can have made a file that this user could not open again.
	if unix.Fstat(fd, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFREG && unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB) == nil &&
		(st.Mode&0o7777 == 0o600 || unix.Fchmod(fd, 0o600) == nil) {
		return descriptor(fd), true
	}
	unix.Close(fd)
	return nil, false
}
