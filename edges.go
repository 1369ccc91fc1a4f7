package ledger

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/sessionledger/ledger/internal/transcript"
)

// Edge is a change of one session that a person may want to hear of.
type Edge struct {
	ID   string    `json:"id"`
	From string    `json:"from"` // state before: a token of [Liveness]; "" where none was known
	To   string    `json:"to"`   // state after it, or one of the other tokens below
	At   time.Time `json:"at"`   // when it was noticed

	Entry Entry `json:"-"` // the row as it is now

	again bool // its delivery was interrupted or failed before
}

// What an edge can lead to besides a state: these hold beside it.
const (
	EdgeRescued       = "RESCUED"        // its uncommitted work is safe in a commit
	EdgeRestoreFailed = "RESTORE-FAILED" // it could not be brought back
	EdgeAttention     = "ATTENTION"      // it needs a person
	EdgeLimit         = "LIMIT"          // it has reached a usage limit
)

// EdgeRule asks for the edges to one token, and says for which rows. UNKNOWN and IN-FLIGHT
// give no edges, and rows that never had a process give none.
type EdgeRule struct {
	To   string
	When func(e Entry) bool // nil: for all
}

// DefaultEdges are the edges that most people want: lost sessions, those that ended by
// themselves, rescued work, failed restores, what needs a person, and usage limits.
func DefaultEdges() []EdgeRule {
	return []EdgeRule{
		{To: string(LivenessOrphaned)},
		{To: string(LivenessFinished), When: func(e Entry) bool { return strings.HasPrefix(e.FinishReason, FinishedExited) }},
		{To: EdgeRescued},
		{To: EdgeRestoreFailed},
		{To: EdgeAttention},
		{To: EdgeLimit},
	}
}

// Text says what happened, for a person, on one line.
func (e Edge) Text() string {
	who := e.Entry.Runtime
	if who == "" {
		who = "session"
	}
	if place := e.Entry.place(); place != "" {
		who += " in " + place
	}
	row := &e.Entry
	text := who + " is " + strings.ToLower(e.To)
	switch e.To {
	case string(LivenessOrphaned):
		text = who + ": its process is gone"
		if row.SessionID != "" {
			text += "; resume brings its conversation back"
		}
	case string(LivenessFinished):
		text = who + " has ended: " + cmp.Or(row.FinishReason, "finished")
	case string(LivenessDetached):
		text = who + " runs, and nobody looks at it: attach shows it"
	case string(LivenessFrozen):
		text = who + " is frozen: reopen brings it back"
	case EdgeRescued:
		text = fmt.Sprintf("%s: %d uncommitted files are kept as %s", who, len(row.RescuedPaths)+row.RescuedMore, row.RescueRef)
	case EdgeRestoreFailed:
		text = who + " could not be reopened"
		if r := row.Restore; r != nil && r.Error != nil {
			text += ": " + r.Error.Reason
		}
	case EdgeAttention:
		text = who + " needs you"
		if n := row.Attention; n != nil {
			text += ": " + n.Reason
		}
	case EdgeLimit:
		text = who + " has reached its usage limit"
		if l := row.Limit; l != nil && !l.ResetAt.IsZero() {
			text += " until " + l.ResetAt.Local().Format("15:04")
		}
	}
	return transcript.Clean(text, maxEdgeText)
}

const maxEdgeText = 300

// place names where a session works.
func (e *Entry) place() string {
	switch {
	case e.Project != "":
		return e.Project
	case e.Cwd != "":
		return filepath.Base(e.Cwd)
	}
	return ""
}

// EdgesText says what happened to several sessions in one line: "" for none, its own text
// for one, and numbers for more.
func EdgesText(edges []Edge) string {
	switch len(edges) {
	case 0:
		return ""
	case 1:
		return edges[0].Text()
	}
	count := map[string]int{}
	for _, e := range edges {
		count[e.To]++
	}
	said := map[string]string{
		string(LivenessOrphaned): "lost their process: resume brings them back", string(LivenessFinished): "have ended",
		EdgeRescued: "had work that is kept", EdgeRestoreFailed: "could not be reopened",
		EdgeAttention: "need you", EdgeLimit: "have reached a usage limit",
	}
	var parts []string
	for _, e := range edges {
		if n := count[e.To]; n > 0 {
			count[e.To] = 0
			parts = append(parts, fmt.Sprintf("%d %s", n, cmp.Or(said[e.To], "are "+strings.ToLower(e.To))))
		}
	}
	return transcript.Clean(fmt.Sprintf("Sessions: %s", strings.Join(parts, ", ")), maxEdgeText)
}

