//go:build unix

package gitcmd

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// shape is one kind of repository or of work in it, and what the snapshot of it holds.
type shape struct {
	name    string
	make    func(s *sandbox) // makes "r"
	dir     string           // what is snapshotted; "": r
	held    map[string]string
	gone    []string          // not in the commit
	omitted map[string]string // path: a part of the reason
	paths   []string          // nil: not checked
	root    bool              // the commit has no parent
	check   func(s *sandbox, snap Snapshot)
}

// work leaves work of every simple kind in a repository made by sandbox.repo.
func leaveWork(s *sandbox, dir string) {
	s.write(s.path(dir+"/a"), "edited a\n")
	s.write(s.path(dir+"/b"), "staged b\n")
	s.git(dir, "add", "b")
	s.write(s.path(dir+"/d/one"), "staged one\n")
	s.git(dir, "add", "d/one")
	s.write(s.path(dir+"/d/one"), "then edited one\n")
	must(s, os.Remove(s.path(dir+"/gone")))
	s.git(dir, "mv", "old name", "new name")
	must(s, os.Chmod(s.path(dir+"/exec"), 0o755))
	s.write(s.path(dir+"/untracked/deep/file"), "untracked\n")
	must(s, os.Symlink("no/such target", s.path(dir+"/link")))
	s.write(s.path(dir+"/x.ignored"), "ignored\n")
	s.write(s.path(dir+"/build/out"), "ignored\n")
}

var workHeld = map[string]string{
	"a": "edited a\n", "b": "staged b\n", "d/one": "then edited one\n", "d/two": "committed d/two\n",
	"new name": "committed old name\n", "exec": "committed exec\n", "untracked/deep/file": "untracked\n",
	"link": "no/such target",
}

var (
	workGone  = []string{"gone", "old name", "x.ignored", "build/out"}
	workPaths = []string{"a", "b", "d/one", "exec", "gone", "link", "new name", "old name", "untracked/deep/file"}
)

