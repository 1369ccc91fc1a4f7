package folder

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const limit = 64

// open makes a folder and opens it.
func open(t *testing.T) (*Folder, string) {
	t.Helper()
	path := t.TempDir()
	d, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d, path
}

func put(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// needRoot skips what only root can arrange.
func needRoot(t *testing.T) {
	t.Helper()
	switch {
	case os.Geteuid() == 0:
	case os.Getenv("CI") == "true":
		t.Fatal("not root")
	default:
		t.Skip("not root")
	}
}

// kinds are files that are none to read. None may be opened for long, or followed.
var kinds = map[string]func(t *testing.T, path string){
	"folder":        func(t *testing.T, path string) { ok(t, os.Mkdir(path, 0o700)) },
	"link to file":  func(t *testing.T, path string) { put(t, path+".to", "x"); ok(t, os.Symlink(path+".to", path)) },
	"dangling link": func(t *testing.T, path string) { ok(t, os.Symlink("nowhere", path)) },
	"link to self":  func(t *testing.T, path string) { ok(t, os.Symlink(filepath.Base(path), path)) },
	"FIFO":          func(t *testing.T, path string) { ok(t, unix.Mkfifo(path, 0o600)) },
	"socket": func(t *testing.T, path string) {
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		ok(t, err)
		t.Cleanup(func() { unix.Close(fd) })
		ok(t, unix.Bind(fd, &unix.SockaddrUnix{Name: path}))
	},
	"device": func(t *testing.T, path string) {
		needRoot(t)
		if err := unix.Mknod(path, unix.S_IFCHR|0o600, int(unix.Mkdev(1, 3))); errors.Is(err, unix.EPERM) {
			t.Skip("no devices here")
		} else {
			ok(t, err)
		}
	},
}

// soon fails where a call waits for somebody, as the opening of a FIFO does.
func soon(t *testing.T, call func()) {
	t.Helper()
	done := make(chan struct{})
	go func() { defer close(done); call() }()
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Fatal("it waits")
	}
}

func TestWhatIsNoRegularFileIsNotRead(t *testing.T) {
	for name, arrange := range kinds {
		t.Run(name, func(t *testing.T) {
			d, dir := open(t)
			arrange(t, filepath.Join(dir, "x"))
			soon(t, func() {
				if data, _, err := d.Read("x", limit, Stamp{}); !errors.Is(err, ErrNotRegular) || data != nil {
					t.Errorf("read: %q, %v", data, err)
				}
				if _, err := d.Lstat("x"); !errors.Is(err, ErrNotRegular) {
					t.Errorf("lstat: %v", err)
				}
				// It has taken the place of a file that was looked at.
				if data, _, err := d.read(nil, "x", limit); !errors.Is(err, ErrNotRegular) || data != nil {
					t.Errorf("read without a look: %q, %v", data, err)
				}
			})
		})
	}
}

func TestReadUpToTheLimit(t *testing.T) {
	d, dir := open(t)
	for _, n := range []int{0, 1, limit - 1, limit, limit + 1, 1 << 20} {
		want := strings.Repeat("x", n)
		put(t, filepath.Join(dir, "x"), want)
		for name, read := range map[string]func() ([]byte, Stamp, error){
			"read": func() ([]byte, Stamp, error) { return d.Read("x", limit, Stamp{}) },
			"grew": func() ([]byte, Stamp, error) { return d.read(nil, "x", limit) },
		} {
			data, stamp, err := read()
			switch {
			case stamp.Size != int64(n):
				t.Errorf("%s %d: stamp %+v", name, n, stamp)
			case n > limit && (!errors.Is(err, ErrTooLarge) || data != nil):
				t.Errorf("%s %d: %d bytes, %v", name, n, len(data), err)
			case n <= limit && (err != nil || string(data) != want || data == nil):
				t.Errorf("%s %d: %q, %v", name, n, data, err)
			}
		}
	}
}

