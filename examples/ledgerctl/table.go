package main

import (
	"fmt"
	"io"
	"strings"
	"unicode"

	"github.com/sessionledger/ledger"
)

// look is how a state is shown: its symbol and its colour (an SGR parameter).
type look struct{ symbol, color string }

// lookOf returns the look of a state, the zero value for what is none.
func lookOf(s ledger.Liveness) look {
	switch s {
	case "ALIVE-WORKING":
		return look{"●", "32"}
	case "ALIVE-IDLE":
		return look{"○", "36"}
	case "DETACHED-ALIVE":
		return look{"◌", "36"}
	case "ORPHANED":
		return look{"✗", "31"}
	case "UNKNOWN":
		return look{"?", "33"}
	case "IN-FLIGHT":
		return look{"↻", "35"}
	case "FROZEN":
		return look{"❄", "34"}
	case "ARCHIVED":
		return look{"▪", "90"}
	case "FINISHED":
		return look{"✓", "90"}
	}
	return look{}
}

// cell is text in a table, with a colour or without.
type cell struct{ text, color string }

// stateCell shows a state by symbol, word and colour, so that no one of them is needed.
func stateCell(s ledger.Liveness) cell {
	look := lookOf(s)
	return cell{look.symbol + " " + string(s), look.color}
}

// table prints rows in aligned columns, and cuts the last one to fit the terminal, if w is
// one. text/tabwriter would count the colours.
func (a *app) table(w io.Writer, head []string, rows [][]cell) {
	columns, _ := terminalWidth(w)
	a.tableOf(w, columns, head, rows)
}

// tableOf is table for a line of that many columns; 0 means that nothing is cut.
func (a *app) tableOf(w io.Writer, columns int, head []string, rows [][]cell) {
	last := len(head) - 1
	widths, used := make([]int, len(head)), 0
	for i, h := range head {
		widths[i] = width(h)
		for _, row := range rows {
			widths[i] = max(widths[i], width(row[i].text))
		}
		if i < last {
			used += widths[i] + 2
		}
	}
	color := wantsColor(a.stdout)
	write := func(row []cell) {
		var b strings.Builder
		for i, c := range row {
			text := c.text
			if i < last {
				text += strings.Repeat(" ", widths[i]-width(text)+2)
			} else if columns > 0 {
				text = short(text, max(columns-used, 20))
			}
			if c.color != "" && color {
				text = "\x1b[" + c.color + "m" + text + "\x1b[0m"
			}
			b.WriteString(text)
		}
		fmt.Fprintln(w, strings.TrimRight(b.String(), " "))
	}
	if strings.Join(head, "") != "" {
		title := make([]cell, len(head))
		for i, h := range head {
			title[i] = cell{h, "1"}
		}
		write(title)
	}
	for _, row := range rows {
		write(row)
	}
}

// short cuts text to at most n columns.
func short(s string, n int) string {
	if width(s) <= n {
		return s
	}
	cut, used := 0, 0
	for i, r := range s {
		if used += runeWidth(r); used > n-1 {
			break
		}
		cut = i + len(string(r))
	}
	return s[:cut] + "…"
}

// width is how many columns of a terminal text takes.
func width(s string) (n int) {
	for _, r := range s {
		n += runeWidth(r)
	}
	return n
}

func runeWidth(r rune) int {
	switch {
	case r < 0x300:
		return 1
	case unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf):
		return 0
	case unicode.Is(wide, r):
		return 2
	}
	return 1
}

// wide has what takes two columns: the scripts of East Asia, and emoji.
var wide = &unicode.RangeTable{
	R16: []unicode.Range16{
		{0x1100, 0x115f, 1}, {0x231a, 0x231b, 1}, {0x23e9, 0x23ec, 1}, {0x26a1, 0x26a1, 1}, {0x2705, 0x2705, 1},
		{0x2728, 0x2728, 1}, {0x274c, 0x274c, 1}, {0x2753, 0x2755, 1}, {0x2b50, 0x2b50, 1}, {0x2e80, 0x303e, 1},
		{0x3041, 0x4dbf, 1}, {0x4e00, 0xa4cf, 1}, {0xa960, 0xa97f, 1}, {0xac00, 0xd7a3, 1}, {0xf900, 0xfaff, 1},
		{0xfe30, 0xfe6f, 1}, {0xff00, 0xff60, 1}, {0xffe0, 0xffe6, 1},
	},
	R32: []unicode.Range32{{0x1f300, 0x1f64f, 1}, {0x1f680, 0x1f6ff, 1}, {0x1f900, 0x1faff, 1}, {0x20000, 0x3fffd, 1}},
}
