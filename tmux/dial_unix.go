//go:build unix

package tmux

import "syscall"

// dial connects to a socket and hangs up again. It never waits: a socket of this
// kind takes or refuses a connection at once. (Package net would be most of what
// a small program links for this one call.)
func dial(path string) error {
	syscall.ForkLock.RLock()
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err == nil {
		syscall.CloseOnExec(fd)
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return err
	}
	defer syscall.Close(fd)
	if err := syscall.SetNonblock(fd, true); err != nil {
		return err
	}
	return syscall.Connect(fd, &syscall.SockaddrUnix{Name: path})
}
