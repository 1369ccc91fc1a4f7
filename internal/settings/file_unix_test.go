//go:build unix

package settings

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestModeAndOwnerAreKept(t *testing.T) {
	old := syscall.Umask(0o077)
	defer syscall.Umask(old)
	for _, mode := range []fs.FileMode{0o600, 0o644, 0o664, 0o666, 0o400} {
		path := scratch(t, "{}")
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		owner := [2]int{os.Getuid(), os.Getgid()}
		if os.Getuid() == 0 {
			owner = [2]int{12345, 54321}
			if err := os.Chown(path, owner[0], owner[1]); err != nil {
				t.Fatal(err)
			}
		}
		install(t, path, Claude, true)
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode() != mode {
			t.Errorf("mode %v became %v", mode, info.Mode())
		}
		if st := info.Sys().(*syscall.Stat_t); int(st.Uid) != owner[0] || int(st.Gid) != owner[1] {
			t.Errorf("owner %v became %d:%d", owner, st.Uid, st.Gid)
		}
	}
}

func TestNewFileIsPrivate(t *testing.T) {
	old := syscall.Umask(0)
	defer syscall.Umask(old)
	path := filepath.Join(t.TempDir(), "d", "settings.json")
	install(t, path, Claude, true)
	for p, want := range map[string]fs.FileMode{path: 0o600, filepath.Dir(path): 0o700} {
		info, err := os.Stat(p)
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode().Perm() != want {
			t.Errorf("%s has mode %v", p, info.Mode())
		}
	}
}

// TestLinksAreFollowed: people keep their settings in a repository and link
// them to their place.
func TestLinksAreFollowed(t *testing.T) {
	base := t.TempDir()
	must(t, os.MkdirAll(filepath.Join(base, "dotfiles", "deep"), 0o755))
	must(t, os.MkdirAll(filepath.Join(base, "home"), 0o755))
	target := filepath.Join(base, "dotfiles", "settings.json")
	must(t, os.WriteFile(target, []byte("{}"), 0o640))
	// A link through a linked folder, and ".." behind it: the lexical parent is
	// another folder.
	must(t, os.Symlink(filepath.Join(base, "dotfiles", "deep"), filepath.Join(base, "home", "linked")))
	must(t, os.Symlink("linked/../settings.json", filepath.Join(base, "home", "second")))
	path := filepath.Join(base, "home", "settings.json")
	must(t, os.Symlink("second", path))

	install(t, path, Claude, true)
	for _, link := range []string{path, filepath.Join(base, "home", "second")} {
		if info, err := os.Lstat(link); err != nil || info.Mode()&fs.ModeSymlink == 0 {
			t.Errorf("%s: %v, %v: the link is gone", link, info, err)
		}
	}
	if info, err := os.Lstat(target); err != nil || info.Mode() != 0o640 || info.Size() < 10 {
		t.Errorf("target: %v, %v", info, err)
	}
	uninstall(t, path, Claude, true)
	if got := content(t, target); got != "{}" {
		t.Errorf("target is %q", got)
	}
}

func TestDanglingLinkGetsItsTarget(t *testing.T) {
	base := t.TempDir()
	path := filepath.Join(base, "settings.json")
	must(t, os.Symlink("not/yet/there.json", path))
	install(t, path, Claude, true)
	if events, err := Installed(filepath.Join(base, "not", "yet", "there.json"), Claude, ours); err != nil || len(events) != 3 {
		t.Errorf("target has %v, %v", events, err)
	}
}

func TestLinkLoopIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "settings.json")
	must(t, os.Symlink("settings.json", path))
	if _, err := Install(path, Claude, someEvents, ours, 0); err == nil {
		t.Error("no error")
	}
}

func TestNoRegularFile(t *testing.T) {
	base := t.TempDir()
	folder, fifo := filepath.Join(base, "folder"), filepath.Join(base, "fifo")
	must(t, os.Mkdir(folder, 0o700))
	must(t, syscall.Mkfifo(fifo, 0o600))
	for _, path := range []string{folder, fifo, "/dev/null", "/dev/tty"} {
		link := filepath.Join(base, "link")
		must(t, os.Symlink(path, link))
		for _, p := range []string{path, link} {
			if _, err := Install(p, Claude, someEvents, ours, 0); path == "/dev/tty" && errors.Is(err, syscall.ENXIO) {
				continue // no terminal
			} else if !errors.Is(err, ErrNotRegular) {
				t.Errorf("%s: %v", p, err)
			}
		}
		must(t, os.Remove(link))
	}
	if _, err := Install(filepath.Join(fifo, "settings.json"), Claude, someEvents, ours, 0); err == nil {
		t.Error("a file below a FIFO")
	}
}

