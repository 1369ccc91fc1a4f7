package transcript

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	esc = 0x1b
	bel = 0x07
	can = 0x18
	sub = 0x1a
	st  = 0x9c // string terminator, the one-rune form of ESC \
)

// Clean makes text from a stranger fit to be shown on one line of a terminal:
// whole escape sequences, control characters (C0, DEL, C1), directional
// overrides and invisible tag characters go, every run of white space becomes
// one space, bytes that are not UTF-8 become U+FFFD, and at most maxRunes
// runes are kept. It reads no further than that needs.
func Clean(s string, maxRunes int) string {
	var b strings.Builder
	space, runes := false, 0
	for s != "" && runes < maxRunes {
		if n := sequence(s); n > 0 {
			s = s[n:]
			continue
		}
		r, size := utf8.DecodeRuneInString(s)
		s = s[size:]
		switch {
		case unicode.IsSpace(r): // takes in NEL and the line separators
			space = runes > 0
			continue
		case unprintable(r):
			continue
		}
		if space {
			space = false
			if runes++; runes == maxRunes {
				break
			}
			b.WriteByte(' ')
		}
		b.WriteRune(r)
		runes++
	}
	return b.String()
}

// unprintable reports runes that draw nothing and can only mislead. The joiners
// stay: emoji and several scripts need them.
func unprintable(r rune) bool {
	switch {
	case unicode.IsControl(r): // C0, DEL, C1
		return true
	case r == 0x061c, r == 0x200e, r == 0x200f, r == 0xfeff:
		return true
	case r >= 0x202a && r <= 0x202e, r >= 0x2066 && r <= 0x2069:
		return true
	case r >= 0xe0000 && r <= 0xe007f:
		return true
	}
	return false
}

// sequence returns the length of the escape sequence at the start of s, 0 when
// there is none (ECMA-48: a control sequence ends at its final byte, a control
// string at its terminator).
func sequence(s string) int {
	var kind rune
	n := 0
	switch r, size := utf8.DecodeRuneInString(s); {
	case r == esc:
		if len(s) == 1 {
			return 1
		}
		kind, n = rune(s[1])+0x40, 2 // ESC [ is U+009B, and so on
	case r >= 0x80 && r < 0xa0 && r != 0x85: // NEL is a line's end
		kind, n = r, size
	default:
		return 0
	}
	switch kind {
	case 0x9b: // control sequence
		for n < len(s) && s[n] >= 0x20 && s[n] < 0x40 {
			n++
		}
		if n < len(s) && s[n] >= 0x40 && s[n] < 0x7f {
			n++
		}
	case 0x90, 0x98, 0x9d, 0x9e, 0x9f: // control strings
		return n + controlString(s[n:])
	default:
		if s[0] != esc {
			break
		}
		// Intermediates and one final byte; after anything else ESC stands alone.
		n = 1
		for n < len(s) && n < 4 && s[n] >= 0x20 && s[n] < 0x30 {
			n++
		}
		if n < len(s) && s[n] >= 0x30 && s[n] < 0x7f {
			n++
		}
	}
	return n
}

// controlString returns the length of a control string's body and terminator.
// One that is never terminated ends at the line's end, as the text after it
// would otherwise be lost.
func controlString(s string) int {
	for i := 0; i < len(s); {
		r, size := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == '\n':
			return i
		case r == bel, r == can, r == sub, r == st:
			return i + size
		case r == esc && i+1 < len(s) && s[i+1] == '\\':
			return i + 2
		case r == esc:
			return i
		}
		i += size
	}
	return len(s)
}
