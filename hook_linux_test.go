package ledger

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"golang.org/x/sys/unix"

	"github.com/sessionledger/ledger/internal/runtimes"
)

// hookTree grows an agent with a child that stands for its hook's process.
func hookTree(t *testing.T, runtime string, env []string) (s *Store, home string, pids map[string]int) {
	t.Helper()
	s, home = treeStore(t)
	env = append(treeEnv(home), env...)
	return s, home, growTree(t, shell("shell", env, agent("agent", runtime, env, shell("hook", env))))
}

// deliver hands a payload to HandleHook as the hook process pid would.
func deliver(t *testing.T, s *Store, runtime string, pid int, payload string) HookResult {
	t.Helper()
	r, err := HandleHook(t.Context(), s, runtime, strings.NewReader(payload), HookOptions{PID: pid, Wait: patience})
	if err != nil {
		t.Fatalf("%s: %v", payload, err)
	}
	return r
}

func single(t *testing.T, s *Store) Entry {
	t.Helper()
	rows := rowsByID(t, s)
	if len(rows) != 1 {
		t.Fatalf("%d rows: %v", len(rows), rows)
	}
	for _, e := range rows {
		return e
	}
	panic("unreachable")
}

// Case 73. Each event of each runtime, twice: what the row says after it.
func TestEachHookEventOfEachRuntime(t *testing.T) {
	waits := func(kind string) func(Entry) string {
		return func(e Entry) string {
			if e.Waiting == nil || e.Waiting.Kind != kind {
				return fmt.Sprintf("waits for %q: %+v", kind, e.Waiting)
			}
			return ""
		}
	}
	open := func(e Entry) string {
		if !e.IsOpen() || e.Limit != nil || e.Waiting != nil {
			return "open, without limit and waiting"
		}
		return ""
	}
	limited := func(e Entry) string {
		if e.Limit == nil || e.Limit.ReachedAt.IsZero() {
			return "limited"
		}
		return ""
	}
	ended := func(reason string) func(Entry) string {
		return func(e Entry) string {
			if e.Phase != PhaseFinished || e.FinishReason != reason {
				return fmt.Sprintf("finished, %q", reason)
			}
			return ""
		}
	}
	type event struct {
		payload string
		want    func(Entry) string
	}
	start := func(id string) string { return `{"hook_event_name":"SessionStart","session_id":"` + id + `"` }
	claude := func(rest string) string { return `{"session_id":"c-1","cwd":"/w","hook_event_name":` + rest + `}` }
	for runtime, events := range map[string][]event{
		"claude": {
			{start("c-1") + `,"source":"startup","model":"opus"}`, open},
			{claude(`"UserPromptSubmit","prompt":"go"`), open},
			{claude(`"Notification","notification_type":"permission_prompt","message":"m"`), waits("permission")},
			{claude(`"Notification","notification_type":"auth_success"`), waits("permission")},
			{claude(`"Stop","stop_hook_active":false`), open},
			{claude(`"Notification","notification_type":"idle_prompt"`), waits("input")},
			{claude(`"UserPromptSubmit"`), open},
			{claude(`"Notification","notification_type":"elicitation_dialog"`), waits("input")},
			{claude(`"Notification","notification_type":"agent_needs_input"`), waits("input")},
			{claude(`"SubagentStart","agent_id":"a","agent_type":"x"`), waits("input")}, // a heartbeat at most
			{claude(`"SubagentStop","agent_id":"a"`), waits("input")},
			{claude(`"Notification","notification_type":"never-heard-of"`), waits("input")},
			{claude(`"PreCompact","trigger":"auto"`), open},
			{claude(`"PostCompact","trigger":"auto"`), open},
			{`{"hook_event_name":"SessionStart","session_id":"c-1","source":"compact"}`, open},
			{claude(`"CwdChanged","old_cwd":"/w","new_cwd":"/elsewhere"`), open},
			{claude(`"StopFailure","error":"overloaded"`), open},
			{claude(`"StopFailure","error":"rate_limit"`), limited},
			{claude(`"UserPromptSubmit"`), limited},
			{claude(`"Stop"`), open},
			{claude(`"NeverHeardOf","x":{"y":[1,2]}`), open},
			{`{"hook_event_name":7,"session_id":["c-1"]}`, open},
			{`{}`, open},
			{claude(`"SessionEnd","reason":"clear"`), open},
			{claude(`"SessionEnd","reason":"resume"`), open},
			{claude(`"SessionEnd","reason":"prompt_input_exit"`), ended("exited at the prompt")},
			{claude(`"Stop"`), ended("exited at the prompt")}, // it does not open again
		},
		"codex": {
			{start("x-1") + `,"source":"startup","transcript_path":null}`, open},
			{`{"hook_event_name":"UserPromptSubmit","session_id":"x-1"}`, open},
			{`{"hook_event_name":"SubagentStart","session_id":"x-1"}`, open},
			{`{"hook_event_name":"Stop","session_id":"x-1"}`, open},
			{`{"type":"agent-turn-complete","thread-id":"subagent-thread","turn-id":"1","cwd":"/w"}`, open},
		},
		"gemini": {
			{start("g-1") + `,"source":"startup"}`, open},
			{`{"hook_event_name":"BeforeAgent","session_id":"g-1","prompt":"p"}`, open},
			{`{"hook_event_name":"Notification","session_id":"g-1","notification_type":"ToolPermission"}`, waits("permission")},
			{`{"hook_event_name":"AfterAgent","session_id":"g-1","prompt_response":"r"}`, open},
			{`{"hook_event_name":"PreCompress","session_id":"g-1"}`, open},
			{`{"hook_event_name":"SessionEnd","session_id":"g-1","reason":"exit"}`, ended("exit")},
		},
		"copilot": {
			{`{"sessionId":"p-1","timestamp":1,"cwd":"/w","source":"new","initialPrompt":"x"}`, open},
			{`{"sessionId":"p-1","timestamp":1,"prompt":"x"}`, open},
			{`{"sessionId":"p-1","timestamp":1,"error":{"message":"m","name":"n"}}`, open},
			{`{"sessionId":"p-1","timestamp":1,"stopReason":"end_turn"}`, open},
			{`{"sessionId":"p-1","timestamp":1,"toolName":"bash"}`, open},
			{`{"sessionId":"p-1","timestamp":1,"reason":"user_exit"}`, ended("user_exit")},
		},
		"cursor-agent": {
			{`{"conversation_id":"k-1","hook_event_name":"sessionStart","workspace_roots":["/w"]}`, open},
			{`{"conversation_id":"k-1","hook_event_name":"beforeSubmitPrompt","prompt":"p"}`, open},
			{`{"conversation_id":"k-1","hook_event_name":"stop","status":"completed"}`, open},
			{`{"conversation_id":"k-1","hook_event_name":"sessionEnd","reason":"user_close"}`, ended("user_close")},
		},
		"home-made": { // of which the registry has never heard
			{`{"event":"start","session_id":"h-1"}`, open},
			{`{"event":"notification","session_id":"h-1","notification_type":"idle_prompt"}`, waits("input")},
			{`{"event":"prompt","session_id":"h-1"}`, open},
			{`{"event":"failure","session_id":"h-1","error":"rate_limit"}`, limited},
			{`{"event":"stop","session_id":"h-1"}`, open},
			{`{"event":"end","session_id":"h-1","reason":"logout"}`, ended("logged out")},
		},
	} {
		t.Run(runtime, func(t *testing.T) {
			s, _, pids := hookTree(t, runtime, nil)
			for i, ev := range events {
				for n := range 2 {
					r := deliver(t, s, runtime, pids["hook"], ev.payload)
					e := single(t, s)
					if why := ev.want(e); why != "" {
						t.Errorf("event %d, time %d, %s: want %s: %+v", i, n, ev.payload, why, e)
					}
					if r.LedgerID != e.LedgerID || r.Enrolled != (i == 0 && n == 0) || e.PID != pids["agent"] || e.SessionID[1:] != "-1" {
						t.Errorf("event %d: %+v, row %+v", i, r, e)
					}
					if n == 1 && len(e.SessionIDs) > 0 {
						t.Errorf("event %d: history %v", i, e.SessionIDs)
					}
				}
			}
			if e := single(t, s); e.LastHeartbeatAt.IsZero() || runtime == "claude" && e.Model != "opus" {
				t.Errorf("%+v", e)
			}
		})
	}
}

