package procscan

import (
	"context"
	"errors"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// openPidfd opens a pidfd of exactly the process (pid, start). The descriptor is opened
// first and the ticks are read after it: a pid that was used again in between shows other
// ticks, and once they match, the descriptor cannot become another process's.
func (s *System) openPidfd(pid int, start uint64) (int, error) {
	if pid <= 0 {
		return -1, unix.EINVAL
	}
	if real, err := s.realProc(); err != nil {
		return -1, err
	} else if !real {
		return -1, ErrNotProc // no real process is touched on the word of a tree of files
	}
	// pidfd_open counts in our own namespace, the mount perhaps in another.
	if err := s.ownNamespace(); err != nil {
		return -1, err
	}
	fd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return -1, ErrGone
	}
	openErr := os.NewSyscallError("pidfd_open", err)
	// A number that a thread has now is refused, but can be looked up.
	st, err := s.stat(pid)
	switch {
	case err != nil:
	case st.Start != start:
		err = ErrChanged
	case st.Gone():
		err = ErrGone
	default:
		err = openErr
	}
	if err != nil && openErr == nil {
		unix.Close(fd)
	}
	return fd, err
}

// Signal sends sig to exactly the process (pid, start). It returns [ErrGone] if that has
// exited, a zombie included, [ErrChanged] if another process has the pid, and any other
// error if the signal was not sent for another reason. Signal 0 only checks.
func (s *System) Signal(pid int, start uint64, sig syscall.Signal) error {
	fd, err := s.openPidfd(pid, start)
	if err != nil {
		return pidError(pid, err)
	}
	defer unix.Close(fd)
	switch err := unix.PidfdSendSignal(fd, sig, nil, 0); {
	case errors.Is(err, unix.ESRCH):
		return pidError(pid, ErrGone)
	case err != nil:
		return pidError(pid, os.NewSyscallError("pidfd_send_signal", err))
	}
	return nil
}

// Exit tells when one process exits. It holds one descriptor; waiting holds no thread and
// no goroutine beyond the waiting one.
type Exit struct {
	file *os.File
	conn syscall.RawConn
	turn chan struct{} // held by the one Wait that uses the file's deadline

	mu sync.Mutex
	fd int
}

// OpenExit opens an Exit of exactly the process (pid, start). Errors are those of
// [System.Signal].
func (s *System) OpenExit(pid int, start uint64) (*Exit, error) {
	fd, err := s.openPidfd(pid, start)
	if err != nil {
		return nil, pidError(pid, err)
	}
	// Only a descriptor that does not block is given to the runtime's poller.
	if err := unix.SetNonblock(fd, true); err != nil {
		unix.Close(fd)
		return nil, pidError(pid, os.NewSyscallError("fcntl", err))
	}
	e := &Exit{file: os.NewFile(uintptr(fd), "pidfd"), turn: make(chan struct{}, 1), fd: fd}
	if e.conn, err = e.file.SyscallConn(); err == nil {
		// It fails if the runtime cannot poll the descriptor: then nothing could end a Wait.
		err = e.file.SetReadDeadline(time.Time{})
	}
	if err != nil {
		e.file.Close()
		return nil, pidError(pid, err)
	}
	return e, nil
}

// Wait returns nil as soon as the process has exited, whether or not its parent has
// collected it. Else it returns the error of ctx, or [os.ErrClosed] after Close.
func (e *Exit) Wait(ctx context.Context) error {
	select {
	case e.turn <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-e.turn }()
	stop := context.AfterFunc(ctx, func() { e.file.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	for {
		err := e.file.SetReadDeadline(time.Time{})
		// Asked after the deadline was lifted: one that ctx set before is not lost. One that
		// an earlier Wait's ctx sets late only leads round the loop.
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err == nil {
			err = e.conn.Read(exited)
		}
		if e.FD() < 0 {
			return os.ErrClosed
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			return err
		}
	}
}

// exited says whether a pidfd reports that its process has exited.
func exited(fd uintptr) bool {
	fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	for {
		n, err := unix.Poll(fds, 0)
		if err != unix.EINTR {
			return n > 0
		}
	}
}

// FD returns the descriptor, for poll(2), or -1 after Close. It belongs to the Exit.
func (e *Exit) FD() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.fd
}

// Close releases the descriptor and ends every Wait. A second Close returns
// [os.ErrClosed].
func (e *Exit) Close() error {
	e.mu.Lock()
	e.fd = -1
	e.mu.Unlock()
	return e.file.Close()
}