// Whatever a file may be called it is listed and read as that, and leads nowhere else.
func TestOddNames(t *testing.T) {
	d, dir := open(t)
	names := []string{"plain", "-rf", " ", "a\nb", "\x1b[31m", "\xff\xfe", "…", ".hidden", "...", `a\b`, "*", "%s", strings.Repeat("n", 255)}
	for _, name := range names {
		put(t, filepath.Join(dir, name), "of "+name)
	}
	got, _, err := d.Names()
	ok(t, err)
	slices.Sort(got)
	slices.Sort(names)
	if !slices.Equal(got, names) {
		t.Errorf("listed %q, want %q", got, names)
	}
	for _, name := range names {
		if data, _, err := d.Read(name, 1024, Stamp{}); err != nil || string(data) != "of "+name {
			t.Errorf("%q: %q, %v", name, data, err)
		}
	}
	for name, want := range map[string]error{
		"missing": fs.ErrNotExist, "": fs.ErrNotExist, ".": ErrNotRegular, "..": ErrNotRegular,
		"plain/x": unix.ENOTDIR, strings.Repeat("n", 256): unix.ENAMETOOLONG, "a\x00b": unix.EINVAL,
	} {
		if data, _, err := d.Read(name, 1024, Stamp{}); !errors.Is(err, want) || data != nil {
			t.Errorf("%.10q: %q, %v", name, data, err)
		}
	}
}

func TestAnUnreadableFileIsNotAMissingOne(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("root reads everything")
	}
	d, dir := open(t)
	put(t, filepath.Join(dir, "x"), "x")
	ok(t, os.Chmod(filepath.Join(dir, "x"), 0))
	if data, _, err := d.Read("x", limit, Stamp{}); !errors.Is(err, fs.ErrPermission) || errors.Is(err, fs.ErrNotExist) || data != nil {
		t.Errorf("%q, %v", data, err)
	}
}

// A known stamp saves the reading, and every new generation has another one, even where
// size and modification time are made those of the old one.
func TestStampsTellGenerationsApart(t *testing.T) {
	at := time.Unix(1_700_000_000, 123)
	for name, change := range map[string]func(t *testing.T, path string){
		"written in place": func(t *testing.T, path string) { put(t, path, "new") },
		"renamed over it":  func(t *testing.T, path string) { put(t, path+".tmp", "new"); ok(t, os.Rename(path+".tmp", path)) },
		"made again":       func(t *testing.T, path string) { ok(t, os.Remove(path)); put(t, path, "new") },
		"longer":           func(t *testing.T, path string) { put(t, path, "longer") },
	} {
		t.Run(name, func(t *testing.T) {
			d, dir := open(t)
			path := filepath.Join(dir, "x")
			put(t, path, "old")
			ok(t, os.Chtimes(path, at, at))
			data, stamp, err := d.Read("x", limit, Stamp{})
			if string(data) != "old" || err != nil || stamp == (Stamp{}) {
				t.Fatalf("%q, %+v, %v", data, stamp, err)
			}
			if again, err := d.Lstat("x"); again != stamp || err != nil {
				t.Fatalf("lstat %+v, read %+v: %v", again, stamp, err)
			}
			if data, same, err := d.Read("x", limit, stamp); data != nil || same != stamp || err != nil {
				t.Errorf("read again: %q, %+v, %v", data, same, err)
			}
			// The kernel's clock has ticks, within which a change time does not move.
			for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
				change(t, path)
				ok(t, os.Chtimes(path, at, at))
				now, err := d.Lstat("x")
				ok(t, err)
				if now.Ctime != stamp.Ctime {
					break
				}
				if time.Now().After(end) {
					t.Fatal("the change time stands still")
				}
			}
			data, now, err := d.Read("x", limit, stamp)
			if err != nil || now == stamp || string(data) == "old" || data == nil {
				t.Errorf("changed: %q, %+v, %v", data, now, err)
			}
		})
	}
}

