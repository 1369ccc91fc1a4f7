//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package transcript

import (
	"errors"
	"io/fs"
	"os"
	"syscall"
)

// Open opens a file that another program owns, for reading. It never waits for
// a FIFO's writer, never takes a terminal, never follows a link in the last
// element, and refuses whatever is no regular file with an error that wraps
// ErrNotRegular.
func Open(path string) (*os.File, fs.FileInfo, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOFOLLOW|syscall.O_NOCTTY, 0)
	switch {
	// ELOOP, and EMLINK on some systems, is a link in the last element; ENXIO
	// a socket or a device that is not there.
	case errors.Is(err, syscall.ELOOP), errors.Is(err, syscall.EMLINK), errors.Is(err, syscall.ENXIO):
		return nil, nil, &fs.PathError{Op: "open", Path: path, Err: ErrNotRegular}
	case err != nil:
		return nil, nil, err
	}
	return regular(f, path)
}
