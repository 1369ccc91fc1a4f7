//go:build unix

package tmux

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// The figures of the specification.
func TestBoundsAreAsSpecified(t *testing.T) {
	if DefaultTimeout != 10*time.Second || (Server{}).timeout() != 10*time.Second {
		t.Errorf("a command has %v, %v", DefaultTimeout, Server{}.timeout())
	}
	if MaxLines != 50_000 {
		t.Errorf("a capture has %d lines", MaxLines)
	}
}

// A name that looks like an option is a name.
func TestRenameToADash(t *testing.T) {
	s := newServer(t)
	name := start(t, s, "a").Session
	for _, next := range []string{"-dash", "-t", "--", "-"} {
		got, err := s.RenameSession(context.Background(), name, next)
		if err != nil || got != next {
			t.Fatalf("RenameSession(%q, %q) = %q, %v", name, next, got, err)
		}
		if l := list(t, s); len(l.Sessions) != 1 || l.Sessions[0].Name != next {
			t.Fatalf("after RenameSession(%q): %+v", next, l.Sessions)
		}
		name = next
	}
}

// Case 69: the cap counts lines. A history of more megabytes than any other command may
// print is whole up to it.
func TestCaptureOfTheLongestHistory(t *testing.T) {
	s := newServer(t)
	ctx := context.Background()
	const width, spare = 200, 100
	p, err := s.NewSession(ctx, SessionOptions{
		Name: "a", Width: width, Height: 24, Options: [][2]string{{"history-limit", "60000"}},
		Start: Start{Command: []string{"awk", "BEGIN{for(i=1;i<=50100;i++)printf \"%0199d\\n\",i;printf \"done\";fflush();while(1)system(\"sleep 1000\")}"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the last line", func() bool {
		c, err := s.Capture(ctx, p.Guard(), &CaptureOptions{Lines: -1})
		return err == nil && bytes.Contains(c.Text, []byte("done"))
	})
	screen, err := s.Capture(ctx, p.Guard(), &CaptureOptions{Lines: -1})
	if err != nil {
		t.Fatal(err)
	}
	c, err := s.Capture(ctx, p.Guard(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(c.ANSI)+len(c.Text) <= maxOutput {
		t.Errorf("%d bytes, which any command may print", len(c.ANSI)+len(c.Text))
	}
	for name, pair := range map[string][2][]byte{"text": {c.Text, screen.Text}, "ansi": {c.ANSI, screen.ANSI}} {
		lines, shown := bytes.Count(pair[0], []byte("\n")), bytes.Count(pair[1], []byte("\n"))
		if lines != 50_000+shown || !bytes.HasSuffix(pair[0], pair[1]) {
			t.Errorf("%s: %d lines, %d of them are the screen", name, lines, shown)
		}
	}
	if !c.Truncated {
		t.Error("more history than the cap is not truncated")
	}
}

// Case 71: a program that is slow to take Enter must not get a second one, which could
// answer the next question.
func TestSubmitPressesEnterOnceForASlowProgram(t *testing.T) {
	needLinux(t)
	s := newServer(t)
	p, read := reader(t, s, "slow")
	got, err := s.Submit(context.Background(), p.Guard(), "text", &SubmitOptions{Settle: 700 * time.Millisecond})
	if got != SentUnverified || err == nil {
		t.Errorf("Submit = %v, %v", got, err)
	}
	if n, known := unread(p.TTY); n != 1 || !known {
		t.Errorf("%d bytes wait to be read, known %v", n, known)
	}
	logs, err := filepath.Glob(filepath.Join(filepath.Dir(s.Socket), "log-*"))
	if err != nil || len(logs) != 1 {
		t.Fatal(logs, err)
	}
	if err := os.WriteFile(logs[0]+".go", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the program goes on", func() bool { return strings.HasSuffix(read(), "\r") })
	if r := read(); r != bracketed("text")+"\r" {
		t.Errorf("the program read %q", r)
	}
	noTraces(t, s)
}

// mute is a connection whose questions reach nobody.
type mute struct{ io.Closer }

func (mute) Write(p []byte) (int, error) { return len(p), nil }

// A connection that hangs takes half of the time: the binary has the rest.
func TestHungConnectionLeavesTimeForTheBinary(t *testing.T) {
	s := newServer(t)
	start(t, s, "a")
	for name, limits := range map[string][2]time.Duration{
		"of the server": {4 * time.Second, time.Minute},
		"of the caller": {time.Minute, 4 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := connect(t, s)
			c.server.Timeout, c.stdin = limits[0], mute{c.stdin}
			ctx, cancel := context.WithTimeout(context.Background(), limits[1])
			defer cancel()
			begin := time.Now()
			l, err := c.List(ctx)
			if err != nil || len(l.Sessions) != 1 {
				t.Errorf("%+v, %v", l, err)
			}
			if d := time.Since(begin); d < time.Second || c.Connected() {
				t.Errorf("answered after %v, connected %v", d, c.Connected())
			}
		})
	}
}

// attached runs what AttachArgs or AttachPaneArgs gave as a control-mode client, which
// needs no terminal, and returns the id of the session that it came to, "" for none.
func attached(t *testing.T, s Server, argv []string, err error) string {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, argv[0], append([]string{"-C"}, argv[1:]...)...)
	cmd.Env = s.environ()
	stdin, err := cmd.StdinPipe() // its end would detach the client
	if err != nil {
		t.Fatal(err)
	}
	defer stdin.Close()
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { cancel(); cmd.Wait() }()
	for sc := bufio.NewScanner(stdout); sc.Scan(); {
		if f := strings.Fields(sc.Text()); len(f) >= 2 && f[0] == "%session-changed" {
			return f[1]
		}
	}
	return ""
}

// A pane leads to its own session, whatever that is called by now, and a name to the
// session that has exactly that name now.
func TestAttachingComesToTheVerySession(t *testing.T) {
	s := newServer(t)
	p := start(t, s, "work")
	w, err := s.NewWindow(context.Background(), "work", WindowOptions{Start: Start{Command: []string{"sleep", "1000"}}})
	if err != nil {
		t.Fatal(err)
	}
	start(t, s, "work-2") // a prefix of which is the name
	if _, err := s.RenameSession(context.Background(), "work", "done"); err != nil {
		t.Fatal(err)
	}
	argv, err := s.AttachArgs("work")
	if got := attached(t, s, argv, err); got != "" {
		t.Errorf("a name that nothing has came to %s", got)
	}
	second := start(t, s, "work")
	beside := Pane{SessionID: p.SessionID, ID: strings.TrimSpace(raw(t, s, "split-window", "-d", "-P", "-F", "#{pane_id}", "-t", p.ID, "sleep", "1000"))}
	for _, pane := range []Pane{w, beside, p, second} {
		argv, err := s.AttachPaneArgs(pane.ID)
		if got := attached(t, s, argv, err); got != pane.SessionID {
			t.Errorf("pane %s came to %q, want %s", pane.ID, got, pane.SessionID)
		}
		if got := strings.TrimSpace(raw(t, s, "display-message", "-p", "-t", pane.SessionID+":", "#{pane_id}")); got != pane.ID {
			t.Errorf("the session shows pane %s, want %s", got, pane.ID)
		}
	}
	argv, err = s.AttachPaneArgs("%99")
	if got := attached(t, s, argv, err); got != "" {
		t.Errorf("a pane that is not there came to %s", got)
	}
	for name, want := range map[string]string{"work": second.SessionID, "done": p.SessionID} {
		argv, err := s.AttachArgs(name)
		if got := attached(t, s, argv, err); got != want {
			t.Errorf("%s came to %q, want %s", name, got, want)
		}
	}
}

func TestAttachPaneArgsRefuses(t *testing.T) {
	s := Server{Socket: "/run/s"}
	if got, err := s.AttachPaneArgs("%7"); err != nil || got[len(got)-1] != "%7" {
		t.Errorf("%q %v", got, err)
	}
	for _, pane := range []string{"", "%", "%x", "7", "$1", "=work", "%1;kill-server", "%1 "} {
		if got, err := s.AttachPaneArgs(pane); !is(err, ErrInvalid) {
			t.Errorf("%q: %q %v", pane, got, err)
		}
	}
}
