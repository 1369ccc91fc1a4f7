package ledger

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/go-json-experiment/json/jsontext"
)

// A row is read and written member by member, as the struct tags of Entry and of its parts
// say, on the tokens of package jsontext. Package json could do it, by the same tags and a
// function for each special type of value, but its first row costs a process a third of a
// millisecond, as much as all the rest of a hook.

// MarshalJSON returns the row as it is stored, on one line. It fails for an entry whose
// unknown members were built by hand.
func (e Entry) MarshalJSON() ([]byte, error) { return encodeEntry(&e) }

// UnmarshalJSON reads a row as it is stored. It does not check it against a file name.
func (e *Entry) UnmarshalJSON(data []byte) error {
	d := new(Entry)
	if err := d.decode(data, string(data)); err != nil {
		return err
	}
	*e = *d
	return nil
}

// encodeEntry returns e as one line of JSON, without a final newline.
func encodeEntry(e *Entry) ([]byte, error) {
	data, err := encodeStruct(e)
	if err != nil {
		return nil, fmt.Errorf("ledger: encode row %q: %w", e.LedgerID, err)
	}
	return data, nil
}

// decodeEntry reads a row, and refuses what cannot be one.
func decodeEntry(data []byte) (Entry, error) {
	e := new(Entry)
	if err := e.decode(data, string(data)); err != nil {
		return Entry{}, err
	}
	return *e, nil
}

// decode reads a row into a zero entry, which keeps parts of text, the same row as a string.
// After an error the entry is of no use.
func (e *Entry) decode(data []byte, text string) error {
	if len(bytes.TrimLeft(data, "\x00")) == 0 {
		return errors.New("empty, or nothing but NULs")
	}
	dec := decoders.Get().(*jsontext.Decoder)
	defer decoders.Put(dec)
	dec.Reset(bytes.NewBuffer(data), decodeOptions)
	if err := (rowReader{dec, text}).object(reflect.ValueOf(e).Elem()); err != nil {
		return err
	}
	if _, err := dec.ReadToken(); err != io.EOF {
		return errors.New("something follows the row")
	}
	if err := e.checkShape(); err != nil {
		return err
	}
	e.assumePhase()
	return nil
}

// decoders are for reuse: a listing reads thousands of rows.
var decoders = sync.Pool{New: func() any { return new(jsontext.Decoder) }}

// decodeOptions has no set made of the names in each object: the members are counted here,
// and what is unknown is checked whole.
var decodeOptions = jsontext.AllowDuplicateNames(true)

// member is one member of an object, as a struct tag describes it.
type member struct {
	quoted string // its name as JSON
	index  int    // of the field
	omit   bool   // left out where it is zero
}

func (m *member) name() string { return m.quoted[1 : len(m.quoted)-1] }

// layouts has the members of each type that was met.
var layouts sync.Map // reflect.Type to []member

func layoutOf(t reflect.Type) []member {
	if l, ok := layouts.Load(t); ok {
		return l.([]member)
	}
	l := make([]member, 0, t.NumField())
	for i := range t.NumField() {
		name, option, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		if name != "" {
			l = append(l, member{`"` + name + `"`, i, option == "omitzero"})
		}
	}
	layouts.Store(t, l)
	return l
}

// find returns the index of the member with a quoted name, or -1. Writers keep the order,
// so that it is mostly the one after the last.
func find(l []member, quoted []byte, next int) int {
	if next < len(l) && l[next].quoted == string(quoted) {
		return next
	}
	if bytes.IndexByte(quoted, '\\') < 0 {
		return slices.IndexFunc(l, func(m member) bool { return m.quoted == string(quoted) })
	}
	name, err := jsontext.AppendUnquote(nil, quoted)
	if err != nil {
		return -1
	}
	return slices.IndexFunc(l, func(m member) bool { return m.name() == string(name) })
}

// kept returns where a part keeps its unknown members.
func (u *unknown) kept() *jsontext.Value { return &u.Members }

// quoteBytes quotes s in the manner of git's core.quotePath: C escapes for quotation
// mark and backslash, three octal digits for every byte that is not printable ASCII.
func quoteBytes(s string) string {
	b := append(make([]byte, 0, len(s)+2), '"')
	for i := range len(s) {
		switch c := s[i]; {
		case c == '"' || c == '\\':
			b = append(b, '\\', c)
		case c < ' ' || c >= 0x7f:
			b = fmt.Appendf(b, `\%03o`, c)
		default:
			b = append(b, c)
		}
	}
	return string(append(b, '"'))
}

func unquoteBytes(s string) (string, bool) {
	if len(s) < 2 || s[0] != '"' || s[len(s)-1] != '"' {
		return "", false
	}
	// Go's literals have all of git's escapes; only the octal form needs three digits, as
	// git writes it.
	raw, err := strconv.Unquote(s)
	return raw, err == nil
}

// timeLayout is RFC 3339 in UTC with whole seconds: all the precision that is stored.
const timeLayout = "2006-01-02T15:04:05Z"

// checkCodec writes and reads a row with unknown members once in a build that has put another
// package in the place of the JSON tokens that go.mod requires, as GOEXPERIMENT=jsonv2 does:
// that it keeps them is nobody's word but its own. With the required package the tests tell.
var checkCodec = sync.OnceValue(func() error {
	if reflect.TypeFor[jsontext.Value]().PkgPath() == "github.com/go-json-experiment/json/jsontext" {
		return nil
	}
	return tryCodec()
})

func tryCodec() error {
	const row = `{"schemaVersion":1,"ledgerId":"a","mux":{"x":2.50},"lease":{"op":"kill","attempt":"1","nonce":"1",` +
		`"owner":{"pid":1,"x":1E+2},"acquiredAt":"2026-01-01T00:00:00Z"},"x":"\u00e9"}`
	e, err := decodeEntry([]byte(row))
	if err != nil {
		return fmt.Errorf("ledger: this build cannot read rows: %w", err)
	}
	data, err := encodeEntry(&e)
	if err != nil {
		return fmt.Errorf("ledger: this build cannot write rows: %w", err)
	}
	for _, kept := range []string{`"x":2.50`, `"x":1E+2`, `"x":"\u00e9"`} {
		if !bytes.Contains(data, []byte(kept)) {
			return fmt.Errorf("ledger: this build's JSON package loses unknown members: %w", errors.ErrUnsupported)
		}
	}
	return nil
}
