package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"time"
)

// Hooks are what a CLI runs at its events, and where they are set up.
type hooks struct {
	// files are its settings files; those that are not there have none.
	files func(a *agent) []string
	flat  bool // entries stand in the event's list, not in groups
	// command and timeout are an entry's members, unit that of the latter.
	command, timeout string
	unit             time.Duration
	// names are the CLI's own names of events. Others do not fire.
	names map[event]string
	// payload is what it sends beside the event's own members.
	payload func(a *agent, name string) object
	// notify is a program that is called after each turn, with an argument.
	notify func(a *agent, lastMessage string)
}

type event int

const (
	eventStart event = iota
	eventEnd
	eventPrompt
	eventStop
	eventFailure
	eventNotification
	eventSubagentStart
	eventSubagentStop
	eventPreCompact
	eventPostCompact
	eventCwd
)

// Why a session ends, in claude's words; the others have their own (endings).
const (
	reasonExit  = "prompt_input_exit"
	reasonOther = "other"
	reasonDone  = "done" // a single prompt was answered
)

var endings = map[string]map[string]string{
	"claude":       {reasonDone: "other"},
	"qwen":         {reasonDone: "other"},
	"gemini":       {reasonExit: "exit", reasonDone: "exit"},
	"cursor-agent": {reasonExit: "user_close", reasonOther: "aborted", reasonDone: "completed"},
	"copilot":      {reasonExit: "user_exit", reasonOther: "error", reasonDone: "complete"},
}

// claudeNames are claude's events, most of which others took over.
var claudeNames = map[event]string{
	eventStart: "SessionStart", eventEnd: "SessionEnd", eventPrompt: "UserPromptSubmit", eventStop: "Stop",
	eventFailure: "StopFailure", eventNotification: "Notification", eventSubagentStart: "SubagentStart",
	eventSubagentStop: "SubagentStop", eventPreCompact: "PreCompact", eventPostCompact: "PostCompact", eventCwd: "CwdChanged",
}

var claudeHooks = &hooks{
	files: func(a *agent) []string {
		return []string{
			filepath.Join(a.root, "settings.json"),
			filepath.Join(a.launchDir, ".claude", "settings.json"),
			filepath.Join(a.launchDir, ".claude", "settings.local.json"),
		}
	},
	command: "command", timeout: "timeout", unit: time.Second,
	names: claudeNames,
	payload: func(a *agent, name string) object {
		return object{"session_id": a.id, "transcript_path": a.transcript(), "cwd": a.cwd, "hook_event_name": name, "permission_mode": "default"}
	},
}

var qwenHooks = &hooks{
	files: func(a *agent) []string {
		return []string{filepath.Join(a.root, "settings.json"), filepath.Join(a.launchDir, ".qwen", "settings.json")}
	},
	command: "command", timeout: "timeout", unit: time.Millisecond,
	names: claudeNames,
	payload: func(a *agent, name string) object {
		return object{"session_id": a.id, "transcript_path": a.transcript(), "cwd": a.cwd, "hook_event_name": name, "timestamp": stamp()}
	},
}

var geminiHooks = &hooks{
	files: func(a *agent) []string {
		return []string{filepath.Join(a.root, "settings.json"), filepath.Join(a.launchDir, ".gemini", "settings.json")}
	},
	command: "command", timeout: "timeout", unit: time.Millisecond,
	names: map[event]string{
		eventStart: "SessionStart", eventEnd: "SessionEnd", eventPrompt: "BeforeAgent", eventStop: "AfterAgent",
		eventNotification: "Notification", eventPreCompact: "PreCompress",
	},
	payload: qwenHooks.payload,
}

// codexHooks: there is no event for the end of a session.
var codexHooks = &hooks{
	files:   func(a *agent) []string { return []string{filepath.Join(a.root, "hooks.json")} },
	command: "command", timeout: "timeout", unit: time.Second,
	names: map[event]string{
		eventStart: "SessionStart", eventPrompt: "UserPromptSubmit", eventStop: "Stop",
		eventSubagentStart: "SubagentStart", eventSubagentStop: "SubagentStop",
	},
	payload: func(a *agent, name string) object {
		o := object{"session_id": a.id, "transcript_path": nil, "cwd": a.cwd, "hook_event_name": name}
		if a.file != "" {
			o["transcript_path"] = a.file
		}
		return o
	},
	notify: codexNotify,
}

