package gitcmd

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// staleRefLock is the age from which a lock on a rescue ref is left over. Nothing but snapshots
// writes these refs, in milliseconds and under a deadline of seconds.
const staleRefLock = 10 * time.Minute

// writeTree writes the throwaway index as a tree. Objects that git would only look up are not
// looked up: in a partial clone they may be absent by right.
func (w *work) writeTree(ctx context.Context) (string, error) {
	out, _, err := w.git(ctx, nil, "write-tree", "--missing-ok")
	return strings.TrimSpace(string(out)), err
}

// difference returns the objects of tree that HEAD's tree does not have, and the paths that
// differ, without folders.
func (w *work) difference(ctx context.Context, tree string) (objects, paths []string, err error) {
	if w.repo.Unborn {
		out, _, err := w.git(ctx, nil, "ls-tree", "-r", "-t", "-z", tree)
		for _, rec := range splitNUL(out) {
			meta, path, _ := strings.Cut(rec, "\t")
			f := strings.Fields(meta)
			if len(f) != 3 {
				return nil, nil, fmt.Errorf("%w: unexpected output of git ls-tree", ErrBroken)
			}
			if f[1] != "commit" {
				objects = append(objects, f[2])
			}
			if f[1] != "tree" {
				paths = append(paths, path)
			}
		}
		return append(objects, tree), paths, err
	}
	if tree == w.repo.Tree {
		return nil, nil, nil
	}
	out, _, err := w.r.output(ctx, call{
		dir:  w.repo.Root,
		args: []string{"diff-tree", "-r", "-t", "-z", "--raw", "--no-renames", "--no-abbrev", w.repo.Tree, tree},
		env:  noIndex(w.dir), // or it would read that first
	})
	if err != nil {
		return nil, nil, err
	}
	const folder, gitlink, none = "040000", "160000", "000000"
	recs := splitNUL(out)
	for i := 0; i+1 < len(recs); i += 2 {
		f := strings.Fields(recs[i])
		if len(f) != 5 || f[0][0] != ':' {
			return nil, nil, fmt.Errorf("%w: unexpected output of git diff-tree", ErrBroken)
		}
		before, after, path := f[0][1:], f[1], recs[i+1]
		if after != none && after != gitlink {
			objects = append(objects, f[3])
		}
		isFile := before != folder && before != none || after != folder && after != none
		if isFile && (len(paths) == 0 || paths[len(paths)-1] != path) {
			paths = append(paths, path)
		}
	}
	return append(objects, tree), paths, nil
}

// commit makes the commit and its ref, durable in this order. Only one of several at once makes
// the ref; the others return that one's.
func (w *work) commit(ctx context.Context, snap Snapshot, tree string, objects []string) (Snapshot, error) {
	failed := Snapshot{Root: snap.Root, Omitted: snap.Omitted, Unfiltered: snap.Unfiltered}
	synced := make(chan error, 1)
	go func() { synced <- syncObjects(ctx, w.repo.CommonDir, objects) }()
	args := []string{"commit-tree"}
	if !w.repo.Unborn {
		args = append(args, "-p", w.repo.Head)
	}
	out, _, err := w.r.output(ctx, call{
		dir: w.repo.Root, args: append(args, tree), env: identity(w.opts.Time), config: w.off,
		stdin: []byte(snap.Message),
	})
	if err = errors.Join(err, <-synced); err != nil {
		return failed, err
	}
	snap.Commit = strings.TrimSpace(string(out))
	if err := syncObjects(ctx, w.repo.CommonDir, []string{snap.Commit}); err != nil {
		return failed, err
	}
	err = w.updateRef(ctx, snap.Commit)
	if err != nil && w.removeStaleLock() {
		err = w.updateRef(ctx, snap.Commit)
	}
	if err != nil {
		if _, winner, derr := w.r.describe(ctx, w.repo.Root, w.opts.Ref); derr == nil && winner != "" {
			return w.r.existing(ctx, w.repo, w.opts, winner)
		}
		return failed, err
	}
	return snap, syncRef(w.repo, w.opts.Ref)
}

// updateRef creates the ref. The empty old value makes git refuse if it exists.
func (w *work) updateRef(ctx context.Context, commit string) error {
	_, err := w.r.run(ctx, call{
		dir: w.repo.Root, args: []string{"update-ref", "--no-deref", w.opts.Ref, commit, ""},
		env: identity(w.opts.Time), config: w.off,
	})
	return err
}

// removeStaleLock removes what a power cut in the middle of updateRef has left.
func (w *work) removeStaleLock() bool {
	lock := filepath.Join(w.repo.CommonDir, filepath.FromSlash(w.opts.Ref)+".lock")
	info, err := os.Lstat(lock)
	return err == nil && info.Mode().IsRegular() && time.Since(info.ModTime()) > staleRefLock && os.Remove(lock) == nil
}

// identity is the private author and committer, so that none need be configured.
func identity(at time.Time) []string {
	var env []string
	for _, who := range []string{"GIT_AUTHOR_", "GIT_COMMITTER_"} {
		env = append(env, who+"NAME=session ledger", who+"EMAIL=ledger@localhost", who+fmt.Sprintf("DATE=@%d +0000", at.Unix()))
	}
	return env
}

// syncRef makes the name of a ref durable: git renames it into place and leaves it at that.
func syncRef(repo Repo, ref string) error {
	refs := filepath.Join(repo.CommonDir, "refs")
	dirs := []string{filepath.Dir(filepath.Join(repo.CommonDir, filepath.FromSlash(ref))), refs, filepath.Join(repo.CommonDir, "reftable")}
	for _, dir := range dirs {
		// Packed refs and reftables have no such folder.
		if err := syncDir(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}
