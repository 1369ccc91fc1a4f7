package runtimes

import "github.com/sessionledger/ledger/internal/transcript"

// claudeEvents are the lifecycle events of Claude Code; others took them over.
var claudeEvents = []string{
	"SessionStart", "SessionEnd", "UserPromptSubmit", "Stop", "StopFailure",
	"Notification", "SubagentStart", "SubagentStop", "PreCompact", "PostCompact", "CwdChanged",
}

// Builtin returns the runtimes that are known without an embedder's help, in
// the order in which they are matched.
func Builtin() Table {
	return Table{
		{
			Name:  "claude",
			Argv0: []string{"claude"},
			// The native build starts its helpers, and some wrappers the CLI
			// itself, by the versioned path.
			Paths:    []string{"claude/versions/[0-9]*", "@anthropic-ai/claude-code/bin/claude.exe"},
			Scripts:  []string{"@anthropic-ai/claude-code/cli.js"},
			Services: []string{"auth", "plugin", "--bg-spare", "--bg-pty-host", "--claude-in-chrome-mcp"},

			ConfigEnv: "CLAUDE_CONFIG_DIR", ConfigDir: ".claude",
			HasTranscripts: true, HasEndHook: true, ResumeChangesID: true,
			Format:   transcript.Claude,
			HookFile: "settings.json", Hooks: claudeEvents,
			find: findClaude, list: listClaude,

			Resume:     []string{"--resume", "{id}"},
			IDFlags:    []string{"--resume", "-r", "--session-id"},
			OlderFlags: []string{"--continue", "-c", "--fork-session"},
		},
		{
			Name:  "codex",
			Argv0: []string{"codex"},
			Scripts: []string{
				"@openai/codex/bin/codex.js",
			},
			Services: []string{"mcp-server", "app-server", "sandbox", "debug", "features"},

			ConfigEnv: "CODEX_HOME", ConfigDir: ".codex",
			HasTranscripts: true,
			Format:         transcript.Codex,
			Hooks:          []string{"SessionStart", "UserPromptSubmit", "Stop", "SubagentStart", "SubagentStop"},
			find:           findCodex,

			Resume:     []string{"resume", "{id}"},
			IDCommands: [][]string{{"exec", "resume"}, {"resume"}, {"fork"}},
		},
		{
			Name:  "gemini",
			Argv0: []string{"gemini"},
			Scripts: []string{
				"@google/gemini-cli/dist/index.js", "@google/gemini-cli/bundle/gemini.js",
			},
			Services: []string{"extensions", "hooks", "skills"},

			ConfigDir:      ".gemini",
			HasTranscripts: true, HasEndHook: true,
			Format:   transcript.Gemini,
			HookFile: "settings.json", Hooks: []string{"SessionStart", "SessionEnd", "Notification", "BeforeAgent", "AfterAgent"},
			find: findGemini, list: listGemini,

			Resume:   []string{"--resume", "{id}"},
			IDFlags:  []string{"--resume", "-r"},
			reserved: isIndexOrLatest,
		},
		{
			Name:  "qwen",
			Argv0: []string{"qwen"},
			Scripts: []string{
				"@qwen-code/qwen-code/cli.js", "@qwen-code/qwen-code/dist/cli.js", "@qwen-code/qwen-code/dist/index.js",
			},
			Services: []string{"extensions", "hooks"},

			ConfigEnv: "QWEN_HOME", ConfigDir: ".qwen",
			HasTranscripts: true, HasEndHook: true,
			Format:   transcript.Qwen,
			HookFile: "settings.json", Hooks: []string{"SessionStart", "SessionEnd", "UserPromptSubmit", "Stop", "Notification"},
			find: findQwen, list: listQwen,

			Resume:     []string{"--resume", "{id}"},
			IDFlags:    []string{"--resume", "-r", "--session-id"},
			OlderFlags: []string{"--continue", "-c"},
		},
		{
			Name:     "opencode",
			Argv0:    []string{"opencode"},
			Scripts:  []string{"opencode-ai/bin/opencode"},
			Services: []string{"serve", "web", "auth", "models", "upgrade", "uninstall", "stats", "export", "import"},

			ConfigEnv: "XDG_DATA_HOME", ConfigSub: "opencode", ConfigDir: ".local/share/opencode",
			// One database holds every conversation: its growth says nothing of one.
			HasTranscripts: false,
			Format:         transcript.OpenCode,
			find:           findOpenCode,

			Resume:  []string{"--session", "{id}"},
			IDFlags: []string{"--session", "-s"},
		},
		{
			Name:     "amp",
			Argv0:    []string{"amp"},
			Scripts:  []string{"@sourcegraph/amp/dist/main.js"},
			Services: []string{"permissions", "tools", "skill"},

			ConfigEnv: "XDG_DATA_HOME", ConfigSub: "amp", ConfigDir: ".local/share/amp",
			HasTranscripts: true,
			Format:         transcript.Amp,
			find:           findAmp,

			Resume:     []string{"threads", "continue", "{id}"},
			IDCommands: [][]string{{"threads", "continue"}},
		},
		{
			Name:  "cursor-agent",
			Argv0: []string{"cursor-agent"},
			// Its installer links it as "agent", a name that others use too.
			Common: []string{"agent"}, Proof: "cursor-agent",
			Scripts:  []string{"cursor-agent/versions/*/index.js"},
			Services: []string{"worker-server", "status", "whoami", "about", "models", "ls", "create-chat"},

			ConfigDir:      ".cursor",
			HasTranscripts: true, HasEndHook: true,
			Format:   transcript.Cursor,
			HookFile: "hooks.json", Hooks: []string{"sessionStart", "sessionEnd", "beforeSubmitPrompt", "stop"},
			find: findCursor,

			Resume:  []string{"--resume", "{id}"},
			IDFlags: []string{"--resume"},
			// "resume" alone opens the newest.
			IDCommands: [][]string{{"resume"}},
		},
		{
			Name:    "aider",
			Argv0:   []string{"aider"},
			Scripts: []string{"aider/__main__.py", "aider/main.py"},
			Modules: []string{"aider", "aider.main"},

			HasTranscripts: true,
			Format:         transcript.Aider,
			find:           findAider,
		},
		{
			Name:     "copilot",
			Argv0:    []string{"copilot"},
			Scripts:  []string{"@github/copilot/index.js", "@github/copilot/npm-loader.js"},
			Services: []string{"version", "plugin"},

			ConfigEnv: "COPILOT_HOME", ConfigDir: ".copilot",
			HasTranscripts: true, HasEndHook: true,
			Format: transcript.Copilot,
			Hooks:  []string{"sessionStart", "sessionEnd", "userPromptSubmitted", "agentStop", "errorOccurred", "notification"},
			find:   findCopilot,

			Resume:  []string{"--resume={id}"},
			IDFlags: []string{"--resume"},
		},
	}
}

// isIndexOrLatest reports what gemini's --resume takes for a place in its list.
func isIndexOrLatest(id string) bool {
	if id == "latest" {
		return true
	}
	for _, c := range id {
		if c < '0' || c > '9' {
			return false
		}
	}
	return true
}
