//go:build unix

package gitcmd

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// isolated is the environment of every git that these tests run.
func isolated(home string) []string {
	return []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + home, "XDG_CONFIG_HOME=" + home, "TMPDIR=" + os.TempDir(),
		"GIT_CONFIG_GLOBAL=" + filepath.Join(home, "gitconfig"), "GIT_CONFIG_NOSYSTEM=1",
	}
}

// sandbox is a home of its own, with repositories in it.
type sandbox struct {
	t    testing.TB
	home string // physical
	run  Runner
}

func newSandbox(t testing.TB) *sandbox {
	t.Helper()
	needTool(t, "git")
	home, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	s := &sandbox{t: t, home: home}
	s.write(filepath.Join(home, "gitconfig"), "[user]\n\tname = tester\n\temail = tester@localhost\n[init]\n\tdefaultBranch = main\n"+
		"[advice]\n\tdetachedHead = false\n[protocol \"file\"]\n\tallow = always\n")
	if err := os.Mkdir(filepath.Join(home, "scratch"), 0o700); err != nil {
		t.Fatal(err)
	}
	s.run = Runner{Env: func() []string { return isolated(home) }}
	return s
}

func needTool(t testing.TB, name string) {
	t.Helper()
	if _, err := exec.LookPath(name); err != nil {
		skipOutsideCI(t, name+" is not installed")
	}
}

func needRoot(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		skipOutsideCI(t, "needs root")
	}
}

func skipOutsideCI(t testing.TB, why string) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatal(why)
	}
	t.Skip(why)
}

func (s *sandbox) path(rel string) string { return filepath.Join(s.home, rel) }

func (s *sandbox) write(path, content string) {
	s.t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		s.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		s.t.Fatal(err)
	}
}

// writeEarlier makes a file older than the index will be: git reads those of the same instant
// again, as they could have been edited since.
func (s *sandbox) writeEarlier(rel, content string) {
	s.t.Helper()
	s.write(s.path(rel), content)
	hourAgo := time.Now().Add(-time.Hour)
	if err := os.Chtimes(s.path(rel), hourAgo, hourAgo); err != nil {
		s.t.Fatal(err)
	}
}

// git runs a person's git in dir, relative to the home, and returns what it wrote.
func (s *sandbox) git(dir string, args ...string) string {
	s.t.Helper()
	out, err := s.tryGit(dir, args...)
	if err != nil {
		s.t.Fatalf("git %q in %s: %v\n%s", args, dir, err, out)
	}
	return out
}

