package ledger

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// An agent that was launched directly in a person's tmux is recorded with its place there.
func TestExecInTmuxRecordsItsPlace(t *testing.T) {
	b := newBed(t)
	cmd := childCommand(t, becomeAgent, direct{Root: b.s.root, Argv: []string{"claude"}})
	script, socket := filepath.Join(b.home, "launch.sh"), filepath.Join(b.home, "own")
	exports := ""
	for _, kv := range cmd.Env {
		if strings.HasPrefix(kv, childVar) || strings.HasPrefix(kv, argVar) || strings.HasPrefix(kv, "GORACE") {
			exports += "export '" + kv + "'\n"
		}
	}
	putFile(t, script, exports+"exec "+cmd.Path+"\n")
	out, err := exec.Command("tmux", "-S", socket, "-f", "/dev/null", "new-session", "-d", "-P", "-F", "#{pane_id} #{pane_pid} #{pid}",
		"-s", "mine", "-n", "place", "-c", b.dir, "exec sh "+script).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	t.Cleanup(func() { endServer(t, socket) })
	said := strings.Fields(string(out))
	await(t, "the agent", func() bool {
		rows := rowsByID(t, b.s)
		for _, e := range rows {
			return e.Lease == nil && len(b.agents()) == 1
		}
		return false
	})
	e := b.onlyRow()
	if e.EnrolledBy != EnrolledByShim || e.PID != atoi(t, said[1]) || e.LauncherPID != e.PID || e.LaunchedBy != LaunchedByUser {
		t.Errorf("%+v", e)
	}
	if e.Mux.Kind != MuxTmux || e.Mux.Socket != socket || e.Mux.Target != "mine" || e.Window != "place" || e.PaneID != said[0] || e.PaneServer.PID != atoi(t, said[2]) {
		t.Errorf("%+v in %q of %d, window %q, want %q", e.Mux, e.PaneID, e.PaneServer.PID, e.Window, said)
	}
	if st := b.status(e.LedgerID); st.Mux != MuxDetached {
		t.Errorf("%+v", st)
	}
}

// launchBelow is a launch by a process of a tree.
type launchBelow struct {
	Root, Dir, After string // After: a file to wait for
	Hosted           bool
}

var launchFromBelow = inChild("launch-from-below", func(arg launchBelow) error {
	if err := pollUntil(func() bool { return fileExists(arg.After) }); err != nil {
		return err
	}
	s, err := Open(arg.Root, nil)
	if err != nil {
		return err
	}
	os.Unsetenv(childVar)
	os.Unsetenv(argVar)
	h := &Host{Store: s}
	o := LaunchOptions{Argv: []string{"codex"}, Dir: arg.Dir, Wait: patience}
	if !arg.Hosted {
		return h.Exec(context.Background(), o)
	}
	_, err = h.Launch(context.Background(), o)
	return err
})

// launcher is a node that launches, in the environment env.
func (b *bed) launcher(arg launchBelow, env []string) node {
	cmd := childCommand(b.t, launchFromBelow, arg)
	for _, kv := range cmd.Env {
		if strings.HasPrefix(kv, childVar) || strings.HasPrefix(kv, argVar) || strings.HasPrefix(kv, "GORACE") {
			env = append(slices.Clone(env), kv)
		}
	}
	return node{Name: "launcher", Exec: []string{cmd.Path}, Args: []string{"launcher"}, Env: env}
}

// launched waits for the row of the codex that a launcher started.
func (b *bed) launched() (row Entry) {
	b.t.Helper()
	await(b.t, "the launch", func() bool {
		for _, e := range rowsByID(b.t, b.s) {
			if e.Runtime == "codex" && e.Lease == nil && !e.Process().IsZero() {
				row = e
			}
		}
		return row.LedgerID != ""
	})
	return row
}

