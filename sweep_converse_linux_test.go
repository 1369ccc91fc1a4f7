package ledger

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sessionledger/ledger/ledgertest"
)

// hookless is a running claude without hooks that its row is bound to by its list of
// running sessions, with the first conversation and one that it has gone on to.
func (b *bed) hookless() (a *ledgertest.Agent, e Entry, second string) {
	b.t.Helper()
	a, e = b.enrolledAgent("claude", b.dir)
	if e.SessionSource != fromRegistry {
		b.t.Fatalf("%q by %q", e.SessionID, e.SessionSource)
	}
	a.Send("/clear")
	second = strings.TrimPrefix(a.Expect("/clear "), "claude: /clear ")
	return a, e, second
}

// idle waits until the list names a conversation after a turn.
func (b *bed) idle(e Entry, id string) {
	b.t.Helper()
	await(b.t, "the end of the turn", func() bool {
		text := readFile(b.t, b.listing(e.PID))
		return strings.Contains(text, id) && strings.Contains(text, `"idle"`)
	})
}

// sweptIn sweeps, and wants the row in a conversation.
func (b *bed) sweptIn(id, want, source string) Entry {
	b.t.Helper()
	var rep Report
	await(b.t, "a whole pass", func() bool {
		rep = mustSweep(b.t, b.s, SweepOptions{Host: b.h})
		return rep.Complete.Processes && rep.Complete.Rows
	})
	e := b.get(id)
	if e.SessionID != want || e.SessionSource != source || e.Attention != nil {
		b.t.Fatalf("%q by %q, %+v, attention %+v; want %q by %q; %+v", e.SessionID, e.SessionSource, e.SessionIDs, e.Attention, want, source, rep.UpdateFailures)
	}
	return e
}

// A session without hooks is followed to the conversation that it has gone on to, once that
// has a transcript.
func TestASweepFollowsASessionWithoutHooks(t *testing.T) {
	b := newBed(t)
	t.Setenv("LEDGERTEST_AGENT_QUIRKS", "lazy")
	a, e, second := b.hookless()
	first := e.SessionID
	b.sweptIn(e.LedgerID, first, fromRegistry) // nothing has been written to it
	a.Send("more")
	a.Expect("did more")
	b.idle(e, second)
	e = b.sweptIn(e.LedgerID, second, fromRegistry)
	if len(e.SessionIDs) != 1 || e.SessionIDs[0].ID != first || e.SessionIDs[0].From != fromRegistry || !strings.HasSuffix(e.TranscriptPath, second+".jsonl") {
		t.Errorf("at %q, history %+v", e.TranscriptPath, e.SessionIDs)
	}
	if again := b.sweptIn(e.LedgerID, second, fromRegistry); again.Revision != e.Revision {
		t.Error("the next sweep wrote it again")
	}
	// The same goes for what its command line or an open file named.
	for _, source := range []string{fromLaunch, fromOpenFile} {
		former := b.get(e.LedgerID).SessionID
		if _, err := b.s.rewrite(t.Context(), e.LedgerID, true, maxRow, func(e *Entry) (verdict, error) {
			e.SessionSource = source
			return unchanged, nil
		}); err != nil {
			t.Fatal(err)
		}
		a.Send("/clear")
		second = strings.TrimPrefix(a.Expect("/clear "), "claude: /clear ")
		a.Send("more")
		a.Expect("did more")
		b.idle(e, second)
		e = b.sweptIn(e.LedgerID, second, fromRegistry)
		if last := e.SessionIDs[len(e.SessionIDs)-1]; last.ID != former || last.From != source {
			t.Errorf("by %s: history %+v", source, e.SessionIDs)
		}
	}
	a.Send("/crash")
	a.Wait()
	b.gone(e.Process())
	c, err := ResumeCommand(t.Context(), b.s, b.get(e.LedgerID))
	if err != nil || !slices.Contains(c.Argv, second) {
		t.Errorf("resumed by %q, %v", c.Argv, err)
	}
}

// An entry that was left behind changes nothing: it names what the row has had, or what
// nothing was written to since, or a conversation without a file.
func TestAStaleListOfRunningSessionsIsNotFollowed(t *testing.T) {
	b := newBed(t)
	a, e, second := b.hookless()
	first := e.SessionID
	a.Send("more")
	a.Expect("did more")
	b.idle(e, second)
	e = b.sweptIn(e.LedgerID, second, fromRegistry)
	for _, id := range []string{first, idA} {
		b.relist(e.PID, func(o map[string]any) { o["sessionId"] = id })
		if now := b.sweptIn(e.LedgerID, second, fromRegistry); now.Revision != e.Revision {
			t.Errorf("%q: written", id)
		}
	}
	b.relist(e.PID, func(o map[string]any) { o["sessionId"], o["procStart"] = first, "1" })
	old := strings.Replace(e.TranscriptPath, second, first, 1)
	later := time.Now().Add(time.Minute)
	if err := os.Chtimes(old, later, later); err != nil {
		t.Fatal(err)
	}
	b.sweptIn(e.LedgerID, second, fromRegistry)
	// With the right process, the same is a session that has gone back.
	b.relist(e.PID, func(o map[string]any) {
		o["procStart"] = itoa(int(*e.PIDStartTicks))
	})
	b.sweptIn(e.LedgerID, first, fromRegistry)
}

// Versions that keep their first entry say nothing, and nothing is claimed that another row
// holds or where a hook has spoken.
func TestWhatIsNotToBeFollowed(t *testing.T) {
	t.Run("the first entry kept", func(t *testing.T) {
		b := newBed(t)
		t.Setenv("LEDGERTEST_AGENT_QUIRKS", "registry")
		a, e, _ := b.hookless()
		a.Send("more")
		a.Expect("did more")
		b.idle(e, e.SessionID)
		b.sweptIn(e.LedgerID, e.SessionID, fromRegistry)
	})
	t.Run("another row's", func(t *testing.T) {
		b := newBed(t)
		_, other := b.enrolledAgent("claude", b.dir)
		a, e, second := b.hookless()
		a.Send("more")
		a.Expect("did more")
		b.idle(e, second)
		later := time.Now().Add(time.Minute)
		if err := os.Chtimes(other.TranscriptPath, later, later); err != nil {
			t.Fatal(err)
		}
		b.relist(e.PID, func(o map[string]any) { o["sessionId"] = other.SessionID })
		b.sweptIn(e.LedgerID, e.SessionID, fromRegistry)
		b.sweptIn(other.LedgerID, other.SessionID, fromRegistry)
	})
	t.Run("a hook has spoken", func(t *testing.T) {
		b := newBed(t)
		a, e, second := b.hookless()
		if _, err := b.s.rewrite(t.Context(), e.LedgerID, true, maxRow, func(e *Entry) (verdict, error) {
			e.SessionSource = fromHook
			return unchanged, nil
		}); err != nil {
			t.Fatal(err)
		}
		a.Send("more")
		a.Expect("did more")
		b.idle(e, second)
		b.sweptIn(e.LedgerID, e.SessionID, fromHook)
	})
}
