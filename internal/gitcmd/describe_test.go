//go:build unix

package gitcmd

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// where is one folder to describe. Several may share one make.
type where struct {
	dir  string
	fast bool  // DescribeFast answers
	want Place // Root, GitDir and CommonDir relative to the home; of Describe
	err  error // of Describe
}

func TestDescribeFastAgreesWithGitOrLeavesItTheAnswer(t *testing.T) {
	for name, c := range map[string]struct {
		make  func(s *sandbox)
		where []where
	}{
		"main checkout": {
			func(s *sandbox) {
				s.repo("r")
				s.git("r", "checkout", "-q", "-b", "feature/x")
				must(s, os.Symlink("r/d", s.path("l")))
			},
			[]where{
				{dir: "r", fast: true, want: Place{"r", "r", "r/.git", "r/.git", "feature/x", false}},
				{dir: "r/d", fast: true, want: Place{"r", "r", "r/.git", "r/.git", "feature/x", false}},
				{dir: "l", fast: true, want: Place{"r", "r", "r/.git", "r/.git", "feature/x", false}},
				{dir: "r/.git", err: ErrNoWorkTree},
				{dir: "r/.git/objects", err: ErrNoWorkTree},
				{dir: "r/no such", err: ErrNoDirectory},
				{dir: "r/a", err: ErrNoDirectory},
				{dir: ".", fast: oneDevice(t), err: ErrNotRepository},
			},
		},
		"linked worktrees": {
			func(s *sandbox) {
				s.repo("r")
				s.git("r", "worktree", "add", "-q", "-b", "side", "../elsewhere/wt")
				s.git("r", "worktree", "add", "-q", "--detach", "inside")
			},
			[]where{
				{dir: "elsewhere/wt/d", fast: true, want: Place{"elsewhere/wt", "r", "r/.git/worktrees/wt", "r/.git", "side", true}},
				{dir: "r/inside", fast: true, want: Place{"r/inside", "r", "r/.git/worktrees/inside", "r/.git", "", true}},
			},
		},
		"configuration of its own for each worktree": {
			func(s *sandbox) {
				s.repo("r")
				s.git("r", "config", "extensions.worktreeConfig", "true")
				s.git("r", "worktree", "add", "-q", "-b", "side", "../wt")
				s.git("r", "config", "--worktree", "core.worktree", s.path("other"))
				must(s, os.Mkdir(s.path("other"), 0o755))
			},
			[]where{
				{dir: "wt", fast: true, want: Place{"wt", "r", "r/.git/worktrees/wt", "r/.git", "side", true}},
				{dir: "r", fast: false, want: Place{"other", "other", "r/.git", "r/.git", "main", false}},
			},
		},
		"worktrees of bare repositories": {
			func(s *sandbox) {
				s.repo("r")
				s.git(".", "clone", "-q", "--bare", "r", "name.git")
				s.git("name.git", "worktree", "add", "-q", "../w1")
				s.git(".", "clone", "-q", "--bare", "r", "project/.bare")
				s.git("project/.bare", "worktree", "add", "-q", "-b", "two", "../w2")
			},
			[]where{
				{dir: "w1", fast: true, want: Place{"w1", "name", "name.git/worktrees/w1", "name.git", "w1", true}},
				{dir: "project/w2", fast: true, want: Place{"project/w2", "project", "project/.bare/worktrees/w2", "project/.bare", "two", true}},
				{dir: "name.git", err: ErrNoWorkTree},
				{dir: "name.git/objects", err: ErrNoWorkTree},
			},
		},
		"detached and in the middle of a rebase": {
			func(s *sandbox) { diverge(s); s.tryGit("r", "rebase", "other") },
			[]where{{dir: "r", fast: true, want: Place{"r", "r", "r/.git", "r/.git", "", false}}},
		},
		"unborn": {
			func(s *sandbox) {
				s.git(".", "init", "-q", "-b", "first", "r")
				s.write(s.path("r/HEAD^{commit}"), "x")
			},
			[]where{{dir: "r", fast: true, want: Place{"r", "r", "r/.git", "r/.git", "first", false}}},
		},
		"sha256, packed refs": {
			func(s *sandbox) { s.repo("r", "--object-format=sha256"); s.git("r", "pack-refs", "--all") },
			[]where{{dir: "r", fast: true, want: Place{"r", "r", "r/.git", "r/.git", "main", false}}},
		},
		"branch that is symbolic": {
			func(s *sandbox) {
				s.repo("r")
				s.git("r", "symbolic-ref", "refs/heads/alias", "refs/heads/main")
				s.git("r", "symbolic-ref", "HEAD", "refs/heads/alias")
			},
			[]where{{dir: "r", fast: false, want: Place{"r", "r", "r/.git", "r/.git", "main", false}}},
		},
		"submodule, and a folder that is none": {
			func(s *sandbox) {
				s.repo("lib")
				s.repo("r")
				s.git("r", "submodule", "--quiet", "add", s.path("lib"), "sub")
				s.write(s.path("r/broken/.git"), "gitdir: /no/such/place\n")
				s.write(s.path("r/empty/.git/HEAD"), "")
			},
			[]where{
				{dir: "r/sub/d", fast: false, want: Place{"r/sub", "sub", "r/.git/modules/sub", "r/.git/modules/sub", "main", false}},
				{dir: "r/broken", err: ErrBroken},
				{dir: "r/empty", fast: false, want: Place{"r", "r", "r/.git", "r/.git", "main", false}},
			},
		},
		"git directory elsewhere, by file and by link": {
			func(s *sandbox) {
				s.repo("r", "--separate-git-dir", s.path("store.git"))
				s.repo("q")
				must(s, os.Rename(s.path("q/.git"), s.path("q.git")))
				must(s, os.Symlink("../q.git", s.path("q/.git")))
			},
			[]where{
				{dir: "r", fast: false, want: Place{"r", "r", "store.git", "store.git", "main", false}},
				{dir: "q/d", fast: false, want: Place{"q", "q", "q.git", "q.git", "main", false}},
			},
		},
		"names with newlines": {
			func(s *sandbox) {
				s.repo("new\nline\n")
				s.git("new\nline\n", "worktree", "add", "-q", "-b", "side", "../w\n")
			},
			[]where{
				{dir: "new\nline\n/d", fast: true, want: Place{"new\nline\n", "new\nline\n", "new\nline\n/.git", "new\nline\n/.git", "main", false}},
				{dir: "w\n", fast: false, want: Place{"w\n", "new\nline\n", "new\nline\n/.git/worktrees/w-", "new\nline\n/.git", "side", true}},
			},
		},
		"configuration that is not plain": {
			func(s *sandbox) {
				for dir, text := range map[string]string{
					"include": "[include]\n\tpath = nowhere\n", "continued": "[core]\n\teditor = a\\\nb\n",
					"onOneLine": "[core] ignoreCase = false\n", "comment": "[extensions] ; none\n\t# none\n",
				} {
					s.repo(dir)
					s.write(s.path(dir+"/.git/config"), s.read(dir+"/.git/config")+text)
				}
				s.repo("future")
				s.git("future", "config", "core.repositoryFormatVersion", "1")
				s.git("future", "config", "extensions.fromTheFuture", "true")
				s.repo("moved")
				s.git("moved", "config", "core.worktree", "../../include")
				s.repo("bare")
				s.git("bare", "config", "core.bare", "true")
			},
			[]where{
				{dir: "include", want: Place{"include", "include", "include/.git", "include/.git", "main", false}},
				{dir: "continued", want: Place{"continued", "continued", "continued/.git", "continued/.git", "main", false}},
				{dir: "onOneLine", want: Place{"onOneLine", "onOneLine", "onOneLine/.git", "onOneLine/.git", "main", false}},
				{dir: "comment", fast: true, want: Place{"comment", "comment", "comment/.git", "comment/.git", "main", false}},
				{dir: "future", err: errAny},
				{dir: "moved", want: Place{"include", "include", "moved/.git", "moved/.git", "main", false}},
				{dir: "bare", err: ErrNoWorkTree},
			},
		},
		"damaged": {
			func(s *sandbox) {
				for _, dir := range []string{"nulHead", "noHead", "nulBranch", "fifoHead", "hugeHead", "noObjects", "lostCommit"} {
					s.repo(dir)
				}
				s.write(s.path("nulHead/.git/HEAD"), strings.Repeat("\x00", 41))
				must(s, os.Remove(s.path("noHead/.git/HEAD")))
				s.write(s.path("nulBranch/.git/refs/heads/main"), strings.Repeat("\x00", 41))
				s.write(s.path("hugeHead/.git/HEAD"), "ref: refs/heads/"+strings.Repeat("x", 1<<20))
				must(s, os.RemoveAll(s.path("noObjects/.git/objects")))
				s.write(s.path("lostCommit/.git/refs/heads/main"), strings.Repeat("1", 40)+"\n")
				must(s, os.Remove(s.path("fifoHead/.git/HEAD")))
				must(s, mkfifo(s.path("fifoHead/.git/HEAD")))
			},
			[]where{
				{dir: "nulHead", err: ErrBroken}, {dir: "noHead/d", err: ErrBroken}, {dir: "nulBranch", err: errAny},
				{dir: "noObjects", err: ErrBroken}, {dir: "hugeHead", err: errAny}, {dir: "lostCommit", fast: true, err: errAny},
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSandbox(t)
			c.make(s)
			for _, w := range c.where {
				repo, err := s.run.Describe(testContext(t), s.path(w.dir))
				fast, ok := DescribeFast(s.path(w.dir))
				if w.err != nil {
					if err == nil || w.err != errAny && !errors.Is(err, w.err) {
						t.Errorf("%q: error %v, want %v", w.dir, err, w.err)
					}
					if errors.Is(err, ErrNotRepository) != (w.err == ErrNotRepository) {
						t.Errorf("%q: %v claims that there is no repository", w.dir, err)
					}
					if ok != w.fast || w.err == ErrNotRepository && fast != (Place{}) {
						t.Errorf("%q: DescribeFast %+v, %v", w.dir, fast, ok)
					}
					continue
				}
				if err != nil {
					t.Errorf("%q: %v", w.dir, err)
					continue
				}
				want := w.want
				for _, p := range []*string{&want.Root, &want.GitDir, &want.CommonDir} {
					*p = s.path(*p)
				}
				if d := cmp.Diff(want, repo.Place); d != "" {
					t.Errorf("%q: %s", w.dir, d)
				}
				if ok != w.fast {
					t.Errorf("%q: DescribeFast ok is %v", w.dir, ok)
				}
				if ok && fast != repo.Place {
					t.Errorf("%q: DescribeFast %+v, git %+v", w.dir, fast, repo.Place)
				}
				if head, err := s.tryGit(w.dir, "rev-parse", "-q", "--verify", "HEAD"); repo.Unborn != (err != nil) || !repo.Unborn && repo.Head != strings.TrimSpace(head) {
					t.Errorf("%q: %+v, HEAD is %q", w.dir, repo, head)
				}
			}
		})
	}
}

