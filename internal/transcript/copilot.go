package transcript

import (
	"path/filepath"

	"github.com/sessionledger/ledger/internal/transcript/loose"
)

// readCopilot reads a session's event log: {type, data} records.
func readCopilot(info *Info, w window, path string) {
	if id := filepath.Base(filepath.Dir(path)); isUUID(id) {
		info.ID = id
	}
	for line := range w.forward(false) {
		r, whole := loose.Parse(line)
		if !whole {
			continue
		}
		data := r.Object("data")
		switch r.String("type") {
		case "session.start":
			if info.ID == "" {
				info.ID = data.String("sessionId")
			}
			if c := data.Object("context"); info.Cwd == "" {
				info.Cwd = c.String("cwd")
				info.Branch = c.String("branch")
			}
		case "user.message":
			info.Title = prompt(blocks(data.Value("content")))
		}
		if info.Title != "" {
			break
		}
	}
	for line := range w.backward() {
		r, whole := loose.Parse(line)
		if !whole {
			continue
		}
		if info.Activity = copilotActivity(r); info.Activity != "" {
			break
		}
	}
}

func copilotActivity(r loose.Object) string {
	data := r.Object("data")
	if data.String("parentToolCallId") != "" { // a subagent's
		return ""
	}
	switch r.String("type") {
	case "tool.execution_start":
		return toolUse(data, "toolName", "arguments").activity()
	case "assistant.message":
		bs := blocks(data.Value("content"))
		for _, v := range data.List("toolRequests") {
			call, _ := loose.Parse(v)
			bs = append(bs, toolUse(call, "name", "arguments"))
		}
		return activity(bs)
	}
	return ""
}