func (s *sandbox) tryGit(dir string, args ...string) (string, error) {
	cmd := exec.Command("git", args...)
	cmd.Dir = s.path(dir)
	cmd.Env = isolated(s.home)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// repo makes a repository with one commit.
func (s *sandbox) repo(dir string, initArgs ...string) {
	s.t.Helper()
	s.git(".", append(append([]string{"init", "-q"}, initArgs...), dir)...)
	for _, f := range []string{"a", "b", "d/one", "d/two", "gone", "exec", "old name"} {
		s.write(s.path(dir+"/"+f), "committed "+f+"\n")
	}
	s.write(s.path(dir+"/.gitignore"), "*.ignored\nbuild/\n")
	s.commit(dir, "first")
}

func (s *sandbox) commit(dir, message string) {
	s.t.Helper()
	s.git(dir, "add", "-A")
	s.git(dir, "commit", "-q", "--no-verify", "-m", message)
}

func (s *sandbox) options(dir, id string) SnapshotOptions {
	return SnapshotOptions{Dir: s.path(dir), Scratch: s.path("scratch"), Ref: RescuePrefix + id, Time: time.Unix(1_700_000_000, 0)}
}

// ctx ends long after every test here, on a machine under load.
func testContext(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

var hookNames = strings.Fields(`applypatch-msg pre-applypatch post-applypatch pre-commit pre-merge-commit
	prepare-commit-msg commit-msg post-commit pre-rebase post-checkout post-merge pre-push pre-receive update
	proc-receive post-receive post-update reference-transaction push-to-checkout pre-auto-gc post-rewrite
	sendemail-validate fsmonitor-watchman p4-changelist p4-prepare-changelist p4-post-changelist p4-pre-submit
	post-index-change`)

// trap gives a repository every hook, an fsmonitor program and a signing program, each of which
// leaves a mark.
func (s *sandbox) trap(dir string) {
	s.t.Helper()
	common := strings.TrimSpace(s.git(dir, "rev-parse", "--path-format=absolute", "--git-common-dir"))
	for _, name := range append(hookNames, "../fsmonitor.sh", "../gpg.sh") {
		path := filepath.Join(common, "hooks", name)
		s.write(path, "#!/bin/sh\necho "+filepath.Base(name)+" >> "+s.path("marks")+"\n")
		if err := os.Chmod(path, 0o755); err != nil {
			s.t.Fatal(err)
		}
	}
	s.git(dir, "config", "core.fsmonitor", filepath.Join(common, "fsmonitor.sh"))
	s.git(dir, "config", "commit.gpgSign", "true")
	s.git(dir, "config", "gpg.program", filepath.Join(common, "gpg.sh"))
}

func (s *sandbox) marks() string {
	b, err := os.ReadFile(s.path("marks"))
	if err != nil && !os.IsNotExist(err) {
		s.t.Fatal(err)
	}
	return string(b)
}

// observation is everything that a snapshot must leave as it is.
type observation struct {
	Status, Refs, Head, Stash, Index, Locks string
	Files                                   map[string]string
}

// observe looks at a working tree and its submodules without changing it.
func (s *sandbox) observe(dir string) observation {
	s.t.Helper()
	var o observation
	// Hooks, fsmonitor and lazy fetches are switched off, so that a mark is never this observer's.
	quiet := func(args ...string) string {
		out, _ := s.tryGit(dir, append([]string{"--no-optional-locks", "-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=", "-c", "protocol.file.allow=never"}, args...)...)
		return out
	}
	o.Status = quiet("status", "--porcelain", "-uall")
	for line := range strings.Lines(quiet("for-each-ref", "--format=%(refname) %(objectname)")) {
		if !strings.HasPrefix(line, RescuePrefix) {
			o.Refs += line
		}
	}
	o.Stash = quiet("stash", "list")
	gitDir := strings.TrimSpace(quiet("rev-parse", "--absolute-git-dir"))
	head, _ := os.ReadFile(filepath.Join(gitDir, "HEAD"))
	reflog, _ := os.ReadFile(filepath.Join(gitDir, "logs/HEAD"))
	o.Head = string(head) + string(reflog)
	index := filepath.Join(gitDir, "index")
	if info, err := os.Lstat(index); err == nil {
		b, err := os.ReadFile(index)
		if err != nil {
			s.t.Fatal(err)
		}
		o.Index = fmt.Sprintf("%x %v %s", b, info.ModTime(), inode(info))
	}
	locks, _ := filepath.Glob(filepath.Join(gitDir, "*.lock"))
	o.Locks = strings.Join(locks, " ")
	o.Files = map[string]string{}
	err := filepath.WalkDir(s.path(dir), func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return nil // an unreadable folder is one of the cases
		}
		if d.Name() == ".git" && d.IsDir() {
			return fs.SkipDir
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		o.Files[path] = fmt.Sprintf("%v %d %v %s", info.Mode(), info.Size(), info.ModTime(), inode(info))
		return nil
	})
	if err != nil {
		s.t.Fatal(err)
	}
	return o
}

// content is what a commit holds at path; ok is false if nothing.
func (s *sandbox) content(dir, commit, path string) (string, bool) {
	out, err := s.tryGit(dir, "cat-file", "-p", commit+":"+path)
	return out, err == nil
}

func omission(snap Snapshot, path string) (Omission, bool) {
	for _, o := range snap.Omitted {
		if o.Path == path {
			return o, true
		}
	}
	return Omission{}, false
}
