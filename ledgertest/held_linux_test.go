package ledgertest_test

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/sessionledger/ledger/ledgertest"
)

// An agent that was killed has exited, though what it has started still holds its output.
func TestExitedWhileAChildHoldsTheOutput(t *testing.T) {
	home := ledgertest.Isolate(t)
	a := start(t, project(t, home), "claude")
	a.Session()
	a.Send("/spawn exec sleep 1000 >/proc/$PPID/fd/1")
	said := a.Expect("/spawn ")
	pid, err := strconv.Atoi(said[strings.LastIndexByte(said, ' ')+1:])
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { syscall.Kill(pid, syscall.SIGKILL) })
	output := func(pid int) string {
		to, _ := os.Readlink(filepath.Join("/proc", itoa(pid), "fd", "1"))
		return to
	}
	ledgertest.Await(t, "the child to hold it", func() bool { return output(pid) == output(a.PID()) })
	held := output(pid)
	a.Signal(os.Kill)
	if status := a.Wait(); status != -1 {
		t.Errorf("status %d", status)
	}
	if got := output(pid); got != held {
		t.Errorf("the child has %q, and had %q", got, held)
	}
}
