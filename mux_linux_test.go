package ledger

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sessionledger/ledger/tmux"
)

// onTerminal runs a command on a terminal of its own, until the end of the test.
func onTerminal(t *testing.T, argv []string) *exec.Cmd {
	t.Helper()
	_, err := exec.LookPath("script")
	need(t, err == nil, "script")
	quoted := make([]string, len(argv))
	for i, a := range argv {
		quoted[i] = "'" + strings.ReplaceAll(a, "'", `'\''`) + "'"
	}
	cmd := exec.Command("script", "-qfec", "exec "+strings.Join(quoted, " "), "/dev/null")
	cmd.Env = append(os.Environ(), "TERM=xterm", "TMUX=", "TMUX_PANE=")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		endProcess(cmd)
	})
	return cmd
}

// The multiplexer of a session, from real servers.
func TestMuxOfASession(t *testing.T) {
	b := newBed(t)
	e := b.launch(LaunchOptions{Runtime: "claude"})
	is := func(what string, mux MuxState, states ...Liveness) {
		t.Helper()
		await(t, what+" to be seen", func() bool { return b.status(e.LedgerID).Mux == mux })
		st := b.status(e.LedgerID)
		for _, want := range states {
			if st.State == want {
				return
			}
		}
		t.Errorf("%s: %s, %s", what, st.State, st.Reason)
	}
	is("nobody", MuxDetached, LivenessDetached)

	control := exec.Command("tmux", "-S", e.Mux.Socket, "-C", "attach-session")
	in, err := control.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := control.Start(); err != nil {
		t.Fatal(err)
	}
	await(t, "the control client", func() bool {
		out, _ := exec.Command("tmux", "-S", e.Mux.Socket, "list-clients").Output()
		return len(out) > 0
	})
	is("a control client, which nobody looks at", MuxDetached, LivenessDetached)
	in.Close()
	control.Wait()

	c, err := AttachCommand(e)
	if err != nil {
		t.Fatal(err)
	}
	client := onTerminal(t, c.Argv)
	is("a person", MuxAttached, LivenessIdle, LivenessWorking)
	if st := b.status(e.LedgerID); st.Attached == nil || !*st.Attached {
		t.Errorf("attached: %v", st.Attached)
	}
	endProcess(client)
	is("the person gone", MuxDetached, LivenessDetached)

	// What does not answer is unreachable, in time, and its agent lives.
	syscall.Kill(e.PaneServer.PID, syscall.SIGSTOP)
	began := time.Now()
	sess, err := b.s.Session(t.Context(), e.LedgerID, &ClassifyOptions{CPUSample: -1})
	took := time.Since(began)
	syscall.Kill(e.PaneServer.PID, syscall.SIGCONT)
	if err != nil || sess.Status.Mux != MuxUnreachable || sess.Status.Attached != nil || took > 10*defaultTimeout {
		t.Errorf("stopped server: %+v, %v, after %v", sess.Status, err, took)
	}
	is("the server awake", MuxDetached, LivenessDetached)

	if err := os.Rename(e.Mux.Socket, e.Mux.Socket+"-away"); err != nil {
		t.Fatal(err)
	}
	is("an unlinked socket", MuxUnreachable, LivenessIdle, LivenessWorking)
	// Another server in its place has a pane of the same name.
	if out, err := exec.Command("tmux", "-S", e.Mux.Socket, "-f", "/dev/null", "new-session", "-d", "-s", e.Mux.Target, "sleep 1000").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	is("another server with a pane and session of that name", MuxUnreachable, LivenessIdle, LivenessWorking)
	b.kill(e.PaneServer)
	b.gone(e.Process())
	is("its server gone", MuxNone, LivenessOrphaned)
	endServer(t, e.Mux.Socket)
	is("every server gone", MuxNone, LivenessOrphaned)
	if err := os.Remove(e.Mux.Socket + "-away"); err != nil {
		t.Fatal(err)
	}
}

// countingTmux is a tmux that notes each run.
func countingTmux(t *testing.T) (binary string, runs func() int) {
	t.Helper()
	real, err := exec.LookPath("tmux")
	need(t, err == nil, "tmux")
	dir := t.TempDir()
	binary, log := filepath.Join(dir, "tmux"), filepath.Join(dir, "runs")
	putFile(t, binary, "#!/bin/sh\necho run >> "+log+"\nexec "+real+" \"$@\"\n")
	if err := os.Chmod(binary, 0o700); err != nil {
		t.Fatal(err)
	}
	return binary, func() int {
		text, _ := os.ReadFile(log)
		os.Remove(log)
		return strings.Count(string(text), "\n")
	}
}

