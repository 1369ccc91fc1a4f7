package gitcmd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Repo is a working tree as git sees it.
type Repo struct {
	Place
	Head   string // commit id; "" when Unborn
	Tree   string // id of Head's tree; "" when Unborn
	Unborn bool   // the branch has no commit yet
}

// Describe asks git about the working tree that dir, an absolute path, lies in. It costs one
// child process, or three on an unborn branch. Errors: see the sentinels of this package;
// ErrNotRepository only if nothing above dir looks like a repository.
func (r Runner) Describe(ctx context.Context, dir string) (Repo, error) {
	repo, _, err := r.describe(ctx, dir, "")
	return repo, err
}

// describe also resolves ref, if one is given and exists.
func (r Runner) describe(ctx context.Context, dir, ref string) (repo Repo, refCommit string, err error) {
	args := []string{"rev-parse", "--show-toplevel", "--git-dir", "--git-common-dir"}
	if ref != "" {
		args = append(args, "--glob="+exactGlob(ref))
	}
	// Last what fails on an unborn branch. The dashes, which are echoed, rule out files of that name.
	args = append(args, "HEAD^{commit}", "HEAD^{tree}", "--symbolic-full-name", "HEAD", "--")
	out, _, err := r.output(ctx, call{dir: dir, args: args})
	lines := splitLines(out)
	var ge *Error
	switch {
	case err == nil && len(lines) < 7:
		return Repo{}, "", &Error{Args: args, Dir: dir, ExitCode: 0, Err: fmt.Errorf("%w: unexpected output", ErrBroken)}
	case err == nil:
		n := len(lines) - 4
		repo.Head, repo.Tree = lines[n], lines[n+1]
		repo.Branch = branchName(lines[n+2])
		lines = lines[:n]
	case errors.As(err, &ge) && ge.Err == nil && len(lines) >= 3 && strings.Contains(ge.Stderr, "HEAD^{commit}"):
		full, err := r.unbornBranch(ctx, dir)
		if err != nil {
			return Repo{}, "", err
		}
		repo.Unborn = true
		repo.Branch = branchName(full)
		if last := len(lines) - 1; strings.HasPrefix(lines[last], "HEAD") {
			lines = lines[:last] // what rev-parse echoes before it fails
		}
	case errors.Is(err, ErrNotRepository):
		return Repo{}, "", r.confirmAbsent(ctx, dir, err)
	default:
		return Repo{}, "", err
	}

	if len(lines) > 3 && ref != "" && isObjectID(lines[len(lines)-1]) {
		refCommit = lines[len(lines)-1]
		lines = lines[:len(lines)-1]
	}
	if len(lines) != 3 {
		// A path holds a newline: ask for each by itself.
		lines = nil
		for _, what := range []string{"--show-toplevel", "--git-dir", "--git-common-dir"} {
			out, _, err := r.output(ctx, call{dir: dir, args: []string{"rev-parse", what}})
			if err != nil {
				return Repo{}, "", err
			}
			lines = append(lines, strings.TrimSuffix(string(out), "\n"))
		}
	}
	// Git answers relative to the folder it entered, which is the physical one.
	base, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return Repo{}, "", &Error{Args: args, Dir: dir, ExitCode: 0, Err: fmt.Errorf("%w: %w", ErrNoDirectory, err)}
	}
	for i, p := range lines {
		if !filepath.IsAbs(p) {
			p = filepath.Join(base, p)
		}
		if i > 0 {
			if real, err := filepath.EvalSymlinks(p); err == nil {
				p = real
			}
		}
		lines[i] = filepath.Clean(p)
	}
	repo.Root, repo.GitDir, repo.CommonDir = lines[0], lines[1], lines[2]
	repo.Linked = repo.GitDir != repo.CommonDir
	repo.Project = projectName(repo.Root, repo.CommonDir, repo.Linked)
	return repo, refCommit, nil
}

// unbornBranch returns the full name of HEAD's branch, if that has provably no commit.
func (r Runner) unbornBranch(ctx context.Context, dir string) (string, error) {
	c := call{dir: dir, args: []string{"symbolic-ref", "HEAD"}}
	out, _, err := r.output(ctx, c)
	if err != nil {
		return "", fmt.Errorf("%w: HEAD names no commit: %w", ErrBroken, err)
	}
	full := strings.TrimSuffix(string(out), "\n")
	c.args = []string{"for-each-ref", "--format=%(objectname)", "--", full}
	out, stderr, err := r.output(ctx, c)
	if err == nil && (len(out) > 0 || strings.Contains(stderr, "broken ref")) {
		err = &Error{Args: c.args, Dir: dir, ExitCode: 0, Stderr: stderr, Err: fmt.Errorf("%w: cannot read %s", ErrBroken, printable(full))}
	}
	return full, err
}

// confirmAbsent turns git's "not a repository" into ErrBroken when a .git is there or cannot be
// ruled out: git walks past one that it cannot use.
func (r Runner) confirmAbsent(ctx context.Context, dir string, absent error) error {
	return bounded(ctx, func() error {
		base, err := filepath.EvalSymlinks(dir)
		if err != nil {
			return fmt.Errorf("%w: %w", ErrBroken, err)
		}
		for p := base; ; p = filepath.Dir(p) {
			switch _, err := os.Lstat(filepath.Join(p, ".git")); {
			case err == nil:
				return fmt.Errorf("%w: git cannot use %q", ErrBroken, filepath.Join(p, ".git"))
			case !errors.Is(err, fs.ErrNotExist):
				return fmt.Errorf("%w: %w", ErrBroken, err)
			}
			if p == filepath.Dir(p) {
				return absent
			}
		}
	})
}

// bounded runs fn, which reads files and may hang with their file system, until ctx ends.
func bounded(ctx context.Context, fn func() error) error {
	done := make(chan error, 1)
	go func() { done <- fn() }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return stopped(ctx.Err())
	}
}

// exactGlob matches ref alone: without a wildcard git would take it for a prefix.
func exactGlob(ref string) string {
	i := strings.LastIndexByte(ref, '/') + 1
	return ref[:i] + "[" + ref[i:i+1] + "]" + ref[i+1:]
}

func branchName(full string) string {
	if name, ok := strings.CutPrefix(full, "refs/heads/"); ok {
		return name
	}
	return ""
}

func splitLines(b []byte) []string {
	if len(b) == 0 {
		return nil
	}
	return strings.Split(string(bytes.TrimSuffix(b, []byte("\n"))), "\n")
}

// isObjectID says whether s is a full id, sha1 or sha256.
func isObjectID(s string) bool {
	return (len(s) == 40 || len(s) == 64) && strings.Trim(s, "0123456789abcdef") == ""
}
