package main

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// A conversation is the one that the agent is in.
type conversation struct {
	id        string
	file      string // "" before the first record
	launchDir string // the directory under which it is filed
	resumed   bool
	begun     bool     // its file has its beginning
	open_     *os.File // where the CLI keeps it open
}

// A store is where and how a CLI keeps its conversations.
type store struct {
	newID func() string
	// dir is below which the conversations that a resume looks at are.
	dir func(a *agent) string
	// path is the file of a new one; idOf tells the id of a file there, "" for
	// what is no conversation.
	path func(a *agent) string
	idOf func(path string) string
	// records are the lines that a turn adds. A store without is one object a
	// conversation, which whole makes of the former one.
	records func(a *agent, r record) []string
	whole   func(a *agent, old map[string]any, r record) map[string]any
	// held tells that the process keeps the file open.
	held bool
}

// A record is something that happened in a conversation.
type record struct {
	kind             kind
	text, tool, path string
}

type kind int

const (
	recordBegin kind = iota
	recordUser
	recordAssistant
	recordTool
	recordTitle
	recordCompact
)

var errInUse = errors.New("is already in use")

// open makes or finds the conversation that is asked for.
func (a *agent) open(l launch) error {
	a.launchDir = a.cwd
	if a.store == nil {
		return nil
	}
	from := l.resume
	if l.latest {
		if from = a.newest(); from == "" {
			return errors.New("no conversation to continue")
		}
	}
	if from == "" {
		a.id = a.store.newID()
		if l.create != "" {
			if !isUUID(l.create) {
				return fmt.Errorf("session id %q is not a UUID", l.create)
			}
			if a.find(l.create) != "" {
				return fmt.Errorf("session id %s %w", l.create, errInUse)
			}
			a.id = l.create
		}
		if !a.has("lazy") {
			a.write(record{kind: recordBegin})
		}
		return nil
	}
	path := a.find(from)
	if path == "" {
		return fmt.Errorf("no conversation found with session id: %s", from)
	}
	if l.fork || a.has("newid") {
		return a.copyOf(path, l.create)
	}
	a.take(from, path)
	return nil
}

// take goes on with a conversation.
func (a *agent) take(id, path string) {
	a.leave()
	if id == "" { // a store without ids
		id = a.store.idOf(path)
	}
	a.conversation = conversation{id: id, file: path, launchDir: a.launchDir, resumed: true, begun: true}
	a.hold()
}

// copyOf begins a conversation with the records of another, as they are.
func (a *agent) copyOf(path, id string) error {
	old, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	a.fresh(id)
	a.resumed = true
	a.write(record{kind: recordBegin})
	if a.store.records == nil || a.file == "" {
		return nil
	}
	// The first line is the other's beginning.
	if _, rest, ok := bytes.Cut(old, []byte("\n")); ok {
		return appendTo(a.file, rest)
	}
	return nil
}

// fresh begins a conversation without a file.
func (a *agent) fresh(id string) {
	a.leave()
	if id == "" {
		id = a.store.newID()
	}
	a.conversation = conversation{id: id, launchDir: a.launchDir}
	a.parent = ""
}

// leave lets go of the file.
func (a *agent) leave() {
	if a.open_ != nil {
		a.open_.Close()
		a.open_ = nil
	}
}

// hold keeps the file open where the CLI does.
func (a *agent) hold() {
	if a.store.held && a.open_ == nil && a.file != "" {
		a.open_, _ = os.OpenFile(a.file, os.O_WRONLY|os.O_APPEND, 0)
	}
}

// write adds a record. What cannot be written is not: the CLIs go on too.
func (a *agent) write(r record) {
	if a.store == nil || a.has("unsaved") && os.Getenv("CLAUDE_CODE_CHILD_SESSION") != "" {
		return
	}
	if a.file == "" {
		a.file = a.store.path(a)
		_ = os.MkdirAll(filepath.Dir(a.file), 0o700)
	}
	if !a.begun {
		a.begun = true
		if r.kind != recordBegin {
			a.put(record{kind: recordBegin})
		}
	}
	a.put(r)
	a.hold()
}

func (a *agent) put(r record) {
	if a.store.records != nil {
		var text []byte
		for _, line := range a.store.records(a, r) {
			text = append(append(text, line...), '\n')
		}
		_ = appendTo(a.file, text)
		return
	}
	old := map[string]any{}
	if text, err := os.ReadFile(a.file); err == nil {
		_ = json.Unmarshal(text, &old)
	}
	text, err := json.Marshal(a.store.whole(a, old, r))
	if err == nil && os.WriteFile(a.file+".tmp", text, 0o600) == nil {
		_ = os.Rename(a.file+".tmp", a.file)
	}
}

func appendTo(path string, text []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	return errors.Join(err, f.Close())
}

// find returns the file of a conversation that a resume finds, "" for none.
func (a *agent) find(id string) (found string) {
	a.each(func(path string, _ fs.FileInfo) {
		if a.store.idOf(path) == id {
			found = path
		}
	})
	return found
}

// newest returns the id of the conversation that was written to last.
func (a *agent) newest() (id string) {
	var last time.Time
	a.each(func(path string, info fs.FileInfo) {
		if found := a.store.idOf(path); found != "" && !info.ModTime().Before(last) {
			id, last = found, info.ModTime()
		}
	})
	return id
}

func (a *agent) each(f func(path string, info fs.FileInfo)) {
	_ = filepath.WalkDir(a.store.dir(a), func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return nil // what cannot be read is not there
		}
		if info, err := d.Info(); err == nil {
			f(path, info)
		}
		return nil
	})
}

// firstLine reads the first record of a file of JSON lines into to.
func firstLine(path string, to any) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return json.NewDecoder(io.LimitReader(f, 1<<20)).Decode(to)
}

// newUUID makes a random id (RFC 9562, version 4).
func newUUID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // it never fails
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

func isUUID(s string) bool {
	if len(s) != 36 {
		return false
	}
	for i, c := range s {
		dash := i == 8 || i == 13 || i == 18 || i == 23
		if dash != (c == '-') || !dash && !strings.ContainsRune("0123456789abcdefABCDEF", c) {
			return false
		}
	}
	return true
}

// stem is a file's name without its last ending.
func stem(path string) string {
	name := filepath.Base(path)
	return strings.TrimSuffix(name, filepath.Ext(name))
}
