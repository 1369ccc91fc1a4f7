//go:build unix

package tmux

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

func TestDtachSocket(t *testing.T) {
	dir, err := os.MkdirTemp("/tmp", "lt")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "d")
	check := func(what string, session, attached Presence) {
		t.Helper()
		s, a, err := Dtach(context.Background(), path)
		if s != session || a != attached || (err == nil) != (s != Unknown) {
			t.Errorf("%s: %v, %v, %v", what, s, a, err)
		}
	}
	check("missing", Unknown, Unknown)
	if err := os.WriteFile(path, nil, 0o700); err != nil {
		t.Fatal(err)
	}
	check("a file", Unknown, Unknown)
	os.Remove(path)
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	os.Chmod(path, 0o600)
	check("detached", Present, Absent)
	os.Chmod(path, 0o700)
	check("attached", Present, Present)
	l.Close()
	check("its process died while attached", Absent, Absent)
}

// Against dtach itself, if LEDGER_DTACH names it.
func TestDtachItself(t *testing.T) {
	bin := os.Getenv("LEDGER_DTACH")
	if bin == "" {
		t.Skip("LEDGER_DTACH is not set")
	}
	dir, err := os.MkdirTemp("/tmp", "lt")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	path, gate := filepath.Join(dir, "d"), filepath.Join(dir, "gate")
	if out, err := exec.Command("mkfifo", gate).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if out, err := exec.Command(bin, "-n", path, "cat", gate).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	is := func(session, attached Presence) func() bool {
		return func() bool {
			s, a, _ := Dtach(context.Background(), path)
			return s == session && a == attached
		}
	}
	eventually(t, "detached", is(Present, Absent))
	client := exec.Command("script", "-qfc", bin+" -a "+path, "/dev/null")
	in, err := client.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := client.Start(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "attached", is(Present, Present))
	in.Write([]byte{0x1c}) // detach
	eventually(t, "detached again", is(Present, Absent))
	in.Close()
	client.Process.Kill()
	client.Wait()
	// Opening and closing the gate ends the session.
	f, err := os.OpenFile(gate, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	eventually(t, "ended", func() bool { s, _, _ := Dtach(context.Background(), path); return s != Present })
}
