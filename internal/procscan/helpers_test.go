//go:build linux

package procscan

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"
)

// eventually polls until ok: the kernel has no way to wait for another process's state.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited too long until %s", what)
		}
	}
}

// sleepers starts n processes that do nothing, children of one shell, and returns the
// shell. They wait for the end of a pipe that this process holds, so that they end with it
// even if it crashes.
func sleepers(t testing.TB, n int) *exec.Cmd {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	script := fmt.Sprintf("i=0; while [ $i -lt %d ]; do read x <&3 & i=$((i+1)); done; wait", n)
	cmd := exec.Command("sh", "-c", script)
	cmd.ExtraFiles = []*os.File{r}
	start(t, cmd)
	r.Close()
	t.Cleanup(func() { w.Close() })
	eventually(t, "all sleepers run", func() bool {
		sn, err := New("").Snapshot(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		return len(sn.Children(cmd.Process.Pid)) == n
	})
	return cmd
}

// start starts a process in a group of its own and ends the whole group after the test.
func start(t testing.TB, cmd *exec.Cmd) *exec.Cmd {
	t.Helper()
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = new(syscall.SysProcAttr)
	}
	cmd.SysProcAttr.Setpgid = true
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		cmd.Wait()
	})
	return cmd
}
