package runtimes

import (
	"bytes"
	"errors"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/google/go-cmp/cmp"
)

func TestParseHook(t *testing.T) {
	const common = `"session_id":"s","transcript_path":"/t.jsonl","cwd":"/w"`
	base := HookEvent{SessionID: "s", TranscriptPath: "/t.jsonl", Cwd: "/w"}
	claude := func(kind HookKind, name string, f func(*HookEvent)) HookEvent {
		e := base
		e.Kind, e.Name = kind, name
		if f != nil {
			f(&e)
		}
		return e
	}
	event := func(name, more string) string {
		return `{` + common + `,"hook_event_name":"` + name + `"` + more + `}`
	}
	for _, c := range []struct {
		runtime, payload string
		want             HookEvent
	}{
		// Claude Code; Codex and Qwen Code send the same members.
		{"claude", event("SessionStart", `,"source":"compact","model":"opus","session_title":"T"`),
			claude(HookStart, "SessionStart", func(e *HookEvent) { e.Source, e.Model, e.Title = "compact", "opus", "T" })},
		{"claude", event("SessionEnd", `,"reason":"prompt_input_exit"`),
			claude(HookEnd, "SessionEnd", func(e *HookEvent) { e.Reason = "prompt_input_exit" })},
		{"claude", event("SessionEnd", ``), claude(HookEnd, "SessionEnd", nil)},
		{"claude", event("Stop", `,"stop_hook_active":false,"last_assistant_message":"Done."`),
			claude(HookStop, "Stop", func(e *HookEvent) { e.LastMessage = "Done." })},
		{"claude", event("StopFailure", `,"error":"rate_limit","error_details":"d"`),
			claude(HookFailure, "StopFailure", func(e *HookEvent) { e.Error, e.ErrorDetails = "rate_limit", "d" })},
		{"claude", event("SubagentStart", `,"agent_id":"a","agent_type":"Explore"`),
			claude(HookSubagentStart, "SubagentStart", func(e *HookEvent) { e.AgentID, e.AgentType = "a", "Explore" })},
		{"claude", event("SubagentStop", `,"agent_id":"a","agent_transcript_path":"/a.jsonl"`),
			claude(HookSubagentStop, "SubagentStop", func(e *HookEvent) { e.AgentID = "a" })},
		{"claude", event("Notification", `,"message":"m","title":"t","notification_type":"permission_prompt"`),
			claude(HookNotification, "Notification", func(e *HookEvent) { e.Message, e.NotificationType = "m", "permission_prompt" })},
		{"claude", event("UserPromptSubmit", `,"prompt":"do it","source":"typed"`),
			claude(HookPrompt, "UserPromptSubmit", func(e *HookEvent) { e.Prompt, e.Source = "do it", "typed" })},
		{"claude", event("PreCompact", `,"trigger":"auto"`), claude(HookCompact, "PreCompact", nil)},
		{"claude", event("CwdChanged", `,"old_cwd":"/w","new_cwd":"/w/sub"`),
			claude(HookCwd, "CwdChanged", func(e *HookEvent) { e.NewCwd = "/w/sub" })},
		{"codex", `{"session_id":"s","transcript_path":null,"cwd":"/w","hook_event_name":"SessionStart","source":"startup"}`,
			HookEvent{Kind: HookStart, Name: "SessionStart", SessionID: "s", Cwd: "/w", Source: "startup"}},
		{"codex", `{"type":"agent-turn-complete","thread-id":"s","turn-id":"1","cwd":"/w","input-messages":["x"],"last-assistant-message":"ok"}`,
			HookEvent{Kind: HookStop, Name: "agent-turn-complete", SessionID: "s", Cwd: "/w", LastMessage: "ok", MaybeSubagent: true}},
		{"qwen", event("SessionStart", `,"source":"resume"`),
			claude(HookStart, "SessionStart", func(e *HookEvent) { e.Source = "resume" })},
		// Gemini CLI.
		{"gemini", event("BeforeAgent", `,"prompt":"p"`), claude(HookPrompt, "BeforeAgent", func(e *HookEvent) { e.Prompt = "p" })},
		{"gemini", event("AfterAgent", `,"prompt":"p","prompt_response":"r"`),
			claude(HookStop, "AfterAgent", func(e *HookEvent) { e.Prompt, e.LastMessage = "p", "r" })},
		{"gemini", event("SessionEnd", `,"reason":"exit"`), claude(HookEnd, "SessionEnd", func(e *HookEvent) { e.Reason = "exit" })},
		// Copilot CLI: its own form has no name, the other one has.
		{"copilot", `{"sessionId":"s","timestamp":1,"cwd":"/w","source":"new","initialPrompt":"p"}`,
			HookEvent{Kind: HookStart, Name: "sessionStart", SessionID: "s", Cwd: "/w", Source: "new", Prompt: "p"}},
		{"copilot", `{"sessionId":"s","timestamp":1,"cwd":"/w","reason":"user_exit"}`,
			HookEvent{Kind: HookEnd, Name: "sessionEnd", SessionID: "s", Cwd: "/w", Reason: "user_exit"}},
		{"copilot", `{"sessionId":"s","cwd":"/w","prompt":"p"}`,
			HookEvent{Kind: HookPrompt, Name: "userPromptSubmitted", SessionID: "s", Cwd: "/w", Prompt: "p"}},
		{"copilot", `{"sessionId":"s","cwd":"/w","transcriptPath":"/t","stopReason":"end_turn"}`,
			HookEvent{Kind: HookStop, Name: "agentStop", SessionID: "s", Cwd: "/w", TranscriptPath: "/t", Reason: "end_turn"}},
		{"copilot", `{"sessionId":"s","cwd":"/w","agentName":"n","stopReason":"end_turn"}`,
			HookEvent{Kind: HookSubagentStop, Name: "subagentStop", SessionID: "s", Cwd: "/w", AgentType: "n", Reason: "end_turn"}},
		{"copilot", `{"sessionId":"s","cwd":"/w","error":{"message":"m","name":"n"}}`,
			HookEvent{Kind: HookFailure, Name: "errorOccurred", SessionID: "s", Cwd: "/w", Error: "m"}},
		{"copilot", `{"sessionId":"s","cwd":"/w","toolName":"bash","toolArgs":"{}"}`,
			HookEvent{SessionID: "s", Cwd: "/w"}},
		{"copilot", event("SessionStart", `,"source":"resume"`), claude(HookStart, "SessionStart", func(e *HookEvent) { e.Source = "resume" })},
		// cursor-agent.
		{"cursor-agent", `{"conversation_id":"s","generation_id":"g","hook_event_name":"beforeSubmitPrompt","workspace_roots":["/w"],"prompt":"p","model":"m"}`,
			HookEvent{Kind: HookPrompt, Name: "beforeSubmitPrompt", SessionID: "s", Cwd: "/w", Prompt: "p", Model: "m"}},
		{"cursor-agent", `{"conversation_id":"c","session_id":"s","hook_event_name":"sessionEnd","reason":"user_close","workspace_roots":["/w","/x"]}`,
			HookEvent{Kind: HookEnd, Name: "sessionEnd", SessionID: "s", Reason: "user_close"}},
		{"cursor-agent", `{"conversation_id":"s","hook_event_name":"stop","status":"aborted","transcript_path":null}`,
			HookEvent{Kind: HookStop, Name: "stop", SessionID: "s", Reason: "aborted"}},
		// Any other.
		{"mycli", `{"event":"session_start","session_id":"s","cwd":"/w"}`,
			HookEvent{Kind: HookStart, Name: "session_start", SessionID: "s", Cwd: "/w"}},
		{"mycli", `{"event":"end","sessionId":"s","reason":"r"}`,
			HookEvent{Kind: HookEnd, Name: "end", SessionID: "s", Reason: "r"}},
		// What is not known is kept as it is.
		{"claude", event("WorktreeCreate", `,"name":"x"`), claude(HookOther, "WorktreeCreate", nil)},
		{"claude", event("SessionEnd", `,"reason":"brand_new"`), claude(HookEnd, "SessionEnd", func(e *HookEvent) { e.Reason = "brand_new" })},
		// Wrong types are absent, one by one.
		{"claude", `{"session_id":7,"transcript_path":[],"cwd":"/w","hook_event_name":"Stop","reason":{},"model":{"id":"m"}}`,
			HookEvent{Kind: HookStop, Name: "Stop", Cwd: "/w"}},
		{"claude", `{"hook_event_name":null}`, HookEvent{}},
		{"claude", `{}`, HookEvent{}},
		{"claude", "\ufeff" + event("Stop", "") + "\r\n", claude(HookStop, "Stop", nil)},
	} {
		got, err := ParseHook(c.runtime, []byte(c.payload))
		if diff := cmp.Diff(c.want, got); diff != "" || err != nil {
			t.Errorf("%s %s: %v\n%s", c.runtime, c.payload, err, diff)
		}
	}
}

