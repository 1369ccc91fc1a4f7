package ledger

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// crashStep is what a child does, traced.
type crashStep struct {
	Dir, Step string
	Process   ProcessID
	Nonce     string
}

// crashReport is what came of it.
type crashReport struct {
	Err      string // "" for success
	Errno    syscall.Errno
	Unsynced bool // a DurabilityError
	Unknown  bool // evidence was not to be had
	After    string
}

var childCrash = inChild("crash", func(arg crashStep) error {
	s, err := Open(arg.Dir, &Options{Clock: clockAt(time.Now().Add(time.Hour))})
	if err != nil {
		return err
	}
	ctx := context.Background()
	mark("begin")
	err = crashSteps[arg.Step].do(ctx, s, arg)
	mark("end")
	report := crashReport{Unsynced: isUnsynced(err), Unknown: errors.Is(err, ErrUnknown)}
	errors.As(err, &report.Errno)
	if err != nil {
		report.Err = err.Error()
	}
	// Whatever came of the step, the store goes on with other rows.
	if _, err := s.Update(ctx, "other", touch); err != nil {
		report.After = err.Error()
	}
	b, err := json.Marshal(report)
	if err == nil {
		_, err = unix.Pwrite(1, b, 0) // a call that no test injects faults into
	}
	return err
})

// mark makes a system call that the trace shows.
func mark(name string) { unix.Access("/ledger-test-"+name, unix.F_OK) }

type crashCase struct {
	do    func(ctx context.Context, s *Store, arg crashStep) error
	setup func(t *testing.T, s *Store, arg *crashStep)
	// state tells old from new: "old", "new", or what it must not be.
	state func(t *testing.T, s *Store, arg crashStep) string
	// after does what the next comer does, and must succeed.
	after func(t *testing.T, s *Store, arg crashStep)
	// halfway: between its writes there are states that are neither.
	halfway bool
}

// crashSteps are the writes of a store. (A function, as its members look themselves up.)
var crashSteps map[string]crashCase

