package procscan

import (
	"fmt"
	"iter"
	"slices"
	"sync"
)

// Snapshot is one pass over the process table. What it shows of a process was read from
// one and the same process; different processes were read at slightly different times.
// The extras ([Snapshot.Environ] and those that follow) are read when first asked for, from
// the process of the snapshot or not at all, and kept. A Snapshot is safe for concurrent
// use. The zero Snapshot is empty and not complete.
type Snapshot struct {
	sys     *System
	procs   []Proc // by pid
	problem string // why it is not complete
	whole   bool
	covers  uint64 // processes started in earlier ticks were there when it began

	mu     sync.Mutex
	extras []*extras // beside procs; nil until one is asked for
}

// Complete says whether every process that existed when the snapshot began, and has not
// ended since, is in it with all that [Proc] holds. If not, the reason names the first
// thing that is missing, and a process that is not in the snapshot is unknown, not gone.
func (sn *Snapshot) Complete() (whole bool, reason string) {
	if sn.whole {
		return true, ""
	}
	if sn.problem == "" {
		return false, "no snapshot was taken"
	}
	return false, sn.problem
}

// Covers says whether a process with these start ticks was certainly there when the
// snapshot began: then its absence from a complete snapshot means that it is gone. A
// process started later, or less than a second before, may have been listed too early.
func (sn *Snapshot) Covers(startTicks uint64) bool { return startTicks < sn.covers }

// Len returns the number of processes.
func (sn *Snapshot) Len() int { return len(sn.procs) }

// All returns the processes in the order of their pids.
func (sn *Snapshot) All() iter.Seq[Proc] { return slices.Values(sn.procs) }

// Get returns the process with a pid.
func (sn *Snapshot) Get(pid int) (Proc, bool) {
	i, ok := sn.index(pid)
	if !ok {
		return Proc{}, false
	}
	return sn.procs[i], true
}

func (sn *Snapshot) index(pid int) (int, bool) {
	return slices.BinarySearchFunc(sn.procs, pid, func(p Proc, pid int) int { return p.PID - pid })
}

// parent returns the parent of a process. One that was started after its child is a
// stranger that got the parent's pid while the snapshot was taken.
func (sn *Snapshot) parent(child Proc) (Proc, bool) {
	p, ok := sn.Get(child.PPID)
	if !ok || p.PID == child.PID || p.Start > child.Start {
		return Proc{}, false
	}
	return p, true
}

// Ancestors returns the ancestors of a process, the nearest first, as far as the snapshot
// shows them. It ends at a parent whose pid has been used again.
func (sn *Snapshot) Ancestors(pid int) iter.Seq[Proc] {
	return func(yield func(Proc) bool) {
		p, ok := sn.Get(pid)
		// Start ticks only fall on the way up, but within one tick a damaged tree could
		// still form a loop: no chain is longer than the table.
		for range len(sn.procs) {
			if !ok {
				return
			}
			if p, ok = sn.parent(p); ok && !yield(p) {
				return
			}
		}
	}
}

// extras are what was read of one process on demand.
type extras struct {
	environ once[Env]
	cgroup  once[string]
	cwd     once[string]
	exe     once[string]
	uid     once[uint32]
	files   once[[]string]
}

// once is a value that is read at most once, with its error.
type once[T any] struct {
	mu   sync.Mutex
	done bool
	v    T
	err  error
}

func (o *once[T]) get(read func() (T, error)) (T, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.done {
		o.v, o.err = read()
		o.done = true
	}
	return o.v, o.err
}

// extra finds a process and its extras.
func (sn *Snapshot) extra(pid int) (Proc, *extras, error) {
	i, ok := sn.index(pid)
	if !ok {
		return Proc{}, nil, fmt.Errorf("process %d is not in the snapshot", pid)
	}
	sn.mu.Lock()
	defer sn.mu.Unlock()
	if sn.extras[i] == nil {
		sn.extras[i] = new(extras)
	}
	return sn.procs[i], sn.extras[i], nil
}

// Environ returns the environment of a process. It is whole, or there is an error:
// [ErrGone], [ErrNoEnviron], [ErrTooLarge] beyond 4 MiB, [os.ErrPermission], or another
// that means unknown. An empty environment without an error is really empty.
func (sn *Snapshot) Environ(pid int) (Env, error) {
	p, x, err := sn.extra(pid)
	if err != nil {
		return Env{}, err
	}
	return x.environ.get(func() (Env, error) { return sn.sys.environ(p) })
}

// Cgroup returns the cgroup of a process: its path in the unified hierarchy, else in the
// one named systemd, else in the first.
func (sn *Snapshot) Cgroup(pid int) (string, error) {
	p, x, err := sn.extra(pid)
	if err != nil {
		return "", err
	}
	return x.cgroup.get(func() (string, error) { return sn.sys.cgroup(p) })
}

// Cwd returns the working folder of a process. If it has been deleted, the path that it
// had comes with [ErrDeleted].
func (sn *Snapshot) Cwd(pid int) (string, error) {
	p, x, err := sn.extra(pid)
	if err != nil {
		return "", err
	}
	return x.cwd.get(func() (string, error) { return sn.sys.link(p, "cwd") })
}

// Exe returns the program file of a process: the interpreter, for a script. If it has been
// deleted or replaced, the path that it had comes with [ErrDeleted].
func (sn *Snapshot) Exe(pid int) (string, error) {
	p, x, err := sn.extra(pid)
	if err != nil {
		return "", err
	}
	return x.exe.get(func() (string, error) { return sn.sys.link(p, "exe") })
}

// UID returns the effective user id of a process, as this process's user namespace names
// it.
func (sn *Snapshot) UID(pid int) (uint32, error) {
	p, x, err := sn.extra(pid)
	if err != nil {
		return 0, err
	}
	return x.uid.get(func() (uint32, error) { return sn.sys.uid(p) })
}

// OpenFiles returns what the descriptors of a process refer to, as the kernel names it, in
// no order. Of more than 4096 descriptors it returns that many and [ErrTooLarge]. The
// caller must not change the slice.
func (sn *Snapshot) OpenFiles(pid int) ([]string, error) {
	p, x, err := sn.extra(pid)
	if err != nil {
		return nil, err
	}
	return x.files.get(func() ([]string, error) { return sn.sys.openFiles(p) })
}
