//go:build unix

package gitcmd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// fakeGit is a program in place of git.
func (s *sandbox) fakeGit(script string) Runner {
	s.t.Helper()
	path := s.path("fake-git")
	s.write(path, "#!/bin/sh\n"+script+"\n")
	must(s, os.Chmod(path, 0o755))
	r := s.run
	r.Git = path
	return r
}

// within fails the test if fn takes much longer than it may: far above any deadline given
// below, and far below the time for which the fakes hang.
func within(t *testing.T, fn func()) {
	t.Helper()
	done := make(chan struct{})
	go func() { defer close(done); fn() }()
	select {
	case <-done:
	case <-time.After(60 * time.Second):
		t.Fatal("not bounded")
	}
}

// eventually awaits a condition that no event tells of: the end of a process that is not ours.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not in time", what)
		}
	}
}

func (s *sandbox) pid(name string) int {
	s.t.Helper()
	n, err := strconv.Atoi(strings.TrimSpace(s.read(name)))
	must(s, err)
	return n
}

func gone(pid int) bool {
	if errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
		return true
	}
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && strings.Contains(string(b), ") Z ") // nobody reaps it here
}

func TestHungGitIsEndedWithItsChildren(t *testing.T) {
	for name, script := range map[string]string{
		"sleeping":             "sleep 600 & echo $! > $HOME/child; echo $$ > $HOME/self; wait",
		"ignoring termination": "trap '' TERM; sleep 600 & echo $! > $HOME/child; echo $$ > $HOME/self; while :; do wait; done",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSandbox(t)
			r := s.fakeGit(script)
			r.Timeout = 2 * time.Second
			within(t, func() {
				_, err := r.Describe(testContext(t), s.home)
				if !errors.Is(err, ErrTimeout) || !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, ErrNotRepository) {
					t.Errorf("%v", err)
				}
			})
			for _, who := range []string{"self", "child"} {
				eventually(t, who, func() bool { return gone(s.pid(who)) })
			}
		})
	}
}

func TestChildThatHoldsThePipeDoesNotHangUs(t *testing.T) {
	s := newSandbox(t)
	r := s.fakeGit("sleep 600 & echo $! > $HOME/child; exit 0")
	r.Timeout = 10 * time.Minute
	within(t, func() {
		if _, err := r.DirtyCount(testContext(t), s.home); !errors.Is(err, ErrTimeout) {
			t.Errorf("%v", err)
		}
	})
	must(s, syscall.Kill(s.pid("child"), syscall.SIGKILL))
}

func TestSnapshotWithHungGitIsBoundedAndLeavesNothing(t *testing.T) {
	s := newSandbox(t)
	s.repo("r")
	s.write(s.path("r/a"), "edited\n")
	r := s.fakeGit(`case " $* " in *" write-tree "*) sleep 600;; esac; exec git "$@"`)
	r.Timeout = 20 * time.Second
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	within(t, func() {
		snap, err := r.Snapshot(ctx, s.options("r", "id"))
		if !errors.Is(err, ErrTimeout) || snap.Ref != "" || snap.Clean {
			t.Errorf("%+v, %v", snap, err)
		}
	})
	if left, _ := os.ReadDir(s.path("scratch")); len(left) != 0 {
		t.Errorf("scratch: %v", left)
	}
}

func TestCancelledContextIsNotATimeout(t *testing.T) {
	s := newSandbox(t)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := s.run.Describe(ctx, s.home); !errors.Is(err, context.Canceled) || errors.Is(err, ErrTimeout) {
		t.Errorf("%v", err)
	}
}

func TestOutputIsBounded(t *testing.T) {
	s := newSandbox(t)
	r := s.fakeGit("yes xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx")
	within(t, func() {
		if _, _, err := r.output(testContext(t), call{dir: s.home, args: []string{"x"}}); !errors.Is(err, ErrOutput) {
			t.Errorf("%v", err)
		}
	})
	r = s.fakeGit("yes oh 2>/dev/null | head -c 3000000 >&2; exit 3")
	var ge *Error
	_, err := r.Describe(testContext(t), s.home)
	if !errors.As(err, &ge) || ge.ExitCode != 3 || len(ge.Stderr) != stderrLimit {
		t.Errorf("%.200v", err)
	}
}

func TestMissingGitIsNotAMissingFolder(t *testing.T) {
	s := newSandbox(t)
	r := s.run
	r.Git = s.path("no such git")
	if _, err := r.Describe(testContext(t), s.home); !errors.Is(err, ErrNoGit) || errors.Is(err, os.ErrNotExist) {
		t.Errorf("%v", err)
	}
}

func TestErrorsCannotSteerATerminal(t *testing.T) {
	s := newSandbox(t)
	r := s.fakeGit(`printf 'first\nbad \033]0;title\007 end\n' >&2; exit 9`)
	_, err := r.Describe(testContext(t), s.home)
	if err == nil || strings.ContainsAny(err.Error(), "\x1b\x07\n") || !strings.Contains(err.Error(), "exit status 9: bad ?]0;title? end") {
		t.Errorf("%q", err)
	}
}

func TestCallersEnvironmentDoesNotReachGit(t *testing.T) {
	s := newSandbox(t)
	s.repo("r")
	s.repo("decoy")
	s.write(s.path("r/a"), "edited\n")
	r := s.run
	r.Env = func() []string {
		return append(isolated(s.home), "GIT_DIR="+s.path("decoy/.git"), "GIT_WORK_TREE="+s.path("decoy"),
			"GIT_INDEX_FILE="+s.path("decoy/.git/index"), "GIT_OBJECT_DIRECTORY="+s.path("decoy/.git/objects"),
			"GIT_CONFIG_PARAMETERS='core.worktree="+s.path("decoy")+"'", "GIT_CONFIG_COUNT=1",
			"GIT_CONFIG_KEY_0=core.worktree", "GIT_CONFIG_VALUE_0="+s.path("decoy"), "GIT_NAMESPACE=x", "LC_ALL=de_DE.UTF-8")
	}
	snap, err := r.Snapshot(testContext(t), s.options("r", "id"))
	if err != nil || snap.Root != s.path("r") || !slices.Equal(snap.Paths, []string{"a"}) {
		t.Errorf("%+v, %v", snap, err)
	}
	if refs, err := s.run.List(testContext(t), s.path("decoy")); err != nil || len(refs) != 0 {
		t.Errorf("%v, %v", refs, err)
	}
}
