package ledger

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Case 1: an empty or missing root lists nothing and is made 0700; files are 0600, folders
// 0700, whatever the umask.
func TestOpenMakesPrivateFilesWhateverTheUmask(t *testing.T) {
	for _, mask := range []int{0, 0o777} {
		t.Run(fmt.Sprintf("%04o", mask), func(t *testing.T) {
			need(t, mask != 0o777 || os.Getuid() == 0, "root, to enter what umask 0777 makes")
			dir := filepath.Join(t.TempDir(), "a", "ledger")
			startChild(t, childUmask, umaskArg{Dir: dir, Mask: mask}).wait(t)
			n := 0
			err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
				if err != nil {
					return err
				}
				info, err := d.Info()
				want := fs.FileMode(0o600)
				if d.IsDir() {
					want = 0o700
				}
				if err == nil && info.Mode().Perm() != want {
					t.Errorf("%s has mode %#o, want %#o", path, info.Mode().Perm(), want)
				}
				n++
				return err
			})
			if err != nil || n < 10 {
				t.Errorf("%d files and folders, %v", n, err)
			}
			checkLedger(t, dir)
		})
	}
}

type umaskArg struct {
	Dir  string
	Mask int
}

var childUmask = inChild("umask", func(arg umaskArg) error {
	syscall.Umask(arg.Mask)
	s, err := Open(arg.Dir, nil)
	if err != nil {
		return err
	}
	ctx := context.Background()
	for e, err := range s.Entries(ctx) {
		return fmt.Errorf("a new ledger lists %v, %v", e.LedgerID, err)
	}
	p, err := Self()
	if err != nil {
		return err
	}
	e, err := s.Create(ctx, Entry{Runtime: "claude", Window: "w", SessionID: "c"}, Enrol(p, Location{}))
	if err != nil {
		return err
	}
	if e, err = s.Update(ctx, e.LedgerID, touch); err != nil {
		return err
	}
	if _, _, err := s.Apply(ctx, e.LedgerID, Finish(p.Key(), "")); err != nil {
		return err
	}
	late, err := Open(arg.Dir, &Options{Clock: clockAt(time.Now().Add(time.Hour))})
	if err != nil {
		return err
	}
	if tidied, err := late.Tidy(ctx); err != nil || len(tidied.Filed) != 1 {
		return fmt.Errorf("tidy: %+v, %v", tidied, err)
	}
	path := s.path(dirSessions, "torn.json")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		return err
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return err
	}
	return s.Repair(ctx, "torn")
})

// clockAt is a clock that stands.
type clockAt time.Time

func (c clockAt) Now() time.Time { return time.Time(c) }

// The default folder: $AGENT_SESSIONS_DIR, $XDG_STATE_HOME, ~/.local/state.
func TestDefaultRoot(t *testing.T) {
	home := t.TempDir()
	for _, tt := range []struct{ dir, agent, xdg, want string }{
		{"/d", "/a", "/x", "/d"},
		{"", "/a", "/x", "/a"},
		{"", "", "/x", "/x/agent-sessions"},
		{"", "", "relative", home + "/.local/state/agent-sessions"},
		{"", "", "", home + "/.local/state/agent-sessions"},
	} {
		t.Setenv("AGENT_SESSIONS_DIR", tt.agent)
		t.Setenv("XDG_STATE_HOME", tt.xdg)
		if root, _, err := resolveRoot(tt.dir, home); err != nil || root != tt.want {
			t.Errorf("%+v: root %q, %v", tt, root, err)
		}
	}
	t.Setenv("AGENT_SESSIONS_DIR", "")
	t.Setenv("HOME", "")
	if _, err := Open("", nil); err == nil {
		t.Error("opened a ledger without knowing where")
	}
}

