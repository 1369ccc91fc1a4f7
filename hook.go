package ledger

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/sessionledger/ledger/internal/procscan"
	"github.com/sessionledger/ledger/internal/runtimes"
)

// HookOptions say how a hook is handled. The zero value is right for a program that the
// agent's hook runs.
type HookOptions struct {
	PID  int           // the hook's process; 0: this one. The session is looked for above it
	Wait time.Duration // for all locks of the hook together, for one of them 500 ms twice at most; 0: 600 ms
}

// HookResult says what a hook did to the record.
type HookResult struct {
	Event    string // the event's name, as the runtime sent it
	LedgerID string // the session's row; "": the hook speaks of none
	Enrolled bool   // the row was made by this hook
	Finished bool   // the row was finished by it

	// Notice is one line for embedders that want to show one: work of a predecessor that
	// was rescued, and how to bring it back. "" is none.
	Notice string
}

// hookWait is for all locks of one hook; the agent waits for the hook to end.
const hookWait = 600 * time.Millisecond

// AnyRuntime, as the runtime of [HandleHook], is whichever the session above the hook runs.
const AnyRuntime = "generic"

// HandleHook takes one hook payload of a runtime (claude, codex, gemini, copilot,
// cursor-agent, or a JSON object of the same members) and updates the record: it enrols
// the session whose process the hook runs under, or finds its row; binds the conversation
// that the event names; notes heartbeats, usage limits and waiting for a person; finishes
// the row where the session says that it ends. Of a restored session it is the
// acknowledgement.
//
// A hook speaks for the session among its ancestors, never for an inherited row id, and
// one without a session above it is no evidence of one: it makes no row and is no error.
// Nor does a payload make one that names neither an event nor a conversation.
// A runtime that the registry does not have is recognised by its program's name. Unknown
// events are signs of life. At most 1 MiB of payload is read, of each text in it 1 KiB is
// kept, and what can be no conversation id of any runtime (a path, for one) is bound to
// nothing. A busy lock is tried once more, and half as much again as the wait for locks is
// the most that all of it takes, beside reading the payload and a file system that hangs.
//
// The caller's wiring must exit 0 whatever comes back, and end the process itself where it
// hangs. The error is [ErrInvalid] for what
// is no payload; the row is whole after every error.
func HandleHook(ctx context.Context, s *Store, runtime string, payload io.Reader, opts HookOptions) (HookResult, error) {
	data, err := io.ReadAll(io.LimitReader(payload, runtimes.MaxHook+1))
	if err != nil {
		return HookResult{}, fmt.Errorf("ledger: hook payload: %w", err)
	}
	ev, err := runtimes.ParseHook(runtime, data)
	if err != nil {
		return HookResult{}, fmt.Errorf("ledger: hook of %s: %w: %w", runtime, ErrInvalid, err)
	}
	if opts.PID == 0 {
		opts.PID = os.Getpid()
	}
	wait := cmp.Or(opts.Wait, hookWait)
	deadline := time.Now().Add(wait * 3 / 2)
	h := &hook{s: s, runtime: runtime, ev: &ev, opts: opts, look: wait / 3, result: HookResult{Event: ev.Name}}
	h.word = h.heard()
	// The first timer of a process has the runtime ask the kernel for a poller and wake a
	// thread to wait in it. The usual case needs none.
	done, err := h.usual(withLockWait(ctx, wait/2))
	again := errors.Is(err, ErrBusy)
	if done && !again {
		return h.result, err
	}
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	for ; ; again = true {
		err := h.handle(withLockWait(ctx, wait/2))
		if !again && errors.Is(err, ErrBusy) && ctx.Err() == nil {
			continue
		}
		return h.result, err
	}
}

// hook is one payload on its way into the record.
type hook struct {
	s       *Store
	runtime string
	ev      *runtimes.HookEvent
	word    *hookWord // what the event says of the conversation; nil where it says nothing of a session's own
	opts    HookOptions
	look    time.Duration // the longest that git, or a tmux server, may take to say where a new session is
	speaker ProcessID     // of which the event tells
	result  HookResult
}

// errUnusual stops the usual way of an event before it writes anything.
var errUnusual = errors.New("more than a sign of life")

