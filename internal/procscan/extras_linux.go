package procscan

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Bounds of what is read of one process.
const (
	maxEnviron = 4 << 20
	maxFiles   = 4096
	maxText    = 1 << 20 // cgroup and status files
)

// pinned is an open folder of one process. What is read through it is that process's, or
// fails: a pid used again has another folder.
type pinned struct {
	fd  int
	pid int
}

// pin opens the folder of the very process p.
func (s *System) pin(p Proc) (*pinned, error) {
	fd, err := open(unix.AT_FDCWD, s.path(strconv.Itoa(p.PID)), unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		if vanished(err) {
			err = s.missing(p.PID)
		}
		return nil, err
	}
	d := &pinned{fd: fd, pid: p.PID}
	st, err := d.stat()
	if err == nil && st.Start != p.Start {
		err = ErrGone // the pid is another's by now
	}
	if err != nil {
		d.close()
		return nil, err
	}
	return d, nil
}

func (d *pinned) close() { unix.Close(d.fd) }

func (d *pinned) stat() (statLine, error) {
	fd, err := open(d.fd, "stat", unix.O_RDONLY)
	if err == nil {
		defer unix.Close(fd)
		var st statLine
		if st, _, err = readStat(fd, d.pid, make([]byte, statSize)); err == nil {
			return st, nil
		}
	}
	if vanished(err) {
		err = ErrGone
	}
	return statLine{}, err
}

// explain turns an error of a read into ErrGone when the process has ended meanwhile.
func (d *pinned) explain(what string, err error) error {
	if err == nil {
		return nil
	}
	if vanished(err) {
		st, statErr := d.stat()
		if errors.Is(statErr, ErrGone) || statErr == nil && st.Gone() {
			return ErrGone
		}
		// Not wrapped: the process is there, so this must not look as if it were not.
		return fmt.Errorf("%s: %v", what, err)
	}
	return fmt.Errorf("%s: %w", what, err)
}

// read returns the whole of a file of the process.
func (d *pinned) read(name string, limit int) ([]byte, error) {
	fd, err := open(d.fd, name, unix.O_RDONLY)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	var buf bytes.Buffer
	n, err := buf.ReadFrom(io.LimitReader(f, int64(limit)+1))
	if err == nil && n > int64(limit) {
		err = ErrTooLarge
	}
	return buf.Bytes(), err
}

func (d *pinned) readlink(name string) (string, error) {
	buf := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(d.fd, name, buf)
	if err != nil {
		return "", err
	}
	if n == len(buf) {
		return "", ErrTooLarge
	}
	return string(buf[:n]), nil
}

// within runs one read of a process and leaves it behind when it does not come back: what
// waits for a lock inside the kernel cannot be interrupted.
func within[T any](s *System, p Proc, read func(*pinned) (T, error)) (T, error) {
	type result struct {
		v   T
		err error
	}
	done := make(chan result, 1)
	go func() {
		var r result
		d, err := s.pin(p)
		if r.err = err; err == nil {
			r.v, r.err = read(d)
			d.close()
		}
		done <- r
	}()
	timer := time.NewTimer(extraLimit)
	defer timer.Stop()
	select {
	case r := <-done:
		if r.err != nil {
			r.err = pidError(p.PID, r.err)
		}
		return r.v, r.err
	case <-timer.C:
		var none T
		return none, pidError(p.PID, os.ErrDeadlineExceeded)
	}
}

func (s *System) environ(p Proc) (Env, error) {
	return within(s, p, func(d *pinned) (Env, error) { return d.environ(s) })
}

// environ reads the environment and proves that it is whole. The kernel ends the file early
// and without an error when a page cannot be had or the program is exchanged meanwhile, so
// the length is held against the bounds of the environment in the stat line.
func (d *pinned) environ(s *System) (Env, error) {
	const tries = 3
	real, err := s.realProc()
	if err != nil {
		return Env{}, err
	}
	for range tries {
		block, err := readEnviron(d.fd)
		if err != nil && !vanished(err) {
			return Env{}, fmt.Errorf("environment: %w", err)
		}
		st, statErr := d.stat()
		if statErr != nil {
			return Env{}, statErr
		}
		size := st.envEnd - st.envStart
		switch {
		case err == nil && st.envEnd != 0 && uint64(len(block)) == size:
			return Env{block}, nil
		case !real && err != nil:
			return Env{}, fmt.Errorf("environment: %v", err)
		case !real && block != "":
			return Env{block}, nil // the files need not agree about addresses
		case block == "" && (st.envEnd == 0 || !real):
			return Env{}, ErrNoEnviron // no memory, or not started yet
		case size > maxEnviron:
			return Env{}, ErrTooLarge
		}
	}
	return Env{}, errors.New("environment: it changed while it was read")
}

