package ledger

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sessionledger/ledger/tmux"
)

// reapStore is a ledger in a folder with a short name, as sockets need it.
func reapStore(t *testing.T) *Store {
	t.Helper()
	_, err := exec.LookPath("tmux")
	need(t, err == nil, "tmux")
	dir, err := os.MkdirTemp("", "reap")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	s := openStore(t, filepath.Join(dir, "l"), &Options{Runtimes: sweepRuntimes(hooked, hookless), Home: t.TempDir()})
	t.Cleanup(func() { checkLedger(t, s.root) })
	if err := os.MkdirAll(s.path(dirSock), 0o700); err != nil {
		t.Fatal(err)
	}
	return s
}

// host starts the tmux server of a session, as hosting does, with a command in its pane.
func host(t *testing.T, s *Store, id, stamp string, command ...string) (tmux.Server, tmux.Pane) {
	t.Helper()
	srv := tmux.Server{Socket: s.path(dirSock, id), Config: os.DevNull}
	pane, err := srv.NewSession(t.Context(), tmux.SessionOptions{Name: id, Start: tmux.Start{Command: command}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := srv.KillServer(ctx, pane.Server); err != nil {
			t.Error(err)
		}
	})
	if stamp != "" {
		if _, err := srv.Do(t.Context(), pane.Guard(), tmux.Set(tmux.OptionID, stamp)); err != nil {
			t.Fatal(err)
		}
	}
	return srv, pane
}

