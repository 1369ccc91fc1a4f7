package ledger

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// sessions collects a listing by ledger id.
func sessions(t testing.TB, s *Store, opts *ClassifyOptions) map[string]Session {
	t.Helper()
	all := map[string]Session{}
	for sess, err := range s.Sessions(context.Background(), opts) {
		if err != nil {
			t.Fatal(err)
		}
		all[sess.Entry.LedgerID] = sess
	}
	return all
}

// TestSessionsSeeADeathOnAnUntouchedTranscript: the second of two calls sees a process
// that ended in between, however fresh the transcript is.
func TestSessionsSeeADeathOnAnUntouchedTranscript(t *testing.T) {
	s := newStore(t, nil)
	e, cmd := enrolled(t, s, Entry{})
	path := filepath.Join(t.TempDir(), "c1.jsonl")
	line := `{"type":"user","sessionId":"c1","cwd":"/w","message":{"role":"user","content":"mend it"}}` + "\n"
	if err := os.WriteFile(path, []byte(line), 0o600); err != nil {
		t.Fatal(err)
	}
	ev := Claim("c1", "test")
	ev.TranscriptPath = path
	apply(t, s, e.LedgerID, ev)
	if got := sessions(t, s, nil)[e.LedgerID].Status; got.State != LivenessWorking || got.Title != "mend it" || got.ProcessKey == "" {
		t.Errorf("%+v", got)
	}
	endProcess(cmd)
	if got := sessions(t, s, nil)[e.LedgerID].Status; got.State != LivenessOrphaned || got.Title != "mend it" || got.ProcessKey != "" {
		t.Errorf("%+v", got)
	}
}

func TestSessionsReadATranscriptAgainOnlyWhenItChanged(t *testing.T) {
	reads := 0
	path := filepath.Join(t.TempDir(), "t")
	rt := Runtime{Name: "claude", HasTranscripts: true, Read: func(_ context.Context, p string) (Transcript, error) {
		reads++
		info, err := os.Stat(p)
		if err != nil {
			return Transcript{}, err
		}
		return Transcript{Title: "read", ModTime: info.ModTime(), Size: info.Size()}, nil
	}}
	s := newStore(t, &Options{Runtimes: BuiltinRuntimes().With(rt)})
	e, _ := enrolled(t, s, Entry{})
	if err := os.WriteFile(path, []byte("one"), 0o600); err != nil {
		t.Fatal(err)
	}
	ev := Claim("c1", "test")
	ev.TranscriptPath = path
	apply(t, s, e.LedgerID, ev)
	reads = 0
	for range 3 {
		sessions(t, s, nil)
	}
	if reads != 1 {
		t.Errorf("%d reads of an untouched file", reads)
	}
	if err := os.WriteFile(path, []byte("two more"), 0o600); err != nil {
		t.Fatal(err)
	}
	if sessions(t, s, nil); reads != 2 {
		t.Errorf("%d reads after a change", reads)
	}
}

// TestOneCPUSampleForAllRows has several rows that need a sample: together they take the
// time of one. Rows that do not need it take none.
func TestOneCPUSampleForAllRows(t *testing.T) {
	s := newStore(t, nil)
	busy := exec.Command("sh", "-c", "while :; do :; done")
	if err := busy.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { endProcess(busy) })
	p, err := s.procs.identify(busy.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	working, err := s.Create(t.Context(), Entry{Runtime: "some-tool"}, Enrol(p, Location{}))
	if err != nil {
		t.Fatal(err)
	}
	var idle []string
	for range 5 {
		e, _ := enrolled(t, s, Entry{Runtime: "some-tool"})
		idle = append(idle, e.LedgerID)
	}
	const sample = 700 * time.Millisecond
	began := time.Now()
	all := sessions(t, s, &ClassifyOptions{CPUSample: sample})
	if took := time.Since(began); took < sample {
		t.Errorf("no sample was taken: %s", took)
	} else if took > 5*sample {
		t.Errorf("6 rows took %s: more than one sample", took)
	}
	if got := all[working.LedgerID].Status; got.State != LivenessWorking {
		t.Errorf("busy: %+v", got)
	}
	for _, id := range idle {
		if got := all[id].Status; got.State != LivenessIdle || got.Working == nil || *got.Working {
			t.Errorf("idle: %+v", got)
		}
	}
}

func TestNoCPUSampleWhereNoRowNeedsOne(t *testing.T) {
	s := newStore(t, nil)
	enrolled(t, s, Entry{})                               // has transcripts to tell
	e, cmd := enrolled(t, s, Entry{Runtime: "some-tool"}) // is gone
	endProcess(cmd)
	began := time.Now()
	all := sessions(t, s, &ClassifyOptions{CPUSample: time.Minute})
	if took := time.Since(began); took > 30*time.Second {
		t.Errorf("took %s", took)
	}
	if got := all[e.LedgerID].Status.State; got != LivenessOrphaned {
		t.Errorf("%s", got)
	}
}

