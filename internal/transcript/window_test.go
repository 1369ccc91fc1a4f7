package transcript

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// counted counts what is read through it.
type counted struct {
	r     io.ReaderAt
	bytes int64
	calls int
}

func (c *counted) ReadAt(p []byte, off int64) (int, error) {
	n, err := c.r.ReadAt(p, off)
	c.bytes += int64(n)
	c.calls++
	return n, err
}

func windowOf(t testing.TB, text []byte, size int64) (window, *counted) {
	t.Helper()
	c := &counted{r: bytes.NewReader(text)}
	w, err := readWindow(c, size, make([]byte, HeadWindow+TailWindow))
	if err != nil {
		t.Fatal(err)
	}
	return w, c
}

func TestAtMost128KiBAreReadOnce(t *testing.T) {
	const both = HeadWindow + TailWindow
	for _, size := range []int{1, HeadWindow, both - 1, both, both + 1, 10 * both} {
		text := bytes.Repeat([]byte("x"), size)
		w, c := windowOf(t, text, int64(size))
		if want := int64(min(size, both)); c.bytes != want || w.read != want {
			t.Errorf("size %d: %d bytes read, %d told, want %d", size, c.bytes, w.read, want)
		}
		if calls := 1 + min(1, size/(both+1)); c.calls != calls {
			t.Errorf("size %d: %d reads, want %d", size, c.calls, calls)
		}
	}
}

func TestTruncatedMidway(t *testing.T) {
	ask := []byte(user + `"Fix"}}` + "\n")
	for _, left := range []int{0, 10, len(ask)} {
		w, _ := windowOf(t, ask[:left], 200<<20)
		var info Info
		interpret(&info, w, idA+".jsonl", Claude)
		if want := map[bool]string{true: "Fix"}[left == len(ask)]; info.Title != want {
			t.Errorf("%d bytes left: title %q, want %q", left, info.Title, want)
		}
	}
}

// Lines that a window cuts are passed over, whole ones next to the cut are not.
func TestTornLines(t *testing.T) {
	const line = "0123456789abcde\n" // 16 bytes, which divide the windows
	text := []byte(strings.Repeat(line, 3*HeadWindow/len(line)))
	for shift := range len(line) {
		w, _ := windowOf(t, text[shift:], int64(len(text)-shift))
		whole := func(lines [][]byte) int {
			n := 0
			for _, l := range lines {
				if string(l)+"\n" == line {
					n++
				}
			}
			return n
		}
		// The first line is torn by the file itself, so it is yielded, unless
		// nothing is left of it.
		head := slices.Collect(w.forward(false))
		if want := (HeadWindow - (len(line) - shift)) / len(line); shift > 0 && shift < len(line)-1 && (whole(head) != want || len(head) != want+1) {
			t.Errorf("shift %d: %d of %d head lines whole, want %d", shift, whole(head), len(head), want)
		}
		for _, tail := range [][][]byte{slices.Collect(w.backward()), slices.Collect(w.tailLines())} {
			if want := TailWindow/len(line) - 1; whole(tail) != want || len(tail) != want {
				t.Errorf("shift %d: %d of %d tail lines whole, want %d", shift, whole(tail), len(tail), want)
			}
		}
	}
}

func TestLineLargerThanTheWindow(t *testing.T) {
	ask := user + `"Fix the login"}}`
	run := `{"type":"assistant","message":{"content":[{"type":"tool_use","name":"Bash","input":{"command":"ls"}}]}}`
	huge := `{"type":"assistant","message":{"content":[{"type":"text","text":"` + strings.Repeat("z", 10<<20) + `"}]}}`
	for _, c := range []struct {
		name            string
		lines           []string
		title, activity string
	}{
		{"last", []string{ask, run, huge}, "Fix the login", ""},
		{"first", []string{huge, ask, run}, "", "Bash: ls"},
		{"middle", []string{ask, huge, run}, "Fix the login", "Bash: ls"},
		{"only", []string{huge}, "", ""},
	} {
		info := read(t, write(t, idA+".jsonl", c.lines...), Claude)
		if info.Title != c.title || info.Activity != c.activity {
			t.Errorf("%s: title %q, activity %q", c.name, info.Title, info.Activity)
		}
		if info.BytesRead != HeadWindow+TailWindow || info.Size < 10<<20 {
			t.Errorf("%s: %d bytes read of %d", c.name, info.BytesRead, info.Size)
		}
	}
}

// A person's title is kept by the head when the tail has none, and a later one
// in the tail wins.
func TestTitleInEitherWindow(t *testing.T) {
	filler := strings.Repeat(`{"type":"system","content":"`+strings.Repeat("f", 1000)+`"}`+"\n", 300)
	title := func(s string) string { return `{"type":"custom-title","customTitle":"` + s + `"}` }
	head := []string{user + `"Ask"}}`, title("one"), title("two"), filler}
	if got := read(t, write(t, idA+".jsonl", head...), Claude).Title; got != "two" {
		t.Errorf("head: %q", got)
	}
	if got := read(t, write(t, idA+".jsonl", append(head, `{"type":"ai-title","aiTitle":"theirs"}`)...), Claude).Title; got != "two" {
		t.Errorf("a generated one in the tail: %q", got)
	}
	if got := read(t, write(t, idA+".jsonl", append(head, title("three"))...), Claude).Title; got != "three" {
		t.Errorf("tail: %q", got)
	}
}

var formats = []Format{None, Claude, Qwen, Codex, Gemini, Copilot, Cursor, Amp, OpenCode, Aider}

