//go:build linux

package ledger

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A node is a process of a test's tree: this test binary under another command line. It
// starts its children, keeps its files open, and ends when the test does.
type node struct {
	Name     string   // by which the test asks for it
	Args     []string // its command line
	Env      []string // all of its environment
	Dir      string
	Open     []string // files that it keeps open
	Exec     []string // instead: a real program, run in its place
	Leave    bool     // do not collect children that ended
	Children []node
}

const (
	nodeVar   = "LEDGER_TEST_NODE"   // the node as JSON
	orphanVar = "LEDGER_TEST_ORPHAN" // start the node, and end
	readerVar = "LEDGER_TEST_READER" // what to do in a namespace; see inNamespace

	noRaceSleep = "GORACE=atexit_sleep_ms=0" // the race detector makes every process end a second late
)

func init() {
	if text := os.Getenv(readerVar); text != "" {
		os.Unsetenv(readerVar)
		name, arg, _ := strings.Cut(text, " ")
		if err := namespaced[name](arg); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	text := os.Getenv(nodeVar)
	if text == "" {
		return
	}
	var n node
	if err := json.Unmarshal([]byte(text), &n); err != nil {
		panic(err)
	}
	if os.Getenv(orphanVar) != "" {
		startNode(n)
		os.Exit(0)
	}
	report := os.NewFile(3, "report")
	if n.Exec != nil {
		fmt.Fprintf(report, "%s %d\n", n.Name, os.Getpid())
		path, err := exec.LookPath(n.Exec[0])
		if err == nil {
			report.Close()
			err = syscall.Exec(path, n.Args, n.Env)
		}
		panic(err)
	}
	for _, name := range n.Open {
		if _, err := os.OpenFile(name, os.O_RDWR, 0); err != nil {
			panic(err)
		}
	}
	for _, child := range n.Children {
		cmd := startNode(child)
		if !n.Leave {
			go cmd.Wait()
		}
	}
	fmt.Fprintf(report, "%s %d\n", n.Name, os.Getpid())
	report.Close()
	io.Copy(io.Discard, os.Stdin) // until the test closes it, or is gone
	os.Exit(0)
}

// startNode starts a node below this process. The variable that carries it stays in its
// environment, behind the node's own.
func startNode(n node) *exec.Cmd {
	text, err := json.Marshal(n)
	if err != nil {
		panic(err)
	}
	cmd := &exec.Cmd{
		Path: "/proc/self/exe", Args: n.Args, Dir: n.Dir,
		Env:   append(slices.Clone(n.Env), nodeVar+"="+string(text), noRaceSleep),
		Stdin: os.Stdin, Stderr: os.Stderr, ExtraFiles: []*os.File{os.NewFile(3, "report")},
	}
	if err := cmd.Start(); err != nil {
		panic(err)
	}
	return cmd
}

// growTree starts a tree whose root has no parent but the system's first process, so that
// what the test itself runs under tells nothing, and in a folder of its own: a kill rescues
// what is uncommitted where a session works. It returns the pids by the nodes' names.
// At the end of the test every process of the tree has ended.
func growTree(t *testing.T, root node) map[string]int {
	t.Helper()
	if root.Dir == "" {
		root.Dir = t.TempDir()
	}
	pids, stop := startTree(root, true)
	t.Cleanup(func() {
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
	if pids == nil {
		t.Fatal("the tree did not come up")
	}
	return pids
}

// startTree starts a tree; one that is no orphan is a child of the test itself.
func startTree(root node, orphan bool) (pids map[string]int, stop func() error) {
	fail := func(err error) (map[string]int, func() error) { return nil, func() error { return err } }
	in, hold, err := os.Pipe()
	if err != nil {
		return fail(err)
	}
	report, out, err := os.Pipe()
	if err != nil {
		return fail(err)
	}
	defer report.Close()
	text, err := json.Marshal(root)
	if err != nil {
		return fail(err)
	}
	cmd := &exec.Cmd{
		Path: "/proc/self/exe", Args: []string{"orphan"}, Env: []string{nodeVar + "=" + string(text), noRaceSleep, orphanVar + "=1"},
		Stdin: in, Stderr: os.Stderr, ExtraFiles: []*os.File{out},
	}
	if orphan {
		err = cmd.Run()
	} else {
		cmd.Args, cmd.Env, cmd.Dir = root.Args, append(slices.Clone(root.Env), cmd.Env[:2]...), root.Dir
		if err = cmd.Start(); err == nil {
			go cmd.Wait()
		}
	}
	in.Close()
	out.Close()
	if err != nil {
		return fail(err)
	}
	report.SetReadDeadline(time.Now().Add(time.Minute))
	pids = map[string]int{}
	lines := bufio.NewScanner(report)
	for lines.Scan() { // until every node has closed it
		name, pid, _ := cutLast(lines.Text(), " ")
		pids[name], _ = strconv.Atoi(pid)
	}
	starts := map[int]uint64{}
	procs := newTable("")
	for _, pid := range pids {
		if p, err := procs.sys.Stat(pid); err == nil {
			starts[pid] = p.Start
		}
	}
	stop = func() error {
		hold.Close()
		for pid, start := range starts {
			p := ProcessID{PID: pid, StartTicks: start}
			if here, err := procs.here(); err == nil {
				here.PID, here.StartTicks = pid, start
				p = here
			}
			if procs.verdict(p) == Running && isExecNode(root, pids, pid) {
				procs.sys.Signal(pid, start, syscall.SIGKILL) // a real program does not watch the pipe
			}
			if err := pollUntil(func() bool { return procs.verdict(p) == Gone }); err != nil {
				procs.sys.Signal(pid, start, syscall.SIGKILL)
				return fmt.Errorf("process %d was left behind", pid)
			}
		}
		return nil
	}
	return pids, stop
}

func isExecNode(n node, pids map[string]int, pid int) bool {
	if pids[n.Name] == pid && n.Exec != nil {
		return true
	}
	for _, c := range n.Children {
		if isExecNode(c, pids, pid) {
			return true
		}
	}
	return false
}

// pollUntil waits for what no descriptor tells of.
func pollUntil(ok func() bool) error {
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if ok() {
			return nil
		}
	}
	return fmt.Errorf("not in time")
}

// treeEnv is an environment without anything of the test's own.
func treeEnv(home string, more ...string) []string {
	return append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + home,
		"GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1"}, more...)
}