// 07-runtimes.md, session end.
func TestHookEndReasons(t *testing.T) {
	for reason, want := range map[string]string{
		`,"reason":"prompt_input_exit"`: "exited at the prompt",
		`,"reason":"logout"`:            "logged out",
		`,"reason":"other"`:             "",
		``:                              "",
		`,"reason":null`:                "",
		`,"reason":"bypass_permissions_disabled"`: "bypass_permissions_disabled",
		`,"reason":"Never Heard-Of"`:              "Never Heard-Of",
	} {
		s, _, pids := hookTree(t, "claude", nil)
		end := `{"hook_event_name":"SessionEnd","session_id":"c-1"` + reason + `}`
		if r := deliver(t, s, "claude", pids["hook"], end); r.LedgerID != "" || len(rowsByID(t, s)) > 0 {
			t.Errorf("an end made a row: %+v", r)
		}
		deliver(t, s, "claude", pids["hook"], `{"hook_event_name":"Stop","session_id":"c-1"}`)
		if r := deliver(t, s, "claude", pids["hook"], end); !r.Finished {
			t.Errorf("%s: %+v", reason, r)
		}
		if e := single(t, s); e.Phase != PhaseFinished || e.FinishReason != want {
			t.Errorf("%s: %q, want %q", reason, e.FinishReason, want)
		}
	}
}

