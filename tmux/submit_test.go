//go:build unix

package tmux

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// reader starts a program of program_test.go in a pane, and returns what it has
// read so far.
func reader(t *testing.T, s Server, kind string) (Pane, func() string) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	log := filepath.Join(filepath.Dir(s.Socket), "log-"+newToken())
	p := start(t, s, newToken(), self, "ledger-test-program", kind, log)
	eventually(t, "program draws", func() bool {
		c, err := s.Capture(context.Background(), p.Guard(), nil)
		return err == nil && (strings.HasPrefix(string(c.Text), ">") || strings.HasPrefix(string(c.Text), "Run"))
	})
	return p, func() string {
		data, err := os.ReadFile(log)
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
}

// noTraces checks that no buffer and no claim is left.
func noTraces(t *testing.T, s Server) {
	t.Helper()
	if out := raw(t, s, "list-buffers"); out != "" {
		t.Errorf("buffers are left: %s", out)
	}
	for _, p := range list(t, s).Panes {
		if p.input != "" {
			t.Errorf("pane %s is still claimed", p.ID)
		}
	}
}

func bracketed(text string) string {
	return pasteStart + strings.ReplaceAll(text, "\n", "\r") + pasteEnd
}

// Case 71: each of the four results.
func TestSubmit(t *testing.T) {
	const text = "please fix the bug"
	quick := &SubmitOptions{Settle: 700 * time.Millisecond}
	cases := []struct {
		name, kind, text string
		want             Result
		read             string
		opts             *SubmitOptions
	}{
		{"a composer takes it", "composer", text, Delivered, bracketed(text) + "\r", nil},
		{"one letter", "composer", "y", Delivered, bracketed("y") + "\r", nil},
		{"several lines", "composer", "one\ntwo\n\nthree", Delivered, bracketed("one\ntwo\n\nthree") + "\r", nil},
		{"quotes and formats", "composer", `it's "so" \ $HOME #{pid} #(touch x) ; | ;`, Delivered, bracketed(`it's "so" \ $HOME #{pid} #(touch x) ; | ;`) + "\r", nil},
		{"unicode", "composer", "größe 日本語 ✓ ñ", Delivered, bracketed("größe 日本語 ✓ ñ") + "\r", nil},
		{"leading dash", "composer", "-t --help;", Delivered, bracketed("-t --help;") + "\r", nil},
		{"long", "composer", strings.Repeat("word ", 300) + "end", Delivered, bracketed(strings.Repeat("word ", 300)+"end") + "\r", nil},
		{"longer than a tmux message", "folds", strings.Repeat(strings.Repeat("x", 99)+"\n", 400) + "end", Delivered, bracketed(strings.Repeat(strings.Repeat("x", 99)+"\n", 400)+"end") + "\r", nil},
		{"cursor parked elsewhere", "parked", text, Delivered, bracketed(text) + "\r", nil},
		{"paste shown as a fold", "folds", "one\ntwo", Delivered, bracketed("one\ntwo") + "\r", nil},
		{"first Enter is lost", "first-enter-lost", text, Delivered, bracketed(text) + "\r\r", quick},
		{"first paste is lost", "drops-first", text, Delivered, bracketed(text) + bracketed(text) + "\r", quick},
		{"Enter is never taken", "enter-lost", text, SentUnverified, bracketed(text) + "\r\r", quick},
		{"program ends on Enter", "exits", text, SentUnverified, bracketed(text) + "\r", quick},
		{"a dialog is not answered", "dialog", text, NotDelivered, bracketed(text) + bracketed(text), quick},
		{"nothing is shown", "silent", text, NotDelivered, bracketed(text) + bracketed(text), quick},
		{"a busy program reads nothing", "busy", text, CouldNotConfirm, "", quick},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if c.opts == quick {
				needLinux(t) // elsewhere nothing is tried again: what is ignored may be unread
			}
			s := newServer(t)
			start(t, s, "keep") // so that the server outlives the program
			p, read := reader(t, s, c.kind)
			if c.opts == nil {
				c.opts = &SubmitOptions{Settle: 4 * time.Second}
			}
			got, err := s.Submit(context.Background(), p.Guard(), c.text, c.opts)
			if got != c.want || (err == nil) != (got == Delivered) {
				t.Errorf("Submit = %v, %v, want %v", got, err, c.want)
			}
			if r := read(); r != c.read {
				t.Errorf("the program read %q, want %q", r, c.read)
			}
			noTraces(t, s)
		})
	}
}

