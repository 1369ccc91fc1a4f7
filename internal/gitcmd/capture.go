package gitcmd

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// plan is what to do to the throwaway index.
type plan struct {
	add    []string // paths whose state in the working tree goes in
	edits  []string // lines of git update-index --index-info: removals, and unmerged paths put back
	nested []nestedRepo

	nestedChanges int // of the changes, those that are untracked nested repositories
}

// plan sorts what differs. Everything that git would fail on is taken out beforehand, with the
// reason, because one such path makes git drop all others.
func (w *work) plan(changes []change, links []string) *plan {
	p := &plan{}
	for _, link := range links {
		// Not populated: nothing there that could be dirty.
		if _, err := os.Lstat(w.path(link, ".git")); err == nil {
			p.nested = append(p.nested, nestedRepo{path: link, tracked: true})
		}
	}
	for _, c := range changes {
		switch {
		case c.kind == '?' && strings.HasSuffix(c.path, "/"):
			p.nestedChanges++
			p.nested = append(p.nested, nestedRepo{path: strings.TrimSuffix(c.path, "/")})
		case c.kind == '1' && c.tree == '.':
			// Staged, and the working tree agrees.
		case c.kind == '1' && c.tree == 'D':
			p.remove(c)
		default:
			w.consider(p, c)
		}
	}
	return p
}

func (p *plan) remove(c change) {
	p.edits = append(p.edits, "0 "+strings.Repeat("0", c.idLen)+"\t"+c.path)
}

// consider looks at one path that goes in, unless it cannot.
func (w *work) consider(p *plan, c change) {
	reason := ""
	info, err := os.Lstat(w.path(c.path))
	switch {
	case err != nil && isAbsent(err), err == nil && info.IsDir() && !c.sub && !w.isRepository(c.path):
		// Gone, or a folder in place of the file: what is in that is listed by itself.
		if c.kind != '?' {
			p.remove(c)
		}
		return
	case err != nil:
		reason = plainReason(err)
	case info.IsDir(), info.Mode().Type() == fs.ModeSymlink:
	case !info.Mode().IsRegular():
		reason = "not a regular file"
	case w.opts.MaxFileSize > 0 && info.Size() > w.opts.MaxFileSize:
		reason = fmt.Sprintf("%d bytes, over the limit of %d", info.Size(), w.opts.MaxFileSize)
	default:
		f, err := openRegular(w.path(c.path))
		if err != nil {
			reason = plainReason(err)
			break
		}
		f.Close()
	}
	if reason == "" {
		p.add = append(p.add, c.path)
		return
	}
	w.omit(c.path, reason, "")
	if c.kind == 'u' {
		// No tree can be written from an index with unmerged paths: back to our side.
		p.remove(c)
		if strings.Trim(c.mode, "0") != "" {
			p.edits = append(p.edits, fmt.Sprintf("%s %s\t%s", c.mode, c.ours, c.path))
		}
	}
}

// capture brings the throwaway index to the state of the working tree.
func (w *work) capture(ctx context.Context, p *plan) error {
	if len(p.edits) > 0 {
		if _, _, err := w.git(ctx, joinNUL(p.edits), "update-index", "-z", "--index-info"); err != nil {
			return err
		}
	}
	if len(p.add) == 0 {
		return nil
	}
	slices.Sort(p.add)
	ignored, err := w.add(ctx, p.add)
	if err != nil || !ignored {
		return err
	}
	// Git passes over names that could harm (".git" in disguise) without failing.
	out, _, err := w.git(ctx, nil, "ls-files", "-z", "--full-name")
	if err != nil {
		return err
	}
	in := map[string]bool{}
	for _, path := range splitNUL(out) {
		in[path] = true
	}
	for _, path := range p.add {
		if _, err := os.Lstat(w.path(path)); err == nil && !in[path] && !w.isOmitted(path) {
			w.omit(path, "git refuses the name", "")
		}
	}
	return nil
}

// add puts paths into the index. Git stops at the first path that it cannot read, convert or
// hash, and then writes nothing: halving finds those, whatever the reason.
func (w *work) add(ctx context.Context, paths []string) (ignored bool, err error) {
	_, stderr, err := w.git(ctx, joinNUL(paths), "update-index", "--add", "--remove", "--replace", "-z", "--stdin")
	var ge *Error
	switch {
	case err == nil:
		return strings.Contains(stderr, "Ignoring path "), nil
	case !errors.As(err, &ge) || ge.ExitCode != 128 || ge.Err != nil || storeFailed(stderr):
		return false, err
	case len(paths) == 1:
		ok, err := w.addRaw(ctx, paths[0])
		if err == nil && !ok {
			w.omit(paths[0], firstReason(stderr), "")
		}
		return false, err
	}
	half := len(paths) / 2
	a, err := w.add(ctx, paths[:half])
	if err != nil {
		return false, err
	}
	b, err := w.add(ctx, paths[half:])
	return a || b, err
}

// addRaw puts a file in as it is, without the conversion that failed (an encoding that its
// content does not have).
func (w *work) addRaw(ctx context.Context, path string) (ok bool, err error) {
	info, err := os.Lstat(w.path(path))
	if err != nil || !info.Mode().IsRegular() {
		return false, nil
	}
	out, stderr, err := w.git(ctx, nil, "hash-object", "-w", "--no-filters", "--", path)
	if err == nil {
		mode := "100644"
		if info.Mode()&0o100 != 0 {
			mode = "100755"
		}
		_, stderr, err = w.git(ctx, nil, "update-index", "--add", "--replace", "--cacheinfo", mode+","+strings.TrimSpace(string(out))+","+path)
	}
	var ge *Error
	if err != nil && errors.As(err, &ge) && ge.ExitCode == 128 && !storeFailed(stderr) {
		return false, nil
	}
	return err == nil, err
}

// storeFailed: the objects or the scratch folder cannot be written, which no path is to blame for.
func storeFailed(stderr string) bool {
	for _, s := range []string{
		"insufficient permission for adding an object", "unable to create temporary file", "unable to write",
		"Unable to create '", "No space left", "Read-only file system", "quota exceeded", "Out of memory", "out of memory",
	} {
		if strings.Contains(stderr, s) {
			return true
		}
	}
	return false
}

func (w *work) omit(path, reason, ref string) {
	w.omitted = append(w.omitted, Omission{Path: path, Reason: reason, Ref: ref})
}

func (w *work) isOmitted(path string) bool {
	return slices.ContainsFunc(w.omitted, func(o Omission) bool { return o.Path == path })
}

func (w *work) path(rel ...string) string {
	return filepath.Join(w.repo.Root, filepath.FromSlash(strings.Join(rel, "/")))
}

func (w *work) isRepository(path string) bool {
	_, err := os.Lstat(w.path(path, ".git"))
	return err == nil
}

func isAbsent(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR)
}

// plainReason is an error without the path, which is told beside it.
func plainReason(err error) string {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		err = pe.Err
	}
	return err.Error()
}

// firstReason is git's own first word on a path that it could not take.
func firstReason(stderr string) string {
	line, _, _ := strings.Cut(stderr, "\n")
	for _, p := range []string{"error: ", "fatal: "} {
		line = strings.TrimPrefix(line, p)
	}
	if line == "" {
		return "git could not add it"
	}
	return printable(line)
}