// Nothing that a hook sends fills a row, and no id that is none is bound; the sign of life
// counts all the same.
func TestHookTextsAreBoundedAndIDsAreIDs(t *testing.T) {
	start := func(id string) string {
		data, err := json.Marshal(map[string]string{"hook_event_name": "SessionStart", "session_id": id, "transcript_path": strings.Repeat("/p", 50_000)})
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	for name, id := range map[string]string{
		"long": strings.Repeat("x", 700_000), "above": "../../etc/passwd", "absolute": "/etc/passwd", "control": `a\u0007`, "option": "--last",
	} {
		s, _, pids := hookTree(t, "claude", nil)
		deliver(t, s, "claude", pids["hook"], start(id))
		e := single(t, s)
		if e.SessionID != "" || e.TranscriptPath != "" || len(e.SessionIDs) > 0 || e.LastHeartbeatAt.IsZero() {
			t.Errorf("%s: %.300q", name, fmt.Sprint(e))
		}
		if _, _, err := s.Apply(t.Context(), e.LedgerID, Claim(id, "test")); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: claimed: %.300v", name, err)
		}
		if _, err := s.Create(t.Context(), Entry{Runtime: "claude", SessionID: id}, BeginCreate(self(t))); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: created: %.300v", name, err)
		}
		if _, err := (&Host{Store: s}).Launch(t.Context(), LaunchOptions{Runtime: "claude", Argv: []string{"true"}, SessionID: id}); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: launched: %.300v", name, err)
		}
		deliver(t, s, "claude", pids["hook"], start("c-1"))
		if got := single(t, s); got.SessionID != "c-1" {
			t.Errorf("%s: not bound afterwards: %q", name, got.SessionID)
		}
	}
	s, _, pids := hookTree(t, "claude", nil)
	long := strings.Repeat("é", 150_000)
	deliver(t, s, "claude", pids["hook"], `{"hook_event_name":"SessionStart","session_id":"c-1","model":"`+long+`"}`)
	deliver(t, s, "claude", pids["hook"], `{"hook_event_name":"Notification","session_id":"c-1","notification_type":"elicitation_`+long+`"}`)
	deliver(t, s, "claude", pids["hook"], `{"hook_event_name":"SessionEnd","session_id":"c-1","reason":"`+long+`"}`)
	e := single(t, s)
	if want := long[:runtimes.MaxHookText]; e.Model != want || e.FinishReason != want {
		t.Errorf("model of %d bytes, reason of %d", len(e.Model), len(e.FinishReason))
	}
	if info, err := os.Stat(s.path(dirSessions, e.LedgerID+rowExtension)); err != nil || info.Size() > 8<<10 {
		t.Errorf("row: %v, %v", info, err)
	}
}

