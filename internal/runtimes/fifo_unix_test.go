//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package runtimes

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// A FIFO in place of a folder or a transcript keeps nobody waiting.
func TestFIFOsInTheStore(t *testing.T) {
	home := t.TempDir()
	fifo := func(name string) {
		path := filepath.Join(home, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := syscall.Mkfifo(path, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	fifo(".claude/projects")
	wantError(t, "claude", home, idA, "/w", ErrNoTranscript)
	fifo(".gemini/tmp/app/chats")
	wantError(t, "gemini", home, idA, "/w", ErrNoTranscript)
	fifo(".codex/sessions/2026/10/05/rollout-2026-10-05T09-12-44-" + idA + ".jsonl")
	if got, err := find(t, "codex", home, idA, "/w"); err == nil || errors.Is(err, ErrNoTranscript) {
		t.Errorf("%q, %v", got, err)
	}
	fifo("shims")
	if _, err := FromShims(filepath.Join(home, "shims"), os.Args[0]); err == nil {
		t.Error("a FIFO is no shim folder")
	}
}
