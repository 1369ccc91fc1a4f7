package ledger

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

func foundOf(list []Finding, kind FindingKind) (found []Finding) {
	for _, f := range list {
		if f.Kind == kind {
			found = append(found, f)
		}
	}
	return found
}

func checkMachine(t *testing.T, s *Store) []Finding {
	t.Helper()
	found, err := s.CheckMachine(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// startHolder starts a process that holds the lock of a row until its end.
func startHolder(t *testing.T, s *Store, id string) *exec.Cmd {
	t.Helper()
	cmd := childCommand(t, childHold, holdArg{Dir: s.root, ID: id})
	if _, err := cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { endProcess(cmd) })
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "held\n" {
		t.Fatalf("the holder said %q, %v", line, err)
	}
	return cmd
}

func TestHeldLocksAreFoundWithTheirHolder(t *testing.T) {
	s := newStore(t, nil)
	born(t, s, "row")
	if found := foundOf(checkMachine(t, s), FindLock); len(found) > 0 {
		t.Errorf("nobody holds a lock: %+v", found)
	}
	unlock, err := s.lockPass(t.Context(), "sweep.lock")
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	cmd := startHolder(t, s, "row")
	if err := cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	stopped := func(f Finding) bool { return f.PID == cmd.Process.Pid && strings.Contains(f.Message, "stopped") }
	var found []Finding
	await(t, "the holder is stopped", func() bool {
		found = foundOf(checkMachine(t, s), FindLock)
		return slices.ContainsFunc(found, stopped)
	})
	self, err := Self()
	if err != nil {
		t.Fatal(err)
	}
	if len(found) != 2 || found[0].Path != s.path(dirLocks, stripe("row")) || !stopped(found[0]) ||
		found[1].Path != s.path("sweep.lock") || found[1].PID != self.PID {
		t.Errorf("held locks: %+v", found)
	}
}

func TestWhatCannotBeSeenIsFound(t *testing.T) {
	dir := newStore(t, nil).root
	s := openStore(t, dir, &Options{ProcFS: t.TempDir()})
	var all []string
	for _, f := range foundOf(checkMachine(t, s), FindView) {
		all = append(all, f.Message)
	}
	for _, want := range []string{"who holds the locks", "process table is not complete", "not discovered"} {
		if !slices.ContainsFunc(all, func(m string) bool { return strings.Contains(m, want) }) {
			t.Errorf("nothing about %q in %q", want, all)
		}
	}
}

func TestMultiplexerThatDoesNotAnswerIsFound(t *testing.T) {
	s := newStore(t, nil)
	p, _ := startProcess(t)
	socket := t.TempDir() + "/none"
	e, err := s.Create(t.Context(), Entry{Runtime: "claude"}, Enrol(p, Location{Mux: Mux{Kind: MuxDtach, Socket: socket}}))
	if err != nil {
		t.Fatal(err)
	}
	found := foundOf(checkMachine(t, s), FindView)
	i := slices.IndexFunc(found, func(f Finding) bool { return f.ID == e.LedgerID })
	if i < 0 || !strings.Contains(found[i].Message, socket) {
		t.Errorf("nothing about the silent multiplexer: %+v", found)
	}
}

// bootedClock is a fake clock whose boot clock goes with it.
type bootedClock struct{ *fakeClock }

func (c bootedClock) BootSeconds() (int64, error) {
	return c.Now().Unix() - newClock().now.Unix() + 1000, nil
}

// A stale lease is told from a held one, with its owner and age.
func TestLeaseIsFoundWithOwnerAndAge(t *testing.T) {
	clock := bootedClock{newClock()}
	s := newStore(t, &Options{Clock: clock})
	killedBy := func(id string, owner ProcessID) {
		t.Helper()
		p, _ := startProcess(t)
		if _, err := s.Create(t.Context(), Entry{LedgerID: id, Runtime: "claude"}, Enrol(p, Location{})); err != nil {
			t.Fatal(err)
		}
		for _, ev := range []Event{IntendKill(), BeginKill(owner)} {
			if _, _, err := s.Apply(t.Context(), id, ev); err != nil {
				t.Fatal(err)
			}
		}
	}
	self, err := Self()
	if err != nil {
		t.Fatal(err)
	}
	killedBy("held", self)
	gone, cmd := startProcess(t)
	killedBy("stale", gone)
	endProcess(cmd)
	clock.advance(90 * time.Minute)
	found, err := s.Check(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	found = foundOf(found, FindLease)
	if len(found) != 2 || found[0].PID != self.PID || !strings.HasSuffix(found[0].Message, "is running: the lease is held") ||
		found[1].PID != gone.PID || !strings.HasSuffix(found[1].Message, "is gone: the lease is stale") || !strings.Contains(found[1].Message, "for 1h30m") {
		t.Errorf("leases: %+v", found)
	}
}

// childBlind checks a ledger of its own, as nobody, with one folder after the other closed,
// and without descriptors. Something else is wrong all the time.
var childBlind = inChild("blind", func(dir string) error {
	if err := errors.Join(syscall.Setgid(65534), syscall.Setuid(65534)); err != nil {
		return err
	}
	s, err := Open(dir, nil)
	if err != nil {
		return err
	}
	defer s.Close()
	check := func() ([]Finding, error) {
		found, err := s.Check(context.Background())
		now, nowErr := s.CheckMachine(context.Background())
		return append(found, now...), errors.Join(err, nowErr)
	}
	for _, sub := range []string{dirSessions, dirClaims, dirLocks, "sock", dirGates} {
		path := s.path(sub)
		if err := os.Chmod(path, 0); err != nil {
			return err
		}
		found, err := check()
		if err := errors.Join(err, os.Chmod(path, 0o700)); err != nil {
			return fmt.Errorf("%s: %w", sub, err)
		}
		blind := slices.ContainsFunc(foundOf(found, FindView), func(f Finding) bool {
			return f.Path == path && strings.HasPrefix(f.Message, "view incomplete: ")
		})
		other := slices.ContainsFunc(foundOf(found, FindMode), func(f Finding) bool { return filepath.Base(f.Path) == "notes" })
		if !blind || !other {
			return fmt.Errorf("%s: %+v", sub, found)
		}
	}
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return err
	}
	few := limit
	few.Cur = 1
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &few); err != nil {
		return err
	}
	found, err := check()
	if err := errors.Join(err, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit)); err != nil {
		return fmt.Errorf("without descriptors: %w", err)
	}
	if len(foundOf(found, FindView)) == 0 {
		return fmt.Errorf("without descriptors: %+v", found)
	}
	return nil
})

// What cannot be seen is a finding beside the others, and ends no check.
func TestCheckGoesOnWhereSomethingCannotBeRead(t *testing.T) {
	s := reachableStore(t)
	born(t, s, "row")
	for _, sub := range []string{dirClaims, "sock", dirGates} {
		if err := os.MkdirAll(s.path(sub), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(os.WriteFile(s.path("notes"), nil, 0o600), os.Chmod(s.path("notes"), 0o644)); err != nil {
		t.Fatal(err)
	}
	if err := filepath.WalkDir(s.root, func(path string, _ os.DirEntry, err error) error {
		return errors.Join(err, os.Chown(path, 65534, 65534))
	}); err != nil {
		t.Fatal(err)
	}
	startChild(t, childBlind, s.root).wait(t)
}
