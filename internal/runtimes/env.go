package runtimes

import (
	"slices"
	"strings"
)

// inherited are the variables by which an agent CLI or a multiplexer marks what
// runs inside it. A session that inherits them takes itself for another's
// child: it refuses to start, or keeps no transcript. A final * is any ending.
var inherited = []string{
	"CLAUDECODE", "CLAUDE_CODE_*", "CLAUDE_PID",
	"CODEX_SANDBOX", "CODEX_SANDBOX_NETWORK_DISABLED", "CODEX_THREAD_ID", "CODEX_CI",
	"GEMINI_CLI", "QWEN_CODE", "OPENCODE", "OPENCODE_PID", "AMP_CURRENT_THREAD_ID",
	"CURSOR_AGENT", "CURSOR_CONVERSATION_ID", "CURSOR_TRACE_ID",
	"TMUX", "TMUX_PANE", "STY", "WINDOW",
}

// configured are variables of those families that a person sets to choose the
// provider and the login. Without them a resumed session cannot reach its model.
var configured = []string{
	"CLAUDE_CODE_USE_*", "CLAUDE_CODE_SKIP_*", "CLAUDE_CODE_OAUTH_TOKEN",
}

// Inherited reports whether an environment variable belongs to the agent or
// the multiplexer that started a process, and must not reach a session that is
// started from inside it. Config homes are not among them.
func Inherited(name string) bool {
	return matchesAny(name, inherited) && !matchesAny(name, configured)
}

func matchesAny(name string, patterns []string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool {
		prefix, open := strings.CutSuffix(p, "*")
		return name == p || open && strings.HasPrefix(name, prefix)
	})
}

// Unset returns the names of the variables in env (NAME=value) that Inherited
// reports, sorted.
func Unset(env []string) []string {
	var names []string
	for _, kv := range env {
		if name, _, ok := strings.Cut(kv, "="); ok && Inherited(name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}
