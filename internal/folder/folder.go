// Package folder reads the files of one folder that may hold anything: it opens no
// symlink, waits for no FIFO, reads no more than it was told to, and says of each file
// which generation it saw.
package folder

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
	"time"
)

// Stamp identifies one generation of a file's content. Inode numbers are re-used at
// once on ext4, so size and both times belong to it.
type Stamp struct {
	Inode        uint64
	Size         int64
	Mtime, Ctime int64 // nanoseconds since the epoch
}

// ErrNotRegular is returned for what is no regular file: a folder, a symlink, a FIFO, a
// device, a socket.
var ErrNotRegular = errors.New("not a regular file")

// ErrTooLarge is returned for a file over the size asked for.
var ErrTooLarge = errors.New("too large")

// ErrInsecure is returned by [Secure] for a folder that others control.
var ErrInsecure = errors.New("insecure folder")

var errGrew = errors.New("grew while it was read")

// Folder is an open folder. It is safe for concurrent use, Close included: what is called
// afterwards fails with [fs.ErrClosed].
type Folder struct {
	f    *os.File
	conn syscall.RawConn // f's
}

// Open opens the folder at path. A symlink in its place is refused.
func Open(path string) (*Folder, error) {
	f, err := openFolder(path)
	if err != nil {
		return nil, err
	}
	conn, err := f.SyscallConn()
	if err != nil {
		f.Close()
		return nil, err
	}
	return &Folder{f, conn}, nil
}

// Close releases the folder.
func (d *Folder) Close() error { return d.f.Close() }

// Path returns the path that the folder was opened by.
func (d *Folder) Path() string { return d.f.Name() }

// Mtime returns the folder's own modification time.
func (d *Folder) Mtime() (time.Time, error) {
	info, err := d.f.Stat()
	if err != nil {
		return time.Time{}, err
	}
	return info.ModTime(), nil
}

// Names lists the folder's names, in no order, and those among them that may be no regular
// files. A listing that fails midway is an error, never a short list.
func (d *Folder) Names() (names []string, odd map[string]bool, err error) {
	f, err := d.reopen()
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	entries, err := f.ReadDir(-1)
	if err != nil {
		return nil, nil, err
	}
	names = make([]string, len(entries))
	for i, entry := range entries {
		names[i] = entry.Name()
		if !entry.Type().IsRegular() {
			if odd == nil {
				odd = map[string]bool{}
			}
			odd[names[i]] = true
		}
	}
	return names, odd, nil
}

// Read returns the content of the regular file name and its stamp, or no content where
// the stamp is still known, which saves opening it. The errors are fs.ErrNotExist,
// ErrNotRegular, ErrTooLarge, or the system's.
func (d *Folder) Read(name string, max int64, known Stamp) ([]byte, Stamp, error) {
	// Looking first also keeps devices closed: opening one can have effects of its own.
	stamp, err := d.Lstat(name)
	if err != nil || stamp == known {
		return nil, stamp, err
	}
	if stamp.Size > max {
		return nil, stamp, tooLarge(stamp.Size, max)
	}
	return d.ReadListed(nil, name, max)
}

// ReadListed is Read, into the memory of buf where that is enough, for a name that a
// listing has just shown to be a regular file's.
func (d *Folder) ReadListed(buf []byte, name string, max int64) ([]byte, Stamp, error) {
	return d.read(buf, name, max)
}

func tooLarge(size, max int64) error {
	return fmt.Errorf("%w: %d bytes, at most %d", ErrTooLarge, size, max)
}

func notRegular(mode fs.FileMode) error { return fmt.Errorf("%w: %s", ErrNotRegular, mode.Type()) }
