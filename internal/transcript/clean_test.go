package transcript

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

func TestClean(t *testing.T) {
	for _, c := range []struct{ name, in, want string }{
		{"plain", "Fix the login", "Fix the login"},
		{"one line", " a\r\n\n\tb\v\fc  d ", "a b c d"},
		{"line separators", "a\u2028b\u2029c\u0085d", "a b c d"},
		{"colour", "\x1b[1;31mred\x1b[0m", "red"},
		{"private control sequence", "a\x1b[?25lb\x1b[>4;1mc", "abc"},
		{"title ended by BEL", "\x1b]0;title\x07text", "text"},
		{"title ended by ST", "\x1b]2;title\x1b\\text", "text"},
		{"link", "\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"},
		{"device control", "a\x1bPq#0\x1b\\b\x1b_G\x1b\\c\x1b^p\x1b\\d\x1bXs\x1b\\e", "abcde"},
		{"never ended, to the line's end", "a\x1b]0;tail\nnext", "a next"},
		{"never ended at all", "a\x1b]0;tail", "a"},
		{"broken off by another", "a\x1b]0;t\x1b[31mb", "ab"},
		{"cancelled", "a\x1bPx\x18b", "ab"},
		{"character set", "a\x1b(Bb\x1b#8c", "abc"},
		{"two bytes", "a\x1bcb\x1b7c\x1b=d", "abcd"},
		{"a lone escape", "a\x1b", "a"},
		{"escape before a newline", "a\x1b\nb", "a b"},
		{"escape before a letter beyond ASCII", "a\x1béb", "aéb"},
		{"cut in a sequence", "a\x1b[31", "a"},
		{"C1 in UTF-8", "a\u009b31mb\u009d0;t\u009cc\u0084d", "abcd"},
		{"C1 as bytes", "a\x9b31mb", "a\uFFFD31mb"},
		{"controls", "a\x00b\x07c\x08d\x7fe", "abcde"},
		{"overrides", "a\u202eb\u2066c\u2069d\u200fe\u061cf\ufeffg", "abcdefg"},
		{"tags", "a\U000e0041b", "ab"},
		{"joiners stay", "👩\u200d💻", "👩\u200d💻"},
		{"not UTF-8", "a\xffb", "a\uFFFDb"},
		{"nothing left", "\x1b[2J\n\t", ""},
	} {
		if got := Clean(c.in, 100); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

func TestCleanCutsByRunes(t *testing.T) {
	for _, c := range []struct {
		in   string
		max  int
		want string
	}{
		{"äöüß", 3, "äöü"},
		{"ab cd", 3, "ab"}, // never a space at the end
		{"ab cd", 4, "ab c"},
		{"abc", 3, "abc"},
		{"abc", 0, ""},
		{"\x1b[1mabc\x1b[0m", 2, "ab"},
	} {
		if got := Clean(c.in, c.max); got != c.want {
			t.Errorf("%q to %d: %q, want %q", c.in, c.max, got, c.want)
		}
	}
}

// Clean's result is UTF-8 of one line within its length, has no control and no
// double space, and is clean already.
func FuzzClean(f *testing.F) {
	for _, s := range []string{"a\x1b[31mb", "\x1b]0;t\x07 x\u202e", "a\u009b1mb\xff", " \n\x1b(Bz", "\x1bP\x1b\\"} {
		f.Add(s, 20)
	}
	f.Fuzz(func(t *testing.T, s string, limit int) {
		if limit > 1000 {
			limit %= 1000
		}
		got := Clean(s, limit)
		switch {
		case !utf8.ValidString(got):
			t.Fatalf("not UTF-8: %q", got)
		case utf8.RuneCountInString(got) > max(limit, 0):
			t.Fatalf("longer than %d: %q", limit, got)
		case strings.ContainsFunc(got, func(r rune) bool { return unicode.IsControl(r) || unprintable(r) }):
			t.Fatalf("controls: %q", got)
		case strings.Contains(got, "  ") || strings.TrimSpace(got) != got:
			t.Fatalf("space: %q", got)
		case Clean(got, limit) != got:
			t.Fatalf("not stable: %q, %q", got, Clean(got, limit))
		}
	})
}
