package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/sessionledger/ledger"
)

// line prints one object as JSON on a line of its own.
func (a *app) line(v any) error {
	enc := json.NewEncoder(a.stdout)
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// plain makes text from files and programs safe for a terminal: one line, and no
// character that a terminal would act on.
func plain(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n', r == '\t', r == '\r':
			return ' '
		case r == utf8.RuneError, unicode.IsControl(r), unicode.Is(unicode.Cf, r):
			return '�'
		}
		return r
	}, s)
}

// short cuts text to at most n characters.
func short(s string, n int) string {
	if utf8.RuneCountInString(s) <= n {
		return s
	}
	return string([]rune(s)[:n-1]) + "…"
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

// looks gives each state its symbol and its colour (an SGR parameter).
var looks = map[ledger.Liveness]struct{ symbol, color string }{
	"ALIVE-WORKING":  {"●", "32"},
	"ALIVE-IDLE":     {"○", "36"},
	"DETACHED-ALIVE": {"◌", "36"},
	"ORPHANED":       {"✗", "31"},
	"UNKNOWN":        {"?", "33"},
	"IN-FLIGHT":      {"↻", "35"},
	"FROZEN":         {"❄", "34"},
	"ARCHIVED":       {"▪", "90"},
	"FINISHED":       {"✓", "90"},
}

// cell is text in a table, with a colour or without.
type cell struct{ text, color string }

// table prints rows in aligned columns; the last column has what is left of the line.
// text/tabwriter would count the colours.
func (a *app) table(w io.Writer, head []string, rows [][]cell) {
	width := make([]int, len(head))
	for i, h := range head {
		width[i] = utf8.RuneCountInString(h)
		for _, row := range rows {
			width[i] = max(width[i], utf8.RuneCountInString(row[i].text))
		}
	}
	write := func(row []cell) {
		var b strings.Builder
		for i, c := range row {
			text := c.text
			if i < len(row)-1 {
				text += strings.Repeat(" ", width[i]-utf8.RuneCountInString(c.text)+2)
			}
			if c.color != "" && a.color {
				text = "\x1b[" + c.color + "m" + text + "\x1b[0m"
			}
			b.WriteString(text)
		}
		fmt.Fprintln(w, strings.TrimRight(b.String(), " "))
	}
	title := make([]cell, len(head))
	for i, h := range head {
		title[i] = cell{h, "1"}
	}
	write(title)
	for _, row := range rows {
		write(row)
	}
}
