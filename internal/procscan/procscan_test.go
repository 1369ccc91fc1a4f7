//go:build linux

package procscan

import (
	"context"
	"os"
	"os/exec"
	"testing"
	"time"
)

func TestSnapshotShowsThisProcess(t *testing.T) {
	s := New("")
	sn, err := s.Snapshot(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if whole, reason := sn.Complete(); !whole {
		t.Fatal(reason)
	}
	pid, err := s.SelfPID()
	if err != nil {
		t.Fatal(err)
	}
	p, ok := sn.Get(pid)
	if !ok || p.PPID != os.Getppid() || len(p.Args) == 0 || p.Args[0] != os.Args[0] {
		t.Fatalf("%+v", p)
	}
	t.Logf("%+v", p)
	env, err := sn.Environ(pid)
	v, ok := env.Lookup("PATH")
	t.Log(v, ok, err)
	t.Log(sn.Cgroup(pid))
	t.Log(sn.Cwd(pid))
	t.Log(sn.Exe(pid))
	t.Log(sn.UID(pid))
	t.Log(sn.OpenFiles(pid))
	t.Log(sn.Environ(2))
	t.Log(sn.Exe(2))
	t.Log(s.PIDNamespace(0))
	t.Log(s.TimeNamespace(0))
	t.Log(s.BootID())
	t.Log(s.BootTime())
	t.Log(s.StartTime(p.Start))
	t.Log(s.BootSeconds())
	t.Log(s.HidesProcesses())
	t.Log(s.HostUserNamespace())
	for a := range sn.Ancestors(pid) {
		t.Log(a.PID, a.Args, sn.Children(a.PID))
	}
}

func TestSignalAndExit(t *testing.T) {
	s := New("")
	cmd := exec.Command("sleep", "100")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p, err := s.Stat(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	e, err := s.OpenExit(p.PID, p.Start)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	t.Log(e.Wait(ctx))
	if err := s.Signal(p.PID, p.Start, 9); err != nil {
		t.Fatal(err)
	}
	if err := e.Wait(context.Background()); err != nil {
		t.Fatal(err)
	}
	t.Log(s.Stat(p.PID))
	t.Log(s.Signal(p.PID, p.Start, 0))
	cmd.Wait()
	t.Log(s.Stat(p.PID))
	t.Log(s.Signal(p.PID, p.Start, 0))
}
