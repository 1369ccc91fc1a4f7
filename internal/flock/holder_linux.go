package flock

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// Holder is the process that holds the lock called name, from procRoot/locks. It
// is unknown, 0 and false, where that cannot be read, where the holder belongs to
// a pid namespace that this procfs does not show, and where the kernel's device
// and inode are not those that a program sees (some overlays).
func (s *Set) Holder(name string) (pid int, ok bool) {
	held, err := s.held()
	if err != nil {
		return 0, false
	}
	pid = max(s.holder(held, mountOf(s.dir, s.proc), name), 0)
	return pid, pid > 0
}

// Holders lists the locks of the folder that are held now, by name, each with its
// holder: 0 where that is unknown. The kernel does not show the locks of processes
// in other pid namespaces. The error says that who holds what cannot be found out.
func (s *Set) Holders() (map[string]int, error) {
	held, err := s.held()
	if err != nil {
		return nil, err
	}
	files, err := os.ReadDir(s.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	holders := map[string]int{}
	m := mountOf(s.dir, s.proc)
	for _, f := range files {
		if !f.Type().IsRegular() {
			continue
		}
		if pid := s.holder(held, m, f.Name()); pid >= 0 {
			holders[f.Name()] = pid
		}
	}
	return holders, nil
}

// nobody holds a lock.
const nobody = -1

// holder is the process that holds a lock, 0 where somebody unknown does, or nobody.
func (s *Set) holder(held map[string]int, m mount, name string) int {
	var st unix.Stat_t
	if unix.Lstat(filepath.Join(s.dir, name), &st) != nil {
		return nobody
	}
	// stat(2) on btrfs gives the device of the subvolume; the kernel's list has
	// that of the file system.
	if pid, ok := held[lockID(unix.Major(uint64(st.Dev)), unix.Minor(uint64(st.Dev)), st.Ino)]; ok {
		return pid
	}
	if pid, ok := held[lockID(m.major, m.minor, st.Ino)]; ok && m.kind != "" {
		return pid
	}
	return nobody
}

// lockID names a locked file as the kernel's list does.
func lockID(major, minor uint32, inode uint64) string {
	return fmt.Sprintf("%02x:%02x:%d", major, minor, inode)
}

// held reads the kernel's list of locks: who holds which file. A holder is 0 where it is
// not known.
func (s *Set) held() (map[string]int, error) {
	f, err := os.Open(filepath.Join(s.proc, "locks"))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	held := map[string]int{}
	sc := bufio.NewScanner(f)
	for sc.Scan() {
		// 2: FLOCK  ADVISORY  WRITE 4242 fe:00:1234 0 EOF
		// A waiter's line has "->" in second place.
		w := bytes.Fields(sc.Bytes())
		if len(w) < 6 || string(w[1]) != "FLOCK" {
			continue
		}
		id := string(w[5])
		pid, err := strconv.Atoi(string(w[4]))
		if before, twice := held[id]; err != nil || pid < 0 || twice && before != pid {
			pid = 0 // two holders: subvolumes of btrfs share inode numbers
		}
		held[id] = pid
	}
	return held, sc.Err()
}

// mount is the file system that holds a folder; the zero value is an unknown one.
type mount struct {
	kind         string // its type, as in mount(8)
	major, minor uint32
}

// mountOf looks the folder's mount up in mountinfo.
func mountOf(dir, procRoot string) mount {
	var stx unix.Statx_t
	err := unix.Statx(unix.AT_FDCWD, dir, 0, unix.STATX_MNT_ID, &stx)
	if err != nil || stx.Mask&unix.STATX_MNT_ID == 0 {
		return mount{}
	}
	f, err := os.Open(filepath.Join(procRoot, "self", "mountinfo"))
	if err != nil {
		return mount{}
	}
	defer f.Close()
	id := strconv.FormatUint(stx.Mnt_id, 10)
	for sc := bufio.NewScanner(f); sc.Scan(); {
		// 36 35 98:0 /root /mnt rw,noatime master:1 - ext3 /dev/sda1 rw
		w := bytes.Fields(sc.Bytes())
		if len(w) < 3 || string(w[0]) != id {
			continue
		}
		m := mount{}
		if _, err := fmt.Sscanf(string(w[2]), "%d:%d", &m.major, &m.minor); err != nil {
			return mount{}
		}
		for i, f := range w {
			if string(f) == "-" && i+1 < len(w) {
				m.kind = string(w[i+1])
				return m
			}
		}
	}
	return mount{}
}
