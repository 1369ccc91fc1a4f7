//go:build !linux

package durable

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// handle works by path. On Windows a folder cannot be synced through package os:
// durability is then reported as unknown, as it is.
type handle struct {
	f       *os.File
	ordered bool // never: no system here promises what ext4 does
}

func openHandle(path string) (handle, error) {
	fi, err := os.Lstat(path)
	if err != nil {
		return handle{}, err
	}
	if !fi.IsDir() {
		return handle{}, syscall.ENOTDIR
	}
	f, err := os.Open(path)
	return handle{f: f}, err
}

func (h *handle) close() error { return h.f.Close() }

func (h *handle) sync() error { return h.f.Sync() }

// at is the path of a file in the folder, for as long as that is open.
func (h *handle) at(name string) (string, error) {
	if _, err := h.f.Stat(); errors.Is(err, fs.ErrClosed) {
		return "", fs.ErrClosed
	}
	return filepath.Join(h.f.Name(), name), nil
}

// create opens a new file for writing.
func (h *handle) create(name string) (file, error) {
	path, err := h.at(name)
	if err != nil {
		return file{}, err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	return file{f}, err
}

type file struct{ f *os.File }

// private gives the file mode 0600, which a umask can have narrowed.
func (f file) private() error { return f.f.Chmod(0o600) }

func (f file) write(data []byte) error {
	_, err := f.f.Write(data)
	return err
}

func (f file) sync() error { return f.f.Sync() }

func (f file) startWriteback() {}

func (f file) close() error { return f.f.Close() }

// replace renames into a folder, in place of what has the new name there.
func (h *handle) replace(from string, to *handle, name string) error {
	path, err := h.at(from)
	if err != nil {
		return err
	}
	target, err := to.at(name)
	if err != nil {
		return err
	}
	return os.Rename(path, target)
}

// move links, because a rename replaces; linked says that the file has both names
// and the old one is the caller's to remove.
func (h *handle) move(from string, to *handle, name string) (linked bool, err error) {
	path, err := h.at(from)
	if err != nil {
		return false, err
	}
	target, err := to.at(name)
	if err != nil {
		return false, err
	}
	err = os.Link(path, target)
	return err == nil, err
}

func (h *handle) remove(name string) error {
	path, err := h.at(name)
	if err != nil {
		return err
	}
	return os.Remove(path)
}

func (h *handle) names() ([]string, error) {
	path, err := h.at(".")
	if err != nil {
		return nil, err
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return f.Readdirnames(-1)
}
