package ledger

import (
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"
)

// maxMembers is more than any part of a row has.
const maxMembers = 128

// rowReader reads a row's tokens; text is the row.
type rowReader struct {
	*jsontext.Decoder
	text string
}

// object reads a part of a row into a zero value.
func (r rowReader) object(v reflect.Value) error {
	if err := r.open('{'); err != nil {
		return err
	}
	l := layoutOf(v.Type())
	var seen [maxMembers]bool
	var rest []byte
	for next := 0; r.PeekKind() != '}'; {
		name, err := r.ReadValue()
		if err != nil {
			return err
		}
		i := find(l, name, next)
		if i < 0 {
			if rest, err = r.appendMember(rest, name); err != nil {
				return err
			}
			continue
		}
		if seen[i] {
			return fmt.Errorf("%s is there twice", l[i].name())
		}
		seen[i], next = true, i+1
		if err := r.value(v.Field(l[i].index)); err != nil {
			return fmt.Errorf("%s: %w", l[i].name(), err)
		}
	}
	if _, err := r.ReadToken(); err != nil {
		return err
	}
	return keep(v, rest)
}

// open reads the beginning of an object or a list.
func (r rowReader) open(kind jsontext.Kind) error {
	tok, err := r.ReadToken()
	if err == nil && tok.Kind() != kind {
		err = fmt.Errorf("a %v instead of a %v", tok.Kind(), kind)
	}
	return err
}

// appendMember adds a member to those that are not known, which are an object without its
// end.
func (r rowReader) appendMember(rest []byte, name jsontext.Value) ([]byte, error) {
	if len(rest) == 0 {
		rest = append(rest, '{')
	} else {
		rest = append(rest, ',')
	}
	rest = append(rest, name...)
	value, err := r.ReadValue()
	return append(append(rest, ':'), value...), err
}

func keep(v reflect.Value, rest []byte) error {
	if len(rest) == 0 {
		return nil
	}
	raw := jsontext.Value(append(rest, '}'))
	if !raw.IsValid() {
		return fmt.Errorf("a name is there twice in %.100q", raw)
	}
	switch p := v.Addr().Interface().(type) {
	case *ProcessID:
		p.rest = string(raw)
	case interface{ kept() *jsontext.Value }:
		*p.kept() = raw
	}
	return nil
}

// value reads a value into a zero one; null leaves it.
func (r rowReader) value(v reflect.Value) error {
	switch {
	case r.PeekKind() == 'n':
		_, err := r.ReadToken()
		return err
	case v.Kind() == reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		return r.value(v.Elem())
	case v.Kind() == reflect.Slice:
		return r.list(v)
	case v.Kind() == reflect.Struct && v.Type() != reflect.TypeFor[time.Time]():
		return r.object(v)
	}
	raw, err := r.ReadValue()
	if err != nil {
		return err
	}
	if !r.scalar(raw, v) {
		return fmt.Errorf("%.100q is no value for it", raw)
	}
	return nil
}

func (r rowReader) scalar(raw jsontext.Value, v reflect.Value) (ok bool) {
	switch v.Kind() {
	case reflect.Int, reflect.Int64:
		n, err := strconv.ParseInt(string(raw), 10, v.Type().Bits())
		v.SetInt(n)
		return err == nil
	case reflect.Uint64:
		n, err := strconv.ParseUint(string(raw), 10, 64)
		v.SetUint(n)
		return err == nil
	case reflect.Bool:
		v.SetBool(raw.Kind() == 't')
		return v.Bool() || raw.Kind() == 'f'
	}
	if raw.Kind() != '"' {
		return false
	}
	end := int(r.InputOffset())
	text := r.text[end-len(raw)+1 : end-1]
	if strings.IndexByte(text, '\\') >= 0 {
		plain, err := jsontext.AppendUnquote(nil, raw)
		if err != nil {
			return false
		}
		text = string(plain)
	}
	switch p := v.Addr().Interface().(type) {
	case *string:
		*p = text
		if plain, quoted := unquoteBytes(text); quoted {
			*p = plain
		}
	case *time.Time:
		t, err := parseTime(text)
		*p = t
		return err == nil
	default:
		v.SetString(text) // of a type of its own
	}
	return true
}

func (r rowReader) list(v reflect.Value) error {
	if err := r.open('['); err != nil {
		return err
	}
	v.Set(reflect.MakeSlice(v.Type(), 0, 0))
	for r.PeekKind() != ']' {
		v.Set(reflect.Append(v, reflect.Zero(v.Type().Elem())))
		if err := r.value(v.Index(v.Len() - 1)); err != nil {
			return err
		}
	}
	_, err := r.ReadToken()
	return err
}

// parseTime reads RFC 3339 in any zone, and a foreign empty string as no time.
func parseTime(text string) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	t, err := time.Parse(time.RFC3339, text)
	if t = storedTime(t); err == nil && (t.Year() < 0 || t.Year() > 9999) {
		err = errors.New("no year of four digits in UTC") // which could not be written again
	}
	return t, err
}
