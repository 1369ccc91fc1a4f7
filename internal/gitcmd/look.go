package gitcmd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
)

// entry is one line of git ls-files -v -s.
type entry struct {
	path    string
	gitlink bool
	skip    bool // skip-worktree
	assumed bool // assume-unchanged
}

// status clears the bits that hide work from git, in the throwaway index alone, and asks git
// what differs from it. The second result is the submodules that the index knows.
func (w *work) status(ctx context.Context) (status, []string, error) {
	// Most indexes have no such bits, so this answer is mostly the last.
	st, err := w.readStatus(ctx)
	entries := w.entries
	if err == nil && !w.scanned {
		entries, err = w.list(ctx)
	}
	if err != nil {
		if !w.copied || !indexDamaged(err) || ctx.Err() != nil {
			return status{}, nil, err
		}
		// A power cut can leave an index empty or torn: git does not sync it.
		if err := w.seedFromHead(ctx); err != nil {
			return status{}, nil, err
		}
		w.omit("", "the index is damaged: what only it knew is not held (staged files that an ignore rule matches)", "")
		return w.status(ctx)
	}

	var links, assumed, skipped []string
	for _, e := range entries {
		if e.gitlink {
			links = append(links, e.path)
		}
		if e.assumed {
			assumed = append(assumed, e.path)
		}
		// A file that a sparse checkout left out is not deleted. One that is there is work.
		if e.skip && !e.gitlink {
			if _, err := os.Lstat(w.path(e.path)); err == nil || !isAbsent(err) {
				skipped = append(skipped, e.path)
			}
		}
	}
	if len(assumed)+len(skipped) == 0 {
		return st, links, nil
	}
	for flag, paths := range map[string][]string{"--no-assume-unchanged": assumed, "--no-skip-worktree": skipped} {
		if len(paths) == 0 {
			continue
		}
		if _, _, err := w.git(ctx, joinNUL(paths), "update-index", flag, "-z", "--stdin"); err != nil {
			return status{}, nil, err
		}
	}
	st, err = w.readStatus(ctx)
	return st, links, err
}

func (w *work) readStatus(ctx context.Context) (status, error) {
	out, stderr, err := w.git(ctx, nil, statusArgs...)
	if err != nil {
		return status{}, err
	}
	st, err := parseStatus(out, stderr)
	if w.hidden != "" {
		kept := st.changes[:0]
		for _, c := range st.changes {
			if !strings.HasPrefix(c.path, w.hidden) {
				kept = append(kept, c)
			}
		}
		st.changes = kept
	}
	return st, err
}

// list returns the index entries that need a look: submodules, and those with a hiding bit.
func (w *work) list(ctx context.Context) ([]entry, error) {
	var l lister
	_, err := w.r.run(ctx, call{
		dir:    w.repo.Root,
		args:   []string{"ls-files", "-v", "-s", "-z", "--full-name"},
		env:    []string{"GIT_INDEX_FILE=" + w.index()},
		stdout: &l,
	})
	if err == nil && (l.bad || len(l.rest) > 0) {
		err = fmt.Errorf("%w: unexpected output of git ls-files", ErrBroken)
	}
	return l.entries, err
}

// lister reads git ls-files -v -s -z as it comes: an index can be far larger than what is kept.
type lister struct {
	rest    []byte
	entries []entry
	bad     bool
}

func (l *lister) Write(p []byte) (int, error) {
	n := len(p)
	for {
		rec, after, ok := bytes.Cut(p, []byte{0})
		if !ok {
			l.rest = append(l.rest, p...)
			return n, nil
		}
		p = after
		if len(l.rest) > 0 {
			rec = append(l.rest, rec...)
			l.rest = nil
		}
		tab := bytes.IndexByte(rec, '\t')
		if tab < 0 || len(rec) < 8 || rec[1] != ' ' {
			l.bad = true
			continue
		}
		tag := rec[0]
		e := entry{
			gitlink: bytes.HasPrefix(rec[2:], []byte("160000 ")),
			skip:    tag|0x20 == 's',
			assumed: 'a' <= tag && tag <= 'z',
		}
		if e.gitlink || e.skip || e.assumed {
			e.path = string(rec[tab+1:])
			l.entries = append(l.entries, e)
		}
	}
}

// indexDamaged says whether git could not read the throwaway index.
func indexDamaged(err error) bool {
	var ge *Error
	return errors.As(err, &ge) && ge.ExitCode == 128 && ge.Err == nil && strings.Contains(ge.Stderr, "index")
}

func joinNUL(paths []string) []byte {
	return []byte(strings.Join(paths, "\x00") + "\x00")
}