// usual handles the event of a session that is on record, in no operation, and in the
// conversation that it was in, with one look at the processes above and one at its row.
// Anything else is not done, and nothing is written of it; the error then says whether the
// row's lock was busy.
func (h *hook) usual(ctx context.Context) (done bool, err error) {
	id, c, ok := h.claimedAbove()
	if !ok {
		return false, nil
	}
	row, err := h.s.rewritten(ctx, id, false, maxUpdate, func(e *Entry) (verdict, error) {
		open := e.Phase != PhaseFinished
		if !c.held(e) || open && (e.Phase != PhaseLive || e.Lease != nil || !h.oldNews(e)) {
			return unchanged, errUnusual
		}
		done = true
		if !open {
			return unchanged, nil // its process lives on after its end; that does not open it again
		}
		return unchanged, h.sign(e)
	})
	if !done {
		return false, err
	}
	h.result.LedgerID = id
	if err != nil || row.Phase == PhaseFinished || h.ev.Subagent() {
		return true, err
	}
	h.speaker = row.process()
	return true, h.react(ctx, row)
}

// claimedAbove returns the claim of the session's process above the hook, and the row that
// it names.
func (h *hook) claimedAbove() (id string, c claim, ok bool) {
	here, err := h.s.procs.here()
	if err != nil {
		return "", claim{}, false
	}
	me, _ := h.s.procs.sys.SelfPID() // as the proc mount names it
	var speaker procscan.Proc
	_, err = h.s.procs.sys.ChainTo(h.opts.PID, func(q *procscan.Proc) bool {
		if q.PID == me {
			self := here
			self.PID, self.StartTicks = q.PID, q.Start
			h.s.procs.own.v.Store(&self) // the row's writer need not be looked up again
		}
		if q.PID == h.opts.PID || len(q.Args) == 0 {
			return false
		}
		name, session := h.s.runtimes.Match(q.Args, nil)
		if !session || name != h.runtime && h.runtime != AnyRuntime {
			return false
		}
		speaker = *q
		return true
	})
	if err != nil || speaker.PID == 0 || speaker.Gone() {
		return "", claim{}, false
	}
	here.PID, here.StartTicks = speaker.PID, speaker.Start
	c = processClaim(here)
	id, _, err = h.s.claimed(c)
	return id, c, err == nil && id != ""
}

// handle is for every event, the usual one too.
func (h *hook) handle(ctx context.Context) error {
	row, err := h.session(ctx)
	if errors.Is(err, ErrNotFound) || err == nil && row.LedgerID == "" {
		return nil // no session above it
	}
	if err != nil {
		return err
	}
	h.result.LedgerID = row.LedgerID
	if !row.IsOpen() {
		return nil
	}
	if !h.result.Enrolled { // a row of this hook's making bears the sign
		if row, err = h.s.Update(ctx, row.LedgerID, h.sign, Relaxed()); err != nil {
			return err
		}
	}
	if h.ev.Subagent() {
		return nil
	}
	return h.react(ctx, &row)
}

// session finds or makes the row of the session that the hook speaks for, and binds the
// conversation that it names. The row is zero where there is none, or where the process
// is none of its own.
func (h *hook) session(ctx context.Context) (Entry, error) {
	p, at, err := h.above()
	if err != nil {
		return Entry{}, err
	}
	plan, err := h.s.plan(ctx, p, nil)
	if err != nil {
		return Entry{}, err
	}
	o := EnrolOptions{By: EnrolledByHook, panes: h.panes(), word: h.word, sign: h.sign}
	en := h.s.enroller(p, plan, o)
	i := en.at[p.candidates()[at].process.PID]
	if head, ok := en.at[en.plan[i].head]; ok && en.plan[i].kind == matchPart {
		i = head
	}
	m := &en.plan[i]
	h.speaker = m.process
	switch {
	case m.kind == matchHeld:
		return h.underOperation(ctx, m)
	case m.kind == matchKnown:
		row, err := h.s.Get(ctx, m.row)
		if err != nil {
			return Entry{}, err
		}
		if row.Phase == PhaseFrozen {
			if after, err := h.underOperation(ctx, m); err != nil || after.LedgerID != "" {
				return after, err
			}
			return row, nil
		}
		h.speaker = row.Process()
		return h.bind(ctx, p, m, row)
	case h.ev.Kind == runtimes.HookEnd && !goesOn(h.ev.Reason):
		return Entry{}, ErrNotFound // a session that is over before anything knew of it
	case h.ev.Name == "" && h.ev.SessionID == "":
		return Entry{}, ErrNotFound // it names neither an event nor a session, and is no sign of one
	}
	row, adopted, err := en.adopt(ctx, i)
	if err != nil && !isUnsynced(err) {
		return Entry{}, err
	}
	h.result.Enrolled = h.result.Enrolled || adopted
	if adopted || !row.IsOpen() {
		return row, nil
	}
	return h.bind(ctx, p, m, row)
}

