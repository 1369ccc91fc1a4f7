package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// A cli is what distinguishes one CLI from the others.
type cli struct {
	name     string
	services []string // first arguments that start no session, beside the common ones

	rootEnv, rootSub, rootDir string // its config home

	// Its arguments: options that name a conversation, and words that do.
	resume, latest, create, fork, single []string
	valued                               []string // other options with a value
	words                                func(words []string, l *launch) []string

	store *store // nil: it keeps no conversations
	hooks *hooks // nil: it has none
	// env is what its hooks and tools find in their environment.
	env func(a *agent) []string
}

// commonServices are first arguments that start no session, of any CLI.
var commonServices = []string{
	"daemon", "mcp", "install", "update", "doctor", "config", "migrate-installer",
	"setup-token", "login", "logout", "completion",
}

var clis = []cli{
	{
		name: "claude", services: []string{"auth", "plugin"},
		rootEnv: "CLAUDE_CONFIG_DIR", rootDir: ".claude",
		resume: []string{"--resume", "-r"}, latest: []string{"--continue", "-c"},
		create: []string{"--session-id"}, fork: []string{"--fork-session"}, single: []string{"--print", "-p"},
		valued: []string{"--model", "--permission-mode", "--settings", "--append-system-prompt", "--output-format", "--add-dir"},
		store:  claudeStore, hooks: claudeHooks,
		env: func(a *agent) []string {
			return []string{
				"CLAUDECODE=1", "CLAUDE_CODE_SESSION_ID=" + a.id, "CLAUDE_CODE_CHILD_SESSION=1",
				fmt.Sprintf("CLAUDE_PID=%d", os.Getpid()), "CLAUDE_CODE_ENTRYPOINT=cli", "CLAUDE_PROJECT_DIR=" + a.launchDir,
			}
		},
	},
	{
		name: "codex", services: []string{"mcp-server", "app-server", "sandbox", "debug", "features"},
		rootEnv: "CODEX_HOME", rootDir: ".codex",
		latest: []string{"--last"},
		valued: []string{"--model", "-m", "--profile", "-p", "--config", "-c", "--sandbox", "-s", "--ask-for-approval", "-a", "--cd", "-C"},
		words:  codexWords, store: codexStore, hooks: codexHooks,
		env: func(a *agent) []string { return []string{"CODEX_THREAD_ID=" + a.id} },
	},
	{
		name: "gemini", services: []string{"extensions", "hooks", "skills"}, rootDir: ".gemini",
		resume: []string{"--resume", "-r"}, single: []string{"--prompt", "-p"}, valued: []string{"--model", "-m", "--approval-mode"},
		store: geminiStore, hooks: geminiHooks,
		env: func(a *agent) []string {
			return []string{"GEMINI_CLI=1", "GEMINI_SESSION_ID=" + a.id, "GEMINI_PROJECT_DIR=" + a.launchDir}
		},
	},
	{
		name: "qwen", services: []string{"extensions", "hooks"}, rootEnv: "QWEN_HOME", rootDir: ".qwen",
		resume: []string{"--resume", "-r"}, latest: []string{"--continue", "-c"}, create: []string{"--session-id"},
		single: []string{"--prompt", "-p"}, valued: []string{"--model", "-m", "--approval-mode"},
		store: qwenStore, hooks: qwenHooks,
		env: func(a *agent) []string { return []string{"QWEN_CODE=1", "QWEN_PROJECT_DIR=" + a.launchDir} },
	},
	{
		name: "opencode", services: []string{"serve", "web", "auth", "models", "upgrade", "stats", "export", "import"},
		rootEnv: "XDG_DATA_HOME", rootSub: "opencode", rootDir: ".local/share/opencode",
		resume: []string{"--session", "-s"}, latest: []string{"--continue", "-c"}, valued: []string{"--model", "-m"},
		store: opencodeStore,
	},
	{
		name: "amp", services: []string{"permissions", "tools", "skill"},
		rootEnv: "XDG_DATA_HOME", rootSub: "amp", rootDir: ".local/share/amp",
		words: ampWords, store: ampStore,
	},
	{
		name: "cursor-agent", services: []string{"status", "whoami", "about", "models", "ls", "create-chat"}, rootDir: ".cursor",
		resume: []string{"--resume"}, latest: []string{"--continue"}, single: []string{"--print", "-p"}, valued: []string{"--model"},
		words: cursorWords, store: cursorStore, hooks: cursorHooks,
		env: func(a *agent) []string { return []string{"CURSOR_AGENT=1"} },
	},
	{
		name: "aider", valued: []string{"--model", "--message"}, latest: []string{"--restore-chat-history"}, store: aiderStore,
	},
	{
		name: "copilot", services: []string{"version", "plugin"}, rootEnv: "COPILOT_HOME", rootDir: ".copilot",
		resume: []string{"--resume"}, latest: []string{"--continue"}, single: []string{"--prompt", "-p"}, valued: []string{"--model"},
		store: copilotStore, hooks: copilotHooks,
	},
}

