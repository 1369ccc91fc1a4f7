package transcript

import (
	"path/filepath"
	"strings"

	"github.com/sessionledger/ledger/internal/transcript/loose"
)

// readCursor reads an agent transcript: JSON lines of {role, message}, or the
// older text in which "user:" and "assistant:" stand on lines of their own.
func readCursor(info *Info, w window, path string) {
	if id := stem(path); isUUID(id) {
		info.ID = id
	}
	if isSubagents(path) {
		info.Subagent = Yes
	}
	if filepath.Ext(path) == ".jsonl" {
		readCursorLines(info, w)
		return
	}
	info.Title = cursorTitle(w)
	info.Activity = cursorActivity(w)
}

// cursorTitle is the first line of the first query in a text transcript. Where
// a turn has no query mark, its first line that opens no other mark serves.
func cursorTitle(w window) string {
	inUser, inQuery, plain := false, false, ""
	for line := range w.forward(true) {
		text := string(line)
		if isTurn(text) {
			if plain != "" {
				return plain
			}
			inUser, inQuery = text == "user:", false
			continue
		}
		if !inUser {
			continue
		}
		inQuery = inQuery || strings.Contains(text, "<user_query>")
		switch query := strings.TrimSpace(cursorQuery(text)); {
		case inQuery && query != "":
			return query
		case !inQuery && plain == "" && !strings.HasPrefix(text, "<"):
			plain = text
		}
	}
	return plain
}

func readCursorLines(info *Info, w window) {
	for line := range w.forward(false) {
		r, whole := loose.Parse(line)
		if !whole || r.String("role") != "user" {
			continue
		}
		bs := blocks(r.Object("message").Value("content"))
		for i := range bs {
			bs[i].text = cursorQuery(bs[i].text)
		}
		if info.Title = prompt(bs); info.Title != "" {
			break
		}
	}
	for line := range w.backward() {
		r, whole := loose.Parse(line)
		if !whole || r.String("role") != "assistant" {
			continue
		}
		if info.Activity = activity(blocks(r.Object("message").Value("content"))); info.Activity != "" {
			break
		}
	}
}

// cursorQuery takes a person's text out of its wrapper.
func cursorQuery(text string) string {
	if _, after, ok := strings.Cut(text, "<user_query>"); ok {
		text = after
	}
	text, _, _ = strings.Cut(text, "</user_query>")
	return text
}

func isTurn(line string) bool { return line == "user:" || line == "assistant:" }

// cursorActivity is the last tool call with its first argument, or the last
// line of text, in the agent's part of a text transcript.
func cursorActivity(w window) (last string) {
	const (
		other = iota // a person's text, a tool's result
		text
		call
	)
	in := other
	for line := range w.tailLines() {
		s := strings.TrimSpace(string(line))
		name, isCall := strings.CutPrefix(s, "[Tool call]")
		switch {
		case isTurn(s):
			if in = other; s == "assistant:" {
				in = text
			}
		case isCall:
			last, in = strings.TrimSpace(name), call
		case strings.HasPrefix(s, "[Tool result]"):
			in = other
		case strings.HasPrefix(s, "[Thinking]"):
			in = text
		case s == "":
		case in == call && len(line) > 0 && (line[0] == ' ' || line[0] == '\t'):
			if _, arg, ok := strings.Cut(s, ":"); ok && !strings.Contains(last, ": ") {
				last += ": " + strings.TrimSpace(arg)
			}
		case in != other:
			last, in = s, text
		}
	}
	return last
}
