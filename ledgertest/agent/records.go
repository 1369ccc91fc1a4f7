package main

import (
	"encoding/json"
	"time"
)

// What each CLI writes into its conversations. Members that no reader is known
// to look at are left out.

// object is a JSON object.
type object = map[string]any

// line writes an object as one line.
func line(o object) string {
	text, err := json.Marshal(o)
	if err != nil {
		panic(err) // only texts and numbers are written
	}
	return string(text)
}

// stamp is the time as all of them write it.
func stamp() string { return time.Now().UTC().Format("2006-01-02T15:04:05.000Z") }

// claudeRecords are those of claude, and of qwen, whose messages hold parts in
// place of content.
func claudeRecords(a *agent, r record) []string {
	envelope := func(kind string, message object) object {
		o := object{
			"parentUuid": nil, "isSidechain": false, "userType": "external", "cwd": a.cwd, "sessionId": a.id,
			"version": "1.0.0", "gitBranch": branch(a.cwd), "type": kind, "uuid": newUUID(), "timestamp": stamp(),
		}
		if message != nil {
			o["message"] = message
		}
		if a.parent != "" {
			o["parentUuid"] = a.parent
		}
		a.parent = o["uuid"].(string)
		return o
	}
	parts, role := "content", "assistant"
	text := func(s string) any { return []object{{"type": "text", "text": s}} }
	use := object{"type": "tool_use", "id": "toolu_" + token(8), "name": r.tool, "input": object{"file_path": r.path}}
	result := object{"type": "tool_result", "tool_use_id": use["id"], "content": "done"}
	if a.name == "qwen" {
		parts, role = "parts", "model"
		text = func(s string) any { return []object{{"text": s}} }
		use = object{"functionCall": object{"name": r.tool, "args": object{"file_path": r.path}}}
		result = object{"functionResponse": object{"name": r.tool, "response": object{"output": "done"}}}
	}
	switch r.kind {
	case recordBegin:
		// Metadata comes first: it has neither time nor directory.
		return []string{line(object{"type": "permission-mode", "permissionMode": "default", "sessionId": a.id})}
	case recordUser:
		var content any = r.text
		if a.name == "qwen" {
			content = text(r.text)
		}
		return []string{line(envelope("user", object{"role": "user", parts: content}))}
	case recordAssistant:
		return []string{line(envelope("assistant", object{"role": role, "model": "stand-in", parts: text(r.text)}))}
	case recordTool:
		return []string{
			line(envelope("assistant", object{"role": role, "model": "stand-in", parts: []object{use}})),
			line(envelope("user", object{"role": "user", parts: []object{result}})),
		}
	case recordTitle:
		return []string{line(object{"type": "custom-title", "customTitle": r.text, "sessionId": a.id})}
	default: // recordCompact
		boundary := envelope("system", nil)
		boundary["subtype"] = "compact_boundary"
		boundary["content"] = "Conversation compacted"
		summary := envelope("user", object{"role": "user", parts: text(r.text)})
		summary["isCompactSummary"] = true
		return []string{line(boundary), line(summary)}
	}
}

func codexRecords(a *agent, r record) []string {
	item := func(kind string, payload object) string {
		return line(object{"timestamp": stamp(), "type": kind, "payload": payload})
	}
	message := func(role, part, text string) object {
		return object{"type": "message", "role": role, "content": []object{{"type": part, "text": text}}}
	}
	switch r.kind {
	case recordBegin:
		source := "cli"
		if a.entry == "exec" {
			source = "exec"
		}
		return []string{item("session_meta", object{
			"id": a.id, "session_id": a.id, "timestamp": stamp(), "cwd": a.cwd, "originator": "codex_cli_rs", "cli_version": "1.0.0",
			"source": source, "thread_source": "user", "git": object{"branch": branch(a.cwd)},
		})}
	case recordUser:
		return []string{
			item("response_item", message("user", "input_text", r.text)),
			item("event_msg", object{"type": "user_message", "message": r.text}),
		}
	case recordAssistant:
		return []string{
			item("event_msg", object{"type": "agent_message", "message": r.text}),
			item("response_item", message("assistant", "output_text", r.text)),
		}
	case recordTool:
		return []string{item("response_item", object{
			"type": "function_call", "name": r.tool, "call_id": "call_" + token(8), "arguments": line(object{"path": r.path}),
		})}
	case recordCompact:
		return []string{item("compacted", object{"message": r.text})}
	default:
		return nil // it has no titles
	}
}