func must(s *sandbox, err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

func shapes() []shape {
	plain := func(s *sandbox) { s.repo("r"); leaveWork(s, "r") }
	return []shape{
		{
			name: "every kind of change", make: plain, held: workHeld, gone: workGone, paths: workPaths,
			check: func(s *sandbox, snap Snapshot) {
				tree := s.git("r", "ls-tree", "-r", snap.Commit)
				for _, want := range []string{"100755 blob", "120000 blob"} {
					if !strings.Contains(tree, want) {
						s.t.Errorf("no %s in\n%s", want, tree)
					}
				}
			},
		},
		{
			name: "work hidden from git status",
			make: func(s *sandbox) {
				s.repo("r")
				s.git("r", "config", "status.showUntrackedFiles", "no")
				s.git("r", "update-index", "--assume-unchanged", "a")
				s.git("r", "update-index", "--skip-worktree", "b", "gone")
				s.git("r", "update-index", "--assume-unchanged", "--skip-worktree", "d/one")
				s.write(s.path("r/a"), "hidden edit of a\n")
				s.write(s.path("r/b"), "hidden edit of b\n")
				s.write(s.path("r/d/one"), "hidden twice\n")
				s.write(s.path("r/u"), "hidden untracked\n")
				must(s, os.Remove(s.path("r/gone")))
			},
			held: map[string]string{
				"a": "hidden edit of a\n", "b": "hidden edit of b\n", "d/one": "hidden twice\n", "u": "hidden untracked\n",
				"gone": "committed gone\n",
			},
			paths: []string{"a", "b", "d/one", "u"},
		},
		{
			name: "unborn branch",
			make: func(s *sandbox) {
				s.git(".", "init", "-q", "r")
				s.write(s.path("r/f"), "first\n")
				s.write(s.path("r/HEAD"), "a file of that name\n")
				s.write(s.path("r/dir/staged"), "staged\n")
				s.git("r", "add", "dir")
			},
			held: map[string]string{"f": "first\n", "dir/staged": "staged\n"}, paths: []string{"HEAD", "dir/staged", "f"}, root: true,
		},
		{
			name: "detached HEAD",
			make: func(s *sandbox) { s.repo("r"); s.git("r", "checkout", "-q", "--detach"); leaveWork(s, "r") },
			held: workHeld, gone: workGone, paths: workPaths,
		},
		{
			name: "interrupted merge",
			make: func(s *sandbox) {
				diverge(s)
				if _, err := s.tryGit("r", "merge", "other"); err == nil {
					s.t.Fatal("merge did not stop")
				}
				s.write(s.path("r/u"), "untracked\n")
			},
			held: map[string]string{"u": "untracked\n"},
			check: func(s *sandbox, snap Snapshot) {
				if got, _ := s.content("r", snap.Commit, "a"); !strings.Contains(got, "<<<<<<<") || !strings.Contains(got, ">>>>>>>") {
					s.t.Errorf("conflict not held: %q", got)
				}
				if !slices.Contains(snap.Paths, "a") {
					s.t.Errorf("paths %q", snap.Paths)
				}
			},
		},
		{
			name: "interrupted rebase",
			make: func(s *sandbox) {
				diverge(s)
				if _, err := s.tryGit("r", "rebase", "other"); err == nil {
					s.t.Fatal("rebase did not stop")
				}
				s.write(s.path("r/a"), "half resolved\n")
			},
			held: map[string]string{"a": "half resolved\n"},
		},
		{
			name: "sha256", make: func(s *sandbox) { s.repo("r", "--object-format=sha256"); leaveWork(s, "r") },
			held: workHeld, gone: workGone, paths: workPaths,
			check: func(s *sandbox, snap Snapshot) {
				if len(snap.Commit) != 64 {
					s.t.Errorf("commit %q", snap.Commit)
				}
			},
		},
		{
			name: "unborn sha256",
			make: func(s *sandbox) {
				s.git(".", "init", "-q", "--object-format=sha256", "r")
				s.write(s.path("r/f"), "first\n")
				s.write(s.path("r/g"), "staged, then removed\n")
				s.git("r", "add", "g")
				must(s, os.Remove(s.path("r/g")))
			},
			held: map[string]string{"f": "first\n"}, gone: []string{"g"}, root: true,
		},
		{
			name: "linked worktree of a main checkout with its own configuration", dir: "wt",
			make: func(s *sandbox) {
				s.repo("r")
				s.git("r", "config", "extensions.worktreeConfig", "true")
				s.git("r", "config", "--worktree", "filter.main.clean", "false")
				s.git("r", "config", "--worktree", "core.bare", "false")
				s.git("r", "worktree", "add", "-q", "../wt")
				leaveWork(s, "wt")
			},
			held: workHeld, gone: workGone, paths: workPaths,
		},
		{
			name: "sparse checkout",
			make: func(s *sandbox) {
				s.repo("r")
				s.git("r", "sparse-checkout", "set", "--cone", "e")
				s.write(s.path("r/a"), "edited a\n")
				s.write(s.path("r/outside/new"), "outside the cone\n")
				s.write(s.path("r/d/one"), "put back and edited\n")
			},
			held: map[string]string{
				"a": "edited a\n", "outside/new": "outside the cone\n", "d/one": "put back and edited\n", "d/two": "committed d/two\n",
			},
			paths: []string{"a", "d/one", "outside/new"},
		},
		{
			name: "sparse index",
			make: func(s *sandbox) {
				s.repo("r")
				s.git("r", "sparse-checkout", "set", "--cone", "--sparse-index", "e")
				s.write(s.path("r/a"), "edited a\n")
			},
			held: map[string]string{"a": "edited a\n", "d/one": "committed d/one\n", "d/two": "committed d/two\n"}, paths: []string{"a"},
		},
		{
			name: "split index",
			make: func(s *sandbox) {
				s.repo("r")
				s.git("r", "update-index", "--split-index")
				leaveWork(s, "r")
			},
			held: workHeld, gone: workGone, paths: workPaths,
			check: func(s *sandbox, snap Snapshot) {
				if shared, _ := filepath.Glob(s.path("r/.git/sharedindex.*")); len(shared) != 1 {
					s.t.Errorf("shared indexes: %q", shared)
				}
			},
		},
		{
			name: "objects in another repository", dir: "clone",
			make: func(s *sandbox) {
				s.repo("r")
				s.git(".", "clone", "-q", "--shared", "r", "clone")
				leaveWork(s, "clone")
			},
			held: workHeld, gone: workGone, paths: workPaths,
		},
		{
			// Git would fetch the blob of d/two to write the tree.
			name: "partial clone, whose remote is left alone", dir: "clone",
			make: func(s *sandbox) {
				s.partialClone("clone")
				s.write(s.path("clone/a"), "edited a\n")
				s.write(s.path("clone/d/one"), "put back\n")
				s.write(s.path("clone/d/two"), "committed d/two\n")
				s.write(s.path("clone/d/new"), "outside\n")
			},
			held: map[string]string{"a": "edited a\n", "d/new": "outside\n", "d/one": "put back\n"}, paths: []string{"a", "d/new", "d/one"},
		},
		{
			name: "no identity, stale locks and signing",
			make: func(s *sandbox) {
				plain(s)
				s.write(s.path("gitconfig"), "[user]\n\tuseConfigOnly = true\n[i18n]\n\tcommitEncoding = latin1\n")
				s.write(s.path("r/.git/index.lock"), "left by a crash")
				s.write(s.path("r/.git/HEAD.lock"), "left by a crash")
			},
			held: workHeld, gone: workGone, paths: workPaths,
			check: func(s *sandbox, snap Snapshot) {
				if raw := s.git("r", "cat-file", "commit", snap.Commit); strings.Contains(raw, "\nencoding ") || strings.Contains(raw, "\ngpgsig ") {
					s.t.Errorf("commit is\n%s", raw)
				}
			},
		},
		{
			name: "names with newlines, quotes and bytes that are no text",
			make: func(s *sandbox) {
				s.repo("r")
				for _, f := range []string{"new\nline", "tab\tand \"quote\"", "\xff\xfe raw", " lead and trail ", ":(top)magic", "-dash", "*"} {
					s.write(s.path("r/"+f), "odd "+f)
				}
				s.git("r", "add", "--", ":(literal)-dash")
				s.write(s.path("r/-dash"), "odd edited")
			},
			held: map[string]string{
				"new\nline": "odd new\nline", "\xff\xfe raw": "odd \xff\xfe raw", " lead and trail ": "odd  lead and trail ",
				":(top)magic": "odd :(top)magic", "-dash": "odd edited", "*": "odd *",
			},
			paths: []string{" lead and trail ", "*", "-dash", ":(top)magic", "new\nline", "tab\tand \"quote\"", "\xff\xfe raw"},
		},
		{
			name: "root with a newline in its name", dir: "new\nline\n",
			make: func(s *sandbox) { s.repo("new\nline\n"); leaveWork(s, "new\nline\n") },
			held: workHeld, gone: workGone, paths: workPaths,
		},
		{
			name: "added with intent, forced and excluded",
			make: func(s *sandbox) {
				s.repo("r")
				s.write(s.path("r/intent"), "intent\n")
				s.git("r", "add", "-N", "intent")
				s.write(s.path("r/forced.ignored"), "forced\n")
				s.git("r", "add", "-f", "forced.ignored")
				s.write(s.path("r/.git/info/exclude"), "*.private\n")
				s.write(s.path("ignore"), "*.global\n")
				s.git("r", "config", "core.excludesFile", s.path("ignore"))
				s.write(s.path("r/x.private"), "x")
				s.write(s.path("r/x.global"), "x")
			},
			held:  map[string]string{"intent": "intent\n", "forced.ignored": "forced\n"},
			paths: []string{"forced.ignored", "intent"},
		},
		{
			name: "line ends",
			make: func(s *sandbox) {
				s.repo("r")
				s.git("r", "config", "core.autocrlf", "input")
				s.git("r", "config", "core.safecrlf", "true")
				s.write(s.path("r/a"), "one\r\ntwo\n")
			},
			held: map[string]string{"a": "one\ntwo\n"}, paths: []string{"a"},
		},
		{
			name: "files and folders in each other's place",
			make: func(s *sandbox) {
				s.repo("r")
				must(s, os.Remove(s.path("r/a")))
				s.write(s.path("r/a/inside"), "file became folder\n")
				must(s, os.RemoveAll(s.path("r/d")))
				s.write(s.path("r/d"), "folder became file\n")
				must(s, os.Remove(s.path("r/b")))
				must(s, os.Symlink("/etc", s.path("r/b")))
			},
			held: map[string]string{"a/inside": "file became folder\n", "d": "folder became file\n", "b": "/etc"},
			gone: []string{"d/one"}, paths: []string{"a", "a/inside", "b", "d", "d/one", "d/two"},
		},
		{
			name: "folder replaced by a link to one that has the same files",
			make: func(s *sandbox) {
				s.repo("r")
				must(s, os.Rename(s.path("r/d"), s.path("elsewhere")))
				must(s, os.Symlink("../elsewhere", s.path("r/d")))
				s.git("r", "update-index", "--skip-worktree", "d/two")
			},
			held: map[string]string{"d": "../elsewhere"}, gone: []string{"d/one"},
		},
		{
			name: "FIFOs, one in place of a file, one in place of a conflict",
			make: func(s *sandbox) {
				diverge(s)
				s.tryGit("r", "merge", "other")
				for _, f := range []string{"a", "gone"} {
					must(s, os.Remove(s.path("r/"+f)))
					must(s, mkfifo(s.path("r/"+f)))
				}
				must(s, mkfifo(s.path("r/pipe")))
				s.write(s.path("r/b"), "edited b\n")
			},
			held:    map[string]string{"a": "ours\n", "b": "edited b\n", "gone": "committed gone\n"},
			omitted: map[string]string{"a": "not a regular file", "gone": "not a regular file"}, paths: []string{"b"},
		},
		{
			name: "names that git refuses",
			make: func(s *sandbox) {
				s.repo("r")
				s.write(s.path("r/sub/git~1"), "x")
				s.write(s.path("r/sub/ok"), "ok")
			},
			held: map[string]string{"sub/ok": "ok"}, omitted: map[string]string{"sub/git~1": "refuses"}, paths: []string{"sub/ok"},
		},
		{
			name: "filter that works",
			make: func(s *sandbox) {
				s.repo("r")
				s.git("r", "config", "filter.up.clean", "tr a-z A-Z")
				s.git("r", "config", "filter.up.smudge", "tr A-Z a-z")
				s.git("r", "config", "filter.up.required", "true")
				s.write(s.path("r/.gitattributes"), "*.up filter=up\n")
				s.write(s.path("r/same.up"), "same\n")
				s.write(s.path("r/more.up"), "more\n")
				s.commit("r", "filtered")
				s.write(s.path("r/more.up"), "edited\n")
				s.touch("r/same.up")
			},
			held: map[string]string{"more.up": "EDITED\n", "same.up": "SAME\n"}, paths: []string{"more.up"},
		},
		{
			name: "required filter that is missing",
			make: func(s *sandbox) {
				s.repo("r")
				s.write(s.path("r/.gitattributes"), "*.bin filter=lfs\n*.odd filter=\"\n*.other filter=o=dd\n")
				s.write(s.path("r/tracked.bin"), "pointer\n")
				s.commit("r", "pointer")
				for _, name := range []string{"lfs", "o=dd"} {
					s.write(s.path("r/.git/config"), s.read("r/.git/config")+fmt.Sprintf(
						"[filter %q]\n\tclean = no-such-program clean %%f\n\tprocess = no-such-program process\n\trequired = true\n", name))
				}
				s.write(s.path("r/tracked.bin"), "raw tracked\n")
				s.write(s.path("r/new.bin"), "raw new\n")
				s.write(s.path("r/x.other"), "raw other\n")
				s.write(s.path("r/a"), "edited a\n")
			},
			held:  map[string]string{"tracked.bin": "raw tracked\n", "new.bin": "raw new\n", "x.other": "raw other\n", "a": "edited a\n"},
			paths: []string{"a", "new.bin", "tracked.bin", "x.other"},
			check: func(s *sandbox, snap Snapshot) {
				slices.Sort(snap.Unfiltered)
				if !slices.Equal(snap.Unfiltered, []string{"lfs", "o=dd"}) {
					s.t.Errorf("unfiltered %q", snap.Unfiltered)
				}
			},
		},
		{
			name: "encoding that the content does not have",
			make: func(s *sandbox) {
				s.repo("r")
				s.write(s.path("r/.gitattributes"), "*.utf16 working-tree-encoding=UTF-16\n")
				s.write(s.path("r/x.utf16"), "not that encoding")
				for i := range 9 {
					s.write(s.path(fmt.Sprintf("r/f%d", i)), "fine")
				}
			},
			held: map[string]string{"x.utf16": "not that encoding", "f0": "fine", "f8": "fine"},
		},
		{
			name: "untracked repositories, with commits and without",
			make: func(s *sandbox) {
				s.repo("r")
				s.write(s.path("r/a"), "edited a\n")
				s.repo("r/vendor/with")
				s.write(s.path("r/vendor/with/a"), "nested edit\n")
				s.repo("r/clean")
				s.git("r", "init", "-q", "without")
				s.write(s.path("r/without/f"), "nested first\n")
				s.git("r", "init", "-q", "empty")
			},
			held: map[string]string{"a": "edited a\n"}, gone: []string{"without", "without/f", "vendor/with/a"},
			omitted: map[string]string{
				"vendor/with/": "ref of its own", "without/": "ref of its own",
				"clean/": "without uncommitted work", "empty/": "without a commit or a file",
			},
			paths: []string{"a", "clean", "vendor/with"},
			check: func(s *sandbox, snap Snapshot) {
				for dir, want := range map[string][2]string{"r/vendor/with": {"a", "nested edit\n"}, "r/without": {"f", "nested first\n"}} {
					if got, _ := s.content(dir, snap.Ref, want[0]); got != want[1] {
						s.t.Errorf("%s holds %q", dir, got)
					}
				}
			},
		},
		{
			name: "linked worktrees inside the main checkout",
			make: func(s *sandbox) {
				s.repo("r")
				for _, w := range []string{"one", "two"} {
					s.git("r", "worktree", "add", "-q", ".worktrees/"+w)
					s.write(s.path("r/.worktrees/"+w+"/a"), "edit in "+w+"\n")
				}
				s.write(s.path("r/a"), "edited a\n")
			},
			held: map[string]string{"a": "edited a\n"},
			check: func(s *sandbox, snap Snapshot) {
				for _, w := range []string{"one", "two"} {
					o, _ := omission(snap, ".worktrees/"+w+"/")
					if got, _ := s.content("r", o.Ref, "a"); got != "edit in "+w+"\n" || o.Ref == snap.Ref {
						s.t.Errorf("%s: %+v holds %q", w, o, got)
					}
				}
			},
		},
		{
			name: "submodules: dirty, moved on, clean, not populated",
			make: func(s *sandbox) {
				s.repo("lib")
				s.repo("r")
				for _, sub := range []string{"dirty", "moved", "still", "hidden"} {
					s.git("r", "submodule", "--quiet", "add", s.path("lib"), sub)
				}
				s.commit("r", "submodules")
				s.git("r", "config", "submodule.dirty.ignore", "all")
				s.write(s.path("r/dirty/a"), "edited in a submodule\n")
				s.write(s.path("r/moved/a"), "committed in a submodule\n")
				s.commit("r/moved", "moved on")
				s.git("r/hidden", "update-index", "--assume-unchanged", "a")
				s.write(s.path("r/hidden/a"), "hidden in a submodule\n")
				s.write(s.path("r/b"), "edited b\n")
			},
			held:    map[string]string{"b": "edited b\n"},
			omitted: map[string]string{"dirty/": "ref of its own", "moved/": "its commits stay", "hidden/": "ref of its own"},
			paths:   []string{"b", "moved"},
			check: func(s *sandbox, snap Snapshot) {
				if got, _ := s.content("r/dirty", snap.Ref, "a"); got != "edited in a submodule\n" {
					s.t.Errorf("submodule's ref holds %q", got)
				}
				if got, _ := s.content("r/hidden", snap.Ref, "a"); got != "hidden in a submodule\n" {
					s.t.Errorf("hidden submodule's ref holds %q", got)
				}
			},
		},
		{
			name: "index lost in a power cut",
			make: func(s *sandbox) {
				plain(s)
				s.write(s.path("r/tracked.ignored"), "tracked\n")
				s.git("r", "add", "-f", "tracked.ignored")
				s.git("r", "commit", "-q", "-m", "tracked", "tracked.ignored")
				s.write(s.path("r/.git/index"), strings.Repeat("\x00", 4096))
			},
			held: map[string]string{"a": "edited a\n", "b": "staged b\n", "untracked/deep/file": "untracked\n", "tracked.ignored": "tracked\n"},
			gone: workGone, omitted: map[string]string{"": "index is damaged"},
		},
		{
			name: "scratch folder inside the working tree",
			make: func(s *sandbox) {
				s.repo("r")
				s.write(s.path("r/a"), "edited a\n")
				must(s, os.Remove(s.path("scratch")))
				must(s, os.Mkdir(s.path("r/ledger"), 0o700))
				must(s, os.Symlink("r/ledger", s.path("scratch")))
			},
			held: map[string]string{"a": "edited a\n"}, paths: []string{"a"},
		},
	}
}

// diverge makes two branches that conflict.
func diverge(s *sandbox) {
	s.repo("r")
	s.git("r", "checkout", "-q", "-b", "other")
	s.write(s.path("r/a"), "theirs\n")
	s.commit("r", "theirs")
	s.git("r", "checkout", "-q", "main")
	s.write(s.path("r/a"), "ours\n")
	s.commit("r", "ours")
}

// partialClone clones r without the blobs of its folder d, and marks every later fetch.
func (s *sandbox) partialClone(dir string) {
	s.t.Helper()
	s.repo("r")
	s.git("r", "config", "uploadpack.allowFilter", "true")
	s.git(".", "clone", "-q", "--filter=blob:none", "--sparse", "file://"+s.path("r"), dir)
	s.write(s.path("fetch.sh"), "#!/bin/sh\necho fetched >> "+s.path("marks")+"\nexec git-upload-pack \"$@\"\n")
	must(s, os.Chmod(s.path("fetch.sh"), 0o755))
	s.git(dir, "config", "remote.origin.uploadpack", s.path("fetch.sh"))
}

func (s *sandbox) read(path string) string {
	s.t.Helper()
	b, err := os.ReadFile(s.path(path))
	must(s, err)
	return string(b)
}

// touch makes an unchanged file look as if it could have changed.
func (s *sandbox) touch(path string) {
	s.t.Helper()
	info, err := os.Stat(s.path(path))
	must(s, err)
	must(s, os.Chtimes(s.path(path), info.ModTime().Add(-1e9), info.ModTime().Add(-1e9)))
}

func TestSnapshotOfEveryShapeHoldsTheWorkAndTouchesNothing(t *testing.T) {
	for _, sh := range shapes() {
		t.Run(sh.name, func(t *testing.T) {
			t.Parallel()
			s := newSandbox(t)
			sh.make(s)
			dir := sh.dir
			if dir == "" {
				dir = "r"
			}
			s.trap(dir)
			before := s.observe(dir)
			head, _ := s.tryGit(dir, "rev-parse", "-q", "--verify", "HEAD")

			snap, err := s.run.Snapshot(testContext(t), s.options(dir, "some-id"))
			if err != nil {
				t.Fatalf("%v (omitted %+v)", err, snap.Omitted)
			}
			after := s.observe(dir)
			delete(before.Files, s.path("r/ledger")) // the scratch folder of one shape
			delete(after.Files, s.path("r/ledger"))
			if scratch, _ := os.ReadDir(s.path("scratch")); len(scratch) != 0 {
				t.Errorf("left in the scratch folder: %v", scratch)
			}
			if d := cmp.Diff(before, after); d != "" {
				t.Errorf("the snapshot changed something:\n%s", d)
			}
			if m := s.marks(); m != "" {
				t.Errorf("these ran: %s", m)
			}

			if snap.Clean || snap.Existing || snap.Ref != RescuePrefix+"some-id" {
				t.Fatalf("snapshot %+v", snap)
			}
			if got := strings.TrimSpace(s.git(dir, "rev-parse", snap.Ref)); got != snap.Commit {
				t.Errorf("ref is %s, commit %s", got, snap.Commit)
			}
			for path, want := range sh.held {
				if got, ok := s.content(dir, snap.Commit, path); !ok || got != want {
					t.Errorf("%q holds %q, want %q", path, got, want)
				}
			}
			for _, path := range sh.gone {
				if got, ok := s.content(dir, snap.Commit, path); ok {
					t.Errorf("%q is held: %q", path, got)
				}
			}
			if sh.paths != nil && !slices.Equal(slices.Sorted(slices.Values(snap.Paths)), sh.paths) {
				t.Errorf("paths %q, want %q", snap.Paths, sh.paths)
			}
			for path, part := range sh.omitted {
				if o, ok := omission(snap, path); !ok || !strings.Contains(o.Reason, part) {
					t.Errorf("omission of %q is %+v, want %q", path, o, part)
				}
			}
			if sh.omitted != nil && len(snap.Omitted) != len(sh.omitted) {
				t.Errorf("omitted %+v", snap.Omitted)
			}
			parents := strings.Fields(s.git(dir, "rev-list", "--parents", "-n1", snap.Commit))[1:]
			if sh.root && len(parents) != 0 || !sh.root && !slices.Equal(parents, []string{strings.TrimSpace(head)}) {
				t.Errorf("parents %q, HEAD %q", parents, head)
			}
			if sh.check != nil {
				sh.check(s, snap)
			}

			// Again: the same ref, from the repository alone.
			again, err := s.run.Snapshot(testContext(t), s.options(dir, "some-id"))
			if err != nil || !again.Existing || again.Commit != snap.Commit || !slices.Equal(again.Paths, snap.Paths) ||
				strings.TrimSpace(again.Message) != strings.TrimSpace(snap.Message) {
				t.Errorf("again: %v\n%+v\nfirst\n%+v", err, again, snap)
			}
		})
	}
}

func TestSnapshotOfCleanTreeMakesNoRef(t *testing.T) {
	for name, make := range map[string]func(*sandbox){
		"clean":                func(s *sandbox) { s.repo("r") },
		"touched":              func(s *sandbox) { s.repo("r"); s.touch("r/a") },
		"ignored files alone":  func(s *sandbox) { s.repo("r"); s.write(s.path("r/x.ignored"), "x") },
		"unborn and empty":     func(s *sandbox) { s.git(".", "init", "-q", "r") },
		"hidden but unchanged": func(s *sandbox) { s.repo("r"); s.git("r", "update-index", "--skip-worktree", "a") },
		"sparse":               func(s *sandbox) { s.repo("r"); s.git("r", "sparse-checkout", "set", "none") },
		"no index, HEAD's files": func(s *sandbox) {
			s.repo("r")
			must(s, os.Remove(s.path("r/.git/index")))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSandbox(t)
			make(s)
			s.trap("r")
			before := s.observe("r")
			snap, err := s.run.Snapshot(testContext(t), s.options("r", "id"))
			if err != nil || !snap.Clean || snap.Ref != "" || len(snap.Omitted) != 0 {
				t.Errorf("%+v, %v", snap, err)
			}
			if d := cmp.Diff(before, s.observe("r")); d != "" {
				t.Error(d)
			}
			if refs := s.git("r", "for-each-ref", RescuePrefix); refs != "" || s.marks() != "" {
				t.Errorf("refs %q, marks %q", refs, s.marks())
			}
		})
	}
}

