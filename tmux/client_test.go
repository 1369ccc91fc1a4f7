//go:build unix

package tmux

import (
	"context"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func connect(t *testing.T, s Server) *Client {
	t.Helper()
	c, err := s.Connect(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.Close()
		if alive(c.cmd.Process.Pid) {
			t.Error("the control client is left behind")
		}
	})
	return c
}

// A listing over the connection is that of the binary.
func TestClientListsTheSame(t *testing.T) {
	s := newServer(t)
	p := start(t, s, "a b|c\\ $x ü")
	if _, err := s.Do(context.Background(), p.Guard(), Set(OptionID, "x\n%end 1 1 1\n%error 1 1 1\n%begin\ny \\$z")); err != nil {
		t.Fatal(err)
	}
	c := connect(t, s)
	for range 3 {
		got, err := c.List(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(list(t, s), got, cmp.AllowUnexported(Pane{})); diff != "" {
			t.Fatalf("-binary +connection:\n%s", diff)
		}
		// Output and changes between two questions make notifications.
		start(t, s, newToken())
	}
	if !c.Connected() {
		t.Error("the connection was not used to the end")
	}
}

func TestClientIsConcurrent(t *testing.T) {
	s := newServer(t)
	start(t, s, "a")
	c := connect(t, s)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 10 {
				if l, err := c.List(context.Background()); err != nil || len(l.Panes) != 1 {
					t.Errorf("%+v, %v", l, err)
				}
			}
		})
	}
	wg.Wait()
	if !c.Connected() {
		t.Error("the connection was lost")
	}
}

// A lost connection is no absence: the binary goes on.
func TestClientFallsBack(t *testing.T) {
	ctx := context.Background()
	for name, lose := range map[string]func(*testing.T, Server, *Client){
		"client killed": func(t *testing.T, s Server, c *Client) { syscall.Kill(c.cmd.Process.Pid, syscall.SIGKILL) },
		"session gone":  func(t *testing.T, s Server, c *Client) { s.KillSession(ctx, "a") },
		"detached":      func(t *testing.T, s Server, c *Client) { raw(t, s, "detach-client", "-s", "=a") },
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t)
			start(t, s, "a")
			c := connect(t, s)
			start(t, s, "b")
			lose(t, s, c)
			eventually(t, "the loss shows", func() bool { return !c.Connected() })
			l, err := c.List(ctx)
			if err != nil {
				t.Fatal(err)
			}
			if _, ok := l.Session("b"); !ok {
				t.Errorf("%+v", l)
			}
		})
	}
}

func TestClientOfStoppedServer(t *testing.T) {
	s := newServer(t)
	p := start(t, s, "a")
	s.Timeout = time.Second
	c := connect(t, s)
	wake := stopServer(t, p.Server.PID)
	if l, err := c.List(context.Background()); !is(err, ErrTimeout) || s.Presence(err) != Unknown {
		t.Errorf("%+v, %v", l, err)
	}
	wake()
	c.server.Timeout = 20 * time.Second
	if _, err := c.List(context.Background()); err != nil {
		t.Errorf("awake: %v", err)
	}
}

func TestClientAfterClose(t *testing.T) {
	s := newServer(t)
	start(t, s, "a")
	c := connect(t, s)
	c.Close()
	c.Close()
	if c.Connected() {
		t.Error("connected")
	}
	if l, err := c.List(context.Background()); err != nil || len(l.Sessions) != 1 {
		t.Errorf("%+v, %v", l, err)
	}
}

// Connecting must not change the session: attaching would copy variables of
// ours into its environment.
func TestConnectLeavesTheSessionAlone(t *testing.T) {
	s := newServer(t)
	start(t, s, "a")
	raw(t, s, "set-environment", "-t", "=a:", "DISPLAY", ":7")
	before := raw(t, s, "show-environment", "-t", "=a:") + raw(t, s, "list-windows", "-a", "-F", "#{window_width}x#{window_height}")
	s.Env = append(s.Env, "DISPLAY=:99")
	c := connect(t, s)
	after := raw(t, s, "show-environment", "-t", "=a:") + raw(t, s, "list-windows", "-a", "-F", "#{window_width}x#{window_height}")
	if before != after || !strings.Contains(after, "DISPLAY=:7") {
		t.Errorf("before %q, after %q", before, after)
	}
	if !c.Connected() {
		t.Error("not connected")
	}
}

func BenchmarkList(b *testing.B) {
	s := newServer(b)
	for range 20 {
		start(b, s, newToken())
	}
	b.Run("binary", func(b *testing.B) {
		for b.Loop() {
			list(b, s)
		}
	})
	b.Run("connection", func(b *testing.B) {
		c, err := s.Connect(context.Background())
		if err != nil {
			b.Fatal(err)
		}
		defer c.Close()
		for b.Loop() {
			if _, err := c.List(context.Background()); err != nil {
				b.Fatal(err)
			}
		}
		if !c.Connected() {
			b.Fatal("fell back to the binary")
		}
	})
}

// A connection to a server that hung is not asked again.
func TestConnectionToAHungServerIsGivenUp(t *testing.T) {
	s := newServer(t)
	p := start(t, s, "a")
	c, err := s.Connect(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	wake := stopServer(t, p.Server.PID)
	c.server.Timeout = 300 * time.Millisecond
	if _, err := c.List(context.Background()); !is(err, ErrTimeout) || c.Connected() {
		t.Errorf("%v, connected %v", err, c.Connected())
	}
	wake()
	c.server.Timeout = 0
	if l, err := c.List(context.Background()); err != nil || len(l.Sessions) != 1 {
		t.Errorf("through the binary: %+v, %v", l, err)
	}
}
