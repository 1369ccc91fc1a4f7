package ledger

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// encodeStruct returns what p points to as one line of JSON, without a final newline.
func encodeStruct(p any) ([]byte, error) {
	var buf bytes.Buffer
	buf.Grow(2048)
	enc := jsontext.NewEncoder(&buf, jsontext.PreserveRawStrings(true), jsontext.AllowDuplicateNames(true))
	if err := encodeObject(enc, reflect.ValueOf(p).Elem()); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(buf.Bytes(), []byte("\n")), nil
}

// encodeObject writes a part of a row; v can be addressed, here and below.
func encodeObject(enc *jsontext.Encoder, v reflect.Value) error {
	if err := enc.WriteToken(jsontext.BeginObject); err != nil {
		return err
	}
	l := layoutOf(v.Type())
	for _, m := range l {
		f := v.Field(m.index)
		if m.omit && f.IsZero() {
			continue
		}
		if err := enc.WriteToken(jsontext.String(m.name())); err != nil {
			return err
		}
		if err := encodeValue(enc, f); err != nil {
			return fmt.Errorf("%s: %w", m.name(), err)
		}
	}
	if err := encodeUnknown(enc, l, unknownOf(v)); err != nil {
		return err
	}
	return enc.WriteToken(jsontext.EndObject)
}

func unknownOf(v reflect.Value) jsontext.Value {
	switch p := v.Addr().Interface().(type) {
	case *ProcessID:
		return jsontext.Value(p.rest)
	case interface{ kept() *jsontext.Value }:
		return *p.kept()
	}
	return nil
}

// encodeUnknown writes the members that this version does not know. A user can have built
// them of anything.
func encodeUnknown(enc *jsontext.Encoder, known []member, raw jsontext.Value) error {
	if len(raw) == 0 {
		return nil
	}
	if !raw.IsValid() || raw.Kind() != '{' {
		return errors.New("the unknown members are no JSON object")
	}
	dec := jsontext.NewDecoder(bytes.NewBuffer(raw), decodeOptions)
	if _, err := dec.ReadToken(); err != nil {
		return err
	}
	for dec.PeekKind() != '}' {
		name, err := dec.ReadValue()
		if err != nil {
			return err
		}
		if find(known, name, 0) >= 0 {
			return fmt.Errorf("%s is among the unknown members", name)
		}
		if err := enc.WriteValue(name); err != nil {
			return err
		}
		value, err := dec.ReadValue()
		if err != nil {
			return err
		}
		if err := enc.WriteValue(value); err != nil {
			return err
		}
	}
	return nil
}

func encodeValue(enc *jsontext.Encoder, v reflect.Value) error {
	switch p := v.Addr().Interface().(type) {
	case *string:
		return enc.WriteToken(textToken(*p))
	case *time.Time:
		return enc.WriteToken(timeToken(*p))
	case *int: // no member of this type has 0 for a value; counts are left out where they are zero
		if *p == 0 {
			return enc.WriteToken(jsontext.Null)
		}
	case **int: // where 0 has to be told from nothing
		if *p != nil {
			return enc.WriteToken(jsontext.Int(int64(**p)))
		}
	case *MuxState:
		return enc.WriteToken(textToken(string(*p)))
	}
	switch v.Kind() {
	case reflect.String:
		return enc.WriteToken(jsontext.String(v.String()))
	case reflect.Int, reflect.Int64:
		return enc.WriteToken(jsontext.Int(v.Int()))
	case reflect.Uint64:
		return enc.WriteToken(jsontext.Uint(v.Uint()))
	case reflect.Bool:
		return enc.WriteToken(jsontext.Bool(v.Bool()))
	case reflect.Pointer:
		if v.IsNil() {
			return enc.WriteToken(jsontext.Null)
		}
		return encodeValue(enc, v.Elem())
	case reflect.Slice:
		return encodeList(enc, v)
	}
	return encodeObject(enc, v)
}

func encodeList(enc *jsontext.Encoder, v reflect.Value) error {
	if v.IsNil() {
		return enc.WriteToken(jsontext.Null)
	}
	if err := enc.WriteToken(jsontext.BeginArray); err != nil {
		return err
	}
	for i := range v.Len() {
		if err := encodeValue(enc, v.Index(i)); err != nil {
			return err
		}
	}
	return enc.WriteToken(jsontext.EndArray)
}

// textToken is null for an empty string, and for text that is not UTF-8 a string quoted as
// git quotes a path, marked by its leading quotation mark. Text that begins with one is
// quoted too, so that the mark is never ambiguous.
func textToken(s string) jsontext.Token {
	switch {
	case s == "":
		return jsontext.Null
	case s[0] == '"' || !utf8.ValidString(s):
		return jsontext.String(quoteBytes(s))
	}
	return jsontext.String(s)
}

func timeToken(t time.Time) jsontext.Token {
	if t.IsZero() {
		return jsontext.Null
	}
	return jsontext.String(t.UTC().Format(timeLayout))
}
