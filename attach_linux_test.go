package ledger

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sessionledger/ledger/tmux"
)

// shownBy is the tmux session in which a command line to attach ends up, by a client in
// control mode.
func shownBy(t *testing.T, c Command) string {
	t.Helper()
	cmd := exec.Command(c.Argv[0], append([]string{"-C"}, c.Argv[1:]...)...)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stop := time.AfterFunc(patience, func() { in.Close() })
	defer stop.Stop()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	defer in.Close()
	text := ""
	for buf := make([]byte, 4096); ; {
		n, err := out.Read(buf)
		text += string(buf[:n])
		if _, rest, ok := strings.Cut(text, "%session-changed "); ok && strings.Contains(rest, "\n") {
			id, _, _ := strings.Cut(rest, " ")
			return id
		}
		if err != nil {
			return "none: " + text
		}
	}
}

// A person may rename the agent's tmux session, and give its old name to another.
func TestAttachGoesByThePane(t *testing.T) {
	b := newBed(t)
	e := b.launch(LaunchOptions{Runtime: "claude", Name: "work"})
	do := func(args ...string) string {
		t.Helper()
		out, err := exec.Command("tmux", append([]string{"-S", e.Mux.Socket}, args...)...).CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return strings.TrimSpace(string(out))
	}
	own := do("display-message", "-p", "-t", e.PaneID, "#{session_id}")
	do("rename-session", "mine")
	do("new-session", "-d", "-s", "work", "sleep 50")
	do("new-window", "-t", "mine:", "sleep 50") // which is shown now
	e, err := b.h.Reopen(t.Context(), e.LedgerID, AttachOptions{})
	if err != nil {
		t.Fatal(err)
	}
	c, err := b.h.attachCommand(t.Context(), e)
	if err != nil {
		t.Fatal(err)
	}
	if got := shownBy(t, c); got != own {
		t.Errorf("session %s is shown, the agent is in %s", got, own)
	}
	if shown := do("display-message", "-p", "-t", "mine:", "#{pane_id}"); shown != e.PaneID {
		t.Errorf("pane %s is shown, the agent is in %s", shown, e.PaneID)
	}
	if _, err := Sweep(t.Context(), b.s, SweepOptions{}); err != nil {
		t.Fatal(err)
	}
	if e = b.get(e.LedgerID); e.Mux.Target != "mine" || e.TmuxSession != "mine" {
		t.Errorf("after a sweep: %+v", e.Mux)
	}
	t.Setenv("TMUX", e.Mux.Socket+",1,0")
	if err := b.h.Attach(t.Context(), e.LedgerID, AttachOptions{}); !errors.Is(err, ErrIllegal) {
		t.Errorf("from inside its own server: %v", err)
	}
}

// A server that took the place of the agent's is not attached to.
func TestAttachIsNotPutOffWithAnotherServer(t *testing.T) {
	b := newBed(t)
	e := b.launch(LaunchOptions{Runtime: "claude", Name: "work"})
	other := e
	other.PaneServer, _ = startProcess(t)
	if _, err := b.h.attachCommand(t.Context(), other); !errors.Is(err, ErrUnknown) {
		t.Errorf("%v", err)
	}
	other = e
	other.PaneID = "%99"
	if _, err := b.h.attachCommand(t.Context(), other); !errors.Is(err, ErrUnknown) {
		t.Errorf("%v", err)
	}
}

// A lost session that was resumed is found again as the one that took it up.
func TestAttachFollowsTheSuccessor(t *testing.T) {
	b := newBed(t)
	if _, err := InstallHooks("claude", InstallOptions{Command: build(t, ctlPackage) + " -dir " + b.s.root + " hook claude"}); err != nil {
		t.Fatal(err)
	}
	e := b.launch(LaunchOptions{Runtime: "claude"})
	await(t, "its conversation", func() bool { return b.get(e.LedgerID).SessionID != "" })
	b.say(e, "hello")
	await(t, "its transcript", func() bool { return b.get(e.LedgerID).TranscriptPath != "" })
	b.kill(e.Process())
	next, err := b.h.Reopen(t.Context(), e.LedgerID, AttachOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		again, err := b.h.Reopen(t.Context(), e.LedgerID, AttachOptions{})
		if err != nil || next.LedgerID == e.LedgerID || again.LedgerID != next.LedgerID {
			t.Errorf("%q, then %q: %v", next.LedgerID, again.LedgerID, err)
		}
		if _, err := Sweep(t.Context(), b.s, SweepOptions{}); err != nil { // which may close the old row
			t.Fatal(err)
		}
	}
}

