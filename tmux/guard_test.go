//go:build unix

package tmux

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestGuardMembers(t *testing.T) {
	needLinux(t)
	s := newServer(t)
	ctx := context.Background()
	p := start(t, s, "a")
	p, err := s.Do(ctx, p.Guard(), Set(OptionID, "id-1"), Set(OptionAttempt, "at-1"))
	if err != nil {
		t.Fatal(err)
	}
	good := p.Guard()
	st, _ := readStat(p.PID)
	good.StartTicks = st.ticks
	if _, err := s.Do(ctx, good, Set("@n", "0")); err != nil {
		t.Fatalf("the guard of the pane itself: %v", err)
	}
	for name, change := range map[string]func(*Guard){
		"server pid":      func(g *Guard) { g.Server = ServerID{PID: g.Server.PID + 1} },
		"server ticks":    func(g *Guard) { g.Server.StartTicks++ },
		"server start":    func(g *Guard) { g.Server.Started++ },
		"pane":            func(g *Guard) { g.Pane = "%77" },
		"process":         func(g *Guard) { g.PID++; g.StartTicks = 0 },
		"process ticks":   func(g *Guard) { g.StartTicks++ },
		"dead":            func(g *Guard) { g.Dead = true },
		"stamp":           func(g *Guard) { g.Ledger = "id-2" },
		"stamp unset":     func(g *Guard) { g.Ledger = "" },
		"stamp, a prefix": func(g *Guard) { g.Ledger = "id-" },
		"mark":            func(g *Guard) { g.Attempt = "at-2" },
		"mark unset":      func(g *Guard) { g.Attempt = "" },
	} {
		g := good
		change(&g)
		got, err := s.Do(ctx, g, Set("@touched", name), Kill())
		if !is(err, ErrRefused) {
			t.Errorf("%s: %v", name, err)
		}
		if g.Pane == p.ID && g.Server.StartTicks == good.Server.StartTicks && g.StartTicks == good.StartTicks && got.ID != p.ID {
			t.Errorf("%s: the refusal does not report the pane: %+v", name, got)
		}
	}
	for name, change := range map[string]func(*Guard){
		"no server":  func(g *Guard) { g.Server = ServerID{} },
		"no process": func(g *Guard) { g.PID = 0 },
		"target":     func(g *Guard) { g.Pane = "=a:" },
		"format":     func(g *Guard) { g.Ledger = "},1}#(touch x)" },
		"comma":      func(g *Guard) { g.Attempt = "a,b" },
	} {
		g := good
		change(&g)
		if _, err := s.Do(ctx, g, Kill()); !is(err, ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if out := raw(t, s, "display-message", "-p", "-t", p.ID, "[#{@touched}]"); out != "[]\n" {
		t.Errorf("touched: %s", out)
	}
	if _, err := s.Do(ctx, good); !is(err, ErrInvalid) {
		t.Errorf("no actions: %v", err)
	}
	if _, err := s.Do(ctx, good, Kill(), Set("@a", "b")); !is(err, ErrInvalid) {
		t.Errorf("action after Kill: %v", err)
	}
	for _, name := range []string{"", "-g", "a b", "@#(x)"} {
		if _, err := s.Do(ctx, good, Set(name, "on")); !is(err, ErrInvalid) {
			t.Errorf("option %q: %v", name, err)
		}
	}
	if _, err := s.Do(ctx, good, Action{}); !is(err, ErrInvalid) {
		t.Errorf("zero action: %v", err)
	}
}

func TestRespawnInOneDispatch(t *testing.T) {
	s := newServer(t)
	ctx := context.Background()
	dir := filepath.Join(filepath.Dir(s.Socket), "#[a #{pid} #(touch PWNED) ü;")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	p := start(t, s, "a")
	p, err := s.Do(ctx, p.Guard(), Set(OptionID, "id"), Set(OptionAttempt, "one"), Set(OptionReady, "zero"))
	if err != nil {
		t.Fatal(err)
	}
	script := `printf '%s|' "$0" "$@" "$V" "$PWD"; exec sleep 1000`
	q, err := s.Do(ctx, p.Guard(), Unset(OptionReady),
		Respawn(Start{Command: []string{"sh", "-c", script, "-a", "b;", "#{pid}", "$HOME", "x\ny"}, Dir: dir, Env: []string{"V=#(date) $V;"}}),
		Set(OptionReady, "one"))
	if err != nil {
		t.Fatal(err)
	}
	if q.ID != p.ID || q.PID == p.PID || q.PID == 0 || q.Ready != "one" || q.Ledger != "id" {
		t.Errorf("after respawn: %+v", q)
	}
	want := "-a|b;|#{pid}|$HOME|x\ny|#(date) $V;|" + dir + "|"
	var got string
	eventually(t, "stand-in prints", func() bool {
		c, err := s.Capture(ctx, q.Guard(), nil)
		if err != nil {
			t.Fatal(err)
		}
		got = strings.TrimRight(trimmed(c), "\n")
		return strings.Count(got, "|") >= 7
	})
	if got != want {
		t.Errorf("the command got %q, want %q", got, want)
	}
	// A dead pane is respawned only when that is what is expected.
	q, err = s.Do(ctx, q.Guard(), Set("remain-on-exit", "on"), Respawn(Start{Command: []string{"true"}}))
	if err != nil {
		t.Fatal(err)
	}
	q = awaitDead(t, s, q)
	alive := q.Guard()
	alive.Dead, alive.PID = false, max(q.PID, 1)
	if _, err := s.Do(ctx, alive, Respawn(Start{Command: []string{"sleep", "1000"}})); !is(err, ErrRefused) {
		t.Errorf("a dead pane passes for a live one: %v", err)
	}
	if q, err = s.Do(ctx, q.Guard(), Respawn(Start{Command: []string{"sleep", "1000"}})); err != nil || q.Dead {
		t.Errorf("respawn of a dead pane: %+v, %v", q, err)
	}
	if gone, err := s.Do(ctx, q.Guard(), Kill()); err != nil || gone != (Pane{}) {
		t.Errorf("Kill of the last pane: %+v, %v", gone, err)
	}
	if m, _ := filepath.Glob(filepath.Join(filepath.Dir(s.Socket), "PWNED*")); m != nil {
		t.Errorf("ran: %v", m)
	}
}

// In a folder that does not exist tmux would start in the home folder.
func TestMissingDirIsRefused(t *testing.T) {
	s := newServer(t)
	ctx := context.Background()
	p := start(t, s, "a")
	missing := filepath.Join(t.TempDir(), "none")
	st := Start{Command: []string{"sleep", "1000"}, Dir: missing}
	if _, err := s.NewSession(ctx, SessionOptions{Name: "b", Start: st}); !is(err, ErrInvalid) || !is(err, os.ErrNotExist) {
		t.Errorf("NewSession: %v", err)
	}
	if _, err := s.NewWindow(ctx, "a", WindowOptions{Start: st}); !is(err, ErrInvalid) {
		t.Errorf("NewWindow: %v", err)
	}
	if _, err := s.Do(ctx, p.Guard(), Unset(OptionReady), Respawn(st)); !is(err, ErrInvalid) {
		t.Errorf("Respawn: %v", err)
	}
	for _, bad := range []Start{{Dir: "rel"}, {Dir: s.Socket}, {Env: []string{"NOEQUALS"}}, {Env: []string{"=x"}}, {Command: []string{""}}, {Command: []string{"a=b"}}} {
		if _, err := s.NewSession(ctx, SessionOptions{Name: "b", Start: bad}); !is(err, ErrInvalid) {
			t.Errorf("%+v: %v", bad, err)
		}
	}
	if l := list(t, s); len(l.Panes) != 1 || l.Panes[0].PID != p.PID {
		t.Errorf("touched: %+v", l)
	}
}

// A single word is a program, not text for a shell.
func TestCommandOfOneWordIsNoShellText(t *testing.T) {
	s := newServer(t)
	dir := filepath.Dir(s.Socket)
	prog := filepath.Join(dir, "a b;touch PWNED")
	if err := os.WriteFile(prog, []byte("#!/bin/sh\necho ran; exec sleep 1000\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	p, err := s.NewSession(context.Background(), SessionOptions{Name: "a", Start: Start{Command: []string{prog}, Dir: dir}})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "program runs", func() bool {
		c, err := s.Capture(context.Background(), p.Guard(), nil)
		return err == nil && strings.HasPrefix(trimmed(c), "ran\n")
	})
	if _, err := os.Stat(filepath.Join(dir, "PWNED")); err == nil {
		t.Error("a shell ran")
	}
}

// Case 63c: a command delayed in a stopped server fails its guard, once the
// mark has been replaced, and does run if it has not.
func TestDelayedDispatch(t *testing.T) {
	s := newServer(t)
	ctx := context.Background()
	p := start(t, s, "a")
	p, err := s.Do(ctx, p.Guard(), Set(OptionID, "id"), Set(OptionAttempt, "old"))
	if err != nil {
		t.Fatal(err)
	}
	late := func(name string) {
		t.Helper()
		fast := s
		fast.Timeout = 300 * time.Millisecond
		if _, err := fast.Do(ctx, p.Guard(), Set("@late", name)); !is(err, ErrTimeout) {
			t.Fatalf("dispatch to a stopped server: %v", err)
		}
	}
	value := func() string { return strings.TrimSpace(raw(t, s, "display-message", "-p", "-t", p.ID, "#{@late}")) }

	wake := stopServer(t, p.Server.PID)
	late("ran")
	wake()
	// The client is dead, the command need not be: this is why a fence exists.
	list(t, s)
	t.Logf("after a wake-up without a fence: %q", value())

	if _, err := s.Do(ctx, p.Guard(), Set("@late", "none"), Set(OptionAttempt, "new")); err != nil {
		t.Fatal(err)
	}
	wake = stopServer(t, p.Server.PID)
	late("passed its guard") // still with the old mark
	wake()
	list(t, s)
	if got := value(); got != "none" {
		t.Errorf("a late dispatch %s", got)
	}
}

func TestActionThatFailsIsNoSuccess(t *testing.T) {
	s := newServer(t)
	p := start(t, s, "a")
	got, err := s.Do(context.Background(), p.Guard(), Set("@one", "1"),
		Action{name: "no-such-command"}, Set("@two", "2"))
	if err == nil || is(err, ErrRefused) {
		t.Errorf("err %v, pane %+v", err, got)
	}
	// resize-pane of a bad size fails when it runs, not when it is parsed.
	got, err = s.Do(context.Background(), p.Guard(), Set("@one", "1"),
		Action{name: "resize-pane", rest: []string{"-x", "bad"}}, Set("@two", "2"))
	if err == nil || is(err, ErrRefused) || got.ID != p.ID {
		t.Errorf("err %v, pane %+v", err, got)
	}
	if out := raw(t, s, "display-message", "-p", "-t", p.ID, "#{@one}#{@two}"); out != "1\n" {
		t.Errorf("did %q", out)
	}
}
