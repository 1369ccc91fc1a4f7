package flock

import (
	"bufio"
	"bytes"
	"fmt"
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
	path := filepath.Join(s.dir, name)
	var st unix.Stat_t
	if unix.Lstat(path, &st) != nil {
		return 0, false
	}
	// stat(2) on btrfs gives the device of the subvolume; the kernel's list has
	// that of the file system.
	ids := []string{fmt.Sprintf("%02x:%02x:%d", unix.Major(uint64(st.Dev)), unix.Minor(uint64(st.Dev)), st.Ino)}
	if m := mountOf(s.dir, s.proc); m.kind != "" {
		ids = append(ids, fmt.Sprintf("%02x:%02x:%d", m.major, m.minor, st.Ino))
	}
	f, err := os.Open(filepath.Join(s.proc, "locks"))
	if err != nil {
		return 0, false
	}
	defer f.Close()
	sc := bufio.NewScanner(f)
	for sc.Scan() {
		// 2: FLOCK  ADVISORY  WRITE 4242 fe:00:1234 0 EOF
		// A waiter's line has "->" in second place.
		w := bytes.Fields(sc.Bytes())
		if len(w) < 6 || string(w[1]) != "FLOCK" {
			continue
		}
		if id := string(w[5]); id != ids[0] && id != ids[len(ids)-1] {
			continue
		}
		n, err := strconv.Atoi(string(w[4]))
		if err != nil || n <= 0 || ok && n != pid {
			return 0, false // two holders: subvolumes of btrfs share inode numbers
		}
		pid, ok = n, true
	}
	if sc.Err() != nil {
		return 0, false
	}
	return pid, ok
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
