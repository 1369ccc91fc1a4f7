//go:build !linux

package folder

import (
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

func openFolder(path string) (*os.File, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return nil, &fs.PathError{Op: "open", Path: path, Err: notRegular(info.Mode())}
	}
	return os.Open(path)
}

func (d *Folder) reopen() (*os.File, error) { return os.Open(d.Path()) }

func (d *Folder) read(_ []byte, name string, max int64) ([]byte, Stamp, error) {
	f, err := os.Open(filepath.Join(d.Path(), name))
	if err != nil {
		return nil, Stamp{}, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, Stamp{}, err
	}
	stamp, err := stampOfInfo(info)
	if err != nil {
		return nil, stamp, err
	}
	data, err := io.ReadAll(io.LimitReader(f, max+1))
	switch {
	case err != nil:
		return nil, stamp, err
	case int64(len(data)) > max:
		return nil, stamp, tooLarge(int64(len(data)), max)
	case int64(len(data)) != stamp.Size:
		return nil, stamp, errGrew
	}
	return data, stamp, nil
}

// Lstat returns the stamp of the regular file name.
func (d *Folder) Lstat(name string) (Stamp, error) {
	info, err := os.Lstat(filepath.Join(d.Path(), name))
	if err != nil {
		return Stamp{}, err
	}
	return stampOfInfo(info)
}

// stampOfInfo does without inode and change time, which os does not tell everywhere.
func stampOfInfo(info fs.FileInfo) (Stamp, error) {
	if !info.Mode().IsRegular() {
		return Stamp{}, notRegular(info.Mode())
	}
	return Stamp{Size: info.Size(), Mtime: info.ModTime().UnixNano()}, nil
}