var cursorHooks = &hooks{
	files: func(a *agent) []string { return []string{filepath.Join(a.root, "hooks.json")} },
	flat:  true, command: "command", timeout: "timeout", unit: time.Second,
	names: map[event]string{
		eventStart: "sessionStart", eventEnd: "sessionEnd", eventPrompt: "beforeSubmitPrompt", eventStop: "stop",
	},
	payload: func(a *agent, name string) object {
		return object{
			"conversation_id": a.id, "session_id": a.id, "generation_id": newUUID(), "hook_event_name": name,
			"cursor_version": "1.0.0", "workspace_roots": []string{a.launchDir}, "transcript_path": a.transcript(),
		}
	},
}

// copilotHooks send no event's name.
var copilotHooks = &hooks{
	files: func(a *agent) []string {
		names, _ := filepath.Glob(filepath.Join(globQuote(a.root), "hooks", "*.json"))
		return names
	},
	flat: true, command: "bash", timeout: "timeoutSec", unit: time.Second,
	names: map[event]string{
		eventStart: "sessionStart", eventEnd: "sessionEnd", eventPrompt: "userPromptSubmitted", eventStop: "agentStop",
		eventFailure: "errorOccurred", eventNotification: "notification",
	},
	payload: func(a *agent, _ string) object {
		return object{"sessionId": a.id, "timestamp": time.Now().UnixMilli(), "cwd": a.cwd}
	},
}

// transcript is where the file is, or will be.
func (a *agent) transcript() string {
	if a.file == "" {
		return a.store.path(a)
	}
	return a.file
}

// fire runs the hooks of an event with these members. about is what matchers
// are compared with.
func (a *agent) fire(e event, about string, members object) {
	if a.hooks == nil || a.hooks.names[e] == "" {
		return
	}
	name := a.hooks.names[e]
	payload := a.hooks.payload(a, name)
	maps.Copy(payload, members)
	budget := time.Duration(0)
	if e == eventEnd {
		budget = endBudget
	}
	a.runHooks(name, about, payload, budget)
}

const (
	// defaultTimeout is that of a hook that names none.
	defaultTimeout = time.Minute
	// endBudget is what a hook at the end has where it names no time of its own.
	endBudget = 1500 * time.Millisecond
)

// An entry is one hook.
type entry struct {
	command string
	timeout time.Duration
}

// runHooks runs the hooks of a named event, each command once, side by side.
func (a *agent) runHooks(name, about string, payload object, budget time.Duration) {
	input, err := json.Marshal(payload)
	if err != nil {
		return
	}
	var wg sync.WaitGroup
	seen := map[string]bool{}
	for _, path := range a.hooks.files(a) {
		for _, h := range a.hooks.read(path, name, about) {
			if seen[h.command] {
				continue
			}
			seen[h.command] = true
			if h.timeout <= 0 {
				if h.timeout = defaultTimeout; budget > 0 {
					h.timeout = budget
				}
			}
			wg.Go(func() { a.runHook(name, h, input) })
		}
	}
	wg.Wait()
}

// read reads the hooks of an event. What is malformed has none.
func (h *hooks) read(path, event, about string) (entries []entry) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil
	}
	var file struct {
		Hooks map[string]json.RawMessage `json:"hooks"`
	}
	var list []map[string]json.RawMessage
	if json.Unmarshal(text, &file) != nil || json.Unmarshal(file.Hooks[event], &list) != nil {
		return nil
	}
	add := func(o map[string]json.RawMessage) {
		var e entry
		var n float64
		_ = json.Unmarshal(o[h.timeout], &n)
		if json.Unmarshal(o[h.command], &e.command) == nil && e.command != "" {
			e.timeout = time.Duration(n * float64(h.unit))
			entries = append(entries, e)
		}
	}
	for _, o := range list {
		if h.flat {
			add(o)
			continue
		}
		var matcher string
		var group []map[string]json.RawMessage
		_ = json.Unmarshal(o["matcher"], &matcher)
		if json.Unmarshal(o["hooks"], &group) == nil && matches(matcher, about) {
			for _, o := range group {
				add(o)
			}
		}
	}
	return entries
}