// The signals of a row: its state, and what holds beside it, each with a value that moves
// when it is news again.
const signalState = "state"

type signal struct{ name, to, value string }

func signalsOf(e *Entry, state Liveness) []signal {
	list := []signal{{signalState, string(state), string(state)}}
	add := func(to, value string, holds bool) {
		if !holds {
			value = ""
		}
		list = append(list, signal{strings.ToLower(to), to, value})
	}
	add(EdgeRescued, e.RescueCommit, e.RescueRef != "")
	r := e.Restore
	add(EdgeRestoreFailed, restoreAttempt(r), r != nil && r.Error != nil && r.Error.Attempt == r.Attempt)
	add(EdgeAttention, noteTime(e.Attention), e.Attention != nil && e.IsOpen())
	l := e.Limit
	if l == nil {
		l = &Limit{}
	}
	add(EdgeLimit, l.ReachedAt.Format(timeLayout), e.Limit != nil && e.IsOpen())
	return list
}

func restoreAttempt(r *Restore) string {
	if r == nil {
		return ""
	}
	return r.Attempt
}

func noteTime(n *Note) string {
	if n == nil {
		return ""
	}
	return n.Since.Format(timeLayout)
}

// heard is what is known to have been said of one row, by signal.
type heard map[string]string

// edgesOf compares a row with what was said of it. next is what is said once the edges
// have been. It is pure.
func edgesOf(known heard, e *Entry, state Liveness, rules []EdgeRule, at time.Time) (edges []Edge, next heard) {
	next = heard{}
	from := known[signalState]
	for _, s := range signalsOf(e, state) {
		was := known[s.name]
		switch {
		case s.name != signalState:
			if s.value != "" {
				next[s.name] = s.value
			}
			if s.value == "" || s.value == was {
				continue
			}
		case state == LivenessUnknown || state == LivenessInFlight:
			// Not known for the moment, which is no news and unsays nothing.
			if was != "" {
				next[s.name] = was
			}
			continue
		case was != "" && class(was, rules) == class(s.value, rules):
			next[s.name] = was
			continue
		default:
			next[s.name] = s.value
		}
		if e.PID == 0 || !slices.ContainsFunc(rules, func(r EdgeRule) bool { return r.To == s.to && (r.When == nil || r.When(*e)) }) {
			continue
		}
		edge := Edge{ID: e.LedgerID, From: from, To: s.to, At: at, Entry: e.clone()}
		if s.name != signalState {
			edge.From = string(state)
		}
		edges = append(edges, edge)
	}
	return edges, next
}

// class joins the states between which nobody asks for edges: a session that works, waits
// and works is then one that is alive, and nothing is written.
func class(state string, rules []EdgeRule) string {
	if Liveness(state).alive() && !slices.ContainsFunc(rules, func(r EdgeRule) bool { return Liveness(r.To).alive() }) {
		return "alive"
	}
	return state
}

// state classifies a row by what the pass has seen, without another look: transcripts by
// their time alone.
func (sw *sweeper) state(e *Entry) Liveness {
	ev := Evidence{Mux: sw.mux[e.LedgerID]}
	if sw.pass != nil {
		ev.BootID = sw.pass.here.BootID
	}
	if e.Phase == PhaseLive && e.Lease == nil {
		r := sw.resolve(e)
		ev.Process, ev.ProcessID, ev.ProcessWhy, ev.Launcher = r.verdict, r.process, r.why, r.launcher
		rt, _ := sw.s.runtimes.Lookup(e.Runtime)
		ev.HasTranscripts, ev.CPUGrewAt = rt.HasTranscripts, e.LastActiveAt
		if info, err := os.Lstat(e.TranscriptPath); ev.HasTranscripts && e.TranscriptPath != "" && err == nil {
			ev.Transcript = &TranscriptEvidence{ModTime: info.ModTime()}
		}
	}
	return Classify(*e, ev, sw.s.clock.Now()).State
}