// Case 73: what is no payload.
func TestHookPayloadsThatAreNone(t *testing.T) {
	s, _, pids := hookTree(t, "claude", nil)
	deliver(t, s, "claude", pids["hook"], `{"hook_event_name":"SessionStart","session_id":"c-1"}`)
	before := snapshotFiles(t, s.path(dirSessions))
	big := `{"hook_event_name":"Stop","session_id":"c-1","x":"` + strings.Repeat("x", runtimes.MaxHook) + `"}`
	for name, payload := range map[string]string{
		"nothing": "", "text": "hello", "array": "[]", "torn": `{"hook_event_name":"Sto`, "NULs": "\x00\x00", "1 MiB and more": big, "two": "{}{}", "string": `"x"`,
	} {
		_, err := HandleHook(t.Context(), s, "claude", strings.NewReader(payload), HookOptions{PID: pids["hook"], Wait: patience})
		if !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if after := snapshotFiles(t, s.path(dirSessions)); !mapsEqual(before, after) {
		t.Error("the row was touched")
	}
	if r := deliver(t, s, "claude", os.Getpid(), `{"hook_event_name":"Stop","session_id":"c-1"}`); r.LedgerID != "" {
		t.Errorf("a hook under no session: %+v", r)
	}
	for _, name := range []string{"sh", "node", "../x", "bash"} {
		if r := deliver(t, s, name, pids["hook"], `{"event":"start","session_id":"c-2"}`); r.LedgerID != "" {
			t.Errorf("%s: %+v", name, r)
		}
	}
	if r := deliver(t, s, AnyRuntime, pids["hook"], `{"event":"stop"}`); r.LedgerID != single(t, s).LedgerID {
		t.Errorf("%+v", r)
	}
}

// A payload that names neither an event nor a conversation makes no row. One of a session
// that has a row is a sign of life.
func TestHookThatNamesNothingMakesNoRow(t *testing.T) {
	s, _, pids := hookTree(t, "claude", nil)
	for _, payload := range []string{`{}`, `{"cwd":"/w"}`, `{"session_id":"../../etc/passwd"}`} {
		if r := deliver(t, s, "claude", pids["hook"], payload); r.LedgerID != "" || r.Enrolled {
			t.Errorf("%s: %+v", payload, r)
		}
	}
	if rows := rowsByID(t, s); len(rows) > 0 {
		t.Fatalf("rows: %v", rows)
	}
	deliver(t, s, "claude", pids["hook"], `{"session_id":"c-1"}`) // an id is enough
	before := single(t, s)
	if _, err := s.Update(t.Context(), before.LedgerID, func(e *Entry) error { e.LastHeartbeatAt = time.Time{}; return nil }); err != nil {
		t.Fatal(err)
	}
	if r := deliver(t, s, "claude", pids["hook"], `{}`); r.LedgerID != before.LedgerID {
		t.Errorf("of a known session: %+v", r)
	}
	if e := single(t, s); e.SessionID != "c-1" || e.LastHeartbeatAt.IsZero() {
		t.Errorf("of a known session: %+v", e)
	}
}

// The hook that gives a launched session its process notes itself there too.
func TestFirstHookOfABirthRecord(t *testing.T) {
	s, home := treeStore(t)
	birth, err := s.Create(t.Context(), Entry{Runtime: "claude"}, BeginCreate(self(t)))
	if err != nil {
		t.Fatal(err)
	}
	env := treeEnv(home, envID+"="+birth.LedgerID, envAttempt+"="+birth.Lease.Attempt)
	pids := growTree(t, agent("agent", "claude", env, shell("hook", env)))
	r := deliver(t, s, "claude", pids["hook"], `{"hook_event_name":"Notification","notification_type":"permission_prompt","session_id":"c-1","model":"opus"}`)
	e := single(t, s)
	if r.LedgerID != birth.LedgerID || !r.Enrolled || e.PID != pids["agent"] || e.SessionID != "c-1" {
		t.Errorf("%+v, row %+v", r, e)
	}
	if e.LastHeartbeatAt.IsZero() || e.Waiting == nil || e.Waiting.Kind != "permission" || e.Model != "opus" {
		t.Errorf("no sign of the hook: %+v", e)
	}
}

// Cases 33 and 74: a nested agent's hook speaks for its own process, whatever it inherits.
func TestNestedAgentsHookLeavesItsParentAlone(t *testing.T) {
	s, home := treeStore(t)
	env := append(treeEnv(home), envID+"=claude-20260101T000000Z-000001", "CLAUDE_CODE_SESSION_ID=outer-id")
	hook := func(name string) node { return shell(name, env) }
	pids := growTree(t, shell("shell", env, agent("outer", "claude", env, hook("outer hook"),
		shell("tool", env, agent("inner", "claude", env, hook("inner hook"), agent("other", "codex", env, hook("other hook")))))))
	word := func(runtime, hook, id string) Entry {
		r := deliver(t, s, runtime, pids[hook], `{"hook_event_name":"SessionStart","session_id":"`+id+`"}`)
		e, err := s.Get(t.Context(), r.LedgerID)
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	outer := word("claude", "outer hook", "outer-id")
	inner := word("claude", "inner hook", "inner-id")
	other := word("codex", "other hook", "other-id")
	for e, want := range map[*Entry]string{&outer: "outer", &inner: "inner", &other: "other"} {
		if e.PID != pids[want] || e.SessionID != want+"-id" {
			t.Errorf("%s: %+v", want, e)
		}
	}
	if outer.LedgerID != "claude-20260101T000000Z-000001" || inner.ParentLedgerID != outer.LedgerID || other.ParentLedgerID != inner.LedgerID {
		t.Errorf("parents: %q, %q of %q", inner.ParentLedgerID, other.ParentLedgerID, outer.LedgerID)
	}
	before := outer
	deliver(t, s, "claude", pids["inner hook"], `{"hook_event_name":"StopFailure","session_id":"inner-id","error":"rate_limit"}`)
	deliver(t, s, "claude", pids["inner hook"], `{"hook_event_name":"SessionEnd","session_id":"inner-id","reason":"logout"}`)
	deliver(t, s, "codex", pids["other hook"], `{"hook_event_name":"Stop","session_id":"outer-id"}`) // it never may take it
	rows := rowsByID(t, s)
	if got := rows[outer.LedgerID]; got.Revision != before.Revision {
		t.Errorf("the parent's row was touched: %+v", got)
	}
	if rows[inner.LedgerID].IsOpen() || !rows[other.LedgerID].IsOpen() || len(rows) != 3 {
		t.Errorf("%+v", rows)
	}
	// Under an operation of the parent too.
	apply(t, s, outer.LedgerID, IntendKill())
	apply(t, s, outer.LedgerID, BeginKill(self(t)))
	before = rowsByID(t, s)[outer.LedgerID]
	fresh := growTree(t, shell("shell", env, agent("late", "claude", env, hook("late hook"))))
	deliver(t, s, "claude", fresh["late hook"], `{"hook_event_name":"SessionEnd","session_id":"late","reason":"logout"}`)
	deliver(t, s, "claude", fresh["late hook"], `{"hook_event_name":"Stop","session_id":"late"}`)
	if got := rowsByID(t, s)[outer.LedgerID]; got.Revision != before.Revision {
		t.Errorf("touched under its operation: %+v", got)
	}
}

// Case 74: one process, many ids; the right one is current and none is forgotten.
func TestConversationIDsOfOneProcess(t *testing.T) {
	b := newBed(t)
	command := build(t, ctlPackage) + " -dir " + b.s.root + " hook claude"
	if _, err := InstallHooks("claude", InstallOptions{Command: command}); err != nil {
		t.Fatal(err)
	}
	first := b.become(direct{Argv: []string{"claude"}})
	id := first.Session()
	first.Send("one")
	first.Expect("did one")
	first.Send("/exit")
	first.Wait()
	was := b.onlyRow()

	t.Setenv("LEDGERTEST_AGENT_QUIRKS", "stale,twice")
	a := b.become(direct{Argv: []string{"claude", "--resume", id}})
	if got := a.Session(); got != id {
		t.Fatalf("resumed %q as %q", id, got)
	}
	row := func() Entry {
		rows := rowsByID(t, b.s)
		delete(rows, was.LedgerID)
		for _, e := range rows {
			if len(rows) == 1 {
				return e
			}
		}
		t.Fatalf("%d rows beside the first", len(rows))
		panic("unreachable")
	}
	current := func(want string) {
		t.Helper()
		await(t, "the id "+want, func() bool { return row().SessionID == want })
		if e := row(); e.PID != a.PID() || !e.IsOpen() {
			t.Errorf("%+v", e)
		}
	}
	current(id) // not the passing one
	said := func(command string) string {
		t.Helper()
		a.Send(command)
		line := a.Expect(": " + strings.Fields(command)[0])
		return line[strings.LastIndexByte(line, ' ')+1:]
	}
	say := func(text string) { a.Send(text); a.Expect("did " + text) }
	say("two")
	current(id)
	said("/compact")
	current(id)
	said("/subagent")
	current(id)
	cleared := said("/clear")
	say("three")
	current(cleared)
	forked := said("/fork")
	say("four")
	current(forked)
	said("/stale")
	say("five")
	current(forked)
	a.Send("/resume " + id)
	a.Expect("/resume")
	say("six")
	current(id)
	var history []string
	for _, f := range row().SessionIDs {
		history = append(history, f.ID)
	}
	for _, want := range []string{cleared, forked} {
		if !slices.Contains(history, want) {
			t.Errorf("history %v lacks %s", history, want)
		}
	}
	a.Send("/end logout")
	a.Wait()
	await(t, "the end", func() bool { return row().FinishReason == "logged out" })
}

// A takes up B's conversation, B leaves it, and A speaks again: nothing is unclear then. Nor
// is it once A has gone back to its own.
func TestAConversationThatItsHolderLeftIsClear(t *testing.T) {
	s, home := treeStore(t)
	env := treeEnv(home)
	pids := growTree(t, shell("shell", env,
		agent("a", "claude", env, shell("hook a", env)), agent("b", "claude", env, shell("hook b", env))))
	say := func(who, event, id string) {
		deliver(t, s, "claude", pids["hook "+who], fmt.Sprintf(`{"hook_event_name":%q,"source":"x","session_id":%q,"cwd":"/w"}`, event, id))
	}
	row := func(who string) Entry {
		for _, e := range rowsByID(t, s) {
			if e.PID == pids[who] {
				return e
			}
		}
		t.Fatalf("no row of %s", who)
		panic("unreachable")
	}
	// The file of what a claude goes back to is there.
	path := filepath.Join(home, ".claude", "projects", "-w", idA+".jsonl")
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	putFile(t, path, fmt.Sprintf(`{"type":"user","sessionId":%q,"cwd":"/w","message":{"content":"x"}}`+"\n", idA))
	say("a", "SessionStart", idA)
	say("b", "SessionStart", idB)
	for range 2 {
		say("a", "SessionStart", idB)
		if e := row("a"); e.SessionID != idA || !e.refused() {
			t.Fatalf("not refused: %q, %+v", e.SessionID, e.Attention)
		}
		say("a", "SessionStart", idA)
		if e := row("a"); e.SessionID != idA || e.Attention != nil {
			t.Fatalf("back in its own: %q, %+v", e.SessionID, e.Attention)
		}
	}
	say("a", "SessionStart", idB)
	say("b", "SessionStart", idC)
	if err := os.Remove(path); err != nil { // else it would win over one without a file
		t.Fatal(err)
	}
	say("a", "UserPromptSubmit", idB)
	if e := row("a"); e.SessionID != idB || e.Attention != nil || row("b").SessionID != idC {
		t.Errorf("%q, %+v, history %+v; b in %q", e.SessionID, e.Attention, e.SessionIDs, row("b").SessionID)
	}
}

// restoring puts an enrolled row through a freeze into a restore, whose attempt it returns.
func restoring(t *testing.T, s *Store, e Entry, cmd *exec.Cmd) string {
	t.Helper()
	me := self(t)
	frozen := apply(t, s, e.LedgerID, BeginFreeze(me))
	attempt := frozen.Lease.Attempt
	putFile(t, filepath.Join(s.captureDir(e.LedgerID, attempt), "capture.ansi"), "output")
	endProcess(cmd)
	apply(t, s, e.LedgerID, CommitFreeze(frozen.Lease.Nonce, ProcessID{}))
	return apply(t, s, e.LedgerID, BeginRestore(me)).Lease.Attempt
}

// A restored agent's hook is the acknowledgement, before and after its launch is on record.
func TestHookAcknowledgesARestore(t *testing.T) {
	for _, launched := range []bool{false, true} {
		t.Run(fmt.Sprint("launched recorded ", launched), func(t *testing.T) {
			s, home := treeStore(t)
			e, cmd := enrolled(t, s, Entry{Runtime: "claude", Cwd: home, SessionID: "c-1"})
			attempt := restoring(t, s, e, cmd)
			env := append(treeEnv(home), envID+"="+e.LedgerID, envAttempt+"="+attempt)
			pids := growTree(t, shell("shell", treeEnv(home), agent("agent", "claude", env, shell("hook", env, agent("nested", "claude", env, shell("nested hook", env))))))
			p, err := s.procs.identify(pids["agent"])
			if err != nil {
				t.Fatal(err)
			}
			if launched {
				row, err := s.Get(t.Context(), e.LedgerID)
				if err != nil {
					t.Fatal(err)
				}
				apply(t, s, e.LedgerID, Launched(row.Lease.Nonce, p, Location{}))
			}
			now := func() Entry { return rowsByID(t, s)[e.LedgerID] }
			start := func(id string) string {
				return `{"hook_event_name":"SessionStart","source":"resume","session_id":"` + id + `"}`
			}
			deliver(t, s, "claude", pids["hook"], start("passing")) // no transcript: it counts for nothing
			deliver(t, s, "claude", pids["nested hook"], start("c-1"))
			deliver(t, s, "claude", pids["hook"], `{"hook_event_name":"SubagentStart","session_id":"c-1","agent_id":"a"}`)
			if got := now(); got.Lease == nil || got.Restore.Error != nil {
				t.Fatalf("acknowledged by another: %+v", got)
			}
			deliver(t, s, "claude", pids["hook"], start("c-1"))
			got := now()
			if got.Phase != PhaseLive || got.Lease != nil || !got.Process().Same(p) || got.Restore.Ack != AckHook || got.SessionID != "c-1" {
				t.Fatalf("%+v", got)
			}
			deliver(t, s, "claude", pids["hook"], start("c-1"))
			if again := now(); again.Epoch != got.Epoch || again.Phase != PhaseLive {
				t.Errorf("a second start: %+v", again)
			}
		})
	}
}

func TestHookOfAFrozenSessionThatRunsAgainAdoptsIt(t *testing.T) {
	s, home := treeStore(t)
	e, cmd := enrolled(t, s, Entry{Runtime: "claude", Cwd: home, SessionID: "c-1"})
	frozen := apply(t, s, e.LedgerID, BeginFreeze(self(t)))
	putFile(t, filepath.Join(s.captureDir(e.LedgerID, frozen.Lease.Attempt), "capture.ansi"), "output")
	endProcess(cmd)
	apply(t, s, e.LedgerID, CommitFreeze(frozen.Lease.Nonce, ProcessID{}))
	env := append(treeEnv(home), envID+"="+e.LedgerID)
	pids := growTree(t, shell("shell", treeEnv(home), agent("agent", "claude", env, shell("hook", env))))
	deliver(t, s, "claude", pids["hook"], `{"hook_event_name":"SessionStart","session_id":"another"}`)
	if got := single(t, s); got.Phase != PhaseFrozen || got.SessionID != "c-1" {
		t.Fatalf("%+v", got)
	}
	deliver(t, s, "claude", pids["hook"], `{"hook_event_name":"UserPromptSubmit","session_id":"c-1"}`)
	if got := single(t, s); got.Phase != PhaseLive || got.PID != pids["agent"] || len(got.Frozen.Kept) != 1 {
		t.Errorf("%+v", got)
	}
}

// A hook beside a stopped lock holder gives up in time, and one beside a slow one succeeds.
func TestHookAndABusyLock(t *testing.T) {
	s, _, pids := hookTree(t, "claude", nil)
	deliver(t, s, "claude", pids["hook"], `{"hook_event_name":"SessionStart","session_id":"c-1"}`)
	e := single(t, s)
	hold := func() func() {
		unlock, err := s.lockRow(context.Background(), e.LedgerID)
		if err != nil {
			t.Fatal(err)
		}
		return unlock
	}
	unlock := hold()
	began := time.Now()
	_, err := HandleHook(t.Context(), s, "claude", strings.NewReader(`{"hook_event_name":"Stop","session_id":"c-1"}`), HookOptions{PID: pids["hook"]})
	took := time.Since(began)
	unlock()
	// Two tries of half the wait each; the slack is for a loaded machine.
	if !errors.Is(err, ErrBusy) || took < hookWait*9/10 || took > 10*hookWait {
		t.Errorf("%v after %v", err, took)
	}
	unlock = hold()
	time.AfterFunc(400*time.Millisecond, unlock) // in the first half of the wait
	if _, err := HandleHook(t.Context(), s, "claude", strings.NewReader(`{"hook_event_name":"Stop"}`), HookOptions{PID: pids["hook"], Wait: patience}); err != nil {
		t.Error(err)
	}
}

// The wiring, as an agent runs it: silent, exit status 0, in time.
func TestHookCommandIsSilentAndInTime(t *testing.T) {
	ctl := build(t, ctlPackage)
	s, home := treeStore(t)
	env := append(treeEnv(home), "AGENT_SESSIONS_DIR="+s.root)
	// The binary's own parent is the agent: a node that runs it is a process of this test.
	run := func(name string, args []string, stdin *os.File, prepare func(*exec.Cmd)) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		cmd := exec.CommandContext(ctx, ctl, args...)
		cmd.Env, cmd.Stdin = env, stdin
		if prepare != nil {
			prepare(cmd)
		}
		if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
			t.Errorf("%s: %v, %q", name, err, out)
		}
	}
	file := func(text string) *os.File {
		path := filepath.Join(t.TempDir(), "payload")
		putFile(t, path, text)
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		return f
	}
	run("a payload", []string{"hook", "claude"}, file(`{"hook_event_name":"Stop"}`), nil)
	run("no payload", []string{"hook", "claude"}, file(""), nil)
	run("not JSON", []string{"hook", "claude"}, file("hello"), nil)
	run("too large", []string{"hook", "claude"}, file(strings.Repeat(" ", runtimes.MaxHook+1)), nil)
	run("no runtime", []string{"hook"}, file("{}"), nil)
	run("too many arguments", []string{"hook", "a", "b", "c"}, file("{}"), nil)
	run("payload as an argument", []string{"hook", "codex", `{"type":"agent-turn-complete","thread-id":"x"}`}, nil, nil)
	run("a root that cannot be", []string{"-dir", "/dev/null/x", "hook", "claude"}, file("{}"), nil)
	run("closed standard input", []string{"hook", "claude"}, nil, func(cmd *exec.Cmd) {
		cmd.Path, cmd.Args = "/bin/sh", []string{"sh", "-c", `exec "$0" hook claude <&-`, ctl}
	})
	silent, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	defer writer.Close()
	run("standard input that never ends", []string{"hook", "claude"}, silent, nil)
	if rows := rowsByID(t, s); len(rows) > 0 {
		t.Errorf("rows %v", rows)
	}
}

