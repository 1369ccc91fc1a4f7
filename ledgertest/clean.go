package ledgertest

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// cleanTime is how long what a test has told to end may take for it.
const cleanTime = 5 * time.Second

// Clean fails the test where something that it started since [Isolate] still
// runs, and kills it: processes that bear its [Marker] (on Linux; others are not
// told), the test's own excepted, and tmux servers with a socket in its
// TMUX_TMPDIR. What is about to end is given some seconds. Isolate calls it at
// the test's end.
func Clean(t testing.TB) {
	t.Helper()
	id := os.Getenv(Marker)
	if id == "" {
		t.Fatal("ledgertest: Clean needs a test that is isolated")
	}
	sockets := os.Getenv("TMUX_TMPDIR")
	var left []leftover
	for end := time.Now().Add(cleanTime); ; time.Sleep(pollEvery) {
		if left = append(marked(id), servers(sockets)...); len(left) == 0 || time.Now().After(end) {
			break
		}
	}
	for _, l := range left {
		t.Errorf("ledgertest: left running: %s", l.what)
		if err := l.kill(); err != nil {
			t.Logf("ledgertest: kill %s: %v", l.what, err)
		}
	}
}

// A leftover is something that runs and should not.
type leftover struct {
	what string
	kill func() error
}

// servers are the tmux servers that listen in a folder.
func servers(dir string) (left []leftover) {
	sockets, err := filepath.Glob(filepath.Join(dir, "tmux-*", "*"))
	if err != nil {
		return nil
	}
	for _, socket := range sockets {
		c, err := net.DialTimeout("unix", socket, time.Second)
		if err != nil {
			continue // a socket that nobody listens on is only a file
		}
		c.Close()
		left = append(left, leftover{
			what: fmt.Sprintf("a tmux server at %s", socket),
			kill: func() error {
				ctx, cancel := context.WithTimeout(context.Background(), cleanTime)
				defer cancel()
				cmd := exec.CommandContext(ctx, "tmux", "-S", socket, "kill-server")
				cmd.WaitDelay = time.Second
				return cmd.Run()
			},
		})
	}
	return left
}
