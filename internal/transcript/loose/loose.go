// Package loose reads JSON that other programs wrote and that may be wrong.
//
// A value of the wrong type reads as absent, duplicate names and invalid UTF-8
// are accepted, and a text that was cut off yields what stood before the cut.
// That is what transcripts and hook payloads need: their writers change their
// records without notice, and encoding/json refuses a whole record for one
// field (and lets a member "ID" stand in for "id").
package loose

import (
	"bytes"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"
)

// An Object is one JSON object's members in their order. Its values alias the
// text it was parsed from and are only decoded when they are asked for. The
// zero Object has no members.
type Object []member

type member struct {
	name  string
	value []byte
	cut   bool // the text ended inside this value
}

// A List is the complete elements of a JSON array.
type List [][]byte

var tolerant = []jsontext.Options{
	jsontext.AllowDuplicateNames(true),
	jsontext.AllowInvalidUTF8(true),
}

// Parse reads the JSON object at the start of text. Whole reports that text is
// exactly one object; otherwise the members up to the first fault are
// returned, none at all when text is no object.
func Parse(text []byte) (o Object, whole bool) {
	o, n := Prefix(text)
	return o, n > 0 && len(bytes.TrimSpace(text[n:])) == 0
}

// Prefix is Parse for an object that other text may follow. N is the object's
// length in bytes, 0 when the object is not complete.
func Prefix(text []byte) (o Object, n int) {
	d := jsontext.NewDecoder(bytes.NewBuffer(text), tolerant...)
	if d.PeekKind() != '{' {
		return nil, 0
	}
	if _, err := d.ReadToken(); err != nil {
		return nil, 0
	}
	for d.PeekKind() == '"' {
		name, err := d.ReadToken()
		if err != nil {
			return o, 0
		}
		m := member{name: name.String()}
		start := d.InputOffset()
		v, err := d.ReadValue()
		if err != nil {
			m.value = bytes.TrimLeft(text[start:], ": \t\r\n")
			m.cut = true
			return append(o, m), 0
		}
		// A slice of text, for the decoder's own is only good until its next call.
		end := d.InputOffset()
		m.value = text[end-int64(len(v)) : end : end]
		o = append(o, m)
	}
	if d.PeekKind() != '}' {
		return o, 0
	}
	if _, err := d.ReadToken(); err != nil {
		return o, 0
	}
	return o, int(d.InputOffset())
}

// get returns the last member of that name, as a JSON parser that accepts
// duplicates would.
func (o Object) get(name string) (member, bool) {
	for i := len(o) - 1; i >= 0; i-- {
		if o[i].name == name {
			return o[i], true
		}
	}
	return member{}, false
}

// Has reports whether there is a member of that name, null included.
func (o Object) Has(name string) bool {
	_, ok := o.get(name)
	return ok
}

// Value returns a member's JSON text, nil when it is absent or cut off.
func (o Object) Value(name string) []byte {
	m, ok := o.get(name)
	if !ok || m.cut {
		return nil
	}
	return m.value
}

// Names returns the members' names in their order.
func (o Object) Names() []string {
	names := make([]string, len(o))
	for i, m := range o {
		names[i] = m.name
	}
	return names
}

// String returns a string member, "" when it is absent, cut off or no string.
func (o Object) String(name string) string {
	return String(o.Value(name))
}

// First returns the first of the named string members that is not empty.
func (o Object) First(names ...string) string {
	for _, name := range names {
		if s := o.String(name); s != "" {
			return s
		}
	}
	return ""
}

// Object returns an object member; of one that was cut off, what there is.
func (o Object) Object(name string) Object {
	m, _ := o.get(name)
	inner, _ := Parse(m.value)
	return inner
}

// List returns an array member's complete elements; of one that was cut off,
// those before the cut.
func (o Object) List(name string) List {
	m, _ := o.get(name)
	return ParseList(m.value)
}

// Bool returns a boolean member; ok is false when there is none.
func (o Object) Bool(name string) (value, ok bool) {
	switch string(o.Value(name)) {
	case "true":
		return true, true
	case "false":
		return false, true
	}
	return false, false
}

// Uint returns a member that is a whole number, or a string that spells one;
// ok is false when there is none.
func (o Object) Uint(name string) (value uint64, ok bool) {
	v := o.Value(name)
	s := string(v)
	if len(v) > 0 && v[0] == '"' {
		s = String(v)
	}
	n, err := strconv.ParseUint(s, 10, 64)
	return n, err == nil
}

// ParseList reads the JSON array at the start of text: its complete elements,
// nil when text is no array.
func ParseList(text []byte) (l List) {
	d := jsontext.NewDecoder(bytes.NewBuffer(text), tolerant...)
	if d.PeekKind() != '[' {
		return nil
	}
	if _, err := d.ReadToken(); err != nil {
		return nil
	}
	for d.PeekKind() != ']' {
		v, err := d.ReadValue()
		if err != nil {
			return l
		}
		end := d.InputOffset()
		l = append(l, text[end-int64(len(v)):end:end])
	}
	return l
}

// String decodes a JSON string, "" when text is none. Bytes that are not UTF-8
// become U+FFFD.
func String(text []byte) string {
	if len(text) < 2 || text[0] != '"' || text[len(text)-1] != '"' {
		return ""
	}
	if bytes.IndexByte(text, '\\') < 0 {
		return string(bytes.ToValidUTF8(text[1:len(text)-1], []byte("\uFFFD")))
	}
	// The error can only be about invalid UTF-8, which is already replaced:
	// the text came out of a decoder that checked the syntax.
	s, _ := jsontext.AppendUnquote(nil, text)
	return string(s)
}
