package tmux_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/sessionledger/ledger/tmux"
)

// newServer names a server on a socket of its own, which done ends.
func newServer() (s tmux.Server, done func()) {
	dir, err := os.MkdirTemp("/tmp", "lt")
	if err != nil {
		panic(err)
	}
	s = tmux.Server{Socket: filepath.Join(dir, "s"), Config: "/dev/null", Binary: os.Getenv("LEDGER_TMUX")}
	return s, func() {
		if l, err := s.List(context.Background()); err == nil {
			s.KillServer(context.Background(), l.Server)
		}
		os.RemoveAll(dir)
	}
}

// start runs a command in a new session.
func start(s tmux.Server, session string, command ...string) tmux.Pane {
	p, err := s.NewSession(context.Background(), tmux.SessionOptions{
		Name:  session,
		Start: tmux.Start{Command: command, Dir: "/"},
	})
	if err != nil {
		panic(err)
	}
	return p
}

// waitFor polls until a pane shows a text.
func waitFor(s tmux.Server, p tmux.Pane, text string) {
	for range 3000 {
		c, err := s.Capture(context.Background(), p.Guard(), nil)
		if err != nil {
			panic(err)
		}
		if strings.Contains(string(c.Text), text) {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	panic("the pane never showed " + text)
}

func Example() {
	ctx := context.Background()
	s, done := newServer() // such as tmux.Server{Socket: "/path/to/socket"}
	defer done()

	pane, err := s.NewSession(ctx, tmux.SessionOptions{
		Name:  "fix #42",
		Start: tmux.Start{Command: []string{"sleep", "60"}, Dir: "/"},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("%q\n", pane.Session) // the name to remember

	l, err := s.List(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, p := range l.Panes {
		fmt.Println(p.ID, p.Session, p.PID == pane.PID, p.Dead)
	}
	// Output:
	// "fix #42"
	// %0 fix #42 true false
}

func ExampleServer_Has() {
	ctx := context.Background()
	s, done := newServer()
	defer done()

	// No socket: the server could be alive behind an unlinked one.
	p, err := s.Has(ctx, "w-1")
	fmt.Println(p, errors.Is(err, tmux.ErrNoServer))

	start(s, "w-10", "sleep", "60")
	p, err = s.Has(ctx, "w-1")
	fmt.Println(p, err)
	p, err = s.Has(ctx, "w-10")
	fmt.Println(p, err)
	// Output:
	// unknown true
	// absent <nil>
	// present <nil>
}

func ExampleServer_Do() {
	ctx := context.Background()
	s, done := newServer()
	defer done()
	pane := start(s, "work", "sleep", "60")

	// Stamp the pane, as long as it is still the one we know.
	pane, err := s.Do(ctx, pane.Guard(),
		tmux.Set(tmux.OptionID, "session-1"),
		tmux.Set(tmux.OptionAttempt, "freeze-1"))
	fmt.Println(pane.Ledger, pane.Attempt, err)

	// Replace its program, and its mark: whatever was sent with the old one
	// is now harmless.
	old := pane.Guard()
	pane, err = s.Do(ctx, old,
		tmux.Set(tmux.OptionAttempt, "freeze-2"),
		tmux.Respawn(tmux.Start{Command: []string{"sleep", "61"}, Dir: "/"}))
	fmt.Println(pane.Attempt, err)
	_, err = s.Do(ctx, old, tmux.Kill())
	fmt.Println(errors.Is(err, tmux.ErrRefused))
	// Output:
	// session-1 freeze-1 <nil>
	// freeze-2 <nil>
	// true
}

func ExampleServer_Capture() {
	ctx := context.Background()
	s, done := newServer()
	defer done()
	pane := start(s, "work", "sh", "-c", `printf '\033[32mok\033[0m all is well'; exec sleep 60`)
	waitFor(s, pane, "well")

	c, err := s.Capture(ctx, pane.Guard(), nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	ansi, _, _ := strings.Cut(string(c.ANSI), "\n")
	text, _, _ := strings.Cut(string(c.Text), "\n")
	fmt.Printf("%q\n%q\n", strings.TrimRight(ansi, " "), strings.TrimRight(text, " "))
	// Output:
	// "\x1b[32mok\x1b[39m all is well"
	// "ok all is well"
}

func ExampleServer_Submit() {
	ctx := context.Background()
	s, done := newServer()
	defer done()
	pane := start(s, "chat", "sh", "-c",
		`printf 'your turn: '; read -r line; printf 'got: %s.\n' "$line"; exec sleep 60`)
	waitFor(s, pane, "your turn")

	result, err := s.Submit(ctx, pane.Guard(), `it's "quoted" $HOME`, nil)
	fmt.Println(result, err)

	waitFor(s, pane, "got: ")
	c, _ := s.Capture(ctx, pane.Guard(), nil)
	for line := range strings.Lines(string(c.Text)) {
		if line = strings.TrimSpace(line); line != "" {
			fmt.Println(line)
		}
	}
	// Output:
	// delivered <nil>
	// your turn: it's "quoted" $HOME
	// got: it's "quoted" $HOME.
}

func ExampleServer_Connect() {
	ctx := context.Background()
	s, done := newServer()
	defer done()
	start(s, "work", "sleep", "60")

	c, err := s.Connect(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Close()
	for range 3 { // no process is started for these
		l, err := c.List(ctx)
		fmt.Println(len(l.Panes), l.Sessions[0].Attached, err)
	}
	// Output:
	// 1 0 <nil>
	// 1 0 <nil>
	// 1 0 <nil>
}
