package tmux

import (
	"bytes"
	"context"
	"errors"
	"strconv"
)

// MaxLines is the most lines of history that a capture holds.
const MaxLines = 50_000

// CaptureOptions bounds a capture; nil is the default.
type CaptureOptions struct {
	// Lines of history above the visible screen; 0 or more than MaxLines is
	// MaxLines. A negative value captures the screen alone.
	Lines int
}

// Capture is what a pane shows and remembers, at one moment. Wrapped lines are
// joined, empty lines below the last text of the screen are kept. Bytes are as tmux
// gives them; 3.2 pads lines with blanks. What tmux's own history limit had dropped
// before is lost.
type Capture struct {
	// ANSI has escape sequences for colour and attributes. They may be left on at its
	// end: print "\x1b[0m" after it.
	ANSI []byte
	Text []byte // without any
	// Truncated says that there was more history than was captured.
	Truncated bool
	Pane      Pane
}

// Capture reads a pane if the guard holds, in both forms, in one dispatch.
func (s Server) Capture(ctx context.Context, g Guard, opts *CaptureOptions) (Capture, error) {
	lines := MaxLines
	if opts != nil && opts.Lines < 0 {
		lines = 0
	} else if opts != nil && opts.Lines > 0 && opts.Lines < MaxLines {
		lines = opts.Lines
	}
	return s.capture(ctx, g, lines, maxCapture)
}

// capture takes fewer lines if there are more than limit bytes: a part of the
// history is better than none.
func (s Server) capture(ctx context.Context, g Guard, lines, limit int) (Capture, error) {
	for {
		c, err := s.captureLines(ctx, g, lines, limit)
		if err == nil || !errors.Is(err, errTooLarge) || lines == 0 {
			return c, err
		}
		lines /= 2
	}
}

func (s Server) captureLines(ctx context.Context, g Guard, lines, limit int) (Capture, error) {
	separator := newToken()
	first := strconv.Itoa(-lines)
	ans, err := s.guarded(ctx, g, dispatch{
		then: []command{
			{"display-message", "-p", "-t", g.Pane, "#{history_size}"},
			{"capture-pane", "-p", "-e", "-J", "-S", first, "-t", g.Pane},
			{"display-message", "-p", separator},
			{"capture-pane", "-p", "-J", "-S", first, "-t", g.Pane},
		},
		limit: limit,
	})
	c := Capture{Pane: ans.pane}
	if err != nil {
		return c, err
	}
	head, body, ok1 := bytes.Cut(ans.out, []byte("\n"))
	var ok2 bool
	c.ANSI, c.Text, ok2 = bytes.Cut(body, []byte(separator+"\n"))
	history, err := strconv.Atoi(string(head))
	if !ok1 || !ok2 || err != nil {
		return Capture{}, &Error{Args: []string{"capture-pane"}, Err: errMalformed}
	}
	c.Truncated = history > lines
	return c, nil
}