// Case 2: a root that others control is refused; one that can be tightened is.
func TestOpenRefusesAnInsecureRoot(t *testing.T) {
	base := t.TempDir()
	at := func(name string) string { return filepath.Join(base, name) }
	make := func(name string, mode fs.FileMode) string {
		if err := os.Mkdir(at(name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(at(name), mode); err != nil {
			t.Fatal(err)
		}
		return at(name)
	}
	make("real", 0o700)
	if err := os.Symlink("real", at("link")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("nowhere", at("dangling")); err != nil {
		t.Fatal(err)
	}
	putFile(t, at("file"), "")
	for _, name := range []string{"link", "link/", "dangling", "file"} {
		if _, err := Open(base+"/"+name, nil); !errors.Is(err, ErrInsecureRoot) {
			t.Errorf("%s: %v, want ErrInsecureRoot", name, err)
		}
	}
	if _, err := os.Lstat(at("nowhere")); err == nil {
		t.Error("the target of a dangling link was made")
	}
	for _, mode := range []fs.FileMode{0o770, 0o707, 0o777 | fs.ModeSticky, 0o722} {
		path := make(fmt.Sprintf("%o", mode), mode)
		openStore(t, path, nil)
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o700 {
			t.Errorf("mode %#o became %#o, %v", mode, info.Mode().Perm(), err)
		}
	}
	// Others may look, if that is how it was made.
	path := make("open", 0o755)
	openStore(t, path, nil)
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o755 {
		t.Errorf("a folder that only its owner writes to: mode %#o, %v", info.Mode().Perm(), err)
	}

	need(t, os.Getuid() == 0, "root, to give a folder away")
	foreign := make("foreign", 0o700)
	if err := os.Chown(foreign, 65534, 65534); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(foreign, nil); !errors.Is(err, ErrInsecureRoot) {
		t.Errorf("another user's folder: %v, want ErrInsecureRoot", err)
	}
}

// Two processes that lock in different folders exclude nobody.
func TestLocksThatLieElsewhereAreRefused(t *testing.T) {
	s := newStore(t, nil)
	born(t, s, "row")
	if err := os.RemoveAll(s.path(dirLocks)); err != nil {
		t.Fatal(err)
	}
	for name, put := range map[string]func() error{
		"symlink": func() error { return os.Symlink(t.TempDir(), s.path(dirLocks)) },
		"file":    func() error { return os.WriteFile(s.path(dirLocks), nil, 0o600) },
	} {
		if err := put(); err != nil {
			t.Fatal(err)
		}
		again := openStore(t, s.root, nil)
		if _, err := again.Update(t.Context(), "row", touch); !errors.Is(err, ErrInsecureRoot) {
			t.Errorf("%s: %v, want ErrInsecureRoot", name, err)
		}
		if _, err := again.Get(t.Context(), "row"); err != nil {
			t.Errorf("%s: reading: %v", name, err)
		}
		if err := os.Remove(s.path(dirLocks)); err != nil {
			t.Fatal(err)
		}
	}
}

// Case 16: what is no plain id is refused everywhere.
func TestOddIDsAreRefusedEverywhere(t *testing.T) {
	s := newStore(t, nil)
	ctx := t.Context()
	for _, id := range []string{"", ".", "..", "a/b", "../a", "a..b", "a\x00b", "a\nb", ".a", "-a", "a b", "ä", "a.lock",
		strings.Repeat("a", 129), strings.Repeat("a", 300)} {
		_, getErr := s.Get(ctx, id)
		_, updateErr := s.Update(ctx, id, touch)
		_, _, applyErr := s.Apply(ctx, id, IntendKill())
		_, batchErrs := s.batch(ctx, []change{{id, func(e *Entry) (verdict, error) { return unchanged, touch(e) }}})
		repairErr := s.Repair(ctx, id)
		errs := map[string]error{"Get": getErr, "Update": updateErr, "Apply": applyErr, "batch": batchErrs[0], "Repair": repairErr}
		if id != "" { // an empty one is minted, or not given
			_, errs["Create"] = s.Create(ctx, Entry{LedgerID: id, Runtime: "claude"}, BeginCreate(self(t)))
			_, errs["Find"] = s.Find(ctx, Query{Prefix: id})
		}
		for verb, err := range errs {
			if !errors.Is(err, ErrInvalid) {
				t.Errorf("%s(%.20q): %v, want ErrInvalid", verb, id, err)
			}
		}
	}
	for _, runtime := range []string{"../x", "a b", strings.Repeat("r", 200)} {
		if _, err := s.Create(ctx, Entry{Runtime: runtime}, BeginCreate(self(t))); !errors.Is(err, ErrInvalid) {
			t.Errorf("runtime %.20q: %v, want ErrInvalid", runtime, err)
		}
	}
	if rows, damaged := listed(t, s); len(rows)+len(damaged) > 0 {
		t.Errorf("rows came up: %v %v", rows, damaged)
	}
	for id, want := range map[string]bool{"a": true, "A1._-z": true, strings.Repeat("a", 128): true, "a.locked": true} {
		if isPlainID(id) != want {
			t.Errorf("isPlainID(%.20q) is %t", id, !want)
		}
	}
}

// The stripe of an id is pinned: two versions that differ would not exclude each other.
func TestStripesArePinned(t *testing.T) {
	for name, want := range map[string]string{
		"": "037", "a": "140", "claude-20261130T120000Z-000001": "022",
	} {
		if got := stripe(name); got != want {
			t.Errorf("stripe(%q) is %s, want %s", name, got, want)
		}
	}
}

// Case 8: ids differ though all is created in one second; Create never replaces.
func TestCreateNeverReplaces(t *testing.T) {
	s := newStore(t, &Options{Clock: newClock()})
	ctx := t.Context()
	ids := map[string]bool{}
	for range 20 {
		e := born(t, s, "")
		if ids[e.LedgerID] || !strings.HasPrefix(e.LedgerID, "claude-20261130T120000Z-") || e.Revision != 1 {
			t.Errorf("%q, revision %d", e.LedgerID, e.Revision)
		}
		ids[e.LedgerID] = true
	}
	e := born(t, s, "mine")
	before := readFile(t, rowPath(s, "mine"))
	if _, err := s.Create(ctx, Entry{LedgerID: "mine", Runtime: "codex"}, BeginCreate(self(t))); !errors.Is(err, ErrExists) {
		t.Errorf("an id that is taken: %v, want ErrExists", err)
	}
	if got := readFile(t, rowPath(s, "mine")); got != before {
		t.Errorf("the row changed: %s", got)
	}
	// The same of a row that is finished and filed away.
	finished(t, s, e.LedgerID)
	clock := s.clock.(*fakeClock)
	clock.advance(time.Hour)
	if tidied, err := s.Tidy(ctx); err != nil || len(tidied.Filed) != 1 {
		t.Fatalf("tidy: %+v, %v", tidied, err)
	}
	if _, err := s.Create(ctx, Entry{LedgerID: "mine", Runtime: "codex"}, BeginCreate(self(t))); !errors.Is(err, ErrExists) {
		t.Errorf("a filed row's id: %v, want ErrExists", err)
	}
	putRow(t, s, "torn", "{")
	if _, err := s.Create(ctx, Entry{LedgerID: "torn", Runtime: "codex"}, BeginCreate(self(t))); !errors.Is(err, ErrDamaged) {
		t.Errorf("a damaged row's id: %v, want ErrDamaged", err)
	}
	if got := readFile(t, rowPath(s, "torn")); got != "{" {
		t.Errorf("the damaged row changed: %q", got)
	}
}

func TestCreateRefusesWhatOnlyEventsMove(t *testing.T) {
	s := newStore(t, nil)
	ticks := uint64(7)
	for name, e := range map[string]Entry{
		"pid":           {Runtime: "claude", PID: 7},
		"pidStartTicks": {Runtime: "claude", PIDStartTicks: &ticks},
		"phase":         {Runtime: "claude", Phase: PhaseFrozen},
		"finishedAt":    {Runtime: "claude", FinishedAt: time.Now()},
		"revision":      {Runtime: "claude", Revision: 7},
		"rescueRef":     {Runtime: "claude", RescueRef: "refs/x"},
		"lease":         {Runtime: "claude", Lease: &Lease{}},
	} {
		_, err := s.Create(t.Context(), e, BeginCreate(self(t)))
		var protected *ProtectedFieldError
		if !errors.As(err, &protected) || protected.Field != name {
			t.Errorf("%s: %v, want it named", name, err)
		}
	}
	if _, err := s.Create(t.Context(), Entry{}, BeginCreate(self(t))); !errors.Is(err, ErrInvalid) {
		t.Errorf("no runtime: %v, want ErrInvalid", err)
	}
	if _, err := s.Create(t.Context(), Entry{Runtime: "claude", SchemaVersion: 2}, BeginCreate(self(t))); !errors.Is(err, ErrSchemaTooNew) {
		t.Errorf("a newer version: %v, want ErrSchemaTooNew", err)
	}
	if _, err := s.Create(t.Context(), Entry{Runtime: "claude", AgentString: strings.Repeat("x", maxUpdate)}, BeginCreate(self(t))); !errors.Is(err, ErrInvalid) {
		t.Errorf("too large: %v, want ErrInvalid", err)
	}
	if _, err := s.Create(t.Context(), Entry{Runtime: "claude"}, IntendKill()); err == nil {
		t.Error("a row was born by what is no birth")
	}
	gone, cmd := startProcess(t)
	endProcess(cmd)
	if _, err := s.Create(t.Context(), Entry{Runtime: "claude"}, Enrol(gone, Location{})); err == nil {
		t.Error("a process that is gone was enrolled")
	}
	if rows, _ := listed(t, s); len(rows) > 0 {
		t.Errorf("rows came up: %v", rows)
	}
}

// Case 17: closing writes nothing and removes nothing; later calls fail.
func TestCloseWritesNothing(t *testing.T) {
	s := newStore(t, nil)
	e, _ := enrolled(t, s, Entry{SessionID: "c", Window: "w"})
	before := snapshotFiles(t, s.root)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if after := snapshotFiles(t, s.root); !reflect.DeepEqual(before, after) {
		t.Errorf("closing changed\n%v\nto\n%v", before, after)
	}
	ctx := t.Context()
	_, getErr := s.Get(ctx, e.LedgerID)
	_, updateErr := s.Update(ctx, e.LedgerID, touch)
	_, _, applyErr := s.Apply(ctx, e.LedgerID, IntendKill())
	_, createErr := s.Create(ctx, Entry{Runtime: "claude"}, BeginCreate(self(t)))
	_, findErr := s.Find(ctx, Query{Prefix: e.LedgerID})
	_, checkErr := s.Check(ctx)
	_, tidyErr := s.Tidy(ctx)
	errs := []error{getErr, updateErr, applyErr, createErr, findErr, checkErr, tidyErr, s.Repair(ctx, "x")}
	for _, err := range s.Entries(ctx) {
		errs = append(errs, err)
	}
	for i, err := range errs {
		if !errors.Is(err, fs.ErrClosed) {
			t.Errorf("call %d on a closed store: %v, want ErrClosed", i, err)
		}
	}
	if len(errs) != 9 {
		t.Errorf("%d errors", len(errs))
	}
	if after := snapshotFiles(t, s.root); !reflect.DeepEqual(before, after) {
		t.Error("calls on a closed store changed the ledger")
	}
}

// A store that is closed under its writers leaves each of them with ErrClosed, and not with
// a row that only seems damaged.
func TestCloseUnderWriters(t *testing.T) {
	keeper := newStore(t, nil)
	id := born(t, keeper, "row").LedgerID
	for range 10 {
		s, err := Open(keeper.root, nil)
		if err != nil {
			t.Fatal(err)
		}
		begun := make(chan struct{}, 2)
		var writers sync.WaitGroup
		write := func(write func() error) {
			for first := true; ; first = false {
				if err := write(); err != nil {
					if !errors.Is(err, fs.ErrClosed) {
						t.Errorf("%v, want ErrClosed", err)
					}
					return
				}
				if first {
					begun <- struct{}{}
				}
			}
		}
		writers.Go(func() {
			write(func() error {
				_, err := s.Update(t.Context(), id, touch, Relaxed())
				return err
			})
		})
		writers.Go(func() {
			write(func() error {
				_, errs := s.batch(t.Context(), []change{{id, func(e *Entry) (verdict, error) { return unchanged, touch(e) }}})
				return errs[0]
			})
		})
		<-begun
		<-begun
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		writers.Wait()
	}
}

// snapshotFiles is every file below dir with its content and times.
func snapshotFiles(t testing.TB, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		text := fmt.Sprintf("%v %v %d", info.Mode(), info.ModTime(), info.Sys().(*syscall.Stat_t).Ino)
		if info.Mode().IsRegular() {
			text += " " + readFile(t, path)
		}
		files[path] = text
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// Case 18: no method takes or returns a set of rows to be stored.
func TestNothingReplacesTheSetOfRows(t *testing.T) {
	rows := reflect.TypeFor[[]Entry]()
	typ := reflect.TypeFor[*Store]()
	for i := range typ.NumMethod() {
		m := typ.Method(i)
		for j := range m.Type.NumIn() {
			in := m.Type.In(j)
			if in == rows || in.Kind() == reflect.Map && in.Elem() == reflect.TypeFor[Entry]() {
				t.Errorf("%s takes %s", m.Name, in)
			}
		}
	}
}

func TestUpdateOptions(t *testing.T) {
	s := newStore(t, nil)
	ctx := t.Context()
	e := born(t, s, "row")
	for _, tt := range []struct {
		name string
		opts []UpdateOption
		err  error
	}{
		{"the revision", []UpdateOption{IfRevision(e.Revision)}, nil},
		{"an old revision", []UpdateOption{IfRevision(e.Revision)}, ErrConflict},
		{"revision 0", []UpdateOption{IfRevision(0)}, ErrConflict},
		{"the epoch", []UpdateOption{IfEpoch(e.Epoch)}, nil},
		{"another epoch", []UpdateOption{IfEpoch(e.Epoch + 1)}, ErrConflict},
		{"both, relaxed", []UpdateOption{IfEpoch(e.Epoch), IfRevision(e.Revision + 2), Relaxed()}, nil},
	} {
		before := readFile(t, rowPath(s, "row"))
		got, err := s.Update(ctx, "row", touch, tt.opts...)
		if !errors.Is(err, tt.err) {
			t.Errorf("%s: %v, want %v", tt.name, err, tt.err)
		}
		if changed := readFile(t, rowPath(s, "row")) != before; changed != (tt.err == nil) {
			t.Errorf("%s: written %t, revision %d", tt.name, changed, got.Revision)
		}
	}
	if e, err := s.Get(ctx, "row"); err != nil || e.Revision != 4 || e.Operation != "xxx" {
		t.Errorf("%+v, %v", e, err)
	}
}

func TestUpdateThatChangesNothingWritesNothing(t *testing.T) {
	s := newStore(t, nil)
	born(t, s, "row")
	before := snapshotFiles(t, s.root)
	got, err := s.Update(t.Context(), "row", func(e *Entry) error { e.Branch = ""; return nil })
	if err != nil || got.Revision != 1 {
		t.Errorf("revision %d, %v", got.Revision, err)
	}
	mine := errors.New("mine")
	if _, err := s.Update(t.Context(), "row", func(e *Entry) error { e.Branch = "x"; return mine }); err != mine {
		t.Errorf("fn's error came back as %v", err)
	}
	if after := snapshotFiles(t, s.root); !reflect.DeepEqual(before, after) {
		t.Errorf("something was written:\n%v\n%v", before, after)
	}
	func() {
		defer func() { recover() }()
		s.Update(t.Context(), "row", func(*Entry) error { panic("fn") })
	}()
	if _, err := s.Update(t.Context(), "row", touch); err != nil {
		t.Errorf("after a panic: %v", err)
	}
}

// Every member that only events may move is refused by name, and nothing is written.
func TestUpdateRefusesWhatOnlyEventsMove(t *testing.T) {
	s := newStore(t, nil)
	e, _ := enrolled(t, s, Entry{SessionID: "c", Window: "w", Cwd: "/work", RepoRoot: "/work"})
	moved := map[string]func(e *Entry){
		"repoRoot": func(e *Entry) { e.RepoRoot = "/else" },
		"mux":      func(e *Entry) { e.Mux.Kind = MuxDtach },
		"lease":    func(e *Entry) { e.Lease = &Lease{Op: OpKill} },
	}
	for _, p := range protected {
		change := moved[p.name]
		if change == nil {
			field := fieldByJSON(t, p.name)
			change = func(e *Entry) { perturb(t, reflect.ValueOf(e).Elem().FieldByIndex(field)) }
		}
		before := readFile(t, rowPath(s, e.LedgerID))
		_, err := s.Update(t.Context(), e.LedgerID, func(e *Entry) error { change(e); return nil })
		var named *ProtectedFieldError
		if !errors.As(err, &named) || named.Field != p.name || !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v, want it named", p.name, err)
		}
		if readFile(t, rowPath(s, e.LedgerID)) != before {
			t.Errorf("%s: the row was written", p.name)
		}
	}
	// What an embedder may change, to compare.
	if _, err := s.Update(t.Context(), e.LedgerID, func(e *Entry) error {
		e.Branch, e.TaskID, e.Model, e.LastHeartbeatAt = "b", "t", "m", time.Now()
		return nil
	}); err != nil {
		t.Errorf("free members: %v", err)
	}
}

func fieldByJSON(t testing.TB, name string) []int {
	t.Helper()
	typ := reflect.TypeFor[Entry]()
	for i := range typ.NumField() {
		if tag, _, _ := strings.Cut(typ.Field(i).Tag.Get("json"), ","); tag == name {
			return []int{i}
		}
	}
	t.Fatalf("no member is called %q", name)
	return nil
}

// perturb changes a value of any kind that a row has.
func perturb(t testing.TB, v reflect.Value) {
	t.Helper()
	switch v.Kind() {
	case reflect.String:
		v.SetString(v.String() + "x")
	case reflect.Int:
		v.SetInt(v.Int() + 1)
	case reflect.Uint64:
		v.SetUint(v.Uint() + 1)
	case reflect.Bool:
		v.SetBool(!v.Bool())
	case reflect.Pointer:
		p := reflect.New(v.Type().Elem())
		perturb(t, p.Elem())
		v.Set(p)
	case reflect.Slice:
		one := reflect.New(v.Type().Elem()).Elem()
		perturb(t, one)
		v.Set(reflect.Append(v, one))
	case reflect.Struct:
		if at, ok := v.Interface().(time.Time); ok {
			v.Set(reflect.ValueOf(at.Add(time.Hour)))
			return
		}
		perturb(t, v.Field(0))
	default:
		t.Fatalf("cannot change a %s", v.Type())
	}
}

// The size of a row: an embedder's write leaves room for the transitions to come.
func TestSizeLimits(t *testing.T) {
	t.Parallel()
	s := newStore(t, nil)
	ctx := t.Context()
	born(t, s, "row")
	grow := func(n int) error {
		_, err := s.Update(ctx, "row", func(e *Entry) error { e.AgentString = strings.Repeat("x", n); return nil })
		return err
	}
	if err := grow(maxUpdate); !errors.Is(err, ErrInvalid) {
		t.Errorf("an update over the limit: %v, want ErrInvalid", err)
	}
	if err := grow(maxUpdate - 4096); err != nil {
		t.Errorf("an update below the limit: %v", err)
	}
	apply(t, s, "row", IntendKill())
	e, err := s.Get(ctx, "row")
	if err != nil || e.KillIntentAt.IsZero() {
		t.Errorf("a transition of a full row: %v", err)
	}
	// A transition may go over the embedder's limit, not over the reader's.
	if _, err := s.rewrite(ctx, "row", true, maxRow, func(e *Entry) (verdict, error) {
		e.AgentString = strings.Repeat("x", maxRow)
		return unchanged, nil
	}); !errors.Is(err, ErrInvalid) {
		t.Errorf("a row over the reader's limit: %v, want ErrInvalid", err)
	}
	if _, err := s.rewrite(ctx, "row", true, maxRow, func(e *Entry) (verdict, error) {
		e.AgentString = strings.Repeat("x", maxRow-4096)
		return unchanged, nil
	}); err != nil {
		t.Errorf("a row at the reader's limit: %v", err)
	}
	if e, err := s.Get(ctx, "row"); err != nil || len(e.AgentString) != maxRow-4096 {
		t.Errorf("reading it back: %v", err)
	}
}

// Case 14: a wait for a lock obeys cancellation at once, and leaks neither goroutine nor
// descriptor. (What remains is checked for the whole package by goleak.)
func TestLockWaitObeysCancellation(t *testing.T) {
	s := newStore(t, nil)
	other := openStore(t, s.root, &Options{LockWait: 50 * time.Millisecond})
	e := born(t, s, "row")
	unlock, err := s.lockRow(t.Context(), "row")
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	before := descriptors(t)
	var timeout *LockTimeoutError
	// Without a deadline, the store's own bound applies.
	_, err = other.Update(t.Context(), "row", touch)
	if !errors.As(err, &timeout) || !errors.Is(err, ErrBusy) || !errors.Is(err, context.DeadlineExceeded) || timeout.HolderPID != os.Getpid() {
		t.Errorf("%v, want a LockTimeoutError that names this process", err)
	}
	for range 20 {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 2)
		go func() {
			_, err := s.Update(ctx, "row", touch) // waits in this process
			done <- err
		}()
		go func() {
			_, _, err := other.Apply(ctx, "row", IntendKill())
			done <- err
		}()
		cancel()
		for range 2 {
			if err := <-done; !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("a cancelled wait: %v", err)
			}
		}
	}
	// One goroutine may be left in the kernel, with one descriptor, until the lock is free.
	await(t, "descriptors are given back", func() bool { return descriptors(t) <= before+2 })
	unlock()
	await(t, "all of them", func() bool { return descriptors(t) <= before })
	if got, err := s.Update(t.Context(), "row", touch, IfRevision(e.Revision)); err != nil || got.Revision != e.Revision+1 {
		t.Errorf("afterwards: %+v, %v", got, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Update(ctx, "row", touch); !errors.Is(err, context.Canceled) {
		t.Errorf("an update whose context has ended: %v", err)
	}
}

func descriptors(t testing.TB) int {
	t.Helper()
	need(t, runtime.GOOS == "linux", "/proc")
	names, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(names)
}
