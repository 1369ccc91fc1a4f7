//go:build unix

package settings

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// What another program, which knows of no lock, does to the file between our last read of it
// and the replacement: the edit is made again, on what it left.
func TestChangeBetweenReadAndReplaceIsKept(t *testing.T) {
	for name, c := range map[string]struct {
		before string // "" is no file
		meddle func(t *testing.T, path string)
		want   string
	}{
		"written in place": {"old", func(t *testing.T, path string) { must(t, os.WriteFile(path, []byte("new"), 0o644)) }, "new+"},
		"of the same size, with the old times": {"old", func(t *testing.T, path string) {
			info, err := os.Stat(path)
			must(t, err)
			must(t, os.WriteFile(path, []byte("new"), 0o644))
			must(t, os.Chtimes(path, info.ModTime(), info.ModTime()))
		}, "new+"},
		"replaced": {"old", func(t *testing.T, path string) {
			must(t, os.WriteFile(path+".tmp", []byte("new"), 0o644))
			must(t, os.Rename(path+".tmp", path))
		}, "new+"},
		"emptied": {"old", func(t *testing.T, path string) { must(t, os.Truncate(path, 0)) }, "+"},
		"removed": {"old", func(t *testing.T, path string) { must(t, os.Remove(path)) }, "none+"},
		"made":    {"", func(t *testing.T, path string) { must(t, os.WriteFile(path, []byte("new"), 0o644)) }, "new+"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "settings.json")
			if c.before != "" {
				must(t, os.WriteFile(path, []byte(c.before), 0o644))
			}
			// The first edit is made before the lock is taken, the second is the one to be
			// written: the change comes after its text was read.
			edits := 0
			changed, err := change(path, func(text []byte, exists bool) ([]byte, error) {
				if edits++; edits == 2 {
					c.meddle(t, path)
				}
				if !exists {
					text = []byte("none")
				}
				return append(text[:len(text):len(text)], '+'), nil
			})
			if err != nil || !changed || edits != 3 {
				t.Errorf("changed %v, %v, after %d edits", changed, err, edits)
			}
			if got := content(t, path); got != c.want {
				t.Errorf("left %q, want %q", got, c.want)
			}
		})
	}
}

// A link that is made to lead elsewhere meanwhile is followed to there.
func TestLinkThatIsTurnedBeforeTheReplaceIsFollowed(t *testing.T) {
	dir := t.TempDir()
	path, one, two := filepath.Join(dir, "settings.json"), filepath.Join(dir, "one"), filepath.Join(dir, "two")
	must(t, os.WriteFile(one, []byte("1"), 0o644))
	must(t, os.WriteFile(two, []byte("1"), 0o644)) // the same text
	must(t, os.Symlink("one", path))
	edits := 0
	_, err := change(path, func(text []byte, _ bool) ([]byte, error) {
		if edits++; edits == 2 {
			must(t, os.Remove(path))
			must(t, os.Symlink("two", path))
		}
		return append(text[:len(text):len(text)], '+'), nil
	})
	must(t, err)
	if a, b := content(t, one), content(t, two); a != "1" || b != "1+" {
		t.Errorf("left %q and %q", a, b)
	}
}

// A file that never keeps still is refused, and keeps the other's last text.
func TestFileThatKeepsChangingIsBusy(t *testing.T) {
	path := scratch(t, "")
	theirs := ""
	changed, err := change(path, func(text []byte, _ bool) ([]byte, error) {
		theirs += "x"
		must(t, os.WriteFile(path, []byte(theirs), 0o644))
		return append(text[:len(text):len(text)], '+'), nil
	})
	if changed || !errors.Is(err, ErrBusy) {
		t.Errorf("changed %v, %v", changed, err)
	}
	if got := content(t, path); got != theirs {
		t.Errorf("left %q, want %q", got, theirs)
	}
}

// A replacement looks for itself: what was made or changed since the file was read is kept.
func TestReplaceKeepsWhatWasNotRead(t *testing.T) {
	for _, before := range []string{"", "old"} {
		path := filepath.Join(t.TempDir(), "settings.json")
		if before != "" {
			must(t, os.WriteFile(path, []byte(before), 0o644))
		}
		f, err := read(path)
		must(t, err)
		must(t, os.WriteFile(path, []byte("new"), 0o644))
		if err := f.replace([]byte("ours")); !errors.Is(err, errChanged) {
			t.Errorf("before %q: error %v", before, err)
		}
		if got := content(t, path); got != "new" {
			t.Errorf("before %q: left %q", before, got)
		}
		if names, err := os.ReadDir(filepath.Dir(path)); err != nil || len(names) != 1 {
			t.Errorf("before %q: %v, %v", before, names, err)
		}
	}
}
