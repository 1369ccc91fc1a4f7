package ledger

//lint:file-ignore U1000 most of these helpers serve tests that run on Linux alone

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sessionledger/ledger/ledgertest"
)

// storeFull turns the long searches on: every system call, 64 x 50 updates, long histories.
var storeFull = flag.Bool("store.full", false, "run the store's long searches too")

// patience bounds what a test waits for on a loaded machine.
const patience = 60 * time.Second

const (
	childVar = "LEDGER_TEST_CHILD" // name of the function that the child runs
	argVar   = "LEDGER_TEST_ARG"   // its argument, as JSON
)

// children are the functions that a test can run in a process of its own: see startChild.
var children = map[string]func(arg []byte) error{}

// inChild registers f under a name that is unique in the package.
func inChild[A any](name string, f func(arg A) error) string {
	if children[name] != nil {
		panic("two children are called " + name)
	}
	children[name] = func(data []byte) error {
		var arg A
		if err := json.Unmarshal(data, &arg); err != nil {
			return err
		}
		return f(arg)
	}
	return name
}

func init() {
	// strace counts the calls of each thread; the child's main goroutine stays on the first.
	if os.Getenv(childVar) != "" {
		runtime.LockOSThread()
	}
}

func TestMain(m *testing.M) {
	if name := os.Getenv(childVar); name != "" {
		if err := children[name]([]byte(os.Getenv(argVar))); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	// No test may meet the user's own ledger, transcripts or settings.
	home, err := os.MkdirTemp("", "ledger-home-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	for _, v := range os.Environ() {
		name, _, _ := strings.Cut(v, "=")
		if strings.HasPrefix(name, "AGENT_") || strings.HasPrefix(name, "XDG_") || strings.HasPrefix(name, "TMUX") ||
			strings.HasPrefix(name, "CLAUDE_") || strings.HasPrefix(name, "CODEX_") || strings.HasPrefix(name, "FACTORY_") {
			os.Unsetenv(name)
		}
	}
	os.Setenv("HOME", home)
	os.Setenv("TMUX_TMPDIR", home)
	os.Setenv("GIT_CONFIG_GLOBAL", os.DevNull)
	os.Setenv("GIT_CONFIG_NOSYSTEM", "1")
	goleak.VerifyTestMain(shared{m}, goleak.Cleanup(func(code int) {
		os.RemoveAll(home)
		os.Exit(code)
	}))
}

// shared keeps what several tests build, until the last has ended.
type shared struct{ *testing.M }

func (m shared) Run() int {
	defer removeBuilt()
	return ledgertest.Main(m.M)
}

// childCommand is a run of the registered function name in a process of its own.
func childCommand(t testing.TB, name string, arg any) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	data, err := json.Marshal(arg)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), childVar+"="+name, argVar+"="+string(data),
		"GORACE=atexit_sleep_ms=0") // the default is a second
	return cmd
}

// runningChild is a child at work.
type runningChild struct {
	*exec.Cmd
	out, errs bytes.Buffer
}

// startChild starts a child, which is killed at the end of the test if it still runs.
func startChild(t testing.TB, name string, arg any) *runningChild {
	t.Helper()
	c := &runningChild{Cmd: childCommand(t, name, arg)}
	c.Stdout, c.Stderr = &c.out, &c.errs
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if c.ProcessState == nil {
			c.Process.Kill()
			c.Cmd.Wait()
		}
	})
	return c
}

// wait waits for the child, which must succeed, and returns what it printed.
func (c *runningChild) wait(t testing.TB) string {
	t.Helper()
	if err := c.Wait(); err != nil {
		t.Fatalf("child: %v\n%s", err, c.errs.String())
	}
	return c.out.String()
}

// need skips the test where the machine lacks what it needs, and fails it in CI.
func need(t testing.TB, ok bool, what string) {
	t.Helper()
	if ok {
		return
	}
	if os.Getenv("CI") == "true" {
		t.Fatalf("needs %s", what)
	}
	t.Skipf("needs %s", what)
}

// await waits until ok. It is the one place where tests poll: for what another process
// or the kernel does, and nothing reports.
func await(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not in %s: %s", patience, what)
		}
	}
}

// fakeClock stands still until it is moved.
type fakeClock struct {
	mu  sync.Mutex
	now time.Time
}

func newClock() *fakeClock {
	return &fakeClock{now: time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)}
}

