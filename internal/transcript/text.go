package transcript

import (
	"strings"

	"github.com/sessionledger/ledger/internal/transcript/loose"
)

// A block is one part of a message.
type block struct {
	text   string
	tool   string // the tool's name, when the block is a use of it
	arg    string // that use's main argument
	result bool   // a tool's result, which is no person's text
}

// blocks reads a message's content: a string, or a list of parts in the shapes
// of the Anthropic, OpenAI and Gemini APIs. Thoughts are left out.
func blocks(content []byte) []block {
	if s := loose.String(content); s != "" {
		return []block{{text: s}}
	}
	var bs []block
	for _, v := range loose.ParseList(content) {
		if s := loose.String(v); s != "" {
			bs = append(bs, block{text: s})
			continue
		}
		o, _ := loose.Parse(v)
		thought, _ := o.Bool("thought")
		switch kind := o.String("type"); {
		case thought:
		case kind == "tool_use":
			bs = append(bs, toolUse(o, "name", "input"))
		case o.Has("functionCall"):
			bs = append(bs, toolUse(o.Object("functionCall"), "name", "args"))
		case kind == "tool_result", o.Has("functionResponse"):
			bs = append(bs, block{result: true})
		case kind == "", kind == "text", kind == "input_text", kind == "output_text":
			if s := o.String("text"); s != "" {
				bs = append(bs, block{text: s})
			}
		}
	}
	return bs
}

// toolUse reads a record of a tool's use; name and args are its members' names.
func toolUse(o loose.Object, name, args string) block {
	return block{tool: o.String(name), arg: mainArgument(o.Value(args))}
}

// mainKeys are the arguments that say most about a tool's use, best first. A
// pattern says more than the path it is looked for in.
var mainKeys = []string{
	"command", "cmd", "file_path", "filePath", "absolute_path", "notebook_path",
	"pattern", "query", "url", "path", "dir_path", "description", "subject",
	"title", "prompt",
}

// mainArgument picks one argument of a tool's use: of the known names the best,
// else the first that is a text. Args is an object, a string that holds one,
// a plain string, or a command as a list of words.
func mainArgument(args []byte) string {
	if s := loose.String(args); s != "" {
		o, whole := loose.Parse([]byte(s))
		if !whole {
			return s
		}
		return objectArgument(o)
	}
	if words := wordsOf(args); words != "" {
		return words
	}
	o, _ := loose.Parse(args)
	return objectArgument(o)
}

func objectArgument(o loose.Object) string {
	for _, key := range mainKeys {
		if s := argumentText(o, key); s != "" {
			return s
		}
	}
	for _, key := range o.Names() {
		if s := argumentText(o, key); s != "" {
			return s
		}
	}
	return ""
}

func argumentText(o loose.Object, key string) string {
	s := o.String(key)
	if s == "" {
		s = wordsOf(o.Value(key))
	}
	return strings.TrimSpace(s)
}

func wordsOf(list []byte) string {
	var words []string
	for _, v := range loose.ParseList(list) {
		if s := loose.String(v); s != "" {
			words = append(words, s)
		}
	}
	return strings.Join(words, " ")
}

// activity is what the last of an agent's blocks does, "" when none says.
func activity(bs []block) string {
	for i := len(bs) - 1; i >= 0; i-- {
		if s := bs[i].activity(); s != "" {
			return s
		}
	}
	return ""
}

func (b block) activity() string {
	switch {
	case b.tool != "" && b.arg != "":
		return b.tool + ": " + b.arg
	case b.tool != "":
		return b.tool
	case strings.TrimSpace(b.text) != "":
		return b.text
	}
	return ""
}

// injected are the beginnings of texts that stand in a person's place without
// being a person's: command wrappers, command output, hook output, context.
var injected = []string{
	"<command-name>", "<command-message>", "<command-args>",
	"<local-command-", "<bash-", "<session-start-hook>", "<user-prompt-submit-hook>",
	"<system-reminder>", "<ide_", "<task-notification>", "[Request interrupted by user",
	"<environment_context>", "<user_instructions>", "<permissions instructions>",
	"<turn_aborted>", "# AGENTS.md instructions", "<session_context>",
}

// prompt is what a person wrote in a message, "" when that is nothing.
func prompt(bs []block) string {
	for _, b := range bs {
		if b.result {
			return ""
		}
	}
	for _, b := range bs {
		if text := strings.TrimSpace(b.text); text != "" && !isInjected(text) {
			return text
		}
	}
	return ""
}

func isInjected(text string) bool {
	for _, p := range injected {
		if strings.HasPrefix(text, p) {
			return true
		}
	}
	return false
}
