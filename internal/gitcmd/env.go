package gitcmd

import (
	"fmt"
	"os"
	"slices"
	"strings"
)

// overrides go before the subcommand, so that they outrank every configuration file and reach
// the git children of git.
var overrides = [...]string{
	"--no-pager",
	"-c", "core.hooksPath=" + os.DevNull, // post-index-change, reference-transaction and all others
	"-c", "core.fsmonitor=", // empty is off for every version; "false" was once a program's name
	"-c", "core.splitIndex=false", // a split scratch index would write into the git directory
	"-c", "core.sparseCheckout=false", // the skip-worktree bits alone say what is absent on purpose
	"-c", "core.safecrlf=false", // would refuse content for the sake of its line ends
	"-c", "core.fsync=" + fsyncComponents,
	"-c", "core.fsyncMethod=fsync",
	"-c", "i18n.commitEncoding=UTF-8",
}

// fixedEnv is set for every git child.
var fixedEnv = [...]string{
	"LC_ALL=C", // messages are read
	"GIT_OPTIONAL_LOCKS=0",
	"GIT_TERMINAL_PROMPT=0",
	"GIT_ASKPASS=",
	"SSH_ASKPASS=",
	"GIT_ALLOW_PROTOCOL=none", // outranks protocol.*.allow: a partial clone fetches nothing
	"GIT_NO_LAZY_FETCH=1",
	"GIT_TRACE2=0", "GIT_TRACE2_EVENT=0", "GIT_TRACE2_PERF=0", // configured targets may be sockets
}

// keptEnv are the GIT_ variables that say where git and its configuration are, and how far up to
// look. All others describe one repository or one command: the caller may itself run below git.
var keptEnv = []string{
	"GIT_EXEC_PATH",
	"GIT_CONFIG_GLOBAL",
	"GIT_CONFIG_SYSTEM",
	"GIT_CONFIG_NOSYSTEM",
	"GIT_CEILING_DIRECTORIES",
	"GIT_DISCOVERY_ACROSS_FILESYSTEM",
}

// setting is one configuration value for one command. They travel by environment, since a
// filter's name, which is part of the key, may hold any byte, "=" too.
type setting struct{ key, value string }

func buildEnv(base, extra []string, config []setting) []string {
	env := make([]string, 0, len(base)+len(fixedEnv)+len(extra)+2*len(config)+1)
	for _, kv := range base {
		key, _, _ := strings.Cut(kv, "=")
		switch {
		case strings.HasPrefix(key, "GIT_") && !slices.Contains(keptEnv, key),
			key == "LC_ALL", key == "LANGUAGE", key == "SSH_ASKPASS", key == "PWD", key == "OLDPWD":
		default:
			env = append(env, kv)
		}
	}
	env = append(env, fixedEnv[:]...)
	env = append(env, extra...)
	if len(config) > 0 {
		env = append(env, fmt.Sprintf("GIT_CONFIG_COUNT=%d", len(config)))
		for i, s := range config {
			env = append(env, fmt.Sprintf("GIT_CONFIG_KEY_%d=%s", i, s.key), fmt.Sprintf("GIT_CONFIG_VALUE_%d=%s", i, s.value))
		}
	}
	return env
}
