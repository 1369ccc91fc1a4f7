//go:build unix

package settings

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sessionledger/ledger/internal/durable"
)

const (
	lockWait = 5 * time.Second
	lockPoll = 5 * time.Millisecond
)

// lock keeps other installers of ours from the file, and makes its folder. The
// lock is on the folder itself, so that no lock file is left in a person's
// settings. Where the file system has no locks, the comparison before the
// rename has to do.
func lock(target string) (unlock func(), err error) {
	dir := filepath.Dir(target)
	if err := durable.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	for deadline := time.Now().Add(lockWait); ; time.Sleep(lockPoll) {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		switch {
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EWOULDBLOCK):
			if time.Now().After(deadline) {
				f.Close()
				return nil, &fs.PathError{Op: "lock", Path: dir, Err: ErrBusy}
			}
		default:
			return func() { f.Close() }, nil
		}
	}
}

// own gives w the owner and group of the file that info tells of.
func own(w *os.File, info fs.FileInfo) error {
	want, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return nil
	}
	now, err := w.Stat()
	if err != nil {
		return err
	}
	if is, ok := now.Sys().(*syscall.Stat_t); ok && is.Uid == want.Uid && is.Gid == want.Gid {
		return nil
	}
	return w.Chown(int(want.Uid), int(want.Gid))
}
