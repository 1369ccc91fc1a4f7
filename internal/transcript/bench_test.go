package transcript

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// big makes a transcript of 200 MB of which only the ends take room on disk.
func big(tb testing.TB) string {
	tb.Helper()
	path := filepath.Join(tb.TempDir(), idA+".jsonl")
	var head, tail strings.Builder
	head.WriteString(user + `"Fix the login"}}` + "\n")
	line := `{"type":"assistant","cwd":"/w/app","gitBranch":"fix","isSidechain":false,"message":{"content":[{"type":"tool_use","name":"Bash","input":{"command":"go test","timeout":1000}}]}}` + "\n"
	result := `{"type":"user","cwd":"/w/app","gitBranch":"fix","message":{"content":[{"type":"tool_result","content":"` + strings.Repeat("ok ", 300) + `"}]}}` + "\n"
	for head.Len() < HeadWindow {
		head.WriteString(line + result)
	}
	for tail.Len() < TailWindow {
		tail.WriteString(line + result)
	}
	f, err := os.Create(path)
	if err != nil {
		tb.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString(head.String()); err != nil {
		tb.Fatal(err)
	}
	if _, err := f.WriteAt([]byte(tail.String()), 200<<20); err != nil {
		tb.Fatal(err)
	}
	return path
}

// Status of a 200 MB transcript: 128 KiB read. x-bare is its time over that of
// opening the file and reading the same bytes.
//
//	go test -bench Read200MB ./internal/transcript
func BenchmarkRead200MB(b *testing.B) {
	path := big(b)
	buf := make([]byte, HeadWindow+TailWindow)
	bare := func() {
		f, err := os.Open(path)
		if err != nil {
			b.Fatal(err)
		}
		defer f.Close()
		fi, err := f.Stat()
		if err != nil {
			b.Fatal(err)
		}
		if _, err := f.ReadAt(buf[:HeadWindow], 0); err != nil {
			b.Fatal(err)
		}
		if _, err := f.ReadAt(buf[HeadWindow:], fi.Size()-TailWindow); err != nil {
			b.Fatal(err)
		}
	}
	var r Reader
	var info Info
	var ours, theirs time.Duration
	b.ReportAllocs()
	for b.Loop() {
		start := time.Now()
		var err error
		if info, err = r.Read(context.Background(), path, Claude); err != nil {
			b.Fatal(err)
		}
		middle := time.Now()
		bare()
		ours += middle.Sub(start)
		theirs += time.Since(middle)
	}
	if info.Title != "Fix the login" || info.Activity != "Bash: go test" {
		b.Fatalf("%+v", info)
	}
	b.ReportMetric(float64(info.BytesRead), "bytes-read")
	b.ReportMetric(float64(ours.Microseconds())/float64(b.N), "us/read")
	b.ReportMetric(float64(ours)/float64(theirs), "x-bare")
}

func TestBigTranscriptCosts128KiB(t *testing.T) {
	info := read(t, big(t), Claude)
	if info.Size <= 200<<20 || info.BytesRead != 128<<10 {
		t.Errorf("%d bytes read of %d", info.BytesRead, info.Size)
	}
	want := said{ID: idA, Cwd: "/w/app", Branch: "fix", Title: "Fix the login", Activity: "Bash: go test", Subagent: No}
	if info.said() != want {
		t.Errorf("got %+v, want %+v", info.said(), want)
	}
}