// holdLock takes a lock, says so, and holds it until it is killed.
var holdLock = inChild("hold-lock", func(arg [2]string) error {
	s, err := Open(arg[0], nil)
	if err != nil {
		return err
	}
	if _, err := s.lockRow(context.Background(), arg[1]); err != nil {
		return err
	}
	fmt.Println("held")
	syscall.Kill(os.Getpid(), syscall.SIGSTOP)
	select {}
})

func TestHookCommandBesideAStoppedLockHolder(t *testing.T) {
	b := newBed(t)
	command := build(t, ctlPackage) + " -dir " + b.s.root + " hook claude"
	if _, err := InstallHooks("claude", InstallOptions{Command: command}); err != nil {
		t.Fatal(err)
	}
	log := filepath.Join(b.home, "hooks.log")
	t.Setenv("LEDGERTEST_AGENT_LOG", log)
	a := b.become(direct{Argv: []string{"claude"}})
	a.Session()
	c := startChild(t, holdLock, [2]string{b.s.root, b.onlyRow().LedgerID})
	await(t, "the holder to stop", func() bool {
		state, _ := os.ReadFile("/proc/" + itoa(c.Process.Pid) + "/stat")
		return strings.Contains(string(state), ") T ")
	})
	a.Send("work")
	a.Expect("did work")
	c.Process.Kill()
	c.Cmd.Wait()
	for line := range strings.Lines(readFile(t, log)) {
		if !strings.Contains(line, `"exit":0`) || !strings.Contains(line, `"output":""`) || strings.Contains(line, `"timedOut":true`) {
			t.Error(line)
		}
	}
	a.Close()
}

