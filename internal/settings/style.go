package settings

import (
	"bytes"
	"strings"
)

// A style is how a file is laid out.
type style struct {
	inline bool   // on one line
	eol    string // its line end
	unit   string // one step of indentation
	colon  string // between a name and its value
	comma  string // between members on one line
}

// styleOf reads the layout off the file's own members. One without any is laid
// out in steps of two spaces.
func styleOf(text []byte, root *node) style {
	s := style{eol: "\n", unit: "  ", colon: ": ", comma: ", "}
	// No string has a line end in it: all of them are layout.
	if i := bytes.IndexByte(text, '\n'); i > 0 && text[i-1] == '\r' {
		s.eol = "\r\n"
	}
	if root == nil || len(root.members) == 0 {
		return s
	}
	first := root.members[0]
	if c := text[bytes.LastIndexByte(text[:first.value.start], ':')+1 : first.value.start]; len(bytes.Trim(c, " ")) == 0 {
		s.colon = ":" + string(c)
		s.comma = "," + string(c[:min(len(c), 1)])
	}
	if s.inline = bytes.IndexByte(text[root.start:root.end], '\n') < 0; s.inline {
		return s
	}
	gap := text[root.start+1 : first.start]
	if i := bytes.LastIndexByte(gap, '\n'); i >= 0 {
		s.unit = string(gap[i+1:])
	}
	return s
}

// A render writes a value whose line is indented by indent.
type render func(indent string) string

func literal(s string) render { return func(string) string { return s } }

func (s style) member(name string, value render) render {
	return func(indent string) string { return quote(name) + s.colon + value(indent) }
}

func (s style) object(members ...render) render {
	return func(indent string) string { return "{" + s.lines(indent, members) + "}" }
}

func (s style) list(elements ...render) render {
	return func(indent string) string { return "[" + s.lines(indent, elements) + "]" }
}

// lines is what stands between the brackets of a container whose line is
// indented by indent.
func (s style) lines(indent string, values []render) string {
	if s.inline {
		var all []string
		for _, v := range values {
			all = append(all, v(""))
		}
		return strings.Join(all, s.comma)
	}
	var b strings.Builder
	for i, v := range values {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(s.eol + indent + s.unit + v(indent+s.unit))
	}
	return b.String() + s.eol + indent
}

// body is lines of items.
func (s style) body(indent string, items []item) string {
	var values []render
	for _, it := range items {
		values = append(values, it(s))
	}
	return s.lines(indent, values)
}
