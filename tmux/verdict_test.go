//go:build unix

package tmux

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

func gone(int, uint64) Presence { return Absent }

// Case 64: definite absence only when it is.
func TestPresenceOfServer(t *testing.T) {
	t.Parallel()
	recorded := ServerID{PID: 77, StartTicks: 1}
	cases := []struct {
		name  string
		say   string
		probe func(int, uint64) Presence
		want  Presence
		err   error
	}{
		{"no server is definite", "no server running on /nonexistent/s", nil, Absent, ErrNoServer},
		{"no server, though its process is gone too", "no server running on /nonexistent/s", gone, Absent, ErrNoServer},
		{"no server, but its process runs", "no server running on /nonexistent/s", func(int, uint64) Presence { return Present }, Unknown, ErrNoServer},
		{"socket missing, process not known", "error connecting to /nonexistent/s (No such file or directory)", nil, Unknown, ErrNoServer},
		{"socket missing, process unclear", "error connecting to /nonexistent/s (No such file or directory)", func(int, uint64) Presence { return Unknown }, Unknown, ErrNoServer},
		{"socket missing, process alive", "error connecting to /nonexistent/s (No such file or directory)", func(int, uint64) Presence { return Present }, Unknown, ErrNoServer},
		{"socket missing, process gone", "error connecting to /nonexistent/s (No such file or directory)", gone, Absent, ErrNoServer},
		{"connection refused", "error connecting to /nonexistent/s (Connection refused)", gone, Unknown, nil},
		{"permission denied", "error connecting to /nonexistent/s (Permission denied)", gone, Unknown, nil},
		{"version mismatch", "protocol version mismatch (client 8, server 7)", gone, Unknown, ErrVersionMismatch},
		{"server exits", "server exited unexpectedly", gone, Unknown, nil},
		{"lost server", "lost server", gone, Unknown, nil},
		{"said in other words", "there is no server running on /nonexistent/s", gone, Unknown, nil},
		{"unknown option", "list-panes: unknown option -- a", gone, Unknown, ErrUnsupported},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			s := fakeServer(t, "say:"+c.say)
			s.Process, s.Probe = recorded, c.probe
			for _, verdict := range []func() (Presence, error){
				func() (Presence, error) { return s.Has(context.Background(), "x") },
				func() (Presence, error) { return s.HasPane(context.Background(), recorded, "%1") },
			} {
				got, err := verdict()
				if got != c.want {
					t.Errorf("verdict %v, want %v", got, c.want)
				}
				if (err == nil) != (got != Unknown) {
					t.Errorf("%v with error %v", got, err)
				}
			}
			_, err := s.List(context.Background())
			if c.err != nil && !is(err, c.err) {
				t.Errorf("List: %v, want %v", err, c.err)
			}
			var e *Error
			if !errors.As(err, &e) || e.Stderr != c.say {
				t.Errorf("List: %#v", err)
			}
		})
	}
}

// Lies and cut answers are no listing.
func TestAnswerThatIsNone(t *testing.T) {
	t.Parallel()
	for _, out := range []string{"", "\n", "hello\n", head, head + "e|wrong-sessions|\ne|wrong|\n", strings.Repeat("x", 100)} {
		s := fakeServer(t, "print:"+out)
		if got, err := s.Has(context.Background(), "x"); got != Unknown || err == nil {
			t.Errorf("%q: Has = %v, %v", out, got, err)
		}
	}
	if _, err := fakeServer(t, "flood").List(context.Background()); !errors.Is(err, errTooLarge) {
		t.Errorf("flood: %v", err)
	}
	g := Guard{Server: ServerID{PID: 1}, Pane: "%1", PID: 1}
	if _, err := fakeServer(t, "print:").Do(context.Background(), g, Set("@a", "b")); err == nil {
		t.Error("a dispatch without proof succeeds")
	}
}

