package tmux

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

func itoa(n int) string { return strconv.Itoa(n) }
func atoi(s string) int { n, _ := strconv.Atoi(s); return n }

// exampleHelper keeps the examples short.
type exampleHelper struct{ Server }

// exampleServer names a server on a socket of its own, and ends it.
func exampleServer() (exampleHelper, func()) {
	dir, err := os.MkdirTemp("/tmp", "lt")
	if err != nil {
		panic(err)
	}
	s := Server{Socket: filepath.Join(dir, "s"), Config: "/dev/null", Binary: os.Getenv("LEDGER_TMUX")}
	return exampleHelper{s}, func() {
		if l, err := s.List(context.Background()); err == nil {
			s.KillServer(context.Background(), l.Server)
		}
		os.RemoveAll(dir)
	}
}

func (s exampleHelper) waitFor(p Pane, text string) {
	for range 1000 {
		if c, err := s.Capture(context.Background(), p.Guard(), nil); err != nil || strings.Contains(string(c.Text), text) {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func Example() {
	ctx := context.Background()
	s, done := exampleServer() // a Server{Socket: "/path/to/socket"}
	defer done()

	pane, err := s.NewSession(ctx, SessionOptions{
		Name:  "fix #42: a.b",
		Start: Start{Command: []string{"sleep", "60"}, Dir: "/"},
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
	// "fix #42_ a_b"
	// %0 fix #42_ a_b true false
}

func ExampleServer_Do() {
	ctx := context.Background()
	s, done := exampleServer()
	defer done()
	pane, err := s.NewSession(ctx, SessionOptions{Name: "work", Start: Start{Command: []string{"sleep", "60"}}})
	if err != nil {
		fmt.Println(err)
		return
	}

	// Stamp the pane, as long as it is still the one we know.
	pane, err = s.Do(ctx, pane.Guard(), Set(OptionID, "session-1"), Set(OptionAttempt, "freeze-1"))
	fmt.Println(pane.Ledger, pane.Attempt, err)

	// Replace its program. Whatever was sent before with the old mark is now
	// harmless.
	before := pane.Guard()
	pane, err = s.Do(ctx, before, Set(OptionAttempt, "freeze-2"), Respawn(Start{Command: []string{"sleep", "61"}}))
	fmt.Println(pane.Attempt, err)
	_, err = s.Do(ctx, before, Kill())
	fmt.Println(errors.Is(err, ErrRefused))
	// Output:
	// session-1 freeze-1 <nil>
	// freeze-2 <nil>
	// true
}

func ExampleServer_Has() {
	ctx := context.Background()
	s, done := exampleServer()
	defer done()

	// No socket: the server could be alive behind an unlinked one.
	p, err := s.Has(ctx, "w-1")
	fmt.Println(p, errors.Is(err, ErrNoServer))

	if _, err := s.NewSession(ctx, SessionOptions{Name: "w-10", Start: Start{Command: []string{"sleep", "60"}}}); err != nil {
		fmt.Println(err)
		return
	}
	p, err = s.Has(ctx, "w-1")
	fmt.Println(p, err)
	p, err = s.Has(ctx, "w-10")
	fmt.Println(p, err)
	// Output:
	// unknown true
	// absent <nil>
	// present <nil>
}

func ExampleServer_Submit() {
	ctx := context.Background()
	s, done := exampleServer()
	defer done()
	pane, err := s.NewSession(ctx, SessionOptions{Name: "chat", Start: Start{
		Command: []string{"sh", "-c", `printf 'your turn: '; read -r line; printf 'got: %s\n' "$line"; exec sleep 60`},
	}})
	if err != nil {
		fmt.Println(err)
		return
	}
	s.waitFor(pane, "your turn")

	result, err := s.Submit(ctx, pane.Guard(), `it's "quoted" $HOME`, nil)
	fmt.Println(result, err)
	s.waitFor(pane, "got: ")
	c, _ := s.Capture(ctx, pane.Guard(), nil)
	fmt.Println(strings.TrimSpace(string(c.Text)))
	// Output:
	// delivered <nil>
	// your turn: it's "quoted" $HOME
	// got: it's "quoted" $HOME
}

func ExampleServer_Connect() {
	ctx := context.Background()
	s, done := exampleServer()
	defer done()
	if _, err := s.NewSession(ctx, SessionOptions{Name: "work", Start: Start{Command: []string{"sleep", "60"}}}); err != nil {
		fmt.Println(err)
		return
	}
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
