package ledger

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sessionledger/ledger/ledgertest"
	"github.com/sessionledger/ledger/tmux"
)

// A bed is a machine of a test's own: home, agents on PATH, a project, a ledger. All
// agents are stand-ins, and every process that is left at its end fails the test.
type bed struct {
	t    *testing.T
	home string
	dir  string // the project
	s    *Store
	h    *Host
}

func newBed(t *testing.T) *bed {
	t.Helper()
	_, err := exec.LookPath("tmux")
	need(t, err == nil, "tmux")
	home := ledgertest.Isolate(t)
	t.Setenv("PATH", ledgertest.BuildAgent(t)+":"+os.Getenv("PATH"))
	b := &bed{t: t, home: home, dir: filepath.Join(home, "project")}
	if out, err := exec.Command("git", "init", "-q", b.dir).CombinedOutput(); err != nil {
		t.Fatalf("git: %v: %s", err, out)
	}
	b.s = b.open(filepath.Join(home, "l"))
	b.h = &Host{Store: b.s}
	return b
}

// open opens a ledger, whose rules are checked and whose servers are ended with the test.
func (b *bed) open(root string) *Store {
	b.t.Helper()
	s := openStore(b.t, root, nil)
	b.t.Cleanup(func() {
		sockets, _ := filepath.Glob(filepath.Join(root, "sock", "*"))
		for _, socket := range sockets {
			endServer(b.t, socket)
		}
		checkLedger(b.t, root)
	})
	return s
}

// endServer ends whatever answers at a socket.
func endServer(t *testing.T, socket string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	srv := tmux.Server{Socket: socket}
	l, err := srv.List(ctx)
	if err != nil {
		return // nothing does
	}
	if err := srv.KillServer(ctx, l.Server); err != nil {
		t.Error(err)
	}
}

// launch starts a hosted agent, which must come up.
func (b *bed) launch(opts LaunchOptions) Entry {
	b.t.Helper()
	if opts.Dir == "" {
		opts.Dir = b.dir
	}
	if opts.Wait == 0 {
		opts.Wait = patience
	}
	e, err := b.h.Launch(b.t.Context(), opts)
	if err != nil {
		b.t.Fatal(err)
	}
	return e
}

// say types a line into a hosted agent.
func (b *bed) say(e Entry, line string) {
	b.t.Helper()
	for _, keys := range [][]string{{"-l", "--", line}, {"Enter"}} {
		args := append([]string{"-S", e.Mux.Socket, "send-keys", "-t", e.PaneID}, keys...)
		if out, err := exec.Command("tmux", args...).CombinedOutput(); err != nil {
			b.t.Fatalf("tmux %q: %v: %s", args, err, out)
		}
	}
}

func (b *bed) get(id string) Entry {
	b.t.Helper()
	e, err := b.s.Get(b.t.Context(), id)
	if err != nil {
		b.t.Fatal(err)
	}
	return e
}

func (b *bed) status(id string) Status {
	b.t.Helper()
	sess, err := b.s.Session(b.t.Context(), id, &ClassifyOptions{CPUSample: -1, Timeout: patience})
	if err != nil {
		b.t.Fatal(err)
	}
	return sess.Status
}

// gone waits until a process is.
func (b *bed) gone(p ProcessID) {
	b.t.Helper()
	await(b.t, "the end of a process", func() bool { return b.s.procs.verdict(p) == Gone })
}

// kill is kill -9.
func (b *bed) kill(p ProcessID) {
	b.t.Helper()
	if err := b.s.procs.sys.Signal(p.PID, p.StartTicks, killSignal); err != nil {
		b.t.Fatal(err)
	}
	b.gone(p)
}

// agents are the session processes of the test.
func (b *bed) agents() (found []ProcessID) {
	b.t.Helper()
	p, err := b.s.newPass(b.t.Context())
	if err != nil {
		b.t.Fatal(err)
	}
	for _, c := range p.candidates() {
		if env, err := p.snap.Environ(c.process.PID); err == nil {
			if v, _ := env.Lookup(ledgertest.Marker); v == os.Getenv(ledgertest.Marker) {
				found = append(found, c.process)
			}
		}
	}
	return found
}

// environ is a process's environment, as it was started.
func environ(t *testing.T, pid int) map[string]string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("/proc", itoa(pid), "environ"))
	if err != nil {
		t.Fatal(err)
	}
	env := map[string]string{}
	for kv := range strings.SplitSeq(strings.TrimRight(string(data), "\x00"), "\x00") {
		name, value, _ := strings.Cut(kv, "=")
		if _, twice := env[name]; twice {
			t.Errorf("%s is set twice", name)
		}
		env[name] = value
	}
	return env
}

// built are the commands that the tests of this package build, by import path.
var built struct {
	sync.Mutex
	dir string
	err map[string]error
}

// build returns the binary of a command of this module.
func build(t testing.TB, pkg string) string {
	t.Helper()
	built.Lock()
	defer built.Unlock()
	if built.dir == "" {
		dir, err := os.MkdirTemp("", "ledger-built-")
		if err != nil {
			t.Fatal(err)
		}
		built.dir, built.err = dir, map[string]error{}
	}
	path := filepath.Join(built.dir, filepath.Base(pkg))
	err, done := built.err[pkg]
	if !done {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
		defer cancel()
		cmd := exec.CommandContext(ctx, "go", "build", "-o", path, pkg)
		cmd.Env = append(slices.Clone(firstEnv), "CGO_ENABLED=0")
		cmd.Dir = firstDir
		var out []byte
		if out, err = cmd.CombinedOutput(); err != nil {
			t.Logf("%s", out)
		}
		built.err[pkg] = err
	}
	if err != nil {
		t.Fatalf("build %s: %v", pkg, err)
	}
	return path
}

// The environment and folder in which the tests began: the go command's caches lie below
// the real home.
var (
	firstEnv    = os.Environ()
	firstDir, _ = os.Getwd()
)

func removeBuilt() { os.RemoveAll(built.dir) }

// ctlPackage is the example binary.
const ctlPackage = "github.com/sessionledger/ledger/examples/ledgerctl"

func atoi(t testing.TB, text string) int {
	t.Helper()
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return n
}