// A file system of which every request waits for ever, as that of a server that went away.
func mountHung(t *testing.T) string {
	t.Helper()
	need(t, os.Getuid() == 0, "root")
	path := t.TempDir()
	daemon, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	need(t, err == nil, "/dev/fuse")
	t.Cleanup(func() { daemon.Close() }) // which ends all waits
	options := "fd=" + itoa(int(daemon.Fd())) + ",rootmode=40000,user_id=0,group_id=0"
	err = unix.Mount("ledger-test", path, "fuse", unix.MS_NODEV|unix.MS_NOSUID, options)
	need(t, err == nil, "leave to mount")
	t.Cleanup(func() {
		if err := unix.Unmount(path, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return path
}

func TestHookCommandOnAHungFileSystem(t *testing.T) {
	ctl, hung := build(t, ctlPackage), mountHung(t)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, ctl, "-dir", filepath.Join(hung, "ledger"), "hook", "claude")
	cmd.Env, cmd.Stdin = treeEnv(t.TempDir()), strings.NewReader(`{"hook_event_name":"Stop"}`)
	if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("%v, %q", err, out)
	}
}

// The usual event takes one look at its row and none at the transcript.
func TestUsualHookIsOneLookAtItsRow(t *testing.T) {
	needStrace(t)
	b := newBed(t)
	trace := filepath.Join(b.home, "trace")
	command := "strace -o " + trace + " -f -e trace=%file " + build(t, ctlPackage) + " -dir " + b.s.root + " hook claude"
	if _, err := InstallHooks("claude", InstallOptions{Command: command, Timeout: time.Minute}); err != nil {
		t.Fatal(err)
	}
	a := b.become(direct{Argv: []string{"claude"}})
	a.Session()
	for _, word := range []string{"work", "again"} { // the first turn makes the transcript known
		a.Send(word)
		a.Expect("did " + word)
	}
	row := b.onlyRow()
	if row.TranscriptPath == "" || row.LastHeartbeatAt.IsZero() {
		t.Fatalf("%+v", row)
	}
	var text string // of the last hook
	await(t, "the hook's end", func() bool {
		text = readFile(t, trace)
		return strings.HasSuffix(text, "+++ exited with 0 +++\n")
	})
	if n := strings.Count(text, `"`+row.LedgerID+`.json", O_RDONLY`); n != 1 {
		t.Errorf("the row was opened %d times", n)
	}
	if strings.Contains(text, row.TranscriptPath) {
		t.Error("a look at the transcript")
	}
	if t.Failed() {
		t.Log(text)
	}
	a.Close()
}

// A conversation that was left is a sign that the session goes on, also where that is the
// first that is heard of it.
func TestFirstHookIsAClear(t *testing.T) {
	for reason, rows := range map[string]int{"clear": 1, "resume": 1, "logout": 0, "other": 0} {
		s, _, pids := hookTree(t, "claude", nil)
		deliver(t, s, "claude", pids["hook"], `{"hook_event_name":"SessionEnd","session_id":"c-1","reason":"`+reason+`"}`)
		got := rowsByID(t, s)
		if len(got) != rows {
			t.Errorf("%s: %d rows", reason, len(got))
		}
		for _, e := range got {
			if e.SessionID != "" {
				t.Errorf("%s: bound to what was left: %+v", reason, e)
			}
		}
	}
}

// Below a process that may be a fork of its agent, a hook tells of the agent's own
// conversation alone: another may be that of a session in its own right.
func TestHookBelowAFork(t *testing.T) {
	s, home := treeStore(t)
	env := treeEnv(home)
	twin := node{Name: "child", Args: []string{"claude", "x"}, Env: env, Children: []node{shell("hook", env)}}
	pids := growTree(t, node{Name: "parent", Args: []string{"claude", "x"}, Env: env, Children: []node{twin}})
	say := func(id string) HookResult {
		t.Helper()
		return deliver(t, s, "claude", pids["hook"], `{"hook_event_name":"Notification","notification_type":"permission_prompt","session_id":"`+id+`"}`)
	}
	if r := say("parents"); r.LedgerID != "" {
		t.Errorf("before the agent has a row: %+v", r)
	}
	parent := mustEnrol(t, s, pids["parent"], nil)
	apply(t, s, parent.LedgerID, Claim("parents", fromHook))
	if r := say("another"); r.LedgerID != "" {
		t.Errorf("of another conversation: %+v", r)
	}
	if r := say("parents"); r.LedgerID != parent.LedgerID || r.Enrolled {
		t.Errorf("of the agent's own: %+v", r)
	}
	if e := single(t, s); e.Waiting == nil || e.SessionID != "parents" {
		t.Errorf("%+v", e)
	}
}

// The hook that makes a row says there what it waits for.
func TestFirstHookThatSaysThatItWaits(t *testing.T) {
	s, _, pids := hookTree(t, "claude", nil)
	for i := range 2 {
		deliver(t, s, "claude", pids["hook"], `{"hook_event_name":"Notification","notification_type":"permission_prompt","session_id":"c-1"}`)
		if e := single(t, s); e.Waiting == nil || e.Waiting.Kind != "permission" || e.LastHeartbeatAt.IsZero() {
			t.Errorf("time %d: waits %+v, heartbeat at %s", i, e.Waiting, e.LastHeartbeatAt)
		}
	}
}
