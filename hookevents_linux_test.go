package ledger

import (
	"fmt"
	"testing"
)

// Each way to end of each runtime that names ends. A process that goes on under another
// conversation keeps its row open.
func TestEachEndOfEachRuntime(t *testing.T) {
	claudeLike := map[string]string{
		"clear": "open", "resume": "open", "prompt_input_exit": "exited at the prompt", "logout": "logged out", "other": "",
		"bypass_permissions_disabled": "bypass_permissions_disabled",
	}
	named := `{"hook_event_name":"SessionEnd","session_id":"c-1","reason":%q}`
	for runtime, ends := range map[string]struct {
		payload string
		reasons map[string]string
	}{
		"claude":       {named, claudeLike},
		"qwen":         {named, claudeLike},
		"gemini":       {named, map[string]string{"exit": "exit", "clear": "open", "logout": "logged out", "prompt_input_exit": "exited at the prompt", "other": ""}},
		"copilot":      {`{"sessionId":"c-1","timestamp":1,"cwd":"/w","reason":%q}`, map[string]string{"complete": "complete", "error": "error", "user_exit": "user_exit"}},
		"cursor-agent": {`{"conversation_id":"c-1","hook_event_name":"sessionEnd","reason":%q}`, map[string]string{"completed": "completed", "aborted": "aborted", "error": "error", "user_close": "user_close"}},
	} {
		for reason, want := range ends.reasons {
			t.Run(runtime+" "+reason, func(t *testing.T) {
				s, _, pids := hookTree(t, runtime, nil)
				deliver(t, s, runtime, pids["hook"], `{"hook_event_name":"SessionStart","session_id":"c-1"}`)
				r := deliver(t, s, runtime, pids["hook"], fmt.Sprintf(ends.payload, reason))
				e := single(t, s)
				if goes := want == "open"; e.IsOpen() != goes || r.Finished == goes || !goes && e.FinishReason != want {
					t.Errorf("%+v: phase %s, %q", r, e.Phase, e.FinishReason)
				}
				if want == "open" {
					deliver(t, s, runtime, pids["hook"], `{"hook_event_name":"SessionStart","source":"clear","session_id":"c-2"}`)
					if e := single(t, s); e.SessionID != "c-2" || len(e.SessionIDs) != 1 || e.SessionIDs[0].ID != "c-1" {
						t.Errorf("it does not go on: %+v", e)
					}
				}
			})
		}
	}
}

// What the table of TestEachHookEventOfEachRuntime does not have: each event twice, and
// what the row then says: open, for whom it waits, whether a limit holds.
func TestMoreHookEventsOfEachRuntime(t *testing.T) {
	named := func(rest string) string { return `{"session_id":"c-1","cwd":"/w","hook_event_name":` + rest + `}` }
	copilot := func(rest string) string { return `{"sessionId":"c-1","timestamp":1,"cwd":"/w",` + rest + `}` }
	claudeLike := [][2]string{
		{named(`"SessionStart","source":"startup"`), "open"},
		{named(`"Notification","notification_type":"agent_completed"`), "open"}, // nobody is waited for
		{named(`"Notification","notification_type":"permission_prompt"`), "permission"},
		{named(`"Notification","notification_type":"agent_completed"`), "permission"},
		{named(`"PreCompact","trigger":"manual","custom_instructions":"x"`), "open"},
		{named(`"PostCompact","trigger":"manual"`), "open"},
		{named(`"Notification","notification_type":"elicitation_dialog"`), "input"},
		{named(`"Notification","notification_type":"elicitation_complete"`), "input"},
		{named(`"UserPromptSubmit","prompt":"p"`), "open"},
		{named(`"SubagentStart","agent_id":"a","agent_type":"x"`), "open"},
		{named(`"SubagentStop","agent_id":"a"`), "open"},
		{named(`"StopFailure","error":"rate_limit"`), "limit"},
		{named(`"PreCompact","trigger":"manual"`), "limit"},
		{named(`"Stop"`), "open"},
		{named(`"SessionStart","source":"fork"`), "open"},
	}
	for runtime, events := range map[string][][2]string{
		"claude": claudeLike,
		"qwen":   claudeLike,
		"gemini": {
			{named(`"SessionStart","source":"startup"`), "open"},
			{named(`"Notification","notification_type":"ToolPermission","message":"m"`), "permission"},
			{named(`"BeforeAgent","prompt":"p"`), "open"},
			{named(`"SessionStart","source":"resume"`), "open"},
			{named(`"SessionStart","source":"clear"`), "open"},
		},
		"copilot": {
			{copilot(`"source":"new"`), "open"},
			{copilot(`"notification_type":"permission_prompt","message":"m"`), "permission"},
			{copilot(`"prompt":"x"`), "open"},
			{copilot(`"notification_type":"idle_prompt"`), "input"},
			{copilot(`"agentName":"n"`), "input"}, // a subagent's, a heartbeat at most
			{copilot(`"agentName":"n","stopReason":"end_turn"`), "input"},
			{copilot(`"trigger":"manual"`), "open"},
			{copilot(`"source":"resume"`), "open"},
		},
	} {
		t.Run(runtime, func(t *testing.T) {
			s, _, pids := hookTree(t, runtime, nil)
			for i, ev := range events {
				for range 2 {
					r := deliver(t, s, runtime, pids["hook"], ev[0])
					e := single(t, s)
					got := "open"
					switch {
					case !e.IsOpen():
						got = "over"
					case e.Limit != nil:
						got = "limit"
					case e.Waiting != nil:
						got = e.Waiting.Kind
					}
					if got != ev[1] || r.LedgerID != e.LedgerID || e.PID != pids["agent"] || e.SessionID != "c-1" || len(e.SessionIDs) > 0 {
						t.Errorf("event %d, %s: %s, want %s: %+v, %+v", i, ev[0], got, ev[1], r, e)
					}
					if e.LastHeartbeatAt.IsZero() {
						t.Errorf("event %d, %s: no sign of life", i, ev[0])
					}
					forgetHeartbeat(t, s, e.LedgerID)
				}
			}
		})
	}
}
