//go:build unix

package gitcmd

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// BenchmarkSnapshot compares a rescue of 10 changed files of 20,000 with git status in the same
// tree, in turns. "ratio" is the figure to keep at or under 3:
//
//	go test -run '^$' -bench Snapshot -benchtime 20x ./internal/gitcmd
func BenchmarkSnapshot(b *testing.B) {
	s := bigRepo(b)
	var status, snapshot time.Duration
	b.ResetTimer()
	for i := range b.N {
		for j := range 10 {
			s.write(s.path(fmt.Sprintf("r/d%d/e/f%d", j*20, j)), fmt.Sprintf("changed %d\n", i))
		}
		start := time.Now()
		cmd := exec.Command("git", "--no-optional-locks", "status", "--porcelain")
		cmd.Dir, cmd.Env = s.path("r"), isolated(s.home)
		if out, err := cmd.Output(); err != nil || strings.Count(string(out), "\n") != 10 {
			b.Fatalf("%v\n%s", err, out)
		}
		status += time.Since(start)

		start = time.Now()
		snap, err := s.run.Snapshot(context.Background(), s.options("r", fmt.Sprintf("id%d", i)))
		if err != nil || len(snap.Paths) != 10 {
			b.Fatalf("%+v, %v", snap, err)
		}
		snapshot += time.Since(start)
	}
	b.ReportMetric(float64(status.Microseconds())/float64(b.N)/1000, "status-ms")
	b.ReportMetric(float64(snapshot.Microseconds())/float64(b.N)/1000, "snapshot-ms")
	b.ReportMetric(float64(snapshot)/float64(status), "ratio")
}

// BenchmarkDescribeFast compares it with the child process that it saves.
func BenchmarkDescribeFast(b *testing.B) {
	s := newSandbox(b)
	s.repo("r")
	start := time.Now()
	for range 10 {
		if _, err := s.run.Describe(context.Background(), s.path("r/d")); err != nil {
			b.Fatal(err)
		}
	}
	child := time.Since(start) / 10
	b.ReportAllocs()
	b.ResetTimer()
	for range b.N {
		if _, ok := DescribeFast(s.path("r/d")); !ok {
			b.Fatal("not ok")
		}
	}
	b.ReportMetric(float64(b.Elapsed())/float64(b.N)/float64(child), "ratio")
}

func bigRepo(tb testing.TB) *sandbox {
	s := newSandbox(tb)
	s.git(".", "init", "-q", "r")
	for d := range 200 {
		for f := range 100 {
			s.writeEarlier(fmt.Sprintf("r/d%d/e/f%d", d, f), fmt.Sprintf("%d %d\n", d, f))
		}
	}
	s.commit("r", "many")
	return s
}