// TestDirtyCountOncePerFolder counts git's runs by a git of the test's own.
func TestDirtyCountOncePerFolder(t *testing.T) {
	repo := gitRepo(t)
	if err := os.WriteFile(filepath.Join(repo, "new"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	real, err := exec.LookPath("git")
	if err != nil {
		t.Fatal(err)
	}
	runs := fakeTool(t, "git", `exec `+real+` "$@"`)
	s := newStore(t, nil)
	a, _ := enrolled(t, s, Entry{RepoRoot: repo})
	b, _ := enrolled(t, s, Entry{RepoRoot: repo})
	none, _ := enrolled(t, s, Entry{})
	all := sessions(t, s, &ClassifyOptions{Dirty: true, Timeout: patience})
	for _, id := range []string{a.LedgerID, b.LedgerID} {
		if n := all[id].Status.DirtyCount; n == nil || *n != 1 {
			t.Errorf("%v", n)
		}
	}
	if n := all[none.LedgerID].Status.DirtyCount; n != nil {
		t.Errorf("in no repository: %d", *n)
	}
	if n := runs(); n != 1 {
		t.Errorf("git ran %d times", n)
	}
	if sessions(t, s, nil); runs() != 1 {
		t.Errorf("git ran unasked")
	}
}

func TestDirtyCountOfAHungRepositoryIsUnknownInTime(t *testing.T) {
	repo := gitRepo(t)
	fakeTool(t, "git", "exec sleep 1000")
	s := newStore(t, nil)
	e, _ := enrolled(t, s, Entry{RepoRoot: repo})
	began := time.Now()
	got := sessions(t, s, &ClassifyOptions{Dirty: true, Timeout: 200 * time.Millisecond})[e.LedgerID].Status
	if got.DirtyCount != nil {
		t.Errorf("%d", *got.DirtyCount)
	}
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("took %s", took)
	}
}

// fakeTool puts a program of that name before all others on PATH. The function returned
// counts its runs.
func fakeTool(t *testing.T, name, script string) (runs func() int) {
	t.Helper()
	dir := t.TempDir()
	log := filepath.Join(dir, "log")
	body := "#!/bin/sh\necho run >> " + log + "\n" + script + "\n"
	if err := os.WriteFile(filepath.Join(dir, name), []byte(body), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	return func() int {
		data, err := os.ReadFile(log)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		return strings.Count(string(data), "run")
	}
}

// TestClassifyStartsNoProcess: without dirty counts and without rows in tmux, no child runs.
func TestClassifyStartsNoProcess(t *testing.T) {
	git, tmux := fakeTool(t, "git", "exit 1"), fakeTool(t, "tmux", "exit 1")
	s := newStore(t, nil)
	enrolled(t, s, Entry{RepoRoot: t.TempDir()})
	gone, cmd := enrolled(t, s, Entry{RepoRoot: t.TempDir()})
	endProcess(cmd)
	if got := sessions(t, s, nil)[gone.LedgerID].Status.State; got != LivenessOrphaned {
		t.Errorf("%s", got)
	}
	if git() != 0 || tmux() != 0 {
		t.Errorf("git ran %d times, tmux %d times", git(), tmux())
	}
}

// TestSessionsGoOnPastDamage has a damaged row among good ones.
func TestSessionsGoOnPastDamage(t *testing.T) {
	s := newBrokenStore(t, nil)
	e, _ := enrolled(t, s, Entry{})
	if err := os.WriteFile(s.path(dirSessions, "claude-bad.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	var good, bad int
	for sess, err := range s.Sessions(context.Background(), nil) {
		var damaged *DamagedError
		switch {
		case errors.As(err, &damaged) && damaged.ID == "claude-bad":
			bad++
		case err != nil:
			t.Fatal(err)
		case sess.Entry.LedgerID == e.LedgerID:
			good++
		}
	}
	if good != 1 || bad != 1 {
		t.Errorf("good %d, bad %d", good, bad)
	}
}

// BenchmarkSessions1000 gathers and classifies 1,000 live rows: at most 40 allocations a
// row.
func BenchmarkSessions1000(b *testing.B) {
	s := newBrokenStore(b, nil) // its rows share a process, to be live without a thousand of them
	p := self(b)
	d, err := s.dir(dirSessions)
	if err != nil {
		b.Fatal(err)
	}
	const rows = 1000
	for i := range rows {
		id, err := NewID("claude", time.Date(2026, 1, 1, 0, i/60, i%60, 0, time.UTC))
		if err != nil {
			b.Fatal(err)
		}
		ticks := p.StartTicks + uint64(i)*1000 + 1
		if i%2 == 0 {
			ticks = p.StartTicks
		}
		e := Entry{SchemaVersion: 1, LedgerID: id, Runtime: "claude", Phase: PhaseLive, HostID: p.HostID, BootID: p.BootID,
			PIDNamespace: p.PIDNamespace, TimeNamespace: p.TimeNamespace, PID: p.PID, PIDStartTicks: &ticks}
		data, err := encodeEntry(&e)
		if err != nil {
			b.Fatal(err)
		}
		if err := d.Replace("bench", id+rowExtension, data, false); err != nil {
			b.Fatal(err)
		}
	}
	time.Sleep(2 * cacheAge) // rows younger than that are read again, which is not what is measured
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		n = len(sessions(b, s, nil))
	}
	if n != rows {
		b.Fatalf("%d rows", n)
	}
}

// TestSessionsShowNoOtherConversation: what is at the recorded path may be another
// conversation's file, and then says nothing of this session.
func TestSessionsShowNoOtherConversation(t *testing.T) {
	s := newStore(t, &Options{Home: t.TempDir()})
	e, _ := enrolled(t, s, Entry{})
	path := filepath.Join(t.TempDir(), "t.jsonl")
	line := `{"type":"user","sessionId":"c2","cwd":"/w","message":{"role":"user","content":"of another"}}` + "\n"
	if err := os.WriteFile(path, []byte(line), 0o600); err != nil {
		t.Fatal(err)
	}
	ev := Claim("c1", "test")
	ev.TranscriptPath = path
	apply(t, s, e.LedgerID, ev)
	if got := sessions(t, s, nil)[e.LedgerID].Status; got.Title != "" || got.Working != nil {
		t.Errorf("%+v", got)
	}
}
