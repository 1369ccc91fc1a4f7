// Package settings puts a command into an agent CLI's hook settings and takes
// it out again.
//
// The file is a person's. It is edited as text, so that all that is not ours
// keeps its bytes: order, indentation, line ends, escapes, numbers. What is not
// understood is refused and left alone. An entry is ours when its command is
// ours to the byte; nothing else marks it, since some CLIs refuse members that
// they do not know.
//
// Taking out restores the very bytes that putting in found. A container that
// was empty before is told from one that was made for the entry by spaces at
// the end of its first line (see mark in edit.go). Where another program has
// reformatted the file meanwhile these are gone: then the containers that hold
// nothing else are removed.
package settings

import (
	"bytes"
	"errors"
	"io/fs"
	"slices"
	"time"

	"github.com/sessionledger/ledger/internal/durable"
)

var (
	// ErrNoSettings says that the runtime has no hook settings file, or none
	// whose form is established.
	ErrNoSettings = errors.New("the runtime has no hook settings file")
	// ErrMalformed says that a file is not one JSON value in UTF-8 without a
	// byte order mark, comments and repeated member names.
	ErrMalformed = errors.New("not strict JSON")
	// ErrShape says that a file is JSON and its hooks are of a wrong type.
	ErrShape = errors.New("hooks of a wrong type")
	// ErrNotRegular says that the path names a folder, a FIFO, a device or a
	// socket.
	ErrNotRegular = errors.New("not a regular file")
	// ErrTooLarge says that a file has, or would have, more than MaxFile bytes.
	ErrTooLarge = errors.New("settings file too large")
	// ErrBusy says that the file kept changing, or that another installer kept
	// its lock.
	ErrBusy = errors.New("the settings file is being changed")
)

// MaxFile is the most bytes a settings file may have.
const MaxFile = 1 << 20

// A Form is how a runtime writes hooks down. The zero Form is that of a runtime
// without a settings file; every function refuses it with ErrNoSettings.
type Form int

// The forms. Those of claude, gemini and qwen are established in
// facts/runtimes.md; the others, and all units of time, in the vendors' own
// references.
const (
	// Claude is hooks.<Event>[].hooks[] {type, command, timeout in seconds} of
	// Claude Code. Codex has the same in its hooks.json, and runs an entry only
	// after a person has trusted it.
	Claude Form = iota + 1
	// Gemini is that of Claude with the timeout in milliseconds. Qwen Code has
	// the same; its newer versions count in seconds, and still take a value of
	// 1000 and more for milliseconds.
	Gemini
	// Cursor is version 1 and hooks.<event>[] {command, timeout in seconds} of
	// cursor-agent's hooks.json.
	Cursor
	// Copilot is version 1 and hooks.<event>[] {type, bash, timeoutSec} of a
	// file in Copilot CLI's hooks folder.
	Copilot
)

// FormOf returns the form of a runtime's settings file, ErrNoSettings where it
// has none.
func FormOf(runtime string) (Form, error) {
	switch runtime {
	case "claude", "codex":
		return Claude, nil
	case "gemini", "qwen":
		return Gemini, nil
	case "cursor-agent":
		return Cursor, nil
	case "copilot":
		return Copilot, nil
	}
	return 0, ErrNoSettings
}

// A layout is a Form taken apart.
type layout struct {
	grouped   bool   // entries stand in groups, which can have a matcher
	typed     bool   // an entry says that it is a command
	versioned bool   // the file says that it is of version 1
	command   string // the member that holds the command
	timeout   string // the member that holds the time limit
	unit      time.Duration
	least     int64 // the smallest time limit that is not misread
}

// layoutOf returns the layout of a form, the zero value for what is none.
func layoutOf(form Form) layout {
	switch form {
	case Claude:
		return layout{grouped: true, typed: true, command: "command", timeout: "timeout", unit: time.Second, least: 1}
	case Gemini:
		return layout{grouped: true, typed: true, command: "command", timeout: "timeout", unit: time.Millisecond, least: 1000}
	case Cursor:
		return layout{versioned: true, command: "command", timeout: "timeout", unit: time.Second, least: 1}
	case Copilot:
		return layout{typed: true, versioned: true, command: "bash", timeout: "timeoutSec", unit: time.Second, least: 1}
	}
	return layout{}
}

