package settings

import (
	"bytes"
	"slices"
	"strconv"
	"strings"
	"time"
)

// open finds the object and its hooks. root is nil for a text without a value,
// hooks for one without that member.
func (l layout) open(text []byte) (root, hooks *node, err error) {
	root, err = parse(text)
	if err != nil || root == nil {
		return nil, nil, err
	}
	hooks = root.get("hooks")
	if !root.isObject() || hooks != nil && !hooks.isObject() {
		return nil, nil, ErrShape
	}
	return root, hooks, nil
}

// understood reports whether an event holds lists of entries, its own or its groups',
// and nothing else.
func (l layout) understood(event *node) bool {
	ok := event.isArray()
	if ok && l.grouped {
		ok = !slices.ContainsFunc(event.elements, func(g *node) bool { return !g.get("hooks").isArray() })
	}
	l.each(event, func(list *node) {
		ok = ok && !slices.ContainsFunc(list.elements, func(e *node) bool { return !e.isObject() })
	})
	return ok
}

// install returns the text with the entries that it lacks.
func (l layout) install(text []byte, events []string, command string, timeout time.Duration) ([]byte, error) {
	root, hooks, err := l.open(text)
	if err != nil {
		return nil, err
	}
	e := editor{text: text, style: styleOf(text, root)}
	entry := func(s style) render { return l.entry(s, command, timeout) }
	var missing []string
	for i, name := range events {
		if slices.Contains(events[:i], name) {
			continue
		}
		event := hooks.get(name)
		if event == nil {
			missing = append(missing, name)
			continue
		}
		if !l.understood(event) {
			return nil, ErrShape
		}
		if !l.has(event, command) {
			e.add(event, nested, entry)
		}
	}
	if len(missing) == 0 {
		return e.apply(), nil
	}
	var lists []item
	for _, name := range missing {
		lists = append(lists, func(s style) render { return s.member(name, s.list(entry(s))) })
	}
	if hooks != nil {
		e.add(hooks, nested, lists...)
		return e.apply(), nil
	}
	members := []item{func(s style) render {
		var values []render
		for _, list := range lists {
			values = append(values, list(s))
		}
		return s.member("hooks", s.object(values...))
	}}
	if l.versioned && root.get("version") == nil {
		// It follows the hooks, by which uninstall knows that it came with them.
		members = append(members, func(s style) render { return s.member("version", literal("1")) })
	}
	if root == nil {
		e.create(members...)
	} else {
		e.add(root, top, members...)
	}
	return e.apply(), nil
}

// entry writes the entry, with the group that it stands in.
func (l layout) entry(s style, command string, timeout time.Duration) render {
	var members []render
	if l.typed {
		members = append(members, s.member("type", literal(`"command"`)))
	}
	members = append(members, s.member(l.command, literal(quote(command))))
	if timeout > 0 {
		n := int64((timeout + l.unit - 1) / l.unit)
		members = append(members, s.member(l.timeout, literal(strconv.FormatInt(max(n, l.least), 10))))
	}
	if l.grouped {
		return s.object(s.member("hooks", s.list(s.object(members...))))
	}
	return s.object(members...)
}

// has reports whether the event has the command.
func (l layout) has(event *node, command string) bool {
	found := false
	l.each(event, func(list *node) {
		found = found || slices.ContainsFunc(list.elements, func(e *node) bool { return l.ours(e, command) })
	})
	return found
}

// each calls f with every list of entries of an event. What is of another shape
// holds none.
func (l layout) each(event *node, f func(list *node)) {
	if !event.isArray() {
		return
	}
	if !l.grouped {
		f(event)
		return
	}
	for _, group := range event.elements {
		if list := group.get("hooks"); list.isArray() {
			f(list)
		}
	}
}

// ours reports whether an entry has the command.
func (l layout) ours(entry *node, command string) bool {
	v := entry.get(l.command)
	return v != nil && v.value == command && v.isString()
}

// uninstall returns the text without the entries.
func (l layout) uninstall(text []byte, command string) ([]byte, error) {
	root, hooks, err := l.open(text)
	if err != nil || hooks == nil {
		return text, err
	}
	e := editor{text: text}
	dropHooks := e.prune(hooks, nested, func(i int) bool {
		event := hooks.members[i].value
		if !l.grouped {
			return event.isArray() && e.prune(event, nested, func(i int) bool { return l.ours(event.elements[i], command) })
		}
		return event.isArray() && e.prune(event, nested, func(i int) bool {
			group := event.elements[i]
			list := group.get("hooks")
			if !list.isArray() {
				return false
			}
			where := inGroup
			if len(group.members) > 1 {
				where = kept // it has a matcher, so it is not of our making
			}
			return e.prune(list, where, func(i int) bool { return l.ours(list.elements[i], command) })
		})
	})
	at := root.index("hooks")
	e.prune(root, top, func(i int) bool {
		return dropHooks && (i == at || i == at+1 && l.versioned && root.members[i].name == "version" &&
			string(text[root.members[i].value.start:root.members[i].value.end]) == "1")
	})
	return e.apply(), nil
}

// A place says what becomes of a container that is emptied.
type place int

const (
	top     place = iota // the whole file's object: it stays, unless marked
	nested               // it goes, unless marked
	inGroup              // it goes: entries never share a list that was empty
	kept                 // it stays
)

