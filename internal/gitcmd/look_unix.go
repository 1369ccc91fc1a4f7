//go:build unix

package gitcmd

import (
	"os"
	"syscall"
)

// seen is what DescribeFast needs to know of a file.
type seen struct {
	dir    bool
	mine   bool // git refuses what another user owns
	device uint64
}

func lookAt(path string) (seen, bool) {
	info, err := os.Lstat(path)
	if err != nil {
		return seen{}, false
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return seen{}, false
	}
	return seen{dir: info.IsDir(), mine: int(st.Uid) == os.Geteuid(), device: uint64(st.Dev)}, true
}

// openRegular opens a regular file, and neither waits for a FIFO nor follows a last symbolic link.
func openRegular(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		f.Close()
		return nil, &os.PathError{Op: "open", Path: path, Err: errNotRegular}
	}
	return f, nil
}
