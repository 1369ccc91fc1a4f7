package ledger

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// wrapped are the options of a launch whose program becomes claude in its turn, as a
// wrapper and a shim do.
func (b *bed) wrapped() LaunchOptions {
	b.t.Helper()
	cmd := childCommand(b.t, becomeAgent, direct{Root: b.s.root, Argv: []string{"claude"}})
	return LaunchOptions{Runtime: "claude", Argv: []string{cmd.Path}, Env: cmd.Env}
}

// awaitAgent waits until the process of a row is the agent.
func (b *bed) awaitAgent(e Entry) {
	b.t.Helper()
	await(b.t, "the agent", func() bool {
		found := b.agents()
		return len(found) == 1 && found[0].Same(e.Process())
	})
}

// The process that a wrapper becomes has the wrapper's row, and goes on to carry its id: by
// that a kill finds what the agent has left in the background.
func TestKillAfterAWrapperEndsWhatCarriesTheID(t *testing.T) {
	b := newBed(t)
	e := b.launch(b.wrapped())
	b.awaitAgent(e)
	if env := environ(t, e.PID); env[envID] != e.LedgerID || env[envAttempt] == "" {
		t.Errorf("it carries %q, attempt %q; its row is %q", env[envID], env[envAttempt], e.LedgerID)
	}
	if rows := rowsByID(t, b.s); len(rows) != 1 {
		t.Errorf("rows: %v", rows)
	}
	note := filepath.Join(b.home, "pid")
	b.say(e, "/spawn trap '' HUP; echo $$ >"+note+".new; mv "+note+".new "+note+"; exec sleep 1000")
	await(t, "the child", func() bool { return fileExists(note) })
	child, err := b.s.procs.identify(atoi(t, strings.TrimSpace(readFile(t, note))))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.h.Kill(t.Context(), e.LedgerID, KillOptions{}); err != nil {
		t.Fatal(err)
	}
	if got := b.s.procs.verdict(child); got != Gone {
		t.Errorf("what the agent left in the background: %v", got)
		b.kill(child)
	}
}

// Two agents in one conversation would write over each other.
func TestASessionThatRunsIsNotTakenUp(t *testing.T) {
	b := newBed(t)
	e := b.launch(LaunchOptions{Runtime: "claude"})
	for name, tt := range map[string]struct {
		from string
		err  error
	}{
		"runs":    {e.LedgerID, ErrConversationHeld},
		"missing": {goneID, ErrNotFound},
	} {
		got, err := b.h.Launch(t.Context(), LaunchOptions{Runtime: "claude", Dir: b.dir, ResumedFrom: tt.from})
		if !errors.Is(err, tt.err) || got.LedgerID != "" {
			t.Errorf("%s: %v, row %q", name, err, got.LedgerID)
		}
	}
	if rows := rowsByID(t, b.s); len(rows) != 1 {
		t.Errorf("rows: %v", rows)
	}
	b.kill(e.Process())
	if next := b.launch(LaunchOptions{Runtime: "claude", ResumedFrom: e.LedgerID}); next.ResumedFrom != e.LedgerID {
		t.Errorf("one that is lost, taken up: %+v", next)
	}
}

// Who gave up is told so, and not that another session had the conversation.
func TestACancelledResumeIsCancelled(t *testing.T) {
	b := newBed(t)
	e := b.launch(LaunchOptions{Runtime: "claude"})
	b.kill(e.Process())
	ctx, cancel := context.WithCancel(t.Context())
	b.h.step = func(step string) {
		if step == "born" { // what follows looks for others that take it up
			cancel()
		}
	}
	got, err := b.h.Launch(ctx, LaunchOptions{Runtime: "claude", Dir: b.dir, ResumedFrom: e.LedgerID})
	if !errors.Is(err, context.Canceled) || errors.Is(err, ErrConversationHeld) || got.LedgerID != "" {
		t.Errorf("%v, row %q", err, got.LedgerID)
	}
	if rows := rowsByID(t, b.s); len(rows) != 1 {
		t.Errorf("rows: %v", rows)
	}
}

// A server that does not answer may show the session all the same.
func TestReopenWithAStoppedServerIsUnknown(t *testing.T) {
	b := newBed(t)
	e := b.launch(LaunchOptions{Runtime: "claude"})
	if err := syscall.Kill(e.PaneServer.PID, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	defer syscall.Kill(e.PaneServer.PID, syscall.SIGCONT)
	if _, err := b.h.Reopen(t.Context(), e.LedgerID, AttachOptions{}); !errors.Is(err, ErrUnknown) || errors.Is(err, ErrIllegal) {
		t.Errorf("%v", err)
	}
}

// What is invalid about a launch can be told by its cause.
func TestLaunchErrorHasItsCause(t *testing.T) {
	b := newBed(t)
	for name, tt := range map[string]struct {
		opts LaunchOptions
		err  error
	}{
		"no program":         {LaunchOptions{Argv: []string{"no-such-program"}, Dir: b.dir}, exec.ErrNotFound},
		"no runtime":         {LaunchOptions{Runtime: "no-such-runtime", Dir: b.dir}, exec.ErrNotFound},
		"no program there":   {LaunchOptions{Argv: []string{filepath.Join(b.home, "gone")}, Dir: b.dir}, os.ErrNotExist},
		"no folder":          {LaunchOptions{Runtime: "claude", Dir: filepath.Join(b.home, "gone")}, os.ErrNotExist},
		"no folder above it": {LaunchOptions{Runtime: "claude", Dir: filepath.Join(b.home, "gone", "too")}, os.ErrNotExist},
	} {
		if _, err := b.h.Launch(t.Context(), tt.opts); !errors.Is(err, ErrInvalid) || !errors.Is(err, tt.err) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
