package ledger

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// A copy of a carrier, such as a killed tmux client's command that its server runs late,
// finds the gate open for the first one, and does not pass.
func TestGateIsOpenForOnePidAlone(t *testing.T) {
	dir := t.TempDir()
	gate, naps := filepath.Join(dir, "gate"), filepath.Join(dir, "naps")
	// The carrier naps after each look at its gate.
	putFile(t, filepath.Join(dir, "bin", "sleep"), "#!/bin/sh\necho x >> '"+naps+"'\nexec /bin/sleep 0.03\n")
	if err := os.Chmod(filepath.Join(dir, "bin", "sleep"), 0o700); err != nil {
		t.Fatal(err)
	}
	looks := func() int {
		data, _ := os.ReadFile(naps)
		return bytes.Count(data, []byte("\n"))
	}
	var out bytes.Buffer
	cmd := exec.Command("/bin/sh", "-c", carrierScript, "ledger-carrier", gate, "/bin/echo", "passed")
	cmd.Env = append(os.Environ(), "PATH="+filepath.Join(dir, "bin")+":"+os.Getenv("PATH"))
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = &out, &out, time.Second
	started(t, cmd)
	pid := strconv.Itoa(cmd.Process.Pid)
	ended := func() bool { // a zombie until it is waited for
		stat, err := os.ReadFile("/proc/" + pid + "/stat")
		return err != nil || strings.Contains(string(stat), ") Z ")
	}
	for _, other := range []string{"", "\n", "1\n", strconv.Itoa(os.Getpid()) + "\n", pid + "0\n", pid + " 1\n"} {
		putFile(t, gate, other)
		// The first of two whole naps may have begun before the gate was written.
		seen := looks() + 2
		await(t, "the carrier looks at its gate", func() bool { return looks() > seen || ended() })
		if ended() {
			t.Fatalf("it passed a gate for %q: %v", other, cmd.Wait())
		}
	}
	putFile(t, gate, pid+"\n")
	if err := cmd.Wait(); err != nil || out.String() != "passed\n" {
		t.Errorf("its own gate: %v, %q", err, out.String())
	}
}