func TestHangIsUnknownInTime(t *testing.T) {
	t.Parallel()
	needLinux(t)
	for _, mode := range []string{"hang", "hang-with-child:", "pipe-held:"} {
		t.Run(mode, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "pid")
			if strings.HasSuffix(mode, ":") {
				mode += file
			}
			s := fakeServer(t, mode)
			s.Timeout = time.Second
			begin := time.Now()
			got, err := s.Has(context.Background(), "x")
			if got != Unknown || !is(err, ErrTimeout) {
				t.Errorf("Has = %v, %v", got, err)
			}
			if d := time.Since(begin); d > 15*time.Second {
				t.Errorf("took %v", d)
			}
			data, err := os.ReadFile(file)
			if err != nil {
				return
			}
			pid, _ := strconv.Atoi(string(data))
			eventually(t, "the child of the client ends", func() bool { return !alive(pid) })
		})
	}
	ctx, cancel := context.WithCancel(context.Background())
	time.AfterFunc(50*time.Millisecond, cancel)
	if _, err := fakeServer(t, "hang").List(ctx); !is(err, context.Canceled) || is(err, ErrTimeout) {
		t.Errorf("canceled: %v", err)
	}
}

func TestServerStates(t *testing.T) {
	s := newServer(t)
	ctx := context.Background()
	if got, err := s.Has(ctx, "a"); got != Unknown || !is(err, ErrNoServer) {
		t.Errorf("never started: %v, %v", got, err)
	}
	p := start(t, s, "a")
	if got, _ := s.HasPane(ctx, p.Server, p.ID); got != Present {
		t.Errorf("HasPane = %v", got)
	}
	if got, _ := s.HasPane(ctx, p.Server, "%9"); got != Absent {
		t.Errorf("HasPane(%%9) = %v", got)
	}
	if err := s.KillServer(ctx, p.Server); err != nil {
		t.Fatal(err)
	}
	if got, err := s.Has(ctx, "a"); got != Absent || err != nil {
		t.Errorf("after kill: %v, %v", got, err)
	}
	os.Remove(s.Socket)
	if got, _ := s.HasPane(ctx, p.Server, p.ID); got != Unknown {
		t.Errorf("socket gone too: %v", got)
	}
	s.Probe = func(pid int, ticks uint64) Presence {
		if pid != p.Server.PID || ticks != p.Server.StartTicks {
			t.Errorf("probe of %d, %d", pid, ticks)
		}
		return Absent
	}
	if got, err := s.HasPane(ctx, p.Server, p.ID); got != Absent || err != nil {
		t.Errorf("and the process is gone: %v, %v", got, err)
	}
}

func TestUnlinkedSocketOfLiveServer(t *testing.T) {
	s := newServer(t)
	ctx := context.Background()
	p := start(t, s, "a")
	s.Process, s.Probe = p.Server, func(pid int, _ uint64) Presence {
		if alive(pid) {
			return Present
		}
		return Absent
	}
	if err := os.Remove(s.Socket); err != nil {
		t.Fatal(err)
	}
	if got, err := s.Has(ctx, "a"); got != Unknown || !is(err, ErrNoServer) {
		t.Errorf("unlinked: %v, %v", got, err)
	}
	if err := syscall.Kill(p.Server.PID, syscall.SIGUSR1); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the socket comes back", func() bool { got, _ := s.Has(ctx, "a"); return got == Present })
}

func TestStoppedServerIsUnknownInTime(t *testing.T) {
	s := newServer(t)
	p := start(t, s, "a")
	wake := stopServer(t, p.Server.PID)
	fast := s
	fast.Timeout = 300 * time.Millisecond
	begin := time.Now()
	if got, err := fast.Has(context.Background(), "a"); got != Unknown || !is(err, ErrTimeout) {
		t.Errorf("Has = %v, %v", got, err)
	}
	if _, err := fast.Capture(context.Background(), p.Guard(), nil); !is(err, ErrTimeout) {
		t.Errorf("Capture: %v", err)
	}
	if d := time.Since(begin); d > 10*time.Second {
		t.Errorf("took %v", d)
	}
	wake()
	if got, err := s.Has(context.Background(), "a"); got != Present {
		t.Errorf("awake: %v, %v", got, err)
	}
}