// heard is what the event says of the conversation.
func (h *hook) heard() *hookWord {
	if h.ev.SessionID == "" || h.ev.Subagent() || h.ev.Kind == runtimes.HookEnd {
		return nil
	}
	return &hookWord{id: h.ev.SessionID, path: h.ev.TranscriptPath, maybeSubagent: h.ev.MaybeSubagent}
}

// oldNews reports whether the row alone shows that the word tells it nothing new. It looks at
// no file: the row is locked.
func (h *hook) oldNews(row *Entry) bool {
	return h.word == nil || (row.TranscriptPath != "" || h.word.path == "") && h.said(row)
}

// said reports whether the word tells the row nothing new.
func (h *hook) said(row *Entry) bool {
	switch {
	case h.word.id != row.SessionID || row.SessionSource == fromStoreDiff || row.refused():
		return false
	case row.TranscriptPath != "":
		return true
	case h.word.path == "": // after a turn there is a transcript, if there ever is one
		return h.ev.Kind != runtimes.HookStop
	}
	there := exists(h.word.path)
	return there != nil && !*there
}

// bind makes the conversation that the event names the row's.
func (h *hook) bind(ctx context.Context, p *pass, m *match, row Entry) (Entry, error) {
	if h.word == nil || !row.IsOpen() || h.said(&row) {
		return row, nil
	}
	c := h.s.conversationOf(ctx, p, m, h.word)
	if c.source != fromHook || c.id == row.SessionID && c.path == "" {
		return row, nil
	}
	bound, err := h.s.bindConversation(ctx, row, c)
	if errors.Is(err, ErrUnknown) || errors.Is(err, ErrIllegal) || errors.Is(err, ErrConflict) {
		return row, nil // not to be settled now; the next event says it again
	}
	return bound, err
}

// above reads the hook's ancestors, and finds the session that it speaks for: the nearest
// of its runtime.
func (h *hook) above() (p *pass, at int, err error) {
	p, err = h.s.chainPass(h.opts.PID)
	if err != nil {
		return nil, 0, fmt.Errorf("ledger: hook: %w: %w", ErrUnknown, err)
	}
	p.gitWait = h.look
	if _, known := p.runtimes.Lookup(h.runtime); !known && checkRuntime(h.runtime) == nil && runtimes.CanBeRuntime(h.runtime) {
		p.runtimes = p.runtimes.With(Runtime{Name: h.runtime})
	}
	at = p.nearest(h.runtime, h.opts.PID)
	if at >= 0 && p.candidates()[at].young {
		at = h.forkOf(p, at)
	}
	if at < 0 {
		return nil, 0, ErrNotFound
	}
	return p, at, nil
}

// forkOf is the session process that one below it, which may be a fork of it, speaks for: an
// event of its own conversation is its own. Any other may be of a session in its own right,
// and is left: a later hook tells.
func (h *hook) forkOf(p *pass, at int) int {
	i, ok := p.at[p.candidates()[at].above[0].PID]
	if !ok || h.ev.SessionID == "" {
		return -1
	}
	id, err := h.s.holder(processClaim(p.candidates()[i].process))
	if err != nil || id == "" {
		return -1
	}
	if row := h.s.sightRow(id); row.state != rowThere || row.entry.SessionID != h.ev.SessionID {
		return -1
	}
	return i
}

// nearest is the index among the candidates of the session process of a runtime that is
// nearest above pid, or -1.
func (p *pass) nearest(runtime string, pid int) int {
	cs := p.candidates()
	for i := len(cs) - 1; i >= 0; i-- {
		if (cs[i].runtime == runtime || runtime == AnyRuntime) && cs[i].process.PID != pid {
			return i
		}
	}
	return -1
}

// panes is the look-up of a new session's pane, with the patience of a hook.
func (h *hook) panes() paneLookup {
	ask := h.s.listings().pane
	return func(ctx context.Context, socket string, serverPID int, panePIDs []int) (session, window, pane string, ok bool) {
		ctx, cancel := context.WithTimeout(ctx, h.look)
		defer cancel()
		return ask(ctx, socket, serverPID, panePIDs)
	}
}