func TestDamagedFilesSayLessAndAreNoError(t *testing.T) {
	for name, text := range map[string]string{
		"empty":     "",
		"NULs":      strings.Repeat("\x00", 4096),
		"newlines":  strings.Repeat("\r\n", 100_000),
		"no lines":  strings.Repeat("{\"a\":", 100_000),
		"braces":    strings.Repeat("{\"", 100_000),
		"binary":    strings.Repeat("\xff\xfe\x00\x80\n", 50_000),
		"not UTF-8": user + "\"a\xffb\"}}\n",
	} {
		for _, f := range formats {
			for _, ext := range []string{".jsonl", ".json", ".txt"} {
				info := read(t, writeText(t, idA+ext, text), f)
				title := ""
				if name == "not UTF-8" && f == Claude || name == "not UTF-8" && f == Qwen {
					title = "a\uFFFDb"
				}
				if f != Aider && f != Cursor && info.Title != title {
					t.Errorf("%s as %d: title %q", name, f, info.Title)
				}
				if info.Size != int64(len(text)) || info.ModTime.IsZero() {
					t.Errorf("%s as %d: size %d, time %v", name, f, info.Size, info.ModTime)
				}
			}
		}
	}
}

func TestOnlyRegularFilesAreOpened(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(dir, "link")
	if err := os.Symlink(file, link); err != nil {
		t.Fatal(err)
	}
	folder := filepath.Join(dir, "folder")
	if err := os.Symlink(dir, folder); err != nil {
		t.Fatal(err)
	}
	others := append([]string{link, dir, os.DevNull}, special(t, dir)...)
	for _, path := range others {
		if _, err := Read(context.Background(), path, Claude); !errors.Is(err, ErrNotRegular) {
			t.Errorf("%s: %v", path, err)
		}
	}
	// A link above the last element is how project folders are moved elsewhere.
	if _, err := Read(context.Background(), filepath.Join(folder, "file"), Claude); err != nil {
		t.Error(err)
	}
	if _, err := Read(context.Background(), filepath.Join(dir, "absent"), Claude); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("absent: %v", err)
	}
}

func TestCancelledContext(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := Read(ctx, write(t, "x.jsonl", "{}"), Claude); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// A file replaced while it is read is read as it was opened.
func TestReplacedMidway(t *testing.T) {
	path := write(t, idA+".jsonl", user+`"Before"}}`)
	f, fi, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	other := write(t, idA+".jsonl", user+`"After"}}`)
	if err := os.Rename(other, path); err != nil {
		t.Fatal(err)
	}
	w, err := readWindow(f, fi.Size(), make([]byte, HeadWindow+TailWindow))
	if err != nil {
		t.Fatal(err)
	}
	var info Info
	if interpret(&info, w, path, Claude); info.Title != "Before" {
		t.Errorf("title %q", info.Title)
	}
}

// One Reader's results do not share its buffer.
func TestReaderKeepsNothing(t *testing.T) {
	var r Reader
	var got []string
	for _, title := range []string{"One", "Two", "Three"} {
		info, err := r.Read(context.Background(), write(t, idA+".jsonl", user+`"`+title+`"}}`), Claude)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, info.Title)
	}
	if fmt.Sprint(got) != "[One Two Three]" {
		t.Error(got)
	}
}

// FuzzWindow: whatever a file holds, no more than the windows is read, what is
// told is fit for a line of a terminal, and bytes between the windows make no
// difference.
func FuzzWindow(f *testing.F) {
	ask := user + `"Fix"}}` + "\n"
	for i := range formats {
		f.Add([]byte(ask), []byte(`{"type":"assistant","message":{"content":[{"type":"text","text":"t"}]}}`), uint32(1<<18), byte(i), byte(0))
		f.Add([]byte("user:\nhi\n#### do\n"), []byte("\nassistant:\n[Tool call] X\n  a: b\n"), uint32(3), byte(i), byte(1))
		f.Add([]byte(`{"id":"a","messages":[{"role":"user","content":"`), []byte(`{"role":"assistant","content":"x"}]}`), uint32(1<<17), byte(i), byte(2))
	}
	f.Fuzz(func(t *testing.T, head, tail []byte, gap uint32, format, ext byte) {
		path := idA + []string{".jsonl", ".txt", ".json"}[ext%3]
		tell := func(fill byte) Info {
			text := slices.Concat(head, bytes.Repeat([]byte{fill}, int(gap%(1<<18))), tail)
			w, c := windowOf(t, text, int64(len(text)))
			if c.bytes > HeadWindow+TailWindow || c.bytes > int64(len(text)) {
				t.Fatalf("%d bytes read of %d", c.bytes, len(text))
			}
			var info Info
			interpret(&info, w, path, formats[int(format)%len(formats)])
			return info
		}
		info := tell(' ')
		for _, s := range []string{info.Title, info.Activity} {
			if Clean(s, MaxText) != s {
				t.Fatalf("not clean: %q", s)
			}
		}
		if info.said() != tell(' ').said() {
			t.Fatal("two readings differ")
		}
		if len(head) <= HeadWindow && len(tail) <= TailWindow && len(head)+len(tail)+int(gap%(1<<18)) > HeadWindow+TailWindow {
			// The gap's ends are inside the windows: give both fillings the same.
			middle := func(fill byte) Info {
				n := int(gap % (1 << 18))
				g := bytes.Repeat([]byte{' '}, n)
				for i := HeadWindow - len(head); i < n-(TailWindow-len(tail)); i++ {
					g[i] = fill
				}
				text := slices.Concat(head, g, tail)
				w, _ := windowOf(t, text, int64(len(text)))
				var info Info
				interpret(&info, w, path, formats[int(format)%len(formats)])
				return info
			}
			if a, b := middle('\n').said(), middle('"').said(); a != b {
				t.Fatalf("the middle matters: %+v, %+v", a, b)
			}
		}
	})
}
