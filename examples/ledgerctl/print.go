package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"time"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// line prints one object as JSON on a line of its own. What a terminal would act on is
// escaped, which JSON reads as the same text.
func (a *app) line(v any) error {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return err
	}
	_, err := a.stdout.Write(escape(bytes.TrimSuffix(b.Bytes(), []byte("\n"))))
	return err
}

// escape writes the unsafe characters of a JSON text, which can only be in its strings, as
// \u sequences, and ends the line.
func escape(text []byte) []byte {
	out := make([]byte, 0, len(text)+1)
	for len(text) > 0 {
		r, size := utf8.DecodeRune(text)
		switch {
		case !unsafe(r):
			out = append(out, text[:size]...)
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			out = fmt.Appendf(out, `\u%04x\u%04x`, high, low)
		default:
			out = fmt.Appendf(out, `\u%04x`, r)
		}
		text = text[size:]
	}
	return append(out, '\n')
}

// plain makes text from files and programs safe for a terminal: one line, and no
// character that a terminal would act on.
func plain(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n', r == '\t', r == '\r', r == '\u2028', r == '\u2029':
			return ' '
		case unsafe(r):
			return utf8.RuneError
		}
		return r
	}, s)
}

// unsafe reports whether a terminal would act on a character (control characters), or
// show the ones around it as what they are not (directions, tags, line separators). The
// two joiners are safe: emoji and several scripts need them.
func unsafe(r rune) bool {
	const zeroWidthNonJoiner, zeroWidthJoiner = '\u200c', '\u200d'
	return unicode.IsControl(r) || unicode.In(r, unicode.Zl, unicode.Zp) ||
		unicode.Is(unicode.Cf, r) && r != zeroWidthNonJoiner && r != zeroWidthJoiner
}

var bareWord = regexp.MustCompile(`^[A-Za-z0-9_@%+=:,./-]+$`)

// quote makes words a command line that can be copied into a shell.
func quote(words ...string) string {
	quoted := make([]string, len(words))
	for i, w := range words {
		quoted[i] = plain(w)
		if !bareWord.MatchString(w) {
			quoted[i] = "'" + strings.ReplaceAll(plain(w), "'", `'\''`) + "'"
		}
	}
	return strings.Join(quoted, " ")
}

// age writes a duration as people say it: 3m, 2h, 5d.
func age(d time.Duration) string {
	switch {
	case d < 0:
		return "0s"
	case d < time.Minute:
		return fmt.Sprintf("%ds", d/time.Second)
	case d < time.Hour:
		return fmt.Sprintf("%dm", d/time.Minute)
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", d/time.Hour)
	}
	return fmt.Sprintf("%dd", d/(24*time.Hour))
}

func since(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return age(time.Since(t))
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// count writes a number of things: 1 file, 2 files.
func count(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}
