//go:build !(linux || darwin || freebsd || netbsd || openbsd || dragonfly)

package transcript

import (
	"io/fs"
	"os"
)

// Open opens a file that another program owns, for reading. It refuses links
// and whatever else is no regular file with an error that wraps ErrNotRegular.
func Open(path string) (*os.File, fs.FileInfo, error) {
	before, err := os.Lstat(path)
	if err != nil {
		return nil, nil, err
	}
	if !before.Mode().IsRegular() {
		return nil, nil, &fs.PathError{Op: "open", Path: path, Err: ErrNotRegular}
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, nil, err
	}
	f, fi, err := regular(f, path)
	if err == nil && !os.SameFile(before, fi) {
		f.Close()
		return nil, nil, &fs.PathError{Op: "open", Path: path, Err: ErrNotRegular}
	}
	return f, fi, err
}