// An editor collects edits of a text. Their places do not overlap.
type editor struct {
	text  []byte
	style style
	edits []edit
}

// An edit puts text in place of a span.
type edit struct {
	span
	text string
}

func (e *editor) replace(start, end int, text string) {
	e.edits = append(e.edits, edit{span{start, end}, text})
}

func (e *editor) apply() []byte {
	if len(e.edits) == 0 {
		return e.text
	}
	slices.SortStableFunc(e.edits, func(a, b edit) int { return a.start - b.start })
	var out []byte
	at := 0
	for _, d := range e.edits {
		out = append(append(out, e.text[at:d.start]...), d.text...)
		at = d.end
	}
	return append(out, e.text[at:]...)
}

// An item is written in the style of the place that it comes to.
type item func(style) render

// Marks are spaces at the end of a container's first line. They tell what an
// emptied container was before the first entry came in; JSON offers no other
// place that a runtime is sure to ignore.
//
//	mark  the file's object          another container
//	0     {}, or nothing to restore  made for the entry
//	1     an empty file              {} or []
//	2     with white space inside, which follows the last entry
const (
	markNone  = 0
	markEmpty = 1
	markSpace = 2
)

// add puts items at the end of a container.
func (e *editor) add(c *node, where place, items ...item) {
	s := e.style
	children := c.children()
	if len(children) > 0 {
		last := children[len(children)-1]
		gap := e.text[c.start+1 : last.start]
		separator := s.comma
		if n := len(children); n > 1 {
			gap = e.text[children[n-2].end:last.start]
			gap = gap[bytes.IndexByte(gap, ',')+1:]
			separator = "," + string(gap)
		}
		indent := ""
		if i := bytes.LastIndexByte(gap, '\n'); i >= 0 {
			indent = string(gap[i+1:])
			separator = "," + s.eol + indent
		} else {
			s.inline = true
		}
		var b strings.Builder
		for _, it := range items {
			b.WriteString(separator + it(s)(indent))
		}
		e.replace(last.end, last.end, b.String())
		return
	}

	inside := string(e.text[c.start+1 : c.end-1])
	mark := markSpace
	switch {
	case inside == "" && where == top:
		mark = markNone
	case inside == "":
		mark = markEmpty
	}
	s.inline = s.inline && !strings.Contains(inside, "\n")
	body := s.body(e.lineIndent(c.start), items)
	if inside != "" && !s.inline {
		// What was inside ends the last line.
		body = body[:strings.LastIndex(body, s.eol)]
	}
	e.replace(c.start+1, c.start+1, strings.Repeat(" ", mark)+body)
}

// create makes the object of a file that has none.
func (e *editor) create(items ...item) {
	e.replace(0, 0, "{"+strings.Repeat(" ", markEmpty)+e.style.body("", items)+"}")
}

// prune takes the children that drop names out of a container. It reports
// whether the container itself is to go.
func (e *editor) prune(c *node, where place, drop func(i int) bool) (gone bool) {
	children := c.children()
	keep := -1 // the last child that stays
	var cut []span
	for i, child := range children {
		switch {
		case !drop(i):
			keep = i
		case keep >= 0:
			cut = append(cut, span{children[i-1].end, child.end})
		case i+1 < len(children):
			cut = append(cut, span{child.start, children[i+1].start})
		default:
			cut = append(cut, span{child.start, child.end})
		}
	}
	if len(cut) == 0 {
		return false
	}
	mark := e.mark(c, children[0], where)
	if keep >= 0 {
		if next := e.text[c.start+1+mark]; cut[0].start == children[0].start && (next == '\n' || next == '\r') {
			e.replace(c.start+1, c.start+1+mark, "")
		}
		for _, s := range cut {
			e.replace(s.start, s.end, "")
		}
		return false
	}
	// The edits inside of the children are covered by this one.
	e.edits = slices.DeleteFunc(e.edits, func(d edit) bool { return d.start >= c.start && d.end <= c.end })
	switch {
	case where == inGroup, where == nested && mark == markNone:
		return true
	case where == top && mark == markEmpty:
		e.replace(c.start, c.end, "")
	case where != kept && mark == markSpace:
		e.replace(c.start+1, children[len(children)-1].end, "")
	default:
		e.replace(c.start+1, c.end-1, "")
	}
	return false
}

// mark reads a container's mark: the spaces that its first line ends with, or,
// where all is on one line, those before its first child. A person's own space
// there can be taken for one; a container that was not there may then stay. The
// file's object, which is always begun on a line of its own, is not risked.
func (e *editor) mark(c *node, first span, where place) int {
	gap := e.text[c.start+1 : first.start]
	n := len(gap) - len(bytes.TrimLeft(gap, " "))
	if n > markSpace || n == len(gap) && where == top || n < len(gap) && gap[n] != '\n' && gap[n] != '\r' {
		return markNone
	}
	return n
}

// lineIndent is what the line of a place begins with.
func (e *editor) lineIndent(at int) string {
	line := e.text[bytes.LastIndexByte(e.text[:at], '\n')+1:]
	return string(line[:len(line)-len(bytes.TrimLeft(line, " \t"))])
}