// matches compares a matcher: nothing and * match all, else it is a pattern
// for the whole, or where it is none a text.
func matches(matcher, about string) bool {
	if matcher == "" || matcher == "*" || about == "" {
		return true
	}
	re, err := regexp.Compile("^(?:" + matcher + ")$")
	if err != nil {
		return matcher == about
	}
	return re.MatchString(about)
}

// runHook runs one command to its end or its time limit. Nothing that it prints
// is shown.
func (a *agent) runHook(event string, h entry, input []byte) {
	ctx, cancel := context.WithTimeout(context.Background(), h.timeout)
	defer cancel()
	cmd := shell(ctx, h.command)
	cmd.Dir, cmd.Env = a.cwd, a.childEnv()
	cmd.Stdin = bytes.NewReader(input)
	var out limited
	cmd.Stdout, cmd.Stderr = &out, &out
	ownGroup(cmd)
	// A child that keeps the pipe does not keep the agent.
	cmd.WaitDelay = 100 * time.Millisecond
	began := time.Now()
	err := cmd.Run()
	status := cmd.ProcessState.ExitCode() // -1 where it was killed
	if err != nil && cmd.ProcessState == nil {
		fmt.Fprintln(&out, err)
	}
	a.log(object{
		"pid": os.Getpid(), "as": a.name, "event": event, "command": h.command, "payload": json.RawMessage(input),
		"exit": status, "timedOut": errors.Is(ctx.Err(), context.DeadlineExceeded), "output": out.String(),
		"millis": time.Since(began).Milliseconds(),
	})
}

// log adds a line to the test's log.
func (a *agent) log(o object) {
	if path := os.Getenv("LEDGERTEST_AGENT_LOG"); path != "" {
		_ = appendTo(path, []byte(line(o)+"\n"))
	}
}

// childEnv is the environment of hooks and tools.
func (a *agent) childEnv() []string {
	env := os.Environ()
	if a.env != nil {
		env = append(env, a.env(a)...)
	}
	return env
}

func shell(ctx context.Context, command string) *exec.Cmd {
	if runtime.GOOS == "windows" {
		return exec.CommandContext(ctx, "cmd", "/C", command)
	}
	return exec.CommandContext(ctx, "sh", "-c", command)
}

// limited keeps the beginning of what is written to it.
type limited struct{ bytes.Buffer }

const maxOutput = 64 << 10

func (l *limited) Write(p []byte) (int, error) {
	if room := maxOutput - l.Len(); room > 0 {
		l.Buffer.Write(p[:min(len(p), room)])
	}
	return len(p), nil
}

// codexNotify calls the program that config.toml names, with the turn as its
// last argument. It is not waited for.
func codexNotify(a *agent, lastMessage string) {
	text, err := os.ReadFile(filepath.Join(a.root, "config.toml"))
	if err != nil {
		return
	}
	for l := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(l, "=")
		var argv []string
		if strings.TrimSpace(name) != "notify" || json.Unmarshal([]byte(value), &argv) != nil || len(argv) == 0 {
			continue
		}
		argv = append(argv, line(object{
			"type": "agent-turn-complete", "thread-id": a.id, "turn-id": newUUID(), "cwd": a.cwd, "last-assistant-message": lastMessage,
		}))
		cmd := exec.Command(argv[0], argv[1:]...)
		cmd.Dir, cmd.Env = a.cwd, a.childEnv()
		if cmd.Start() == nil {
			go cmd.Wait()
		}
	}
}

// globQuote keeps a path from being a pattern.
func globQuote(path string) string {
	if runtime.GOOS == "windows" {
		return path // which has no way to quote
	}
	return regexp.MustCompile(`[*?\[\\]`).ReplaceAllString(path, `\$0`)
}
