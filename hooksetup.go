package ledger

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/sessionledger/ledger/internal/runtimes"
	"github.com/sessionledger/ledger/internal/settings"
)

// InstallOptions say which command a runtime's hooks are to run. Only Command is required.
type InstallOptions struct {
	// Command is what the hooks run, as the runtime's shell reads it: quote a path that is
	// not plain. It gets the payload on standard input. An entry is known again by it, to
	// the byte.
	Command string
	// Path is the settings file. "": the runtime's own, in its config home.
	Path string
	// Home is the user's home folder, Getenv the environment that may name config homes. "",
	// nil: this process's.
	Home   string
	Getenv func(string) string
	// Timeout is the time limit of an entry. 0: 5 s.
	Timeout time.Duration
}

// HookChange says what became of a runtime's hook settings.
type HookChange struct {
	Runtime string   `json:"runtime"`
	Path    string   `json:"path"`    // the settings file
	Events  []string `json:"events"`  // that run the command now
	Changed bool     `json:"changed"` // the file was written
}

// hookTimeout bounds a hook whose file system hangs; all else of it takes a second at most.
const hookTimeout = 5 * time.Second

// HookRuntimes lists the built-in runtimes that have a hook settings file.
func HookRuntimes() (names []string) {
	for _, s := range runtimes.Builtin() {
		if _, err := settings.FormOf(s.Name); err == nil {
			names = append(names, s.Name)
		}
	}
	return names
}

// InstallHooks makes the command run at every event of the runtime that tells of a session.
// A person's own hooks, and all other bytes of the settings file, stay as they are; a
// second call changes nothing; the file is replaced whole.
//
// The error is [ErrInvalid] for a runtime without a settings file and for a command that is
// no text, [ErrBusy] where others keep changing the file, and otherwise names what is wrong
// with the file, which is then untouched: malformed JSON, hooks of a wrong type.
func InstallHooks(runtime string, opts InstallOptions) (HookChange, error) {
	return setHooks(runtime, opts, func(c *HookChange, form settings.Form, events []string) (err error) {
		c.Changed, err = settings.Install(c.Path, form, events, opts.Command, cmp.Or(opts.Timeout, hookTimeout))
		return err
	})
}

// UninstallHooks takes the command out of the runtime's settings again, which leaves the
// very bytes that InstallHooks found, or {} where it found no file. Errors are those of
// InstallHooks.
func UninstallHooks(runtime string, opts InstallOptions) (HookChange, error) {
	return setHooks(runtime, opts, func(c *HookChange, form settings.Form, _ []string) (err error) {
		c.Changed, err = settings.Uninstall(c.Path, form, opts.Command)
		return err
	})
}

// Hooks says at which events the runtime runs the command, and changes nothing. Missing are
// those at which InstallHooks would have it run besides.
func Hooks(runtime string, opts InstallOptions) (now HookChange, missing []string, err error) {
	now, err = setHooks(runtime, opts, func(_ *HookChange, _ settings.Form, events []string) error {
		missing = events
		return nil
	})
	return now, slices.DeleteFunc(missing, func(ev string) bool { return slices.Contains(now.Events, ev) }), err
}

// setHooks finds the settings file, changes it, and reads what it then says.
func setHooks(runtime string, opts InstallOptions, change func(*HookChange, settings.Form, []string) error) (c HookChange, err error) {
	defer func() {
		switch {
		case err == nil:
			return
		case errors.Is(err, settings.ErrBusy):
			err = fmt.Errorf("%w: %w", ErrBusy, err)
		case errors.Is(err, fs.ErrInvalid):
			err = fmt.Errorf("%w: %w", ErrInvalid, err)
		}
		err = fmt.Errorf("ledger: hooks of %s: %w", runtime, err)
	}()
	c = HookChange{Runtime: runtime, Path: opts.Path, Events: []string{}}
	form, err := settings.FormOf(runtime)
	if err != nil {
		return c, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	if opts.Command == "" {
		return c, fmt.Errorf("%w: no command", ErrInvalid)
	}
	spec, _ := runtimes.Builtin().Lookup(runtime)
	if c.Path == "" {
		if c.Path, err = hookFile(spec, opts); err != nil {
			return c, err
		}
	}
	if err := change(&c, form, slices.Clone(spec.Hooks)); err != nil {
		return c, err
	}
	events, err := settings.Installed(c.Path, form, opts.Command)
	c.Events = append(c.Events, events...)
	return c, err
}

// hookFile is a runtime's own settings file.
func hookFile(spec runtimes.Spec, opts InstallOptions) (string, error) {
	homes := runtimes.Homes{Home: opts.Home, Getenv: opts.Getenv}
	if homes.Getenv == nil {
		homes.Getenv = os.Getenv
	}
	if opts.Home != "" {
		env := homes.Getenv
		homes.Getenv = func(name string) string {
			if name == "HOME" {
				return ""
			}
			return env(name)
		}
	} else if home, err := os.UserHomeDir(); err == nil {
		homes.Home = home
	}
	config := spec.ConfigHome(homes)
	if config == "" {
		return "", errors.New("its config home is not known")
	}
	switch {
	case spec.HookFile != "":
		return filepath.Join(config, spec.HookFile), nil
	case spec.Name == "copilot":
		return filepath.Join(config, "hooks", "ledger.json"), nil // every file there counts
	}
	return filepath.Join(config, "hooks.json"), nil
}