func init() {
	bareRow := func(t *testing.T, s *Store, _ *crashStep) { born(t, s, "row") }
	touched := func(t *testing.T, s *Store, _ crashStep) string {
		e, err := s.Get(t.Context(), "row")
		return oldOrNew(err == nil && e.Operation == "" && e.Revision == 1, err == nil && e.Operation == "x" && e.Revision == 2)
	}
	again := func(t *testing.T, s *Store, _ crashStep) {
		if _, err := s.Update(t.Context(), "row", touch); err != nil {
			t.Errorf("the next writer: %v", err)
		}
	}
	update := func(opts ...UpdateOption) func(context.Context, *Store, crashStep) error {
		return func(ctx context.Context, s *Store, _ crashStep) error {
			_, err := s.Update(ctx, "row", touch, opts...)
			return err
		}
	}
	crashSteps = map[string]crashCase{
		"update":         {do: update(), setup: bareRow, state: touched, after: again},
		"relaxed update": {do: update(Relaxed()), setup: bareRow, state: touched, after: again},
		"update of a filed row": {do: update(), after: again,
			setup: func(t *testing.T, s *Store, _ *crashStep) {
				born(t, s, "row")
				finished(t, s, "row")
				if tidied, err := openStore(t, s.root, &Options{Clock: clockAt(time.Now().Add(time.Hour))}).Tidy(t.Context()); err != nil || len(tidied.Filed) != 1 {
					t.Fatalf("%+v, %v", tidied, err)
				}
			},
			state: func(t *testing.T, s *Store, _ crashStep) string {
				e, err := s.Get(t.Context(), "row")
				return oldOrNew(err == nil && e.Operation == "" && e.Revision == 2, err == nil && e.Operation == "x" && e.Revision == 3)
			}},
		"create": {
			do: func(ctx context.Context, s *Store, arg crashStep) error {
				_, err := s.Create(ctx, Entry{LedgerID: "row", Runtime: "claude"}, BeginCreate(arg.Process))
				return err
			},
			setup: func(t *testing.T, s *Store, arg *crashStep) { arg.Process = self(t) },
			state: func(t *testing.T, s *Store, _ crashStep) string {
				e, err := s.Get(t.Context(), "row")
				return oldOrNew(errors.Is(err, ErrNotFound), err == nil && e.Revision == 1)
			},
			after: func(t *testing.T, s *Store, arg crashStep) {
				_, err := s.Create(t.Context(), Entry{LedgerID: "row", Runtime: "claude"}, BeginCreate(arg.Process))
				if err != nil && !errors.Is(err, ErrExists) {
					t.Errorf("the next create: %v", err)
				}
				again(t, s, arg)
			}},
		"enrol": {halfway: true,
			do: func(ctx context.Context, s *Store, arg crashStep) error {
				_, err := s.Create(ctx, Entry{Runtime: "claude", SessionID: "c", Window: "w"}, Enrol(arg.Process, Location{}))
				return err
			},
			setup: func(t *testing.T, s *Store, arg *crashStep) { arg.Process, _ = startProcess(t) },
			state: func(t *testing.T, s *Store, arg crashStep) string {
				rows, damaged := listed(t, s)
				e, err := s.Find(t.Context(), Query{Process: arg.Process})
				return oldOrNew(errors.Is(err, ErrNotFound) && len(rows) == 1,
					err == nil && len(rows) == 2 && len(damaged) == 0 && rows[e.LedgerID].SessionID == "c" && e.Window == "w")
			},
			after: func(t *testing.T, s *Store, arg crashStep) {
				e, err := s.Create(t.Context(), Entry{Runtime: "claude", SessionID: "c", Window: "w"}, Enrol(arg.Process, Location{}))
				if err != nil && !errors.Is(err, ErrExists) {
					t.Errorf("the next comer: %v", err)
				}
				// A launcher that died on the way leaves its row to the hook, which brings the id.
				if e = apply(t, s, e.LedgerID, Claim("c", "hook")); e.SessionID != "c" || len(e.SessionIDs) > 0 {
					t.Errorf("%+v", e)
				}
				if other, _ := enrolled(t, s, Entry{SessionID: "c", Window: "w"}); other.SessionID != "" || (e.Window == "w") != (other.Slot == 1) {
					t.Errorf("conversation and place after %+v: %+v", e, other)
				}
				if rows, _ := listed(t, s); len(rows) != 3 {
					t.Errorf("%d rows", len(rows))
				}
			}},
		"event": {
			do: func(ctx context.Context, s *Store, _ crashStep) error {
				_, _, err := s.Apply(ctx, "row", IntendKill())
				return err
			},
			setup: bareRow, after: again,
			state: func(t *testing.T, s *Store, _ crashStep) string {
				e, err := s.Get(t.Context(), "row")
				return oldOrNew(err == nil && e.KillIntentAt.IsZero(), err == nil && !e.KillIntentAt.IsZero() && e.Revision == 2)
			}},
		"claim": {
			do: func(ctx context.Context, s *Store, _ crashStep) error {
				_, _, err := s.Apply(ctx, "row", Claim("c", "hook"))
				return err
			},
			setup: bareRow,
			state: func(t *testing.T, s *Store, _ crashStep) string {
				e, err := s.Get(t.Context(), "row")
				return oldOrNew(err == nil && e.SessionID == "", err == nil && e.SessionID == "c" && e.Revision == 2)
			},
			after: func(t *testing.T, s *Store, _ crashStep) {
				e, err := s.Get(t.Context(), "row")
				if err != nil {
					t.Fatal(err)
				}
				// Held by whom it was written to, else free for the next comer, and then taken.
				_, _, err = s.Apply(t.Context(), "other", Claim("c", "hook"))
				if e.SessionID == "c" != errors.Is(err, ErrConversationHeld) || e.SessionID == "" && err != nil {
					t.Errorf("the next comer after %q: %v", e.SessionID, err)
				}
				_, _, err = s.Apply(t.Context(), "row", Claim("c", "hook"))
				if e.SessionID == "" != errors.Is(err, ErrConversationHeld) || e.SessionID == "c" && err != nil {
					t.Errorf("again after %q: %v", e.SessionID, err)
				}
			}},
		"batch": {halfway: true,
			do: func(ctx context.Context, s *Store, _ crashStep) error {
				var changes []change
				for _, id := range []string{"row", "row1", "row2"} {
					changes = append(changes, change{id, func(e *Entry) (verdict, error) { return unchanged, touch(e) }})
				}
				_, errs := s.batch(ctx, changes)
				return errors.Join(errs...)
			},
			setup: func(t *testing.T, s *Store, _ *crashStep) {
				for _, id := range []string{"row", "row1", "row2"} {
					born(t, s, id)
				}
			},
			state: func(t *testing.T, s *Store, _ crashStep) string {
				n := 0
				for _, id := range []string{"row", "row1", "row2"} {
					e, err := s.Get(t.Context(), id)
					if err != nil || e.Revision != uint64(1+len(e.Operation)) {
						return fmt.Sprintf("%+v, %v", e, err)
					}
					n += len(e.Operation)
				}
				return oldOrNew(n == 0, n == 3)
			},
			after: again},
		"drop": {
			do: func(ctx context.Context, s *Store, arg crashStep) error {
				_, _, err := s.Apply(ctx, "row", CommitDrop(arg.Nonce))
				return err
			},
			setup: func(t *testing.T, s *Store, arg *crashStep) {
				born(t, s, "row")
				finished(t, s, "row")
				drop := BeginDrop(self(t))
				apply(t, s, "row", drop)
				arg.Nonce = drop.Nonce
			},
			state: func(t *testing.T, s *Store, _ crashStep) string {
				_, err := s.Get(t.Context(), "row")
				return oldOrNew(err == nil, errors.Is(err, ErrNotFound))
			},
			after: func(t *testing.T, s *Store, arg crashStep) {
				_, _, err := settled(t, s, "row", CommitDrop(arg.Nonce))
				if err != nil && !errors.Is(err, ErrNotFound) {
					t.Errorf("again: %v", err)
				}
			}},
		"tidy": {halfway: true,
			do: func(ctx context.Context, s *Store, _ crashStep) error {
				tidied, err := s.Tidy(ctx)
				return errors.Join(append(tidied.Warnings, err)...)
			},
			setup: func(t *testing.T, s *Store, _ *crashStep) {
				for i := range 3 {
					e, cmd := enrolled(t, s, Entry{LedgerID: fmt.Sprint("over", i), SessionID: fmt.Sprint(i)})
					endProcess(cmd)
					finished(t, s, e.LedgerID)
				}
				tag := strings.Replace(s.tag(), self(t).BootID, "00000000-0000-0000-0000-000000000000", 1)
				putFile(t, s.path(dirSessions, ".tmp-"+tag+"-0"), "left")
			},
			state: func(t *testing.T, s *Store, _ crashStep) string {
				filed := 0
				for i := range 3 {
					r, sub, err := s.lookUp(fmt.Sprint("over", i))
					if err != nil || r.err != nil || r.entry.IsOpen() {
						return fmt.Sprintf("over%d: %+v, %v", i, r, err)
					}
					if sub == dirFinished {
						filed++
					}
				}
				claims, err := filepath.Glob(s.path(dirClaims, "*-*"))
				if err != nil {
					return err.Error()
				}
				return oldOrNew(filed == 0, filed == 3 && len(claims) == 0)
			},
			after: func(t *testing.T, s *Store, arg crashStep) {
				late := openStore(t, s.root, &Options{Clock: clockAt(time.Now().Add(2 * time.Hour))})
				if tidied, err := late.Tidy(t.Context()); err != nil || len(tidied.Warnings) > 0 {
					t.Errorf("the next pass: %+v, %v", tidied, err)
				}
				if got := crashSteps["tidy"].state(t, s, arg); got != "new" {
					t.Errorf("after the next pass: %s", got)
				}
			}},
		"repair": {
			do:    func(ctx context.Context, s *Store, _ crashStep) error { return s.Repair(ctx, "row") },
			setup: func(t *testing.T, s *Store, _ *crashStep) { putRow(t, s, "row", "{torn") },
			state: func(t *testing.T, s *Store, _ crashStep) string {
				_, err := s.Get(t.Context(), "row")
				aside, _ := filepath.Glob(s.path(dirDamaged, "*", "row.json"))
				return oldOrNew(errors.Is(err, ErrDamaged) && len(aside) == 0, errors.Is(err, ErrNotFound) && len(aside) == 1)
			},
			after: func(t *testing.T, s *Store, _ crashStep) {
				if err := s.Repair(t.Context(), "row"); err != nil && !errors.Is(err, ErrNotFound) {
					t.Errorf("again: %v", err)
				}
				born(t, s, "row")
			}},
	}
}

