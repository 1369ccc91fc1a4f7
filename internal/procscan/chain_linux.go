package procscan

import (
	"io/fs"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"
)

// Chain reads one process and its ancestors, the nearest first, as a snapshot that holds
// nothing else and is never complete. It costs what the chain is long, not what the table
// is: a hook that looks for the session above it needs no more. The error is [ErrGone], or
// means that pid could not be read.
func (s *System) Chain(pid int) (*Snapshot, error) {
	return s.ChainTo(pid, func(*Proc) bool { return false })
}

// ChainTo is Chain up to the first process of which enough reports true, itself included.
func (s *System) ChainTo(pid int, enough func(*Proc) bool) (*Snapshot, error) {
	if pid <= 0 {
		return &Snapshot{sys: s, problem: unix.EINVAL.Error()}, pidError(pid, unix.EINVAL)
	}
	root, err := open(unix.AT_FDCWD, s.root, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		err = &fs.PathError{Op: "open", Path: s.root, Err: err}
		return &Snapshot{sys: s, problem: err.Error()}, err
	}
	defer unix.Close(root)
	sn := &Snapshot{sys: s, problem: "only one process and its ancestors were read"}
	r, err := s.newReader(root, false)
	if err != nil {
		return sn, err
	}
	const maxDepth = 256
	for next := pid; next > 0 && len(sn.procs) < maxDepth; {
		p, err := r.process(strconv.Itoa(next))
		if p.PID == 0 || slices.ContainsFunc(sn.procs, func(q Proc) bool { return q.PID == p.PID }) {
			if len(sn.procs) == 0 {
				// Gone, or hidden: the look at one process tells.
				if _, statErr := s.stat(pid); statErr != nil {
					err = statErr
				} else if vanished(err) {
					err = ErrGone
				}
				return &Snapshot{sys: s, problem: err.Error()}, pidError(pid, err)
			}
			break // an ancestor that ended: the chain is shorter
		}
		sn.procs = append(sn.procs, p)
		if next = p.PPID; enough(&p) {
			break
		}
	}
	slices.SortFunc(sn.procs, func(a, b Proc) int { return a.PID - b.PID })
	sn.extras = make([]*extras, len(sn.procs))
	return sn, nil
}