func TestLockThatIsNotGivenIsBusy(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for the whole of the lock's time")
	}
	t.Parallel()
	path := scratch(t, "{}")
	f, err := os.Open(filepath.Dir(path))
	must(t, err)
	defer f.Close()
	must(t, unix.Flock(int(f.Fd()), unix.LOCK_EX))
	if _, err := Install(path, Claude, someEvents, ours, 0); !errors.Is(err, ErrBusy) {
		t.Errorf("error %v", err)
	}
	if got := content(t, path); got != "{}" {
		t.Errorf("changed to %q", got)
	}
}

// TestTwoInstallersLoseNothing: each of several puts a command of its own in
// and takes another out, all at the same time.
func TestTwoInstallersLoseNothing(t *testing.T) {
	const n = 8
	path := filepath.Join(t.TempDir(), "d", "settings.json")
	run := func(f func(i int) error) {
		t.Helper()
		var wg sync.WaitGroup
		for i := range n {
			wg.Go(func() {
				if err := f(i); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
	}
	command := func(i int) string { return fmt.Sprintf("command-%d", i) }
	run(func(i int) error { return second(Install(path, Claude, someEvents, command(i), time.Second)) })
	for i := range n {
		if events, err := Installed(path, Claude, command(i)); err != nil || len(events) != len(someEvents) {
			t.Errorf("command %d has %v, %v", i, events, err)
		}
	}
	run(func(i int) error { return second(Uninstall(path, Claude, command(i))) })
	if got := content(t, path); got != "{}\n" {
		t.Errorf("left %q", got)
	}
	if names, err := os.ReadDir(filepath.Dir(path)); err != nil || len(names) != 1 {
		t.Errorf("files: %v, %v", names, err)
	}
}

// TestAnotherProgramsChangeIsNotLost: one that knows of no lock changes the
// file while we wait for ours.
func TestAnotherProgramsChangeIsNotLost(t *testing.T) {
	path := scratch(t, `{"a": 1}`)
	held, err := lock(path)
	must(t, err)
	done := make(chan error, 1)
	go func() { done <- second(Install(path, Claude, someEvents, ours, 0)) }()
	must(t, os.WriteFile(path, []byte(`{"a": 2, "b": 3}`), 0o644))
	held()
	must(t, <-done)
	uninstall(t, path, Claude, true)
	if got := content(t, path); got != `{"a": 2, "b": 3}` {
		t.Errorf("left %q", got)
	}
}

func TestFailedWriteLeavesTheFile(t *testing.T) {
	if os.Getuid() == 0 {
		t.Skip("the superuser writes everywhere")
	}
	path := scratch(t, "{}")
	must(t, os.Chmod(filepath.Dir(path), 0o500))
	defer os.Chmod(filepath.Dir(path), 0o700)
	if _, err := Install(path, Claude, someEvents, ours, 0); !errors.Is(err, fs.ErrPermission) {
		t.Errorf("error %v", err)
	}
	if got := content(t, path); got != "{}" {
		t.Errorf("changed to %q", got)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestEditedTextIsReadAgain(t *testing.T) {
	f := file{target: "a", exists: true, text: []byte("x")}
	for _, g := range []file{{target: "b", exists: true, text: f.text}, {target: "a", text: f.text}, {target: "a", exists: true, text: []byte("y")}} {
		if f.same(g) {
			t.Errorf("%v is the same as %v", f, g)
		}
	}
	if !f.same(file{target: "a", exists: true, text: slices.Clone(f.text)}) {
		t.Error("not the same as itself")
	}
}

// What an installer that was killed left in a person's folder goes with the next edit.
func TestLeftoversOfAKilledInstallerGo(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "settings.json")
	for _, name := range []string{"settings.json", ".tmp-settings-1f-2e", ".tmp-settings-0a-2e", ".tmp-settings-9d-2e", ".tmp-settings-5c-2e", ".tmp-another-3d"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("{}"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := Install(path, Claude, []string{"Stop"}, "a", 0); err != nil {
		t.Fatal(err)
	}
	names, err := os.ReadDir(dir)
	if err != nil || len(names) != 2 || names[0].Name() != ".tmp-another-3d" {
		t.Errorf("%v, %v", names, err)
	}
}
