package ledger

import (
	"bytes"
	"reflect"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// FuzzRow reads anything as a row. What is read comes out of a write as it went in, with all
// that this version does not know, and is no change.
func FuzzRow(f *testing.F) {
	full := fullEntry(f, "row")
	plain := benchRow("row")
	for _, e := range []*Entry{&full, &plain} {
		data, err := encodeEntry(e)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
		f.Add([]byte(strangely(f, *e)))
	}
	for _, row := range []string{
		`{"schemaVersion":1,"ledgerId":"a"}`,
		`{"schemaVersion":1,"ledgerId":"a","mux":"x","lease":7,"startedAt":{"a":1},"worktree":"true","pid":1e3}`,
		`{"schemaVersion":1,"ledgerId":"a","\u0070id":4,"z":{"a":1,"a":2}}`,
		`{ "schemaVersion" : 1 , "ledgerId" : "a" , "z" : [ 1 , "\u00e9" ] , "sessionIds" : [ null, {"id":"b","z":2.50} ] }`,
		`{"schemaVersion":1,"ledgerId":"a","cwd":"\"\\377\"","paneServer":{"bootId":"b","z":1}}`,
		"\x00\x00", "[]", "{} {}",
	} {
		f.Add([]byte(row))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		e, err := decodeEntry(data)
		if err != nil {
			if text := err.Error(); len(text) > 1000 || strings.ContainsAny(text, "\n\x00") {
				t.Errorf("no line for a person: %q", text)
			}
			return
		}
		if !jsontext.Value(data).IsValid() {
			t.Fatal("read, though it is no JSON object without duplicates")
		}
		if p, err := prepare(&row{entry: e}, 1<<30, func(*Entry) (verdict, error) { return unchanged, nil }); err == nil && p.write {
			t.Error("nothing was changed, and it is written")
		}
		if e.asStored() != nil {
			return // a time that this version does not write, say
		}
		out, err := encodeEntry(&e)
		if err != nil {
			t.Fatalf("%q is read and cannot be written: %v", data, err)
		}
		if _, err := decodeEntry(out); err != nil || bytes.ContainsRune(out, '\n') {
			t.Fatalf("written as %q: %v", out, err)
		}
		if had, has := unknownIn(t, data), unknownIn(t, out); !reflect.DeepEqual(had, has) {
			t.Errorf("unknown members were %v, are %v", had, has)
		}
	})
}

// What can be read can be written again: a row that could not is damaged at once.
func TestRowsThatNothingCanFollowAreDamaged(t *testing.T) {
	for _, member := range []string{
		`"revision":18446744073709551615`, `"epoch":18446744073709551615`,
		`"startedAt":"9999-12-31T23:59:59-23:59"`, `"waiting":{"since":"0000-01-01T00:00:00+23:59"}`,
	} {
		if _, err := decodeEntry([]byte(`{"schemaVersion":1,"ledgerId":"a",` + member + `}`)); err == nil {
			t.Errorf("read: %s", member)
		}
	}
	for _, member := range []string{`"revision":18446744073709551614`, `"startedAt":"9999-12-31T23:59:59Z"`} {
		e, err := decodeEntry([]byte(`{"schemaVersion":1,"ledgerId":"a",` + member + `}`))
		if err != nil {
			t.Errorf("%s: %v", member, err)
		}
		if p, err := prepare(&row{entry: e}, maxRow, func(e *Entry) (verdict, error) { e.Branch = "b"; return unchanged, nil }); err != nil || !p.write {
			t.Errorf("%s cannot be written again: %v", member, err)
		}
	}
}

// unknownIn are the members of a row that this version does not know, as they are spelled but
// for space between their tokens.
func unknownIn(t *testing.T, row []byte) map[string]string {
	t.Helper()
	var members map[string]jsontext.Value
	if err := json.Unmarshal(row, &members, jsontext.PreserveRawStrings(true)); err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{}
	for _, m := range layoutOf(reflect.TypeFor[Entry]()) {
		known[m.name()] = true
	}
	unknown := map[string]string{}
	for name, value := range members {
		if known[name] {
			continue
		}
		if err := value.Compact(jsontext.PreserveRawStrings(true)); err != nil {
			t.Fatal(err)
		}
		unknown[name] = string(value)
	}
	return unknown
}
