package tmux

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
)

// Answers of the server are records: a kind, a fixed number of fields, each
// field ended by |, then a newline. Text fields go through tmux's q modifier,
// which puts a backslash before | and \ among others, so they may hold anything,
// newlines too. On the way out 3.4 and 3.5 also write control and invalid bytes as
// \ooo or \n, and 3.4 puts a backslash before $ and a letter; the second field of
// the head shows whether this server does the latter.
const (
	serverFormat  = "S|$x|#{pid}|#{start_time}|#{q:version}|#{q:socket_path}|"
	sessionFormat = "s|#{session_id}|#{session_created}|#{q:session_name}|"
	clientFormat  = "c|#{client_control_mode}|#{session_id}|"
	paneFormat    = "p|#{pane_id}|#{session_id}|#{window_id}|#{window_index}|#{pane_index}|" +
		"#{?window_active,1,0}|#{?pane_active,1,0}|#{pane_pid}|#{?pane_dead,1,0}|#{pane_dead_status}|" +
		"#{q:session_name}|#{q:window_name}|#{q:pane_tty}|#{q:pane_title}|" +
		"#{q:" + OptionID + "}|#{q:" + OptionAttempt + "}|#{q:" + OptionReady + "}|#{q:" + optionInput + "}|"
)

func endFormat(token string) string { return "e|" + token + "|" }

// newToken returns 128 random bits in hexadecimal.
func newToken() string {
	return fmt.Sprintf("%016x%016x", rand.Uint64(), rand.Uint64())
}

// fieldCount is how many fields a record of a kind has; 0 is no kind.
func fieldCount(kind byte) int {
	switch kind {
	case 'S':
		return 5
	case 's':
		return 3
	case 'c':
		return 2
	case 'p':
		return 18
	case 'e':
		return 1
	}
	return 0
}

type record struct {
	kind   byte
	fields []string
}

var errMalformed = errors.New("malformed answer")

// decode splits an answer into records. It accepts nothing but whole records.
func decode(data []byte) ([]record, error) {
	quirk := bytes.HasPrefix(data, []byte(`S|\$x|`))
	var recs []record
	for len(data) > 0 {
		n := fieldCount(data[0])
		if n == 0 || len(data) < 2 || data[1] != '|' {
			return nil, errMalformed
		}
		r := record{kind: data[0], fields: make([]string, n)}
		data = data[2:]
		for i := range r.fields {
			end := fieldEnd(data)
			if end < 0 {
				return nil, errMalformed
			}
			field, ok := unescape(data[:end], quirk)
			if !ok {
				return nil, errMalformed
			}
			r.fields[i] = field
			data = data[end+1:]
		}
		if len(data) == 0 || data[0] != '\n' {
			return nil, errMalformed
		}
		data = data[1:]
		recs = append(recs, r)
	}
	return recs, nil
}

// fieldEnd returns the index of the first | without a backslash, or -1.
func fieldEnd(b []byte) int {
	for i := 0; i < len(b); i++ {
		switch b[i] {
		case '\\':
			i++
		case '|':
			return i
		}
	}
	return -1
}

// unescape undoes the q modifier and the encoding of control bytes. The two
// cannot be confused: q never puts its backslash before a letter or digit.
func unescape(b []byte, quirk bool) (string, bool) {
	if bytes.IndexByte(b, '\\') < 0 {
		return string(b), true
	}
	if quirk {
		b = undollar(b)
	}
	out := make([]byte, 0, len(b))
	for i := 0; i < len(b); i++ {
		if b[i] != '\\' {
			out = append(out, b[i])
			continue
		}
		i++
		if i == len(b) {
			return "", false
		}
		switch c := b[i]; {
		case c >= '0' && c <= '3' && i+2 < len(b) && isOctal(b[i+1]) && isOctal(b[i+2]):
			out = append(out, (c-'0')<<6|(b[i+1]-'0')<<3|(b[i+2]-'0'))
			i += 2
		case c >= '0' && c <= '9':
			return "", false
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z':
			k := strings.IndexByte("abfnrtvs", c)
			if k < 0 {
				return "", false
			}
			out = append(out, "\a\b\f\n\r\t\v "[k])
		default:
			out = append(out, c)
		}
	}
	return string(out), true
}

func isOctal(c byte) bool { return c >= '0' && c <= '7' }

// undollar removes the one backslash that 3.4 puts before each $ that a letter,
// _ or { follows.
func undollar(b []byte) []byte {
	out := make([]byte, 0, len(b))
	for i := 0; i < len(b); i++ {
		if b[i] == '\\' && i+2 < len(b) && b[i+1] == '$' {
			c := b[i+2]
			if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '_' || c == '{' {
				continue
			}
		}
		out = append(out, b[i])
	}
	return out
}

func (r record) server() (id ServerID, version, socket string, err error) {
	pid, err1 := strconv.Atoi(r.fields[1])
	started, err2 := strconv.ParseInt(r.fields[2], 10, 64)
	if err1 != nil || err2 != nil || pid <= 0 {
		return ServerID{}, "", "", fmt.Errorf("%w: head", errMalformed)
	}
	return ServerID{PID: pid, Started: started}, r.fields[3], r.fields[4], nil
}

func (r record) session() (Session, error) {
	f := r.fields
	created, err := strconv.ParseInt(f[1], 10, 64)
	if err != nil || !isID(f[0], '$') {
		return Session{}, fmt.Errorf("%w: session", errMalformed)
	}
	return Session{ID: f[0], Created: created, Name: f[2]}, nil
}

func (r record) pane() (Pane, error) {
	f := r.fields
	var bad bool
	number := func(s string, empty bool) int {
		if s == "" && empty {
			return 0
		}
		n, err := strconv.Atoi(s)
		bad = bad || err != nil
		return n
	}
	p := Pane{
		ID: f[0], SessionID: f[1], WindowID: f[2],
		WindowIndex: number(f[3], false), Index: number(f[4], false),
		WindowActive: f[5] == "1", Active: f[6] == "1",
		Dead:    f[8] == "1",
		Status:  number(f[9], true),
		Session: f[10], Window: f[11], TTY: f[12], Title: f[13],
		Ledger: f[14], Attempt: f[15], Ready: f[16], input: f[17],
	}
	p.PID = number(f[7], p.Dead)
	if bad || !isID(p.ID, '%') || !isID(p.SessionID, '$') || !isID(p.WindowID, '@') {
		return Pane{}, fmt.Errorf("%w: pane", errMalformed)
	}
	return p, nil
}

// isID reports whether s is a tmux id: its sigil and decimal digits.
func isID(s string, sigil byte) bool {
	if len(s) < 2 || s[0] != sigil {
		return false
	}
	for _, c := range s[1:] {
		if c < '0' || c > '9' {
			return false
		}
	}
	return true
}

// older compares a version such as "3.1c" or "next-3.4". What has no number,
// such as "master", counts as new.
func older(version string, major, minor int) bool {
	i := strings.IndexAny(version, "0123456789")
	if i < 0 {
		return false
	}
	a, rest, _ := strings.Cut(version[i:], ".")
	x, err := strconv.Atoi(a)
	if err != nil {
		return false
	}
	j := 0
	for j < len(rest) && rest[j] >= '0' && rest[j] <= '9' {
		j++
	}
	y, _ := strconv.Atoi(rest[:j])
	return x < major || x == major && y < minor
}