// Case 65: a stranger with the same pane id is never read or touched.
func TestRestartedServerIsAStranger(t *testing.T) {
	needLinux(t)
	s := newServer(t)
	ctx := context.Background()
	old := start(t, s, "a")
	if err := s.KillServer(ctx, old.Server); err != nil {
		t.Fatal(err)
	}
	p := start(t, s, "a")
	if p.ID != old.ID {
		t.Fatalf("pane ids %s, %s", old.ID, p.ID)
	}
	if got, err := s.HasPane(ctx, old.Server, old.ID); got != Unknown || err == nil {
		t.Errorf("HasPane = %v, %v", got, err)
	}
	meant := s
	meant.Process = old.Server
	if got, err := meant.Has(ctx, "a"); got != Unknown || err == nil {
		t.Errorf("Has = %v, %v", got, err)
	}
	if err := meant.KillSession(ctx, "a"); !is(err, ErrRefused) {
		t.Errorf("KillSession = %v", err)
	}
	if _, err := meant.NewWindow(ctx, "a", WindowOptions{}); !is(err, ErrRefused) {
		t.Errorf("NewWindow = %v", err)
	}
	if _, err := meant.NewSession(ctx, SessionOptions{Name: "b"}); !is(err, ErrRefused) {
		t.Errorf("NewSession = %v", err)
	}
	meant.Process = p.Server
	if b, err := meant.NewSession(ctx, SessionOptions{Name: "b"}); err != nil || b.Server != p.Server || b.Session != "b" {
		t.Errorf("NewSession in the server that is meant: %+v, %v", b, err)
	}
	if _, err := meant.NewSession(ctx, SessionOptions{Name: "b"}); !is(err, ErrExists) {
		t.Errorf("the name is taken: %v", err)
	}
	meant.Process = old.Server
	if err := meant.KillSession(ctx, "a"); meant.Presence(err) != Unknown {
		t.Errorf("another server's answer is %v", meant.Presence(err))
	}
	meant.Probe = gone
	if got, err := meant.Has(ctx, "a"); got != Absent || err != nil {
		t.Errorf("the meant server is gone: Has = %v, %v", got, err)
	}
	stranger := func(g Guard) {
		t.Helper()
		for what, err := range map[string]error{
			"set":     second(s.Do(ctx, g, Set(OptionID, "x"))),
			"respawn": second(s.Do(ctx, g, Respawn(Start{Command: []string{"true", "x"}}))),
			"kill":    second(s.Do(ctx, g, Kill())),
			"capture": second(s.Capture(ctx, g, nil)),
			"submit":  second(s.Submit(ctx, g, "x", nil)),
		} {
			if !is(err, ErrRefused) {
				t.Errorf("%s with %+v: %v", what, g, err)
			}
		}
	}
	stranger(old.Guard())
	if err := s.KillServer(ctx, old.Server); err != nil {
		t.Errorf("KillServer of a server that is gone: %v", err)
	}
	// The server's own word refuses, too, where /proc cannot.
	g := old.Guard()
	g.Server.StartTicks, g.Server.Started = 0, 0
	if g.Server.PID != p.Server.PID {
		if _, err := s.Do(ctx, g, Kill()); !is(err, ErrRefused) {
			t.Errorf("by pid alone: %v", err)
		}
		g.Server.PID = p.Server.PID
		g.Server.Started = p.Server.Started + 1
		if _, err := s.Do(ctx, g, Kill()); !is(err, ErrRefused) {
			t.Errorf("by start time: %v", err)
		}
	}
	if g = p.Guard(); old.PID != p.PID {
		g.PID = old.PID
		if g.Server.Same(p.Server) == Present {
			if _, err := s.Do(ctx, g, Kill()); !is(err, ErrRefused) {
				t.Errorf("by pane process: %v", err)
			}
		}
	}
	l := list(t, s)
	if q, _ := l.Pane(p.ID); q.PID != p.PID || q.Ledger != "" {
		t.Errorf("touched: %+v", q)
	}
}

func second[T any](_ T, err error) error { return err }

