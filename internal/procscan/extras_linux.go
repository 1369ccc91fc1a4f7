package procscan

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Bounds of what is read of one process.
const (
	maxEnviron  = 4 << 20
	environSize = 32 << 10 // of the buffer that most fit into
	maxFiles    = 4096
	maxText     = 1 << 20 // cgroup and status files
)

// later reads something of a process of a snapshot after the snapshot was taken, and then
// that the process is still there: a pid that shows the same start ticks before and after
// was never another's in between. what names it in errors.
//
// The read is left behind when it does not come back: what waits for a lock inside the
// kernel cannot be interrupted.
func later[T any](s *System, p Proc, what string, read func(folder string) (T, error)) (T, error) {
	type result struct {
		v   T
		err error
	}
	done := make(chan result, 1)
	go func() {
		folder := s.path(strconv.Itoa(p.PID))
		if p.leaderless() {
			// Without one, the first thread's folder says what is left.
			thread, _ := livingThread(unix.AT_FDCWD, folder)
			folder += thread
		}
		v, err := read(folder + "/")
		if still := s.still(p, err); still != nil {
			var none T
			v, err = none, still
		}
		done <- result{v, err}
	}()
	timer := time.NewTimer(s.extraLimit)
	defer timer.Stop()
	var r result
	select {
	case r = <-done:
	case <-timer.C:
		r.err = os.ErrDeadlineExceeded
	}
	return r.v, extraError(p.PID, what, r.err)
}

// extraError says of what process and of what file of it an error is.
func extraError(pid int, what string, err error) error {
	switch {
	case err == nil:
		return nil
	case vanished(err):
		// Not wrapped: the process is there, so this must not look as if it were not.
		return fmt.Errorf("process %d: %s: %v", pid, what, err)
	}
	return fmt.Errorf("process %d: %s: %w", pid, what, err)
}

// still returns nil while p is there, after a read that ended with readErr. A zombie keeps
// its pid and some of its files; what it has lost is gone with it.
func (s *System) still(p Proc, readErr error) error {
	st, err := s.stat(p.PID)
	switch {
	case err != nil:
		return err
	case st.Start != p.Start, st.Gone() && readErr != nil && !errors.Is(readErr, ErrNoEnviron):
		return ErrGone
	}
	return nil
}

// readText returns the whole of a file.
func readText(name string) (string, error) {
	data, err := readUpTo(name, maxText)
	if err == nil && len(data) > maxText {
		err = ErrTooLarge
	}
	return string(data), err
}

func (s *System) environ(p Proc) (Env, error) {
	return later(s, p, "environment", func(folder string) (Env, error) {
		buf := make([]byte, 4<<10) // on the stack of a goroutine that has little else
		for _, pause := range settling {
			time.Sleep(pause)
			block, err := readEnviron(unix.AT_FDCWD, folder+"environ", buf)
			st, statErr := statAt(folder) // the process's, or its thread's
			if statErr != nil {
				return Env{}, statErr
			}
			if env, err, ok := settleEnviron(block, err, st); ok {
				return env, err
			}
			if len(block) == 0 && st.exiting {
				thread, err := livingThread(unix.AT_FDCWD, s.path(strconv.Itoa(p.PID)))
				if err == nil && thread == "" {
					return Env{}, ErrNoEnviron // all of it is ending
				}
			}
			if real, statErr := s.realProc(); statErr == nil && !real {
				// Files need not agree about addresses.
				if err == nil && len(block) == 0 {
					err = ErrNoEnviron
				}
				return Env{string(block)}, err
			}
		}
		return Env{}, errors.New("it changed while it was read")
	})
}

// statAt reads the stat line in a folder that may be a process's or a thread's.
func statAt(folder string) (statLine, error) {
	fd, err := open(unix.AT_FDCWD, folder+"stat", unix.O_RDONLY)
	if err != nil {
		return statLine{}, err
	}
	defer unix.Close(fd)
	var buf [statSize]byte
	st, _, err := readStat(fd, 0, buf[:])
	return st, err
}

