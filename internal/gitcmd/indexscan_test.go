//go:build unix

package gitcmd

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// flagged makes an index with every entry that needs a look, and with others.
func flagged(s *sandbox, initArgs ...string) {
	s.repo("lib", initArgs...)
	s.repo("r", initArgs...)
	s.git("r", "submodule", "--quiet", "add", s.path("lib"), "sub")
	long := "long/" + strings.Repeat(strings.Repeat("x", 200)+"/", 16) + "y"
	s.write(s.path("r/"+long), "x")
	s.write(s.path("r/new\nline"), "x")
	s.commit("r", "odd names")
	s.write(s.path("r/intent"), "x")
	s.git("r", "add", "-N", "intent")
	s.git("r", "update-index", "--assume-unchanged", "a", "new\nline", long)
	s.git("r", "update-index", "--skip-worktree", "b", "new\nline", "d/two")
}

func TestIndexScanAgreesWithGit(t *testing.T) {
	for name, c := range map[string]struct {
		make func(s *sandbox)
		ok   bool
	}{
		"no flags":  {func(s *sandbox) { s.repo("r") }, true},
		"flags":     {func(s *sandbox) { flagged(s) }, true},
		"sha256":    {func(s *sandbox) { flagged(s, "--object-format=sha256") }, true},
		"conflicts": {func(s *sandbox) { diverge(s); s.tryGit("r", "merge", "other") }, true},
		"version 4": {func(s *sandbox) { flagged(s); s.git("r", "update-index", "--index-version", "4") }, false},
		"split":     {func(s *sandbox) { flagged(s); s.git("r", "update-index", "--split-index") }, false},
		"sparse": {func(s *sandbox) {
			s.repo("r")
			s.git("r", "sparse-checkout", "set", "--cone", "--sparse-index", "none")
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSandbox(t)
			c.make(s)
			repo, err := s.run.Describe(testContext(t), s.path("r"))
			must(s, err)
			b, err := os.ReadFile(s.path("r/.git/index"))
			must(s, err)
			got, ok := scanIndex(b, len(repo.Head)/2)
			if ok != c.ok {
				t.Fatalf("ok is %v", ok)
			}
			if !ok {
				return
			}
			w, err := s.run.openWork(testContext(t), repo, s.options("r", "id"), config{})
			must(s, err)
			defer w.close()
			want, err := w.list(testContext(t))
			must(s, err)
			if d := cmp.Diff(want, got, cmp.AllowUnexported(entry{})); d != "" {
				t.Error(d)
			}
			for i := range b {
				if cut, ok := scanIndex(b[:i], len(repo.Head)/2); ok && i < len(b)-len(repo.Head)/2 && len(cut) != len(want) {
					t.Fatalf("cut at %d of %d: %v", i, len(b), cut)
				}
			}
		})
	}
}

// Whatever the bytes, the scan ends, stays inside them, and names only paths that are in them.
func FuzzScanIndex(f *testing.F) {
	s := newSandbox(f)
	flagged(s)
	b, err := os.ReadFile(s.path("r/.git/index"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add([]byte("DIRC\x00\x00\x00\x02\xff\xff\xff\xff"))
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, hash := range []int{0, 20, 32} {
			entries, ok := scanIndex(b, hash)
			if !ok && entries != nil && hash == 0 {
				t.Error("entries without a hash")
			}
			for _, e := range entries {
				if !strings.Contains(string(b), e.path) || !e.gitlink && !e.skip && !e.assumed {
					t.Errorf("%+v", e)
				}
			}
		}
	})
}
