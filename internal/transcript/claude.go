package transcript

import (
	"bytes"
	"strings"

	"github.com/sessionledger/ledger/internal/transcript/loose"
)

// readClaude reads the records of Claude Code, and those of Qwen Code, whose
// envelope is the same and whose message holds parts in place of content.
func readClaude(info *Info, w window, path string) {
	// The file's name is the id. Records may carry others: those that a fork
	// copied, and titles that were meant for another session.
	if id := stem(path); isUUID(id) {
		info.ID = id
	}
	if isSubagents(path) {
		info.Subagent = Yes
	}
	first := ""
	for line := range w.forward(false) {
		r, whole := loose.Parse(line)
		if !whole {
			continue
		}
		if info.ID == "" {
			info.ID = r.String("sessionId")
		}
		if info.Cwd == "" {
			info.Cwd = r.String("cwd")
		}
		if info.Began.IsZero() {
			info.Began = recordTime(r.String("timestamp"))
		}
		side, told := r.Bool("isSidechain")
		if told && info.Subagent == Unknown {
			info.Subagent = No
			if side {
				info.Subagent = Yes
			}
		}
		if first == "" && r.String("type") == "user" && (!side || info.Subagent == Yes) {
			first = claudePrompt(r)
		}
		if first != "" && info.ID != "" && info.Cwd != "" && info.Subagent != Unknown {
			break
		}
	}
	custom, generated := claudeTail(info, w)
	switch {
	case custom != "":
		info.Title = custom
	case generated != "":
		info.Title = generated
	default:
		info.Title = first
	}
}

// claudePrompt is what a person wrote in a user record, "" when the record is
// the program's own.
func claudePrompt(r loose.Object) string {
	for _, flag := range []string{"isMeta", "isCompactSummary", "isVisibleInTranscriptOnly"} {
		if set, _ := r.Bool(flag); set {
			return ""
		}
	}
	return prompt(claudeBlocks(r))
}

func claudeBlocks(r loose.Object) []block {
	m := r.Object("message")
	if v := m.Value("content"); v != nil {
		return blocks(v)
	}
	return blocks(m.Value("parts"))
}

var titleMark = []byte(`-title"`)

// claudeTail reads the last branch and activity, and returns the last titles:
// a person's own and a generated one.
func claudeTail(info *Info, w window) (custom, generated string) {
	titles := func(r loose.Object) {
		// A title that names another session was written into the wrong file.
		if id := r.String("sessionId"); id != "" && info.ID != "" && id != info.ID {
			return
		}
		if custom == "" && r.String("type") == "custom-title" {
			custom = strings.TrimSpace(r.String("customTitle"))
		}
		if generated == "" && r.String("type") == "ai-title" {
			generated = strings.TrimSpace(r.String("aiTitle"))
		}
	}
	for line := range w.backward() {
		title := custom == "" && bytes.Contains(line, titleMark)
		if !title && info.Activity != "" && info.Branch != "" {
			continue
		}
		r, whole := loose.Parse(line)
		if !whole {
			continue
		}
		if title {
			titles(r)
		}
		if info.Branch == "" {
			info.Branch = r.String("gitBranch")
		}
		side, _ := r.Bool("isSidechain")
		if info.Activity == "" && r.String("type") == "assistant" && (!side || info.Subagent == Yes) {
			info.Activity = activity(claudeBlocks(r))
		}
	}
	if custom != "" || w.whole {
		return custom, generated
	}
	// Titles that only the head holds; there the last one counts too.
	var head [][]byte
	for line := range w.forward(false) {
		if bytes.Contains(line, titleMark) {
			head = append(head, line)
		}
	}
	for i := len(head) - 1; i >= 0; i-- {
		if r, whole := loose.Parse(head[i]); whole {
			titles(r)
		}
	}
	return custom, generated
}
