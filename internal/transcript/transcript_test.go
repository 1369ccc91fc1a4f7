package transcript

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

const (
	idA = "0d3f6a52-7c1e-4b8a-9f00-1a2b3c4d5e6f"
	idB = "7b1e9c44-0a2d-4f6e-8b3c-5d6e7f809a1b"
)

// write puts a conversation file under a temp folder; name may have folders.
func write(t testing.TB, name string, lines ...string) string {
	t.Helper()
	return writeText(t, name, strings.Join(lines, "\n")+"\n")
}

func writeText(t testing.TB, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func read(t testing.TB, path string, f Format) Info {
	t.Helper()
	info, err := Read(context.Background(), path, f)
	if err != nil {
		t.Fatal(err)
	}
	return info
}

// said is the part of an Info that a file's contents decide.
type said struct {
	ID, Cwd, Branch, Title, Activity string
	Subagent                         Answer
}

func (i Info) said() said {
	return said{i.ID, i.Cwd, i.Branch, i.Title, i.Activity, i.Subagent}
}

type fileCase struct {
	name   string // of the test
	file   string
	format Format
	lines  []string
	want   said
}

func (c fileCase) run(t *testing.T) {
	t.Run(c.name, func(t *testing.T) {
		t.Parallel()
		lines := strings.Join(c.lines, "\n") + "\n"
		if got := read(t, writeText(t, c.file, lines), c.format).said(); got != c.want {
			t.Errorf("got  %+v\nwant %+v", got, c.want)
		}
		// The same with CRLF, with NULs between the lines, and between torn lines:
		// a beginning that was overwritten and an end that is still being written.
		for how, text := range map[string]string{
			"CRLF": strings.ReplaceAll(lines, "\n", "\r\n"),
			"NULs": strings.ReplaceAll(lines, "\n", "\n\x00\x00\x00\x00"),
			"torn": torn(c) + lines + torn(c),
		} {
			if how != "CRLF" && strings.HasSuffix(c.file, ".json") {
				continue // not made of lines
			}
			if how == "torn" && c.format == Codex {
				text = lines + torn(c) // its first line is read as far as it goes
			}
			if got := read(t, writeText(t, c.file, text), c.format).said(); got != c.want {
				t.Errorf("%s: got  %+v\nwant %+v", how, got, c.want)
			}
		}
	})
}

func torn(c fileCase) string {
	if c.format == Aider || strings.HasSuffix(c.file, ".txt") {
		return ""
	}
	return `ge":{"content":[{"type":"text","text":"half"}]}}` + "\n" + `{"type":"user","cwd":"/torn","message":{"con` + "\n"
}

const user = `{"type":"user","sessionId":"` + idA + `","cwd":"/w/app","gitBranch":"main","isSidechain":false,"message":{"role":"user","content":`

func TestClaude(t *testing.T) {
	const assistant = `{"type":"assistant","sessionId":"` + idA + `","cwd":"/w/app/sub","gitBranch":"fix","isSidechain":false,"message":{"role":"assistant","content":[`
	file := idA + ".jsonl"
	base := said{ID: idA, Cwd: "/w/app", Branch: "fix", Title: "Fix the login", Activity: "Bash: go test ./...", Subagent: No}
	with := func(f func(*said)) said { s := base; f(&s); return s }
	run := assistant + `{"type":"tool_use","name":"Bash","input":{"description":"Run tests","command":"go test ./..."}}]}}`
	ask := user + `"Fix the login"}}`
	for _, c := range []fileCase{
		{name: "first message and last tool use", lines: []string{
			`{"type":"permission-mode","permissionMode":"default"}`, ask, run}, want: base},
		{name: "the first cwd and the last branch count", lines: []string{
			ask, run, `{"type":"user","cwd":"/elsewhere","gitBranch":"later","message":{"content":"more"}}`},
			want: with(func(s *said) { s.Branch = "later" })},
		{name: "text after a tool use is the activity", lines: []string{
			ask, run, assistant + `{"type":"thinking","thinking":"hm"},{"type":"text","text":"All\n tests\tpass."}]}}`},
			want: with(func(s *said) { s.Activity = "All tests pass." })},
		{name: "a record of thought alone is passed over", lines: []string{
			ask, run, assistant + `{"type":"thinking","thinking":"hm"}]}}`}, want: base},
		{name: "a tool without arguments", lines: []string{
			ask, assistant + `{"type":"tool_use","name":"ExitPlanMode","input":{}}]}}`},
			want: with(func(s *said) { s.Activity = "ExitPlanMode" })},
		{name: "an unknown tool's first text", lines: []string{
			ask, assistant + `{"type":"tool_use","name":"mcp__db__run","input":{"n":3,"table":"users","limit":"9"}}]}}`},
			want: with(func(s *said) { s.Activity = "mcp__db__run: users" })},
		{name: "a pattern says more than its path", lines: []string{
			ask, assistant + `{"type":"tool_use","name":"Grep","input":{"path":"/w","pattern":"func main"}}]}}`},
			want: with(func(s *said) { s.Activity = "Grep: func main" })},
		{name: "not a person's message", lines: []string{
			`{"type":"user","sessionId":"` + idA + `","cwd":"/w/app","isSidechain":false,"isMeta":true,"message":{"content":"Caveat"}}`,
			user + `"<command-name>/clear</command-name>"}}`,
			user + `"<command-message>init</command-message>"}}`,
			user + `"<local-command-stdout>ok</local-command-stdout>"}}`,
			user + `"<session-start-hook>context</session-start-hook>"}}`,
			user + `[{"type":"text","text":"[Request interrupted by user]"}]}}`,
			user + `[{"type":"tool_result","content":"output"},{"type":"text","text":"beside a result"}]}}`,
			`{"type":"user","isCompactSummary":true,"message":{"content":"This session is being continued"}}`,
			ask, run}, want: base},
		{name: "a person's text beside what an editor adds", lines: []string{
			user + `[{"type":"text","text":"<ide_opened_file>x.go</ide_opened_file>"},{"type":"text","text":"Fix the login"}]}}`,
			run}, want: base},
		{name: "a generated title wins over the message", lines: []string{
			ask, `{"type":"ai-title","aiTitle":"Old"}`, `{"type":"ai-title","aiTitle":"Login repair"}`, run},
			want: with(func(s *said) { s.Title = "Login repair" })},
		{name: "a person's title wins over a later generated one", lines: []string{
			ask, `{"type":"custom-title","customTitle":"mine, old","sessionId":"` + idA + `"}`,
			`{"type":"custom-title","customTitle":"mine","sessionId":"` + idA + `"}`, `{"type":"ai-title","aiTitle":"theirs"}`, run},
			want: with(func(s *said) { s.Title = "mine" })},
		{name: "a title of another session is not this one's", lines: []string{
			ask, `{"type":"custom-title","customTitle":"theirs","sessionId":"` + idB + `"}`, run}, want: base},
		{name: "a title of a wrong type is none", lines: []string{
			ask, `{"type":"custom-title","customTitle":7}`, run}, want: base},
		{name: "a side chain in the main file", lines: []string{
			ask, run, `{"type":"assistant","isSidechain":true,"message":{"content":[{"type":"text","text":"from below"}]}}`},
			want: base},
		{name: "a side chain's own file", lines: []string{
			`{"type":"user","isSidechain":true,"cwd":"/w/app","gitBranch":"fix","message":{"content":"Fix the login"}}`,
			`{"type":"assistant","isSidechain":true,"gitBranch":"fix","message":{"content":[{"type":"tool_use","name":"Bash","input":{"command":"go test ./..."}}]}}`},
			want: with(func(s *said) { s.Subagent = Yes })},
		{name: "records of wrong types", lines: []string{
			`{"type":5,"cwd":[],"gitBranch":{},"isSidechain":"no","message":"text"}`,
			`{"type":"user","message":{"content":{"text":"x"}}}`, `[]`, `"x"`, `7`, ask, run}, want: base},
		{name: "nothing but metadata", lines: []string{`{"type":"summary","summary":"s","leafUuid":"u"}`},
			want: said{ID: idA}},
	} {
		c.file, c.format = file, Claude
		c.run(t)
	}
	fileCase{name: "a file in a subagents folder", file: idA + "/subagents/agent-1.jsonl", format: Claude,
		lines: []string{ask, run}, want: with(func(s *said) { s.Subagent = Yes })}.run(t)
	fileCase{name: "below a subagents folder", file: idA + "/subagents/flow/agent-1.jsonl", format: Claude,
		lines: []string{ask, run}, want: with(func(s *said) { s.Subagent = Yes })}.run(t)
	fileCase{name: "a person's folder of that name", file: "subagents/.claude/projects/-w/" + file, format: Claude,
		lines: []string{ask, run}, want: base}.run(t)
	fileCase{name: "a name that is no id", file: "log.jsonl", format: Claude, lines: []string{ask, run}, want: base}.run(t)
}

func TestQwen(t *testing.T) {
	fileCase{name: "parts in place of content", file: "chats/" + idA + ".jsonl", format: Qwen, lines: []string{
		`{"uuid":"1","parentUuid":null,"sessionId":"` + idA + `","type":"user","cwd":"/w","gitBranch":"dev","message":{"role":"user","parts":[{"text":"Add a flag"}]}}`,
		`{"uuid":"2","sessionId":"` + idA + `","type":"assistant","cwd":"/w","message":{"role":"model","parts":[{"text":"hm","thought":true},{"functionCall":{"name":"edit","args":{"file_path":"/w/a.go","old_string":"x"}}}]}}`,
		`{"uuid":"3","sessionId":"` + idA + `","type":"tool_result","cwd":"/w","message":{"role":"user","parts":[{"functionResponse":{"name":"edit"}}]}}`,
	}, want: said{ID: idA, Cwd: "/w", Branch: "dev", Title: "Add a flag", Activity: "edit: /w/a.go"}}.run(t)
}

func TestCodex(t *testing.T) {
	file := "rollout-2026-10-05T09-12-44-" + idA + ".jsonl"
	meta := func(more string) string {
		return `{"timestamp":"t","type":"session_meta","payload":{"id":"` + idA + `","cwd":"/w/app","originator":"codex_cli","git":{"branch":"main"}` + more + `}}`
	}
	const (
		env    = `{"type":"response_item","payload":{"type":"message","role":"user","content":[{"type":"input_text","text":"<environment_context>\n<cwd>/x</cwd>"}]}}`
		agents = `{"type":"response_item","payload":{"type":"message","role":"user","content":[{"type":"input_text","text":"# AGENTS.md instructions for /w"}]}}`
		ask    = `{"type":"event_msg","payload":{"type":"user_message","message":"Port the parser"}}`
		call   = `{"type":"response_item","payload":{"type":"function_call","name":"shell","arguments":"{\"command\":[\"bash\",\"-lc\",\"ls\"],\"workdir\":\"/w\"}"}}`
		result = `{"type":"response_item","payload":{"type":"function_call_output","output":"x"}}`
		tokens = `{"type":"event_msg","payload":{"type":"token_count"}}`
	)
	base := said{ID: idA, Cwd: "/w/app", Branch: "main", Title: "Port the parser", Activity: "shell: bash -lc ls", Subagent: No}
	with := func(f func(*said)) said { s := base; f(&s); return s }
	for _, c := range []fileCase{
		{name: "a root thread", lines: []string{meta(`,"source":"cli"`), env, agents, ask, call, result, tokens}, want: base},
		{name: "headless and editor sources are roots", lines: []string{meta(`,"source":"exec"`), ask, call}, want: base},
		{name: "written before there were sources", lines: []string{meta(``), ask, call}, want: base},
		{name: "a subagent by its source", lines: []string{meta(`,"source":{"subagent":{"thread_spawn":{}}}`), ask, call},
			want: with(func(s *said) { s.Subagent = Yes })},
		{name: "a subagent by its thread", lines: []string{meta(`,"source":"cli","thread_source":"subagent"`), ask, call},
			want: with(func(s *said) { s.Subagent = Yes })},
		{name: "a subagent by its parent", lines: []string{meta(`,"source":"cli","parent_thread_id":"` + idB + `"`), ask, call},
			want: with(func(s *said) { s.Subagent = Yes })},
		{name: "a source that is not known", lines: []string{meta(`,"source":{"new":1}`), ask, call},
			want: with(func(s *said) { s.Subagent = Unknown })},
		{name: "a parent's header copied behind the own one", lines: []string{meta(`,"source":"cli"`),
			`{"type":"session_meta","payload":{"id":"` + idB + `","cwd":"/other","source":{"subagent":"review"}}}`, ask, call}, want: base},
		{name: "an old bare header and bare items", lines: []string{
			`{"id":"` + idA + `","timestamp":"t","instructions":null,"git":{"branch":"main"}}`,
			`{"type":"message","role":"user","content":[{"type":"input_text","text":"Port the parser"}]}`,
			`{"type":"local_shell_call","action":{"type":"exec","command":["ls","-l"]}}`,
		}, want: with(func(s *said) { s.Cwd, s.Activity = "", "shell: ls -l" })},
		{name: "a patch as plain input", lines: []string{meta(`,"source":"cli"`), ask,
			`{"type":"response_item","payload":{"type":"custom_tool_call","name":"apply_patch","input":"*** Begin Patch\n*** Update File: a.go"}}`},
			want: with(func(s *said) { s.Activity = "apply_patch: *** Begin Patch *** Update File: a.go" })},
		{name: "a message as the activity", lines: []string{meta(`,"source":"cli"`), ask, call,
			`{"type":"response_item","payload":{"type":"message","role":"assistant","content":[{"type":"output_text","text":"Done."}]}}`},
			want: with(func(s *said) { s.Activity = "Done." })},
		{name: "an agent message event", lines: []string{meta(`,"source":"cli"`), ask, call,
			`{"type":"event_msg","payload":{"type":"agent_message","message":"Ported."}}`},
			want: with(func(s *said) { s.Activity = "Ported." })},
		{name: "the header is not written yet", lines: nil, want: said{ID: idA}},
	} {
		c.file, c.format = file, Codex
		c.run(t)
	}
}

// The header holds the instructions and can be larger than the window.
func TestCodexHeaderLargerThanTheWindow(t *testing.T) {
	header := `{"type":"session_meta","payload":{"id":"` + idA + `","cwd":"/w","source":"cli","base_instructions":"` + strings.Repeat("x", 80<<10) + `"}}`
	late := strings.Replace(header, `"source":"cli",`, ``, 1)
	late = strings.TrimSuffix(late, "}}") + `,"source":{"subagent":"review"}}}`
	call := `{"type":"response_item","payload":{"type":"function_call","name":"shell","arguments":"{\"cmd\":\"ls\"}"}}`
	filler := `{"type":"event_msg","payload":{"type":"token_count","pad":"` + strings.Repeat("y", 70<<10) + `"}}`
	file := "rollout-2026-10-05T09-12-44-" + idA + ".jsonl"

	want := said{ID: idA, Cwd: "/w", Subagent: No, Activity: "shell: ls"}
	if got := read(t, write(t, file, header, filler, call), Codex).said(); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	// What follows the cut is not known, and not taken for absent.
	want.Subagent = Unknown
	if got := read(t, write(t, file, late, filler, call), Codex).said(); got != want {
		t.Errorf("source behind the cut: got %+v, want %+v", got, want)
	}
}

func TestRolloutID(t *testing.T) {
	for path, want := range map[string]string{
		"/h/sessions/2026/10/05/rollout-2026-10-05T09-12-44-" + idA + ".jsonl": idA,
		"rollout-2026-10-05T09-12-44-" + idA + ".jsonl.zst":                    idA,
		"rollout-" + idA + ".jsonl":                                            "",
		"/h/rollout-2026-10-05T09-12-44-" + idA + ".jsonl (deleted)":           "",
		"/h/history.jsonl": "",
		"rollout-2026-10-05T09-12-44-" + strings.Replace(idA, "-", "x", 1) + ".jsonl": "",
		"": "",
	} {
		if got := RolloutID(path); got != want {
			t.Errorf("%q: %q, want %q", path, got, want)
		}
	}
}

func TestGemini(t *testing.T) {
	const header = `{"sessionId":"` + idA + `","projectHash":"h","startTime":"t","lastUpdated":"t","kind":"main"}`
	const ask = `{"id":"1","timestamp":"t","type":"user","content":[{"text":"Explain the cache"}]}`
	const answer = `{"id":"2","timestamp":"t","type":"gemini","content":"Reading.","toolCalls":[{"id":"c","name":"read_file","args":{"absolute_path":"/w/cache.go"}}]}`
	base := said{ID: idA, Title: "Explain the cache", Activity: "read_file: /w/cache.go", Subagent: No}
	with := func(f func(*said)) said { s := base; f(&s); return s }
	lines := "session-2026-10-05T09-12-0d3f6a52.jsonl"
	object := "session-2025-10-05T09-12-0d3f6a52.json"
	for _, c := range []fileCase{
		{name: "messages one by one", file: lines, lines: []string{header,
			`{"id":"0","type":"user","content":"<session_context>tree</session_context>"}`, ask, `{"$set":{"lastUpdated":"t"}}`, answer,
			`{"id":"3","type":"info","content":"note"}`}, want: base},
		{name: "messages in a batch", file: lines, lines: []string{header, `{"$set":{"messages":[` + ask + `,` + answer + `]}}`}, want: base},
		{name: "the program's own title", file: lines, lines: []string{header, ask, `{"$set":{"summary":"Old"}}`, answer, `{"$set":{"summary":"Cache tour"}}`},
			want: with(func(s *said) { s.Title = "Cache tour" })},
		{name: "a subagent", file: lines, lines: []string{strings.Replace(header, `"main"`, `"subagent"`, 1), ask, answer},
			want: with(func(s *said) { s.Subagent = Yes })},
		{name: "the older single object", file: object, lines: []string{
			`{"sessionId":"` + idA + `","projectHash":"h","messages":[` + ask + `,`, answer + `]}`},
			want: with(func(s *said) { s.Subagent = Unknown })},
		{name: "the older object with a title", file: object, lines: []string{
			`{"sessionId":"` + idA + `","summary":"Cache tour","messages":[` + ask + `,` + answer + `],"kind":"main"}`},
			want: with(func(s *said) { s.Title = "Cache tour" })},
	} {
		c.format = Gemini
		c.run(t)
	}
}

func TestCopilot(t *testing.T) {
	const start = `{"type":"session.start","id":"e","timestamp":"t","parentId":null,"data":{"sessionId":"` + idA + `","version":1,"context":{"cwd":"/w","gitRoot":"/w","branch":"main"}}}`
	const ask = `{"type":"user.message","id":"e","data":{"content":"Write the docs","transformedContent":"<x>"}}`
	const tool = `{"type":"tool.execution_start","id":"e","data":{"toolCallId":"c","toolName":"bash","arguments":{"command":"make docs","description":"Build"}}}`
	base := said{ID: idA, Cwd: "/w", Branch: "main", Title: "Write the docs", Activity: "bash: make docs"}
	with := func(f func(*said)) said { s := base; f(&s); return s }
	for _, c := range []fileCase{
		{name: "events", lines: []string{start, ask, tool, `{"type":"tool.execution_complete","data":{"success":true}}`}, want: base},
		{name: "a message's tool request", lines: []string{start, ask,
			`{"type":"assistant.message","data":{"content":"Now.","toolRequests":[{"name":"view","arguments":{"path":"/w/a"}}]}}`},
			want: with(func(s *said) { s.Activity = "view: /w/a" })},
		{name: "a subagent's tool", lines: []string{start, ask, tool,
			`{"type":"tool.execution_start","data":{"toolName":"grep","arguments":{"pattern":"x"},"parentToolCallId":"c"}}`}, want: base},
		{name: "an empty last message", lines: []string{start, ask, tool, `{"type":"assistant.message","data":{"content":"","toolRequests":[]}}`}, want: base},
	} {
		c.file, c.format = idA+"/events.jsonl", Copilot
		c.run(t)
	}
}

func TestAmp(t *testing.T) {
	const head = `{"v":3,"id":"T-` + idA + `","created":1,"env":{"initial":{"trees":[{"uri":"file:///w/a%20b","repository":{"ref":"refs/heads/main"}}]}},`
	const messages = `"messages":[{"role":"user","content":[{"type":"text","text":"Tidy the API"}]},{"role":"assistant","content":[{"type":"text","text":"On it."},{"type":"tool_use","name":"edit_file","input":{"path":"/w/api.go"}}]},{"role":"user","content":[{"type":"tool_result"}]}]`
	base := said{ID: "T-" + idA, Cwd: "/w/a b", Branch: "main", Title: "Tidy the API", Activity: "edit_file: /w/api.go"}
	titled := base
	titled.Title = "API tidying"
	for _, c := range []fileCase{
		{name: "a thread without a title", lines: []string{head + messages + `}`}, want: base},
		{name: "a title behind the messages", lines: []string{head + messages + `,"title":"API tidying"}`}, want: titled},
	} {
		c.file, c.format = "T-"+idA+".json", Amp
		c.run(t)
	}
}

// Of a thread that is larger than both windows the beginning gives the title,
// and the last message that is complete in the tail the activity.
func TestAmpLargerThanTheWindows(t *testing.T) {
	for _, indent := range []string{"", "\n      "} {
		var b strings.Builder
		b.WriteString(`{"id":"T-1","messages":[{"role":"user","content":[{"type":"text","text":"Begin"}]}`)
		for range 3000 {
			b.WriteString(`,{` + indent + `"role":"assistant","content":[{"type":"text","text":"brace {\" and {","more":{"x":{}}},{"type":"tool_use","name":"Old","input":{"cmd":"x"}}]}`)
		}
		b.WriteString(`,{` + indent + `"role":"assistant","content":[{"type":"tool_use","name":"Last","input":{"cmd":"make"}}]},{"role":"user","content":"ok"}],"nextMessageId":9}`)
		info := read(t, writeText(t, "T-1.json", b.String()), Amp)
		if info.Title != "Begin" || info.Activity != "Last: make" {
			t.Errorf("indent %q: title %q, activity %q", indent, info.Title, info.Activity)
		}
	}
}

func TestCursor(t *testing.T) {
	base := said{ID: idA, Title: "Rename the type", Activity: "Edit: /w/t.go"}
	with := func(f func(*said)) said { s := base; f(&s); return s }
	text := []string{"user:", "<attached>", "notes", "</attached>", "<user_query>", "Rename the type", "everywhere", "</user_query>", "",
		"assistant:", "[Thinking] which one", "I look first.", "[Tool call] Edit", "  path: /w/t.go", "  contents: x", "", "[Tool result] Edit", "ok"}
	for _, c := range []fileCase{
		{name: "text", file: idA + ".txt", lines: text, want: base},
		{name: "text ends the activity", file: idA + ".txt", lines: append(text[:len(text):len(text)], "assistant:", "Renamed.", "user:", "thanks"),
			want: with(func(s *said) { s.Activity = "Renamed." })},
		{name: "text without marks", file: idA + ".txt", lines: []string{"user:", "Rename the type", "assistant:", "[Tool call] Edit", "  path: /w/t.go"}, want: base},
		{name: "lines", file: idA + "/" + idA + ".jsonl", lines: []string{
			`{"role":"user","message":{"content":[{"type":"text","text":"<timestamp>t</timestamp>\n<user_query>\nRename the type\n</user_query>"}]}}`,
			`{"role":"assistant","message":{"content":[{"type":"tool_use","name":"Edit","input":{"path":"/w/t.go"}}]}}`,
			`{"type":"turn_ended","status":"success"}`}, want: base},
		{name: "a subagent", file: idA + "/subagents/" + idA + ".jsonl", lines: []string{
			`{"role":"user","message":{"content":[{"type":"text","text":"Rename the type"}]}}`,
			`{"role":"assistant","message":{"content":[{"type":"tool_use","name":"Edit","input":{"path":"/w/t.go"}}]}}`},
			want: with(func(s *said) { s.Subagent = Yes })},
	} {
		c.format = Cursor
		c.run(t)
	}
}

func TestOpenCode(t *testing.T) {
	const text = `{"id":"ses_1","slug":"s","projectID":"p","directory":"/w","title":"Speed up the build","time":{"created":1}}`
	base := said{ID: "ses_1", Cwd: "/w", Title: "Speed up the build", Subagent: No}
	fresh, child := base, base
	fresh.Title = ""
	child.Subagent = Yes
	for _, c := range []fileCase{
		{name: "a session", lines: []string{text}, want: base},
		{name: "a title that is none", lines: []string{strings.Replace(text, "Speed up the build", "New session - 2026-01-01", 1)}, want: fresh},
		{name: "a child", lines: []string{strings.Replace(text, `"slug"`, `"parentID":"ses_0","slug"`, 1)}, want: child},
	} {
		c.file, c.format = "ses_1.json", OpenCode
		c.run(t)
	}
}

func TestAider(t *testing.T) {
	old := []string{"", "# aider chat started at 2026-10-01 10:00:00", "", "#### an older wish", "", "An older answer.", ""}
	now := []string{"# aider chat started at 2026-10-05 09:00:00", "> /usr/bin/aider", "", "#### /add main.go", "> Added main.go to the chat", "",
		"#### make it faster", "#### much faster", "", "Here is the change.", "```go", "x := 1", "```", "", "> Tokens: 2k sent, 1k received.", "> Applied edit to main.go", "> Tokens: 3k"}
	for _, c := range []fileCase{
		{name: "the last session counts", lines: append(old[:len(old):len(old)], now...), want: said{Title: "make it faster", Activity: "Applied edit to main.go"}},
		{name: "text is the activity", lines: now[:13], want: said{Title: "make it faster", Activity: "Here is the change."}},
		{name: "a session that only began", lines: append(old[:len(old):len(old)], now[0]), want: said{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			for how, end := range map[string]string{"LF": "\n", "CRLF": "\r\n"} {
				path := writeText(t, ".aider.chat.history.md", strings.Join(c.lines, end)+end)
				c.want.Cwd = filepath.Dir(path)
				if got := read(t, path, Aider).said(); got != c.want {
					t.Errorf("%s: got  %+v\nwant %+v", how, got, c.want)
				}
			}
		})
	}
	// The session's first message lies before the window: its title is not known,
	// and not another message.
	long := append(now[:len(now):len(now)], strings.Repeat("> noise\n", 20_000), "#### a later wish", "", "> Commit abc done")
	info := read(t, write(t, ".aider.chat.history.md", long...), Aider)
	if info.Title != "" || info.Activity != "Commit abc done" {
		t.Errorf("title %q, activity %q", info.Title, info.Activity)
	}
}

// Titles of every format are one clean line.
func TestTitlesAndActivitiesAreClean(t *testing.T) {
	evil := `\u001b]0;owned\u0007\u001b[31mFix\u001b[0m\r\n\tthe\u202e \u0085bug\u009b2J` + strings.Repeat(" long", 100)
	info := read(t, write(t, idA+".jsonl", user+`"`+evil+`"}}`,
		`{"type":"assistant","message":{"content":[{"type":"tool_use","name":"Ba\u001b[1msh","input":{"command":"`+evil+`"}}]}}`), Claude)
	if !strings.HasPrefix(info.Title, "Fix the bug long long") {
		t.Errorf("title %q", info.Title)
	}
	if !strings.HasPrefix(info.Activity, "Bash: Fix the bug long") {
		t.Errorf("activity %q", info.Activity)
	}
	for _, s := range []string{info.Title, info.Activity} {
		if n := utf8.RuneCountInString(s); n > MaxText || n < MaxText-1 || strings.ContainsFunc(s, unicode.IsControl) {
			t.Errorf("%d runes, controls %v", n, strings.ContainsFunc(s, unicode.IsControl))
		}
	}
}