// A program in line mode, without brackets.
func TestSubmitToShell(t *testing.T) {
	s := newServer(t)
	p := start(t, s, "a", "sh", "-i")
	eventually(t, "prompt", func() bool {
		c, err := s.Capture(context.Background(), p.Guard(), nil)
		return err == nil && strings.TrimSpace(string(c.Text)) != ""
	})
	// A person scrolls meanwhile: keys would go to copy mode.
	raw(t, s, "copy-mode", "-t", p.ID)
	got, err := s.Submit(context.Background(), p.Guard(), `echo "a  b" 'c' $((40+2))`, nil)
	if got != Delivered {
		t.Errorf("Submit = %v, %v", got, err)
	}
	eventually(t, "the command's output", func() bool {
		c, err := s.Capture(context.Background(), p.Guard(), nil)
		return err == nil && strings.Contains(trimmed(c), "\na  b c 42\n")
	})
	noTraces(t, s)
}

func TestSubmitRefusals(t *testing.T) {
	needLinux(t)
	s := newServer(t)
	ctx := context.Background()
	p, read := reader(t, s, "composer")
	sibling, siblingRead := reader(t, s, "composer")
	raw(t, s, "set-option", "-g", "synchronize-panes", "on")
	for name, text := range map[string]string{
		"empty": "", "blank": " \n\t", "escape": "a\x1b[201~\rb", "enter": "a\rb", "NUL": "a\x00", "C1": "a\u009b201~", "DEL": "a\x7f",
		"not UTF-8": "a\xff", "huge": strings.Repeat("x", maxText+1),
	} {
		if got, err := s.Submit(ctx, p.Guard(), text, nil); got != NotDelivered || !is(err, ErrInvalid) {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
	other := p.Guard()
	other.PID = sibling.PID
	stale := p.Guard()
	stale.StartTicks = 1
	dead := p.Guard()
	dead.Dead = true
	for name, g := range map[string]Guard{"another process": other, "a process of that pid": stale, "dead": dead, "none": {}} {
		if got, err := s.Submit(ctx, g, "text", nil); got != NotDelivered || err == nil {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
	raw(t, s, "select-pane", "-d", "-t", p.ID)
	if got, err := s.Submit(ctx, p.Guard(), "text", nil); got != NotDelivered || !is(err, ErrRefused) {
		t.Errorf("input is off: %v, %v", got, err)
	}
	raw(t, s, "select-pane", "-e", "-t", p.ID)
	if r := read() + siblingRead(); r != "" {
		t.Errorf("typed: %q", r)
	}
	if got, err := s.Submit(ctx, p.Guard(), "text", nil); got != Delivered {
		t.Errorf("after all: %v, %v", got, err)
	}
	if r := siblingRead(); r != "" {
		t.Errorf("the sibling read %q", r)
	}
	noTraces(t, s)
}

// The pane's program is replaced while the text is on its way: Enter is not
// pressed in the new one.
func TestSubmitPaneReplaced(t *testing.T) {
	s := newServer(t)
	ctx := context.Background()
	p, _ := reader(t, s, "busy")
	self, _ := os.Executable()
	log := filepath.Join(filepath.Dir(s.Socket), "log")
	var replacer sync.WaitGroup
	replacer.Go(func() {
		for range 1000 { // until the text is in the queue
			if n, known := unread(p.TTY); known && n > 0 {
				break
			}
			time.Sleep(5 * time.Millisecond)
		}
		s.Do(ctx, p.Guard(), Respawn(Start{Command: []string{self, "ledger-test-program", "composer", log}}))
	})
	got, err := s.Submit(ctx, p.Guard(), "dangerous", &SubmitOptions{Settle: 4 * time.Second})
	replacer.Wait()
	if got != CouldNotConfirm || !is(err, ErrRefused) {
		t.Errorf("Submit = %v, %v", got, err)
	}
	if data, _ := os.ReadFile(log); strings.Contains(string(data), "\r") {
		t.Errorf("the new program read %q", data)
	}
	noTraces(t, s)
}

// An agent below a shell: the text is for it, not for the shell.
func TestSubmitReader(t *testing.T) {
	needLinux(t)
	needTool(t, "ps")
	s := newServer(t)
	ctx := context.Background()
	p := start(t, s, "a", "sh", "-c", "sleep 1000; exec cat")
	var child int
	eventually(t, "child", func() bool {
		out, _ := exec.Command("ps", "-o", "pid=", "--ppid", strconv.Itoa(p.PID)).Output()
		child, _ = strconv.Atoi(strings.TrimSpace(string(out)))
		return child > 0
	})
	bg := exec.Command("sleep", "1000")
	bg.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := bg.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { bg.Process.Kill(); bg.Wait() }()
	for name, o := range map[string]SubmitOptions{
		"not in the foreground": {Reader: bg.Process.Pid},
		"another start":         {Reader: child, ReaderTicks: 1},
		"gone":                  {Reader: 1 << 22},
	} {
		if got, err := s.Submit(ctx, p.Guard(), "text", &o); got != NotDelivered || !is(err, ErrRefused) {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
	st, _ := readStat(child)
	// Typed to the child's terminal, which echoes; the child does not read, so
	// the cursor's row shows that Enter was taken by the line discipline.
	if got, err := s.Submit(ctx, p.Guard(), "text", &SubmitOptions{Reader: child, ReaderTicks: st.ticks}); got != Delivered {
		t.Errorf("foreground: %v, %v", got, err)
	}
	noTraces(t, s)
}

// Stopped between two steps: nothing is claimed about what cannot be seen.
func TestSubmitToStoppedServer(t *testing.T) {
	s := newServer(t)
	p, read := reader(t, s, "composer")
	s.Timeout = time.Second
	wake := stopServer(t, p.Server.PID)
	got, err := s.Submit(context.Background(), p.Guard(), "text", nil)
	if got != NotDelivered || !is(err, ErrTimeout) {
		t.Errorf("before anything was typed: %v, %v", got, err)
	}
	wake()
	s.Timeout = 20 * time.Second
	eventually(t, "a late claim goes away", func() bool { q, _ := list(t, s).Pane(p.ID); return q.input == "" })
	if r := read(); r != "" {
		t.Errorf("typed: %q", r)
	}

	// Stopped while it waits for the program to show the text.
	busy, _ := reader(t, s, "busy")
	s.Timeout = time.Second
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range 1000 {
			if n, known := unread(busy.TTY); known && n > 0 {
				break
			}
			time.Sleep(5 * time.Millisecond)
		}
		syscall.Kill(p.Server.PID, syscall.SIGSTOP)
	}()
	got, err = s.Submit(context.Background(), busy.Guard(), "text", &SubmitOptions{Settle: 4 * time.Second})
	<-done
	syscall.Kill(p.Server.PID, syscall.SIGCONT)
	if got != CouldNotConfirm || err == nil {
		t.Errorf("after the text was typed: %v, %v", got, err)
	}
	s.Timeout = 20 * time.Second
	eventually(t, "buffers go away", func() bool { return raw(t, s, "list-buffers") == "" })
}

// Texts of several senders do not mix.
func TestSubmitIsSerialised(t *testing.T) {
	s := newServer(t)
	p, read := reader(t, s, "composer")
	var wg sync.WaitGroup
	for _, c := range []string{"aaaaaa", "bbbbbb", "cccccc", "dddddd"} {
		wg.Go(func() {
			if got, err := s.Submit(context.Background(), p.Guard(), c, nil); got != Delivered {
				t.Errorf("%s: %v, %v", c, got, err)
			}
		})
	}
	wg.Wait()
	r := read()
	for _, c := range []string{"aaaaaa", "bbbbbb", "cccccc", "dddddd"} {
		if !strings.Contains(r, bracketed(c)+"\r") {
			t.Errorf("%s is mixed up in %q", c, r)
		}
	}
	noTraces(t, s)
}

// A claim that a dead process left is waited for and not typed over.
func TestSubmitWaitsForAClaim(t *testing.T) {
	s := newServer(t)
	p, read := reader(t, s, "composer")
	if _, err := s.Do(context.Background(), p.Guard(), Set(optionInput, "someone")); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
	defer cancel()
	if got, err := s.Submit(ctx, p.Guard(), "text", nil); got != NotDelivered || !is(err, ErrTimeout) {
		t.Errorf("Submit = %v, %v", got, err)
	}
	if q, _ := list(t, s).Pane(p.ID); q.input != "someone" || read() != "" {
		t.Errorf("claim %q, typed %q", q.input, read())
	}
}

// What holds a claim for longer than it could be at work is dead, and is
// replaced; one that changes is alive.
func TestSubmitTakesOverADeadClaim(t *testing.T) {
	s := newServer(t)
	ctx := context.Background()
	p, _ := reader(t, s, "composer")
	dead := newToken()
	if _, err := s.Do(ctx, p.Guard(), Set(optionInput, dead)); err != nil {
		t.Fatal(err)
	}
	u := &submission{s: s, g: p.Guard(), claim: newToken(), patience: 200 * time.Millisecond}
	begin := time.Now()
	if err := u.acquire(ctx); err != nil {
		t.Fatal(err)
	}
	if d := time.Since(begin); d < u.patience {
		t.Errorf("took a claim over after %v", d)
	}
	// The dead one wakes up: each of its steps is refused.
	late := &submission{s: s, g: p.Guard(), claim: dead, text: "late"}
	if _, err := late.paste(ctx); !is(err, ErrRefused) {
		t.Errorf("late paste: %v", err)
	}
	if _, err := late.enter(ctx); !is(err, ErrRefused) {
		t.Errorf("late Enter: %v", err)
	}
	late.clean(ctx)
	if q, _ := list(t, s).Pane(p.ID); q.input != u.claim {
		t.Errorf("claim is %q", q.input)
	}
	u.clean(ctx)
	noTraces(t, s)
}
