package ledger

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// peerProgram is what the hook is held against: the unavoidable work of a static binary. It
// reads its payload, and replaces a file as often as it is told, with syncs or without.
const peerProgram = `package main

import (
	"io"
	"os"
	"path/filepath"
	"strconv"
)

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func main() {
	dir, durable := os.Args[1], os.Args[3] == "sync"
	times, err := strconv.Atoi(os.Args[2])
	must(err)
	payload, err := io.ReadAll(os.Stdin)
	must(err)
	for range times {
		f, err := os.CreateTemp(dir, "tmp")
		must(err)
		_, err = f.Write(append(payload, make([]byte, 2000)...))
		must(err)
		if durable {
			must(f.Sync())
		}
		must(f.Close())
		must(os.Rename(f.Name(), filepath.Join(dir, "row")))
		if durable {
			d, err := os.Open(dir)
			must(err)
			must(d.Sync())
			d.Close()
		}
	}
}
`

func buildPeer(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	putFile(t, filepath.Join(dir, "peer.go"), peerProgram)
	cmd := exec.Command("go", "build", "-o", filepath.Join(dir, "peer"), filepath.Join(dir, "peer.go"))
	cmd.Env = append(slices.Clone(firstEnv), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return filepath.Join(dir, "peer")
}

// installed has a program be as a machine has it after a boot: on the disk, and read from
// there when it is started. How long a start takes depends, by a fifth, on how the file's
// pages came into memory: those that the linker has just written make it long, those of a
// file that was written in one piece short.
func installed(t testing.TB, program string) string {
	t.Helper()
	f, err := os.Open(program)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := errors.Join(f.Sync(), unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED)); err != nil {
		t.Fatal(err)
	}
	return program
}

// timedHooks has an agent run two programs in turn.
type timedHooks struct {
	Hook, Peer []string
	Transcript string // as claude says it: the file comes with the first turn
	Rounds     int
	Turn       int // who comes first
}

// runTimed is an agent that runs hooks and prints how long each took, in nanoseconds.
var runTimed = inChild("run-timed", func(arg timedHooks) error {
	var took [][2]int64
	// The first program that a process starts takes longer, whichever it is.
	for _, argv := range [][]string{{arg.Hook[0], "hook"}, arg.Peer} {
		if err := exec.Command(argv[0], argv[1:]...).Run(); err != nil {
			return err
		}
	}
	for i := range arg.Rounds {
		var pair [2]int64
		for n := range 2 {
			j := (i + n + arg.Turn) % 2
			argv := [][]string{arg.Hook, arg.Peer}[j]
			cmd := exec.Command(argv[0], argv[1:]...)
			// Two heartbeats in one second write once, unless there is something to say.
			event := []string{`"Stop"`, `"Notification","notification_type":"idle_prompt"`}[i%2]
			cmd.Stdin = strings.NewReader(fmt.Sprintf(`{"hook_event_name":%s,"session_id":"c-%d","transcript_path":%q}`, event, os.Getpid(), arg.Transcript))
			began := time.Now()
			if err := cmd.Run(); err != nil {
				return err
			}
			pair[j] = time.Since(began).Nanoseconds()
		}
		took = append(took, pair)
	}
	return json.NewEncoder(os.Stdout).Encode(took)
})

// asAgent runs a child under an agent's name.
func asAgent(t testing.TB, arg timedHooks) (took [][2]int64) {
	t.Helper()
	cmd := childCommand(t, runTimed, arg)
	cmd.Args[0] = "claude"
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if err := json.Unmarshal(out, &took); err != nil {
		t.Fatal(err)
	}
	return took
}

// crowded is a ledger with that many open and filed rows, and complete claims.
func crowded(t *testing.B, open, filed int) string {
	t.Helper()
	s := benchStore(t)
	fillLedger(t, s.root, dirSessions, open, nil)
	fillLedger(t, s.root, dirFinished, filed, func(e *Entry) { e.Phase, e.FinishedAt = PhaseFinished, e.StartedAt })
	if err := s.completeClaims(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s.root
}

func medians(took [][2]int64) (hook, peer float64) {
	median := func(j int) float64 {
		var ns []int64
		for _, pair := range took {
			ns = append(ns, pair[j])
		}
		slices.Sort(ns)
		return float64(ns[len(ns)/2])
	}
	return median(0), median(1)
}

// The figures of 09-quality.md, process start to exit, in a ledger of 10,000 open and
// 100,000 finished rows: a heartbeat against one whole-file replace, and one durable one; the
// first hook of a session against two durable writes.
//
//	go test -run '^$' -bench BenchmarkHookProcess -benchtime 400x .
func BenchmarkHookProcess(b *testing.B) {
	ctl, peer := installed(b, build(b, ctlPackage)), installed(b, buildPeer(b))
	for _, rows := range [][2]int{{0, 0}, {10_000, 100_000}} {
		root := crowded(b, rows[0], rows[1])
		hook := []string{ctl, "-dir", root, "hook", "claude"}
		name := fmt.Sprintf("open=%d,finished=%d", rows[0], rows[1])
		report := func(b *testing.B, took [][2]int64) {
			h, p := medians(took)
			b.ReportMetric(h/1e6, "ms/hook")
			b.ReportMetric(p/1e6, "ms/peer")
			b.ReportMetric(h/p, "hook/peer")
			b.ReportMetric(0, "ns/op")
		}
		for against, sync := range map[string]string{"replace": "", "durable": "sync"} {
			b.Run("heartbeat/against="+against+"/"+name, func(b *testing.B) {
				transcript := filepath.Join(b.TempDir(), "transcript.jsonl")
				putFile(b, transcript, "")
				took := asAgent(b, timedHooks{hook, []string{peer, apart(b), "1", sync}, transcript, b.N + 1, 0})
				report(b, took[min(1, len(took)-1):])
			})
		}
		b.Run("first/"+name, func(b *testing.B) {
			dir := apart(b)
			var took [][2]int64
			for i := range b.N {
				took = append(took, asAgent(b, timedHooks{hook, []string{peer, dir, "2", "sync"}, filepath.Join(dir, "transcript.jsonl"), 1, i})...)
			}
			report(b, took)
		})
	}
}
