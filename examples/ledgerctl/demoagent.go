package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// demoAgent plays an agent CLI for the demo: it writes a transcript where Claude Code
// would, edits a file for each line that it is told, and ends with its input.
func demoAgent(id string, stdin io.Reader, stdout io.Writer) int {
	if err := playAgent(id, stdin, stdout); err != nil {
		fmt.Fprintln(os.Stderr, "demo agent:", err)
		return exitFailed
	}
	return exitDone
}

func playAgent(id string, stdin io.Reader, stdout io.Writer) error {
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
	transcript, err := os.OpenFile(filepath.Join(dir, id+".jsonl"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer transcript.Close()
	fmt.Fprintln(stdout, "ready")
	for lines := bufio.NewScanner(stdin); lines.Scan(); {
		tool := map[string]any{"type": "tool_use", "name": "Write", "input": map[string]string{"file_path": "greeting.txt"}}
		for kind, content := range map[string]any{"user": lines.Text(), "assistant": []any{tool}} {
			line, err := json.Marshal(map[string]any{
				"type": kind, "sessionId": id, "cwd": cwd, "timestamp": time.Now().UTC().Format(time.RFC3339),
				"message": map[string]any{"role": kind, "content": content},
			})
			if err != nil {
				return err
			}
			if _, err := transcript.Write(append(line, '\n')); err != nil {
				return err
			}
		}
		if err := os.WriteFile("greeting.txt", []byte("hello\n"), 0o600); err != nil {
			return err
		}
		fmt.Fprintln(stdout, "done")
	}
	return nil
}
