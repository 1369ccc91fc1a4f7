package transcript

import (
	"bytes"
	"strings"

	"github.com/sessionledger/ledger/internal/transcript/loose"
)

// readAmp reads a thread: one object with its messages.
func readAmp(info *Info, w window) {
	o, _ := loose.Parse(w.head)
	info.ID = o.String("id")
	for _, v := range o.Object("env").Object("initial").List("trees") {
		tree, _ := loose.Parse(v)
		if path, ok := fileURL(tree.String("uri")); ok {
			info.Cwd = path
			info.Branch = strings.TrimPrefix(tree.Object("repository").String("ref"), "refs/heads/")
			break
		}
	}
	info.Title = strings.TrimSpace(o.String("title"))
	for _, v := range o.List("messages") {
		if info.Title != "" {
			break
		}
		if m, _ := loose.Parse(v); m.String("role") == "user" {
			info.Title = prompt(blocks(m.Value("content")))
		}
	}
	info.Activity = lastOf(w, o.List("messages"), func(m loose.Object) string {
		if m.String("role") != "assistant" {
			return ""
		}
		return activity(blocks(m.Value("content")))
	})
}

// lastOf returns what say makes of the last message that it makes anything of.
// Messages are the head's; of a file that is larger the tail's are looked for.
func lastOf(w window, messages loose.List, say func(loose.Object) string) (last string) {
	if w.whole {
		for i := len(messages) - 1; i >= 0; i-- {
			m, _ := loose.Parse(messages[i])
			if s := say(m); s != "" {
				return s
			}
		}
		return ""
	}
	for m := range objects(w.tail) {
		if s := say(m); s != "" {
			last = s
		}
	}
	return last
}

// maxTorn bounds how many objects that do not end in the window are tried. As
// many may enclose its end, and each costs a parse of what is left.
const maxTorn = 64

// objects yields the complete JSON objects in a piece out of the middle of a
// larger text, outermost first where they nest. It starts at each brace that a
// quote or a brace follows: inside a JSON string the quote would be escaped,
// so that a piece that begins in the middle of one is no trap.
func objects(text []byte) func(yield func(loose.Object) bool) {
	return func(yield func(loose.Object) bool) {
		for torn := 0; torn < maxTorn; {
			i := bytes.IndexByte(text, '{')
			if i < 0 {
				return
			}
			text = text[i:]
			if next := bytes.TrimLeft(text[1:], " \t\r\n"); len(next) == 0 || next[0] != '"' {
				text = text[1:]
				continue
			}
			o, n := loose.Prefix(text)
			if n == 0 {
				torn++
				n = 1
			} else if !yield(o) {
				return
			}
			text = text[n:]
		}
	}
}

// readOpenCode reads a session's description. What was said lies elsewhere.
func readOpenCode(info *Info, w window) {
	o, whole := loose.Parse(w.head)
	info.ID = o.String("id")
	info.Cwd = o.String("directory")
	// Before the first message has a title of its own, the program gives one.
	if t := o.String("title"); !strings.HasPrefix(t, "New session - ") && !strings.HasPrefix(t, "Child session - ") {
		info.Title = t
	}
	switch {
	case o.String("parentID") != "":
		info.Subagent = Yes
	case whole && info.ID != "":
		info.Subagent = No
	}
}
