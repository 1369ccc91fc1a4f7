package runtimes

import (
	"os"
	"slices"
	"testing"
)

// The first arguments that make a service of any runtime, as the specification has them.
func TestServicesOfEveryRuntime(t *testing.T) {
	table := Builtin()
	for _, name := range []string{"claude", "codex", "gemini", "qwen", "opencode", "amp", "cursor-agent", "aider", "copilot"} {
		for _, first := range []string{
			"daemon", "mcp", "install", "update", "doctor", "config", "migrate-installer",
			"setup-token", "login", "logout", "completion",
		} {
			args := []string{name, first}
			if !table.Service(args, os.Executable) {
				t.Errorf("%q is no service", args)
			}
			if second := slices.Insert(args, 1, "--option"); table.Service(second, os.Executable) {
				t.Errorf("%q is a service", second)
			}
		}
	}
}