// treeStore opens a ledger of the test's own, and looks at its invariants at the end.
func treeStore(t *testing.T) (*Store, string) {
	t.Helper()
	home := t.TempDir()
	s, err := Open(filepath.Join(t.TempDir(), "ledger"), &Options{Home: home})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		found, err := s.Check(context.Background())
		if err != nil {
			t.Error(err)
		}
		for _, f := range found {
			if f.Broken {
				t.Errorf("broken: %+v", f)
			}
		}
		s.Close()
	})
	return s, home
}

// treePass reads the process table, and looks for sessions also where the machine that
// runs the tests would not.
func treePass(t *testing.T, s *Store) *pass {
	t.Helper()
	p, err := s.newPass(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	p.noDiscovery = ""
	return p
}

// treePlan plans one pass, and gives the decisions on the processes of the test's tree.
func treePlan(t *testing.T, s *Store, pids map[string]int) (map[string]match, *enroller) {
	t.Helper()
	p := treePass(t, s)
	var open []Entry
	for e, err := range s.OpenEntries(context.Background()) {
		if err == nil {
			open = append(open, e)
		}
	}
	plan, err := s.plan(context.Background(), p, open)
	if err != nil {
		t.Fatal(err)
	}
	en := s.enroller(p, plan, EnrolOptions{})
	ours := map[string]match{}
	for name, pid := range pids {
		if i, ok := en.at[pid]; ok {
			ours[name] = plan[i]
		}
	}
	return ours, en
}

// namespaced are what a test does in namespaces of its own, by name.
var namespaced = map[string]func(arg string) error{}

// inNamespace runs one of namespaced in a process with namespaces of its own. A test that
// cannot is skipped, except in CI.
func inNamespace(t *testing.T, flags uintptr, name, arg string) {
	t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), readerVar+"="+name+" "+arg, noRaceSleep)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: flags, Pdeathsig: syscall.SIGKILL}
	if flags&syscall.CLONE_NEWUSER != 0 {
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}
	}
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Start()
	need(t, err == nil, fmt.Sprint("namespaces: ", err))
	timer := time.AfterFunc(time.Minute, func() { cmd.Process.Kill() })
	defer timer.Stop()
	if err := cmd.Wait(); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
}