func TestHookPayloadsThatAreRefused(t *testing.T) {
	for _, p := range []string{"", " ", "null", "[]", `"x"`, "{", `{"a":1`, `{"a":1} x`, "\x00", `{"a":1}{"b":2}`, "not json"} {
		if _, err := ParseHook("claude", []byte(p)); !errors.Is(err, ErrHookNotJSON) {
			t.Errorf("%q: %v", p, err)
		}
	}
	fill := func(n int) []byte {
		return []byte(`{"session_id":"s","x":"` + strings.Repeat("y", n-len(`{"session_id":"s","x":""}`)) + `"}`)
	}
	if e, err := ParseHook("claude", fill(MaxHook)); err != nil || e.SessionID != "s" {
		t.Errorf("1 MiB: %v", err)
	}
	if _, err := ParseHook("claude", fill(MaxHook+1)); !errors.Is(err, ErrHookTooLarge) {
		t.Errorf("1 MiB + 1: %v", err)
	}
}

// What a stranger sends is kept up to a bound, and what can be no id or no path is none.
func TestHookPayloadsAreBounded(t *testing.T) {
	members := []string{"hook_event_name", "session_id", "transcript_path", "cwd", "new_cwd", "agent_id", "agent_type", "source",
		"reason", "model", "session_title", "prompt", "notification_type", "message", "error", "error_details", "last_assistant_message"}
	for _, unit := range []string{"x", "é", "€", "😀", "\u0000", "/"} {
		for _, n := range []int{MaxHookText - 2, MaxHookText, MaxHookText + 1, MaxHookText + 3, 9_000} {
			long := strings.Repeat(unit, n/len(unit)+1)[:n/len(unit)*len(unit)]
			payload := map[string]any{}
			for _, m := range members {
				payload[m] = long
			}
			data, err := json.Marshal(payload)
			if err != nil {
				t.Fatal(err)
			}
			e, err := ParseHook("claude", data)
			if err != nil {
				t.Fatal(err)
			}
			if e.SessionID != "" {
				t.Errorf("an id of %d bytes", len(e.SessionID))
			}
			v := reflect.ValueOf(e)
			for i := range v.NumField() {
				name, f := v.Type().Field(i).Name, v.Field(i)
				path := strings.HasSuffix(name, "Cwd") || strings.HasSuffix(name, "Path")
				switch {
				case f.Kind() != reflect.String || name == "SessionID":
				case path && f.String() != long && f.String() != "", path && f.Len() >= 4096:
					t.Errorf("%s: another path, of %d bytes", name, f.Len())
				case !path && (!strings.HasPrefix(long, f.String()) || f.Len() > MaxHookText || f.Len()+len(unit) <= min(n, MaxHookText) || !utf8.ValidString(f.String())):
					t.Errorf("%s: %d bytes of %d, of %q", name, f.Len(), n, unit)
				}
			}
		}
	}
}

