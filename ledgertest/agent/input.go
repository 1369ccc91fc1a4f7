package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"unicode/utf8"
)

// maxLine bounds one prompt.
const maxLine = 4 << 20

// read sends lines until the input ends. On a terminal whose line mode is off
// it is the editor of one.
func (a *agent) read(in io.Reader) {
	defer close(a.lines)
	r := bufio.NewReader(in)
	if a.raw {
		e := editor{in: r, out: os.Stdout}
		for {
			text, err := e.line()
			if err != nil {
				a.hungUp = err != errDone
				return
			}
			a.lines <- text
		}
	}
	s := bufio.NewScanner(r)
	s.Buffer(nil, maxLine)
	for s.Scan() {
		a.lines <- strings.TrimSuffix(s.Text(), "\r")
	}
}

// An editor reads prompts from a terminal, as the CLIs' own composers do: what
// is typed is shown behind a mark, a paste may have several lines, and Enter
// sends.
type editor struct {
	in  *bufio.Reader
	out io.Writer
}

// errDone says that a person ended the input.
var errDone = errors.New("end of input")

const (
	pasteOn, pasteOff     = "\x1b[?2004h", "\x1b[?2004l"
	pasteBegin, pasteDone = "200~", "201~"
)

// line reads one prompt. The error is errDone when ^D comes for an empty one,
// io.EOF at the terminal's end.
func (e *editor) line() (string, error) {
	fmt.Fprint(e.out, "> ")
	var text []byte
	pasting := false
	for len(text) < maxLine {
		c, err := e.in.ReadByte()
		if err != nil {
			return "", io.EOF
		}
		switch {
		case c == 0x1b:
			switch e.sequence() {
			case pasteBegin:
				pasting = true
			case pasteDone:
				pasting = false
			}
		case c == '\n' || c == '\r':
			fmt.Fprint(e.out, "\n")
			if !pasting {
				return string(text), nil
			}
			text = append(text, '\n')
		case c == 0x04 && len(text) == 0:
			return "", errDone
		case c == 0x7f || c == 0x08:
			if _, n := utf8.DecodeLastRune(text); n > 0 {
				text = text[:len(text)-n]
				fmt.Fprint(e.out, "\b \b")
			}
		case c == 0x15: // ^U
			text = nil
			fmt.Fprint(e.out, "\r\x1b[K> ")
		case c >= ' ' || c == '\t':
			text = append(text, c)
			_, _ = e.out.Write([]byte{c})
		}
	}
	return string(text), nil
}

// sequence reads what follows an escape and returns a control sequence's rest.
func (e *editor) sequence() string {
	if c, err := e.in.ReadByte(); err != nil || c != '[' {
		return ""
	}
	var s []byte
	for len(s) < 32 {
		c, err := e.in.ReadByte()
		if err != nil {
			break
		}
		if s = append(s, c); c >= 0x40 && c <= 0x7e {
			break
		}
	}
	return string(s)
}
