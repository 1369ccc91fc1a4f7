package gitcmd

import (
	"context"
	"errors"
	"slices"
	"strings"
)

// filters are the configured content filters, and those of them that could not run.
type filters struct {
	names   []string
	process []string // those of them that run as long as git does
	failed  []string
}

// overrides switch the failed filters off. Every command that reads or writes the throwaway
// index may run filters, so they go with all of them.
func (f *filters) overrides() []setting {
	var s []setting
	for _, name := range f.failed {
		key := "filter." + name + "."
		s = append(s, setting{key + "clean", ""}, setting{key + "process", ""}, setting{key + "required", "false"})
	}
	return s
}

// failure says whether a command failed for a filter that has not been switched off yet, and
// switches it off. Git names it, but for a long-running one that dies in its first words, and
// for names that it does not print as they are: then all that it could be are off.
func (f *filters) failure(stderr string) bool {
	before := len(f.failed)
	off := func(could func(name string) bool) bool {
		for _, name := range f.names {
			if !slices.Contains(f.failed, name) && could(name) {
				f.failed = append(f.failed, name)
			}
		}
		return len(f.failed) > before
	}
	if strings.Contains(stderr, ": clean filter '") {
		return off(func(name string) bool { return strings.Contains(stderr, ": clean filter '"+name+"' failed") }) ||
			off(func(string) bool { return true })
	}
	for _, text := range []string{"the remote end hung up unexpectedly", "protocol error: ", "Unexpected line '"} {
		if strings.Contains(stderr, text) {
			return off(func(name string) bool { return slices.Contains(f.process, name) })
		}
	}
	return false
}

// config is what a snapshot needs to know of a repository's configuration.
type config struct {
	filters filters
	sparse  bool // files may be absent on purpose

	// off disables, by name, the hooks that are configured instead of put into a folder (git 2.54).
	off []setting
}

func (r Runner) readConfig(ctx context.Context, dir string) (config, error) {
	out, _, err := r.output(ctx, call{dir: dir, args: []string{
		"config", "-z", "--get-regexp", `^(hook|filter)\..*\.|^core\.sparsecheckout$`,
	}})
	var ge *Error
	if err != nil && !(errors.As(err, &ge) && ge.ExitCode == 1) { // 1: none
		return config{}, err
	}
	return parseConfig(out), nil
}

func parseConfig(out []byte) config {
	var c config
	for _, rec := range splitNUL(out) {
		key, value, _ := strings.Cut(rec, "\n")
		if key == "core.sparsecheckout" {
			// The command line's own override is the last; an earlier true is what counts.
			c.sparse = c.sparse || !slices.Contains([]string{"false", "no", "off", "0", ""}, strings.ToLower(value))
			continue
		}
		section, rest, _ := strings.Cut(key, ".")
		i := strings.LastIndexByte(rest, '.')
		if i < 0 {
			continue
		}
		name := rest[:i]
		switch section {
		case "filter":
			if !slices.Contains(c.filters.names, name) {
				c.filters.names = append(c.filters.names, name)
			}
			if rest[i:] == ".process" {
				c.filters.process = append(c.filters.process, name)
			}
		case "hook":
			if s := (setting{"hook." + name + ".enabled", "false"}); !slices.Contains(c.off, s) {
				c.off = append(c.off, s)
			}
		}
	}
	return c
}