func TestWhatHookEventsSay(t *testing.T) {
	for _, c := range []struct {
		e                          HookEvent
		subagent, limited, waiting bool
	}{
		{e: HookEvent{Kind: HookStop}},
		{e: HookEvent{Kind: HookStop, AgentType: "main"}},
		{e: HookEvent{Kind: HookStop, AgentID: "a"}, subagent: true},
		{e: HookEvent{Kind: HookSubagentStop}, subagent: true},
		{e: HookEvent{Kind: HookFailure, Error: "rate_limit"}, limited: true},
		{e: HookEvent{Kind: HookFailure, Error: "overloaded"}},
		{e: HookEvent{Kind: HookStop, Error: "rate_limit"}},
		{e: HookEvent{Kind: HookNotification, NotificationType: "permission_prompt"}, waiting: true},
		{e: HookEvent{Kind: HookNotification, NotificationType: "idle_prompt"}, waiting: true},
		{e: HookEvent{Kind: HookNotification, NotificationType: "agent_needs_input"}, waiting: true},
		{e: HookEvent{Kind: HookNotification, NotificationType: "elicitation_dialog"}, waiting: true},
		{e: HookEvent{Kind: HookNotification, NotificationType: "elicitation_complete"}},
		{e: HookEvent{Kind: HookNotification, NotificationType: "auth_success"}},
		{e: HookEvent{Kind: HookNotification, NotificationType: "agent_completed"}},
		{e: HookEvent{Kind: HookNotification}},
		{e: HookEvent{Kind: HookPrompt, NotificationType: "idle_prompt"}},
	} {
		if c.e.Subagent() != c.subagent || c.e.Limited() != c.limited || c.e.Waiting() != c.waiting {
			t.Errorf("%+v: subagent %v, limited %v, waiting %v", c.e, c.e.Subagent(), c.e.Limited(), c.e.Waiting())
		}
	}
}

