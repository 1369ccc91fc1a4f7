package runtimes

import (
	"path/filepath"
	"slices"
	"strings"
)

// Homes tells where a session keeps its files. The session's own environment
// decides, not that of the process that asks.
type Homes struct {
	// Home is the user's home directory, used where the environment has none.
	Home string
	// Getenv looks a variable of the session's environment up, "" when it is
	// not set. Nil is an environment without variables.
	Getenv func(string) string
}

func (h Homes) env(name string) string {
	if h.Getenv == nil || name == "" {
		return ""
	}
	return h.Getenv(name)
}

func (h Homes) home() string {
	if v := h.env("HOME"); filepath.IsAbs(v) {
		return v
	}
	return h.Home
}

// ConfigHome is the folder below which the runtime keeps its conversations, ""
// when it has none or no home directory is known. A variable that holds no
// absolute path is ignored.
func (s Spec) ConfigHome(h Homes) string {
	if v := h.env(s.ConfigEnv); filepath.IsAbs(v) {
		return filepath.Join(v, s.ConfigSub)
	}
	if s.ConfigDir == "" || h.home() == "" {
		return ""
	}
	return filepath.Join(h.home(), s.ConfigDir)
}

// accountHomes are the variables that place a session in an account.
var accountHomes = []string{"CLAUDE_CONFIG_DIR", "CODEX_HOME", "HOME"}

// Account is the account that a session's config homes name: the path element
// after "accounts" in CLAUDE_CONFIG_DIR, CODEX_HOME or HOME. The runtime's own
// variable goes first. "" is the default account.
func (s Spec) Account(h Homes) string {
	names := accountHomes
	if slices.Contains(names, s.ConfigEnv) {
		names = append([]string{s.ConfigEnv}, names...)
	}
	for _, name := range names {
		v := h.env(name)
		if name == "HOME" {
			v = h.home()
		}
		if slug := accountSlug(v); slug != "" {
			return slug
		}
	}
	return ""
}

// accountSlug takes the innermost account of a path.
func accountSlug(p string) string {
	if !filepath.IsAbs(p) {
		return ""
	}
	els := strings.Split(filepath.ToSlash(filepath.Clean(p)), "/")
	for i := len(els) - 2; i >= 0; i-- {
		if els[i] == "accounts" && els[i+1] != "" {
			return els[i+1]
		}
	}
	return ""
}

// ConfigHomeOf is the config home below which a conversation's file lies, as the
// file's own place tells; it is not ok for a file in none of the runtime's places.
func (s Spec) ConfigHomeOf(file string) (home string, ok bool) {
	// Folder names from the config home down to the file's folder; * is any.
	var places []string
	switch s.Name {
	case "claude":
		places = []string{"projects/*"}
	case "codex":
		places = []string{"sessions/*/*/*", "archived_sessions"}
	case "gemini":
		places = []string{"tmp/*/chats"}
	case "qwen":
		places = []string{"projects/*/chats"}
	case "amp":
		places = []string{"threads"}
	case "cursor-agent":
		places = []string{"projects/*/agent-transcripts", "projects/*/agent-transcripts/*", "chats/*/*"}
	case "copilot":
		places = []string{"session-state/*"}
	}
	for _, place := range places {
		home := filepath.Dir(file)
		fits := true
		for _, name := range slices.Backward(strings.Split(place, "/")) {
			fits = fits && (name == "*" || name == filepath.Base(home))
			home = filepath.Dir(home)
		}
		if fits {
			return home, true
		}
	}
	return "", false
}
