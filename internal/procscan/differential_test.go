//go:build linux

package procscan

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/procfs"
)

// Every process of the machine reads as prometheus/procfs reads it, odd ones included. A
// process is compared only if it is the same before and after, and with two snapshots, one
// on each side, where a value may change meanwhile.
func TestAgreesWithProcfs(t *testing.T) {
	for _, name := range []string{"a) S 1 (b", "a b\n", "\xff"} {
		path := filepath.Join(t.TempDir(), name)
		copyFile(t, shell(t), path)
		blocked(t, path, "odd "+name, "-s", "", "(", "\xfe\n")
	}
	zombie := blocked(t, shell(t), "sh")
	zombie.Process.Kill()
	eventually(t, "it is a zombie", func() bool { return stat(t, zombie.Process.Pid).Gone() })

	pfs, err := procfs.NewFS("/proc")
	if err != nil {
		t.Fatal(err)
	}
	first := must(New("").SnapshotEnviron(context.Background()))
	onDemand := snapshot(t)
	for p := range onDemand.All() {
		onDemand.Environ(p.PID)
	}
	procs, err := pfs.AllProcs()
	if err != nil {
		t.Fatal(err)
	}
	theirs := map[int]procfs.ProcStat{}
	args, environs := map[int][]string{}, map[int][]string{}
	for _, p := range procs {
		st, err := p.Stat()
		if err != nil {
			continue // it has ended
		}
		theirs[p.PID] = st
		args[p.PID], _ = p.CmdLine()
		environs[p.PID], _ = p.Environ()
	}
	last := snapshot(t)

	compared := 0
	for a := range first.All() {
		b, ok := last.Get(a.PID)
		if !ok || b.Start != a.Start {
			continue
		}
		st, ok := theirs[a.PID]
		if !ok {
			t.Errorf("process %d: not seen by procfs", a.PID)
			continue
		}
		compared++
		if st.Starttime != a.Start || st.PID != a.PID {
			t.Errorf("process %d: procfs has start ticks %d, we %d", a.PID, st.Starttime, a.Start)
		}
		if kernel := uint64(st.Flags)&kernelThread != 0; kernel != a.Kernel {
			t.Errorf("process %d: procfs has flags %#x, we kernel thread %v", a.PID, st.Flags, a.Kernel)
		}
		if ticks := uint64(st.UTime) + uint64(st.STime); ticks < a.Ticks || ticks > b.Ticks {
			t.Errorf("process %d: procfs has %d ticks, we %d and then %d", a.PID, ticks, a.Ticks, b.Ticks)
		}
		if a.State == b.State && a.Gone() && st.State != string(a.State) {
			t.Errorf("process %d: procfs has state %s, we %c", a.PID, st.State, a.State)
		}
		if a.PPID == b.PPID && st.PPID != a.PPID {
			t.Errorf("process %d: procfs has parent %d, we %d", a.PID, st.PPID, a.PPID)
		}
		if a.TTY == b.TTY && st.TTY != int(a.TTY) {
			t.Errorf("process %d: procfs has terminal %d, we %d", a.PID, st.TTY, a.TTY)
		}
		if a.Threads == b.Threads && a.Threads == 1 && st.NumThreads != 1 {
			t.Errorf("process %d: procfs has %d threads, we %d", a.PID, st.NumThreads, a.Threads)
		}
		if a.Comm != b.Comm || !slices.Equal(a.Args, b.Args) {
			continue // it has started another program
		}
		if st.Comm != a.Comm && !a.Kernel { // whose name says what it works on

			t.Errorf("process %d: procfs has name %q, we %q", a.PID, st.Comm, a.Comm)
		}
		// procfs drops empty arguments at the end.
		// Of a process that just starts a program, or has ended its first thread, it reads
		// nothing and takes that for an answer.
		if got, ours := trimEmpty(args[a.PID]), trimEmpty(a.Args); len(got) > 0 && !slices.Equal(got, ours) && !a.ArgsCut {
			t.Errorf("process %d: procfs has arguments %q, we %q", a.PID, args[a.PID], a.Args)
		}
		for kind, sn := range map[string]*Snapshot{"in the pass": first, "on demand": onDemand} {
			env, err := sn.Environ(a.PID)
			if err != nil {
				if len(environs[a.PID]) > 0 {
					t.Errorf("process %d: procfs has an environment, we %s: %v", a.PID, kind, err)
				}
				continue
			}
			if want := strings.Join(environs[a.PID], "\x00"); want != "" && len(want) < 1<<20 && strings.Trim(env.block, "\x00") != strings.Trim(want, "\x00") {
				t.Errorf("process %d: %s: procfs has environment\n%q, we\n%q", a.PID, kind, want, env.block)
			}
		}
		compareExtras(t, pfs, onDemand, a)
	}
	if compared < 4 {
		t.Errorf("%d processes compared", compared)
	}
	t.Logf("%d processes compared", compared)
}

// compareExtras compares what procfs can tell. It reads a link that is missing as "".
func compareExtras(t *testing.T, pfs procfs.FS, sn *Snapshot, p Proc) {
	proc, err := pfs.Proc(p.PID)
	if err != nil {
		return
	}
	for name, c := range map[string]struct {
		ours   func(int) (string, error)
		theirs func() (string, error)
	}{"exe": {sn.Exe, proc.Executable}, "cwd": {sn.Cwd, proc.Cwd}} {
		want, err := c.theirs()
		got, ourErr := c.ours(p.PID)
		if errors.Is(ourErr, ErrDeleted) {
			got += " (deleted)"
		}
		if err == nil && got != want {
			t.Errorf("process %d: procfs has %s %q, we %q, %v", p.PID, name, want, got, ourErr)
		}
	}
	status, err := proc.NewStatus()
	if uid, ourErr := sn.UID(p.PID); err == nil && ourErr == nil && uint64(uid) != status.UIDs[1] {
		t.Errorf("process %d: procfs has user %d, we %d", p.PID, status.UIDs[1], uid)
	}
	groups, err := proc.Cgroups()
	if path, ourErr := sn.Cgroup(p.PID); err == nil && ourErr == nil {
		if !slices.ContainsFunc(groups, func(g procfs.Cgroup) bool { return g.Path == path }) {
			t.Errorf("process %d: procfs has cgroups %v, we %q", p.PID, groups, path)
		}
	}
}

func trimEmpty(args []string) []string {
	for len(args) > 0 && args[len(args)-1] == "" {
		args = args[:len(args)-1]
	}
	return args
}
