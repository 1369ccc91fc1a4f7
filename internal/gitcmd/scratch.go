package gitcmd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// scratchPrefix begins the name of every folder that a snapshot makes in SnapshotOptions.Scratch.
const scratchPrefix = "rescue-"

// work is one snapshot's throwaway index and what becomes known along the way.
type work struct {
	r      Runner
	repo   Repo
	opts   SnapshotOptions
	dir    string // holds the index, and the lock file that git puts beside it
	hidden string // dir relative to the working tree, if it lies in it
	config
	copied  bool    // the index is a copy of the real one
	entries []entry // of that copy, those that need a look
	scanned bool    // entries is set
	omitted []Omission

	unfiltered []string // of nested repositories
}

// openWork makes the throwaway index. close removes it.
func (r Runner) openWork(ctx context.Context, repo Repo, opts SnapshotOptions, conf config) (*work, error) {
	scratch, err := filepath.EvalSymlinks(opts.Scratch)
	if err != nil {
		return nil, fmt.Errorf("scratch folder: %w", err)
	}
	dir, err := os.MkdirTemp(scratch, scratchPrefix)
	if err != nil {
		return nil, err
	}
	w := &work{r: r, repo: repo, opts: opts, dir: dir, config: conf}
	if rel, err := filepath.Rel(repo.Root, dir); err == nil && filepath.IsLocal(rel) {
		w.hidden = filepath.ToSlash(rel) + "/"
	}
	if err := w.seed(ctx); err != nil {
		w.close()
		return nil, err
	}
	return w, nil
}

// noIndex names an index that does not exist.
func noIndex(dir string) []string { return []string{"GIT_INDEX_FILE=" + filepath.Join(dir, "none")} }

func (w *work) close() { _ = os.RemoveAll(w.dir) }

func (w *work) index() string { return filepath.Join(w.dir, "index") }

// git runs a command on the throwaway index, again without a filter that could not run.
func (w *work) git(ctx context.Context, stdin []byte, args ...string) (stdout []byte, stderr string, err error) {
	for {
		stdout, stderr, err = w.r.output(ctx, call{
			dir:    w.repo.Root,
			args:   args,
			env:    []string{"GIT_INDEX_FILE=" + w.index()},
			config: append(w.filters.overrides(), w.off...),
			stdin:  stdin,
		})
		if err == nil || !w.filters.failure(stderr) {
			return stdout, stderr, err
		}
	}
}

// seed copies the real index, so that unchanged files are not hashed again. The copy keeps the
// modification time: git compares it with the files' to see which could have been edited in the
// instant after their entry was made.
func (w *work) seed(ctx context.Context) error {
	from, err := os.Open(filepath.Join(w.repo.GitDir, "index"))
	if errors.Is(err, fs.ErrNotExist) {
		return w.seedFromHead(ctx)
	}
	if err != nil {
		return err
	}
	defer from.Close()
	info, err := from.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%w: the index: %w", ErrBroken, errNotRegular)
	}
	to, err := os.OpenFile(w.index(), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	var copied bytes.Buffer
	if info.Size() <= scanLimit {
		_, err = io.Copy(io.MultiWriter(to, &copied), from)
	} else {
		_, err = io.Copy(to, from)
	}
	if err = errors.Join(err, to.Close()); err != nil {
		return err
	}
	w.copied = true
	w.entries, w.scanned = scanIndex(copied.Bytes(), len(w.repo.Head)/2)
	return os.Chtimes(w.index(), info.ModTime(), info.ModTime())
}

// seedFromHead serves where there is no index to copy. HEAD's entries are needed even so: files
// that are tracked although an ignore rule matches them would read as deleted.
func (w *work) seedFromHead(ctx context.Context) error {
	w.copied, w.scanned = false, false
	if w.sparse {
		return fmt.Errorf("%w: the index of a sparse checkout cannot be read, and it alone knows which files are absent on purpose", ErrBroken)
	}
	if err := os.Remove(w.index()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if w.repo.Unborn {
		return nil
	}
	_, _, err := w.git(ctx, nil, "read-tree", w.repo.Head)
	return err
}

// SweepScratch removes from a scratch folder what snapshots killed before the given time have
// left there.
func SweepScratch(scratch string, before time.Time) error {
	entries, err := os.ReadDir(scratch)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, e := range entries {
		info, ierr := e.Info()
		if ierr != nil || !e.IsDir() || !strings.HasPrefix(e.Name(), scratchPrefix) || !info.ModTime().Before(before) {
			continue
		}
		err = errors.Join(err, os.RemoveAll(filepath.Join(scratch, e.Name())))
	}
	return err
}