// One listing of each tmux server serves a whole pass: sessions that are on record, new
// ones, and those whose environment has lost the server.
func TestSweepListsEachServerOnce(t *testing.T) {
	b := newBed(t)
	binary, runs := countingTmux(t)
	srv := tmux.Server{Socket: filepath.Join(b.home, "s"), Config: os.DevNull, Binary: binary}
	s := openStore(t, filepath.Join(b.home, "l"), &Options{Servers: []tmux.Server{srv}})
	t.Cleanup(func() { endServer(t, srv.Socket) })
	total := 0
	for i, commands := range [][]string{{"exec claude"}, {"exec claude"}, {"exec env -u TMUX claude", "exec claude", "exec env -u TMUX codex"}, nil} {
		for j, command := range commands {
			_, err := srv.NewSession(t.Context(), tmux.SessionOptions{Name: "w" + itoa(i) + itoa(j), Start: tmux.Start{Command: []string{"sh", "-c", command}, Dir: b.dir}})
			if err != nil {
				t.Fatal(err)
			}
		}
		total += len(commands)
		await(t, "the agents", func() bool { return len(b.agents()) == total })
		runs()
		if _, err := Sweep(t.Context(), s, SweepOptions{}); err != nil {
			t.Fatal(err)
		}
		if n := runs(); n != 1 {
			t.Errorf("sweep %d ran tmux %d times", i, n)
		}
		for _, p := range b.agents() {
			if e, err := s.Find(t.Context(), Query{Process: p}); err != nil || e.PaneID == "" || e.Mux.Target == "" {
				t.Errorf("sweep %d: %+v, %v", i, e.Mux, err)
			}
		}
	}
}

// AttachCommand asks nobody, so that it does not go by a pane's id: a server that was started
// anew gives it to another's.
func TestAttachCommandShowsNoStranger(t *testing.T) {
	b := newBed(t)
	srv := tmux.Server{Socket: filepath.Join(b.home, "s"), Config: os.DevNull}
	t.Cleanup(func() { endServer(t, srv.Socket) })
	sleep := tmux.Start{Command: []string{"sleep", "1000"}}
	agent, err := srv.NewSession(t.Context(), tmux.SessionOptions{Name: "agent", Start: sleep})
	if err != nil {
		t.Fatal(err)
	}
	if err := srv.KillServer(t.Context(), agent.Server); err != nil {
		t.Fatal(err)
	}
	stranger, err := srv.NewSession(t.Context(), tmux.SessionOptions{Name: "stranger", Start: sleep})
	if err != nil || stranger.ID != agent.ID {
		t.Fatalf("%+v, %v", stranger, err)
	}
	c, err := AttachCommand(Entry{LedgerID: "claude-1", Mux: Mux{Kind: MuxTmux, Socket: srv.Socket, Target: "agent"}, PaneID: agent.ID, PaneServer: self(t)})
	if err != nil {
		t.Fatal(err)
	}
	if got := shownBy(t, c); !strings.HasPrefix(got, "none") {
		t.Errorf("session %s is shown", got)
	}
}

// TMUX is inherited by what has left the pane, too: only below the server is one inside it.
func TestAttachWithATMUXThatWasInherited(t *testing.T) {
	b := newBed(t)
	e := b.launch(LaunchOptions{Runtime: "claude"})
	t.Setenv("TMUX", e.Mux.Socket+","+itoa(e.PaneServer.PID)+",0")
	if _, err := b.h.attachCommand(t.Context(), e); err != nil {
		t.Error(err)
	}
}

// The one that took a session up may have been taken up in its turn, however it ended. Rows
// that name each other, as nothing here writes them, lead nowhere.
func TestSuccessorOfASuccessor(t *testing.T) {
	s := newStore(t, nil)
	live, _ := enrolled(t, s, Entry{LedgerID: "claude-3", ResumedFrom: "claude-2"})
	for id, from := range map[string]string{"claude-1": "", "claude-2": "claude-1", "claude-8": "claude-9", "claude-9": "claude-8"} {
		e, cmd := enrolled(t, s, Entry{LedgerID: id, ResumedFrom: from})
		endProcess(cmd)
		if id < "claude-8" {
			apply(t, s, id, Finish(e.Process().Key(), "over"))
		}
	}
	// One that is lost can be taken up itself.
	gone, cmd := enrolled(t, s, Entry{LedgerID: "claude-6", ResumedFrom: "claude-5", SessionID: "c"})
	endProcess(cmd)
	if got, err := s.successor(t.Context(), "claude-5"); err != nil || got != gone.LedgerID {
		t.Errorf("a lost one: %q, %v", got, err)
	}
	for id, want := range map[string]string{"claude-1": live.LedgerID, "claude-2": live.LedgerID, "claude-3": "", "claude-8": "", "claude-9": ""} {
		if got, err := s.successor(t.Context(), id); err != nil || got != want {
			t.Errorf("of %s: %q, %v", id, got, err)
		}
	}
}
