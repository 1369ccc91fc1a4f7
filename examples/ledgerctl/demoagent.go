package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// The demo's agent is this program under another name, so that it needs no account and
// nothing that is not here. It plays Claude Code: it writes a transcript where that would
// be, edits a file, and waits for its terminal to end.
const (
	demoAgentEnv     = "LEDGERCTL_DEMO_AGENT"
	demoConversation = "00000000-0000-4000-8000-000000000001"
)

// demoLines are what a person asked, and what the agent did.
func demoLines() []map[string]any {
	return []map[string]any{
		{"type": "user", "message": map[string]any{"role": "user", "content": "add a greeting"}},
		{"type": "assistant", "message": map[string]any{"role": "assistant", "content": []any{
			map[string]any{"type": "tool_use", "name": "Write", "input": map[string]string{"file_path": "greeting.txt"}}}}},
	}
}

func demoAgent(args []string, stdin io.Reader) error {
	cwd, err := os.Getwd()
	if err != nil {
		return err
	}
	folder := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, cwd)
	dir := filepath.Join(os.Getenv("HOME"), ".claude", "projects", folder)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	// --session-id and --resume name the conversation alike.
	path := filepath.Join(dir, args[len(args)-1]+".jsonl")
	transcript, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer transcript.Close()
	for _, line := range demoLines() {
		line["sessionId"], line["cwd"], line["timestamp"] = args[len(args)-1], cwd, time.Now().UTC().Format(time.RFC3339)
		data, err := json.Marshal(line)
		if err != nil {
			return err
		}
		if err := os.WriteFile("greeting.txt", []byte("hello\n"), 0o600); err != nil {
			return err
		}
		if _, err := transcript.Write(append(data, '\n')); err != nil {
			return err
		}
	}
	fmt.Println("(this is the demo's agent)")
	_, err = io.Copy(io.Discard, stdin)
	return err
}