// underOperation is the word of an agent that carries the id of a row which is frozen or
// in an operation: of a restore it is the acknowledgement, of a frozen session that runs
// again the adoption. Anything else is no business of the row's: the process may be
// another agent below it. The row comes back if it was taken up.
func (h *hook) underOperation(ctx context.Context, m *match) (Entry, error) {
	row, err := h.s.Get(ctx, m.row)
	if err != nil {
		return Entry{}, err
	}
	if h.word == nil || h.ev.MaybeSubagent || row.Phase != PhaseFrozen {
		return Entry{}, nil
	}
	ev := Adopt(m.process, h.ev.SessionID)
	if row.Lease != nil {
		if row.Lease.Op != OpRestore || m.carries.attempt != row.Lease.Attempt {
			return Entry{}, nil
		}
		ev = Acknowledge(m.carries.attempt, m.process, h.ev.SessionID)
	}
	ev.TranscriptPath, ev.Source = h.ev.TranscriptPath, fromHook
	after, out, err := h.s.Apply(ctx, row.LedgerID, ev)
	switch {
	case out == Applied:
		return after, nil
	case errors.Is(err, ErrBusy):
		return Entry{}, err
	}
	// A passing id, or another conversation: the restore's coordinator reads what is
	// recorded of it.
	h.s.logger.Info("hook refused", "session", row.LedgerID, "event", h.ev.Name, "error", err)
	return Entry{}, nil
}

// sign notes the sign of life, and whether the agent waits for a person.
func (h *hook) sign(e *Entry) error {
	now := h.s.now()
	if now.After(e.LastHeartbeatAt) {
		e.LastHeartbeatAt = now
	}
	if h.ev.Subagent() {
		return nil
	}
	if h.ev.Model != "" {
		e.Model = h.ev.Model
	}
	switch {
	case h.ev.Waiting():
		if kind := waitingKind(h.ev.NotificationType); e.Waiting == nil || e.Waiting.Kind != kind {
			e.Waiting = &Waiting{Kind: kind, Since: now}
		}
	case h.ev.Kind != runtimes.HookNotification && h.ev.Kind != runtimes.HookOther:
		e.Waiting = nil // it goes on
	}
	return nil
}

// waitingKind is what a person is waited for.
func waitingKind(notification string) string {
	switch notification {
	case "permission_prompt", "ToolPermission":
		return "permission"
	}
	return "input"
}

// react does what the event asks for beside the sign of life.
func (h *hook) react(ctx context.Context, row *Entry) error {
	switch {
	case h.ev.Kind == runtimes.HookEnd && !goesOn(h.ev.Reason):
		return h.apply(ctx, row, Finish(h.speaker.Key(), endReason(h.ev.Reason)))
	case h.ev.Limited():
		return h.apply(ctx, row, ObserveLimit(h.speaker.Key(), time.Time{}))
	case h.ev.Kind == runtimes.HookStop && row.Limit != nil:
		return h.apply(ctx, row, ClearLimit().AtEpoch(row.Epoch)) // a turn was finished: it holds no more
	case h.ev.Kind == runtimes.HookStart:
		h.result.Notice = h.notice(ctx, row)
	}
	return nil
}

func (h *hook) apply(ctx context.Context, row *Entry, ev Event) error {
	_, out, err := h.s.Apply(ctx, row.LedgerID, ev)
	if err != nil && !isUnsynced(err) {
		return err
	}
	h.result.Finished = ev.Kind == EventFinish && out == Applied
	return nil
}

// goesOn reports the ends after which the process lives on under another conversation.
func goesOn(reason string) bool { return reason == "clear" || reason == "resume" }

// endReason puts a runtime's reason into the record's prose. Nothing is made of a missing
// one; an unknown token is passed on as it is.
func endReason(reason string) string {
	switch reason {
	case "prompt_input_exit":
		return "exited at the prompt"
	case "logout":
		return "logged out"
	case "other":
		return ""
	}
	return reason
}

// notice tells of work that was rescued from the session which this one continues.
func (h *hook) notice(ctx context.Context, row *Entry) string {
	if row.ResumedFrom == "" {
		return ""
	}
	old, err := h.s.Get(ctx, row.ResumedFrom)
	if err != nil || old.RescueRef == "" {
		return ""
	}
	return fmt.Sprintf("uncommitted work of %s was rescued: git cherry-pick -n %s", old.LedgerID, old.RescueRef)
}
