package tmux

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// container starts a pid namespace whose processes get pids that nothing has outside, and
// returns the pid of its first process. It ends with the test, with all that is in it.
func container(t *testing.T) (init string) {
	t.Helper()
	unshare := needTool(t, "unshare")
	needTool(t, "nsenter")
	ready := filepath.Join(t.TempDir(), "ready")
	c := exec.Command(unshare, "-p", "-f", "--kill-child", "--mount-proc", "sh", "-c",
		`echo "$1" >/proc/sys/kernel/ns_last_pid && : >"$2" && exec sleep 1000`, "sh", strconv.Itoa(freePIDs(t)), ready)
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { c.Wait(); close(ended) }()
	t.Cleanup(func() {
		// The kernel ends a namespace with its first process, and unshare waits for that.
		if pid, err := strconv.Atoi(init); err == nil {
			syscall.Kill(pid, syscall.SIGKILL)
		} else {
			c.Process.Kill()
		}
		<-ended
	})
	over := false
	eventually(t, "the container", func() bool {
		select {
		case <-ended:
			over = true
		default:
		}
		return over || statErr(ready) == nil
	})
	if over {
		if os.Getenv("CI") == "true" {
			t.Fatal("needs root, to choose pids in a namespace")
		}
		t.Skip("needs root, to choose pids in a namespace")
	}
	children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", c.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(children))
}

// freePIDs is where a run of pids begins that nothing has, far from those that come next.
func freePIDs(t *testing.T) int {
	t.Helper()
	data, err := os.ReadFile("/proc/sys/kernel/pid_max")
	if err != nil {
		t.Fatal(err)
	}
	top, err := strconv.Atoi(strings.TrimSpace(string(data)))
	if err != nil {
		t.Fatal(err)
	}
	const low, run = 1000, 100
	for step := range (top - low) / run {
		first := low + (os.Getpid()+top/2+step*run)%(top-low-run)
		free := true
		for pid := first; pid < first+run && free; pid++ {
			free = !alive(pid)
		}
		if free {
			return first
		}
	}
	t.Fatal("no pids are free")
	return 0
}

// A server in a container tells its pid there, which is nobody's here: that it is not seen
// is no proof that it is gone.
func TestKillServerOfAnotherPIDNamespace(t *testing.T) {
	s := newServer(t)
	init := container(t)
	s.Wrap = func(argv []string) []string {
		return append([]string{"nsenter", "-t", init, "-p", "-m", "--"}, argv...)
	}
	p := start(t, s, "a")
	if alive(p.Server.PID) || p.Server.StartTicks != 0 {
		t.Fatalf("the server is seen: %+v", p.Server)
	}
	if has, err := s.HasPane(context.Background(), p.Server, p.ID); has != Present || err != nil {
		t.Errorf("its pane: %v, %v", has, err)
	}
	if err := s.KillServer(context.Background(), p.Server); err != nil {
		t.Fatal(err)
	}
	if l, err := s.List(context.Background()); !is(err, ErrNoServer) {
		t.Errorf("it is said to be gone, and answers: %+v, %v", l.Server, err)
	}
	if err := s.KillServer(context.Background(), p.Server); err != nil {
		t.Errorf("one that is gone: %v", err)
	}
}

// The pid that a server of another namespace tells can be a stranger's here, whose start
// says nothing of the server.
func TestStartTicksAreTheServersOwn(t *testing.T) {
	s := newServer(t)
	p := start(t, s, "a")
	for pid, known := range map[int]bool{p.Server.PID: true, os.Getpid(): false, os.Getppid(): false} {
		id := ServerID{PID: pid}
		if id.see(); (id.StartTicks != 0) != known {
			t.Errorf("%d: %+v", pid, id)
		}
	}
}