var errAny = errors.New("any error")

// oneDevice reports whether the test's folders are on the file system of the root: a mount
// point on the way up is left to git.
func oneDevice(t *testing.T) bool {
	here, ok := lookAt(t.TempDir())
	root, ok2 := lookAt("/")
	return ok && ok2 && here.device == root.device
}

func TestDescribeFastDoesNotHangOnSpecialFiles(t *testing.T) {
	s := newSandbox(t)
	s.repo("r")
	must(s, os.Remove(s.path("r/.git/HEAD")))
	must(s, mkfifo(s.path("r/.git/HEAD")))
	s.repo("q")
	must(s, os.Remove(s.path("q/.git/config")))
	must(s, mkfifo(s.path("q/.git/config")))
	for _, dir := range []string{"r", "q"} {
		if p, ok := DescribeFast(s.path(dir)); ok {
			t.Errorf("%s: %+v", dir, p)
		}
	}
	for _, dir := range []string{"", ".", "relative"} {
		if p, ok := DescribeFast(dir); ok {
			t.Errorf("%q: %+v", dir, p)
		}
		if _, err := s.run.Describe(testContext(t), dir); !errors.Is(err, ErrNoDirectory) {
			t.Errorf("%q: %v", dir, err)
		}
	}
}

// A reftable repository's HEAD is a stub for old readers.
func TestDescribeFastLeavesReftableToGit(t *testing.T) {
	s := newSandbox(t)
	s.repo("r")
	s.write(s.path("r/.git/HEAD"), "ref: refs/heads/.invalid\n")
	if p, ok := DescribeFast(s.path("r")); ok {
		t.Errorf("%+v", p)
	}
	s.write(s.path("r/.git/HEAD"), "ref: refs/heads/main\n")
	s.git("r", "config", "core.repositoryFormatVersion", "1")
	s.git("r", "config", "extensions.refStorage", "reftable")
	if p, ok := DescribeFast(s.path("r")); ok {
		t.Errorf("%+v", p)
	}
}