func reap(t *testing.T, s *Store) ReapReport {
	t.Helper()
	rep, err := Reap(t.Context(), s, ReapOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return rep
}

func TestReapEndsFinishedServersAndNothingElse(t *testing.T) {
	s := reapStore(t)
	over := func(id string) { overRow(t, s, dirSessions, id, time.Hour) }
	idle := []string{"sleep", "1000"}
	over("finished")
	host(t, s, "finished", "finished", idle...)
	host(t, s, "gone-row", "gone-row", idle...)
	over("strangers")
	host(t, s, "strangers", "", idle...)
	over("others")
	host(t, s, "others", "another", idle...)
	deadRow(t, s, "open", hooked, func(e *Entry) { e.SessionID = "c" })
	host(t, s, "open", "open", idle...)
	putFile(t, rowPath(s, "damaged"), "{")
	host(t, s, "damaged", "damaged", idle...)
	over("agent")
	host(t, s, "agent", "agent", "bash", "-c", fmt.Sprintf("exec -a %s sleep 1000", hookless))
	over("window")
	srv, _ := host(t, s, "window", "window", idle...)
	if _, err := srv.NewWindow(t.Context(), "window", tmux.WindowOptions{Start: tmux.Start{Command: idle}}); err != nil {
		t.Fatal(err)
	}
	await(t, "the agent runs", func() bool {
		p, err := s.newPass(t.Context())
		return err == nil && slices.ContainsFunc(p.candidates(), func(c candidate) bool { return c.runtime == hookless })
	})
	rep := reap(t, s)
	want := []Reaped{{ID: "finished", Action: reapServer, Outcome: OutcomeDone}, {ID: "gone-row", Action: reapServer, Outcome: OutcomeDone}}
	if !slices.Equal(rep.Reaped, want) || !rep.Complete {
		t.Errorf("%+v\nwant %+v", rep, want)
	}
	left, err := s.sockets()
	if err != nil || !slices.Equal(left, []string{"agent", "damaged", "open", "others", "strangers", "window"}) {
		t.Errorf("left %v, %v", left, err)
	}
	for _, id := range left {
		if _, err := (tmux.Server{Socket: s.path(dirSock, id)}).List(t.Context()); err != nil {
			t.Errorf("%s: %v", id, err)
		}
	}
}

// What carries the id of a session is a process of it, also where no registry knows the
// program and the row is lost: only a row says that a session is over.
func TestReapSparesWhatCarriesTheIDOfASessionOnNoRecord(t *testing.T) {
	s := reapStore(t)
	carries := func(id string, command ...string) []string {
		return append([]string{"env", envID + "=" + id}, command...)
	}
	idle := []string{"sleep", "1000"}
	panes := map[string]tmux.Pane{}
	run := func(id string, command []string) { _, panes[id] = host(t, s, id, id, command...) }
	run("lost", carries("lost", idle...))
	run("lost-beside", idle)
	srv := tmux.Server{Socket: s.path(dirSock, "lost-beside")}
	beside, err := srv.NewWindow(t.Context(), "lost-beside", tmux.WindowOptions{Start: tmux.Start{Command: carries("lost-beside", idle...)}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := srv.Do(t.Context(), beside.Guard(), tmux.Set(tmux.OptionID, "lost-beside")); err != nil {
		t.Fatal(err)
	}
	run("lost-known", carries("lost-known", "bash", "-c", "exec -a "+hookless+" sleep 1000"))
	run("lost-owner", []string{"env", envOwnID + "=lost-owner", "sleep", "1000"})
	run("set-aside", carries("set-aside", idle...))
	putFile(t, rowPath(s, "set-aside"), "{")
	// The session is over, and a person's shell has inherited its id.
	overRow(t, s, dirSessions, "over-shell", time.Hour)
	run("over-shell", carries("over-shell", "sh"))
	// A hook ended the row, and its process lives on, which no registry knows.
	run("over-lives", carries("over-lives", idle...))
	overRow(t, s, dirSessions, "over-lives", time.Hour)
	lives, err := s.procs.identify(panes["over-lives"].PID)
	if err != nil {
		t.Fatal(err)
	}
	over := get(t, s, "over-lives")
	over.PID, over.PIDStartTicks = lives.PID, &lives.StartTicks
	over.BootID, over.HostID, over.PIDNamespace, over.TimeNamespace = lives.BootID, lives.HostID, lives.PIDNamespace, lives.TimeNamespace
	writeEntry(t, s, dirSessions, &over)
	await(t, "all run their program", func() bool {
		for id, pane := range panes {
			args, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pane.PID))
			if err != nil {
				t.Fatalf("%s: %v", id, err)
			}
			if strings.HasPrefix(string(args), "env\x00") {
				return false
			}
		}
		return true
	})
	check := func(what string, want ...string) {
		t.Helper()
		rep := reap(t, s)
		var spared []string
		for _, sp := range rep.Spared {
			if sp.Reason == "" {
				t.Errorf("%s: no reason: %+v", what, sp)
			}
			spared = append(spared, sp.ID)
		}
		slices.Sort(spared)
		if !slices.Equal(spared, want) {
			t.Errorf("%s: spared %+v\nwant %v; reaped %+v", what, rep.Spared, want, rep.Reaped)
		}
		for _, r := range rep.Reaped {
			if r.ID != "over-shell" || r.Outcome != OutcomeDone {
				t.Errorf("%s: reaped %+v", what, r)
			}
		}
		for id, pane := range panes {
			ended := id == "over-shell"
			if _, err := s.procs.identify(pane.PID); isGone(err) != ended {
				t.Errorf("%s: %s: %v", what, id, err)
			}
		}
	}
	check("damaged", "lost", "lost-beside", "lost-known", "lost-owner", "over-lives")
	if err := s.Repair(t.Context(), "set-aside"); err != nil {
		t.Fatal(err)
	}
	check("set aside", "lost", "lost-beside", "lost-known", "lost-owner", "over-lives", "set-aside")
}

func TestReapSparesAnAttachedServer(t *testing.T) {
	_, err := exec.LookPath("script")
	need(t, err == nil, "script")
	s := reapStore(t)
	overRow(t, s, dirSessions, "row", time.Hour)
	srv, _ := host(t, s, "row", "row", "sleep", "1000")
	cmd := exec.Command("script", "-qfc", "TERM=xterm exec tmux -S "+srv.Socket+" attach", "/dev/null")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { in.Close(); endProcess(cmd) }()
	attached := func() bool {
		l, err := srv.List(t.Context())
		return err == nil && len(l.Sessions) == 1 && l.Sessions[0].Attached == 1
	}
	await(t, "a client is attached", attached)
	if rep := reap(t, s); len(rep.Reaped) > 0 || len(rep.Probed) != 1 {
		t.Errorf("%+v", rep)
	}
	in.Close()
	endProcess(cmd)
	await(t, "no client is attached", func() bool { return !attached() })
	if rep := reap(t, s); len(rep.Reaped) != 1 {
		t.Errorf("%+v", rep)
	}
}

// deadSocket leaves a socket file that nobody listens to.
func deadSocket(t *testing.T, s *Store, id string) {
	t.Helper()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: s.path(dirSock, id), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	l.Close()
}

func TestReapRemovesSocketsOfServersThatAreGoneEightAPassOldestProbeFirst(t *testing.T) {
	s := reapStore(t)
	runs, _ := startProcess(t)
	deadRow(t, s, "server-runs", hooked, func(e *Entry) { e.SessionID, e.PaneID, e.PaneServer = "c", "%1", runs })
	deadSocket(t, s, "server-runs")
	born(t, s, "starting")
	deadSocket(t, s, "starting")
	mute, err := net.ListenUnix("unix", &net.UnixAddr{Name: s.path(dirSock, "a-mute"), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer mute.Close()
	for i := range 10 {
		deadSocket(t, s, fmt.Sprintf("dead%d", i))
	}
	putFile(t, s.path(dirSock, "no-socket"), "")
	removed := 0
	probed := map[string]int{}
	for range 2 {
		rep, err := Reap(t.Context(), s, ReapOptions{Tmux: tmux.Server{Timeout: 200 * time.Millisecond}})
		if err != nil || len(rep.Probed) > maxProbe {
			t.Fatalf("%+v, %v", rep, err)
		}
		for _, r := range rep.Reaped {
			if r.Action != reapSocket || r.Outcome != OutcomeDone {
				t.Errorf("%+v", r)
			}
			removed++
		}
		for _, id := range rep.Probed {
			probed[id]++
		}
	}
	if removed != 10 || probed["a-mute"] == 0 || probed["server-runs"] != 1 || probed["starting"] != 1 {
		t.Errorf("%d removed, probed %v", removed, probed)
	}
	if left, _ := s.sockets(); !slices.Equal(left, []string{"a-mute", "server-runs", "starting"}) {
		t.Errorf("left %v", left)
	}
}

func TestReapWaitsForARunningSweep(t *testing.T) {
	s := sweepStore(t, nil)
	unlock, err := s.lockPass(t.Context(), sweepLock)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Reap(t.Context(), s, ReapOptions{Wait: 30 * time.Millisecond}); !errors.Is(err, ErrBusy) {
		t.Errorf("%v", err)
	}
	done := make(chan error, 1)
	go func() { _, err := Reap(context.Background(), s, ReapOptions{}); done <- err }()
	unlock()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// A runtime folder that cannot be read, as of another user, keeps nothing from being reaped.
func TestReapWithARuntimeFolderThatCannotBeRead(t *testing.T) {
	s := reapStore(t)
	born(t, s, "other")
	deadSocket(t, s, "dead")
	run := t.TempDir()
	t.Setenv("XDG_RUNTIME_DIR", run)
	putFile(t, filepath.Join(run, "agent-sessions"), "")
	if rep, err := Reap(t.Context(), s, ReapOptions{}); err != nil || len(rep.Reaped) != 1 {
		t.Errorf("%+v, %v", rep, err)
	}
	if rep, err := Reap(t.Context(), s, ReapOptions{}); err != nil || rep.Complete {
		t.Errorf("called complete: %+v, %v", rep, err)
	}
}
