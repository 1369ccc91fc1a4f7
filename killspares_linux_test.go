package ledger

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// A kill ends what carries the session's id, whatever signals that ignores. It leaves alone
// the agents of other rows that inherited the id, open or over, and the jobs of the shell
// that the agent was started from.
func TestKillOfOneAgentOfATree(t *testing.T) {
	s, home := treeStore(t)
	id, ready := "claude-20260101T000000Z-000001", filepath.Join(home, "ready")
	env := treeEnv(home)
	marked := append(treeEnv(home), envID+"="+id)
	script := "trap '' HUP TERM; : > " + ready + "; while :; do sleep 1; done"
	stubborn := node{Name: "stubborn", Exec: []string{"sh"}, Args: []string{"sh", "-c", script}, Env: marked}
	pids := growTree(t, shell("shell", env, shell("job", env),
		agent("agent", "claude", marked, stubborn, shell("tool", marked,
			agent("nested", "claude", marked), agent("other", "codex", marked), agent("over", "gemini", marked)))))
	await(t, "the child to ignore signals", func() bool { return fileExists(ready) })
	rows := map[string]Entry{}
	for _, name := range []string{"agent", "nested", "other", "over"} {
		rows[name] = mustEnrol(t, s, pids[name], nil)
	}
	finished(t, s, rows["over"].LedgerID) // its process lives on, and is still its own
	procs := map[string]ProcessID{}
	for name, pid := range pids {
		p, err := s.procs.identify(pid)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		procs[name] = p
	}
	if rows["agent"].LedgerID != id || rows["nested"].ParentLedgerID != id {
		t.Fatalf("%+v", rows)
	}

	done, err := (&Host{Store: s}).Kill(t.Context(), id, KillOptions{End: quick})
	if err != nil || done.Entry.Phase != PhaseFinished {
		t.Fatalf("%v, %+v", err, done.Entry)
	}
	for name, want := range map[string]Verdict{
		"agent": Gone, "tool": Gone, "stubborn": Gone,
		"nested": Running, "other": Running, "over": Running, "shell": Running, "job": Running,
	} {
		if got := s.procs.verdict(procs[name]); got != want {
			t.Errorf("%s is %s, want %s", name, got, want)
		}
	}
	now := rowsByID(t, s)
	for _, name := range []string{"nested", "other", "over"} {
		if e := now[rows[name].LedgerID]; e.IsOpen() != (name != "over") || !e.KillIntentAt.IsZero() {
			t.Errorf("%s: %+v", name, e)
		}
	}
}

// A tmux server that inherited the id may hold a person's other sessions. What it runs for
// this one ends, and the server and its other panes do not.
func TestKillSparesATmuxServerThatInheritedTheID(t *testing.T) {
	b := newBed(t)
	id := "claude-20260101T000000Z-000001"
	socket := filepath.Join(b.home, "own")
	tmux := func(args ...string) string {
		t.Helper()
		cmd := exec.Command("tmux", append([]string{"-S", socket, "-f", "/dev/null"}, args...)...)
		cmd.Env = append(cmd.Environ(), envID+"="+id)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%q: %v: %s", args, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	t.Cleanup(func() { endServer(t, socket) })
	procs := map[string]ProcessID{}
	note := func(name, pid string, args ...string) {
		t.Helper()
		await(t, name+" to run its program", func() bool {
			snap, err := b.s.procs.sys.Chain(atoi(t, pid))
			if err != nil {
				return false
			}
			q, _ := snap.Get(atoi(t, pid))
			return strings.HasPrefix(strings.Join(q.Args, " "), strings.Join(args, " ")) && (name != "server" || isTmuxServer(q))
		})
		p, err := b.s.procs.identify(atoi(t, pid))
		if err != nil {
			t.Fatal(err)
		}
		procs[name] = p
	}
	pane := []string{"-P", "-F", "#{pane_pid}"}
	note("stranger", tmux(append(append([]string{"new-session", "-d"}, pane...), "exec env -u "+envID+" sleep 1000")...), "sleep")
	note("carrier", tmux(append(append([]string{"new-window", "-d"}, pane...), "exec sleep 1000")...), "sleep")
	note("server", tmux("display-message", "-p", "#{pid}"))
	if got := environ(t, procs["server"].PID)[envID]; got != id {
		t.Fatalf("the server carries %q", got)
	}
	agent := startShell(t, b.dir, envID+"="+id)
	note("agent", itoa(agent.Process.Pid))
	go agent.Wait()
	if _, err := b.s.Create(t.Context(), Entry{LedgerID: id, Runtime: "claude", Cwd: b.dir}, Enrol(procs["agent"], Location{})); err != nil {
		t.Fatal(err)
	}

	done, err := b.h.Kill(t.Context(), id, KillOptions{End: quick})
	if err != nil || done.Entry.Phase != PhaseFinished {
		t.Fatalf("%v, %+v", err, done.Entry)
	}
	for name, want := range map[string]Verdict{"agent": Gone, "carrier": Gone, "server": Running, "stranger": Running} {
		if got := b.s.procs.verdict(procs[name]); got != want {
			t.Errorf("%s is %s, want %s", name, got, want)
		}
	}
}