func geminiRecords(a *agent, r record) []string {
	message := func(kind string, content any) object {
		return object{"id": newUUID(), "timestamp": stamp(), "type": kind, "content": content}
	}
	switch r.kind {
	case recordBegin:
		return []string{line(object{
			"sessionId": a.id, "projectHash": projectHash(a.launchDir), "startTime": stamp(), "lastUpdated": stamp(), "kind": "main",
		})}
	case recordUser:
		return []string{line(message("user", []object{{"text": r.text}}))}
	case recordAssistant:
		return []string{line(message("gemini", r.text))}
	case recordTool:
		m := message("gemini", "")
		m["toolCalls"] = []object{{"id": token(8), "name": r.tool, "args": object{"file_path": r.path}}}
		return []string{line(m)}
	case recordTitle:
		return []string{line(object{"$set": object{"summary": r.text}})}
	default:
		return []string{line(message("info", r.text))}
	}
}

func copilotRecords(a *agent, r record) []string {
	event := func(kind string, data object) string {
		return line(object{"type": kind, "data": data, "id": newUUID(), "timestamp": stamp()})
	}
	switch r.kind {
	case recordBegin:
		return []string{event("session.start", object{
			"sessionId": a.id, "version": 1, "producer": "copilot-agent", "startTime": stamp(),
			"context": object{"cwd": a.cwd, "branch": branch(a.cwd)},
		})}
	case recordUser:
		return []string{event("user.message", object{"content": r.text})}
	case recordAssistant:
		return []string{event("assistant.message", object{"content": r.text})}
	case recordTool:
		return []string{event("tool.execution_start", object{"toolName": r.tool, "arguments": object{"path": r.path}})}
	case recordCompact:
		return []string{event("session.compaction_complete", object{"success": true})}
	default:
		return nil
	}
}

func cursorRecords(_ *agent, r record) []string {
	switch r.kind {
	case recordUser:
		return []string{"user:", "<user_query>", r.text, "</user_query>", ""}
	case recordAssistant:
		return []string{"assistant:", r.text, ""}
	case recordTool:
		return []string{"assistant:", "[Tool call] " + r.tool, "  path: " + r.path, ""}
	default:
		return nil
	}
}

func aiderRecords(_ *agent, r record) []string {
	switch r.kind {
	case recordBegin:
		return []string{"", "# aider chat started at " + time.Now().Format("2006-01-02 15:04:05"), "", "> Aider v1.0.0  "}
	case recordUser:
		return []string{"", "#### " + r.text + "  ", ""}
	case recordAssistant:
		return []string{r.text, ""}
	case recordTool:
		return []string{"> Applied edit to " + r.path + "  ", ""}
	default:
		return nil
	}
}

func ampWhole(a *agent, o object, r record) object {
	messages, _ := o["messages"].([]any)
	add := func(role string, part object) {
		messages = append(messages, object{"role": role, "content": []object{part}})
	}
	switch r.kind {
	case recordBegin:
		o = object{"v": 1, "id": a.id, "created": time.Now().UnixMilli(), "env": object{"initial": object{"trees": []object{{
			"uri": fileURL(a.launchDir), "repository": object{"ref": "refs/heads/" + branch(a.launchDir)},
		}}}}}
		messages = []any{}
	case recordUser:
		add("user", object{"type": "text", "text": r.text})
	case recordAssistant:
		add("assistant", object{"type": "text", "text": r.text})
	case recordTool:
		add("assistant", object{"type": "tool_use", "id": token(8), "name": r.tool, "input": object{"path": r.path}})
	case recordTitle:
		o["title"] = r.text
	}
	o["messages"] = messages
	return o
}

func opencodeWhole(a *agent, o object, r record) object {
	now := time.Now().UnixMilli()
	switch {
	case r.kind == recordBegin:
		o = object{
			"id": a.id, "projectID": hash(a.launchDir), "directory": a.launchDir, "version": "1.0.0", "title": "New session",
			"time": object{"created": now, "updated": now},
		}
	case r.kind == recordUser && o["title"] == "New session", r.kind == recordTitle:
		o["title"] = r.text
	}
	if times, ok := o["time"].(object); ok {
		times["updated"] = now
	}
	return o
}