// Every event that a runtime is asked to report has a kind.
func TestHooksOfTheRegistryAreKnown(t *testing.T) {
	for _, s := range Builtin() {
		for _, name := range s.Hooks {
			e, err := ParseHook(s.Name, []byte(`{"hook_event_name":"`+name+`"}`))
			if err != nil || e.Kind == HookOther || e.Name != name {
				t.Errorf("%s %s: %v, %v", s.Name, name, e.Kind, err)
			}
		}
	}
}

// A payload is either refused or an event; a member that nobody knows, put
// before the others, changes nothing, and neither does reading twice.
func FuzzParseHook(f *testing.F) {
	for _, p := range []string{
		`{"session_id":"s","hook_event_name":"SessionStart","source":"clear","cwd":"/w"}`,
		`{"type":"agent-turn-complete","thread-id":"s"}`, `{"sessionId":"s","error":{"message":"m"}}`,
		`{"conversation_id":"s","workspace_roots":["/w"]}`, `{"a":[{"b":"\ud800"}],"a":1}`, "\ufeff{}", `{"reason":`, "[]",
	} {
		f.Add("claude", []byte(p))
		f.Add("codex", []byte(p))
	}
	f.Fuzz(func(t *testing.T, runtime string, payload []byte) {
		e, err := ParseHook(runtime, payload)
		if err != nil {
			if !errors.Is(err, ErrHookNotJSON) && !errors.Is(err, ErrHookTooLarge) || e != (HookEvent{}) {
				t.Fatalf("%v, %+v", err, e)
			}
			return
		}
		_, _, _, _ = e.Subagent(), e.Limited(), e.Waiting(), e.Kind.String()
		before, after, _ := bytes.Cut(payload, []byte("{"))
		more := string(before) + `{"zz unknown":[{"session_id":"x"}]`
		if rest := bytes.TrimSpace(after); len(rest) > 0 && rest[0] != '}' {
			more += ","
		}
		more += string(after)
		again, err := ParseHook(runtime, []byte(more))
		if len(more) > MaxHook {
			return
		}
		if diff := cmp.Diff(e, again); diff != "" || err != nil {
			t.Fatalf("an unknown member matters: %v %s", err, diff)
		}
	})
}
