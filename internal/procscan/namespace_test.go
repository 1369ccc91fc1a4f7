//go:build linux

package procscan

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// ownProc mounts a proc file system of this pid namespace, unseen by others.
func ownProc(t *testing.T, options string) {
	t.Helper()
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("proc", "/proc", "proc", 0, options); err != nil {
		t.Fatal(err)
	}
}

const newPIDs = syscall.CLONE_NEWPID | syscall.CLONE_NEWNS

// usedAgain starts processes until one has the pid of another that has ended and was started
// in an earlier tick. It is false where a thread of this process has taken the pid: for good.
func usedAgain(t *testing.T, s *System, pid int, before uint64) bool {
	t.Helper()
	for {
		if _, err := s.Stat(pid); err == nil {
			return false
		}
		next := []byte(strconv.Itoa(pid - 1))
		if err := os.WriteFile("/proc/sys/kernel/ns_last_pid", next, 0); err != nil {
			t.Fatal(err)
		}
		stranger := blocked(t, shell(t), "stranger")
		if stranger.Process.Pid == pid && stat(t, pid).Start != before {
			return true
		}
		stranger.Process.Kill()
		stranger.Wait()
	}
}

// The pid of a process that has ended is given to another: the real thing, in a pid
// namespace of its own, where the next pid can be chosen.
func TestReusedPIDIsAnotherProcess(t *testing.T) {
	switch stage() {
	case "":
		needRoot(t)
		rerun(t, "namespace", &syscall.SysProcAttr{Cloneflags: newPIDs})
		return
	}
	ownProc(t, "")
	s := New("")
	var pid int
	var before Proc
	var sn, untouched *Snapshot
	var exit *Exit
	eventually(t, "the pid of a process is used again, in a later tick", func() bool {
		old := blocked(t, shell(t), "old")
		pid = old.Process.Pid
		before = getProc(t, snapshot(t), pid)
		sn, untouched = snapshot(t), snapshot(t)
		if _, err := sn.Environ(pid); err != nil {
			t.Fatal(err)
		}
		var err error
		if exit, err = s.OpenExit(pid, before.Start); err != nil {
			t.Fatal(err)
		}
		opened := exit
		t.Cleanup(func() { opened.Close() })
		old.Process.Kill()
		old.Wait()
		return usedAgain(t, s, pid, before.Start)
	})

	after := stat(t, pid)
	if after.Start == before.Start || after.Gone() {
		t.Fatalf("before %+v, after %+v", before, after)
	}
	if err := s.Signal(pid, before.Start, syscall.SIGKILL); !errors.Is(err, ErrChanged) {
		t.Errorf("Signal: %v", err)
	}
	if _, err := s.OpenExit(pid, before.Start); !errors.Is(err, ErrChanged) {
		t.Errorf("OpenExit: %v", err)
	}
	if err := exit.Wait(t.Context()); err != nil {
		t.Errorf("Wait for the old one: %v", err)
	}
	// Snapshots of the old process never show what the stranger has.
	if env, err := untouched.Environ(pid); !errors.Is(err, ErrGone) {
		t.Errorf("Environ: %v, %v", env, err)
	}
	for name, err := range map[string]error{
		"cached Environ": second(sn.Environ(pid)), "Cwd": second(sn.Cwd(pid)), "Exe": second(sn.Exe(pid)),
		"Cgroup": second(sn.Cgroup(pid)), "UID": second(sn.UID(pid)), "OpenFiles": second(sn.OpenFiles(pid)),
	} {
		if want := name != "cached Environ"; errors.Is(err, ErrGone) != want {
			t.Errorf("%s: %v", name, err)
		}
	}
	if p := stat(t, pid); p.Start != after.Start || p.Gone() {
		t.Fatal("the stranger was signalled")
	}
	if err := s.Signal(pid, after.Start, syscall.SIGKILL); err != nil {
		t.Errorf("Signal to the stranger itself: %v", err)
	}
}

