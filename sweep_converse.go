package ledger

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/sessionledger/ledger/internal/transcript"
)

// converse looks for the conversation of running sessions that have none on record: some
// runtimes open its file with the first message alone. One that a store diff found is
// looked for again, since every other source is better; and a session that no hook speaks
// for is followed where its runtime says that it has gone on.
func (sw *sweeper) converse(ctx context.Context, ids []string, done func(id string)) {
	var unbound, hookless []string
	for _, id := range ids {
		e := sw.entry(id)
		rt, _ := sw.s.runtimes.Lookup(e.Runtime)
		switch {
		case !rt.HasTranscripts || !quiet(e):
		case e.SessionID == "" || e.SessionSource == fromStoreDiff:
			unbound = append(unbound, id)
		case e.SessionSource == fromLaunch || e.SessionSource == fromRegistry || e.SessionSource == fromOpenFile:
			hookless = append(hookless, id)
		}
	}
	for _, id := range sw.someOf(unbound) {
		if ctx.Err() != nil {
			return
		}
		e := sw.entry(id)
		c := sw.s.conversationOf(ctx, sw.pass, sw.matchOf(e), nil)
		if c.silent && e.SessionID == "" {
			c = sw.watched(ctx, e)
		} else {
			delete(sw.cur.Seen, id)
		}
		if c.id == "" && e.SessionID == "" {
			note(sw.rep, &sw.rep.Unbound, Unbound{id, c.reason}, "", "")
		}
		sw.bindTo(ctx, e, c, done)
	}
	maps.DeleteFunc(sw.cur.Seen, func(id string, _ sighting) bool {
		return !slices.Contains(unbound, id) || sw.entry(id).SessionID != ""
	})
	for _, id := range sw.someOf(hookless) {
		if ctx.Err() != nil {
			return
		}
		e := sw.entry(id)
		if c := sw.goneOn(ctx, e); c.id != "" {
			sw.bindTo(ctx, e, c, done)
		}
	}
}

// someOf picks as many rows as one pass looks at. Whose turn it is goes by the clock, so
// that looking in vain writes nothing.
func (sw *sweeper) someOf(ids []string) []string {
	n := len(ids)
	if n <= maxBound {
		return ids
	}
	first := int(sw.now.Unix()/int64(time.Minute/time.Second)) * maxBound % n
	return slices.Concat(ids[first:], ids[:first])[:maxBound]
}

// bindTo binds a conversation, unless that was refused and is held by the same row still.
func (sw *sweeper) bindTo(ctx context.Context, e *Entry, c conversation, done func(id string)) {
	id := e.LedgerID
	refused := func(f FormerID) bool {
		by := sw.entry(f.HeldBy)
		return f.ID == c.id && by != nil && by.IsOpen() && by.SessionID == c.id
	}
	if c.id == "" || slices.ContainsFunc(e.SessionIDs, refused) {
		return
	}
	bound, err := sw.s.bindConversation(ctx, *e, c)
	if err != nil {
		sw.rep.failed(id, sw.stage, err)
		return
	}
	if bound.Revision != e.Revision {
		sw.put(id, bound)
		done(id)
	}
	if bound.ResumedFrom != "" {
		sw.reread(bound.ResumedFrom)
	}
}

// goneOn is the conversation that the session of a bound row has gone on to without a hook:
// the one that the runtime's list of running sessions names by now. Some versions leave
// there what was left, so that it counts only where its transcript was written to after the
// last record of the one that the row has. It is empty where another row holds it.
func (sw *sweeper) goneOn(ctx context.Context, e *Entry) (none conversation) {
	a, ok := sw.s.newAsker(ctx, sw.pass, sw.matchOf(e))
	if !ok || a.spec.Format != transcript.Claude {
		return none
	}
	source, id, path := a.byRegistry()
	if id == "" || id == e.SessionID {
		return none
	}
	next, ok := a.find(source, id, path)
	if !ok || next.path == "" || !next.grew {
		return none
	}
	_, now, err := sw.s.rowTranscript(ctx, e, a.pass.homes(a.env).Getenv)
	if err != nil && !errors.Is(err, ErrNotFound) || err == nil && !next.wrote.After(now.ModTime) {
		return none
	}
	if by, err := sw.s.holder(conversationClaim(e.Runtime, id)); err != nil || by != "" && by != e.LedgerID {
		return none
	}
	return next.conversation
}
