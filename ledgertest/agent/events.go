package main

import (
	"cmp"
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// What the agent does, and tells its hooks of.

// started tells that a session began or goes on.
func (a *agent) started(source, prompt string) { a.startedAs(a.id, source, prompt) }

// startedAs tells it under an id that may not be the conversation's.
func (a *agent) startedAs(id, source, prompt string) {
	members := object{"source": source}
	switch a.name {
	case "claude":
		members["model"] = "stand-in"
	case "copilot":
		if source == "startup" {
			members["source"] = "new"
		}
		if prompt != "" {
			members["initialPrompt"] = prompt
		}
	}
	if id != a.id {
		now := a.conversation
		a.conversation = conversation{id: id, launchDir: now.launchDir}
		defer func() { a.conversation = now }()
	}
	a.fire(eventStart, source, members)
}

// ended tells that the session ended, once.
func (a *agent) ended(reason string) {
	for len(a.nested) > 0 {
		a.join()
	}
	a.fireEnd(reason)
}

func (a *agent) fireEnd(reason string) {
	reason = cmp.Or(endings[a.name][reason], reason)
	a.fire(eventEnd, reason, object{"reason": reason})
}

// prompt is a turn: what a person asks, and the answer.
func (a *agent) prompt(text string) {
	a.register("busy")
	a.fire(eventPrompt, "", object{"prompt": text})
	a.write(record{kind: recordUser, text: text})
	answer := "did " + text
	a.write(record{kind: recordAssistant, text: answer})
	a.stopped(text, answer)
	a.register("idle")
	a.say("%s", firstOf(answer))
}

// stopped tells that a turn ended.
func (a *agent) stopped(prompt, answer string) {
	members := object{"stop_hook_active": false, "last_assistant_message": answer}
	switch a.name {
	case "gemini":
		members = object{"prompt": prompt, "prompt_response": answer, "stop_hook_active": false}
	case "cursor-agent":
		members = object{"status": "completed", "loop_count": 0}
	case "copilot":
		members = object{"transcriptPath": a.transcript(), "stopReason": "end_turn"}
	}
	a.fire(eventStop, "", members)
	if a.hooks != nil && a.hooks.notify != nil {
		a.hooks.notify(a, answer)
	}
}

// failed is a turn that an error ended.
func (a *agent) failed(failure string) {
	members := object{"error": failure, "error_details": "as the test wished"}
	if a.name == "copilot" {
		members = object{"error": object{"name": failure, "message": failure}}
	}
	a.fire(eventFailure, failure, members)
}

// notified tells a person of something.
func (a *agent) notified(kind, message string) {
	if a.name == "gemini" {
		kind = "ToolPermission"
	}
	a.register("waiting")
	a.fire(eventNotification, kind, object{"notification_type": kind, "message": message, "title": "Agent"})
}

// clear begins another conversation in this process.
func (a *agent) clear() {
	if a.store == nil {
		return
	}
	a.fireEnd("clear")
	a.fresh("")
	if !a.has("lazy") {
		a.write(record{kind: recordBegin})
	}
	a.reregister()
	a.started("clear", "")
}

// fork goes on with a copy of the conversation.
func (a *agent) fork() error {
	if a.store == nil || a.file == "" {
		return nil
	}
	if err := a.copyOf(a.file, ""); err != nil {
		return err
	}
	a.reregister()
	a.started("fork", "")
	return nil
}

// switchTo goes on with another conversation.
func (a *agent) switchTo(id string) error {
	if a.store == nil {
		return nil
	}
	path := a.find(id)
	if path == "" {
		return os.ErrNotExist
	}
	a.fireEnd("resume")
	a.take(id, path)
	a.reregister()
	a.started("resume", "")
	return nil
}

// compact replaces what was said by a summary.
func (a *agent) compact() {
	a.fire(eventPreCompact, "manual", object{"trigger": "manual", "custom_instructions": ""})
	a.write(record{kind: recordCompact, text: "This session is being continued from a previous conversation."})
	if a.name == "claude" || a.name == "qwen" {
		a.started("compact", "")
	}
	a.fire(eventPostCompact, "manual", object{"trigger": "manual"})
}

// subagent is a subagent from its start to its stop. Its events carry the
// session's id, and a file of its own lies below the session's.
func (a *agent) subagent() {
	id := token(4)
	members := object{"agent_id": id, "agent_type": "general-purpose"}
	a.fire(eventSubagentStart, "general-purpose", members)
	if a.name == "claude" && a.file != "" {
		path := filepath.Join(filepath.Dir(a.file), a.id, "subagents", "agent-"+id+".jsonl")
		_ = os.MkdirAll(filepath.Dir(path), 0o700)
		_ = appendTo(path, []byte(line(object{
			"isSidechain": true, "agentId": id, "sessionId": a.id, "cwd": a.cwd, "type": "user", "uuid": newUUID(),
			"timestamp": stamp(), "message": object{"role": "user", "content": "the subagent's task"},
		})+"\n"))
		members["agent_transcript_path"] = path
	}
	a.fire(eventSubagentStop, "general-purpose", members)
}

// registryPath is claude's file for this process.
func (a *agent) registryPath() string {
	return filepath.Join(a.root, "sessions", strconv.Itoa(os.Getpid())+".json")
}

// register writes claude's entry of living sessions.
func (a *agent) register(status string) {
	if a.name != "claude" {
		return
	}
	if a.listed == "" || !a.has("registry") {
		a.listed = a.id
	}
	o := object{
		"pid": os.Getpid(), "sessionId": a.listed, "cwd": a.cwd, "startedAt": a.began.UnixMilli(), "version": "1.0.0",
		"kind": "interactive", "entrypoint": "cli", "status": status, "updatedAt": time.Now().UnixMilli(),
	}
	if ticks := startTicks(); ticks != "" {
		o["procStart"] = ticks
	}
	text, err := json.Marshal(o)
	if err != nil {
		return
	}
	path := a.registryPath()
	_ = os.MkdirAll(filepath.Dir(path), 0o700)
	if os.WriteFile(path+".tmp", text, 0o600) == nil {
		_ = os.Rename(path+".tmp", path)
	}
}

func (a *agent) reregister() { a.register("idle") }

// unregister takes the entry away. After a crash it stays.
func (a *agent) unregister() {
	if a.name == "claude" {
		_ = os.Remove(a.registryPath())
	}
}