// What an agent launches has that agent for its parent. One that has no row yet gets it
// first.
func TestALaunchUnderAnAgentIsItsChild(t *testing.T) {
	for name, tt := range map[string]struct{ known, hosted bool }{
		"direct, under a known one": {true, false}, "direct, under a new one": {false, false},
		"hosted, under a known one": {true, true}, "hosted, under a new one": {false, true},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t)
			env, ready := os.Environ(), filepath.Join(b.home, "ready")
			arg := launchBelow{Root: b.s.root, Dir: b.dir, After: ready, Hosted: tt.hosted}
			pids := growTree(t, shell("shell", env, agent("outer", "claude", env, shell("tool", env, b.launcher(arg, env)))))
			if tt.known {
				mustEnrol(t, b.s, pids["outer"], nil)
			}
			putFile(t, ready, "")
			e := b.launched()
			rows := rowsByID(t, b.s)
			parent := rows[e.ParentLedgerID]
			if len(rows) != 2 || parent.PID != pids["outer"] || e.Parent != e.ParentLedgerID || e.LaunchedBy != LaunchedByAgent || e.EnrolledBy != EnrolledByShim {
				t.Errorf("%d rows: %+v below %+v", len(rows), e, parent)
			}
			if parent.EnrolledBy != EnrolledByDiscovery || parent.ParentLedgerID != "" || parent.LaunchedBy == LaunchedByAgent {
				t.Errorf("the parent: %+v", parent)
			}
			if !tt.hosted && e.PID != pids["launcher"] {
				t.Errorf("it runs as %d, not %d", e.PID, pids["launcher"])
			}
		})
	}
}

// Where no agent is above a launcher any more, the id that it inherited names its parent, if
// there is such a row.
func TestALaunchWithAnInheritedIDIsThatRowsChild(t *testing.T) {
	for name, tt := range map[string]struct{ there, hosted bool }{
		"direct": {true, false}, "hosted": {true, true}, "direct, of no row": {false, false}, "hosted, of no row": {false, true},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t)
			id, ready := "claude-20260101T000000Z-000001", filepath.Join(b.home, "ready")
			if tt.there {
				enrolled(t, b.s, Entry{LedgerID: id, Runtime: "claude", Cwd: b.dir})
			}
			putFile(t, ready, "")
			env := append(os.Environ(), envID+"="+id)
			growTree(t, shell("shell", os.Environ(), b.launcher(launchBelow{Root: b.s.root, Dir: b.dir, After: ready, Hosted: tt.hosted}, env)))
			e := b.launched()
			switch {
			case e.LedgerID == id:
				t.Errorf("it took the id that it inherited: %+v", e)
			case tt.there && (e.ParentLedgerID != id || e.Parent != id || e.LaunchedBy != LaunchedByAgent):
				t.Errorf("%q (%q), launched by %q", e.ParentLedgerID, e.Parent, e.LaunchedBy)
			case !tt.there && (e.ParentLedgerID != "" || e.Parent != ""):
				t.Errorf("a child of no row: %q (%q)", e.ParentLedgerID, e.Parent)
			}
		})
	}
}

// A launch whose record could not be written runs, and a sweep finds it once rows can be.
func TestASweepEnrolsWhatWasLaunchedWithoutARecord(t *testing.T) {
	b := newBed(t)
	if p, err := b.s.newPass(t.Context()); err != nil || p.noDiscovery != "" {
		need(t, false, "the host's user namespace")
	}
	putFile(t, b.s.path(dirSessions), "")
	a := b.become(direct{Argv: []string{"claude"}})
	id := a.Session()
	if err := os.Remove(b.s.path(dirSessions)); err != nil {
		t.Fatal(err)
	}
	of := func() (mine []Entry) {
		for _, e := range rowsByID(t, b.s) { // sweeps find the machine's other sessions too
			if e.PID == a.PID() {
				mine = append(mine, e)
			}
		}
		return mine
	}
	await(t, "the sweep to find it", func() bool {
		mustSweep(t, b.s, SweepOptions{Host: b.h})
		return len(of()) > 0
	})
	if mine := of(); len(mine) != 1 || mine[0].EnrolledBy != EnrolledByDiscovery || mine[0].Cwd != b.dir || mine[0].SessionID != id || mine[0].Lease != nil {
		t.Errorf("%+v", mine)
	}
	a.Close()
}

// crashReopen is a reopening, or a launch with a given conversation, that is killed after a
// step.
type crashReopen struct{ Root, Dir, Step, Reopen, Session string }

