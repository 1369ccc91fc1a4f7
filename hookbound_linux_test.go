package ledger

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// An agent does not wait for long for its hook, though git hangs, the tmux server is
// stopped and somebody sits on the lock, in both tries: half as much again as the wait for
// locks is the most.
func TestHookBesideAllThatHangsIsBounded(t *testing.T) {
	b := newBed(t)
	// Not even git's own files can be read without git.
	if err := errors.Join(os.Rename(filepath.Join(b.dir, ".git"), filepath.Join(b.home, "git")), os.Symlink(filepath.Join(b.home, "git"), filepath.Join(b.dir, ".git"))); err != nil {
		t.Fatal(err)
	}
	hook, said, _ := b.paneAgent()
	p, err := b.s.procs.identify(atoi(t, said[1]))
	if err != nil {
		t.Fatal(err)
	}
	asked := fakeTool(t, "git", "exec sleep 1000")
	server := atoi(t, said[2])
	syscall.Kill(server, syscall.SIGSTOP)
	defer syscall.Kill(server, syscall.SIGCONT)
	unlock, err := b.s.lockKey(context.Background(), processClaim(b.s.local(p)).file())
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()

	// Git and tmux take a third of the wait each, and the lock a half, in each of two tries:
	// without a bound no attempt would be quicker than 2.3 times the wait.
	var took time.Duration
	for range 10 {
		began := time.Now()
		r, err := HandleHook(t.Context(), b.s, "claude", strings.NewReader(`{"hook_event_name":"SessionStart","session_id":"c-1"}`), HookOptions{PID: hook})
		took = time.Since(began)
		if err == nil || r.LedgerID != "" || took < hookWait {
			t.Fatalf("%+v, %v after %v", r, err, took)
		}
		if took < 2*hookWait {
			break
		}
	}
	if took >= 2*hookWait || asked() == 0 {
		t.Errorf("it took %v; git ran %d times", took, asked())
	}
	if rows := rowsByID(t, b.s); len(rows) > 0 {
		t.Errorf("rows: %v", rows)
	}
}
