package runtimes

import (
	"bytes"
	"errors"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/sessionledger/ledger/internal/transcript/loose"
)

var (
	// ErrHookTooLarge says that a payload has more than MaxHook bytes.
	ErrHookTooLarge = errors.New("hook payload too large")
	// ErrHookNotJSON says that a payload is not one JSON object.
	ErrHookNotJSON = errors.New("hook payload is not a JSON object")
)

const (
	// MaxHook is the most bytes a hook payload may have.
	MaxHook = 1 << 20
	// MaxHookText is the most bytes that are kept of a text in it. Every token that is
	// known is far shorter; the end of a longer text is cut off at a rune's boundary.
	MaxHookText = 1 << 10
	// maxPath is the system's limit: a longer path leads nowhere.
	maxPath = 4096
)

// A HookKind is what an event means, whatever its runtime calls it.
type HookKind int

// The kinds. An event that is not known is HookOther: it is still a sign of life.
const (
	HookOther HookKind = iota
	HookStart
	HookEnd
	HookPrompt
	HookStop
	HookFailure
	HookNotification
	HookSubagentStart
	HookSubagentStop
	HookCompact
	HookCwd
)

// String returns a lower-case word for the kind.
func (k HookKind) String() string {
	names := [...]string{
		"other", "start", "end", "prompt", "stop", "failure", "notification",
		"subagent-start", "subagent-stop", "compact", "cwd",
	}
	if k < 0 || int(k) >= len(names) {
		return "other"
	}
	return names[k]
}

// A HookEvent is one hook payload. Texts are as they were sent, unknown tokens
// too, up to MaxHookText, and not fit for a terminal; an absent member, one of a
// wrong type, and what can be no id or no path, is the zero value.
type HookEvent struct {
	Kind HookKind
	Name string // the event's name; inferred where the runtime sends none

	SessionID      string
	TranscriptPath string // may not exist yet, or lie in another folder
	Cwd            string
	NewCwd         string // of HookCwd, the directory that was changed to

	// AgentID is set inside a subagent alone; SessionID is then its parent's.
	AgentID string
	// AgentType is set on a main thread too.
	AgentType string
	// MaybeSubagent tells that SessionID may be a subagent thread's, which only
	// its transcript tells.
	MaybeSubagent bool

	Source           string // why it started: startup, resume, clear, compact, fork, ...
	Reason           string // why it ended or stopped
	Model            string
	Title            string // the session's own title
	Prompt           string
	NotificationType string
	Message          string // of a notification
	Error            string // rate_limit, ..., or a message
	ErrorDetails     string
	LastMessage      string // the agent's last text
}

// Subagent reports whether the event is that of a subagent and so speaks for no
// session of its own.
func (e HookEvent) Subagent() bool {
	return e.AgentID != "" || e.Kind == HookSubagentStart || e.Kind == HookSubagentStop
}

// Limited reports whether the event says that a usage limit stops the agent.
func (e HookEvent) Limited() bool {
	return e.Kind == HookFailure && e.Error == "rate_limit"
}

// Waiting reports whether the event says that the agent waits for a person.
func (e HookEvent) Waiting() bool {
	if e.Kind != HookNotification {
		return false
	}
	switch t := e.NotificationType; t {
	case "permission_prompt", "idle_prompt", "agent_needs_input", "ToolPermission":
		return true
	default:
		return strings.HasPrefix(t, "elicitation_") &&
			t != "elicitation_complete" && t != "elicitation_response"
	}
}

// hookKind is what a runtime's name of an event means. sessionStart, SessionStart,
// session_start and session-start are one name.
func hookKind(name string) HookKind {
	folded := strings.Map(func(r rune) rune {
		if strings.ContainsRune("_-. ", r) {
			return -1
		}
		return unicode.ToLower(r)
	}, name)
	switch folded {
	case "sessionstart", "start": // the short names are of the generic form
		return HookStart
	case "sessionend", "end":
		return HookEnd
	case "userpromptsubmit", "userpromptsubmitted" /* copilot */, "beforesubmitprompt" /* cursor-agent */, "beforeagent" /* gemini */, "prompt":
		return HookPrompt
	case "stop", "agentstop" /* copilot */, "afteragent" /* gemini */, "agentturncomplete" /* codex notify */ :
		return HookStop
	case "stopfailure", "erroroccurred" /* copilot */, "failure":
		return HookFailure
	case "notification":
		return HookNotification
	case "subagentstart":
		return HookSubagentStart
	case "subagentstop":
		return HookSubagentStop
	case "precompact", "postcompact", "precompress" /* gemini */, "compact":
		return HookCompact
	case "cwdchanged", "cwd":
		return HookCwd
	}
	return HookOther
}

