package settings

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"

	"github.com/sessionledger/ledger/internal/durable"
	"github.com/sessionledger/ledger/internal/transcript"
)

// A file is a settings file as it was read.
type file struct {
	path   string // as it was asked for
	target string // path with all links followed
	exists bool
	text   []byte
	info   fs.FileInfo
}

// read reads the file that a path leads to. One that is not there has no text.
func read(path string) (file, error) {
	target, err := follow(path)
	if err != nil {
		return file{}, err
	}
	f, info, err := transcript.Open(target)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return file{path: path, target: target}, nil
	case errors.Is(err, transcript.ErrNotRegular):
		return file{}, &fs.PathError{Op: "open", Path: path, Err: ErrNotRegular}
	case err != nil:
		return file{}, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, MaxFile+1))
	if err == nil && len(text) > MaxFile {
		err = ErrTooLarge
	}
	if err != nil {
		return file{}, &fs.PathError{Op: "read", Path: path, Err: err}
	}
	return file{path: path, target: target, exists: true, text: text, info: info}, nil
}

// maxLinks is how many links a path may lead through.
const maxLinks = 40

// follow returns the name that a path leads to, also where nothing has it yet:
// a link can be there before its target.
func follow(path string) (string, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	for range maxLinks {
		dir, base := filepath.Split(path)
		real, err := filepath.EvalSymlinks(dir)
		if errors.Is(err, fs.ErrNotExist) {
			return path, nil
		} else if err != nil {
			return "", err
		}
		// Not joined: that would take "link/.." for nothing.
		path = real + string(filepath.Separator) + base
		info, err := os.Lstat(path)
		if err != nil || info.Mode()&fs.ModeSymlink == 0 {
			return filepath.Clean(path), nil
		}
		to, err := os.Readlink(path)
		if err != nil {
			return "", err
		}
		if !filepath.IsAbs(to) {
			to = real + string(filepath.Separator) + to
		}
		path = to
	}
	return "", &fs.PathError{Op: "open", Path: path, Err: errors.New("too many links")}
}

// same reports whether the file is as it was.
func (f file) same(g file) bool {
	return f.target == g.target && f.exists == g.exists && bytes.Equal(f.text, g.text)
}

// errChanged says that another program has changed a file since it was read.
var errChanged = errors.New("changed meanwhile")

const tagPrefix = "settings-"

// replace publishes the new text, with the old file's mode and owner. It fails with
// errChanged where the file is not as it was read, which it looks at last of all.
func (f file) replace(text []byte) error {
	d, err := durable.OpenDir(filepath.Dir(f.target))
	if err != nil {
		return err
	}
	defer d.Close()
	tag, name := fmt.Sprintf("%s%x", tagPrefix, rand.Uint64()), filepath.Base(f.target)
	if !f.exists {
		err := d.Create(tag, name, text, true)
		if errors.Is(err, fs.ErrExist) {
			err = errChanged
		}
		return err
	}
	s, err := d.Stage(tag, name, text, false)
	if err != nil {
		return err
	}
	defer s.Discard()
	if err := f.dress(d, tag); err != nil {
		return err
	}
	switch now, err := read(f.path); {
	case err != nil:
		return err
	case !f.same(now):
		return errChanged
	}
	if err := s.Replace(); err != nil {
		return err
	}
	return d.Sync(s)
}

// dress gives a staged file the mode and owner of the old one and makes it
// durable. It is done before the file has its name: who reads it then may read
// it now. What installers that were killed have left is removed: the lock on the
// folder says that none is at work.
func (f file) dress(d *durable.Dir, tag string) error {
	temps, err := d.Temps()
	if err != nil {
		return err
	}
	staged := ""
	for _, t := range temps {
		switch {
		case t.Tag == tag:
			staged = t.Name
		case strings.HasPrefix(t.Tag, tagPrefix):
			_ = d.Remove(t.Name)
		}
	}
	w, err := os.OpenFile(filepath.Join(d.Path(), staged), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer w.Close()
	if err := own(w, f.info); err != nil {
		return err
	}
	// After the owner, a change of which clears bits.
	if err := w.Chmod(f.info.Mode().Perm()); err != nil {
		return err
	}
	return w.Sync()
}