// In a container that sees the host's /proc the numbers there are the host's: they are
// read, and never used as numbers of our own.
func TestProcOfAnotherPIDNamespace(t *testing.T) {
	s := New("")
	switch stage() {
	case "":
		needRoot(t)
		ns := must(s.PIDNamespace(0))
		t.Setenv("PROCSCAN_TEST_HOST", fmt.Sprint(ns))
		rerun(t, "namespace", &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID})
		return
	}
	pid, err := s.SelfPID()
	if err != nil || pid == os.Getpid() || os.Getpid() != 1 {
		t.Fatalf("SelfPID %d, Getpid %d, %v", pid, os.Getpid(), err)
	}
	host := os.Getenv("PROCSCAN_TEST_HOST")
	if ns, err := s.PIDNamespace(0); err != nil || fmt.Sprint(ns) != host {
		t.Errorf("PIDNamespace(0): %d, %v, want the mount's, %s", ns, err, host)
	}
	if ns, err := s.PIDNamespace(pid); err != nil || fmt.Sprint(ns) == host {
		t.Errorf("PIDNamespace of this process: %d, %v", ns, err)
	}
	if p := getProc(t, snapshot(t), pid); p.Args[0] != os.Args[0] {
		t.Errorf("%+v", p)
	}
	if err := s.Signal(pid, stat(t, pid).Start, 0); err == nil || errors.Is(err, ErrGone) {
		t.Errorf("Signal: %v", err)
	}
	// The first process of the host is not the first one here, which is this test.
	if err := s.Signal(1, stat(t, 1).Start, 0); err == nil || errors.Is(err, ErrGone) {
		t.Errorf("Signal to the host's first process: %v", err)
	}
}

// A process of a child pid namespace is an ordinary process here, under the number it has
// here.
func TestProcessInChildPIDNamespace(t *testing.T) {
	needRoot(t)
	cmd := &exec.Cmd{Path: shell(t), Args: []string{"sh"}, SysProcAttr: &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID}}
	defer must(cmd.StdinPipe()).Close()
	start(t, cmd)
	s := New("")
	p := getProc(t, snapshot(t), cmd.Process.Pid)
	ours, theirs := must(s.PIDNamespace(0)), must(s.PIDNamespace(p.PID))
	if ours == theirs || p.PPID != os.Getpid() {
		t.Errorf("namespaces %d and %d, %+v", ours, theirs, p)
	}
	if err := s.Signal(p.PID, p.Start, syscall.SIGKILL); err != nil {
		t.Errorf("Signal: %v", err)
	}
}

