package tmux

import (
	"fmt"
	"strings"
)

// command is one tmux command with its arguments as they are meant. It reaches
// the server in one of two ways, each with its own quoting: as arguments of the
// binary, or as text for tmux's own parser.
type command []string

// renderArgv joins commands for the binary's command line. There tmux takes an
// argument that ends in a semicolon for the end of a command, unless a backslash
// stands before it.
func renderArgv(cmds []command) ([]string, error) {
	var argv []string
	for i, c := range cmds {
		if i > 0 {
			argv = append(argv, ";")
		}
		for _, a := range c {
			if strings.IndexByte(a, 0) >= 0 {
				return nil, invalid("NUL in an argument of %s", c[0])
			}
			if strings.HasSuffix(a, ";") {
				a = a[:len(a)-1] + `\;`
			}
			argv = append(argv, a)
		}
	}
	return argv, nil
}

// renderLine joins commands for tmux's parser (the branches of if-shell, and
// control mode). Each argument is in double quotes, the one form in which a
// newline can be written too: in single quotes tmux drops blanks after it.
func renderLine(cmds []command) (string, error) {
	var b strings.Builder
	for i, c := range cmds {
		if i > 0 {
			b.WriteString(" ; ")
		}
		for j, a := range c {
			if j > 0 {
				b.WriteByte(' ')
			}
			b.WriteByte('"')
			for k := 0; k < len(a); k++ {
				switch ch := a[k]; {
				case ch == 0:
					return "", invalid("NUL in an argument of %s", c[0])
				case ch < ' ', ch == 0xff: // the parser takes 0xff for the end
					fmt.Fprintf(&b, `\%03o`, ch)
				case ch == '\\', ch == '"', ch == '$':
					b.WriteByte('\\')
					b.WriteByte(ch)
				default:
					b.WriteByte(ch)
				}
			}
			b.WriteByte('"')
		}
	}
	return b.String(), nil
}

// literal writes s so that tmux's format expansion gives s again: names and
// directories of new-session, new-window and respawn-pane are expanded, and
// #(...) there would run a command. A run of # before [ stands for itself in a
// format, any other # is doubled.
func literal(s string) string {
	if !strings.Contains(s, "#") {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); {
		if s[i] != '#' {
			b.WriteByte(s[i])
			i++
			continue
		}
		j := i
		for j < len(s) && s[j] == '#' {
			j++
		}
		b.WriteString(s[i:j])
		if j == len(s) || s[j] != '[' {
			b.WriteString(s[i:j])
		}
		i = j
	}
	return b.String()
}

// plain reports whether s may stand inside a format condition as it is.
func plain(s string) bool {
	for i := 0; i < len(s); i++ {
		c := s[i]
		switch {
		case c >= '0' && c <= '9', c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z':
		case strings.IndexByte("._:@/+-", c) >= 0:
		default:
			return false
		}
	}
	return true
}
