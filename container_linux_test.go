package ledger

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// container starts a pid namespace whose processes get pids that nothing has outside, and
// returns the pid of its first process. It ends with the test, with all that is in it.
func container(t *testing.T) (init string) {
	t.Helper()
	for _, tool := range []string{"unshare", "nsenter"} {
		_, err := exec.LookPath(tool)
		need(t, err == nil, tool)
	}
	ready := filepath.Join(t.TempDir(), "ready")
	c := exec.Command("unshare", "-p", "-f", "--kill-child", "--mount-proc", "sh", "-c",
		`echo "$1" >/proc/sys/kernel/ns_last_pid && : >"$2" && exec sleep 1000`, "sh", itoa(freePIDs(t)), ready)
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { c.Wait(); close(ended) }()
	t.Cleanup(func() {
		// The kernel ends a namespace with its first process, and unshare waits for that.
		if init != "" {
			syscall.Kill(atoi(t, init), syscall.SIGKILL)
		} else {
			c.Process.Kill()
		}
		<-ended
	})
	over := false
	await(t, "the container", func() bool {
		select {
		case <-ended:
			over = true
		default:
		}
		return over || fileExists(ready)
	})
	need(t, !over, "root, to choose pids in a namespace")
	return strings.TrimSpace(readFile(t, "/proc/"+itoa(c.Process.Pid)+"/task/"+itoa(c.Process.Pid)+"/children"))
}

// freePIDs is where a run of pids begins that nothing has, far from those that come next.
func freePIDs(t *testing.T) int {
	t.Helper()
	top := atoi(t, strings.TrimSpace(readFile(t, "/proc/sys/kernel/pid_max")))
	const low, run = 1000, 100
	for step := range (top - low) / run {
		first := low + (os.Getpid()+top/2+step*run)%(top-low-run)
		free := true
		for pid := first; pid < first+run && free; pid++ {
			free = !fileExists("/proc/" + itoa(pid))
		}
		if free {
			return first
		}
	}
	t.Fatal("no pids are free")
	return 0
}

// The pids that a tmux server in a container tells are its own: the agent is found by the
// attempt that it carries, and the row has it under the pid that it has here.
func TestLaunchIntoAContainer(t *testing.T) {
	b := newBed(t)
	init := container(t)
	b.h.WrapServer = func(argv []string) []string {
		return append([]string{"nsenter", "-t", init, "-p", "-m", "--"}, argv...)
	}
	e := b.launch(LaunchOptions{Runtime: "claude"})
	if got := b.agents(); len(got) != 1 || !got[0].Same(e.Process()) {
		t.Fatalf("agents %v, recorded %v", got, e.Process())
	}
	if env := environ(t, e.PID); env[envID] != e.LedgerID {
		t.Errorf("it carries %q", env[envID])
	}
	namespace := func(pid string) string {
		to, err := os.Readlink("/proc/" + pid + "/ns/pid")
		if err != nil {
			t.Fatal(err)
		}
		return to
	}
	if in := namespace(itoa(e.PID)); in != namespace(init) || in == namespace("self") {
		t.Errorf("it runs in %s", in)
	}
	// Its server is not named: the pid that it tells may be another process's here.
	if !e.PaneServer.IsZero() || e.PaneID != "" {
		t.Errorf("server %v, pane %q", e.PaneServer, e.PaneID)
	}
	if st := b.status(e.LedgerID); st.State != LivenessDetached || st.Mux != MuxDetached {
		t.Errorf("status: %+v", st)
	}
	if _, err := b.h.Kill(t.Context(), e.LedgerID, KillOptions{}); err != nil {
		t.Fatal(err)
	}
	b.gone(e.Process())
}
