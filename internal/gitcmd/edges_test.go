//go:build unix

package gitcmd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// Without this, the trap could be one that never springs.
func TestTrapSpringsForAPersonsGit(t *testing.T) {
	s := newSandbox(t)
	s.repo("r")
	s.trap("r")
	s.write(s.path("r/a"), "edited\n")
	s.tryGit("r", "commit", "-q", "-a", "-m", "x")
	s.git("r", "update-ref", "refs/x/y", "HEAD")
	for _, want := range []string{"fsmonitor.sh", "gpg.sh", "post-index-change", "reference-transaction", "pre-commit"} {
		if !strings.Contains(s.marks(), want) {
			t.Errorf("%s did not run: %q", want, s.marks())
		}
	}
}

func TestConfiguredHooksAreDisabledByName(t *testing.T) {
	w := parseConfig([]byte("hook.lint.event\nreference-transaction\x00hook.lint.command\nx\x00hook.a.b.command\ny\x00" +
		"filter.f.g.clean\nc\x00filter.f.g.process\np\x00filter.novalue.required\x00core.sparsecheckout\ntrue\x00core.sparsecheckout\nfalse\x00"))
	if want := []setting{{"hook.lint.enabled", "false"}, {"hook.a.b.enabled", "false"}}; !slices.Equal(w.off, want) {
		t.Errorf("%v", w.off)
	}
	if !slices.Equal(w.filters.names, []string{"f.g", "novalue"}) || !slices.Equal(w.filters.process, []string{"f.g"}) || !w.sparse {
		t.Errorf("%+v", w)
	}
}

func TestSnapshotsAtTheSameTimeMakeOneRef(t *testing.T) {
	s := newSandbox(t)
	s.repo("r")
	leaveWork(s, "r")
	s.trap("r")
	before := s.observe("r")
	const n = 6
	var wg sync.WaitGroup
	snaps, errs := make([]Snapshot, n), make([]error, n)
	for i := range n {
		wg.Go(func() {
			opts := s.options("r", "id")
			opts.Message = func(Snapshot) string { return fmt.Sprintf("from %d", i) }
			snaps[i], errs[i] = s.run.Snapshot(testContext(t), opts)
		})
	}
	wg.Wait()
	made := 0
	for i, snap := range snaps {
		if errs[i] != nil || snap.Commit != snaps[0].Commit || !slices.Equal(snap.Paths, snaps[0].Paths) || snap.Message != snaps[0].Message {
			t.Errorf("%d: %v %+v", i, errs[i], snap)
		}
		if !snap.Existing {
			made++
		}
	}
	if made != 1 {
		t.Errorf("%d made the ref", made)
	}
	if refs, err := s.run.List(testContext(t), s.path("r")); err != nil || len(refs) != 1 || refs[0].Commit != snaps[0].Commit {
		t.Errorf("%+v, %v", refs, err)
	}
	if d := cmp.Diff(before, s.observe("r")); d != "" || s.marks() != "" {
		t.Error(d, s.marks())
	}
}

