package durable

import (
	"io"
	"io/fs"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// handle does every step relative to the folder's descriptor: one look-up of the
// path, and a folder that is moved or replaced meanwhile never gets half of a
// write.
type handle struct {
	f    *os.File
	conn syscall.RawConn

	// ordered: a rename in place of another file reaches the disk after the bytes
	// of the new one, without an fsync.
	ordered bool
}

func openHandle(path string) (handle, error) {
	var fd int
	err := again(func() (err error) {
		fd, err = unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		return err
	})
	if err != nil {
		return handle{}, err
	}
	f := os.NewFile(uintptr(fd), path) // os.OpenFile would offer it to the poller, which folders cannot use
	conn, err := f.SyscallConn()
	if err != nil {
		f.Close()
		return handle{}, err
	}
	h := handle{f: f, conn: conn}
	var st unix.Statfs_t
	err = h.do(func(dir int) error { return unix.Fstatfs(dir, &st) })
	// ext4 allocates a replacing file's blocks at the rename (auto_da_alloc, its
	// default) and commits the rename after their data. tmpfs loses everything.
	h.ordered = err == nil && (st.Type == unix.EXT4_SUPER_MAGIC || st.Type == unix.TMPFS_MAGIC)
	return h, nil
}

func (h *handle) close() error { return h.f.Close() }

func (h *handle) sync() error { return h.f.Sync() }

// do calls f with the descriptor, which stays open meanwhile, again after EINTR.
func (h *handle) do(f func(fd int) error) (err error) {
	closed := h.conn.Control(func(fd uintptr) {
		err = again(func() error { return f(int(fd)) })
	})
	if closed != nil {
		return fs.ErrClosed
	}
	return err
}

// create opens a new file for writing.
func (h *handle) create(name string) (f file, err error) {
	err = h.do(func(dir int) error {
		fd, err := unix.Openat(dir, name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC, 0o600)
		f = file(fd)
		return err
	})
	return f, err
}

// file is a bare descriptor: an os.File would first ask for its flags, and belongs to a
// poller that regular files do not need.
type file int

// private gives the file mode 0600, which a umask can have narrowed. Looking is cheaper than
// setting: that writes the inode.
func (f file) private() error {
	var st unix.Stat_t
	if err := again(func() error { return unix.Fstat(int(f), &st) }); err != nil {
		return err
	}
	if st.Mode&0o7777 == 0o600 {
		return nil
	}
	return again(func() error { return unix.Fchmod(int(f), 0o600) })
}

func (f file) write(data []byte) error {
	for len(data) > 0 {
		n := 0
		err := again(func() (err error) {
			if n, err = unix.Write(int(f), data); n == 0 && err == nil {
				err = io.ErrShortWrite
			}
			return err
		})
		if err != nil {
			return err
		}
		data = data[n:]
	}
	return nil
}

// sync repeats fsync after EINTR alone, which says that it was not done, not that it failed.
func (f file) sync() error { return again(func() error { return unix.Fsync(int(f)) }) }

// startWriteback has the file's blocks allocated and written, and does not wait. It is a
// hint: what fails shows in sync.
func (f file) startWriteback() {
	_ = unix.SyncFileRange(int(f), 0, 0, unix.SYNC_FILE_RANGE_WRITE)
}

func (f file) close() error { return unix.Close(int(f)) }

func again(call func() error) error {
	for {
		if err := call(); err != unix.EINTR {
			return err
		}
	}
}

// replace renames into a folder, in place of what has the new name there.
func (h *handle) replace(from string, to *handle, name string) error {
	return h.do(func(dir int) error {
		return to.do(func(target int) error { return unix.Renameat(dir, from, target, name) })
	})
}

// move renames into a folder, never in place of anything; linked says that the
// file has both names and the old one is the caller's to remove.
func (h *handle) move(from string, to *handle, name string) (linked bool, err error) {
	err = h.do(func(dir int) error {
		return to.do(func(target int) error {
			err := unix.Renameat2(dir, from, target, name, unix.RENAME_NOREPLACE)
			if err != unix.EINVAL && err != unix.ENOSYS {
				return err
			}
			// NFS, 9p and some FUSE file systems do not know the flag. A hard link
			// does not replace either.
			err = unix.Linkat(dir, from, target, name, 0)
			linked = err == nil
			return err
		})
	})
	return linked, err
}

func (h *handle) remove(name string) error {
	return h.do(func(dir int) error { return unix.Unlinkat(dir, name, 0) })
}

// names lists the folder through a descriptor of its own: the position of a
// listing belongs to the descriptor.
func (h *handle) names() ([]string, error) {
	var fd int
	err := h.do(func(dir int) (err error) {
		fd, err = unix.Openat(dir, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		return err
	})
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), ".")
	defer f.Close()
	return f.Readdirnames(-1)
}