// Another user's environment cannot be read: that is an error, never an empty environment,
// and does not make the process table incomplete.
func TestEnvironmentOfAnotherUser(t *testing.T) {
	switch stage() {
	case "":
		needRoot(t)
		cmd := blocked(t, shell(t), "sh")
		t.Setenv("PROCSCAN_TEST_PID", strconv.Itoa(cmd.Process.Pid))
		rerun(t, "nobody", &syscall.SysProcAttr{Credential: nobody})
		// A user namespace: root there, nobody here.
		rerun(t, "user namespace", &syscall.SysProcAttr{
			Cloneflags:  syscall.CLONE_NEWUSER,
			UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: 65534, Size: 1}},
			GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: 65534, Size: 1}},
			Credential:  &syscall.Credential{Uid: 0, Gid: 0, NoSetGroups: true},
		})
		return
	}
	s := New("")
	if host, err := s.HostUserNamespace(); err != nil || host != (stage() == "nobody") {
		t.Errorf("HostUserNamespace: %v, %v", host, err)
	}
	pid := must(strconv.Atoi(os.Getenv("PROCSCAN_TEST_PID")))
	for kind, sn := range map[string]*Snapshot{"on demand": snapshot(t), "in the pass": must(s.SnapshotEnviron(t.Context()))} {
		if whole, reason := sn.Complete(); !whole {
			t.Errorf("%s: %s", kind, reason)
		}
		if env, err := sn.Environ(pid); !errors.Is(err, fs.ErrPermission) || errors.Is(err, ErrGone) || env != (Env{}) {
			t.Errorf("%s: Environ: %v, %v", kind, env, err)
		}
		for name, err := range map[string]error{"Cwd": second(sn.Cwd(pid)), "Exe": second(sn.Exe(pid)), "OpenFiles": second(sn.OpenFiles(pid))} {
			if !errors.Is(err, fs.ErrPermission) {
				t.Errorf("%s: %s: %v", kind, name, err)
			}
		}
		// These are open to all.
		if p := getProc(t, sn, pid); len(p.Args) != 1 || p.Args[0] != "sh" || p.Gone() {
			t.Errorf("%+v", p)
		}
		if _, err := sn.Cgroup(pid); err != nil {
			t.Errorf("%s: Cgroup: %v", kind, err)
		}
		if uid, err := sn.UID(pid); err != nil || int(uid) == os.Geteuid() && stage() == "nobody" {
			t.Errorf("%s: UID: %d, %v", kind, uid, err)
		}
		if _, err := sn.Environ(os.Getpid()); err != nil {
			t.Errorf("%s: own Environ: %v", kind, err)
		}
	}
	if _, err := s.PIDNamespace(pid); !errors.Is(err, fs.ErrPermission) {
		t.Errorf("PIDNamespace: %v", err)
	}
}

// A mount that hides processes makes every snapshot incomplete for those whom it hides
// them from, and a process that cannot be seen is not gone.
func TestMountThatHidesProcesses(t *testing.T) {
	name, options, _ := strings.Cut(stage(), " ")
	switch name {
	case "":
		needRoot(t)
		for _, options := range []string{"hidepid=0", "hidepid=1", "hidepid=2", "hidepid=2,gid=777", "hidepid=4"} {
			rerun(t, "mount "+options, &syscall.SysProcAttr{Cloneflags: newPIDs})
		}
		return
	case "mount":
		if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
			t.Fatal(err)
		}
		if err := unix.Mount("proc", "/proc", "proc", 0, options); err != nil {
			if options == "hidepid=4" {
				t.Skip("this kernel has no hidepid=4") // before 5.8
			}
			t.Fatal(err)
		}
		if hidden, known := New("").HidesProcesses(); hidden || !known {
			t.Errorf("%s: from root: hidden %v, known %v", options, hidden, known)
		}
		snapshot(t)
		rerun(t, "nobody "+options, &syscall.SysProcAttr{Credential: nobody})
		member := *nobody
		member.Groups = []uint32{777}
		rerun(t, "member "+options, &syscall.SysProcAttr{Credential: &member})
		return
	}
	s := New("")
	exempt := options == "hidepid=0" || name == "member" && strings.HasSuffix(options, "gid=777")
	if hidden, known := s.HidesProcesses(); hidden == exempt || !known {
		t.Errorf("%s, %s: hidden %v, known %v", name, options, hidden, known)
	}
	sn, err := s.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if whole, reason := sn.Complete(); whole != exempt || !exempt && !strings.Contains(reason, "hidepid") {
		t.Errorf("%s, %s: complete %v, %q", name, options, whole, reason)
	}
	if _, ok := sn.Get(os.Getpid()); !ok {
		// With 4 a process is hidden even from itself once it has changed its user.
		t.Logf("%s, %s: this process is not in its own snapshot", name, options)
	}
	_, shown := sn.Get(1)
	_, err = s.Stat(1)
	switch {
	case shown != exempt:
		t.Errorf("%s, %s: root's process shown: %v", name, options, shown)
	case exempt && err != nil, !exempt && (err == nil || errors.Is(err, ErrGone)):
		t.Errorf("%s, %s: Stat of root's process: %v", name, options, err)
	}
	// What is really gone is known to be gone all the same.
	_, err = s.Stat(1 << 21)
	if _, statErr := os.Stat("/proc/self/status"); statErr != nil {
		if errors.Is(err, ErrGone) {
			t.Errorf("%s, %s: gone, by a mount that does not show ourselves", name, options)
		}
	} else if !errors.Is(err, ErrGone) {
		t.Errorf("%s, %s: Stat of no process: %v", name, options, err)
	}
}