func oldOrNew(isOld, isNew bool) string {
	switch {
	case isOld && !isNew:
		return "old"
	case isNew && !isOld:
		return "new"
	}
	return "neither"
}

// The calls that a write is made of. Those with an effect on others are enumerated by
// default (of steps with many writes, those that change a name), all of them with
// -store.full.
var (
	nameCalls   = []string{"write", "renameat", "renameat2", "unlinkat", "mkdirat"}
	effectCalls = []string{"flock", "write", "fsync", "fchmod", "fchmodat", "renameat", "renameat2", "linkat", "unlinkat", "mkdirat"}
	otherCalls  = []string{"openat", "close", "read", "fstat", "newfstatat", "getdents64", "fcntl"}
)

func needStrace(t *testing.T) {
	t.Helper()
	_, err := exec.LookPath("strace")
	need(t, err == nil, "strace")
	need(t, exec.Command("strace", "-qq", "-o", os.DevNull, "true").Run() == nil, "leave to trace")
}

// traced runs a step under strace. It returns the trace, and the report of a child that
// lived, nil of one that was killed.
func traced(t *testing.T, arg crashStep, inject string) (trace string, report *crashReport) {
	t.Helper()
	tmp := t.TempDir()
	log, outPath := filepath.Join(tmp, "trace"), filepath.Join(tmp, "out")
	child := childCommand(t, childCrash, arg)
	args := []string{"-f", "-qq", "-y", "-o", log, "-e", "signal=none",
		"-e", "trace=faccessat,faccessat2," + strings.Join(append(slices.Clone(effectCalls), otherCalls...), ",")}
	if inject != "" {
		args = append(args, "-e", "inject="+inject)
	}
	cmd := exec.Command("strace", append(args, child.Args...)...)
	cmd.Env = child.Env
	out, err := os.Create(outPath)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	var stderr strings.Builder
	cmd.Stdout, cmd.Stderr = out, &stderr
	err = cmd.Run()
	trace = readFile(t, log)
	if err != nil {
		ws, _ := cmd.ProcessState.Sys().(syscall.WaitStatus)
		if ws.Signaled() && ws.Signal() == syscall.SIGKILL || strings.Contains(trace, "INJECTED") {
			return trace, nil // killed, or the fault hit the set-up
		}
		t.Fatalf("%s, %s: %v\n%s", arg.Step, inject, err, &stderr)
	}
	report = new(crashReport)
	if err := json.Unmarshal([]byte(readFile(t, outPath)), report); err != nil {
		t.Fatalf("%s, %s: %v\n%s", arg.Step, inject, err, &stderr)
	}
	return trace, report
}

