package ledger

import (
	"flag"
	"fmt"
	"math/bits"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The orders of phases and ops are those of their bits in table.go.
var (
	allPhases = []Phase{PhaseNone, PhaseLive, PhaseFrozen, PhaseArchived, PhaseFinished}
	allOps    = []Op{OpNone, OpCreate, OpFreeze, OpRestore, OpAbort, OpStandIn, OpHandoff, OpRespawn, OpKill, OpDrop}
)

var updateFiles = flag.Bool("update", false, "write the files that tests generate")

// TestStateDocs checks that docs/state.md is what the table says.
func TestStateDocs(t *testing.T) {
	const path = "docs/state.md"
	want := renderStateDocs()
	if *updateFiles {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("%s is not what the table generates; run go test -run TestStateDocs -update (-want +got):\n%s", path, diff)
	}
}

// TestTextsCoverTheBits checks that each guard and each effect has its own text.
func TestTextsCoverTheBits(t *testing.T) {
	names := map[string]bool{}
	if n := bits.Len32(uint32(staleLease)); n != len(guardTexts) {
		t.Errorf("%d guards, %d texts", n, len(guardTexts))
	}
	if n := bits.Len32(uint32(yields)); n != len(effectTexts) {
		t.Errorf("%d effects, %d texts", n, len(effectTexts))
	}
	var usedGuards guards
	var usedEffects effects
	for _, m := range transitions {
		usedGuards |= m.guards
		usedEffects |= m.effects
	}
	for i, g := range guardTexts {
		if g.name == "" || g.text == "" || names[g.name] || usedGuards&(1<<i) == 0 {
			t.Errorf("guard %d %q: no text, not unique or not used", i, g.name)
		}
		names[g.name] = true
	}
	for i, fx := range effectTexts {
		if fx.name == "" || fx.text == "" || names[fx.name] || usedEffects&(1<<i) == 0 {
			t.Errorf("effect %d %q: no text, not unique or not used", i, fx.name)
		}
		names[fx.name] = true
	}
	// A bit and its text can drift apart in silence; these pin both ends and the middle.
	for bit, name := range map[guards]string{namesProcess: "namesProcess", recordedGone: "recordedGone", subjectRuns: "subjectRuns", sessionGone: "sessionGone", claimable: "claimable"} {
		if got := guardTexts[bits.TrailingZeros32(uint32(bit))].name; got != name {
			t.Errorf("guard %s has the text of %s", name, got)
		}
	}
	for bit, name := range map[effects]string{newLife: "newLife", setLimit: "setLimit", keepCapture: "keepCapture", failRestore: "failRestore", noteEnd: "noteEnd", giveBack: "giveBack"} {
		if got := effectTexts[bits.TrailingZeros32(uint32(bit))].name; got != name {
			t.Errorf("effect %s has the text of %s", name, got)
		}
	}
}

// validStates are the combinations of phase and op that the table can reach.
func validStates() []State {
	var list []State
	for _, p := range allPhases {
		for _, o := range allOps {
			if reachable[p.bit()]&o.bit() != 0 {
				list = append(list, State{Phase: p, Op: o})
			}
		}
	}
	return list
}

var reachable = func() map[phases]ops {
	got := map[phases]ops{fromNoRow: inNone, fromArchived: inNone} // archived rows come from elsewhere
	for changed := true; changed; {
		changed = false
		for _, m := range transitions {
			for p, in := range got {
				if m.from&p == 0 {
					continue
				}
				for _, o := range allOps {
					if in&m.in&o.bit() == 0 {
						continue
					}
					to, op := p, o.bit()
					if m.to != samePhase {
						to = m.to.bit()
					}
					if m.op != sameOp {
						op = m.op.bit()
					}
					if got[to]&op == 0 {
						got[to] |= op
						changed = true
					}
				}
			}
		}
	}
	return got
}()

func renderStateDocs() string {
	var b strings.Builder
	b.WriteString(`<!-- Generated from the table in table.go: go test -run TestStateDocs -update -->

# States and transitions

A state is a phase (what the session is meant to be) and an operation (the multi-step
change in flight, under a lease). What the table does not list is illegal.

Order of checks: the row exists and is readable; the event is well formed; schema; epoch
(` + "`Dropped`" + `); phase and operation; nonce; tombstone; the guards, left to right.

`)
	b.WriteString("```mermaid\nstateDiagram-v2\n")
	id := func(s State) string {
		switch {
		case s.Phase == PhaseNone:
			return "[*]"
		case s.Op == OpNone:
			return string(s.Phase)
		}
		return string(s.Phase) + "_" + string(s.Op)
	}
	for _, s := range validStates() {
		if s.Phase != PhaseNone && s.Op != OpNone {
			fmt.Fprintf(&b, "    state \"%s/%s\" as %s\n", s.Phase, s.Op, id(s))
		}
	}
	for _, s := range validStates() {
		var order []string
		edges := map[string][]string{}
		for kind := EventNone + 1; kind < eventCount; kind++ {
			m := lookUpMove(kind, s.Phase, s.Op)
			if m == nil || m.effects&yields != 0 {
				continue
			}
			to := s
			if m.to != samePhase {
				to.Phase = m.to
			}
			if m.op != sameOp {
				to.Op = m.op
			}
			if to == s {
				continue
			}
			if _, ok := edges[id(to)]; !ok {
				order = append(order, id(to))
			}
			edges[id(to)] = append(edges[id(to)], kind.String())
		}
		for _, to := range order {
			fmt.Fprintf(&b, "    %s --> %s: %s\n", id(s), to, strings.Join(edges[to], ", "))
		}
	}
	b.WriteString("```\n\n")

	b.WriteString("| event | from | to | lease | guards | effects |\n|---|---|---|---|---|---|\n")
	for _, m := range transitions {
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s |\n", m.event, renderFrom(m), renderTo(m), renderLease(m), renderGuards(m.guards), renderEffects(m.effects))
	}
	b.WriteString(`
Lease: *mint* starts an operation under a new lease, and is refused on a tombstoned row
(kill and drop excepted; a kill needs the tombstone). *nonce*: the sender holds the lease.
*attempt*: the sender's environment names the attempt. *take* gives the lease a new nonce
and a new owner; attempt and age stay. An operation that ends takes its lease with it.

The epoch moves exactly when phase, operation, limit or the recorded process changes.

## Guards

`)
	for _, g := range guardTexts {
		fmt.Fprintf(&b, "- *%s*: %s.\n", g.name, g.text)
	}
	b.WriteString("\nEvidence that is not known lets no guarded event pass: it is refused with `ErrUnknown`.\n\n## Effects\n\n")
	for _, fx := range effectTexts {
		fmt.Fprintf(&b, "- *%s*: %s.\n", fx.name, fx.text)
	}
	return b.String()
}

func renderFrom(m move) string {
	if m.from == fromNoRow {
		return "(no row)"
	}
	var names []string
	for _, p := range allPhases {
		if m.from&p.bit() != 0 {
			names = append(names, string(p))
		}
	}
	phase, op := strings.Join(names, ", "), ""
	switch m.from {
	case fromAny:
		phase = "any"
	case fromUnfinished:
		phase = "any but finished"
	}
	switch m.in {
	case inAny:
		op = "any"
	case inFlight:
		op = "any but none"
	default:
		names = nil
		for _, o := range allOps {
			if m.in&o.bit() != 0 {
				names = append(names, opName(o))
			}
		}
		op = strings.Join(names, ", ")
	}
	return phase + "/" + op
}

func opName(o Op) string {
	if o == OpNone {
		return "none"
	}
	return string(o)
}

func renderTo(m move) string {
	switch {
	case m.effects&yields != 0:
		return "same (`Yielded`)"
	case m.to == rowGone:
		return "row removed"
	case m.to == samePhase && m.op == sameOp:
		return "same"
	}
	return string(m.to) + "/" + opName(m.op)
}

func renderLease(m move) string {
	return [...]string{noLease: "-", mints: "mint", needsNonce: "nonce", needsAttempt: "attempt", needsEither: "nonce or attempt", takesOver: "take"}[m.lease]
}

func renderGuards(g guards) string {
	var names []string
	for i := range guardTexts {
		if g&(1<<i) != 0 {
			names = append(names, guardTexts[i].name)
		}
	}
	return joinNames(names)
}

func renderEffects(fx effects) string {
	var names []string
	for i := range effectTexts {
		if fx&(1<<i) != 0 {
			names = append(names, effectTexts[i].name)
		}
	}
	return joinNames(names)
}

func joinNames(names []string) string {
	if len(names) == 0 {
		return "-"
	}
	return strings.Join(slices.Clip(names), ", ")
}