// Beside a writer that replaces, appends or removes, a read gives one whole generation, or
// says that it could not.
func TestReadBesideAWriterIsWholeOrAnError(t *testing.T) {
	const rounds = 2000
	generation := func(i int) []byte { return bytes.Repeat([]byte{byte('a' + i%26)}, 1+i*37%5000) }
	for name, write := range map[string]func(path string, i int) error{
		"replaces": func(path string, i int) error {
			if err := os.WriteFile(path+".tmp", generation(i), 0o600); err != nil {
				return err
			}
			return os.Rename(path+".tmp", path)
		},
		"removes": func(path string, i int) error {
			if i%2 == 0 {
				return os.Remove(path)
			}
			if err := os.WriteFile(path+".tmp", generation(i), 0o600); err != nil {
				return err
			}
			return os.Rename(path+".tmp", path)
		},
		"appends": func(path string, i int) error {
			f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
			if err != nil {
				return err
			}
			defer f.Close()
			_, err = f.Write([]byte("a"))
			return err
		},
		"puts a FIFO there": func(path string, i int) error {
			if err := os.Remove(path); err != nil {
				return err
			}
			if i%2 == 1 {
				return os.WriteFile(path, nil, 0o600)
			}
			return unix.Mkfifo(path, 0o600)
		},
	} {
		t.Run(name, func(t *testing.T) {
			d, dir := open(t)
			path := filepath.Join(dir, "x")
			put(t, path, "a")
			done := make(chan error, 1)
			go func() {
				for i := range rounds {
					if err := write(path, i); err != nil {
						done <- err
						return
					}
				}
				done <- nil
			}()
			soon(t, func() {
				for n, over := 0, false; !over || n == 0; n++ {
					select {
					case err := <-done:
						over = true
						if err != nil {
							t.Error(err)
						}
					default:
					}
					data, stamp, err := d.Read("x", 1<<20, Stamp{})
					switch {
					case errors.Is(err, fs.ErrNotExist), errors.Is(err, ErrNotRegular), errors.Is(err, errGrew):
						if data != nil {
							t.Errorf("%q beside %v", data, err)
						}
					case err != nil:
						t.Error(err)
					case int64(len(data)) != stamp.Size:
						t.Errorf("%d bytes of %d", len(data), stamp.Size)
					case len(data) > 0 && len(bytes.Trim(data, string(data[:1]))) > 0:
						t.Errorf("two generations: %q", data)
					}
				}
			})
		})
	}
}