func TestServerArguments(t *testing.T) {
	ctx := context.Background()
	for _, s := range []Server{
		{Socket: "relative"}, {Socket: "/a", Name: "b"}, {Name: "a/b"}, {Socket: "/" + strings.Repeat("x", 107)},
	} {
		if _, err := s.List(ctx); !is(err, ErrInvalid) || s.Presence(err) != Unknown {
			t.Errorf("%+v: %v", s, err)
		}
	}
	s := fakeServer(t, "argv")
	s.Socket, s.Name, s.Config = "", "-n", "/etc/none"
	out, err := s.run(ctx, command{"a", "b;"}, command{"c"})
	if want := "\"-u\"\n\"-L\"\n\"-n\"\n\"-f\"\n\"/etc/none\"\n\"a\"\n\"b\\\\;\"\n\";\"\n\"c\"\n"; err != nil || string(out) != want {
		t.Errorf("argv %s, %v", out, err)
	}
	long := Server{Socket: "/" + strings.Repeat("x", 106)}
	if _, err := long.prefix(); err != nil {
		t.Errorf("107 bytes: %v", err)
	}
}

func TestNamedServerAndWrap(t *testing.T) {
	s := newServer(t)
	s.Socket, s.Name = "", "named"
	var wrapped []string
	s.Wrap = func(argv []string) []string {
		wrapped = argv
		return append([]string{"env", "LEDGER_WRAPPED=1"}, argv...)
	}
	p := start(t, s, "a", "sh", "-c", "echo wrapped=$LEDGER_WRAPPED; exec sleep 1000")
	t.Cleanup(func() {
		if err := s.KillServer(context.Background(), p.Server); err != nil {
			t.Error(err)
		}
	})
	if len(wrapped) == 0 || wrapped[0] != s.Binary {
		t.Errorf("Wrap got %q", wrapped)
	}
	eventually(t, "wrapped server's environment", func() bool {
		c, err := s.Capture(context.Background(), p.Guard(), nil)
		return err == nil && strings.HasPrefix(string(c.Text), "wrapped=1")
	})
	if l := list(t, s); !strings.HasSuffix(l.Socket, "/named") {
		t.Errorf("socket %q", l.Socket)
	}
}

func TestVersion(t *testing.T) {
	s := newServer(t)
	v, err := s.Version(context.Background())
	if err != nil || v == "" || strings.Contains(v, "tmux") {
		t.Errorf("Version = %q, %v", v, err)
	}
}

func TestErrorIsSafeToPrint(t *testing.T) {
	_, err := fakeServer(t, "say:bad \x1b]0;title\a name").List(context.Background())
	if err == nil || strings.ContainsAny(err.Error(), "\x1b\a\n") {
		t.Errorf("%q", err)
	}
	e := &Error{Args: redact([]string{"new-session", "-e", "TOKEN=secret", strings.Repeat("x", 100)})}
	if got := strings.Join(e.Args, " "); strings.Contains(got, "secret") || len(got) > 100 || !strings.Contains(got, "TOKEN=") {
		t.Errorf("%q", got)
	}
}

func TestZeroValuesAreUnknown(t *testing.T) {
	var p Presence
	var r Result
	if p != Unknown || p.String() != "unknown" || r != CouldNotConfirm || r.String() != "could-not-confirm" {
		t.Error("a zero verdict says something")
	}
	if (ServerID{}).Same(ServerID{}) != Unknown {
		t.Error("two unknown servers compare")
	}
	if (ServerID{PID: 1}).Same(ServerID{PID: 1}) != Unknown || (ServerID{PID: 1}).Same(ServerID{PID: 2}) != Absent {
		t.Error("a pid alone proves identity")
	}
}

// What a server forked may hold its socket open after its end: KillServer returns once
// nobody is put off there.
func TestKillServerWaitsForItsSocket(t *testing.T) {
	needLinux(t)
	s := newServer(t)
	old := start(t, s, "a")
	if err := s.KillServer(context.Background(), old.Server); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(s.Socket); err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", s.Socket)
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		if c, err := l.Accept(); err == nil {
			c.Close()
		}
		l.Close()
	}()
	if err := s.KillServer(context.Background(), old.Server); err != nil {
		t.Fatal(err)
	}
	if dial(s.Socket) == nil {
		t.Error("it is still connected to")
	}
}
