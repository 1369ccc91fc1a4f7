//go:build linux

package procscan

import (
	"context"
	"errors"
	"io/fs"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// shell is a program of which a copy under any name waits for its standard input.
func shell(t testing.TB) string {
	t.Helper()
	path, err := exec.LookPath("sh")
	if err == nil {
		path, err = filepath.EvalSymlinks(path)
	}
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// copyFile makes a copy of a program, so that it can be deleted.
func copyFile(t testing.TB, from, to string) {
	t.Helper()
	b, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(to, b, 0o755); err != nil {
		t.Fatal(err)
	}
}

func TestThisProcess(t *testing.T) {
	s := New("")
	pid, err := s.SelfPID()
	if err != nil || pid != os.Getpid() {
		t.Fatalf("SelfPID: %d, %v", pid, err)
	}
	sn := snapshot(t)
	p := getProc(t, sn, pid)
	if !slices.Equal(p.Args, os.Args) || p.PPID != os.Getppid() || p.Kernel || p.Gone() || p.ArgsCut || p.Threads < 1 {
		t.Errorf("%+v", p)
	}
	if again := stat(t, pid); again.Start != p.Start || again.Comm != p.Comm || again.Args != nil {
		t.Errorf("Stat %+v, snapshot %+v", again, p)
	}
	env, err := sn.Environ(pid)
	if err != nil {
		t.Error(err)
	}
	if v, ok := env.Lookup("PATH"); !ok || v != os.Getenv("PATH") {
		t.Errorf("PATH is %q, %v", v, ok)
	}
	if exe, err := sn.Exe(pid); err != nil || exe != must(os.Executable()) {
		t.Errorf("Exe: %q, %v", exe, err)
	}
	if cwd, err := sn.Cwd(pid); err != nil || cwd != must(os.Getwd()) {
		t.Errorf("Cwd: %q, %v", cwd, err)
	}
	if uid, err := sn.UID(pid); err != nil || int(uid) != os.Geteuid() {
		t.Errorf("UID: %d, %v", uid, err)
	}
	name := filepath.Join(t.TempDir(), "open")
	f := must(os.Create(name))
	defer f.Close()
	if files, err := sn.OpenFiles(pid); err != nil || !slices.Contains(files, name) {
		t.Errorf("OpenFiles: %q, %v", files, err)
	}
	var st unix.Stat_t
	if err := unix.Stat("/proc/self/ns/pid", &st); err != nil {
		t.Fatal(err)
	}
	for _, pid := range []int{0, pid} {
		if ns, err := s.PIDNamespace(pid); err != nil || ns != st.Ino {
			t.Errorf("PIDNamespace(%d): %d, %v, want %d", pid, ns, err, st.Ino)
		}
		if ns, err := s.TimeNamespace(pid); !errors.Is(err, errors.ErrUnsupported) && (err != nil || ns == 0) {
			t.Errorf("TimeNamespace(%d): %d, %v", pid, ns, err)
		}
	}
	if id, err := s.BootID(); err != nil || len(id) != 36 {
		t.Errorf("BootID: %q, %v", id, err)
	}
	if sn.Covers(p.Start+1000000) || !sn.Covers(0) {
		t.Error("Covers")
	}
}

// The start time is the boot time plus the ticks, and never moves.
func TestStartTimeIsRightForOldProcesses(t *testing.T) {
	s := New("")
	if hz := s.TicksPerSecond(); hz != 100 {
		t.Errorf("TicksPerSecond: %d", hz)
	}
	up, err := s.BootSeconds()
	if err != nil {
		t.Fatal(err)
	}
	boot, err := s.BootTime()
	if err != nil || boot.Location() != time.UTC || boot.Nanosecond() != 0 {
		t.Fatalf("BootTime: %v, %v", boot, err)
	}
	// btime is rounded, and the wall clock may be set while the test runs.
	if d := time.Since(boot) - time.Duration(up)*time.Second; d < -5*time.Second || d > 5*time.Second {
		t.Errorf("boot at %v, up %d seconds: %v off", boot, up, d)
	}
	cmd := blocked(t, shell(t), "sh")
	start, err := s.StartTime(stat(t, cmd.Process.Pid).Start)
	if d := time.Since(start); err != nil || d < -2*time.Second || d > time.Minute {
		t.Errorf("a new process was started %v ago, %v", d, err)
	}
	first, err := s.StartTime(stat(t, 1).Start)
	if d := first.Sub(boot); err != nil || d < 0 || d > start.Sub(boot) {
		t.Errorf("the first process was started at %v, %v", first, err)
	}
	if again := must(s.StartTime(stat(t, 1).Start)); again != first {
		t.Errorf("start time moved from %v to %v", first, again)
	}
}

// The exact start is the end of the tick: after the fork began, by a tick at most after it
// was over.
func TestStartedIsExact(t *testing.T) {
	s := New("")
	before := time.Now()
	cmd := blocked(t, shell(t), "sh")
	after := time.Now()
	at, err := s.Started(stat(t, cmd.Process.Pid).Start)
	const clock = 5 * time.Millisecond // the wall clock may be slewed while the test runs
	if err != nil || at.Before(before.Add(-clock)) || at.After(after.Add(10*time.Millisecond+clock)) {
		t.Errorf("started at %v, between %v and %v; %v", at, before, after, err)
	}
	if at, err := s.Started(math.MaxUint64); err == nil {
		t.Errorf("out of range: %v", at)
	}
	files := tree(t, map[string]string{"stat": "btime 1700000000\n"})
	if at, err := files.Started(150); err != nil || !at.Equal(must(files.StartTime(150))) {
		t.Errorf("of a tree of files: %v, %v", at, err)
	}
}

func TestNamesAndArgumentsOfAnyBytes(t *testing.T) {
	many := []string{"sh"}
	for i := range 300 {
		many = append(many, "-o", "x"+strconv.Itoa(i))
	}
	for name, argv := range map[string][]string{
		"a b":              {"an agent", "two words", ""},
		") S 1 2 3":        {")", "(", ") S 1"},
		"a\nb":             {"line\nbreak", "\t"},
		"\xff\xfe) ":       {"\xff\xfe", "\x80"},
		"(((":              {""},
		"tmux: server":     {"tmux: server"},
		"fifteen-letters":  many,
		"much-longer-name": {"x", "", "", ""},
	} {
		path := filepath.Join(t.TempDir(), name)
		copyFile(t, shell(t), path)
		// A shell with a first argument would take it for a script: -s makes it read its
		// input all the same.
		args := append([]string{argv[0], "-s"}, argv[1:]...)
		if argv[0] == "sh" {
			args = append([]string{"sh", "-s", "--"}, argv[1:]...)
		}
		cmd := blocked(t, path, args...)
		p := getProc(t, snapshot(t), cmd.Process.Pid)
		if comm := name[:min(len(name), 15)]; p.Comm != comm || stat(t, p.PID).Comm != comm {
			t.Errorf("%q: comm %q", name, p.Comm)
		}
		if !slices.Equal(p.Args, args) || p.ArgsCut {
			t.Errorf("%q: arguments %q, want %q", name, p.Args, args)
		}
		if exe, err := snapshot(t).Exe(p.PID); exe != path || err != nil {
			t.Errorf("%q: executable %q, %v", name, exe, err)
		}
	}
}

// The kernel gives a program that is started with no arguments at all an empty one.
func TestEmptyArgumentVector(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	pid, err := syscall.ForkExec(shell(t), []string{}, &syscall.ProcAttr{Files: []uintptr{r.Fd()}})
	r.Close()
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		syscall.Kill(pid, syscall.SIGKILL)
		syscall.Wait4(pid, nil, 0, nil)
	}()
	p := getProc(t, snapshot(t), pid)
	if p.Comm != filepath.Base(shell(t)) || len(p.Args) > 1 || len(p.Args) == 1 && p.Args[0] != "" {
		t.Errorf("%+v", p)
	}
}

func TestLongCommandLineIsCut(t *testing.T) {
	long := strings.Repeat("x", maxCmdline)
	cmd := blocked(t, shell(t), "sh", "-s", long, "never seen")
	sn := snapshot(t) // which it must not make incomplete
	p := getProc(t, sn, cmd.Process.Pid)
	kept := strings.Join(p.Args, "\x00")
	if !p.ArgsCut || len(kept) != maxCmdline || !strings.HasPrefix(kept, "sh\x00-s\x00xxx") || p.Comm != filepath.Base(shell(t)) {
		t.Errorf("cut %v, %d bytes, comm %q", p.ArgsCut, len(kept), p.Comm)
	}
}

func TestRewrittenArguments(t *testing.T) {
	cmd := play(t, "title")
	p := getProc(t, snapshot(t), cmd.Process.Pid)
	if len(p.Args) < 2 || p.Args[0] != "claude" || strings.Join(p.Args[1:], "") != "" {
		t.Errorf("arguments %q", p.Args)
	}
	if exe, err := snapshot(t).Exe(p.PID); exe != must(os.Executable()) || err != nil {
		t.Errorf("executable %q, %v", exe, err)
	}
}

func TestScriptShowsItsInterpreter(t *testing.T) {
	script := filepath.Join(t.TempDir(), "an agent")
	if err := os.WriteFile(script, []byte("#!"+shell(t)+" -u\nread x\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := blocked(t, script, "renamed", "--flag")
	sn := snapshot(t)
	p := getProc(t, sn, cmd.Process.Pid)
	if want := []string{shell(t), "-u", script, "--flag"}; !slices.Equal(p.Args, want) || p.Comm != "an agent" {
		t.Errorf("comm %q, arguments %q", p.Comm, p.Args)
	}
	if exe, err := sn.Exe(p.PID); exe != shell(t) || err != nil {
		t.Errorf("executable %q, %v", exe, err)
	}
}

func TestDeletedExecutableAndFolder(t *testing.T) {
	for name, c := range map[string]struct {
		file            string
		delete, deleted bool
	}{
		"deleted":              {"agent", true, true},
		"with the suffix":      {"agent (deleted)", false, false},
		"deleted, with suffix": {"agent (deleted)", true, true},
	} {
		dir := t.TempDir()
		path := filepath.Join(dir, c.file)
		copyFile(t, shell(t), path)
		folder := filepath.Join(dir, "folder of "+c.file)
		if err := os.Mkdir(folder, 0o755); err != nil {
			t.Fatal(err)
		}
		cmd := &exec.Cmd{Path: path, Args: []string{"agent"}, Dir: folder}
		stdin := must(cmd.StdinPipe())
		start(t, cmd)
		if c.delete {
			os.Remove(path)
			os.Remove(folder)
		}
		sn := snapshot(t)
		if got, err := sn.Exe(cmd.Process.Pid); got != path || errors.Is(err, ErrDeleted) != c.deleted || !c.deleted && err != nil {
			t.Errorf("%s: Exe: %q, %v", name, got, err)
		}
		if got, err := sn.Cwd(cmd.Process.Pid); got != folder || errors.Is(err, ErrDeleted) != c.deleted || !c.deleted && err != nil {
			t.Errorf("%s: Cwd: %q, %v", name, got, err)
		}
		if p := getProc(t, sn, cmd.Process.Pid); p.Gone() || !slices.Equal(p.Args, []string{"agent"}) {
			t.Errorf("%s: %+v", name, p)
		}
		stdin.Close()
	}
}

func TestZombieAndStoppedProcess(t *testing.T) {
	s := New("")
	cmd := blocked(t, shell(t), "sh")
	pid := cmd.Process.Pid
	running := snapshot(t)
	state := func(want byte) func() bool {
		return func() bool { return stat(t, pid).State == want }
	}
	cmd.Process.Signal(syscall.SIGSTOP)
	eventually(t, "it is stopped", state('T'))
	p := getProc(t, snapshot(t), pid)
	if p.State != 'T' || p.Gone() || !slices.Equal(p.Args, []string{"sh"}) {
		t.Errorf("stopped: %+v", p)
	}
	if _, err := snapshot(t).Environ(pid); err != nil {
		t.Errorf("stopped: %v", err)
	}
	cmd.Process.Kill()
	eventually(t, "it is a zombie", state('Z'))
	sn := snapshot(t)
	z := getProc(t, sn, pid)
	if z.State != 'Z' || !z.Gone() || z.Args != nil || z.Start != p.Start {
		t.Errorf("zombie: %+v", z)
	}
	withEnv := must(s.SnapshotEnviron(context.Background()))
	if whole, reason := withEnv.Complete(); !whole {
		t.Errorf("zombie: %s", reason)
	}
	for _, sn := range []*Snapshot{running, sn, withEnv} {
		if env, err := sn.Environ(pid); !errors.Is(err, ErrNoEnviron) || errors.Is(err, ErrGone) {
			t.Errorf("zombie: Environ: %v, %v", env, err)
		}
	}
	if _, err := sn.Cwd(pid); !errors.Is(err, ErrGone) {
		t.Errorf("zombie: Cwd: %v", err)
	}
	if _, err := sn.Exe(pid); !errors.Is(err, ErrGone) {
		t.Errorf("zombie: Exe: %v", err)
	}
	if files, err := sn.OpenFiles(pid); err == nil {
		t.Errorf("zombie: OpenFiles: %q", files)
	}
	if uid, err := sn.UID(pid); err != nil || int(uid) != os.Geteuid() {
		t.Errorf("zombie: UID: %d, %v", uid, err)
	}
	if _, err := s.TimeNamespace(pid); !errors.Is(err, ErrGone) && !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("zombie: TimeNamespace: %v", err)
	}
	cmd.Wait()
	fresh := must(s.Snapshot(context.Background()))
	if p, ok := fresh.Get(pid); ok {
		t.Errorf("collected: %+v", p)
	}
	if _, err := s.Stat(pid); !errors.Is(err, ErrGone) {
		t.Errorf("collected: Stat: %v", err)
	}
	for name, err := range map[string]error{
		"Environ": second(snapshotOf(p, s).Environ(pid)), "Cwd": second(snapshotOf(p, s).Cwd(pid)),
		"Exe": second(snapshotOf(p, s).Exe(pid)), "Cgroup": second(snapshotOf(p, s).Cgroup(pid)),
		"UID": second(snapshotOf(p, s).UID(pid)), "OpenFiles": second(snapshotOf(p, s).OpenFiles(pid)),
		"PIDNamespace": second(s.PIDNamespace(pid)), "TimeNamespace": second(s.TimeNamespace(pid)),
	} {
		if !errors.Is(err, ErrGone) || errors.Is(err, fs.ErrNotExist) {
			t.Errorf("collected: %s: %v", name, err)
		}
	}
}

func second[T any](_ T, err error) error { return err }

// snapshotOf is a snapshot that showed one process and has read no extras.
func snapshotOf(p Proc, s *System) *Snapshot {
	return &Snapshot{sys: s, procs: []Proc{p}, extras: make([]*extras, 1), whole: true}
}

// What was read of a process stays, and is not mixed with what its successor shows.
func TestExtrasAreReadOnce(t *testing.T) {
	cmd := blocked(t, shell(t), "sh")
	pid := cmd.Process.Pid
	sn := snapshot(t)
	before, err := sn.Environ(pid)
	if err != nil {
		t.Fatal(err)
	}
	cmd.Process.Kill()
	cmd.Wait()
	if after, err := sn.Environ(pid); err != nil || after != before {
		t.Errorf("Environ after the end: %v", err)
	}
	if _, err := sn.Exe(pid); !errors.Is(err, ErrGone) {
		t.Errorf("Exe after the end: %v", err)
	}
}

// A process whose first thread has ended shows state Z, but it runs.
func TestProcessWithoutItsFirstThreadIsNotGone(t *testing.T) {
	cmd := play(t, "leaderless")
	pid := cmd.Process.Pid
	eventually(t, "the first thread has ended", func() bool { return stat(t, pid).State == 'Z' })
	p := getProc(t, snapshot(t), pid)
	if p.Gone() || p.Threads < 2 {
		t.Fatalf("%+v", p)
	}
	s := New("")
	if !slices.Equal(p.Args, []string{os.Args[0]}) {
		t.Errorf("arguments %q", p.Args)
	}
	for kind, sn := range map[string]*Snapshot{"on demand": snapshot(t), "in the pass": must(s.SnapshotEnviron(t.Context()))} {
		if env, err := sn.Environ(pid); err != nil {
			t.Errorf("%s: Environ: %v", kind, err)
		} else if role, _ := env.Lookup(roleVar); role != "leaderless" {
			t.Errorf("%s: Environ: role %q", kind, role)
		}
		if cwd, err := sn.Cwd(pid); cwd != must(os.Getwd()) || err != nil {
			t.Errorf("%s: Cwd: %q, %v", kind, cwd, err)
		}
		if exe, err := sn.Exe(pid); exe != must(os.Executable()) || err != nil {
			t.Errorf("%s: Exe: %q, %v", kind, exe, err)
		}
		if files, err := sn.OpenFiles(pid); len(files) < 3 || err != nil {
			t.Errorf("%s: OpenFiles: %q, %v", kind, files, err)
		}
	}
	if err := s.Signal(pid, p.Start, 0); err != nil {
		t.Errorf("Signal: %v", err)
	}
	e, err := s.OpenExit(pid, p.Start)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	if err := e.Wait(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Wait: %v", err)
	}
	cmd.Process.Kill()
	if err := e.Wait(t.Context()); err != nil {
		t.Errorf("Wait: %v", err)
	}
}

// A process that starts one program after the other has, for moments, neither arguments nor
// an environment. It never reads as one that has none.
func TestProcessThatStartsAnotherProgram(t *testing.T) {
	script := filepath.Join(t.TempDir(), "again")
	if err := os.WriteFile(script, []byte("#!"+shell(t)+"\nexec \"$0\" again\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(script)
	cmd.Env = []string{"MARK=here"}
	start(t, cmd)
	pid := cmd.Process.Pid
	begun := stat(t, pid).Start
	retried := 0
	for i := range 400 {
		take := New("").Snapshot
		if i%2 == 1 {
			take = New("").SnapshotEnviron
		}
		sn := must(take(t.Context()))
		p := getProc(t, sn, pid)
		if p.Start != begun || p.Gone() {
			t.Fatalf("%+v", p)
		}
		if whole, reason := sn.Complete(); len(p.Args) == 0 && whole {
			t.Errorf("no arguments: %+v", p)
		} else if !whole {
			t.Log(reason) // the machine is too busy
		}
		env, err := sn.Environ(pid)
		if errors.Is(err, ErrNoEnviron) || errors.Is(err, ErrGone) {
			t.Errorf("Environ: %v", err)
		} else if err != nil {
			t.Log(err)
			retried++
		} else if v, _ := env.Lookup("MARK"); v != "here" {
			t.Errorf("Environ: %q", env.block)
		}
	}
	if retried > 100 {
		t.Errorf("%d environments of 400 could not be read", retried)
	}
}

func TestKernelThreads(t *testing.T) {
	sn := must(New("").SnapshotEnviron(context.Background()))
	for p := range sn.All() {
		if !p.Kernel {
			continue
		}
		if p.Args != nil || p.Gone() {
			t.Errorf("%+v", p)
		}
		if _, err := sn.Environ(p.PID); !errors.Is(err, ErrNoEnviron) && !errors.Is(err, fs.ErrPermission) {
			t.Errorf("Environ: %v", err)
		}
		if exe, err := sn.Exe(p.PID); err == nil || errors.Is(err, ErrGone) || errors.Is(err, fs.ErrNotExist) {
			t.Errorf("Exe: %q, %v", exe, err)
		}
		return
	}
	t.Log("this machine shows no kernel thread")
}

func TestEnvironment(t *testing.T) {
	huge := []string{}
	for i := range 15 { // an argument may have 128 KiB, all together 2 MiB
		huge = append(huge, "X"+strconv.Itoa(i)+"="+strings.Repeat("x", 100<<10))
	}
	for name, c := range map[string]struct {
		env  []string
		want map[string]string
	}{
		"ordinary":            {[]string{"A=1", "B="}, map[string]string{"A": "1", "B": ""}},
		"any bytes":           {[]string{"A=\xff\n", "\xfe= "}, map[string]string{"A": "\xff\n", "\xfe": " "}},
		"twice":               {[]string{"A=1", "A=2"}, map[string]string{"A": "1"}},
		"a megabyte and more": {append(huge, "LAST=here"), map[string]string{"LAST": "here"}},
		"empty":               {[]string{}, nil},
	} {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		// os/exec drops repeated names.
		pid, err := syscall.ForkExec(shell(t), []string{"sh"}, &syscall.ProcAttr{Env: c.env, Files: []uintptr{r.Fd()}})
		r.Close()
		if err != nil {
			t.Fatal(err)
		}
		for kind, sn := range map[string]*Snapshot{
			"on demand": snapshot(t), "in the pass": must(New("").SnapshotEnviron(context.Background())),
		} {
			env, err := sn.Environ(pid)
			if err != nil {
				t.Errorf("%s, %s: %v", name, kind, err)
			}
			n := 0
			for range env.All() {
				n++
			}
			if n != len(c.env) {
				t.Errorf("%s, %s: %d variables, want %d", name, kind, n, len(c.env))
			}
			for k, want := range c.want {
				if got, ok := env.Lookup(k); !ok || got != want {
					t.Errorf("%s, %s: %q is %q, %v", name, kind, k, got, ok)
				}
			}
		}
		w.Close()
		syscall.Kill(pid, syscall.SIGKILL)
		syscall.Wait4(pid, nil, 0, nil)
	}
}

func TestOpenFilesAreBounded(t *testing.T) {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil || limit.Max < maxFiles+100 {
		t.Skipf("a process may open only %d files", limit.Max)
	}
	cmd := play(t, "files")
	files, err := snapshot(t).OpenFiles(cmd.Process.Pid)
	if !errors.Is(err, ErrTooLarge) || len(files) != maxFiles {
		t.Errorf("%d files, %v", len(files), err)
	}
}

func TestInvalidPIDs(t *testing.T) {
	s := New("")
	for _, pid := range []int{0, -1, math.MinInt32} {
		if _, err := s.Stat(pid); err == nil || errors.Is(err, ErrGone) {
			t.Errorf("Stat(%d): %v", pid, err)
		}
		if err := s.Signal(pid, 1, 0); err == nil || errors.Is(err, ErrGone) {
			t.Errorf("Signal(%d): %v", pid, err)
		}
	}
	if _, err := s.PIDNamespace(-1); err == nil {
		t.Error("PIDNamespace(-1): no error")
	}
	if _, err := s.Stat(1<<31 - 1); !errors.Is(err, ErrGone) {
		t.Errorf("Stat of a pid that no process can have: %v", err)
	}
}

// A chain shows what a snapshot shows of one process and its ancestors, and claims nothing
// about any other.
func TestChainIsOneProcessAndItsAncestors(t *testing.T) {
	s := New("")
	cmd := blocked(t, shell(t), "sh")
	pid := cmd.Process.Pid
	chain, err := s.Chain(pid)
	if err != nil {
		t.Fatal(err)
	}
	if whole, reason := chain.Complete(); whole || reason == "" {
		t.Errorf("complete %v, %q", whole, reason)
	}
	sn := snapshot(t)
	want, got := []Proc{getProc(t, sn, pid)}, []Proc{getProc(t, chain, pid)}
	want, got = slices.AppendSeq(want, sn.Ancestors(pid)), slices.AppendSeq(got, chain.Ancestors(pid))
	if len(got) != len(want) || len(got) != chain.Len() || len(got) < 2 || got[1].PID != os.Getpid() {
		t.Fatalf("%d processes %+v, want %d", len(got), got, len(want))
	}
	for i := range got {
		if got[i].PID != want[i].PID || got[i].Start != want[i].Start || !slices.Equal(got[i].Args, want[i].Args) {
			t.Errorf("%+v, want %+v", got[i], want[i])
		}
	}
	if env, err := chain.Environ(pid); err != nil {
		t.Error(err)
	} else if v, _ := env.Lookup("PATH"); v != os.Getenv("PATH") {
		t.Errorf("PATH is %q", v)
	}
	cmd.Process.Kill()
	cmd.Wait()
	if chain, err := s.Chain(pid); !errors.Is(err, ErrGone) || chain.Len() != 0 {
		t.Errorf("gone: %v", err)
	}
}
