//go:build linux

package procscan

import (
	"context"
	"errors"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// tree makes a proc file system of plain files. A value that begins with "->" is a symlink.
func tree(t *testing.T, files map[string]string) *System {
	t.Helper()
	root := t.TempDir()
	files["sys/kernel/random/boot_id"] = "11111111-2222-3333-4444-555555555555\n"
	for name, content := range files {
		name = filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		var err error
		if target, ok := strings.CutPrefix(content, "->"); ok {
			err = os.Symlink(target, name)
		} else {
			err = os.WriteFile(name, []byte(content), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return New(root)
}

// line is a stat file as old kernels write it, without addresses.
func line(pid, ppid int, start uint64) string {
	text := statText(Proc{PID: pid, PPID: ppid, Comm: "agent", State: 'S', Threads: 1, Start: start}, 0)
	return strings.Join(strings.Fields(text)[:44], " ") + "\n"
}

func TestTreeOfFiles(t *testing.T) {
	s := tree(t, map[string]string{
		"self":          "->20",
		"stat":          "cpu 1 2\nintr " + strings.Repeat("7 ", 5000) + "\nbtime 1700000000\n",
		"uptime":        "1234.99 77.00\n",
		"9/stat":        line(9, 1, 50),
		"9/cmdline":     "sh\x00-c\x00x y\x00",
		"20/stat":       line(20, 9, 123456),
		"20/cmdline":    "claude\x00",
		"20/environ":    "AGENT_LEDGER_ID=x\x00",
		"20/cgroup":     "0::/user.slice\n",
		"20/status":     "Name:\tagent\nUid:\t1\t2\t3\t4\n",
		"20/cwd":        "->/home/x (deleted)",
		"20/exe":        "->/bin/sh",
		"20/fd/0":       "->/dev/null",
		"20/ns/pid":     "->pid:[4026531836]",
		"20/ns/time":    "->time:[4026531834]",
		"20/uid_map":    "         0          0 4294967295\n",
		"9/uid_map":     "0 1000 1\n",
		"1/stat":        line(1, 0, 1),
		"1/cmdline":     "init\x00",
		"irrelevant/x":  "",
		"1x/stat":       "",
		"4294967297/ns": "",
	})
	if id, err := s.BootID(); err != nil || id != "11111111-2222-3333-4444-555555555555" {
		t.Errorf("BootID: %q, %v", id, err)
	}
	if up, err := s.BootSeconds(); err != nil || up != 1234 {
		t.Errorf("BootSeconds: %d, %v", up, err)
	}
	if pid, err := s.SelfPID(); err != nil || pid != 20 {
		t.Errorf("SelfPID: %d, %v", pid, err)
	}
	for _, pid := range []int{0, 20} {
		if ns, err := s.PIDNamespace(pid); err != nil || ns != 4026531836 {
			t.Errorf("PIDNamespace(%d): %d, %v", pid, ns, err)
		}
		if ns, err := s.TimeNamespace(pid); err != nil || ns != 4026531834 {
			t.Errorf("TimeNamespace(%d): %d, %v", pid, ns, err)
		}
	}
	if host, err := s.HostUserNamespace(); err != nil || !host {
		t.Errorf("HostUserNamespace: %v, %v", host, err)
	}
	start, err := s.StartTime(123456)
	if want := time.Unix(1700000000, 0).Add(1234560 * time.Millisecond); err != nil || !start.Equal(want) || start.Location() != time.UTC {
		t.Errorf("StartTime: %v, %v", start, err)
	}
	if _, err := s.StartTime(math.MaxUint64); err == nil {
		t.Error("StartTime: accepted ticks that are out of range")
	}

	sn, err := s.Snapshot(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if whole, reason := sn.Complete(); !whole {
		t.Error(reason)
	}
	var pids []int
	for p := range sn.All() {
		pids = append(pids, p.PID)
	}
	if !slices.Equal(pids, []int{1, 9, 20}) || sn.Len() != 3 {
		t.Errorf("pids %v, Len %d", pids, sn.Len())
	}
	if p := getProc(t, sn, 9); !slices.Equal(p.Args, []string{"sh", "-c", "x y"}) || p.Start != 50 || p.PPID != 1 {
		t.Errorf("%+v", p)
	}
	if env, err := sn.Environ(20); err != nil {
		t.Error(err)
	} else if v, ok := env.Lookup("AGENT_LEDGER_ID"); v != "x" || !ok {
		t.Errorf("Environ: %q, %v", v, ok)
	}
	if v, err := sn.Cgroup(20); v != "/user.slice" || err != nil {
		t.Errorf("Cgroup: %q, %v", v, err)
	}
	if v, err := sn.UID(20); v != 2 || err != nil {
		t.Errorf("UID: %d, %v", v, err)
	}
	if v, err := sn.Cwd(20); v != "/home/x" || !errors.Is(err, ErrDeleted) {
		t.Errorf("Cwd: %q, %v", v, err)
	}
	if v, err := sn.Exe(20); v != "/bin/sh" || err != nil {
		t.Errorf("Exe: %q, %v", v, err)
	}
	if v, err := sn.OpenFiles(20); !slices.Equal(v, []string{"/dev/null"}) || err != nil {
		t.Errorf("OpenFiles: %q, %v", v, err)
	}
	// The kernel says in 100ths of a second when a process was started, and one of less
	// than a second may have been listed too early.
	for ticks, want := range map[uint64]bool{0: true, 123398: true, 123399: false, 123499: false, math.MaxUint64: false} {
		if got := sn.Covers(ticks); got != want {
			t.Errorf("Covers(%d) = %v", ticks, got)
		}
	}
	// What the tree lacks is an error, not an empty answer and not a death.
	for name, read := range map[string]func() error{
		"environ": func() error { _, err := sn.Environ(9); return err },
		"cgroup":  func() error { _, err := sn.Cgroup(9); return err },
		"cwd":     func() error { _, err := sn.Cwd(9); return err },
		"exe":     func() error { _, err := sn.Exe(9); return err },
		"status":  func() error { _, err := sn.UID(9); return err },
		"fd":      func() error { _, err := sn.OpenFiles(9); return err },
		"ns":      func() error { _, err := s.PIDNamespace(9); return err },
	} {
		if err := read(); err == nil || errors.Is(err, ErrGone) || errors.Is(err, fs.ErrNotExist) || errors.Is(err, ErrNoEnviron) {
			t.Errorf("missing %s: %v", name, err)
		}
	}
	if _, err := s.Stat(21); !errors.Is(err, ErrGone) {
		t.Errorf("Stat of a missing process: %v", err)
	}
	if _, err := sn.Environ(21); err == nil || errors.Is(err, ErrGone) {
		t.Errorf("Environ of a process that is not in the snapshot: %v", err)
	}
}

func TestTreeIsNeverSignalled(t *testing.T) {
	pid := os.Getpid()
	s := tree(t, map[string]string{strconv.Itoa(pid) + "/stat": line(pid, 1, stat(t, pid).Start)})
	if err := s.Signal(pid, stat(t, pid).Start, 0); !errors.Is(err, ErrNotProc) {
		t.Errorf("Signal: %v", err)
	}
	if _, err := s.OpenExit(pid, stat(t, pid).Start); !errors.Is(err, ErrNotProc) {
		t.Errorf("OpenExit: %v", err)
	}
}

// An unmounted /proc is an empty folder. Nothing in it is gone.
func TestEmptyFolderIsNoProcessTable(t *testing.T) {
	for name, s := range map[string]*System{
		"empty":       New(t.TempDir()),
		"missing":     New(filepath.Join(t.TempDir(), "missing")),
		"no process":  tree(t, map[string]string{}),
		"not a proc":  New("/"),
		"plain files": New(filepath.Dir(os.Args[0])),
	} {
		if name != "no process" {
			if _, err := s.Stat(1); err == nil || errors.Is(err, ErrGone) {
				t.Errorf("%s: Stat: %v", name, err)
			}
		}
		sn, err := s.Snapshot(context.Background())
		if err == nil {
			t.Errorf("%s: no error", name)
		}
		if whole, reason := sn.Complete(); whole || reason == "" || sn.Len() != 0 {
			t.Errorf("%s: complete %v, %q", name, whole, reason)
		}
		if _, ok := sn.Get(1); ok {
			t.Errorf("%s: has a process", name)
		}
	}
}

func TestZeroSnapshotKnowsNothing(t *testing.T) {
	var sn Snapshot
	if whole, reason := sn.Complete(); whole || reason == "" {
		t.Errorf("complete %v, %q", whole, reason)
	}
	if sn.Covers(0) || sn.Len() != 0 {
		t.Error("the zero Snapshot knows something")
	}
	for range sn.Ancestors(1) {
		t.Error("the zero Snapshot has an ancestor")
	}
	if _, err := sn.Environ(1); err == nil {
		t.Error("Environ: no error")
	}
}

func TestUnreadableProcessMakesSnapshotIncomplete(t *testing.T) {
	good := map[string]string{"1/stat": line(1, 0, 1), "1/cmdline": "init\x00", "7/stat": line(7, 1, 9), "7/cmdline": "x\x00"}
	for name, c := range map[string]struct {
		change map[string]string
		has7   bool
	}{
		"torn stat":         {map[string]string{"7/stat": "7 (x) S 1"}, false},
		"NUL filled stat":   {map[string]string{"7/stat": strings.Repeat("\x00", 300)}, false},
		"endless stat":      {map[string]string{"7/stat": strings.Repeat("7 ", statSize)}, false},
		"stat of another":   {map[string]string{"7/stat": line(8, 1, 9)}, false},
		"stat is a loop":    {map[string]string{"7/stat": "->stat"}, false},
		"no command line":   {map[string]string{"7/cmdline": "->nowhere"}, true},
		"command line loop": {map[string]string{"7/cmdline": "->cmdline"}, true},
		"hidepid": {map[string]string{"self": "->1",
			"1/mountinfo": "22 27 0:21 / /proc rw - proc proc rw,hidepid=rubbish\n"}, true},
	} {
		files := map[string]string{}
		for _, m := range []map[string]string{good, c.change} {
			for k, v := range m {
				files[k] = v
			}
		}
		s := tree(t, files)
		sn, err := s.Snapshot(context.Background())
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if whole, reason := sn.Complete(); whole || reason == "" {
			t.Errorf("%s: complete %v, %q", name, whole, reason)
		}
		if _, ok := sn.Get(7); ok != c.has7 {
			t.Errorf("%s: process in the snapshot: %v", name, ok)
		}
		if _, ok := sn.Get(1); !ok {
			t.Errorf("%s: the other process is missing", name)
		}
		if _, err := s.Stat(7); !c.has7 && (err == nil || errors.Is(err, ErrGone)) {
			t.Errorf("%s: Stat: %v", name, err)
		}
	}
	if whole, _ := must(tree(t, good).Snapshot(context.Background())).Complete(); !whole {
		t.Error("the good tree is not complete")
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func TestAncestorsAndChildren(t *testing.T) {
	files := map[string]string{}
	for _, p := range []struct {
		pid, ppid int
		start     uint64
	}{
		{1, 0, 1}, {10, 1, 50}, {11, 10, 50}, {12, 11, 60}, {13, 10, 70},
		{30, 90, 40}, {90, 1, 80}, // 90 took the pid of 30's parent
		{40, 41, 5}, {41, 40, 5}, // a damaged tree
		{50, 50, 5},
		{60, 999, 5},
	} {
		files[strconv.Itoa(p.pid)+"/stat"] = line(p.pid, p.ppid, p.start)
		files[strconv.Itoa(p.pid)+"/cmdline"] = "x\x00"
	}
	sn := must(tree(t, files).Snapshot(context.Background()))
	for pid, want := range map[int][]int{1: nil, 12: {11, 10, 1}, 13: {10, 1}, 30: nil, 50: nil, 60: nil, 999: nil} {
		var got []int
		for p := range sn.Ancestors(pid) {
			got = append(got, p.PID)
		}
		if !slices.Equal(got, want) {
			t.Errorf("Ancestors(%d) = %v, want %v", pid, got, want)
		}
	}
	n := 0
	for range sn.Ancestors(40) {
		n++
	}
	if n > sn.Len() {
		t.Errorf("a loop gave %d ancestors", n)
	}
	for range sn.Ancestors(12) {
		break // must be allowed
	}
}

// A read that does not come back is left behind at the deadline.
func TestHungProcessDoesNotHangTheReader(t *testing.T) {
	files := map[string]string{}
	for _, pid := range []int{1, 7, 9} {
		files[strconv.Itoa(pid)+"/stat"] = line(pid, 1, 1)
		files[strconv.Itoa(pid)+"/cmdline"] = "x\x00"
	}
	s := tree(t, files)
	s.extraLimit = 20 * time.Millisecond
	hang := func(name string) (release func()) {
		name = s.path(name)
		os.Remove(name)
		if err := syscall.Mkfifo(name, 0o600); err != nil {
			t.Fatal(err)
		}
		return func() { // the reader's open ends when a writer comes
			w, err := os.OpenFile(name, os.O_WRONLY, 0)
			if err != nil {
				t.Fatal(err)
			}
			w.Close()
		}
	}
	release := hang("7/environ")
	sn := must(s.Snapshot(context.Background()))
	if _, err := sn.Environ(7); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("Environ: %v", err)
	}
	release()

	release = hang("7/cmdline")
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	sn, err := s.Snapshot(ctx)
	if err != nil {
		t.Errorf("deadline: %v", err)
	}
	if whole, reason := sn.Complete(); whole || !strings.Contains(reason, "time") {
		t.Errorf("deadline: complete %v, %q", whole, reason)
	}
	if _, ok := sn.Get(1); !ok {
		t.Error("deadline: what had been read is lost")
	}
	release()

	release = hang("7/cmdline")
	ctx, cancel = context.WithCancel(context.Background())
	time.AfterFunc(20*time.Millisecond, cancel)
	sn, err = s.Snapshot(ctx)
	if whole, _ := sn.Complete(); whole || !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: complete %v, %v", whole, err)
	}
	release()
}

func TestMountOptions(t *testing.T) {
	const mounts = "1 0 8:1 / / rw - ext4 /dev/sda rw\n" +
		"22 27 0:21 / /proc rw,relatime shared:5 master:2 - proc proc rw,hidepid=invisible\n" +
		"30 27 0:55 / /mnt/a\\040b rw - proc none rw\n" +
		"31 27 0:56 / /mnt rw - proc\n"
	for device, want := range map[string]string{"0:21": "rw,hidepid=invisible", "0:55": "rw", "": "rw,hidepid=invisible", "0:56": "none", "8:1": "none"} {
		got, found := procMountOptions(mounts, device)
		if !found {
			got = "none"
		}
		if got != want {
			t.Errorf("device %q: %q, want %q", device, got, want)
		}
	}
}

func TestHidepidOption(t *testing.T) {
	other := 4000000 // in no group of ours
	ours := os.Getegid()
	for _, c := range []struct {
		options       string
		tracesAll     bool
		hidden, known bool
	}{
		{"rw", false, false, true},
		{"rw,hidepid=0", false, false, true},
		{"rw,hidepid=off", false, false, true},
		{"rw,gid=" + strconv.Itoa(other) + ",hidepid=1", false, true, true},
		{"rw,gid=" + strconv.Itoa(other) + ",hidepid=noaccess", false, true, true},
		{"rw,gid=" + strconv.Itoa(other) + ",hidepid=2", false, true, true},
		{"rw,hidepid=invisible,gid=" + strconv.Itoa(other), false, true, true},
		{"rw,hidepid=invisible,gid=" + strconv.Itoa(other), true, false, true},
		{"rw,hidepid=invisible,gid=" + strconv.Itoa(ours), false, false, true},
		{"rw,hidepid=ptraceable,gid=" + strconv.Itoa(ours), false, true, true},
		{"rw,hidepid=4", true, false, true},
		{"rw,hidepid=7", true, false, false},
		{"rw,hidepid=", false, false, false},
		{"rw,hidepid=2,gid=x", false, false, false},
	} {
		hidden, known := hidesFrom(c.options, func() bool { return c.tracesAll })
		if hidden != c.hidden || known != c.known {
			t.Errorf("%s, traces all %v: hidden %v, known %v", c.options, c.tracesAll, hidden, known)
		}
	}
}

func TestCgroupPath(t *testing.T) {
	for text, want := range map[string]string{
		"0::/user.slice/a:b\n":             "/user.slice/a:b",
		"9:name=systemd:/s\n4:memory:/m\n": "/s",
		"4:memory:/m\n3:cpu,cpuacct:/c\n":  "/m",
		"9:name=systemd:/s\n0::/u\n":       "/u",
		"0::/u\n9:name=systemd:/s\n":       "/u",
		"":                                 "none",
		"rubbish\n":                        "none",
		"4:memory:/m\n9:name=systemd:/s (deleted)\n1:x\n": "/s (deleted)",
	} {
		got, found := cgroupPath(text)
		if !found {
			got = "none"
		}
		if got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

func TestMalformedMachineFiles(t *testing.T) {
	s := tree(t, map[string]string{
		"self": "->x", "stat": "cpu 1\n", "uptime": "-1 2", "x/uid_map": "", "x/ns/time": "->pid:[1]", "x/ns/pid": "->pid:[x]",
	})
	for name, read := range map[string]func() error{
		"self":    func() error { _, err := s.SelfPID(); return err },
		"stat":    func() error { _, err := s.BootTime(); return err },
		"uptime":  func() error { _, err := s.BootSeconds(); return err },
		"uid_map": func() error { _, err := s.HostUserNamespace(); return err },
		"time":    func() error { _, err := s.TimeNamespace(0); return err },
		"pid":     func() error { _, err := s.PIDNamespace(0); return err },
		"start":   func() error { _, err := s.StartTime(1); return err },
	} {
		if err := read(); err == nil || errors.Is(err, ErrGone) {
			t.Errorf("%s: %v", name, err)
		}
	}
	empty := tree(t, map[string]string{})
	if err := os.WriteFile(empty.path(bootIDFile), []byte(" \n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if id, err := empty.BootID(); err == nil {
		t.Errorf("empty boot id: %q", id)
	}
}