// environBuffers serve the reads: a block is copied once, at its true size.
var environBuffers = sync.Pool{New: func() any { b := make([]byte, 32<<10); return &b }}

func readEnviron(dir int) (string, error) {
	fd, err := open(dir, "environ", unix.O_RDONLY)
	if err != nil {
		return "", err
	}
	defer unix.Close(fd)
	pooled := environBuffers.Get().(*[]byte)
	defer environBuffers.Put(pooled)
	buf := *pooled
	total := 0
	for {
		n, err := pread(fd, buf[total:], int64(total))
		if err != nil {
			return "", err
		}
		total += n
		if n == 0 {
			return string(buf[:total]), nil
		}
		if total == len(buf) {
			if total > maxEnviron {
				return "", ErrTooLarge
			}
			buf = append(buf, make([]byte, len(buf))...)
		}
	}
}

func (s *System) cgroup(p Proc) (string, error) {
	return within(s, p, func(d *pinned) (string, error) {
		b, err := d.read("cgroup", maxText)
		if err != nil {
			return "", d.explain("cgroup", err)
		}
		path, ok := cgroupPath(string(b))
		if !ok {
			return "", errors.New("no cgroup")
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
	return within(s, p, func(d *pinned) (string, error) {
		text, err := d.readlink(name)
		if err != nil {
			return "", d.explain(name, err)
		}
		path, deleted := strings.CutSuffix(text, " (deleted)")
		if !deleted || d.sameFile(name, text) {
			return text, nil
		}
		return path, ErrDeleted
	})
}

// sameFile says whether the file that a link stands for really has the name that the
// kernel gives, for a name that ends in " (deleted)". The name counts from the process's
// own root folder.
func (d *pinned) sameFile(link, text string) bool {
	var a, b unix.Stat_t
	return unix.Fstatat(d.fd, link, &a, 0) == nil &&
		unix.Fstatat(d.fd, "root"+text, &b, unix.AT_SYMLINK_NOFOLLOW) == nil &&
		a.Dev == b.Dev && a.Ino == b.Ino
}

func (s *System) uid(p Proc) (uint32, error) {
	return within(s, p, func(d *pinned) (uint32, error) {
		b, err := d.read("status", maxText)
		if err != nil {
			return 0, d.explain("status", err)
		}
		ids := strings.Fields(fieldOf(string(b), "Uid")) // real, effective, saved, file system
		if len(ids) < 2 {
			return 0, errors.New("status: no Uid")
		}
		uid, err := strconv.ParseUint(ids[1], 10, 32)
		if err != nil {
			return 0, fmt.Errorf("status: Uid: %w", err)
		}
		return uint32(uid), nil
	})
}

func (s *System) openFiles(p Proc) ([]string, error) {
	return within(s, p, func(d *pinned) ([]string, error) {
		fd, err := open(d.fd, "fd", unix.O_RDONLY|unix.O_DIRECTORY)
		if err != nil {
			return nil, d.explain("descriptors", err)
		}
		dir := os.NewFile(uintptr(fd), "fd")
		defer dir.Close()
		var files []string
		for {
			names, err := dir.Readdirnames(256)
			for _, name := range names {
				if len(files) == maxFiles {
					return files, ErrTooLarge
				}
				file, err := d.readlink("fd/" + name)
				if vanished(err) {
					continue // closed meanwhile
				}
				if err != nil {
					return nil, d.explain("descriptors", err)
				}
				files = append(files, file)
			}
			if err == io.EOF {
				// A process that ends closes its descriptors first.
				if st, err := d.stat(); err != nil || st.Gone() {
					return nil, ErrGone
				}
				return files, nil
			}
			if err != nil {
				return nil, d.explain("descriptors", err)
			}
		}
	})
}