func TestReftableRepository(t *testing.T) {
	s := newSandbox(t)
	if out, err := s.tryGit(".", "init", "-q", "--ref-format=reftable", "r"); err != nil {
		t.Skipf("this git knows no reftable: %s", strings.SplitN(out, "\n", 2)[0])
	}
	s.write(s.path("r/f"), "first\n")
	s.commit("r", "first")
	s.write(s.path("r/f"), "edited\n")
	before := s.observe("r")
	snap, err := s.run.Snapshot(testContext(t), s.options("r", "id"))
	if got, _ := s.content("r", snap.Commit, "f"); err != nil || got != "edited\n" {
		t.Errorf("%+v, %v", snap, err)
	}
	if d := cmp.Diff(before, s.observe("r")); d != "" {
		t.Error(d)
	}
}

func TestForeignRepositoryIsNamedAsSuch(t *testing.T) {
	needRoot(t)
	s := newSandbox(t)
	for dir, foreign := range map[string][]string{"tree": {""}, "dir": {".git"}, "r": {"", ".git"}} {
		s.repo(dir)
		for _, p := range foreign {
			must(s, os.Chown(s.path(dir+"/"+p), 65534, 65534))
		}
		_, err := s.run.Describe(testContext(t), s.path(dir))
		if p, ok := DescribeFast(s.path(dir)); ok || !errors.Is(err, ErrForeignOwner) {
			t.Errorf("%s: DescribeFast %+v, Describe %v", dir, p, err)
		}
	}
	if p, ok := DescribeFast(s.path("r/d")); ok {
		t.Errorf("DescribeFast %+v", p)
	}
	_, err := s.run.Describe(testContext(t), s.path("r/d"))
	if !errors.Is(err, ErrForeignOwner) {
		t.Errorf("Describe: %v", err)
	}
	if snap, err := s.run.Snapshot(testContext(t), s.options("r", "id")); !errors.Is(err, ErrForeignOwner) || snap.Ref != "" {
		t.Errorf("Snapshot: %+v, %v", snap, err)
	}
	if _, err := s.run.DirtyCount(testContext(t), s.path("r")); !errors.Is(err, ErrForeignOwner) {
		t.Errorf("DirtyCount: %v", err)
	}
	if _, err := s.run.List(testContext(t), s.path("r")); !errors.Is(err, ErrForeignOwner) {
		t.Errorf("List: %v", err)
	}
}

func TestDirtyCountIsGitsLineCountAndWritesNothing(t *testing.T) {
	s := newSandbox(t)
	s.repo("r")
	leaveWork(s, "r")
	s.write(s.path("r/new\nline"), "x")
	s.touch("r/d/two") // a plain git status would write the index for it
	s.trap("r")
	before := s.observe("r")
	want := strings.Count(before.Status, "\n")
	n, err := s.run.DirtyCount(testContext(t), s.path("r/d"))
	if err != nil || n == 0 || n != want {
		t.Errorf("%d, %v; git says\n%s", n, err, before.Status)
	}
	if d := cmp.Diff(before, s.observe("r")); d != "" || s.marks() != "" {
		t.Errorf("%s %s", d, s.marks())
	}
}
