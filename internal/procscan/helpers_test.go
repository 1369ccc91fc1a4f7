//go:build linux

package procscan

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

// The test binary runs itself again in two ways: as a process with a trait that ordinary
// programs do not have (its role), and as the same test in other namespaces or with fewer
// rights (its stage).
const (
	roleVar  = "PROCSCAN_TEST_ROLE"
	stageVar = "PROCSCAN_TEST_STAGE"
)

var roles = map[string]func(){
	// Writes a title over its arguments, as node does for process.title.
	"title": func() {
		arg0 := unsafe.Slice(unsafe.StringData(os.Args[0]), len(os.Args[0]))
		clear(arg0)
		copy(arg0, "claude")
		fmt.Println("ready")
	},
	// Ends its first thread, after which the process shows as a zombie though it lives on.
	"leaderless": func() {
		go func() {
			fmt.Println("ready")
			bufio.NewReader(os.Stdin).ReadByte()
			os.Exit(0)
		}()
		unix.Syscall(unix.SYS_EXIT, 0, 0, 0)
	},
	// Opens many files.
	"files": func() {
		for range maxFiles + 10 {
			if _, err := unix.Open("/dev/null", unix.O_RDONLY, 0); err != nil {
				fmt.Println(err)
				return
			}
		}
		fmt.Println("ready")
	},
}

func init() {
	if role := os.Getenv(roleVar); role != "" {
		runtime.LockOSThread() // init runs on the first thread
		roles[role]()
		bufio.NewReader(os.Stdin).ReadByte() // the end of the test closes it
		os.Exit(0)
	}
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// play starts the test binary in a role and returns when it is ready.
func play(t *testing.T, role string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), roleVar+"="+role, "GORACE=atexit_sleep_ms=0")
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stdin.Close() })
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	start(t, cmd)
	if line, err := bufio.NewReader(stdout).ReadString('\n'); line != "ready\n" {
		t.Fatalf("role %s: %q, %v", role, line, err)
	}
	return cmd
}

func stage() string { return os.Getenv(stageVar) }

// rerun runs the calling test again, in another process with these attributes, and fails
// if that fails. The command may be led by a prefix such as unshare.
func rerun(t *testing.T, stage string, attr *syscall.SysProcAttr, prefix ...string) {
	t.Helper()
	// By this name the binary can also be run without the right to search its folder.
	args := []string{"/proc/self/exe"}
	if len(prefix) > 0 {
		args = append(prefix, os.Args[0])
	}
	args = append(args, "-test.run=^"+t.Name()+"$", "-test.v", "-test.count=1")
	cmd := exec.CommandContext(t.Context(), args[0], args[1:]...)
	// The race detector would wait a second at each exit.
	cmd.Env = append(os.Environ(), stageVar+"="+stage, "GORACE=atexit_sleep_ms=0")
	cmd.SysProcAttr = attr
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("stage %s: %v\n%s", stage, err, out)
	}
	if !strings.Contains(string(out), "--- PASS: "+t.Name()) {
		t.Fatalf("stage %s did not run the test:\n%s", stage, out)
	}
}

// lacking skips a test that the machine cannot run. On CI it must be able to.
func lacking(t testing.TB, what string) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatalf("needs %s", what)
	}
	t.Skipf("needs %s", what)
}

func needRoot(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		lacking(t, "root")
	}
}

func needTool(t testing.TB, name string) {
	t.Helper()
	if _, err := exec.LookPath(name); err != nil {
		lacking(t, name)
	}
}

// nobody has no right over anybody else's processes.
var nobody = &syscall.Credential{Uid: 65534, Gid: 65534}

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
		return len(children(snapshot(t), cmd.Process.Pid)) == n
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

// blocked starts a shell under any name and arguments, which waits until the test ends.
func blocked(t testing.TB, path string, argv ...string) *exec.Cmd {
	t.Helper()
	cmd := &exec.Cmd{Path: path, Args: argv}
	stdin, err := cmd.StdinPipe() // a shell without a script reads it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stdin.Close() })
	return start(t, cmd)
}

// snapshot takes a snapshot, which must be complete.
func snapshot(t testing.TB) *Snapshot {
	t.Helper()
	sn, err := New("").Snapshot(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if whole, reason := sn.Complete(); !whole {
		t.Fatalf("snapshot is not complete: %s", reason)
	}
	return sn
}

func getProc(t testing.TB, sn *Snapshot, pid int) Proc {
	t.Helper()
	p, ok := sn.Get(pid)
	if !ok {
		t.Fatalf("process %d is not in the snapshot", pid)
	}
	return p
}

// stat reads a process that must be there.
func stat(t testing.TB, pid int) Proc {
	t.Helper()
	p, err := New("").Stat(pid)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// children lists the pids of a process's children, in order.
func children(sn *Snapshot, pid int) (pids []int) {
	for p := range sn.All() {
		if parent, ok := sn.parent(p); ok && parent.PID == pid {
			pids = append(pids, p.PID)
		}
	}
	return pids
}