var reopenAndDie = inChild("reopen-and-die", func(arg crashReopen) error {
	s, err := Open(arg.Root, nil)
	if err != nil {
		return err
	}
	h := &Host{Store: s, step: func(step string) {
		if step == arg.Step {
			syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
	}}
	o := LaunchOptions{Wait: patience}
	if arg.Reopen != "" {
		_, err = h.Reopen(context.Background(), arg.Reopen, AttachOptions{Launch: o})
		return err
	}
	o.Argv, o.SessionID, o.Dir = []string{"claude", "--session-id", arg.Session}, arg.Session, arg.Dir
	_, err = h.Launch(context.Background(), o)
	return err
})

// die runs it until it is killed.
func (b *bed) die(arg crashReopen) {
	b.t.Helper()
	c := startChild(b.t, reopenAndDie, arg)
	if err := c.Wait(); err == nil || !strings.Contains(err.Error(), "killed") {
		b.t.Fatalf("it was not killed: %v %s", err, c.errs.String())
	}
}

// holders are the open rows in a conversation.
func (b *bed) holders(id string) (ids []string) {
	for _, e := range rowsByID(b.t, b.s) {
		if e.IsOpen() && e.SessionID == id {
			ids = append(ids, e.LedgerID)
		}
	}
	return ids
}

// A lost session was resumed, and whoever did it died before the new row had its
// conversation: a sweep gives it to the new one, and to nobody else.
func TestReopenKilledBeforeTheConversationIsBound(t *testing.T) {
	for _, step := range []string{"opened", "started"} {
		t.Run(step, func(t *testing.T) {
			b := newBed(t)
			old := b.lost("claude", false)
			b.die(crashReopen{Root: b.s.root, Step: step, Reopen: old.LedgerID})
			var next Entry
			for _, e := range rowsByID(t, b.s) {
				if e.LedgerID != old.LedgerID {
					next = e
				}
			}
			if next.ResumedFrom != old.LedgerID || next.SessionID != "" || b.get(old.LedgerID).SessionID != old.SessionID {
				t.Fatalf("after the crash: %+v", next)
			}
			await(t, "the agent", func() bool { return len(b.agents()) == 1 })
			if _, err := b.h.Reopen(t.Context(), old.LedgerID, AttachOptions{}); !errors.Is(err, ErrConversationHeld) && !errors.Is(err, ErrIllegal) {
				t.Errorf("reopened a second time: %v", err)
			}
			await(t, "the conversation to be settled", func() bool {
				mustSweep(t, b.s, SweepOptions{Host: b.h})
				e := b.get(next.LedgerID)
				return e.SessionID == old.SessionID && !b.get(old.LedgerID).IsOpen()
			})
			if got := b.holders(old.SessionID); len(got) != 1 || got[0] != next.LedgerID {
				t.Errorf("held by %v, want %s", got, next.LedgerID)
			}
			if got := b.agents(); len(got) != 1 || !got[0].Same(b.get(next.LedgerID).Process()) {
				t.Errorf("agents %v", got)
			}
			was := b.get(old.LedgerID)
			if was.SessionID != "" || was.FinishReason != "resumed as "+next.LedgerID {
				t.Errorf("the lost one: %+v", was)
			}
		})
	}
}

// A launch was given its conversation, and the launcher died around the write of it.
func TestLaunchKilledAroundTheGivenConversation(t *testing.T) {
	const id = "11111111-2222-4333-8444-555555555555"
	for step, bound := range map[string]bool{"bound": false, "opened": true, "started": true} {
		t.Run(step, func(t *testing.T) {
			b := newBed(t)
			b.die(crashReopen{Root: b.s.root, Dir: b.dir, Step: step, Session: id})
			e := b.onlyRow()
			again := LaunchOptions{Argv: []string{"claude", "--session-id", id}, SessionID: id, Dir: b.dir, Wait: patience}
			if !bound {
				// It never ran, and keeps nobody from the conversation.
				if e.SessionID != "" {
					t.Errorf("%+v", e)
				}
				b.kill(e.Process()) // it would give up by itself after a minute
				again := b.launch(again)
				if got := b.holders(id); len(got) != 1 || got[0] != again.LedgerID {
					t.Errorf("held by %v, want %s", got, again.LedgerID)
				}
				return
			}
			await(t, "the agent", func() bool { return len(b.agents()) == 1 })
			if _, err := b.h.Launch(t.Context(), again); !errors.Is(err, ErrConversationHeld) {
				t.Errorf("launched a second time: %v", err)
			}
			await(t, "the launch to be settled", func() bool {
				mustSweep(t, b.s, SweepOptions{Host: b.h})
				return b.get(e.LedgerID).Lease == nil
			})
			got := b.get(e.LedgerID)
			if held := b.holders(id); len(held) != 1 || held[0] != e.LedgerID || !b.agents()[0].Same(got.Process()) || !got.IsOpen() {
				t.Errorf("held by %v: %+v", held, got)
			}
		})
	}
}
