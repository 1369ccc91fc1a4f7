package settings

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// roundTrip checks what holds of any text at all: it is refused for a reason
// that has a name, or it is edited so that it is JSON, an event is not given the
// command twice, and taking it out restores the text.
func roundTrip(form Form, text []byte, events []string) error {
	l := layoutOf(form)
	const command = "the command of \"ours\" \u2028"
	once, err := l.install(text, events, command, 5*time.Second)
	if err != nil {
		if !errors.Is(err, ErrMalformed) && !errors.Is(err, ErrShape) {
			return fmt.Errorf("refused with %v", err)
		}
		return nil
	}
	if len(events) == 0 {
		if !bytes.Equal(once, text) {
			return errors.New("changed for no event")
		}
		return nil
	}
	if !json.Valid(once) {
		return fmt.Errorf("not JSON: %q", once)
	}
	twice, err := l.install(once, events, command, time.Hour)
	if err != nil || !bytes.Equal(once, twice) {
		return fmt.Errorf("twice is not once: %v\n%q\n%q", err, once, twice)
	}
	if _, err := parse(text); err == nil && bytes.Contains(text, []byte("ours")) {
		return nil // it had the command before
	}
	back, err := l.uninstall(once, command)
	if err != nil || !bytes.Equal(back, text) {
		return fmt.Errorf("not restored: %v\nbefore    %q\ninstalled %q\nafter     %q", err, text, once, back)
	}
	again, err := l.uninstall(back, command)
	if err != nil || !bytes.Equal(again, back) {
		return fmt.Errorf("uninstalled twice: %v, %q", err, again)
	}
	return nil
}

func TestInstallThenUninstallIsNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := document(t)
		form := Form(rapid.IntRange(int(Claude), int(Copilot)).Draw(t, "form"))
		events := rapid.SliceOfN(rapid.SampledFrom([]string{"Stop", "SessionStart", "x", "é"}), 1, 4).Draw(t, "events")
		if err := roundTrip(form, []byte(text), events); err != nil {
			t.Fatal(err)
		}
	})
}

// document makes a settings file with white space anywhere.
func document(t *rapid.T) string {
	space := func() string {
		return rapid.SampledFrom([]string{"", "", "", "", " ", "  ", "   ", "\t", "\n", "\r\n", "\n  ", " \n\t", "\n    "}).Draw(t, "space")
	}
	var value func(depth int) string
	container := func(open, close string, n int, child func(i int) string) string {
		s := open + space()
		for i := range n {
			if i > 0 {
				s += "," + space()
			}
			s += child(i) + space()
		}
		return s + close
	}
	value = func(depth int) string {
		kind := rapid.IntRange(0, 4).Draw(t, "kind")
		if depth == 0 {
			kind = 0
		}
		n := rapid.IntRange(0, 2).Draw(t, "children")
		switch kind {
		case 1:
			return container("[", "]", n, func(int) string { return value(depth - 1) })
		case 2:
			return container("{", "}", n, func(i int) string { return fmt.Sprintf(`"k%d"`, i) + space() + ":" + space() + value(depth-1) })
		}
		return rapid.SampledFrom([]string{"null", "true", "1e999", "-0.10", `""`, `"\u00e9\n"`, `"x,]}"`}).Draw(t, "scalar")
	}
	list := func(child func() string) string {
		return container("[", "]", rapid.IntRange(0, 2).Draw(t, "length"), func(int) string { return child() })
	}
	entry := func() string {
		return container("{", "}", 1, func(int) string {
			return rapid.SampledFrom([]string{`"command"`, `"bash"`, `"other"`}).Draw(t, "member") + space() + ":" + space() + value(1)
		})
	}
	event := func() string {
		if rapid.Bool().Draw(t, "flat") {
			return list(entry)
		}
		return list(func() string {
			return container("{", "}", 1, func(int) string { return `"hooks"` + space() + ":" + space() + list(entry) })
		})
	}
	member := func(name string, v func() string) string { return `"` + name + `"` + space() + ":" + space() + v() }
	hooks := func() string {
		names := []string{"Stop", "SessionStart", "other"}[:rapid.IntRange(0, 3).Draw(t, "events")]
		return container("{", "}", len(names), func(i int) string { return member(names[i], event) })
	}
	var members []string
	for _, name := range rapid.Permutation([]string{"a", "hooks", "version", "z"}).Draw(t, "names") {
		if !rapid.Bool().Draw(t, "has") {
			continue
		}
		switch name {
		case "hooks":
			members = append(members, member(name, hooks))
		case "version":
			members = append(members, member(name, func() string { return "1" }))
		default:
			members = append(members, member(name, func() string { return value(2) }))
		}
	}
	text := space() + container("{", "}", len(members), func(i int) string { return members[i] }) + space()
	if rapid.IntRange(0, 30).Draw(t, "blank") == 0 {
		return strings.TrimLeft(space()+space(), "x")
	}
	return text
}

func FuzzRoundTrip(f *testing.F) {
	for _, text := range shapes {
		f.Add([]byte(text), uint8(Claude))
		f.Add([]byte(text), uint8(Cursor))
	}
	f.Add([]byte("{ \n \"hooks\": { \n\"Stop\":[  \n]}}"), uint8(Gemini))
	f.Fuzz(func(t *testing.T, text []byte, form uint8) {
		if err := roundTrip(Form(form%4)+Claude, text, someEvents); err != nil {
			t.Fatal(err)
		}
	})
}