// point is one system call of a step: the nth of its thread with that name.
type point struct {
	call string
	n    int
}

// points are the system calls on files of the ledger at dir, between the marks of a trace.
func points(t *testing.T, trace, dir string, calls []string) []point {
	t.Helper()
	count := map[string]int{}
	found := map[point]bool{}
	begun := false
	for line := range strings.Lines(trace) {
		tid, rest, _ := strings.Cut(line, " ")
		rest = strings.TrimSpace(rest)
		switch {
		case strings.Contains(rest, "ledger-test-begin"):
			begun = true
		case strings.Contains(rest, "ledger-test-end"):
			return slices.SortedFunc(maps.Keys(found), func(a, b point) int {
				return strings.Compare(a.call+fmt.Sprintf("%9d", a.n), b.call+fmt.Sprintf("%9d", b.n))
			})
		case strings.HasPrefix(rest, "<..."):
		default:
			call, _, ok := strings.Cut(rest, "(")
			if !ok {
				continue
			}
			count[tid+call]++
			if begun && slices.Contains(calls, call) && strings.Contains(rest, dir) {
				found[point{call, count[tid+call]}] = true
			}
		}
	}
	t.Fatalf("the marks are missing in\n%s", trace)
	return nil
}

// crashLedger is a ledger that is ready for the step.
func crashLedger(t *testing.T, step string) (*Store, crashStep) {
	t.Helper()
	s := newStore(t, nil)
	arg := crashStep{Dir: s.root, Step: step}
	born(t, s, "other")
	if err := s.completeClaims(t.Context()); err != nil {
		t.Fatal(err)
	}
	crashSteps[step].setup(t, s, &arg)
	return s, arg
}

