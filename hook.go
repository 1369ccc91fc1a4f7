package ledger

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/sessionledger/ledger/internal/runtimes"
)

// HookOptions say how a hook is handled. The zero value is right for a program that the
// agent's hook runs.
type HookOptions struct {
	PID   int           // the hook's process; 0: this one. The session is looked for above it
	Panes PaneLookup    // see EnrolOptions
	Wait  time.Duration // for all locks of the hook together; 0: 600 ms
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

// HandleHook takes one hook payload of a runtime (claude, codex, gemini, copilot,
// cursor-agent, or a JSON object of the same members) and updates the record: it enrols
// the session whose process the hook runs under, or finds its row; binds the conversation
// that the event names; notes heartbeats, usage limits and waiting for a person; finishes
// the row where the session says that it ends.
//
// A hook speaks for the session among its ancestors, never for an inherited row id, and
// one without a session above it is no evidence of one: it makes no row and is no error.
// Unknown events are signs of life. At most 1 MiB of payload is read. A busy lock is
// tried once more.
//
// The caller's wiring must exit 0 whatever comes back. The error is [ErrInvalid] for what
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
	h := &hook{s: s, runtime: runtime, ev: ev, opts: opts, result: HookResult{Event: ev.Name}}
	wait := orDefault(opts.Wait, hookWait) / 2
	for try := 0; ; try++ {
		err := h.handle(ctx, wait)
		if try == 0 && errors.Is(err, ErrBusy) && ctx.Err() == nil {
			continue
		}
		return h.result, err
	}
}

// hook is one payload on its way into the record.
type hook struct {
	s       *Store
	runtime string
	ev      runtimes.HookEvent
	opts    HookOptions
	result  HookResult
}

func (h *hook) handle(ctx context.Context, wait time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	row, err := h.session(ctx)
	if errors.Is(err, ErrNotFound) || err == nil && row.LedgerID == "" {
		return nil // no session above it
	}
	if err != nil {
		return err
	}
	h.result.LedgerID = row.LedgerID
	if !row.IsOpen() {
		return nil // its process lives on after its end; that does not open it again
	}
	if err := h.beat(ctx, row); err != nil {
		return err
	}
	if h.ev.Subagent() {
		return nil
	}
	return h.react(ctx, row)
}

// session finds or makes the row of the session that the hook speaks for, and binds the
// conversation that it names.
func (h *hook) session(ctx context.Context) (Entry, error) {
	p, err := h.s.chainPass(h.opts.PID)
	if err != nil {
		return Entry{}, fmt.Errorf("ledger: hook: %w: %w", ErrUnknown, err)
	}
	at := p.nearest(h.runtime, h.opts.PID)
	if at < 0 {
		return Entry{}, ErrNotFound
	}
	plan, err := h.s.plan(ctx, p, nil)
	if err != nil {
		return Entry{}, err
	}
	o := EnrolOptions{By: EnrolledByHook, Panes: h.opts.Panes}
	if h.ev.SessionID != "" && !h.ev.Subagent() && h.ev.Kind != runtimes.HookEnd {
		o.word = &hookWord{id: h.ev.SessionID, path: h.ev.TranscriptPath, maybeSubagent: h.ev.MaybeSubagent}
	}
	en := h.s.enroller(p, plan, o)
	pid := p.candidates()[at].process.PID
	m := &en.plan[en.at[pid]]
	if m.kind == matchHeld {
		return h.underOperation(ctx, m)
	}
	if h.ev.Kind == runtimes.HookEnd && m.kind != matchKnown {
		return Entry{}, ErrNotFound // a session that is over before anything knew of it
	}
	row, adopted, err := en.adopt(ctx, en.at[pid])
	if err != nil && !isUnsynced(err) {
		return Entry{}, err
	}
	h.result.Enrolled = adopted
	if adopted || o.word == nil || !row.IsOpen() {
		return row, nil
	}
	c := h.s.conversationOf(ctx, p, m, o.word)
	if c.source != fromHook || c.id == row.SessionID && (c.path == "" || c.path == row.TranscriptPath) {
		return row, nil
	}
	return h.s.bindConversation(ctx, row, c)
}

// nearest is the index among the candidates of the session process of a runtime that is
// nearest above pid, or -1.
func (p *pass) nearest(runtime string, pid int) int {
	cs := p.candidates()
	for i := len(cs) - 1; i >= 0; i-- {
		if cs[i].runtime == runtime && cs[i].process.PID != pid {
			cs[i].young = false // what has run a hook has started its program
			return i
		}
	}
	return -1
}

// underOperation is the word of an agent whose row is frozen or in an operation: of a
// restore it is the acknowledgement, of a frozen session that runs again the adoption.
func (h *hook) underOperation(ctx context.Context, m *match) (Entry, error) {
	row, err := h.s.Get(ctx, m.row)
	if err != nil {
		return Entry{}, err
	}
	if h.ev.SessionID == "" || h.ev.Subagent() || row.Phase != PhaseFrozen || h.ev.Kind == runtimes.HookEnd {
		return row, nil
	}
	ev := Adopt(m.process, h.ev.SessionID)
	if row.Lease != nil {
		if row.Lease.Op != OpRestore || m.carries.attempt != row.Lease.Attempt {
			return row, nil
		}
		ev = Acknowledge(m.carries.attempt, m.process, h.ev.SessionID)
	}
	ev.TranscriptPath, ev.Source = h.ev.TranscriptPath, fromHook
	after, _, err := h.s.Apply(ctx, row.LedgerID, ev)
	switch {
	case err == nil, isUnsynced(err):
		return after, nil
	case errors.Is(err, ErrBusy):
		return row, err
	}
	// A passing id, or another conversation: the restore's coordinator reads what is
	// recorded of it.
	h.s.logger.Info("hook refused", "session", row.LedgerID, "event", h.ev.Name, "error", err)
	return row, nil
}

// beat notes the sign of life, and whether the agent waits for a person.
func (h *hook) beat(ctx context.Context, row Entry) error {
	now := h.s.now()
	_, err := h.s.Update(ctx, row.LedgerID, func(e *Entry) error {
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
	}, Relaxed())
	return err
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
func (h *hook) react(ctx context.Context, row Entry) error {
	key := row.Process().Key()
	var ev Event
	switch {
	case h.ev.Kind == runtimes.HookEnd && !goesOn(h.ev.Reason):
		ev = Finish(key, endReason(h.ev.Reason))
	case h.ev.Limited():
		ev = ObserveLimit(key, time.Time{})
	case h.ev.Kind == runtimes.HookStop && row.Limit != nil:
		ev = ClearLimit() // a turn was finished: it holds no more
	case h.ev.Kind == runtimes.HookStart:
		h.result.Notice = h.notice(ctx, row)
		return nil
	default:
		return nil
	}
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
func (h *hook) notice(ctx context.Context, row Entry) string {
	if row.ResumedFrom == "" {
		return ""
	}
	old, err := h.s.Get(ctx, row.ResumedFrom)
	if err != nil || old.RescueRef == "" {
		return ""
	}
	return fmt.Sprintf("uncommitted work of %s was rescued: git cherry-pick -n %s", old.LedgerID, old.RescueRef)
}