func (c *fakeClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *fakeClock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// newStore opens a ledger of the test's own. At the end of the test the whole ledger must
// keep its rules.
func newStore(t testing.TB, opts *Options) *Store {
	t.Helper()
	s := newBrokenStore(t, opts)
	t.Cleanup(func() { checkLedger(t, s.root) })
	return s
}

// newBrokenStore is newStore for a test that breaks the ledger's rules on purpose.
func newBrokenStore(t testing.TB, opts *Options) *Store {
	t.Helper()
	return openStore(t, filepath.Join(t.TempDir(), "ledger"), opts)
}

func openStore(t testing.TB, dir string, opts *Options) *Store {
	t.Helper()
	s, err := Open(dir, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// checkLedger fails the test for every rule that the ledger breaks.
func checkLedger(t testing.TB, dir string) {
	t.Helper()
	s, err := Open(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	found, err := s.Check(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range found {
		if f.Broken {
			t.Errorf("the ledger breaks a rule: %+v", f)
		}
	}
}

// startProcess starts a process that does nothing, and names it.
func startProcess(t testing.TB) (ProcessID, *exec.Cmd) {
	t.Helper()
	cmd := exec.Command("sleep", "1000")
	return started(t, cmd), cmd
}

// started starts a process that ends with the test, and names it.
func started(t testing.TB, cmd *exec.Cmd) ProcessID {
	t.Helper()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { endProcess(cmd) })
	p, err := newTable("").identify(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// endProcess ends the process and waits until it is gone.
func endProcess(cmd *exec.Cmd) {
	if cmd.ProcessState == nil {
		cmd.Process.Kill()
		cmd.Wait()
	}
}

func self(t testing.TB) ProcessID {
	t.Helper()
	p, err := Self()
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// born is a birth record, with neither process nor claim.
func born(t testing.TB, s *Store, id string) Entry {
	t.Helper()
	e, err := s.Create(t.Context(), Entry{LedgerID: id, Runtime: "claude", Cwd: "/work"}, BeginCreate(self(t)))
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// enrolled is a live row of a running process.
func enrolled(t testing.TB, s *Store, e Entry) (Entry, *exec.Cmd) {
	t.Helper()
	p, cmd := startProcess(t)
	if e.Runtime == "" {
		e.Runtime = "claude"
	}
	got, err := s.Create(t.Context(), e, Enrol(p, Location{}))
	if err != nil {
		t.Fatal(err)
	}
	return got, cmd
}

func apply(t testing.TB, s *Store, id string, ev Event) Entry {
	t.Helper()
	e, out, err := settled(t, s, id, ev)
	if err != nil || out != Applied {
		t.Fatalf("%s: %v, %v", ev.Kind, out, err)
	}
	return e
}

// settled is Apply, again while the evidence is incomplete: a process of another test
// that is just starting hides for a moment what it carries.
func settled(t testing.TB, s *Store, id string, ev Event) (e Entry, out Outcome, err error) {
	t.Helper()
	await(t, "the evidence is complete", func() bool {
		e, out, err = s.Apply(t.Context(), id, ev)
		return !errors.Is(err, ErrUnknown)
	})
	return e, out, err
}

// finished ends a row, which has no process of its own any more.
func finished(t testing.TB, s *Store, id string) Entry {
	t.Helper()
	e, err := s.Get(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return apply(t, s, id, Finish(e.Process().Key(), "over"))
}

func rowPath(s *Store, id string) string { return s.path(dirSessions, id+rowExtension) }

// putRow writes a row's file as another implementation would.
func putRow(t testing.TB, s *Store, id, data string) {
	t.Helper()
	putFile(t, rowPath(s, id), data)
}

func putFile(t testing.TB, path, data string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(data), 0o600); err != nil {
		t.Fatal(err)
	}
}

func readFile(t testing.TB, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// listed collects what Entries yields: the rows by id, and the damaged ones.
func listed(t testing.TB, s *Store) (rows map[string]Entry, damaged map[string]*DamagedError) {
	t.Helper()
	rows, damaged = map[string]Entry{}, map[string]*DamagedError{}
	for e, err := range s.Entries(t.Context()) {
		var d *DamagedError
		switch {
		case errors.As(err, &d):
			damaged[d.ID] = d
		case err != nil:
			t.Fatal(err)
		case rows[e.LedgerID].LedgerID != "":
			t.Errorf("%q is listed twice", e.LedgerID)
		default:
			rows[e.LedgerID] = e
		}
	}
	return rows, damaged
}

// touch changes a row as a heartbeat does.
func touch(e *Entry) error {
	e.Operation += "x"
	return nil
}