// A time namespace shifts the boot clock and the ticks that its members read; the start
// times stay right.
func TestTimeNamespaceShiftsTicks(t *testing.T) {
	s := New("")
	switch stage() {
	case "":
		needRoot(t)
		needTool(t, "unshare")
		ns, err := s.TimeNamespace(0)
		if errors.Is(err, errors.ErrUnsupported) {
			t.Skip(err)
		} else if err != nil {
			t.Fatal(err)
		}
		first := stat(t, 1)
		t.Setenv("PROCSCAN_TEST_HOST", fmt.Sprint(ns, first.Start, must(s.StartTime(first.Start)).Unix()))
		rerun(t, "namespace", nil, "unshare", "--time", "--boottime", "864000", "--fork")
		return
	}
	var ns, ticks uint64
	var unixTime int64
	if _, err := fmt.Sscan(os.Getenv("PROCSCAN_TEST_HOST"), &ns, &ticks, &unixTime); err != nil {
		t.Fatal(err)
	}
	if ours, err := s.TimeNamespace(0); err != nil || ours == ns {
		t.Errorf("TimeNamespace: %d here, %d outside, %v", ours, ns, err)
	}
	first := stat(t, 1)
	if first.Start < ticks+80000000 {
		t.Errorf("ticks %d here, %d outside", first.Start, ticks)
	}
	if at := must(s.StartTime(first.Start)).Unix(); at < unixTime-2 || at > unixTime+2 {
		t.Errorf("started at %d here, %d outside", at, unixTime)
	}
	if up := must(s.BootSeconds()); up < 864000 {
		t.Errorf("up %d seconds", up)
	}
	if !snapshot(t).Covers(first.Start) {
		t.Error("Covers does not know the first process")
	}
}

// Thousands of processes, of which some end while they are read: no error, no incomplete
// snapshot, and nobody is missed who lives.
func TestProcessesThatEndDuringTheScan(t *testing.T) {
	const n, killed = 2000, 40
	s := New("")
	sh := sleepers(t, n)
	first := snapshot(t)
	pids := children(first, sh.Process.Pid)
	victims := map[int]bool{}
	for i := range killed {
		victims[pids[i*n/killed]] = true
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for pid := range victims {
			if err := s.Signal(pid, getProc(t, first, pid).Start, syscall.SIGKILL); err != nil {
				t.Error(err)
			}
			time.Sleep(10 * time.Millisecond) // spreads them over the scans
		}
	}()
	scans := 0
	for last := false; !last; scans++ {
		select {
		case <-ended:
			last = true
		default:
		}
		take := s.Snapshot
		if scans%2 == 1 {
			take = s.SnapshotEnviron
		}
		sn, err := take(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		if whole, reason := sn.Complete(); !whole {
			t.Errorf("not complete: %s", reason)
		}
		for _, pid := range pids {
			was := getProc(t, first, pid)
			if p, ok := sn.Get(pid); !victims[pid] && (!ok || p.Gone() || p.Start != was.Start || p.PPID != was.PPID) {
				t.Fatalf("process %d lives, but reads as %+v, %v", pid, p, ok)
			}
		}
	}
	t.Logf("%d scans of %d processes", scans, first.Len())
	for pid := range victims {
		eventually(t, "the killed are gone", func() bool {
			p, err := s.Stat(pid)
			return errors.Is(err, ErrGone) || p.Gone() || p.Start != getProc(t, first, pid).Start
		})
	}
}