// temps counts the temp files in the ledger.
func temps(t *testing.T, s *Store) (n int) {
	t.Helper()
	err := filepath.WalkDir(s.root, func(path string, d fs.DirEntry, err error) error {
		if strings.HasPrefix(d.Name(), ".tmp-") {
			n++
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// Cases 11 and 29a: whatever system call a writer dies in, the row is the old or the new one;
// locks are free and the next comer works; what it left goes away in the next pass; there
// are never two rows, and no claim is stuck.
func TestKillAtEverySystemCall(t *testing.T) {
	needStrace(t)
	for _, step := range slices.Sorted(maps.Keys(crashSteps)) {
		t.Run(step, func(t *testing.T) {
			t.Parallel()
			c := crashSteps[step]
			s, arg := crashLedger(t, step)
			trace, report := traced(t, arg, "")
			if report == nil || report.Err != "" || c.state(t, s, arg) != "new" {
				t.Fatalf("undisturbed: %+v, and the row is %s", report, c.state(t, s, arg))
			}
			calls := effectCalls
			switch {
			case *storeFull:
				calls = append(slices.Clone(effectCalls), otherCalls...)
			case c.halfway:
				calls = nameCalls
			}
			seen := map[string]int{}
			for _, at := range points(t, trace, s.root, calls) {
				t.Run(fmt.Sprintf("%s-%d", at.call, at.n), func(t *testing.T) {
					s, arg := crashLedger(t, step)
					_, report := traced(t, arg, fmt.Sprintf("%s:signal=SIGKILL:when=%d", at.call, at.n))
					state := c.state(t, s, arg)
					if state != "old" && state != "new" && !(c.halfway && state == "neither") {
						t.Errorf("the row is %s", state)
					}
					// (Other tests' processes can make the evidence incomplete for a moment.)
					if report != nil && state != "new" && !report.Unknown {
						t.Errorf("it lived (%+v), and the row is %s", report, state)
					}
					if report == nil {
						left := "clean"
						if temps(t, s) > 0 {
							left = "left"
						}
						seen[state+" "+left]++
					}
					ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
					defer cancel()
					if _, err := s.Update(ctx, "other", touch); err != nil {
						t.Errorf("other rows: %v", err)
					}
					c.after(t, s, arg)
					if tidied, err := s.Tidy(ctx); err != nil || len(tidied.Warnings) > 0 || temps(t, s) > 0 {
						t.Errorf("tidy: %+v, %v; %d temp files are left", tidied, err, temps(t, s))
					}
				})
			}
			t.Logf("outcomes: %v", seen)
			// Else the search has missed the steps that matter.
			if seen["old clean"]+seen["old left"] == 0 || step != "drop" && step != "relaxed update" && seen["new clean"]+seen["neither clean"]+seen["neither left"] == 0 {
				t.Errorf("outcomes %v", seen)
			}
		})
	}
}

// Case 12: an error of any system call comes back typed, with its number; the old row is
// intact and no temp file is left; other rows are served. Where only the folder's fsync
// failed, the new row is visible and the error says that its durability is unknown.
func TestInjectedErrors(t *testing.T) {
	needStrace(t)
	errnos := map[string]string{
		"openat": "EMFILE", "write": "ENOSPC", "fsync": "EIO", "renameat": "EROFS", "renameat2": "EDQUOT", "fchmod": "EROFS", "flock": "ENOLCK",
	}
	if *storeFull {
		errnos = map[string]string{
			"openat": "EMFILE ENFILE ENOSPC EDQUOT EIO EROFS EACCES", "write": "ENOSPC EDQUOT EIO", "fsync": "ENOSPC EDQUOT EIO EROFS",
			"renameat": "ENOSPC EDQUOT EIO EROFS", "renameat2": "ENOSPC EDQUOT EIO EROFS", "fchmod": "EIO EROFS", "flock": "ENOLCK EOPNOTSUPP EIO",
			"read": "EIO", "newfstatat": "EIO", "close": "EIO EDQUOT", "mkdirat": "ENOSPC EROFS",
		}
	}
	for _, step := range []string{"update", "relaxed update", "update of a filed row", "create", "event", "claim"} {
		t.Run(step, func(t *testing.T) {
			t.Parallel()
			c := crashSteps[step]
			s, arg := crashLedger(t, step)
			trace, _ := traced(t, arg, "")
			seen := map[string]int{}
			for _, at := range points(t, trace, s.root, slices.Collect(maps.Keys(errnos))) {
				if at.call == "openat" && step == "claim" && !*storeFull {
					continue // it reads much
				}
				for errno := range strings.FieldsSeq(errnos[at.call]) {
					t.Run(fmt.Sprintf("%s-%d-%s", at.call, at.n, errno), func(t *testing.T) {
						s, arg := crashLedger(t, step)
						trace, report := traced(t, arg, fmt.Sprintf("%s:error=%s:when=%d", at.call, errno, at.n))
						if !inStep(trace, s.root) {
							return // the fault met the set-up, what comes after the step, or Go's own files
						}
						state := c.state(t, s, arg)
						seen[state+map[bool]string{true: " unsynced"}[report != nil && report.Unsynced]]++
						switch {
						case report == nil:
							t.Fatal("the child died of it")
						case report.Err == "" && state == "new": // not every error matters
						case report.Unsynced && state == "new" && at.call == "fsync":
						case report.Err != "" && !report.Unsynced && state == "old" && (report.Errno == errnoOf(t, errno) || report.Unknown):
						default:
							t.Errorf("%+v, and the row is %s\n%s", report, state, trace)
						}
						// Locks are taken by threads of their own, each with a count of its own.
						if report.After != "" && strings.Count(trace, "INJECTED") == 1 {
							t.Errorf("another row in the same process: %s", report.After)
						}
						if n := temps(t, s); n > 0 {
							t.Errorf("%d temp files are left", n)
						}
						c.after(t, s, arg)
					})
				}
			}
			t.Logf("outcomes: %v", seen)
			if seen["old"] == 0 || seen["new unsynced"] == 0 && step != "relaxed update" {
				t.Errorf("outcomes %v", seen)
			}
		})
	}
}

// inStep reports whether the injected faults lie between the marks of a trace, or the first
// of them, and met files of the ledger at dir alone: the runtime writes too, and dies when
// it cannot.
func inStep(trace, dir string) bool {
	begin, fault, end := strings.Index(trace, "ledger-test-begin"), strings.Index(trace, "INJECTED"), strings.Index(trace, "ledger-test-end")
	for line := range strings.Lines(trace) {
		if strings.Contains(line, "INJECTED") && !strings.Contains(line, dir) {
			return false
		}
	}
	return begin >= 0 && begin < fault && (end < 0 || fault < end)
}

func errnoOf(t *testing.T, name string) syscall.Errno {
	t.Helper()
	if name == "EOPNOTSUPP" { // the same number as ENOTSUP
		return syscall.EOPNOTSUPP
	}
	for n := syscall.Errno(1); n < 200; n++ {
		if unix.ErrnoName(n) == name {
			return n
		}
	}
	t.Fatalf("unknown error %s", name)
	return 0
}
