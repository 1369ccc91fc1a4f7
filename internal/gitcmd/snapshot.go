package gitcmd

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// RescuePrefix is where rescued work is kept in a repository's ref store.
const RescuePrefix = "refs/rescued/"

// SnapshotOptions say what to snapshot, and into what.
type SnapshotOptions struct {
	Dir         string                // a folder of the working tree, absolute
	Scratch     string                // an existing folder for throwaway files, absolute
	Ref         string                // refs/rescued/<id>; the id of letters, digits and "._+-@"
	Message     func(Snapshot) string // the commit message for what was gathered, also of nested repositories; nil: a short one
	Time        time.Time             // of author and committer; zero: now
	MaxFileSize int64                 // in bytes; larger files are omitted; 0: no limit
}

// Snapshot is the outcome. Exactly one of these holds, if there was no error:
//
//   - Ref and Commit are set: the work is held.
//   - Clean: there was nothing to hold, and everything was looked at.
//   - neither: nothing of it fits into a commit here; Omitted says where the work is instead.
type Snapshot struct {
	Root     string // top of the working tree
	Ref      string // "": none was made
	Commit   string // its full id
	Existing bool   // the ref was there before: Commit, Paths and Message are its own, Omitted is empty
	Clean    bool
	Message  string // the commit's; what is no UTF-8 text has been replaced, so quote paths
	Paths    []string
	Omitted  []Omission
	// Unfiltered names the clean filters that could not run. Content that they apply to is held
	// as it is in the working tree.
	Unfiltered []string
}

// Omission is something that the snapshot does not hold. Paths are relative to Root, raw bytes,
// and end in a slash where a folder is meant.
type Omission struct {
	Path   string
	Reason string
	Ref    string // where it is held instead: a ref in the nested repository's own ref store
}

// Snapshot puts everything that is uncommitted and not ignored in a working tree into a commit
// whose only parent is HEAD (none on an unborn branch), and creates Ref for it. Working tree,
// index, HEAD, branches and stash stay as they are, and no hook runs.
//
// The content is the working tree's, also of what was staged. Files absent because of a sparse
// checkout are not deletions. Nested repositories and submodules with uncommitted work are put
// into refs of their own stores, under the same name (linked worktrees, which share one store,
// under that name, "+" and a hash of their path), and listed in Omitted with it.
//
// A Ref that exists already is this snapshot's, made earlier or at the same time by another
// process, and is returned as Existing, unchanged. Work of which a snapshot would hold nothing
// is ErrEmptySnapshot, with Omitted saying why. An error leaves no ref. ctx bounds the whole.
func (r Runner) Snapshot(ctx context.Context, opts SnapshotOptions) (Snapshot, error) {
	if !validRef(opts.Ref) {
		return Snapshot{}, fmt.Errorf("not a rescue ref: %q", opts.Ref)
	}
	if opts.Time.IsZero() {
		opts.Time = time.Now()
	}
	type result struct {
		snap Snapshot
		err  error
	}
	done := make(chan result, 1)
	go func() {
		snap, err := r.snapshot(ctx, opts, 0)
		done <- result{snap, err}
	}()
	select {
	case res := <-done:
		return res.snap, res.err
	case <-ctx.Done():
	}
	// The git children end with ctx, and the files are then cleared away. A read of a working tree
	// that hangs does not end, and is left to itself.
	grace := time.NewTimer(termGrace + 3*pipeDelay)
	defer grace.Stop()
	select {
	case res := <-done:
		return res.snap, res.err
	case <-grace.C:
		return Snapshot{}, stopped(ctx.Err())
	}
}