// ParseHook reads a hook's payload. One reader serves all runtimes, since their
// members do not contradict each other; a runtime that is not known uses the
// generic form, which is any of theirs. The error is ErrHookTooLarge or
// ErrHookNotJSON.
func ParseHook(runtime string, payload []byte) (HookEvent, error) {
	if len(payload) > MaxHook {
		return HookEvent{}, ErrHookTooLarge
	}
	o, whole := loose.Parse(bytes.TrimPrefix(payload, []byte("\ufeff")))
	if !whole {
		return HookEvent{}, ErrHookNotJSON
	}
	text := func(names ...string) string { return cutText(o.First(names...)) }
	path := func(names ...string) string { return pathOrNone(o.First(names...)) }
	e := HookEvent{
		Name:           text("hook_event_name", "hookEventName", "event", "type"),
		SessionID:      idOrNone(o.First("session_id", "sessionId", "conversation_id", "conversationId", "thread-id", "thread_id")),
		TranscriptPath: path("transcript_path", "transcriptPath"),
		Cwd:            path("cwd", "old_cwd"),
		NewCwd:         path("new_cwd"),

		AgentID:   text("agent_id", "agentId", "subagent_id"),
		AgentType: text("agent_type", "agentType", "subagent_type", "agentName"),

		Source:           text("source"),
		Reason:           text("reason", "stop_reason", "stopReason", "status"),
		Model:            text("model"),
		Title:            text("session_title", "sessionTitle"),
		Prompt:           text("prompt", "initialPrompt", "initial_prompt"),
		NotificationType: text("notification_type", "notificationType"),
		Message:          text("message"),
		Error:            text("error", "error_message"),
		ErrorDetails:     text("error_details", "errorDetails"),
		LastMessage:      text("last_assistant_message", "last-assistant-message", "prompt_response"),
	}
	if failure := o.Object("error"); e.Error == "" {
		e.Error = cutText(failure.First("message", "name"))
	}
	if e.Cwd == "" {
		// cursor-agent names the roots of its workspace; one root is the
		// directory, several are not.
		if roots := o.List("workspace_roots"); len(roots) == 1 {
			e.Cwd = pathOrNone(loose.String(roots[0]))
		}
	}
	if e.Name == "" {
		e.Name = inferName(o)
	}
	e.Kind = hookKind(e.Name)
	// Codex's notify program is called for the threads of subagents as well.
	e.MaybeSubagent = runtime == "codex" && e.Name == "agent-turn-complete"
	return e, nil
}

func cutText(s string) string {
	if len(s) <= MaxHookText {
		return s
	}
	n := MaxHookText
	for !utf8.RuneStart(s[n]) {
		n--
	}
	return strings.Clone(s[:n]) // not to keep the payload
}

func pathOrNone(p string) string {
	if len(p) >= maxPath {
		return ""
	}
	return p
}

func idOrNone(id string) string {
	if !ValidID(id) {
		return ""
	}
	return id
}

// inferName names an event by the members that only it has: copilot's own form
// has no name. The order matters: a start carries a prompt too.
func inferName(o loose.Object) string {
	for _, by := range []struct{ member, and, name string }{
		{member: "toolName"},
		{member: "source", name: "sessionStart"},
		{member: "agentName", and: "stopReason", name: "subagentStop"},
		{member: "agentName", name: "subagentStart"},
		{member: "stopReason", name: "agentStop"},
		{member: "reason", name: "sessionEnd"},
		{member: "error", name: "errorOccurred"},
		{member: "notification_type", name: "notification"},
		{member: "trigger", name: "preCompact"},
		{member: "prompt", name: "userPromptSubmitted"},
	} {
		if o.Has(by.member) && (by.and == "" || o.Has(by.and)) {
			return by.name
		}
	}
	return ""
}