func TestOpenTakesRealFoldersAlone(t *testing.T) {
	dir := t.TempDir()
	here := filepath.Join(dir, "real")
	ok(t, os.Mkdir(here, 0o700))
	put(t, filepath.Join(dir, "file"), "")
	ok(t, os.Symlink(here, filepath.Join(dir, "link")))
	ok(t, unix.Mkfifo(filepath.Join(dir, "fifo"), 0o600))
	for name, want := range map[string]error{"file": unix.ENOTDIR, "link": unix.ENOTDIR, "fifo": unix.ENOTDIR, "missing": fs.ErrNotExist} {
		soon(t, func() {
			if d, err := Open(filepath.Join(dir, name)); !errors.Is(err, want) || d != nil {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
	if d, err := Open(here); err != nil || d.Path() != here {
		t.Errorf("%v", err)
	} else {
		d.Close()
	}
}

// An open folder is that folder, wherever its name leads by now; one that is gone has no
// empty list.
func TestAFolderThatMovesAndGoes(t *testing.T) {
	parent := t.TempDir()
	path := filepath.Join(parent, "d")
	ok(t, os.Mkdir(path, 0o700))
	put(t, filepath.Join(path, "x"), "mine")
	d, err := Open(path)
	ok(t, err)
	defer d.Close()
	before, err := d.Mtime()
	ok(t, err)
	ok(t, os.Rename(path, path+".moved"))
	ok(t, os.Mkdir(path, 0o700))
	put(t, filepath.Join(path, "y"), "another's")
	if names, _, err := d.Names(); err != nil || !slices.Equal(names, []string{"x"}) {
		t.Errorf("%q, %v", names, err)
	}
	if data, _, err := d.Read("x", limit, Stamp{}); string(data) != "mine" || err != nil {
		t.Errorf("%q, %v", data, err)
	}
	if now, err := d.Mtime(); err != nil || !now.Equal(before) {
		t.Errorf("modified at %v, before %v: %v", now, before, err)
	}
	ok(t, os.RemoveAll(path+".moved"))
	if names, _, err := d.Names(); err == nil {
		t.Errorf("a folder that is gone: %q", names)
	}
	if _, _, err := d.Read("x", limit, Stamp{}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v", err)
	}
}

// Each listing has a position of its own.
func TestNamesAtTheSameTime(t *testing.T) {
	d, dir := open(t)
	const files = 1000
	for i := range files {
		put(t, filepath.Join(dir, strings.Repeat("n", 1+i/100)+string(rune('a'+i%100))), "")
	}
	want, _, err := d.Names()
	ok(t, err)
	slices.Sort(want)
	if len(want) != files {
		t.Fatalf("%d names", len(want))
	}
	var wait sync.WaitGroup
	for range 8 {
		wait.Go(func() {
			for range 20 {
				got, _, err := d.Names()
				slices.Sort(got)
				if err != nil || !slices.Equal(got, want) {
					t.Errorf("%d names of %d, %v", len(got), files, err)
				}
			}
		})
	}
	wait.Wait()
}

func TestSecure(t *testing.T) {
	dir := t.TempDir()
	for mode, want := range map[fs.FileMode]fs.FileMode{0o700: 0o700, 0o755: 0o755, 0o500: 0o500, 0o775: 0o700, 0o777: 0o700, 0o702: 0o700} {
		path := filepath.Join(dir, mode.String())
		ok(t, os.Mkdir(path, 0o700))
		ok(t, os.Chmod(path, mode))
		err := Secure(path)
		info, statErr := os.Stat(path)
		ok(t, statErr)
		if err != nil || info.Mode().Perm() != want {
			t.Errorf("%v: %v, %v", mode, info.Mode(), err)
		}
	}
	put(t, filepath.Join(dir, "file"), "")
	ok(t, os.Symlink(dir, filepath.Join(dir, "link")))
	for name, want := range map[string]error{"file": ErrInsecure, "link": ErrInsecure, "missing": fs.ErrNotExist} {
		if err := Secure(filepath.Join(dir, name)); !errors.Is(err, want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestAnothersFolderIsNotSecure(t *testing.T) {
	needRoot(t)
	path := filepath.Join(t.TempDir(), "theirs")
	ok(t, os.Mkdir(path, 0o700))
	ok(t, os.Chown(path, 12345, 12345))
	if err := Secure(path); !errors.Is(err, ErrInsecure) {
		t.Error(err)
	}
}

// A folder that is closed while others read in it is never mistaken for one that was given
// its descriptor's number.
func TestCloseWhileInUse(t *testing.T) {
	d, path := open(t)
	other := t.TempDir()
	put(t, filepath.Join(path, "row"), "ours")
	put(t, filepath.Join(other, "row"), "another's")
	var readers sync.WaitGroup
	started := make(chan struct{}, 4)
	for range cap(started) {
		readers.Go(func() {
			for first := true; ; first = false {
				data, _, err := d.Read("row", limit, Stamp{})
				if err != nil {
					if !errors.Is(err, fs.ErrClosed) {
						t.Errorf("read: %v, want ErrClosed", err)
					}
					return
				}
				if string(data) != "ours" {
					t.Errorf("read %q", data)
				}
				if first {
					started <- struct{}{}
				}
			}
		})
	}
	for range cap(started) {
		<-started
	}
	ok(t, d.Close())
	for range 16 {
		o, err := Open(other)
		ok(t, err)
		defer o.Close()
	}
	readers.Wait()
	if _, err := d.Lstat("row"); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("lstat: %v, want ErrClosed", err)
	}
	if _, _, err := d.Names(); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("names: %v, want ErrClosed", err)
	}
}
