package loose

import (
	"bytes"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"
)

func TestWrongTypesReadAsAbsent(t *testing.T) {
	o, whole := Parse([]byte(`{"s":1,"b":"true","n":"x","o":[],"l":{},"ok":"yes","m":-1}`))
	if !whole {
		t.Fatal("not whole")
	}
	if s := o.String("s"); s != "" {
		t.Errorf("number as string: %q", s)
	}
	if _, ok := o.Bool("b"); ok {
		t.Error("string as boolean")
	}
	for _, name := range []string{"n", "m", "absent"} {
		if n, ok := o.Uint(name); ok {
			t.Errorf("%s as number: %d", name, n)
		}
	}
	if len(o.Object("o")) != 0 || o.List("l") != nil {
		t.Error("list as object or object as list")
	}
	if s := o.First("s", "absent", "ok"); s != "yes" {
		t.Errorf("First = %q", s)
	}
}

func TestNumbersAndTheirSpelling(t *testing.T) {
	o, _ := Parse([]byte(`{"a":18446744073709551615,"b":"42","c":1.5}`))
	if n, ok := o.Uint("a"); !ok || n != 1<<64-1 {
		t.Errorf("a = %d, %v", n, ok)
	}
	if n, ok := o.Uint("b"); !ok || n != 42 {
		t.Errorf("b = %d, %v", n, ok)
	}
	if _, ok := o.Uint("c"); ok {
		t.Error("a fraction is no whole number")
	}
}

func TestLastDuplicateWinsAndNamesAreExact(t *testing.T) {
	o, whole := Parse([]byte(`{"id":"a","id":"b","ID":"c"}`))
	if !whole || o.String("id") != "b" || o.String("Id") != "" {
		t.Errorf("whole %v, id %q, Id %q", whole, o.String("id"), o.String("Id"))
	}
	if diff := cmp.Diff([]string{"id", "id", "ID"}, o.Names()); diff != "" {
		t.Error(diff)
	}
}

func TestStringsOfOtherEncodings(t *testing.T) {
	o, whole := Parse([]byte("{\"a\":\"x\xffy\",\"b\":\"\\u00e9\xff\\n\",\"c\":\"\\ud800\"}"))
	if !whole {
		t.Fatal("invalid UTF-8 is no fault of syntax")
	}
	if s := o.String("a"); s != "x\uFFFDy" {
		t.Errorf("a = %q", s)
	}
	if s := o.String("b"); s != "é\uFFFD\n" {
		t.Errorf("b = %q", s)
	}
	if s := o.String("c"); s != "\uFFFD" {
		t.Errorf("c = %q", s)
	}
}

func TestCutTextKeepsWhatStoodBefore(t *testing.T) {
	o, whole := Parse([]byte(`{"type":"m","payload":{"id":"i","list":["a","b","c`))
	if whole {
		t.Fatal("whole")
	}
	p := o.Object("payload")
	if o.String("type") != "m" || p.String("id") != "i" {
		t.Errorf("type %q, id %q", o.String("type"), p.String("id"))
	}
	if l := p.List("list"); len(l) != 2 || String(l[1]) != "b" {
		t.Errorf("list = %q", l)
	}
	if o.Value("payload") != nil {
		t.Error("a cut value has a text")
	}
	o, _ = Parse([]byte(`{"a":"b`))
	if !o.Has("a") || o.String("a") != "" {
		t.Error("a cut string is a string")
	}
}

func TestOnlyOneObjectIsWhole(t *testing.T) {
	for text, want := range map[string]bool{
		`{}`: true, " {\"a\":1}\r\n": true, `{} {}`: false, `{}x`: false,
		`[]`: false, `1`: false, ``: false, `{`: false, `{"a"}`: false, `{"a":}`: false, `{,}`: false,
		"{}\x00": false,
	} {
		if _, whole := Parse([]byte(text)); whole != want {
			t.Errorf("%q: whole = %v", text, whole)
		}
	}
}

func TestDeepNestingEnds(t *testing.T) {
	deep := []byte(strings.Repeat(`{"a":`, 20_000))
	o, whole := Parse(deep)
	if whole {
		t.Fatal("whole")
	}
	for range 5 {
		o = o.Object("a")
	}
	if !o.Has("a") {
		t.Error("the outer levels are lost")
	}
}

// Parse calls whole exactly what a JSON parser calls an object, every value it
// hands out is JSON, and cutting a text only ever takes members from the end.
func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"type":"user","message":{"content":[{"type":"text","text":"hi"}]}}`), 20)
	f.Add([]byte("{\"a\":\"\xff\",\"a\":null} "), 3)
	f.Add([]byte(`{"a":{"b":[1,{"c":"d`), 9)
	f.Fuzz(func(t *testing.T, text []byte, cut int) {
		o, whole := Parse(text)
		v := jsontext.Value(bytes.TrimSpace(text))
		if object := v.IsValid(tolerant...) && v.Kind() == '{'; whole != object {
			t.Fatalf("whole = %v, a parser says %v", whole, object)
		}
		for _, name := range o.Names() {
			if v := o.Value(name); v != nil && !jsontext.Value(v).IsValid(tolerant...) {
				t.Fatalf("value %q is no JSON", v)
			}
			_, _, _ = o.String(name), o.Object(name), o.List(name)
		}
		if cut < 0 || cut > len(text) {
			return
		}
		part, _ := Parse(text[:cut])
		names := o.Names()
		if len(part) > len(names) || cmp.Diff(names[:len(part)], part.Names()) != "" {
			t.Fatalf("cut at %d: %q is no beginning of %q", cut, part.Names(), names)
		}
	})
}
