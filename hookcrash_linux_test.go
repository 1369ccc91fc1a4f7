package ledger

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

type hookStep struct {
	Root string
	PID  int
}

const firstWord = `{"hook_event_name":"SessionStart","source":"startup","session_id":"c-1"}`

var runHook = inChild("run-hook", func(arg hookStep) error {
	s, err := Open(arg.Root, nil)
	if err != nil {
		return err
	}
	_, err = HandleHook(context.Background(), s, "claude", strings.NewReader(firstWord), HookOptions{PID: arg.PID, Wait: patience})
	return err
})

var runEnrol = inChild("run-enrol", func(arg hookStep) error {
	s, err := Open(arg.Root, nil)
	if err != nil {
		return err
	}
	_, _, err = s.Enrol(context.Background(), arg.PID, nil)
	return err
})

// Case 29a: the enrolment of a process killed at each of its writes, and then done by all
// who may: one row, with its conversation.
func TestEnrolmentKilledAtEachWriteIsOneRow(t *testing.T) {
	strace, err := exec.LookPath("strace")
	need(t, err == nil, "strace")
	home := t.TempDir()
	env := treeEnv(home)
	for _, by := range []string{runHook, runEnrol} {
		kills := 0
		for at := 1; ; at++ {
			if at > 50 {
				t.Fatal("it never comes to an end")
			}
			pids := growTree(t, shell("shell", env, agent("agent", "claude", env, shell("hook", env))))
			root := filepath.Join(home, by, itoa(at))
			pid := pids["hook"]
			if by == runEnrol {
				pid = pids["agent"]
			}
			cmd := childCommand(t, by, hookStep{root, pid})
			cmd.Args = append([]string{strace, "-f", "-qq", "-o", "/dev/null", "-e", "trace=rename,renameat,renameat2,linkat",
				"-e", "inject=rename,renameat,renameat2,linkat:signal=KILL:when=" + itoa(at), cmd.Path}, cmd.Args[1:]...)
			cmd.Path = strace
			out, err := cmd.CombinedOutput()
			var exit *exec.ExitError
			if err != nil && !errors.As(err, &exit) {
				t.Fatalf("%v: %s", err, out)
			}
			if err != nil && strings.Contains(string(out), "ptrace") {
				need(t, false, "ptrace: "+string(out))
			}
			again, openErr := Open(root, nil)
			if openErr != nil {
				t.Fatal(openErr)
			}
			deliver(t, again, "claude", pids["hook"], firstWord)
			if _, _, err := again.Enrol(t.Context(), pids["agent"], nil); err != nil {
				t.Error(err)
			}
			deliver(t, again, "claude", pids["hook"], firstWord)
			rows := rowsByID(t, again)
			for _, e := range rows {
				if e.PID != pids["agent"] || e.SessionID != "c-1" {
					t.Errorf("%s, killed at write %d: %+v", by, at, e)
				}
			}
			if len(rows) != 1 {
				t.Errorf("%s, killed at write %d: %d rows: %v", by, at, len(rows), rows)
			}
			again.Close()
			checkLedger(t, root)
			if err == nil {
				break // it has no such write
			}
			kills++
		}
		if t.Logf("%s: killed at %d writes", by, kills); kills < 2 {
			t.Errorf("%s: only %d writes", by, kills)
		}
	}
}

// Figure: a launch adds no more than three durable writes to the start of the command.
func TestLaunchMakesThreeDurableWritesAtMost(t *testing.T) {
	strace, err := exec.LookPath("strace")
	need(t, err == nil, "strace")
	b := newBed(t)
	b.launch(LaunchOptions{Runtime: "claude"}) // which makes the folders
	trace := filepath.Join(b.home, "trace")
	cmd := childCommand(t, launchAndDie, crashLaunch{Root: b.s.root, Dir: b.dir})
	// Not -f into the server, which would outlive strace's patience: it is the launcher's threads that count.
	cmd.Args = append([]string{strace, "-f", "-qq", "-o", trace, "-e", "trace=fsync,fdatasync,execve", cmd.Path}, cmd.Args[1:]...)
	cmd.Path = strace
	cmd.WaitDelay = time.Second
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	// strace goes on as long as the server does: the launch is over when its row is bound
	// and described, and its gate shut.
	var e Entry
	await(t, "the launch", func() bool {
		for _, row := range rowsByID(t, b.s) {
			if row.LauncherPID != os.Getpid() && row.PID != 0 && !row.ProcessDescribedAt.IsZero() {
				e = row
			}
		}
		gates, _ := os.ReadDir(b.s.path(dirGates))
		return e.LedgerID != "" && len(gates) == 0
	})
	endServer(t, e.Mux.Socket)
	if err := cmd.Wait(); err != nil {
		t.Log(err)
	}
	syncs := strings.Count(readFile(t, trace), "sync(")
	// A durable write is the file's sync and its folder's.
	if syncs == 0 || syncs > 2*3 {
		t.Errorf("%d syncs:\n%s", syncs, readFile(t, trace))
	}
	t.Logf("%d syncs", syncs)
}
