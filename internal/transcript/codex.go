package transcript

import (
	"bytes"
	"strings"

	"github.com/sessionledger/ledger/internal/transcript/loose"
)

// RolloutID is the conversation id in a rollout's file name, "" when the name
// is not rollout-<local time>-<uuid>.jsonl, with or without .zst.
func RolloutID(path string) string {
	base := path[strings.LastIndexByte(path, '/')+1:]
	base = strings.TrimSuffix(base, ".zst")
	name, isLog := strings.CutSuffix(base, ".jsonl")
	name, isRollout := strings.CutPrefix(name, "rollout-")
	if !isLog || !isRollout || len(name) < 37 {
		return ""
	}
	if id := name[len(name)-36:]; name[len(name)-37] == '-' && isUUID(id) {
		return id
	}
	return ""
}

// readCodex reads a rollout.
func readCodex(info *Info, w window, path string) {
	info.ID = RolloutID(path)
	// The first line can be larger than the window; its beginning, where id,
	// cwd and source stand, is read as far as it goes.
	line, _, ended := bytes.Cut(w.head, []byte("\n"))
	meta, whole := loose.Parse(trim(line))
	if whole || !ended {
		codexMeta(info, meta, whole)
	}
	for line := range w.forward(false) {
		r, whole := loose.Parse(line)
		if !whole {
			continue
		}
		if info.Title = codexPrompt(r); info.Title != "" {
			break
		}
	}
	for line := range w.backward() {
		r, whole := loose.Parse(line)
		if !whole {
			continue
		}
		if info.Activity = codexActivity(r); info.Activity != "" {
			break
		}
	}
}

// codexMeta reads the first record. Whole tells that nothing of it is missing,
// so that a member that is not there was not written.
func codexMeta(info *Info, r loose.Object, whole bool) {
	m := r
	if r.Has("type") || r.Has("payload") {
		if r.String("type") != "session_meta" {
			return
		}
		m = r.Object("payload")
	}
	id := m.String("id")
	if id == "" {
		return
	}
	if info.ID == "" {
		info.ID = id
	}
	info.Cwd = m.String("cwd")
	info.Branch = m.Object("git").String("branch")
	source := m.Value("source")
	switch {
	case m.Object("source").Has("subagent"),
		m.String("thread_source") == "subagent",
		m.String("parent_thread_id") != "":
		info.Subagent = Yes
	case loose.String(source) != "", m.String("thread_source") == "user":
		info.Subagent = No
	case whole && !m.Has("source") && !m.Has("thread_source"):
		info.Subagent = No // written before there were subagents
	}
}

// codexItem returns a response item, whose record older files write bare.
func codexItem(r loose.Object) loose.Object {
	if r.String("type") == "response_item" {
		return r.Object("payload")
	}
	return r
}

func codexPrompt(r loose.Object) string {
	if r.String("type") == "event_msg" {
		p := r.Object("payload")
		if text := strings.TrimSpace(p.String("message")); p.String("type") == "user_message" && !isInjected(text) {
			return text
		}
		return ""
	}
	if m := codexItem(r); m.String("type") == "message" && m.String("role") == "user" {
		return prompt(blocks(m.Value("content")))
	}
	return ""
}

func codexActivity(r loose.Object) string {
	if r.String("type") == "event_msg" {
		if p := r.Object("payload"); p.String("type") == "agent_message" {
			return p.String("message")
		}
		return ""
	}
	switch m := codexItem(r); m.String("type") {
	case "message":
		if m.String("role") == "assistant" {
			return activity(blocks(m.Value("content")))
		}
	case "function_call":
		return toolUse(m, "name", "arguments").activity()
	case "custom_tool_call":
		return toolUse(m, "name", "input").activity()
	case "local_shell_call":
		return block{tool: "shell", arg: mainArgument(m.Value("action"))}.activity()
	}
	return ""
}
