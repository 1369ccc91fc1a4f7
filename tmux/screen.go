package tmux

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
)

// screen is what a pane shows, for Submit to compare.
type screen struct {
	rows []string
	x, y int // cursor
	tty  string
}

// parseScreen reads "x|y" and the rows below it.
func parseScreen(out string) (screen, error) {
	head, body, ok := strings.Cut(out, "\n")
	var sc screen
	if _, err := fmt.Sscanf(head, "%d|%d", &sc.x, &sc.y); !ok || err != nil {
		return screen{}, &Error{Args: []string{"capture-pane"}, Err: errMalformed}
	}
	sc.rows = strings.Split(strings.TrimSuffix(body, "\n"), "\n")
	return sc, nil
}

func (sc screen) equal(o screen) bool {
	return sc.x == o.x && sc.y == o.y && slices.Equal(sc.rows, o.rows)
}

// squeeze drops what a program adds when it lays out a text: blanks, and the
// lines and blocks of a frame, and what tmux may drop: joiners and marks.
func squeeze(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsSpace(r) || r >= 0x2500 && r <= 0x259f || unicode.In(r, unicode.Cf, unicode.Mn) {
			return -1
		}
		return r
	}, s)
}

func (sc screen) squeezed() string { return squeeze(strings.Join(sc.rows, "")) }

// needle is what to look for to recognise a text: its two ends, squeezed. The
// middle may be scrolled away.
type needle struct{ head, tail string }

// needleRunes fits in one row of a narrow composer.
const needleRunes = 24

func needleOf(text string) needle {
	r := []rune(squeeze(text))
	n := min(len(r), needleRunes)
	return needle{head: string(r[:n]), tail: string(r[len(r)-n:])}
}

// short needles turn up by chance, so they count only at the end of a row.
func (n needle) short() bool { return len([]rune(n.tail)) < 4 }

func (n needle) count(sc screen) int {
	if n.short() {
		c := 0
		for _, row := range sc.rows {
			if strings.HasSuffix(squeeze(row), n.tail) {
				c++
			}
		}
		return c
	}
	all := sc.squeezed()
	return max(strings.Count(all, n.tail), strings.Count(all, n.head))
}

// folds counts the marks that composers show in place of a long paste, such as
// "[Pasted text #1 +12 lines]".
func (sc screen) folds() int {
	return strings.Count(strings.ToLower(sc.squeezed()), "[pasted")
}

// shown reports whether the pane shows the text now and did not before.
func (n needle) shown(before, now screen) bool {
	return n.count(now) > n.count(before) || now.folds() > before.folds()
}

// atCursor reports whether the row of the cursor ends with the text: a program
// that reads it there holds it still.
func (n needle) atCursor(sc screen) bool {
	if sc.y < 0 || sc.y >= len(sc.rows) {
		return false
	}
	upto := squeeze(strings.Join(sc.rows[:sc.y+1], ""))
	return squeeze(sc.rows[sc.y]) != "" && strings.HasSuffix(upto, n.tail)
}

// place is where a text stands: its distance from the bottom, its row, and the
// row below, which is the frame of a composer or what follows in a transcript.
type place struct {
	fromBottom int
	row, below string
}

// last returns the place of the last row that ends an occurrence of the text.
func (n needle) last(sc screen) place {
	all := ""
	ends := make([]int, len(sc.rows)) // of each row in all
	for i, row := range sc.rows {
		all += squeeze(row)
		ends[i] = len(all)
	}
	at := strings.LastIndex(all, n.tail)
	if at < 0 {
		return place{fromBottom: -1}
	}
	i, _ := slices.BinarySearch(ends, at+len(n.tail))
	p := place{fromBottom: len(sc.rows) - i, row: sc.rows[i]}
	if i+1 < len(sc.rows) {
		p.below = sc.rows[i+1]
	}
	return p
}

// taken reports whether the text is no longer where it stood before Enter: at
// the cursor, or, where a program parks the cursor elsewhere, in the composer
// that the text left or as a fold.
func (n needle) taken(pasted, now screen) bool {
	if n.atCursor(pasted) {
		return !n.atCursor(now)
	}
	if pasted.folds() > 0 && n.count(pasted) == 0 {
		return now.folds() < pasted.folds() || n.count(now) > 0
	}
	return n.count(now) < n.count(pasted) || n.last(now) != n.last(pasted)
}
