package settings

import (
	"bytes"
	"fmt"
	"io"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// A node is a JSON value with its place in the text: text[start:end].
type node struct {
	kind       jsontext.Kind
	start, end int
	members    []member // of an object
	elements   []*node  // of an array
	value      string   // of a string
}

type member struct {
	name  string
	start int // of the name
	value *node
}

// parse reads the one value of a text. A text of white space alone has none: it
// is nil.
func parse(text []byte) (*node, error) {
	p := parser{text: text, d: jsontext.NewDecoder(bytes.NewReader(text))}
	root, err := p.value()
	if err == io.EOF {
		return nil, nil
	}
	if err == nil {
		if _, err = p.d.ReadToken(); err == io.EOF {
			return root, nil
		} else if err == nil {
			err = fmt.Errorf("more than one value")
		}
	}
	return nil, fmt.Errorf("%w: %w", ErrMalformed, err)
}

type parser struct {
	text []byte
	d    *jsontext.Decoder
}

// value reads one value. Duplicate names and invalid UTF-8 are refused by the
// decoder, and so is nesting without end.
func (p parser) value() (*node, error) {
	n := &node{kind: p.d.PeekKind()}
	if n.kind != jsontext.KindBeginObject && n.kind != jsontext.KindBeginArray {
		v, err := p.d.ReadValue()
		n.end = int(p.d.InputOffset())
		n.start = n.end - len(v)
		if err == nil && n.isString() {
			var s []byte
			s, err = jsontext.AppendUnquote(nil, v)
			n.value = string(s)
		}
		return n, err
	}
	if _, err := p.d.ReadToken(); err != nil {
		return nil, err
	}
	n.start = int(p.d.InputOffset()) - 1
	for {
		switch p.d.PeekKind() {
		case jsontext.KindEndObject, jsontext.KindEndArray:
			_, err := p.d.ReadToken()
			n.end = int(p.d.InputOffset())
			return n, err
		}
		var m member
		if n.kind == jsontext.KindBeginObject {
			raw, err := p.d.ReadValue()
			if err != nil {
				return nil, unexpected(err)
			}
			m.start = int(p.d.InputOffset()) - len(raw)
			name, err := jsontext.AppendUnquote(nil, raw)
			if err != nil {
				return nil, err
			}
			m.name = string(name)
		}
		v, err := p.value()
		if err != nil {
			return nil, unexpected(err)
		}
		if m.value = v; n.kind == jsontext.KindBeginObject {
			n.members = append(n.members, m)
		} else {
			n.elements = append(n.elements, v)
		}
	}
}

// unexpected keeps an end inside of a value from being taken for one before it.
func unexpected(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

func (n *node) isObject() bool { return n != nil && n.kind == jsontext.KindBeginObject }
func (n *node) isArray() bool  { return n != nil && n.kind == jsontext.KindBeginArray }
func (n *node) isString() bool { return n != nil && n.kind == jsontext.KindString }

// get returns an object's member, nil when it is not there or n is no object.
func (n *node) get(name string) *node {
	if i := n.index(name); i >= 0 {
		return n.members[i].value
	}
	return nil
}

func (n *node) index(name string) int {
	if n.isObject() {
		for i, m := range n.members {
			if m.name == name {
				return i
			}
		}
	}
	return -1
}

// A span is a piece of the text.
type span struct{ start, end int }

// children are the places of a container's members or elements.
func (n *node) children() []span {
	spans := make([]span, 0, len(n.members)+len(n.elements))
	for _, m := range n.members {
		spans = append(spans, span{m.start, m.value.end})
	}
	for _, e := range n.elements {
		spans = append(spans, span{e.start, e.end})
	}
	return spans
}

// quote spells a JSON string.
func quote(s string) string {
	b, err := jsontext.AppendQuote(nil, s)
	if err != nil {
		panic(err) // only for what isText refuses
	}
	return string(b)
}

// isText reports whether all are valid UTF-8, so that JSON can hold them.
func isText(ss ...string) bool {
	for _, s := range ss {
		if !utf8.ValidString(s) {
			return false
		}
	}
	return true
}
