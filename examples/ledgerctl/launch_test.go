package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sessionledger/ledger"
)

func TestTmuxKnowsOnlyDescribedTerminals(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TERMINFO", dir)
	t.Setenv("HOME", t.TempDir())
	if err := os.Mkdir(filepath.Join(dir, "z"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "z", "zterm"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for term, want := range map[string]bool{"zterm": true, "zother": false, "": false, "dumb": false, "../z/zterm": false} {
		if got := tmuxKnows(term); got != want {
			t.Errorf("%q: %v", term, got)
		}
	}
}

// Status 10 says that nothing was done. A launch that left a row has done something.
func TestLaunchThatLeftARowIsNoUnknown(t *testing.T) {
	unknown := fmt.Errorf("ledger: launch: %w", ledger.ErrUnknown)
	if got := statusOf(begun(ledger.Entry{}, unknown)); got != exitUnknown {
		t.Errorf("without a row it exits %d", got)
	}
	if got := statusOf(begun(ledger.Entry{LedgerID: "x"}, unknown)); got != exitFailed {
		t.Errorf("with a row it exits %d", got)
	}
	if err := begun(ledger.Entry{LedgerID: "x"}, ledger.ErrBusy); !errors.Is(err, ledger.ErrBusy) {
		t.Errorf("another error becomes %v", err)
	}
}

func TestScriptedAgentsAreRunDirectly(t *testing.T) {
	for line, want := range map[string]bool{
		"claude": false, "claude --model x": false, "claude -p hi": true, "gemini --prompt hi": true, "claude --version": true,
		"codex exec hi": true, "codex -m o3": false, "opencode run hi": true, "opencode": false, "aider -m hi": true, "amp -x hi": true, "gemini --prompt=hi": true, "claude -- -p": false, "claude exec": false,
	} {
		argv := strings.Fields(line)
		if got := scripted(argv[0], argv[1:]); got != want {
			t.Errorf("%s: %v", line, got)
		}
	}
}