// A person's own server: sessions whose environment has lost it are found by the option,
// and one listing serves all sessions of a server.
func TestMuxOfAPersonsOwnServer(t *testing.T) {
	b := newBed(t)
	socket := filepath.Join(os.Getenv("TMUX_TMPDIR"), "own")
	own := func(args ...string) string {
		out, err := exec.Command("tmux", args...).CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %v %s", args, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	// The command line of the server names no socket.
	t.Setenv("TMUX_TMPDIR", os.Getenv("TMUX_TMPDIR"))
	own("-f", "/dev/null", "new-session", "-d", "-s", "mine", "env -u TMUX claude")
	socket = own("display-message", "-p", "#{socket_path}")
	t.Cleanup(func() { endServer(t, socket) })
	own("new-window", "-d", "-t", "=mine:", "env -u TMUX codex")
	pids := strings.Fields(own("list-panes", "-s", "-t", "=mine", "-F", "#{pane_pid}"))
	enrol := func(s *Store) (all []Entry) {
		for _, pid := range pids {
			await(t, "the agent in the pane", func() bool {
				e, _, err := s.Enrol(t.Context(), atoi(t, pid), nil)
				if err == nil {
					all = append(all, e)
				}
				return err == nil
			})
		}
		return all
	}
	for _, e := range enrol(b.s) {
		if e.Mux.Kind != MuxTmux || e.Mux.Socket != "" {
			t.Errorf("a guess was written: %+v", e.Mux)
		}
		if st := b.status(e.LedgerID); st.Mux != MuxUnknown {
			t.Errorf("%+v", st)
		}
		sess, err := b.s.Session(t.Context(), e.LedgerID, &ClassifyOptions{CPUSample: -1, Servers: []tmux.Server{{}}, Timeout: patience})
		if err != nil || sess.Status.Mux != MuxDetached {
			t.Errorf("%v, %+v", err, sess.Status)
		}
	}
	binary, runs := countingTmux(t)
	s, err := Open(filepath.Join(b.home, "told"), &Options{Servers: []tmux.Server{{Socket: socket, Binary: binary}}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for _, e := range enrol(s) {
		if e.Mux.Socket != socket || e.Mux.Target != "mine" || e.PaneID == "" {
			t.Errorf("told of the server: %+v", e.Mux)
		}
	}
	runs()
	for sess, err := range s.Sessions(t.Context(), &ClassifyOptions{CPUSample: -1, Timeout: patience}) {
		if err != nil || sess.Status.Mux != MuxDetached {
			t.Errorf("%v, %+v", err, sess.Status)
		}
	}
	if n := runs(); n != 1 {
		t.Errorf("%d listings of one server in one pass", n)
	}
}

func TestMuxOfADtachSession(t *testing.T) {
	s, _ := treeStore(t)
	socket := filepath.Join(t.TempDir(), "d")
	if len(socket) > 100 {
		socket = filepath.Join(os.TempDir(), "dtach-"+itoa(os.Getpid()))
	}
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	t.Cleanup(func() { os.Remove(socket) })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			c.Close()
		}
	}()
	p, _ := startProcess(t)
	e, err := s.Create(t.Context(), Entry{Runtime: "claude"}, Enrol(p, Location{Mux: Mux{Kind: MuxDtach, Socket: socket}}))
	if err != nil {
		t.Fatal(err)
	}
	is := func(what string, want MuxState) {
		t.Helper()
		if got := s.probeMux(nil, s.listings())(context.Background(), []Entry{e})[e.LedgerID]; got != want {
			t.Errorf("%s: %q", what, got)
		}
	}
	mode := func(m os.FileMode) {
		if err := os.Chmod(socket, m); err != nil {
			t.Fatal(err)
		}
	}
	mode(0o600)
	is("nobody attached", MuxDetached)
	mode(0o700)
	is("attached", MuxAttached)
	l.Close()
	is("nobody listens", MuxNone)
	os.Remove(socket)
	is("unlinked", MuxUnreachable)
	if c, err := AttachCommand(e); err != nil || strings.Join(c.Argv, " ") != "dtach -a "+socket {
		t.Errorf("%v, %v", c.Argv, err)
	}
}

// tmux names itself after its program, which a person may have under another name.
func TestTmuxServerOfAnotherName(t *testing.T) {
	b := newBed(t)
	program, err := exec.LookPath("tmux")
	need(t, err == nil, "tmux")
	data, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	binary := filepath.Join(b.home, "tmux-next")
	if err := os.WriteFile(binary, data, 0o700); err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(b.home, "s")
	if out, err := exec.Command(binary, "-f", "/dev/null", "-S", socket, "new-session", "-d", "-s", "mine", "exec claude").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	t.Cleanup(func() { endServer(t, socket) })
	await(t, "the agent", func() bool { return len(b.agents()) == 1 })
	e, _, err := b.s.Enrol(t.Context(), b.agents()[0].PID, nil)
	if err != nil || e.Mux.Kind != MuxTmux || e.Mux.Socket != socket || e.Mux.Target != "mine" || e.PaneID == "" {
		t.Errorf("%+v, pane %q, %v", e.Mux, e.PaneID, err)
	}
}