func TestSnapshotThatWouldHoldNothingOfTheWorkFails(t *testing.T) {
	s := newSandbox(t)
	s.repo("r")
	s.write(s.path("r/a"), "staged, then taken back\n")
	s.git("r", "add", "a")
	s.write(s.path("r/a"), "committed a\n")
	before := s.observe("r")
	snap, err := s.run.Snapshot(testContext(t), s.options("r", "id"))
	if !errors.Is(err, ErrEmptySnapshot) || snap.Ref != "" || snap.Clean {
		t.Errorf("%+v, %v", snap, err)
	}
	if d := cmp.Diff(before, s.observe("r")); d != "" || s.git("r", "for-each-ref", RescuePrefix) != "" {
		t.Error(d)
	}
}

func TestSnapshotWhoseWorkIsAllInSubmodulesIsNeitherCleanNorFailed(t *testing.T) {
	s := newSandbox(t)
	s.repo("lib")
	s.repo("r")
	s.git("r", "submodule", "--quiet", "add", s.path("lib"), "sub")
	s.commit("r", "submodule")
	s.write(s.path("r/sub/a"), "edited\n")
	snap, err := s.run.Snapshot(testContext(t), s.options("r", "id"))
	o, _ := omission(snap, "sub/")
	if err != nil || snap.Clean || snap.Ref != "" || o.Ref != RescuePrefix+"id" {
		t.Fatalf("%+v, %v", snap, err)
	}
	if got, _ := s.content("r/sub", o.Ref, "a"); got != "edited\n" {
		t.Errorf("submodule's ref holds %q", got)
	}

	// A submodule that cannot be rescued is work that is held nowhere.
	s.write(s.path("r/sub/.git"), "gitdir: /no/such/place\n")
	snap, err = s.run.Snapshot(testContext(t), s.options("r", "id2"))
	if err == nil || snap.Ref != "" {
		t.Errorf("%+v, %v", snap, err)
	}

	// Nor is the repository around it to be taken for it.
	must(s, os.Remove(s.path("r/sub/.git")))
	must(s, os.Mkdir(s.path("r/sub/.git"), 0o755))
	snap, err = s.run.Snapshot(testContext(t), s.options("r", "id3"))
	if o, ok := omission(snap, "sub/"); !errors.Is(err, ErrEmptySnapshot) || !ok || !strings.Contains(o.Reason, "cannot be read") {
		t.Errorf("%+v, %v", snap, err)
	}
}

func TestSnapshotOmitsFilesOverTheLimit(t *testing.T) {
	s := newSandbox(t)
	s.repo("r")
	s.write(s.path("r/big"), strings.Repeat("x", 2000))
	s.write(s.path("r/a"), strings.Repeat("y", 1000))
	opts := s.options("r", "id")
	opts.MaxFileSize = 1000
	snap, err := s.run.Snapshot(testContext(t), opts)
	if err != nil || !slices.Equal(snap.Paths, []string{"a"}) {
		t.Fatalf("%+v, %v", snap, err)
	}
	if o, ok := omission(snap, "big"); !ok || !strings.Contains(o.Reason, "2000 bytes") {
		t.Errorf("omitted %+v", snap.Omitted)
	}
}