// The process dies before or after each kind of git command. The nested repository comes first:
// the second death at update-ref is at the outer one's.
func TestKilledSnapshotIsFinishedByTheNext(t *testing.T) {
	if home := os.Getenv("GITCMD_KILLED_HOME"); home != "" {
		s := &sandbox{t: t, home: home}
		r := Runner{Git: s.path("fake-git"), Env: func() []string { return append(isolated(home), "KILL="+os.Getenv("GITCMD_KILLED_AT")) }}
		_, err := r.Snapshot(testContext(t), s.options("r", "id"))
		t.Fatalf("survived: %v", err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	s := newSandbox(t)
	s.repo("r")
	s.repo("r/nested")
	s.write(s.path("r/nested/a"), "nested edit\n")
	leaveWork(s, "r")
	s.trap("r")
	s.fakeGit(`for word; do case $KILL in *" $word") hit=yes;; esac; done
[ -n "$hit" ] || exec git "$@"
case $KILL in before*) kill -9 $PPID;; *) git "$@"; kill -9 $PPID;; esac`)
	before := s.observe("r")
	for _, step := range []string{"config", "rev-parse", "status", "update-index", "write-tree", "diff-tree", "commit-tree", "update-ref", "update-ref"} {
		for _, at := range []string{"before " + step, "after " + step} {
			cmd := exec.Command(self, "-test.run=^"+t.Name()+"$", "-test.count=1")
			cmd.Env = append(os.Environ(), "GITCMD_KILLED_HOME="+s.home, "GITCMD_KILLED_AT="+at)
			out, err := cmd.CombinedOutput()
			if err == nil || !strings.Contains(err.Error(), "killed") {
				t.Fatalf("%s: %v\n%s", at, err, out)
			}
			if d := cmp.Diff(before, s.observe("r")); d != "" {
				t.Fatalf("%s: %s", at, d)
			}
		}
	}
	must(s, SweepScratch(s.path("scratch"), time.Now().Add(-time.Hour)))
	if left, _ := os.ReadDir(s.path("scratch")); len(left) == 0 {
		t.Error("a killed snapshot leaves its scratch folder; the test killed none in time, or a young one was swept")
	}
	must(s, SweepScratch(s.path("scratch"), time.Now().Add(time.Hour)))
	if left, _ := os.ReadDir(s.path("scratch")); len(left) != 0 {
		t.Errorf("scratch: %v", left)
	}

	// What was killed after its last command had made the ref.
	snap, err := s.run.Snapshot(testContext(t), s.options("r", "id"))
	if err != nil || !snap.Existing {
		t.Fatalf("%+v, %v", snap, err)
	}
	for path, want := range workHeld {
		if got, _ := s.content("r", snap.Commit, path); got != want {
			t.Errorf("%q holds %q", path, got)
		}
	}
	if got, _ := s.content("r/nested", snap.Ref, "a"); got != "nested edit\n" {
		t.Errorf("nested holds %q", got)
	}
	if d := cmp.Diff(before, s.observe("r")); d != "" || s.marks() != "" {
		t.Error(d, s.marks())
	}
}

func TestRestoreByCherryPickBringsTheFilesBack(t *testing.T) {
	s := newSandbox(t)
	s.repo("r")
	s.repo("r/nested")
	leaveWork(s, "r")
	snap, err := s.run.Snapshot(testContext(t), s.options("r", "id"))
	if err != nil {
		t.Fatal(err)
	}
	check := func(dir string) {
		t.Helper()
		for path, want := range workHeld {
			got, err := os.ReadFile(s.path(dir + "/" + path))
			if path == "link" {
				var target string
				target, err = os.Readlink(s.path(dir + "/" + path))
				got = []byte(target)
			}
			if err != nil || string(got) != want {
				t.Errorf("%s: %q is %q, %v", dir, path, got, err)
			}
		}
		for _, path := range []string{"gone", "old name"} {
			if _, err := os.Lstat(s.path(dir + "/" + path)); !os.IsNotExist(err) {
				t.Errorf("%s: %q is back", dir, path)
			}
		}
		if info, err := os.Stat(s.path(dir + "/exec")); err != nil || info.Mode()&0o111 == 0 {
			t.Errorf("%s: mode %v, %v", dir, info, err)
		}
	}
	s.git("r", "worktree", "add", "-q", "../fresh", "HEAD")
	s.git("fresh", "cherry-pick", "-n", snap.Ref)
	check("fresh")

	s.git("r", "reset", "-q", "--hard")
	s.git("r", "clean", "-q", "-f", "-d") // leaves the nested repository
	s.git("r", "cherry-pick", "-n", snap.Ref)
	check("r")
}

func TestRestoreOntoAnUnbornBranch(t *testing.T) {
	s := newSandbox(t)
	s.git(".", "init", "-q", "r")
	s.write(s.path("r/f"), "first\n")
	snap, err := s.run.Snapshot(testContext(t), s.options("r", "id"))
	if err != nil {
		t.Fatal(err)
	}
	must(s, os.Remove(s.path("r/f")))
	s.git("r", "cherry-pick", "-n", snap.Ref)
	if got := s.read("r/f"); got != "first\n" {
		t.Errorf("%q", got)
	}
}

func TestRefSurvivesWorktreeRemovalAndGC(t *testing.T) {
	s := newSandbox(t)
	s.repo("r")
	s.git("r", "worktree", "add", "-q", "../wt")
	leaveWork(s, "wt")
	opts := s.options("wt", "id")
	opts.Message = func(snap Snapshot) string {
		return "subject \xff\n\nheld: " + strings.Join(snap.Paths, ", ") + "\x00"
	}
	snap, err := s.run.Snapshot(testContext(t), opts)
	if err != nil {
		t.Fatal(err)
	}
	s.git("r", "worktree", "remove", "--force", "../wt")
	s.git("r", "branch", "-q", "-D", "wt")
	s.git("r", "reflog", "expire", "--expire=now", "--all")
	s.git("r", "gc", "-q", "--prune=now")
	s.git("r", "fsck", "--full", "--strict")
	for path, want := range workHeld {
		if got, _ := s.content("r", snap.Ref, path); got != want {
			t.Errorf("%q holds %q", path, got)
		}
	}
	refs, err := s.run.List(testContext(t), s.path("r/d"))
	if err != nil || len(refs) != 1 {
		t.Fatalf("%+v, %v", refs, err)
	}
	if got := refs[0]; got.Name != snap.Ref || got.Commit != snap.Commit || !got.Time.Equal(opts.Time) || got.Subject != "subject \ufffd" {
		t.Errorf("%+v", got)
	}
	// Packed now, and still what the next snapshot finds.
	s.write(s.path("r/a"), "later\n")
	again, err := s.run.Snapshot(testContext(t), s.options("r", "id"))
	if err != nil || !again.Existing || again.Commit != snap.Commit || again.Message != snap.Message || !strings.HasPrefix(again.Message, "subject \ufffd\n\nheld: a, b,") {
		t.Errorf("%+v, %v", again, err)
	}
}

func TestExistingRefIsThisSnapshotsEvenIfTheTreeIsCleanNow(t *testing.T) {
	s := newSandbox(t)
	s.repo("r")
	s.write(s.path("r/a"), "edited\n")
	first, err := s.run.Snapshot(testContext(t), s.options("r", "id"))
	if err != nil {
		t.Fatal(err)
	}
	s.git("r", "reset", "-q", "--hard")
	again, err := s.run.Snapshot(testContext(t), s.options("r", "id"))
	if err != nil || again.Clean || !again.Existing || again.Commit != first.Commit || !slices.Equal(again.Paths, []string{"a"}) {
		t.Errorf("%+v, %v", again, err)
	}
	// Another id whose name begins with this one's is another row's.
	other, err := s.run.Snapshot(testContext(t), s.options("r", "i"))
	if err != nil || !other.Clean {
		t.Errorf("%+v, %v", other, err)
	}
}

func TestUnreadableFilesAndFoldersAreListed(t *testing.T) {
	if !asNobody(t) {
		return
	}
	s := newSandbox(t)
	s.repo("r")
	s.write(s.path("r/a"), "edited a\n")
	s.write(s.path("r/b"), "edited, then closed\n")
	s.write(s.path("r/secret"), "untracked\n")
	s.write(s.path("r/vault/x"), "in a closed folder\n")
	s.write(s.path("r/d/one"), "behind a closed folder\n")
	for _, p := range []string{"b", "secret", "vault", "d"} {
		must(s, os.Chmod(s.path("r/"+p), 0))
		t.Cleanup(func() { os.Chmod(s.path("r/"+p), 0o755) })
	}
	before := s.observe("r")
	snap, err := s.run.Snapshot(testContext(t), s.options("r", "id"))
	if err != nil || !slices.Equal(snap.Paths, []string{"a"}) {
		t.Fatalf("%+v, %v", snap, err)
	}
	for path, reason := range map[string]string{"b": "permission denied", "secret": "permission denied", "vault/": "cannot be read", "d/": "cannot be read"} {
		if o, ok := omission(snap, path); !ok || !strings.Contains(o.Reason, reason) {
			t.Errorf("%s: %+v", path, o)
		}
	}
	if got, _ := s.content("r", snap.Commit, "d/one"); got != "committed d/one\n" {
		t.Errorf("d/one holds %q", got)
	}
	if d := cmp.Diff(before, s.observe("r")); d != "" {
		t.Error(d)
	}

	// Work of which nothing can be read is not a success, and says what is missing.
	s.git("r", "checkout", "-q", "--", "a")
	snap, err = s.run.Snapshot(testContext(t), s.options("r", "id2"))
	if _, ok := omission(snap, "secret"); !errors.Is(err, ErrEmptySnapshot) || !ok {
		t.Errorf("%+v, %v", snap, err)
	}
}

func TestReadOnlyObjectStoreIsAnErrorNotAnOmission(t *testing.T) {
	if !asNobody(t) {
		return
	}
	s := newSandbox(t)
	s.repo("r")
	leaveWork(s, "r")
	err := filepath.WalkDir(s.path("r/.git/objects"), func(path string, d os.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			t.Cleanup(func() { os.Chmod(path, 0o755) })
			err = os.Chmod(path, 0o555)
		}
		return err
	})
	must(s, err)
	snap, err := s.run.Snapshot(testContext(t), s.options("r", "id"))
	if err == nil || errors.Is(err, ErrEmptySnapshot) || !strings.Contains(err.Error(), "update-index") || len(snap.Omitted) != 0 || snap.Ref != "" {
		t.Errorf("%+v, %v", snap, err)
	}
}

func TestLockLeftOnTheRefByAPowerCut(t *testing.T) {
	s := newSandbox(t)
	s.repo("r")
	s.write(s.path("r/a"), "edited\n")
	lock := s.path("r/.git/" + RescuePrefix + "id.lock")
	s.write(lock, "")
	if snap, err := s.run.Snapshot(testContext(t), s.options("r", "id")); err == nil {
		t.Fatalf("took a young lock: %+v", snap)
	}
	old := time.Now().Add(-staleRefLock - time.Minute)
	must(s, os.Chtimes(lock, old, old))
	snap, err := s.run.Snapshot(testContext(t), s.options("r", "id"))
	if err != nil || snap.Ref == "" || snap.Existing {
		t.Errorf("%+v, %v", snap, err)
	}
}

// Git takes an empty object file, as a power cut leaves it, for the object.
func TestObjectLostInAPowerCutIsNotTakenForHeld(t *testing.T) {
	s := newSandbox(t)
	s.repo("r")
	s.write(s.path("r/a"), "staged before the cut\n")
	s.git("r", "add", "a")
	id := strings.TrimSpace(s.git("r", "rev-parse", ":a"))
	object := s.path("r/.git/objects/" + id[:2] + "/" + id[2:])
	must(s, os.Remove(object))
	s.write(object, "")
	snap, err := s.run.Snapshot(testContext(t), s.options("r", "id"))
	if !errors.Is(err, ErrBroken) || snap.Ref != "" || s.git("r", "for-each-ref", RescuePrefix) != "" {
		t.Errorf("%+v, %v", snap, err)
	}
}

func TestUnchangedFilesAreNotReadAgain(t *testing.T) {
	s := newSandbox(t)
	s.git(".", "init", "-q", "r")
	s.write(s.path("r/.gitattributes"), "*.txt filter=seen\n")
	for i := range 40 {
		s.writeEarlier(fmt.Sprintf("r/d%d/f.txt", i), "as committed\n")
	}
	s.commit("r", "first")
	s.git("r", "config", "filter.seen.clean", "echo %f >> "+s.path("seen")+"; cat")
	s.git("r", "update-index", "--skip-worktree", "d7/f.txt") // has the copied index written before it is read
	s.write(s.path("r/d3/f.txt"), "edited\n")
	s.write(s.path("r/d7/f.txt"), "edited too\n")
	snap, err := s.run.Snapshot(testContext(t), s.options("r", "id"))
	if err != nil || !slices.Equal(snap.Paths, []string{"d3/f.txt", "d7/f.txt"}) {
		t.Fatalf("%+v, %v", snap, err)
	}
	for line := range strings.Lines(s.read("seen")) {
		if name := strings.TrimSpace(line); name != "d3/f.txt" && name != "d7/f.txt" {
			t.Errorf("read %s", name)
		}
	}
}

// An edit of the same size within the same tick as the index is seen only by an index copy that
// kept its time.
func TestEditInTheSameInstantAsTheIndexIsHeld(t *testing.T) {
	s := newSandbox(t)
	s.git(".", "init", "-q", "r")
	s.writeEarlier("r/a", "committed a\n") // or the entry would say that it must be read again
	s.commit("r", "first")
	info, err := os.Stat(s.path("r/a"))
	must(s, err)
	s.write(s.path("r/a"), strings.ToUpper("committed a\n"))
	must(s, os.Chtimes(s.path("r/a"), info.ModTime(), info.ModTime()))
	must(s, os.Chtimes(s.path("r/.git/index"), info.ModTime(), info.ModTime()))
	s.git("r", "config", "core.trustctime", "false")
	snap, err := s.run.Snapshot(testContext(t), s.options("r", "id"))
	if err != nil || !slices.Equal(snap.Paths, []string{"a"}) {
		t.Errorf("%+v, %v", snap, err)
	}
}

// To see whether a file's line ends are to be converted, git looks into the committed blob, and
// fails as a whole if it may not fetch it. That must be an error, no fetch and no "clean".
func TestContentThatAPartialCloneLacksIsNotFetched(t *testing.T) {
	s := newSandbox(t)
	s.partialClone("clone")
	s.git("clone", "config", "core.autocrlf", "input")
	s.write(s.path("clone/d/one"), "put back\r\n")
	snap, err := s.run.Snapshot(testContext(t), s.options("clone", "id"))
	if s.marks() != "" || (err == nil) != (snap.Ref != "") || snap.Clean {
		t.Errorf("%+v, %v, %s", snap, err, s.marks())
	}
	s.tryGit("clone", "status")
	if s.marks() == "" {
		t.Error("a person's git did not fetch either")
	}
}

func TestSnapshotRefusesRefsOutsideItsPlace(t *testing.T) {
	s := newSandbox(t)
	s.repo("r")
	s.write(s.path("r/a"), "edited\n")
	for _, ref := range []string{"", "refs/heads/main", RescuePrefix, RescuePrefix + "a/b", RescuePrefix + "..", RescuePrefix + "x.lock",
		RescuePrefix + "*", RescuePrefix + "a b", RescuePrefix + "-x", RescuePrefix + strings.Repeat("x", 300)} {
		opts := s.options("r", "id")
		opts.Ref = ref
		if snap, err := s.run.Snapshot(context.Background(), opts); err == nil {
			t.Errorf("%q: %+v", ref, snap)
		}
	}
	if refs, err := s.run.List(testContext(t), s.path("r")); err != nil || len(refs) != 0 {
		t.Errorf("%v, %v", refs, err)
	}
}

func TestRepositoriesTooDeepAreListed(t *testing.T) {
	s := newSandbox(t)
	dir := "r"
	for range maxDepth + 2 {
		s.git(".", "init", "-q", dir)
		s.write(s.path(dir+"/f"), "work\n")
		dir += "/n"
	}
	snap, err := s.run.Snapshot(testContext(t), s.options("r", "id"))
	o, ok := omission(snap, strings.Repeat("n/", maxDepth+1))
	if err != nil || !ok || !strings.Contains(o.Reason, "deep") || o.Ref != "" {
		t.Errorf("%+v, %v", snap, err)
	}
	if got, _ := s.content("r"+strings.Repeat("/n", maxDepth), snap.Ref, "f"); got != "work\n" {
		t.Errorf("the deepest holds %q", got)
	}
}

// What git passes over in silence is listed, and never taken for clean.
func TestWhatGitPassesOverIsOmittedByName(t *testing.T) {
	t.Run("files in the place of a submodule", func(t *testing.T) {
		s := newSandbox(t)
		s.repo("r")
		head := strings.TrimSpace(s.git("r", "rev-parse", "HEAD"))
		s.git("r", "update-index", "--add", "--cacheinfo", "160000,"+head+",sub")
		s.git("r", "commit", "-q", "-m", "submodule")
		if err := os.Mkdir(s.path("r/sub"), 0o700); err != nil {
			t.Fatal(err)
		}
		s.write(s.path("r/sub/work"), "work\n")
		snap, err := s.run.Snapshot(testContext(t), s.options("r", "id"))
		if err != nil || snap.Clean || len(snap.Omitted) != 1 || snap.Omitted[0].Path != "sub/" {
			t.Errorf("%v %+v", err, snap)
		}
	})
	t.Run("a folder whose path is too long", func(t *testing.T) {
		s := newSandbox(t)
		s.repo("r")
		old, err := os.Getwd()
		if err != nil {
			t.Fatal(err)
		}
		defer os.Chdir(old)
		if err := os.Chdir(s.path("r")); err != nil {
			t.Fatal(err)
		}
		name := strings.Repeat("d", 250)
		for range 17 { // 17 x 251 bytes: over 4096
			if err := errors.Join(os.Mkdir(name, 0o700), os.Chdir(name)); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.WriteFile("deep", []byte("work"), 0o600); err != nil {
			t.Fatal(err)
		}
		defer exec.Command("rm", "-rf", s.path("r")).Run() // by name from above, which no single path reaches
		if err := os.Chdir(old); err != nil {
			t.Fatal(err)
		}
		s.write(s.path("r/near"), "near\n")
		snap, err := s.run.Snapshot(testContext(t), s.options("r", "id"))
		if err != nil || len(snap.Omitted) == 0 || !strings.HasPrefix(snap.Omitted[0].Path, name) {
			t.Errorf("%v: omitted %d, paths %q", err, len(snap.Omitted), snap.Paths)
		}
	})
}