func (r Runner) snapshot(ctx context.Context, opts SnapshotOptions, depth int) (Snapshot, error) {
	// Two questions that do not depend on each other.
	var conf config
	var confErr error
	asked := make(chan struct{})
	go func() {
		defer close(asked)
		conf, confErr = r.readConfig(ctx, opts.Dir)
	}()
	repo, existing, err := r.describe(ctx, opts.Dir, opts.Ref)
	<-asked
	if err == nil {
		err = confErr
	}
	if err != nil {
		return Snapshot{}, err
	}
	snap := Snapshot{Root: repo.Root}
	if existing != "" {
		return r.existing(ctx, repo, opts, existing)
	}
	w, err := r.openWork(ctx, repo, opts, conf)
	if err != nil {
		return snap, err
	}
	defer w.close()

	st, links, err := w.status(ctx)
	if err != nil {
		return snap, err
	}
	for _, dir := range st.unread {
		w.omit(dir, "folder cannot be read", "")
	}
	for _, link := range links {
		if w.usurped(link) {
			w.omit(link+"/", "files in the place of a submodule, which git does not look at", "")
		}
	}
	plan := w.plan(st.changes, links)
	unheld := w.nested(ctx, plan, depth)
	if err := w.capture(ctx, plan); err != nil {
		return snap, err
	}
	snap.Omitted, snap.Unfiltered = w.omitted, append(w.filters.failed, w.unfiltered...)
	if len(st.changes) == 0 && len(w.omitted) == 0 {
		snap.Clean = true
		return snap, nil
	}

	tree, err := w.writeTree(ctx)
	if err != nil {
		return snap, err
	}
	objects, paths, err := w.difference(ctx, tree)
	if err != nil {
		return snap, err
	}
	if len(paths) == 0 {
		if len(st.changes) > plan.nestedChanges || unheld {
			return snap, fmt.Errorf("%w in %q", ErrEmptySnapshot, repo.Root)
		}
		return snap, nil
	}
	snap.Paths, snap.Ref = paths, opts.Ref
	snap.Message = defaultMessage(snap)
	if opts.Message != nil {
		snap.Message = opts.Message(snap)
	}
	snap.Message = strings.ReplaceAll(strings.ToValidUTF8(snap.Message, "\ufffd"), "\x00", "\ufffd")
	return w.commit(ctx, snap, tree, objects)
}

func defaultMessage(s Snapshot) string {
	return fmt.Sprintf("Rescued uncommitted work\n\nPaths: %d, omitted: %d.\nRestore with: git cherry-pick -n %s\n", len(s.Paths), len(s.Omitted), s.Ref)
}

// validRef admits a subset of what git admits, without anything that a glob or a file system
// could take for more than a name.
func validRef(ref string) bool {
	id, ok := strings.CutPrefix(ref, RescuePrefix)
	if !ok || id == "" || len(id) > 200 || id[0] == '.' || id[0] == '-' || strings.HasSuffix(id, ".") ||
		strings.HasSuffix(id, ".lock") || strings.Contains(id, "..") {
		return false
	}
	for _, c := range []byte(id) {
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		case strings.IndexByte("._+-@", c) >= 0:
		default:
			return false
		}
	}
	return true
}

// existing reads what a ref that is already there holds.
func (r Runner) existing(ctx context.Context, repo Repo, opts SnapshotOptions, commit string) (Snapshot, error) {
	snap := Snapshot{Root: repo.Root, Ref: opts.Ref, Commit: commit, Existing: true}
	out, _, err := r.output(ctx, call{dir: repo.Root, args: []string{"cat-file", "commit", commit}})
	if err != nil {
		return Snapshot{Root: repo.Root}, err
	}
	_, snap.Message, _ = strings.Cut(string(out), "\n\n")
	out, _, err = r.output(ctx, call{dir: repo.Root, args: []string{
		"diff-tree", "--root", "--no-commit-id", "-r", "-z", "--name-only", "--no-renames", commit,
	}, env: noIndex(opts.Scratch)}) // the real one may be damaged
	if err != nil {
		return Snapshot{Root: repo.Root}, err
	}
	snap.Paths = splitNUL(out)
	// Whoever made it may have died before this.
	return snap, errors.Join(syncRef(repo, opts.Ref))
}

func splitNUL(b []byte) []string {
	if len(b) == 0 {
		return nil
	}
	return strings.Split(strings.TrimSuffix(string(b), "\x00"), "\x00")
}
