package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sessionledger/ledger"
)

func installHooks(ctx context.Context, a *app, flags *flag.FlagSet) func([]string) error {
	return func(args []string) error {
		return a.eachHooks(args, ledger.InstallHooks, "run ledgerctl now")
	}
}

func uninstallHooks(ctx context.Context, a *app, flags *flag.FlagSet) func([]string) error {
	return func(args []string) error {
		return a.eachHooks(args, ledger.UninstallHooks, "are as they were before")
	}
}

// eachHooks changes the hooks of the named runtimes, or of those that are used here. One
// that fails does not keep the others.
func (a *app) eachHooks(names []string, change func(string, ledger.InstallOptions) (ledger.HookChange, error), done string) error {
	named := len(names) > 0
	if !named {
		names = ledger.HookRuntimes()
	}
	var errs []error
	for _, name := range names {
		opts, err := a.hookOptions(name)
		if err != nil {
			return err
		}
		if now, _, err := ledger.Hooks(name, opts); !named && err == nil && !used(name, now.Path) {
			continue
		}
		c, err := change(name, opts)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if a.json {
			if err := a.line(c); err != nil {
				return err
			}
			continue
		}
		what := "nothing to do"
		if c.Changed {
			what = "changed: the hooks " + done
		}
		fmt.Fprintf(a.stdout, "%s: %s (%s)\n", c.Runtime, what, plain(c.Path))
	}
	return errors.Join(errs...)
}

// used reports whether an agent is installed here, or has been.
func used(name, settings string) bool {
	if _, err := ledger.NextOnPath(name, os.Getenv("AGENT_LEDGER_SHIMS")); err == nil {
		return true
	}
	dir := filepath.Dir(settings)
	if filepath.Base(dir) == "hooks" {
		dir = filepath.Dir(dir)
	}
	info, err := os.Stat(dir)
	return err == nil && info.IsDir()
}

// hookOptions have this very program run as the hook, with the ledger that it was given.
func (a *app) hookOptions(runtime string) (ledger.InstallOptions, error) {
	self, err := os.Executable()
	if err != nil {
		return ledger.InstallOptions{}, err
	}
	command := shellWord(self)
	if a.dir != "" {
		dir, err := filepath.Abs(a.dir)
		if err != nil {
			return ledger.InstallOptions{}, err
		}
		command += " -dir " + shellWord(dir)
	}
	return ledger.InstallOptions{Command: command + " hook " + runtime}, nil
}

// shellWord quotes a word for a shell, where it needs that.
func shellWord(s string) string {
	if bareWord(s) {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// hooksState is one line of the doctor about a runtime that is used here.
type hooksState struct {
	Kind    string   `json:"kind"` // hooks
	Runtime string   `json:"runtime"`
	Path    string   `json:"path"`
	Message string   `json:"message"`
	Missing []string `json:"missing"` // events at which nothing is run
	Broken  bool     `json:"broken"`

	none bool // nothing is installed
}

// hooksStates says of each agent that is used here whether its hooks are installed.
func (a *app) hooksStates() (states []hooksState) {
	for _, name := range ledger.HookRuntimes() {
		opts, err := a.hookOptions(name)
		if err != nil {
			return nil
		}
		now, missing, err := ledger.Hooks(name, opts)
		st := hooksState{Kind: "hooks", Runtime: name, Path: now.Path, Missing: missing}
		switch {
		case err != nil:
			st.Message = "the hook settings cannot be read: " + err.Error()
		case !used(name, now.Path):
			continue
		case len(missing) == 0:
			st.Message = name + ": the hooks are installed"
		case len(now.Events) == 0:
			st.none = true
			st.Message = name + ": the hooks are not installed: ledgerctl install-hooks " + name
		default:
			slices.Sort(missing)
			st.Message = name + ": hooks are missing (" + strings.Join(missing, ", ") + "): ledgerctl install-hooks " + name
		}
		states = append(states, st)
	}
	return states
}
