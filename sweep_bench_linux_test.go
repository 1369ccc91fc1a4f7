package ledger

import (
	"fmt"
	"os"
	"testing"
	"time"
)

// The sweep's figures:
//
//	go test -run '^$' -bench Sweep -benchtime 40x .

// benchAgents starts n agents with rows, whose transcripts are there.
func benchAgents(b *testing.B, s *Store, n int) (transcripts []string) {
	b.Helper()
	for i := range n {
		p, _ := startAgent(b, hooked)
		path := fmt.Sprintf("%s/%d.jsonl", b.TempDir(), i)
		putFile(b, path, "{}\n")
		transcripts = append(transcripts, path)
		if _, err := s.Create(b.Context(), Entry{Runtime: hooked, SessionID: fmt.Sprint("c", i), TranscriptPath: path}, Enrol(p, Location{})); err != nil {
			b.Fatal(err)
		}
	}
	return transcripts
}

// BenchmarkSweepIdle is a pass with nothing to do over 50 live rows and 500 processes,
// against a process snapshot and 50 lstat. Limit: 1.5x.
func BenchmarkSweepIdle(b *testing.B) {
	s := newStore(b, &Options{Runtimes: benchRuntimes(), Home: b.TempDir()})
	transcripts := benchAgents(b, s, 50)
	for range 450 {
		startProcess(b)
	}
	sweep := func() {
		if rep := mustSweepB(b, s); len(rep.Refreshed)+len(rep.Warnings) > 0 {
			b.Fatalf("not idle: %+v", rep)
		}
	}
	for range 3 {
		mustSweepB(b, s)
	}
	time.Sleep(cacheAge) // rows that are read later than this are kept
	mustSweepB(b, s)
	ratio(b, func() {
		if _, err := s.procs.sys.Snapshot(b.Context()); err != nil {
			b.Fatal(err)
		}
		for _, path := range transcripts {
			if _, err := os.Lstat(path); err != nil {
				b.Fatal(err)
			}
		}
	}, sweep)
}

// benchRuntimes are of a runtime with transcripts, as most are.
func benchRuntimes() *Runtimes {
	return (&Runtimes{}).With(Runtime{Name: hooked, HasEndHook: true, HasTranscripts: true})
}

func mustSweepB(b *testing.B, s *Store) Report {
	b.Helper()
	rep, err := Sweep(b.Context(), s, SweepOptions{})
	if err != nil {
		b.Fatal(err)
	}
	return rep
}

// BenchmarkSweepBeside100000Finished is an idle pass of a ledger with 100,000 finished
// rows, against the same with none. Limit: 1.1x.
func BenchmarkSweepBeside100000Finished(b *testing.B) {
	ledger := func(finished int) *Store {
		s := newBrokenStore(b, &Options{Runtimes: benchRuntimes(), Home: b.TempDir()})
		for i := range 20 {
			deadRow(b, s, fmt.Sprintf("row%02d", i), hooked, otherTicks(i), rescued, func(e *Entry) { e.SessionID = e.LedgerID })
		}
		for i := range finished {
			overRow(b, s, dirFinished, fmt.Sprintf("x-%s-%06d", s.now().Format("20060102T150405Z"), i), time.Hour)
		}
		for range 3 {
			mustSweepB(b, s)
		}
		return s
	}
	none, many := ledger(0), ledger(100_000)
	time.Sleep(cacheAge)
	mustSweepB(b, none)
	mustSweepB(b, many)
	ratio(b, func() { mustSweepB(b, none) }, func() { mustSweepB(b, many) })
}
