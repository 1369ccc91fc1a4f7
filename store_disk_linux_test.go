package ledger

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// mountTmpfs mounts a small file system for the test.
func mountTmpfs(t *testing.T, options string) string {
	t.Helper()
	need(t, os.Getuid() == 0, "root")
	path := t.TempDir()
	err := unix.Mount("ledger-test", path, "tmpfs", 0, options)
	need(t, err == nil, "leave to mount")
	t.Cleanup(func() {
		if err := unix.Unmount(path, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return path
}

// Case 12: on a full disk every writer fails with ENOSPC, every row stays as it is, readers
// are served, and all is well once there is room.
func TestFullDisk(t *testing.T) {
	disk := mountTmpfs(t, "size=256k,mode=700")
	s := openStore(t, filepath.Join(disk, "ledger"), nil)
	ctx := t.Context()
	row, _ := enrolled(t, s, Entry{SessionID: "c"})
	born(t, s, "other")
	p, _ := startProcess(t)
	filler := filepath.Join(disk, "filler")
	if err := os.WriteFile(filler, make([]byte, 1<<20), 0o600); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("filling the disk: %v", err)
	}
	before := readFile(t, rowPath(s, row.LedgerID))
	_, updateErr := s.Update(ctx, row.LedgerID, func(e *Entry) error { e.AgentString = strings.Repeat("x", 20000); return nil })
	_, relaxedErr := s.Update(ctx, row.LedgerID, func(e *Entry) error { e.AgentString = strings.Repeat("x", 20000); return nil }, Relaxed())
	_, createErr := s.Create(ctx, Entry{Runtime: "claude", AgentString: strings.Repeat("x", 20000)}, Enrol(p, Location{}))
	_, batchErrs := s.batch(ctx, []change{{row.LedgerID, func(e *Entry) (verdict, error) { e.AgentString = strings.Repeat("x", 20000); return unchanged, nil }}})
	for i, err := range []error{updateErr, relaxedErr, createErr, batchErrs[0]} {
		if !errors.Is(err, syscall.ENOSPC) || isUnsynced(err) {
			t.Errorf("writer %d: %v, want ENOSPC", i, err)
		}
	}
	if got := readFile(t, rowPath(s, row.LedgerID)); got != before {
		t.Errorf("the row is %.100q", got)
	}
	if rows, damaged := listed(t, s); len(rows) != 2 || len(damaged) > 0 || temps(t, s) > 0 {
		t.Errorf("%d rows, %v, %d temp files", len(rows), damaged, temps(t, s))
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Update(ctx, row.LedgerID, touch); err != nil {
		t.Errorf("once there is room: %v", err)
	}
	if e, err := s.Create(ctx, Entry{Runtime: "claude", SessionID: "c"}, Enrol(p, Location{})); err != nil || e.SessionID != "" {
		t.Errorf("once there is room: %+v, %v", e, err)
	}
	checkLedger(t, s.root)
}

// Case 12: a read-only file system serves readers, whole; writers fail with EROFS.
func TestReadOnlyRoot(t *testing.T) {
	disk := mountTmpfs(t, "size=1m,mode=700")
	root := filepath.Join(disk, "ledger")
	s := openStore(t, root, nil)
	ctx := t.Context()
	row, _ := enrolled(t, s, Entry{SessionID: "c"})
	putRow(t, s, "torn", "{")
	if err := unix.Mount("", disk, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	for name, s := range map[string]*Store{"open before": s, "opened then": openStore(t, root, nil)} {
		if rows, damaged := listed(t, s); len(rows) != 1 || len(damaged) != 1 {
			t.Errorf("%s: %v %v", name, rows, damaged)
		}
		for _, q := range []Query{{Process: row.Process()}, {Conversation: Conversation{"claude", "c"}}, {Prefix: "claude"}} {
			if e, err := s.Find(ctx, q); err != nil || e.LedgerID != row.LedgerID {
				t.Errorf("%s: %+v: %v", name, q, err)
			}
		}
		if _, err := s.Check(ctx); err != nil {
			t.Errorf("%s: check: %v", name, err)
		}
		_, updateErr := s.Update(ctx, row.LedgerID, touch)
		_, createErr := s.Create(ctx, Entry{Runtime: "claude"}, BeginCreate(self(t)))
		_, _, applyErr := s.Apply(ctx, row.LedgerID, IntendKill())
		_, _, claimErr := s.Apply(ctx, row.LedgerID, Claim("d", "hook"))
		for i, err := range []error{updateErr, createErr, applyErr, claimErr, s.Repair(ctx, "torn")} {
			if !errors.Is(err, syscall.EROFS) {
				t.Errorf("%s: writer %d: %v, want EROFS", name, i, err)
			}
		}
	}
	if _, err := Open(filepath.Join(disk, "new"), nil); !errors.Is(err, syscall.EROFS) {
		t.Errorf("a new ledger: %v, want EROFS", err)
	}
}

// childUnprivileged reads and writes a ledger that it owns and may not write to, as nobody.
var childUnprivileged = inChild("unprivileged", func(dir string) error {
	if err := errors.Join(syscall.Setgid(65534), syscall.Setuid(65534)); err != nil {
		return err
	}
	s, err := Open(dir, nil)
	if err != nil {
		return err
	}
	ctx := context.Background()
	n := 0
	for _, err := range s.Entries(ctx) {
		if err != nil {
			return err
		}
		n++
	}
	if _, err := s.Get(ctx, "row"); err != nil || n != 1 {
		return fmt.Errorf("%d rows, %w", n, err)
	}
	_, updateErr := s.Update(ctx, "row", touch)
	_, createErr := s.Create(ctx, Entry{LedgerID: "new", Runtime: "claude"}, BeginCreate(ProcessID{BootID: "b", PID: 1}))
	for _, err := range []error{updateErr, createErr} {
		if !errors.Is(err, syscall.EACCES) {
			return fmt.Errorf("a writer: %w, want EACCES", err)
		}
	}
	return nil
})

// reachableStore is a ledger whose folder a child that becomes nobody can look for: t.TempDir is
// closed to others.
func reachableStore(t *testing.T) *Store {
	t.Helper()
	need(t, os.Getuid() == 0, "root, to become nobody")
	dir, err := os.MkdirTemp("", "ledger-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return openStore(t, filepath.Join(dir, "ledger"), nil)
}

func TestRootWithoutWritePermission(t *testing.T) {
	s := reachableStore(t)
	born(t, s, "row")
	if err := filepath.WalkDir(s.root, func(path string, d os.DirEntry, err error) error {
		mode := os.FileMode(0o400)
		if d.IsDir() {
			mode = 0o500
		}
		return errors.Join(err, os.Chown(path, 65534, 65534), os.Chmod(path, mode))
	}); err != nil {
		t.Fatal(err)
	}
	startChild(t, childUnprivileged, s.root).wait(t)
	// Nor is somebody else's folder opened, even by root.
	if _, err := Open(s.root, nil); !errors.Is(err, ErrInsecureRoot) {
		t.Errorf("another user's ledger: %v, want ErrInsecureRoot", err)
	}
}

// childDescriptors runs out of descriptors, and has them again.
var childDescriptors = inChild("descriptors", func(dir string) error {
	s, err := Open(dir, nil)
	if err != nil {
		return err
	}
	ctx := context.Background()
	if _, err := s.Get(ctx, "row"); err != nil {
		return err
	}
	f, err := os.Open(os.DevNull)
	if err != nil {
		return err
	}
	var old unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
		return err
	}
	lowest := uint64(f.Fd())
	f.Close()
	for free := range uint64(4) { // none, or too few for all steps
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: lowest + free, Max: old.Max}); err != nil {
			return err
		}
		var errs []error
		for _, err := range s.Entries(ctx) {
			errs = append(errs, err)
		}
		_, getErr := s.Get(ctx, "row")
		_, updateErr := s.Update(ctx, "row", touch)
		errs = append(errs, getErr, updateErr)
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
			return err
		}
		for i, err := range errs {
			if free < 2 && err == nil || err != nil && (!errors.Is(err, syscall.EMFILE) || errors.Is(err, ErrDamaged)) {
				return fmt.Errorf("call %d with %d descriptors: %w, want EMFILE", i, free, err)
			}
		}
	}
	_, err = s.Update(ctx, "row", touch)
	return err
})

// Case 12: a lack of descriptors is an error of the call, never a damaged row.
func TestNoDescriptors(t *testing.T) {
	s := newStore(t, nil)
	born(t, s, "row")
	startChild(t, childDescriptors, s.root).wait(t)
	if temps(t, s) > 0 {
		t.Errorf("%d temp files are left", temps(t, s))
	}
}

func runTool(t *testing.T, name string, args ...string) {
	t.Helper()
	_, err := exec.LookPath(name)
	need(t, err == nil, name)
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
}

// After a power cut every row is as the last durable write left it, whole; relaxed writes
// are there or not. The disk as the cut leaves it is a copy of its image: what the file
// system has not written to it is not there.
func TestPowerCut(t *testing.T) {
	t.Parallel()
	mountTmpfs(t, "size=4k") // else there is no leave to mount
	image := filepath.Join(t.TempDir(), "image")
	if err := os.WriteFile(image, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(image, 16<<20); err != nil {
		t.Fatal(err)
	}
	runTool(t, "mkfs.ext4", "-q", "-F", image)
	disk := t.TempDir()
	mount := func(image string) {
		runTool(t, "mount", "-o", "loop,commit=900", image, disk) // nothing is written unasked
		if err := os.Chmod(disk, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	mounted := false
	unmount := func() {
		if mounted {
			mounted = false
			runTool(t, "umount", disk)
		}
	}
	defer unmount()
	mount(image)
	mounted = true
	root := filepath.Join(disk, "a", "ledger")

	clock := newClock()
	s, err := Open(root, &Options{Clock: clock})
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	p, _ := startProcess(t)
	var drop Event
	edit := func(e *Entry) (verdict, error) { return unchanged, touch(e) }
	steps := []struct {
		name string
		do   func() error
		want func(rows map[string]Entry) bool
	}{
		{"created in a new ledger", func() error {
			_, err := s.Create(ctx, Entry{LedgerID: "row", Runtime: "claude"}, BeginCreate(p))
			return err
		}, func(rows map[string]Entry) bool { return rows["row"].Revision == 1 && len(rows) == 1 }},
		{"updated", func() error {
			_, err := s.Update(ctx, "row", touch)
			return err
		}, func(rows map[string]Entry) bool { return rows["row"].Revision == 2 }},
		{"moved by an event", func() error {
			_, _, err := s.Apply(ctx, "row", IntendKill())
			return err
		}, func(rows map[string]Entry) bool { return !rows["row"].KillIntentAt.IsZero() }},
		{"enrolled with claims", func() error {
			_, err := s.Create(ctx, Entry{LedgerID: "live", Runtime: "claude", SessionID: "c", Window: "w"}, Enrol(p, Location{}))
			return err
		}, func(rows map[string]Entry) bool { return rows["live"].SessionID == "c" && rows["live"].Window == "w" }},
		{"relaxed", func() error {
			_, err := s.Update(ctx, "row", touch, Relaxed())
			return err
		}, func(rows map[string]Entry) bool { return rows["row"].Revision == 3 || rows["row"].Revision == 4 }},
		{"a batch", func() error {
			_, errs := s.batch(ctx, []change{{"row", edit}, {"live", edit}})
			return errors.Join(errs...)
		}, func(rows map[string]Entry) bool { return rows["row"].Revision == 5 && rows["live"].Operation == "x" }},
		{"finished", func() error {
			_, _, err := s.Apply(ctx, "row", Finish("", "over"))
			return err
		}, func(rows map[string]Entry) bool { return rows["row"].Phase == PhaseFinished }},
		{"filed", func() error {
			clock.advance(time.Hour)
			tidied, err := s.Tidy(ctx)
			if err == nil && len(tidied.Filed) != 1 {
				err = fmt.Errorf("%+v", tidied)
			}
			return err
		}, func(rows map[string]Entry) bool { return len(rows) == 2 && rows["row"].Revision == 6 }},
		{"updated where it is filed", func() error {
			_, err := s.Update(ctx, "row", touch)
			return err
		}, func(rows map[string]Entry) bool { return len(rows) == 2 && rows["row"].Revision == 7 }},
		{"dropped", func() error {
			drop = BeginDrop(p)
			_, _, err := settled(t, s, "row", drop)
			if err == nil {
				_, _, err = settled(t, s, "row", CommitDrop(drop.Nonce))
			}
			return err
		}, func(rows map[string]Entry) bool { return len(rows) == 1 && rows["live"].Revision > 0 }},
	}
	cuts := make([]string, len(steps))
	for i, step := range steps {
		if err := step.do(); err != nil {
			t.Fatalf("%s: %v", step.name, err)
		}
		cuts[i] = filepath.Join(t.TempDir(), "cut")
		runTool(t, "cp", "--sparse=always", image, cuts[i])
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	unmount()
	for i, step := range steps {
		mount(cuts[i])
		mounted = true
		s, err := Open(root, nil)
		if err != nil {
			t.Fatal(err)
		}
		rows, damaged := listed(t, s)
		if len(damaged) > 0 || !step.want(rows) {
			t.Errorf("%s: %v, %v", step.name, rows, damaged)
		}
		// Claims are not durable: as after a boot, they are built from the rows.
		putFile(t, s.path(dirClaims, claimsStamp), "another boot\n")
		if row, ok := rows["live"]; ok {
			if e, err := s.Create(ctx, Entry{Runtime: "claude"}, Enrol(p, Location{})); !errors.Is(err, ErrExists) || e.LedgerID != row.LedgerID {
				t.Errorf("%s: the process was enrolled again: %q, %v", step.name, e.LedgerID, err)
			}
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		checkLedger(t, root)
		unmount()
	}
}