// lookup returns the CLI of that name, or one that has only a name.
func lookup(name string) *cli {
	if name == "agent" { // as cursor-agent's installer links it
		name = "cursor-agent"
	}
	for i := range clis {
		if clis[i].name == name {
			return &clis[i]
		}
	}
	return &cli{name: name}
}

// home is the config home.
func (c *cli) home() string {
	if v := os.Getenv(c.rootEnv); c.rootEnv != "" && filepath.IsAbs(v) {
		return filepath.Join(v, c.rootSub)
	}
	home, err := os.UserHomeDir()
	if err != nil || c.rootDir == "" {
		return ""
	}
	return filepath.Join(home, c.rootDir)
}

// A launch is what the arguments ask for.
type launch struct {
	resume        string // an id
	create        string // an id
	latest, fork  bool
	print         bool // one prompt, then the end
	prompt        string
	service       bool
	version       bool
	resumeWithout bool // a resume of nothing that is named
}

// parse reads a command line.
func (c *cli) parse(args []string) (l launch, err error) {
	if len(args) > 0 && (slices.Contains(commonServices, args[0]) || slices.Contains(c.services, args[0])) {
		return launch{service: true}, nil
	}
	var words []string
	for i := 0; i < len(args); i++ {
		name, value, inline := strings.Cut(args[i], "=")
		next := func() string { // the option's value, where it must have one
			if !inline && i+1 < len(args) {
				i++
				value = args[i]
			}
			return value
		}
		switch {
		case args[i] == "--":
			words = append(words, args[i+1:]...)
			i = len(args)
		case name == "--version":
			l.version = true
		case slices.Contains(c.resume, name):
			if !inline && i+1 < len(args) && !strings.HasPrefix(args[i+1], "-") {
				next()
			}
			l.resume, l.resumeWithout = value, value == ""
		case slices.Contains(c.create, name):
			l.create = next()
		case slices.Contains(c.latest, name):
			l.latest = true
		case slices.Contains(c.fork, name):
			l.fork = true
		case slices.Contains(c.single, name):
			l.print = true
		case slices.Contains(c.valued, name):
			next()
		case strings.HasPrefix(name, "-"):
		default:
			words = append(words, args[i])
		}
	}
	if c.words != nil {
		words = c.words(words, &l)
	}
	l.prompt = strings.Join(words, " ")
	switch {
	case l.resumeWithout && !l.latest:
		return l, errors.New("a resume needs an id: there is nobody to pick one")
	case l.resume != "" && l.latest, l.create != "" && (l.resume != "" || l.latest) && !l.fork:
		return l, errors.New("more than one conversation is asked for")
	}
	return l, nil
}

// codexWords reads exec, resume and fork. They are subcommands only in their
// place: the value of an option is none.
func codexWords(words []string, l *launch) []string {
	if len(words) > 0 && (words[0] == "exec" || words[0] == "e") {
		l.print, words = true, words[1:]
	}
	if len(words) == 0 || words[0] != "resume" && words[0] != "fork" {
		l.latest = false
		return words
	}
	l.fork = words[0] == "fork"
	words = words[1:]
	if l.latest {
		return words
	}
	if len(words) == 0 {
		l.resumeWithout = true
		return nil
	}
	l.resume = words[0]
	return words[1:]
}

func ampWords(words []string, l *launch) []string {
	if len(words) < 2 || words[0] != "threads" || words[1] != "continue" {
		return words
	}
	if words = words[2:]; len(words) == 0 {
		l.resumeWithout = true
		return nil
	}
	l.resume = words[0]
	return words[1:]
}

func cursorWords(words []string, l *launch) []string {
	if len(words) > 0 && words[0] == "resume" {
		l.latest = true
		return words[1:]
	}
	return words
}
