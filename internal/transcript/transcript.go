// Package transcript reads what an agent CLI's conversation file says about
// itself: whose it is, what it is about, what happened last.
//
// Files reach hundreds of megabytes and grow while they are read, so at most
// the first and the last 64 KiB are looked at, and torn lines, NULs, invalid
// UTF-8 and records of unknown shape are passed over: they are no error, there
// is only less to say. Nothing is ever guessed, and nothing is written.
package transcript

import (
	"context"
	"io/fs"
	"path/filepath"
	"strings"
	"time"
)

// MaxText is the most runes a title or an activity has.
const MaxText = 200

// Answer is a yes or no that may be unknown. The zero Answer is Unknown.
type Answer int

// The answers.
const (
	Unknown Answer = iota
	No
	Yes
)

// String returns "unknown", "no" or "yes".
func (a Answer) String() string {
	switch a {
	case No:
		return "no"
	case Yes:
		return "yes"
	}
	return "unknown"
}

// A Format is the kind of records in a conversation file.
type Format int

// The formats. Several cover more than one generation of a CLI's files; which
// one it is shows in the file.
const (
	None     Format = iota // not readable: only size and time are known
	Claude                 // JSON lines of Claude Code
	Qwen                   // JSON lines of Qwen Code
	Codex                  // rollout JSON lines of Codex
	Gemini                 // JSON lines of Gemini CLI, or its older single object
	Copilot                // events.jsonl of Copilot CLI
	Cursor                 // text or JSON lines of cursor-agent
	Amp                    // a thread as a single object
	OpenCode               // a session's description as a single object
	Aider                  // the Markdown chat history of a repository
)

// Info is what a conversation file says. A field that the file does not tell
// has its zero value.
type Info struct {
	// ID is the conversation's id.
	ID string
	// Cwd is the directory in which the conversation began.
	Cwd string
	// CwdHash is the SHA-256 of that directory in hex digits, where the file
	// tells no more of it.
	CwdHash string
	// Began is the time of its first record that has one, which is read of Claude
	// Code's, Qwen's and Gemini's files. A copy of another conversation begins when
	// that one did.
	Began time.Time
	// Branch is the git branch last recorded.
	Branch string
	// Title is the runtime's own title, else the first message a person wrote.
	// It is one line of at most MaxText runes without control characters.
	Title string
	// Activity is the agent's last tool use ("Tool: main argument") or text,
	// in the same form as Title.
	Activity string
	// Subagent tells whether this is a subagent's thread or a side chain, which
	// is never bound to a row. Codex files alone must say No to be bound: their
	// first line, which tells, may be written seconds after the start.
	Subagent Answer
	// ModTime and Size are those of the opened file, before it was read.
	ModTime time.Time
	Size    int64
	// BytesRead is how much of it was read.
	BytesRead int64
}

// A Reader reads conversation files one after the other, in one buffer. The
// zero Reader is ready; it is not safe for concurrent use.
type Reader struct {
	buf []byte
}

// Read reads one conversation file. The error is that of the context, or one of
// the file system's; it wraps ErrNotRegular for a path that names no regular
// file, and fs.ErrNotExist for one that names nothing. Contents never are an
// error. A read that hangs inside the file system is not interrupted.
func Read(ctx context.Context, path string, format Format) (Info, error) {
	var r Reader
	return r.Read(ctx, path, format)
}

// Read is the function Read with the Reader's buffer.
func (r *Reader) Read(ctx context.Context, path string, format Format) (Info, error) {
	if err := ctx.Err(); err != nil {
		return Info{}, err
	}
	f, fi, err := Open(path)
	if err != nil {
		return Info{}, err
	}
	defer f.Close()
	info := Info{ModTime: fi.ModTime(), Size: fi.Size()}
	if format == None || fi.Size() == 0 {
		return info, nil
	}
	if r.buf == nil {
		r.buf = make([]byte, HeadWindow+TailWindow)
	}
	w, err := readWindow(f, fi.Size(), r.buf)
	if err != nil {
		return Info{}, &fs.PathError{Op: "read", Path: path, Err: err}
	}
	info.BytesRead = w.read
	interpret(&info, w, path, format)
	return info, nil
}

// interpret fills info from what was read.
func interpret(info *Info, w window, path string, format Format) {
	switch format {
	case Claude, Qwen:
		readClaude(info, w, path)
	case Codex:
		readCodex(info, w, path)
	case Gemini:
		if strings.HasSuffix(path, ".json") {
			readGeminiObject(info, w)
		} else {
			readGemini(info, w)
		}
	case Copilot:
		readCopilot(info, w, path)
	case Cursor:
		readCursor(info, w, path)
	case Amp:
		readAmp(info, w)
	case OpenCode:
		readOpenCode(info, w)
	case Aider:
		readAider(info, w, path)
	}
	info.Title = Clean(info.Title, MaxText)
	info.Activity = Clean(info.Activity, MaxText)
}

// recordTime reads a time as all of them write it; the zero time for anything else.
func recordTime(text string) time.Time {
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return time.Time{}
	}
	return t.UTC()
}

// stem is a path's last element without its ending.
func stem(path string) string {
	base := filepath.Base(path)
	return strings.TrimSuffix(base, filepath.Ext(base))
}

// isUUID reports the shape 8-4-4-4-12 of hex digits.
func isUUID(s string) bool {
	if len(s) != 36 {
		return false
	}
	for i := range len(s) {
		switch c := s[i]; {
		case i == 8 || i == 13 || i == 18 || i == 23:
			if c != '-' {
				return false
			}
		case c >= '0' && c <= '9', c >= 'a' && c <= 'f', c >= 'A' && c <= 'F':
		default:
			return false
		}
	}
	return true
}

// isSubagents reports whether path lies in a folder of subagents' files: right
// in it or one below. A folder of that name further up is somebody's own.
func isSubagents(path string) bool {
	dir := filepath.Dir(path)
	return filepath.Base(dir) == "subagents" || filepath.Base(filepath.Dir(dir)) == "subagents"
}
