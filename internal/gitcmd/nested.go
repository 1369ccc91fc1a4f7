package gitcmd

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// maxDepth bounds repositories in repositories.
const maxDepth = 5

// nestedRepo is a repository inside the working tree, relative to its root.
type nestedRepo struct {
	path    string
	tracked bool // a submodule
}

// nested rescues the repositories inside the working tree. A commit holds no more of one than
// its HEAD's id, so each with uncommitted work gets a ref of its own. It reports whether
// uncommitted work of one is, or may be, held nowhere.
func (w *work) nested(ctx context.Context, p *plan, depth int) (unheld bool) {
	slices.SortFunc(p.nested, func(a, b nestedRepo) int { return strings.Compare(a.path, b.path) })
	p.nested = slices.CompactFunc(p.nested, func(a, b nestedRepo) bool { return a.path == b.path })
	for _, n := range p.nested {
		name := n.path + "/"
		kind := "nested repository"
		if n.tracked {
			kind = "submodule"
		}
		if depth == maxDepth {
			w.omit(name, kind+", too many levels deep", "")
			unheld = true
			continue
		}
		opts := w.opts
		opts.Dir = w.path(n.path)
		repo, err := w.r.Describe(ctx, opts.Dir)
		if err == nil && repo.Root != opts.Dir {
			err = ErrBroken // git found the one around it
		}
		if err != nil {
			w.omit(name, kind+" cannot be read: "+printable(err.Error()), "")
			unheld = true
			continue
		}
		if !n.tracked && !repo.Unborn {
			p.add = append(p.add, n.path)
		}
		opts.Ref = nestedRef(w.opts.Ref, n.path, repo.Linked)
		snap, err := w.r.snapshot(ctx, opts, depth+1)
		switch {
		case err != nil:
			w.omit(name, kind+" could not be rescued: "+printable(err.Error()), "")
			unheld = true
		case snap.Ref != "":
			w.omit(name, kind+": its uncommitted work is in a ref of its own store", snap.Ref)
		case !snap.Clean:
			// What its own omissions say, below.
		case !n.tracked && repo.Unborn:
			w.omit(name, kind+" without a commit or a file", "")
		case !n.tracked || slices.Contains(p.add, n.path):
			w.omit(name, kind+" without uncommitted work: its commits stay in its own store", "")
		}
		for _, o := range snap.Omitted {
			w.omit(filepath.ToSlash(name)+o.Path, o.Reason, o.Ref)
		}
		for _, f := range snap.Unfiltered {
			if !slices.Contains(w.unfiltered, f) {
				w.unfiltered = append(w.unfiltered, f)
			}
		}
	}
	return unheld
}

// usurped reports whether the folder of a submodule holds files and is no repository: the
// submodule was never fetched, and something was put in its place.
func (w *work) usurped(link string) bool {
	dir := w.path(link)
	if _, err := os.Lstat(filepath.Join(dir, ".git")); err == nil || !isAbsent(err) {
		return false // it is looked into as a repository, or says so itself
	}
	entries, err := os.ReadDir(dir)
	return err == nil && len(entries) > 0
}

// nestedRef is the ref for a nested repository. Linked worktrees share one ref store, with each
// other and perhaps with the repository around them, so theirs are told apart by the path.
func nestedRef(ref, path string, linked bool) string {
	if !linked {
		return ref
	}
	sum := sha256.Sum256([]byte(path))
	return ref + "+" + hex.EncodeToString(sum[:6])
}
