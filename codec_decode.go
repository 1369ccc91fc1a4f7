package ledger

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"time"

	"github.com/go-json-experiment/json/jsontext"
)

// maxMembers is more than any part of a row has.
const maxMembers = 128

// decodeObject reads a part of a row into a zero value.
func decodeObject(dec *jsontext.Decoder, v reflect.Value) error {
	if err := open(dec, '{'); err != nil {
		return err
	}
	l := layoutOf(v.Type())
	var seen [maxMembers]bool
	var rest []byte
	for next := 0; dec.PeekKind() != '}'; {
		name, err := dec.ReadValue()
		if err != nil {
			return err
		}
		i := find(l, name, next)
		if i < 0 {
			if rest, err = appendMember(rest, name, dec); err != nil {
				return err
			}
			continue
		}
		if seen[i] {
			return fmt.Errorf("%s is there twice", l[i].name)
		}
		seen[i], next = true, i+1
		if err := decodeValue(dec, v.Field(l[i].index)); err != nil {
			return fmt.Errorf("%s: %w", l[i].name, err)
		}
	}
	if _, err := dec.ReadToken(); err != nil {
		return err
	}
	return keep(v, rest)
}

// open reads the beginning of an object or a list.
func open(dec *jsontext.Decoder, kind jsontext.Kind) error {
	tok, err := dec.ReadToken()
	if err == nil && tok.Kind() != kind {
		err = fmt.Errorf("a %v instead of a %v", tok.Kind(), kind)
	}
	return err
}

// appendMember adds a member to those that are not known, which are an object without its
// end.
func appendMember(rest []byte, name jsontext.Value, dec *jsontext.Decoder) ([]byte, error) {
	if len(rest) == 0 {
		rest = append(rest, '{')
	} else {
		rest = append(rest, ',')
	}
	rest = append(rest, name...)
	value, err := dec.ReadValue()
	return append(append(rest, ':'), value...), err
}

func keep(v reflect.Value, rest []byte) error {
	if len(rest) == 0 {
		return nil
	}
	raw := jsontext.Value(append(rest, '}'))
	if !raw.IsValid() {
		return fmt.Errorf("a name is there twice in %.100s", raw)
	}
	switch p := v.Addr().Interface().(type) {
	case *ProcessID:
		p.rest = string(raw)
	case interface{ kept() *jsontext.Value }:
		*p.kept() = raw
	}
	return nil
}

// decodeValue reads a value into a zero one; null leaves it.
func decodeValue(dec *jsontext.Decoder, v reflect.Value) error {
	switch kind := dec.PeekKind(); {
	case kind == 'n':
		_, err := dec.ReadToken()
		return err
	case v.Kind() == reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		return decodeValue(dec, v.Elem())
	case v.Kind() == reflect.Slice:
		return decodeList(dec, v)
	case v.Kind() == reflect.Struct && kind == '{':
		return decodeObject(dec, v)
	}
	raw, err := dec.ReadValue()
	if err != nil {
		return err
	}
	if err := decodeScalar(raw, v); err != nil {
		return fmt.Errorf("%.100s is no value for it: %w", raw, err)
	}
	return nil
}

func decodeScalar(raw jsontext.Value, v reflect.Value) (err error) {
	switch v.Kind() {
	case reflect.Int, reflect.Int64:
		var n int64
		n, err = strconv.ParseInt(string(raw), 10, v.Type().Bits())
		v.SetInt(n)
		return err
	case reflect.Uint64:
		var n uint64
		n, err = strconv.ParseUint(string(raw), 10, 64)
		v.SetUint(n)
		return err
	case reflect.Bool:
		v.SetBool(raw.Kind() == 't')
		if v.Bool() || raw.Kind() == 'f' {
			return nil
		}
		return errors.New("true or false is expected")
	}
	if raw.Kind() != '"' {
		return errors.New("text is expected")
	}
	text := raw[1 : len(raw)-1]
	if bytes.IndexByte(text, '\\') >= 0 {
		if text, err = jsontext.AppendUnquote(nil, raw); err != nil {
			return err
		}
	}
	switch p := v.Addr().Interface().(type) {
	case *string:
		*p = string(text)
		if plain, quoted := unquoteBytes(*p); quoted {
			*p = plain
		}
	case *time.Time:
		*p, err = parseTime(string(text))
	default:
		v.SetString(string(text)) // of a type of its own
	}
	return err
}

func decodeList(dec *jsontext.Decoder, v reflect.Value) error {
	if err := open(dec, '['); err != nil {
		return err
	}
	v.Set(reflect.MakeSlice(v.Type(), 0, 0))
	for dec.PeekKind() != ']' {
		v.Set(reflect.Append(v, reflect.Zero(v.Type().Elem())))
		if err := decodeValue(dec, v.Index(v.Len()-1)); err != nil {
			return err
		}
	}
	_, err := dec.ReadToken()
	return err
}

// parseTime reads RFC 3339 in any zone, and a foreign empty string as no time.
func parseTime(text string) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	t, err := time.Parse(time.RFC3339, text)
	return storedTime(t), err
}