// settleEnviron decides what a read of an environment means, given a stat line of the same
// process that was read after it. The kernel ends the file early and without an error when
// a page cannot be had or when the program is exchanged meanwhile, so the length is held
// against the bounds in the stat line. ok is false when they do not agree.
func settleEnviron(block []byte, readErr error, st statLine) (env Env, err error, ok bool) {
	switch {
	case len(block) == 0 && (st.Kernel || st.dying()):
		return Env{}, ErrNoEnviron, true // whatever the read said
	case readErr != nil && !vanished(readErr) && !st.exiting:
		return Env{}, readErr, true // of an ending thread even the owner's read is refused
	case readErr == nil && st.loaded() && uint64(len(block)) == st.envEnd-st.envStart:
		return Env{string(block)}, nil, true
	}
	return Env{}, nil, false
}

// readEnviron reads an environment into buf, or into a larger buffer where that is too
// small.
func readEnviron(dir int, name string, buf []byte) ([]byte, error) {
	fd, err := open(dir, name, unix.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	total := 0
	for {
		n, err := pread(fd, buf[total:], int64(total))
		if err != nil {
			return nil, err
		}
		total += n
		switch {
		case total > maxEnviron:
			return nil, ErrTooLarge
		case total == len(buf):
			buf = append(buf, make([]byte, len(buf))...)
		default:
			// Short of the end only if the kernel failed: settleEnviron finds out.
			return buf[:total], nil
		}
	}
}

func (s *System) cgroup(p Proc) (string, error) {
	return later(s, p, "cgroup", func(folder string) (string, error) {
		text, err := readText(folder + "cgroup")
		if err != nil {
			return "", err
		}
		path, ok := cgroupPath(text)
		if !ok {
			return "", errors.New("none")
		}
		return path, nil
	})
}

// cgroupPath chooses among lines such as "0::/a", "9:name=systemd:/b", "4:memory:/c".
func cgroupPath(text string) (path string, found bool) {
	rank := 0
	for line := range strings.SplitSeq(text, "\n") {
		id, rest, _ := strings.Cut(line, ":")
		controllers, p, ok := strings.Cut(rest, ":")
		r := 1
		switch {
		case !ok:
			continue
		case id == "0" && controllers == "":
			r = 3
		case controllers == "name=systemd":
			r = 2
		}
		if r > rank {
			rank, path, found = r, p, true
		}
	}
	return path, found
}

// link reads cwd or exe.
func (s *System) link(p Proc, name string) (string, error) {
	return later(s, p, name, func(folder string) (string, error) {
		text, err := os.Readlink(folder + name)
		if err != nil {
			return "", err
		}
		path, suffix := strings.CutSuffix(text, " (deleted)")
		if !suffix || sameFile(folder+name, folder+"root"+text) {
			return text, nil
		}
		return path, ErrDeleted
	})
}

// sameFile tells a file whose name ends in " (deleted)" from one that is deleted. The name
// counts from the process's own root folder.
func sameFile(link, name string) bool {
	a, err := os.Stat(link)
	if err != nil {
		return false
	}
	b, err := os.Lstat(name)
	return err == nil && os.SameFile(a, b)
}

func (s *System) uid(p Proc) (uint32, error) {
	return later(s, p, "status", func(folder string) (uint32, error) {
		text, err := readText(folder + "status")
		if err != nil {
			return 0, err
		}
		ids := strings.Fields(fieldOf(text, "Uid")) // real, effective, saved, file system
		if len(ids) < 2 {
			return 0, errors.New("no Uid")
		}
		uid, err := strconv.ParseUint(ids[1], 10, 32)
		return uint32(uid), err
	})
}

func (s *System) openFiles(p Proc) ([]string, error) {
	return later(s, p, "descriptors", func(folder string) ([]string, error) {
		dir, err := os.Open(folder + "fd")
		if err != nil {
			return nil, err
		}
		defer dir.Close()
		names, err := dir.Readdirnames(maxFiles + 1)
		if err != nil && err != io.EOF {
			return nil, err
		}
		files := make([]string, 0, len(names))
		for _, name := range names[:min(len(names), maxFiles)] {
			file, err := os.Readlink(folder + "fd/" + name)
			if vanished(err) {
				continue // closed meanwhile
			}
			if err != nil {
				return nil, err
			}
			files = append(files, file)
		}
		// A process that ends shows none from then on, a little before it is a zombie.
		if st, err := statAt(folder); err == nil && st.exiting {
			return nil, errors.New("the process is exiting")
		}
		if len(names) > maxFiles {
			return files, ErrTooLarge
		}
		return files, nil
	})
}
