//go:build unix

package tmux

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Case 69: a capture is exact to the byte.
func TestCaptureIsExact(t *testing.T) {
	s := newServer(t)
	ctx := context.Background()
	long := strings.Repeat("0123456789", 20) // wraps at 80
	text := "\x1b[31mred\x1b[0m plain \x1b[1;38;5;208mbold orange\x1b[0m\r\n" +
		"wide 日本語 ü é\r\n" +
		"\r\n\r\n" +
		long + "\r\n" +
		"trailing   \r\n" +
		"tab\there |p\\ #{pid} %H $x\r\n" +
		"end"
	file := filepath.Join(filepath.Dir(s.Socket), "text")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	p := start(t, s, "a", "sh", "-c", `stty -opost; cat "$0"; exec sleep 1000`, file)
	var c Capture
	eventually(t, "text is shown", func() bool {
		var err error
		if c, err = s.Capture(ctx, p.Guard(), nil); err != nil {
			t.Fatal(err)
		}
		return bytes.Contains(c.Text, []byte("end"))
	})
	if c.Truncated || c.Pane.ID != p.ID || c.Pane.PID != p.PID {
		t.Errorf("%+v", c)
	}
	// Against the peer: the same command of tmux itself.
	for name, pair := range map[string][2]string{
		"ansi": {string(c.ANSI), raw(t, s, "capture-pane", "-p", "-e", "-J", "-S", "-50000", "-t", p.ID)},
		"text": {string(c.Text), raw(t, s, "capture-pane", "-p", "-J", "-S", "-50000", "-t", p.ID)},
	} {
		if pair[0] != pair[1] {
			t.Errorf("%s differs:\n%q\n%q", name, pair[0], pair[1])
		}
	}
	// And against what was written.
	rows := strings.Split(trimmed(c), "\n")
	want := []string{"red plain bold orange", "wide 日本語 ü é", "", "", long, "trailing", "tab     here |p\\ #{pid} %H $x", "end"}
	if !bytes.HasSuffix(c.Text, []byte("\n")) || strings.Join(rows[:len(want)], "\n") != strings.Join(want, "\n") {
		// 3.5 and later keep the tab itself.
		want[6] = "tab\there |p\\ #{pid} %H $x"
		if strings.Join(rows[:len(want)], "\n") != strings.Join(want, "\n") {
			t.Errorf("text:\n%q", rows)
		}
	}
	if !bytes.Contains(c.ANSI, []byte("\x1b[31mred\x1b[")) || !bytes.Contains(c.ANSI, []byte("208mbold orange")) {
		t.Errorf("ansi without colour:\n%q", c.ANSI)
	}
	if bytes.IndexByte(c.Text, 0x1b) >= 0 {
		t.Error("an escape sequence in the text")
	}
	stripped := regexp.MustCompile("\x1b\\[[0-9;:]*m|\x0e|\x0f").ReplaceAll(c.ANSI, nil)
	if !bytes.Equal(stripped, c.Text) {
		t.Errorf("without its sequences ANSI is not Text:\n%q\n%q", stripped, c.Text)
	}
}

func TestCaptureCap(t *testing.T) {
	s := newServer(t)
	ctx := context.Background()
	p := start(t, s, "a", "sh", "-c", "i=0; while [ $i -lt 300 ]; do echo line $i; i=$((i+1)); done; echo done; exec sleep 1000")
	capture := func(opts *CaptureOptions) Capture {
		t.Helper()
		c, err := s.Capture(ctx, p.Guard(), opts)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	eventually(t, "lines", func() bool { return bytes.Contains(capture(nil).Text, []byte("done")) })
	if c := capture(nil); c.Truncated || !strings.HasPrefix(trimmed(c), "line 0\n") {
		t.Errorf("whole: %v, %.40q", c.Truncated, c.Text)
	}
	c := capture(&CaptureOptions{Lines: 10})
	screen := capture(&CaptureOptions{Lines: -1})
	if !c.Truncated || !screen.Truncated || bytes.Count(c.Text, []byte("\n")) != bytes.Count(screen.Text, []byte("\n"))+10 {
		t.Errorf("10 lines: %d, screen: %d", bytes.Count(c.Text, []byte("\n")), bytes.Count(screen.Text, []byte("\n")))
	}
	if !bytes.HasSuffix(c.Text, screen.Text) {
		t.Error("the screen is not the end of the capture")
	}
	g := p.Guard()
	g.PID++
	if c, err := s.Capture(ctx, g, nil); !is(err, ErrRefused) || len(c.Text) != 0 {
		t.Errorf("a stranger is read: %v, %q", err, c.Text)
	}
}

func TestCaptureTooLargeKeepsTheEnd(t *testing.T) {
	s := newServer(t)
	ctx := context.Background()
	p := start(t, s, "a", "sh", "-c", "i=0; while [ $i -lt 300 ]; do echo line $i; i=$((i+1)); done; echo done; exec sleep 1000")
	eventually(t, "lines", func() bool {
		c, err := s.Capture(ctx, p.Guard(), nil)
		return err == nil && bytes.Contains(c.Text, []byte("done"))
	})
	c, err := s.capture(ctx, p.Guard(), 300, 4000)
	if err != nil || !c.Truncated || !bytes.Contains(c.Text, []byte("done")) || bytes.HasPrefix(c.Text, []byte("line 0\n")) {
		t.Errorf("%v, %v, %.40q", err, c.Truncated, c.Text)
	}
	if _, err := s.capture(ctx, p.Guard(), 300, 100); !is(err, errTooLarge) {
		t.Errorf("not even the screen fits: %v", err)
	}
}
