package ledger

import (
	"strings"
	"testing"
	"time"

	"github.com/sessionledger/ledger/internal/runtimes"
)

// One conversation began after the launch, and nothing else can have begun it: that alone
// decides. Everything else leaves the session unbound, for the reason given.
func TestLaunchDiff(t *testing.T) {
	at := func(d time.Duration) time.Time { return midday.Add(d) }
	one := runtimes.Begun{Path: "/t/1", ID: "conv-1", At: at(10 * time.Second)}
	two := runtimes.Begun{Path: "/t/2", ID: "conv-2", At: at(20 * time.Second)}
	life := func(from, until time.Duration) othersLife { return othersLife{"another", at(from), at(until)} }
	running := func(from time.Duration) othersLife { return othersLife{who: "another", from: at(from)} }
	for _, tt := range []struct {
		name   string
		begun  []runtimes.Begun
		unsure []string
		others []othersLife
		had    map[string]string
		reason string // "": bound
	}{
		{name: "one", begun: []runtimes.Begun{one}},
		{name: "none", reason: "no conversation began"},
		{name: "several, of which the newest is no better", begun: []runtimes.Begun{one, two}, reason: "2 conversations began"},
		{name: "a file that does not tell", begun: []runtimes.Begun{one}, unsure: []string{"/t/3"}, reason: `"/t/3" does not tell`},
		{name: "a file that does not tell alone", unsure: []string{"/t/3"}, reason: "does not tell"},
		{name: "long after the launch", begun: []runtimes.Begun{{ID: "x", At: at(launchWindow + time.Second)}}, reason: "5m1s after its launch"},
		{name: "just in time", begun: []runtimes.Begun{{ID: "conv-1", Path: "/t/1", At: at(launchWindow)}}},
		{name: "another row's", begun: []runtimes.Begun{one}, had: map[string]string{"conv-1": "row-b"}, reason: "is that of row-b"},
		{name: "another row's is another one", begun: []runtimes.Begun{one}, had: map[string]string{"conv-2": "row-b"}},
		{name: "another that runs since before", begun: []runtimes.Begun{one}, others: []othersLife{running(-time.Hour)}, reason: "may be that of another"},
		{name: "another that was launched at the same time", begun: []runtimes.Begun{one}, others: []othersLife{running(0)}, reason: "may be that of another"},
		{name: "another that started after it had begun", begun: []runtimes.Begun{one}, others: []othersLife{running(12 * time.Second)}},
		{name: "another that started within the same second", begun: []runtimes.Begun{one}, others: []othersLife{running(11 * time.Second)}, reason: "may be that of another"},
		{name: "another of which no start is known", begun: []runtimes.Begun{one}, others: []othersLife{{who: "another"}}, reason: "may be that of another"},
		{name: "another that ended before the launch", begun: []runtimes.Begun{one}, others: []othersLife{life(-time.Hour, -2*time.Second)}},
		{name: "another that ended within the same second", begun: []runtimes.Begun{one}, others: []othersLife{life(-time.Hour, -time.Second)}, reason: "may be that of another"},
		{name: "another that came and went since", begun: []runtimes.Begun{one}, others: []othersLife{life(time.Second, 3*time.Second)}, reason: "may be that of another"},
		{name: "the last of several others", begun: []runtimes.Begun{one}, others: []othersLife{life(-time.Hour, -time.Minute), running(time.Hour), running(5 * time.Second)}, reason: "may be that of another"},
	} {
		d := launchDiff{since: midday, begun: tt.begun, unsure: tt.unsure, others: tt.others, had: tt.had}
		want := conversation{reason: tt.reason}
		if tt.reason == "" {
			want = conversation{id: "conv-1", path: "/t/1", source: fromStoreDiff}
		}
		got := d.decide()
		if got.id != want.id || got.path != want.path || got.source != want.source || (got.reason == "") != (tt.reason == "") || !strings.Contains(got.reason, tt.reason) {
			t.Errorf("%s: %+v, want %+v", tt.name, got, want)
		}
	}
}

// The last of the sources yields to each of the others, whichever comes first, and the
// history says which id was whose.
func TestStoreDiffIsTheLastOfTheSources(t *testing.T) {
	free := Facts{Held: No, Transcript: Yes, HasTranscript: Yes}
	e := rowWith(agentProc, func(e *Entry) { e.SessionID, e.TranscriptPath = "", "" })
	found := Claim("conv-d", fromStoreDiff)
	found.TranscriptPath = "/t/d"
	mustAdvance(t, &e, found, free)
	if e.SessionID != "conv-d" || e.SessionSource != fromStoreDiff || len(e.SessionIDs) > 0 {
		t.Fatalf("%q by %q, %+v", e.SessionID, e.SessionSource, e.SessionIDs)
	}
	again := Claim("conv-d2", fromStoreDiff)
	again.Facts, again.At = free, midday
	if out, write, err := advance(&e, again); out != Yielded || write || err != nil {
		t.Errorf("another find: %s, %v, %v", out, write, err)
	}
	mustAdvance(t, &e, Claim("conv-d", fromRegistry), free)
	if e.SessionID != "conv-d" || e.SessionSource != fromRegistry || e.TranscriptPath != "/t/d" || len(e.SessionIDs) > 0 {
		t.Errorf("the same by a better source: %q by %q, %+v", e.SessionID, e.SessionSource, e.SessionIDs)
	}
	e.SessionSource = fromStoreDiff
	mustAdvance(t, &e, Claim("conv-h", fromHook), free)
	if n := len(e.SessionIDs); e.SessionID != "conv-h" || e.SessionSource != fromHook || n != 1 || e.SessionIDs[0].ID != "conv-d" || e.SessionIDs[0].From != fromStoreDiff || e.SessionIDs[0].HeldBy != "" {
		t.Errorf("the hook: %q by %q, %+v", e.SessionID, e.SessionSource, e.SessionIDs)
	}
	if out, _, _ := advance(&e, again); out != Yielded || e.SessionSource != fromHook {
		t.Errorf("a find after the hook: %s, by %q", out, e.SessionSource)
	}
	mustAdvance(t, &e, Claim("conv-d", fromHook), free)
	mustAdvance(t, &e, Cede("conv-d", "row-c"), Facts{Recorded: Gone})
	last := e.SessionIDs[len(e.SessionIDs)-1]
	if e.SessionID != "" || e.SessionSource != "" || last.ID != "conv-d" || last.HeldBy != "row-c" || last.From != "" {
		t.Errorf("ceded: %q by %q, %+v", e.SessionID, e.SessionSource, e.SessionIDs)
	}
}

// A command line that leaves the choice to the runtime, or makes one, begins nothing.
func TestCommandLinesThatChooseAConversation(t *testing.T) {
	table := runtimes.Builtin()
	for line, want := range map[string]bool{
		"claude":                     false,
		"claude -p hello":            false,
		"claude --model x":           false,
		"claude -p -- --continue":    false,
		"claude --continue":          true,
		"claude -c":                  true,
		"claude --resume":            true,
		"claude --resume=some title": true,
		"claude -r --fork-session":   true,
		"gemini --resume latest":     true,
		"gemini -p x":                false,
		"qwen --continue":            true,
	} {
		args := strings.Split(line, " ")
		spec, _ := table.Lookup(args[0])
		if got := choosesConversation(table, spec, args); got != want {
			t.Errorf("%s: %v, want %v", line, got, want)
		}
	}
}
