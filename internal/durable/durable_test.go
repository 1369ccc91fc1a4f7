package durable

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
)

func TestMain(m *testing.M) {
	if child := os.Getenv("DURABLE_TEST_CHILD"); child != "" {
		runChild(child)
	}
	os.Exit(m.Run())
}

func open(t testing.TB, path string) *Dir {
	t.Helper()
	d, err := OpenDir(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

func want(t testing.TB, d *Dir, name, content string) {
	t.Helper()
	got, err := os.ReadFile(filepath.Join(d.Path(), name))
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != content {
		t.Fatalf("%s holds %d bytes %.40q, want %d bytes %.40q", name, len(got), got, len(content), content)
	}
}

func wantFiles(t testing.TB, d *Dir, names ...string) {
	t.Helper()
	entries, err := os.ReadDir(d.Path())
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range entries {
		got = append(got, e.Name())
	}
	if !slices.Equal(got, names) {
		t.Fatalf("folder holds %q, want %q", got, names)
	}
}

func TestReplaceWritesWholeFile(t *testing.T) {
	for _, sync := range []bool{false, true} {
		t.Run(fmt.Sprintf("sync=%t", sync), func(t *testing.T) {
			d := open(t, t.TempDir())
			// Growing, shrinking and empty; 1 MiB is the largest row.
			for _, content := range []string{"a", strings.Repeat("b", 1<<20), "c", ""} {
				if err := d.Replace("w", "row.json", []byte(content), sync); err != nil {
					t.Fatal(err)
				}
				want(t, d, "row.json", content)
			}
			wantFiles(t, d, "row.json")
		})
	}
}

func TestReplaceRelaxedWritesWholeFile(t *testing.T) {
	d := open(t, t.TempDir())
	for _, content := range []string{"a", strings.Repeat("b", 1<<20), ""} {
		if err := d.ReplaceRelaxed("w", "row.json", []byte(content)); err != nil {
			t.Fatal(err)
		}
		want(t, d, "row.json", content)
	}
	if err := d.ReplaceRelaxed("w", "a/b", nil); !errors.Is(err, fs.ErrInvalid) {
		t.Errorf("name with a path: %v, want ErrInvalid", err)
	}
	wantFiles(t, d, "row.json")
}

func TestCreateNeverReplaces(t *testing.T) {
	d := open(t, t.TempDir())
	if err := d.Create("w", "row", []byte("first"), true); err != nil {
		t.Fatal(err)
	}
	err := d.Create("w", "row", []byte("second"), true)
	if !errors.Is(err, fs.ErrExist) {
		t.Fatalf("second create: %v, want ErrExist", err)
	}
	want(t, d, "row", "first")
	if err := os.Symlink("nowhere", filepath.Join(d.Path(), "link")); err != nil {
		t.Fatal(err)
	}
	if err := d.Create("w", "link", nil, true); !errors.Is(err, fs.ErrExist) {
		t.Fatalf("create over a dangling link: %v, want ErrExist", err)
	}
	wantFiles(t, d, "link", "row")
}

func TestCreateHasOneWinner(t *testing.T) {
	path := t.TempDir()
	const writers = 32
	var wg sync.WaitGroup
	won := make([]bool, writers)
	for i := range writers {
		d := open(t, path)
		wg.Go(func() {
			err := d.Create("w", "row", fmt.Append(nil, i), true)
			if err != nil && !errors.Is(err, fs.ErrExist) {
				t.Errorf("create: %v", err)
			}
			won[i] = err == nil
		})
	}
	wg.Wait()
	winner := slices.Index(won, true)
	if winner < 0 || slices.Contains(won[winner+1:], true) {
		t.Fatalf("winners: %v, want one", won)
	}
	d := open(t, path)
	want(t, d, "row", fmt.Sprint(winner))
	wantFiles(t, d, "row")
}

func TestStageIsInvisibleUntilPublished(t *testing.T) {
	d := open(t, t.TempDir())
	if err := d.Replace("w", "row", []byte("old"), false); err != nil {
		t.Fatal(err)
	}
	s, err := d.Stage("a-b-17", "row", []byte("new"), true)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Discard()
	want(t, d, "row", "old")
	temps, err := d.Temps()
	if err != nil {
		t.Fatal(err)
	}
	if len(temps) != 1 || temps[0].Tag != "a-b-17" || strings.HasSuffix(temps[0].Name, ".json") {
		t.Fatalf("temps: %+v, want one of tag a-b-17", temps)
	}
	want(t, d, temps[0].Name, "new")
	if err := s.Replace(); err != nil {
		t.Fatal(err)
	}
	want(t, d, "row", "new")
	for again, err := range map[string]error{"Replace": s.Replace(), "Create": s.Create()} {
		if !errors.Is(err, fs.ErrClosed) {
			t.Errorf("%s of a published file: %v, want ErrClosed", again, err)
		}
	}
	s.Discard()
	want(t, d, "row", "new")
	wantFiles(t, d, "row")
}

func TestTempNeverOpensWhatIsThere(t *testing.T) {
	d := open(t, t.TempDir())
	if err := d.Create("w", "taken", []byte("x"), false); err != nil {
		t.Fatal(err)
	}
	if f, err := d.sys.create("taken"); !errors.Is(err, fs.ErrExist) {
		f.close()
		t.Fatalf("temporary file over another: %v, want ErrExist", err)
	}
	want(t, d, "taken", "x")
}

func TestDiscardRemovesTemp(t *testing.T) {
	d := open(t, t.TempDir())
	s, err := d.Stage("w", "row", []byte("x"), false)
	if err != nil {
		t.Fatal(err)
	}
	s.Discard()
	s.Discard()
	if err := s.Replace(); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("Replace after Discard: %v, want ErrClosed", err)
	}
	wantFiles(t, d)
}

func TestTempsListsOnlyTemps(t *testing.T) {
	d := open(t, t.TempDir())
	for _, name := range []string{"row.json", ".tmp", ".tmp-", ".tmp-noend", "x.tmp-a-1", ".tmp--9", ".tmp-a.b:1-0f"} {
		if err := os.WriteFile(filepath.Join(d.Path(), name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	temps, err := d.Temps()
	if err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(temps, func(a, b Temp) int { return strings.Compare(a.Name, b.Name) })
	if want := []Temp{{".tmp--9", ""}, {".tmp-a.b:1-0f", "a.b:1"}}; !slices.Equal(temps, want) {
		t.Fatalf("temps %+v, want %+v", temps, want)
	}
	for range 2 { // a second listing begins at the start again
		for _, temp := range temps {
			if err := d.Remove(temp.Name); err != nil {
				t.Fatal(err)
			}
		}
		if temps, err = d.Temps(); err != nil || len(temps) != 0 {
			t.Fatalf("temps after removal: %+v, %v", temps, err)
		}
	}
}

func TestRemoveMissing(t *testing.T) {
	d := open(t, t.TempDir())
	if err := d.Remove("row"); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("remove of a missing file: %v, want ErrNotExist", err)
	}
}

func TestRenameNeverReplaces(t *testing.T) {
	from, to := open(t, t.TempDir()), open(t, t.TempDir())
	if err := from.Create("w", "row", []byte("1"), false); err != nil {
		t.Fatal(err)
	}
	if err := from.Rename("row", to); err != nil {
		t.Fatal(err)
	}
	wantFiles(t, from)
	want(t, to, "row", "1")
	if err := from.Rename("row", to); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("rename of a missing file: %v, want ErrNotExist", err)
	}
	if err := from.Create("w", "row", []byte("2"), false); err != nil {
		t.Fatal(err)
	}
	if err := from.Rename("row", to); !errors.Is(err, fs.ErrExist) {
		t.Fatalf("rename over a file: %v, want ErrExist", err)
	}
	want(t, from, "row", "2")
	want(t, to, "row", "1")
}

func TestNamesWithPathsAreRefused(t *testing.T) {
	d := open(t, t.TempDir())
	for _, name := range []string{"", ".", "..", "a/b", "../a", `a\b`, "a\x00", ".tmp-a-1"} {
		if err := d.Replace("w", name, nil, false); !errors.Is(err, fs.ErrInvalid) {
			t.Errorf("replace %q: %v, want ErrInvalid", name, err)
		}
	}
	for _, name := range []string{"", ".", "..", "a/b", "../a"} {
		if err := d.Remove(name); !errors.Is(err, fs.ErrInvalid) {
			t.Errorf("remove %q: %v, want ErrInvalid", name, err)
		}
		if err := d.Rename(name, d); !errors.Is(err, fs.ErrInvalid) {
			t.Errorf("rename %q: %v, want ErrInvalid", name, err)
		}
	}
	if err := d.Replace("../x", "row", nil, false); !errors.Is(err, fs.ErrInvalid) {
		t.Errorf("tag with a path: %v, want ErrInvalid", err)
	}
	wantFiles(t, d)
}

func TestErrorsNameTheFileAndTheErrno(t *testing.T) {
	d := open(t, t.TempDir())
	long := strings.Repeat("n", 300)
	err := d.Replace("w", long, []byte("x"), true)
	var pe *fs.PathError
	if !errors.As(err, &pe) || pe.Path != filepath.Join(d.Path(), long) || !errors.Is(err, syscall.ENAMETOOLONG) {
		t.Fatalf("error %v, want a PathError of the file with ENAMETOOLONG", err)
	}
	wantFiles(t, d)
	if err := os.Mkdir(filepath.Join(d.Path(), "sub"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := d.Replace("w", "sub", nil, true); err == nil {
		t.Fatal("replaced a folder")
	}
	if err := d.Remove("sub"); err == nil {
		t.Fatal("removed a folder")
	}
	wantFiles(t, d, "sub")
}

func TestOpenDirRefusesLinksAndFiles(t *testing.T) {
	base := t.TempDir()
	file, link := filepath.Join(base, "file"), filepath.Join(base, "link")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(base, link); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{file, link, link + "/", filepath.Join(base, "missing")} {
		if d, err := OpenDir(path); err == nil {
			d.Close()
			t.Errorf("OpenDir(%s) succeeded", path)
		}
	}
}

func TestClosedDir(t *testing.T) {
	d := open(t, t.TempDir())
	s, err := d.Stage("w", "row", nil, false)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	_, temps := d.Temps()
	for step, err := range map[string]error{
		"Replace": d.Replace("w", "row", nil, false),
		"publish": s.Replace(),
		"Sync":    d.Sync(),
		"Remove":  d.Remove("row"),
		"Rename":  d.Rename("row", d),
		"Temps":   temps,
	} {
		if !errors.Is(err, fs.ErrClosed) {
			t.Errorf("%s: %v, want ErrClosed", step, err)
		}
	}
}

// The writers of a Store share one Dir; readers take no lock.
func TestReadersSeeWholeFiles(t *testing.T) {
	d := open(t, t.TempDir())
	content := func(i int) []byte { return bytes.Repeat([]byte{'a' + byte(i%26)}, 1+i*997%20000) }
	if err := d.Replace("w", "row", content(0), false); err != nil {
		t.Fatal(err)
	}
	var writers, readers sync.WaitGroup
	done := make(chan struct{})
	for r := range 2 {
		readers.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				b, err := os.ReadFile(filepath.Join(d.Path(), "row"))
				if err != nil || len(b) == 0 || bytes.Count(b, b[:1]) != len(b) {
					t.Errorf("reader %d: %d bytes, %v: not one whole write", r, len(b), err)
					return
				}
			}
		})
	}
	for w := range 4 {
		writers.Go(func() {
			for i := range 100 {
				if err := d.Replace("w", "row", content(w*100+i), i%10 == 0); err != nil {
					t.Error(err)
				}
			}
		})
	}
	writers.Wait()
	close(done)
	readers.Wait()
	wantFiles(t, d, "row")
}

func TestParallelWritersOfOneDir(t *testing.T) {
	d := open(t, t.TempDir())
	var wg sync.WaitGroup
	for i := range 64 {
		wg.Go(func() {
			name := fmt.Sprintf("row%02d", i)
			if err := d.Create("w", name, fmt.Append(nil, i), true); err != nil {
				t.Error(err)
			}
			if err := d.Replace("w", name, fmt.Append(nil, i+1), true); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for i := range 64 {
		want(t, d, fmt.Sprintf("row%02d", i), fmt.Sprint(i+1))
	}
	if temps, err := d.Temps(); err != nil || len(temps) > 0 {
		t.Fatalf("temps left: %v, %v", temps, err)
	}
}

func TestMkdirAll(t *testing.T) {
	base := t.TempDir()
	path := filepath.Join(base, "a", "b", "c")
	for range 2 { // the second time there is nothing to do
		if err := MkdirAll(path+"/", 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := MkdirAll(filepath.Join(base, "a", "d"), 0o750); err != nil {
		t.Fatal(err)
	}
	for p, mode := range map[string]fs.FileMode{"a": 0o700, "a/b": 0o700, "a/b/c": 0o700, "a/d": 0o750} {
		fi, err := os.Stat(filepath.Join(base, p))
		if err != nil || fi.Mode() != fs.ModeDir|mode {
			t.Errorf("%s: %v, %v, want %v", p, fi.Mode(), err, fs.ModeDir|mode)
		}
	}
	file := filepath.Join(base, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	dangling := filepath.Join(base, "dangling")
	if err := os.Symlink("nowhere", dangling); err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{file, filepath.Join(file, "x"), dangling} {
		var se *SyncError
		if err := MkdirAll(p, 0o700); err == nil || errors.As(err, &se) {
			t.Errorf("MkdirAll(%s): %v, want a refusal", p, err)
		}
	}
}

func TestMkdirAllRace(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a", "b", "c", "d")
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			if err := MkdirAll(path, 0o700); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if fi, err := os.Stat(path); err != nil || fi.Mode().Perm() != 0o700 {
		t.Fatalf("%v, %v", fi, err)
	}
}