// Install makes the command an entry of each event that does not have it yet,
// whatever else that event runs. timeout is the entry's time limit, rounded up
// to the form's unit; 0 leaves the runtime's own. A missing file is made with
// mode 0600, and its folder with 0700; a link is followed, and its target
// replaced. changed is false where nothing was to do, and the file is then
// untouched.
//
// The new file has the old one's mode and owner, and survives a power cut.
// After an error the old file is intact, unless changed is true: then the new
// one is there and its folder could not be synced. The error wraps one of this
// package, or is the file system's.
func Install(path string, form Form, events []string, command string, timeout time.Duration) (changed bool, err error) {
	l, err := check(form, command, events...)
	if err != nil {
		return false, err
	}
	return change(path, func(text []byte, exists bool) ([]byte, error) {
		if !exists {
			text = []byte("{}\n")
		}
		return l.install(text, events, command, timeout)
	})
}

// Uninstall takes every entry with that command out, of whatever event, and
// what Install made to hold it. A file that Install made stays, as {}. changed
// is false where there was none.
func Uninstall(path string, form Form, command string) (changed bool, err error) {
	l, err := check(form, command)
	if err != nil {
		return false, err
	}
	return change(path, func(text []byte, _ bool) ([]byte, error) {
		return l.uninstall(text, command)
	})
}

// Installed returns the events that have the command, sorted. A missing file
// has none.
func Installed(path string, form Form, command string) ([]string, error) {
	l, err := check(form, command)
	if err != nil {
		return nil, err
	}
	f, err := read(path)
	if err != nil || len(f.text) == 0 {
		return nil, err
	}
	var events []string
	err = located(path, func() error {
		root, hooks, err := l.open(f.text)
		if err != nil || root == nil || hooks == nil {
			return err
		}
		for _, m := range hooks.members {
			if l.has(m.value, command) {
				events = append(events, m.name)
			}
		}
		return nil
	})
	slices.Sort(events)
	return events, err
}

// check refuses what no file can hold.
func check(form Form, command string, events ...string) (layout, error) {
	l := layoutOf(form)
	if l == (layout{}) {
		return l, ErrNoSettings
	}
	if command == "" || slices.Contains(events, "") || !isText(command) || !isText(events...) {
		return l, fs.ErrInvalid
	}
	return l, nil
}

// located gives an error its path.
func located(path string, f func() error) error {
	if err := f(); err != nil {
		return &fs.PathError{Op: "edit", Path: path, Err: err}
	}
	return nil
}

// attempts bounds how often an edit is made again because the file changed
// under it.
const attempts = 10

// change reads the file, edits its text and puts it back. Two of our own are
// kept apart by a lock on the folder. Other programs do not take it: the file is
// compared once more just before it is replaced, and the edit made again where
// it differs.
func change(path string, edit func(text []byte, exists bool) ([]byte, error)) (changed bool, err error) {
	var unlock func()
	for range attempts {
		f, err := read(path)
		if err != nil {
			return false, err
		}
		var edited []byte
		err = located(path, func() (err error) {
			if edited, err = edit(f.text, f.exists); err == nil && len(edited) > MaxFile {
				err = ErrTooLarge
			}
			return err
		})
		if err != nil || bytes.Equal(edited, f.text) {
			return false, err
		}
		if unlock == nil {
			// Only now, so that a call that has nothing to do makes no folder.
			if unlock, err = lock(f.target); err != nil {
				return false, err
			}
			defer unlock()
			continue
		}
		err = f.replace(edited)
		if errors.Is(err, errChanged) {
			continue
		}
		unsynced := (*durable.SyncError)(nil)
		return err == nil || errors.As(err, &unsynced), err
	}
	return false, &fs.PathError{Op: "edit", Path: path, Err: ErrBusy}
}
