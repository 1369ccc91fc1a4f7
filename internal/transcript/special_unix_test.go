//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package transcript

import (
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// special makes a FIFO that nobody writes and a socket.
func special(t *testing.T, dir string) []string {
	t.Helper()
	fifo := filepath.Join(dir, "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	// A socket's path is short, a test's folder may not be.
	short, err := os.MkdirTemp("", "s")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(short) })
	socket := filepath.Join(short, "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return []string{fifo, socket}
}
