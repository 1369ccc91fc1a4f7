package folder

import (
	"errors"
	"io/fs"
	"os"
	"slices"

	"golang.org/x/sys/unix"
)

func openFolder(path string) (*os.File, error) {
	fd, err := retry(func() (int, error) {
		return unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	})
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	return os.NewFile(uintptr(fd), path), nil
}

// reopen returns a descriptor with a read position of its own.
func (d *Folder) reopen() (*os.File, error) {
	fd, err := d.openat(".", unix.O_DIRECTORY)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), d.Path()), nil
}

// at calls f with the folder's descriptor, which stays open meanwhile: its number could be
// another folder's by then.
func (d *Folder) at(f func(dir int) (int, error)) (n int, err error) {
	closed := d.conn.Control(func(dir uintptr) {
		n, err = retry(func() (int, error) { return f(int(dir)) })
	})
	if closed != nil {
		return -1, fs.ErrClosed
	}
	return n, err
}

func (d *Folder) openat(name string, flags int) (int, error) {
	fd, err := d.at(func(dir int) (int, error) {
		return unix.Openat(dir, name, unix.O_RDONLY|unix.O_CLOEXEC|flags, 0)
	})
	if err != nil {
		return -1, d.wrap("open", name, err)
	}
	return fd, nil
}

// read uses bare descriptors: an os.File would first be offered to the poller, which
// refuses regular files, at two system calls a row.
func (d *Folder) read(buf []byte, name string, max int64) ([]byte, Stamp, error) {
	fd, err := d.openat(name, unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_NOCTTY)
	if errors.Is(err, unix.ELOOP) || errors.Is(err, unix.ENXIO) {
		return nil, Stamp{}, errors.Join(ErrNotRegular, err) // replaced since it was looked at
	}
	if err != nil {
		return nil, Stamp{}, err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if _, err := retry(func() (int, error) { return 0, unix.Fstat(fd, &st) }); err != nil {
		return nil, Stamp{}, d.wrap("stat", name, err)
	}
	stamp, err := regular(&st)
	if err != nil {
		return nil, stamp, err
	}
	if stamp.Size > max {
		return nil, stamp, tooLarge(stamp.Size, max)
	}
	// One byte more than the size, so that a file which grew meanwhile shows itself.
	data := slices.Grow(buf[:0], int(stamp.Size)+1)[:stamp.Size+1]
	for n := 0; ; {
		m, err := retry(func() (int, error) { return unix.Read(fd, data[n:]) })
		n += m
		switch {
		case err != nil:
			return nil, stamp, d.wrap("read", name, err)
		case n == len(data):
			return nil, stamp, d.wrap("read", name, errGrew)
		case m == 0, int64(n) == stamp.Size: // the rest was asked for, and is not there
			return data[:n], stamp, nil
		}
	}
}

// Lstat returns the stamp of the regular file name.
func (d *Folder) Lstat(name string) (Stamp, error) {
	var st unix.Stat_t
	if _, err := d.at(func(dir int) (int, error) {
		return 0, unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW)
	}); err != nil {
		return Stamp{}, d.wrap("lstat", name, err)
	}
	return regular(&st)
}

func regular(st *unix.Stat_t) (Stamp, error) {
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return Stamp{}, notRegular(fileType(st.Mode))
	}
	return Stamp{Inode: st.Ino, Size: st.Size, Mtime: st.Mtim.Nano(), Ctime: st.Ctim.Nano()}, nil
}

func fileType(mode uint32) fs.FileMode {
	switch mode & unix.S_IFMT {
	case unix.S_IFDIR:
		return fs.ModeDir
	case unix.S_IFLNK:
		return fs.ModeSymlink
	case unix.S_IFIFO:
		return fs.ModeNamedPipe
	case unix.S_IFSOCK:
		return fs.ModeSocket
	case unix.S_IFCHR:
		return fs.ModeDevice | fs.ModeCharDevice
	case unix.S_IFBLK:
		return fs.ModeDevice
	}
	return fs.ModeIrregular
}

func retry(call func() (int, error)) (int, error) {
	for {
		n, err := call()
		if err != unix.EINTR {
			return n, err
		}
	}
}

func (d *Folder) wrap(op, name string, err error) error {
	return &fs.PathError{Op: op, Path: d.Path() + "/" + name, Err: err}
}
