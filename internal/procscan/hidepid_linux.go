package procscan

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// HidesProcesses says whether the mount option hidepid can keep processes of other users
// from this process. It cannot when this process may trace every process of the host, nor
// when it is in the group that the option gid= exempts. known is false when it could not be
// found out.
//
// In a tree of files nothing is hidden, unless its self/mountinfo has a line for a proc
// mount that says so.
func (s *System) HidesProcesses() (hidden, known bool) {
	real, err := s.realProc()
	if err != nil {
		return false, false
	}
	b, err := ReadFile(s.path("self/mountinfo"))
	if !real && errors.Is(err, fs.ErrNotExist) {
		return false, true
	}
	if err != nil {
		return false, false
	}
	var device string // "": the tree's only proc mount
	if real {
		var st unix.Stat_t
		if err := unix.Stat(s.root, &st); err != nil {
			return false, false
		}
		device = fmt.Sprintf("%d:%d", unix.Major(uint64(st.Dev)), unix.Minor(uint64(st.Dev)))
	}
	options, found := procMountOptions(string(b), device)
	if !found {
		return false, false
	}
	return hidesFrom(options, s.tracesAll)
}

// procMountOptions returns the file system options of the proc mount with that device. The
// options belong to the file system, so it does not matter by which of its mount points it
// was reached.
func procMountOptions(mountinfo, device string) (options string, found bool) {
	for line := range strings.Lines(mountinfo) {
		// 22 27 0:21 / /proc rw,relatime shared:5 - proc proc rw,hidepid=2
		mount, fstype, ok := strings.Cut(strings.TrimSuffix(line, "\n"), " - ")
		if !ok || !strings.HasPrefix(fstype, "proc ") {
			continue
		}
		fields, tail := strings.Fields(mount), strings.Fields(fstype)
		if len(fields) > 2 && len(tail) > 2 && (device == "" || fields[2] == device) {
			return tail[2], true
		}
	}
	return "", false
}

// hidesFrom evaluates the mount options for this process.
func hidesFrom(options string, tracesAll func() bool) (hidden, known bool) {
	mode, gid := "off", 0
	for option := range strings.SplitSeq(options, ",") {
		name, value, _ := strings.Cut(option, "=")
		switch name {
		case "hidepid":
			mode = value
		case "gid":
			n, err := strconv.ParseUint(value, 10, 32)
			if err != nil {
				return false, false
			}
			gid = int(n)
		}
	}
	switch mode {
	case "0", "off":
		return false, true
	case "1", "noaccess", "2", "invisible":
		// The exempted group is group 0 where none is named.
		groups, err := os.Getgroups()
		if err == nil && (os.Getegid() == gid || slices.Contains(groups, gid)) {
			return false, true
		}
	case "4", "ptraceable":
	default:
		return false, false
	}
	return !tracesAll(), true
}

// tracesAll says whether this process may trace every process: it has CAP_SYS_PTRACE, and
// that in the host's user namespace.
func (s *System) tracesAll() bool {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var caps [2]unix.CapUserData
	if err := unix.Capget(&header, &caps[0]); err != nil {
		return false
	}
	host, err := s.HostUserNamespace()
	return err == nil && host && caps[0].Effective&(1<<unix.CAP_SYS_PTRACE) != 0
}
