package ledger

import (
	"reflect"
	"slices"
	"strings"
	"time"
)

// relocate records where the session is, as far as loc says.
func (e *Entry) relocate(loc *Location) {
	if m := loc.Mux; m.Kind != "" {
		moved := m.Kind != e.Mux.Kind || m.Socket != "" && m.Socket != e.Mux.Socket
		if moved {
			// The old server's names mean nothing on the new one.
			e.Mux.Kind, e.Mux.Socket, e.Mux.Target = m.Kind, "", ""
			e.TmuxSession, e.TmuxSocket = "", ""
			e.PaneID, e.PaneServer = "", ProcessID{}
		}
		overwrite(&e.Mux.Socket, m.Socket)
		overwrite(&e.Mux.Target, m.Target)
		if m.Kind == MuxTmux {
			overwrite(&e.TmuxSocket, m.Socket)
			overwrite(&e.TmuxSession, m.Target)
		}
	}
	if loc.PaneID != "" {
		e.PaneID, e.PaneServer = loc.PaneID, loc.PaneServer
	}
	if loc.Window != "" {
		e.Window, e.Slot = loc.Window, loc.Slot
	}
}

// overwrite sets *s, unless nothing was supplied.
func overwrite(s *string, v string) {
	if v != "" {
		*s = v
	}
}

// adopt makes the event's conversation the row's. Where it is that already, a better
// source than a store diff is noted in the diff's place. Where an earlier claim was
// refused, the session has gone on: it is in this conversation now.
func (e *Entry) adopt(ev *Event, at time.Time) {
	if ev.SessionID != e.SessionID || ev.Source == fromHook {
		e.forgetRefusal()
	}
	if ev.SessionID == e.SessionID {
		overwrite(&e.TranscriptPath, ev.TranscriptPath)
		if e.SessionSource == fromStoreDiff {
			overwrite(&e.SessionSource, ev.Source)
		}
		return
	}
	e.converse(ev, at)
}

// converse replaces the conversation by the event's, and puts the former one into the
// history with its source.
func (e *Entry) converse(ev *Event, at time.Time) {
	if e.SessionID != "" && e.SessionID != ev.SessionID {
		e.retire(e.SessionID, e.SessionSource, "", at)
	}
	if i := slices.IndexFunc(e.SessionIDs, func(f FormerID) bool { return f.ID == ev.SessionID }); i >= 0 {
		e.SessionIDs[i].HeldBy = "" // not any more
	}
	e.SessionID, e.TranscriptPath, e.SessionSource = ev.SessionID, ev.TranscriptPath, ""
	if ev.SessionID != "" {
		e.SessionSource = ev.Source
	}
}

// cede gives the conversation up to a successor. Its mention names no source: that is
// what tells it from a claim of this row that was refused.
func (e *Entry) cede(to string, at time.Time) {
	e.retire(e.SessionID, "", to, at)
	e.SessionIDs[len(e.SessionIDs)-1].From = ""
	e.SessionID, e.TranscriptPath, e.SessionSource = "", "", ""
}

// retire puts a conversation into the history, as its newest. An earlier mention of it
// moves, and keeps what it says of the source.
func (e *Entry) retire(id, source, heldBy string, at time.Time) {
	f := FormerID{ID: id}
	if i := slices.IndexFunc(e.SessionIDs, func(f FormerID) bool { return f.ID == id }); i >= 0 {
		f = e.SessionIDs[i]
		e.SessionIDs = slices.Delete(e.SessionIDs, i, i+1)
	}
	overwrite(&f.From, source)
	f.Since, f.HeldBy = at, heldBy
	e.SessionIDs = appendCapped(e.SessionIDs, &e.SessionIDsMore, f)
}

// refuseClaim notes a conversation that another row holds. Once noted, it stays as it is
// however often the claim comes again.
func (e *Entry) refuseClaim(ev *Event, at time.Time) {
	holder := ev.Facts.HeldBy
	if !slices.ContainsFunc(e.SessionIDs, func(f FormerID) bool { return f.ID == ev.SessionID && f.HeldBy == holder }) {
		e.retire(ev.SessionID, ev.Source, holder, at)
	}
	if reason := heldBy + holder; e.Attention == nil || e.Attention.Reason != reason {
		e.Attention = &Note{Since: at, Reason: reason}
	}
}

// heldBy begins the attention that a refused claim asks for, before the holder.
const heldBy = "its conversation is held by "

// refused reports whether attention is asked for because of a refused claim.
func (e *Entry) refused() bool {
	return e.Attention != nil && strings.HasPrefix(e.Attention.Reason, heldBy)
}

// forgetRefusal takes that attention back.
func (e *Entry) forgetRefusal() {
	if e.refused() {
		e.Attention = nil
	}
}

// handOff makes the row that of the newcomer's life.
func (e *Entry) handOff(ev *Event, at time.Time) {
	e.Handoffs = appendCapped(e.Handoffs, &e.HandoffsMore, Handoff{
		From: HandoffFrom{Runtime: e.Runtime, SessionID: e.SessionID}, To: e.HandoffTarget, At: at,
		HeadCommit: ev.HeadCommit, Reason: ev.Reason, Automatic: ev.Automatic,
	})
	e.converse(ev, at)
	e.RescuedAt, e.RescueRef, e.RescueCommit, e.Rescuing = time.Time{}, "", "", nil
	e.RescuedPaths, e.RescuedMore, e.RescueOmitted, e.OmittedMore = nil, 0, nil, 0
	overwrite(&e.BriefPending, ev.Brief)
}

// keepCapture moves the present capture to those that are kept.
func (e *Entry) keepCapture() {
	if f := e.Frozen; f != nil && f.Attempt != "" {
		f.Kept = appendCapped(f.Kept, &f.KeptMore, f.Attempt)
	}
	e.dropCapture()
}

// dropCapture forgets the present capture, and the whole part where it says nothing else.
func (e *Entry) dropCapture() {
	f := e.Frozen
	if f == nil {
		return
	}
	*f = Frozen{Kept: f.Kept, KeptMore: f.KeptMore, unknown: f.unknown}
	if reflect.ValueOf(*f).IsZero() {
		e.Frozen = nil
	}
}
