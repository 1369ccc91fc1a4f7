package runtimes

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// FromShims derives a table from the links in dir that lead to shim, so that a
// CLI linked there later is covered without a change: each link's name is a
// runtime. A name that is built in has the built-in properties, any other those
// of Generic; the name of an interpreter, a shell or a wrapper is passed over,
// since every script would be a session of it. Links that lead nowhere are
// passed over too. An error means that the set is not known.
func FromShims(dir, shim string) (Table, error) {
	target, err := os.Stat(shim)
	if err != nil {
		return nil, fmt.Errorf("shim: %w", err)
	}
	d, err := openDir(dir)
	if err != nil {
		return nil, fmt.Errorf("shim folder: %w", err)
	}
	defer d.Close()
	entries, err := d.ReadDir(-1)
	if err != nil {
		return nil, fmt.Errorf("shim folder: %w", err)
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	builtin := Builtin()
	var t Table
	for _, e := range entries {
		if e.Type()&fs.ModeSymlink == 0 || !CanBeRuntime(e.Name()) {
			continue
		}
		fi, err := os.Stat(filepath.Join(dir, e.Name()))
		switch {
		case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR), errors.Is(err, syscall.ELOOP):
			continue
		case err != nil:
			return nil, fmt.Errorf("shim folder: %w", err)
		}
		if os.SameFile(fi, target) {
			s, _ := builtin.Lookup(e.Name())
			t = append(t, s)
		}
	}
	return t, nil
}
