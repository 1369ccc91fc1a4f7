package ledger

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sessionledger/ledger/ledgertest"
)

// Case 29a, with every enrolment point at once: the launcher, the hooks of the real binary,
// a person's command and two sweeps. There is one row, and it is the row that any of them
// writes alone.
func TestEnrolledFromAllSidesAtOnceIsTheRowOfOne(t *testing.T) {
	for name, launched := range map[string]bool{"launched": true, "found": false} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t)
			command := build(t, ctlPackage) + " -dir " + b.s.root + " hook claude"
			if _, err := InstallHooks("claude", InstallOptions{Command: command}); err != nil {
				t.Fatal(err)
			}
			stores := []*Store{b.s, openStore(t, b.s.root, nil)}
			ctx, stop := context.WithCancel(t.Context())
			var group sync.WaitGroup
			defer group.Wait()
			defer stop()
			pid := make(chan int)
			for _, s := range stores {
				group.Go(func() {
					for ctx.Err() == nil {
						if _, err := Sweep(ctx, s, SweepOptions{Wait: patience}); err != nil && ctx.Err() == nil {
							t.Error(err)
						}
					}
				})
				group.Go(func() {
					for of := <-pid; ctx.Err() == nil; {
						// It is none yet, or in the middle of starting.
						if _, _, err := s.Enrol(ctx, of, nil); err != nil && ctx.Err() == nil && !errors.Is(err, ErrNotFound) &&
							!errors.Is(err, ErrUnknown) && !errors.Is(err, ErrLeaseHeld) {
							t.Error(err)
						}
					}
				})
			}
			var a *ledgertest.Agent
			if launched {
				a = b.become(direct{Argv: []string{"claude"}})
			} else {
				cmd := ledgertest.Command(t, "claude")
				cmd.Dir = b.dir
				a = ledgertest.Start(t, cmd)
			}
			for range stores {
				pid <- a.PID()
			}
			id := a.Session()
			a.Send("work")
			a.Expect("did work")
			of := func() (mine []Entry) {
				for _, e := range rowsByID(t, b.s) { // sweeps find the machine's other sessions too
					if e.PID == a.PID() {
						mine = append(mine, e)
					}
				}
				return mine
			}
			await(t, "the conversation and its file", func() bool {
				mine := of()
				return len(mine) > 0 && mine[0].SessionID == id && mine[0].TranscriptPath != "" && mine[0].Lease == nil
			})
			stop()
			group.Wait()
			mine := of()
			if len(mine) != 1 || launched != (mine[0].EnrolledBy == EnrolledByShim) {
				t.Fatalf("%d rows: %+v", len(mine), mine)
			}

			a.Send("/spawn exec sleep 1000")
			hook := a.Expect("/spawn ")
			hookPID := atoi(t, hook[strings.LastIndexByte(hook, ' ')+1:])
			defer syscall.Kill(hookPID, syscall.SIGKILL)
			alone := b.open(filepath.Join(b.home, "alone"))
			r := deliver(t, alone, "claude", hookPID, `{"hook_event_name":"SessionStart","source":"startup","model":"stand-in","session_id":"`+id+`"}`)
			sameSession(t, "all of them", mine[0], get(t, alone, r.LedgerID))
		})
	}
}

// enrolStep is one enrolment, of a runtime that is this test's alone.
type enrolStep struct {
	Root, Runtime string
	PID           int
}

func (a enrolStep) open() (*Store, error) {
	return Open(a.Root, &Options{Runtimes: (&Runtimes{}).With(Runtime{Name: a.Runtime})})
}

var enrolments = map[string]string{
	"hook": inChild("fields-hook", func(arg enrolStep) error {
		s, err := arg.open()
		if err == nil {
			_, err = HandleHook(context.Background(), s, arg.Runtime, strings.NewReader(firstWord), HookOptions{PID: arg.PID, Wait: patience})
		}
		return err
	}),
	"command": inChild("fields-enrol", func(arg enrolStep) error {
		s, err := arg.open()
		if err == nil {
			_, _, err = s.Enrol(context.Background(), arg.PID, nil)
		}
		return err
	}),
	"sweep": inChild("fields-sweep", func(arg enrolStep) error {
		s, err := arg.open()
		if err == nil {
			_, err = Sweep(context.Background(), s, SweepOptions{})
		}
		return err
	}),
}

// What was killed in the middle of an enrolment is completed by the others to the row that a
// whole enrolment writes, field by field.
func TestEnrolmentKilledAtEachWriteHasAllFields(t *testing.T) {
	needStrace(t)
	strace, err := exec.LookPath("strace")
	if err != nil {
		t.Fatal(err)
	}
	home, repo := t.TempDir(), gitRepo(t)
	env := treeEnv(home)
	for by, child := range enrolments {
		t.Run(by, func(t *testing.T) {
			kills := 0
			for at := 1; ; at++ {
				if at > 50 {
					t.Fatal("it never comes to an end")
				}
				runtime := hookless + by + itoa(at) // which the sweeps of no other step find
				a := agent("agent", runtime, env, shell("hook", env))
				a.Dir = repo
				pids := growTree(t, shell("shell", env, a))
				arg := enrolStep{Root: filepath.Join(t.TempDir(), "ledger"), Runtime: runtime, PID: pids["agent"]}
				if by == "hook" {
					arg.PID = pids["hook"]
				}
				cmd := childCommand(t, child, arg)
				const calls = "rename,renameat,renameat2,linkat"
				cmd.Args = append([]string{strace, "-f", "-qq", "-o", os.DevNull, "-e", "trace=" + calls,
					"-e", "inject=" + calls + ":signal=KILL:when=" + itoa(at), cmd.Path}, cmd.Args[1:]...)
				cmd.Path = strace
				out, err := cmd.CombinedOutput()
				var exit *exec.ExitError
				if err != nil && !errors.As(err, &exit) || strings.Contains(string(out), "ledger:") {
					t.Fatalf("%v: %s", err, out)
				}
				// A whole one, of the same process.
				whole := arg
				whole.Root = filepath.Join(t.TempDir(), "ledger")
				want := openStep(t, whole)
				deliver(t, want, runtime, pids["hook"], firstWord)
				again := openStep(t, arg)
				if _, err := Sweep(t.Context(), again, SweepOptions{}); err != nil {
					t.Error(err)
				}
				if _, _, err := again.Enrol(t.Context(), pids["agent"], nil); err != nil {
					t.Error(err)
				}
				deliver(t, again, runtime, pids["hook"], firstWord)
				got := single(t, again)
				if got.PID != pids["agent"] || got.Cwd != repo || got.RepoRoot != repo || got.SessionID != "c-1" || got.StartedAt.IsZero() {
					t.Errorf("killed at write %d: %+v", at, got)
				}
				sameSession(t, by+", killed at write "+itoa(at)+", and the others after it", got, single(t, want))
				checkLedger(t, arg.Root)
				if err == nil {
					break // it has no such write
				}
				kills++
			}
			if t.Logf("killed at %d writes", kills); kills < 2 {
				t.Errorf("only %d writes", kills)
			}
		})
	}
}

func openStep(t *testing.T, arg enrolStep) *Store {
	t.Helper()
	s, err := arg.open()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// A birth record whose launcher died is given its process by whoever comes first, with the
// facts that it lacks: it is the row of an enrolment without a launcher.
func TestABirthThatItsLauncherLeftGetsAllFields(t *testing.T) {
	home, repo := t.TempDir(), gitRepo(t)
	for by, enrol := range map[string]func(t *testing.T, s *Store, runtime string, pids map[string]int){
		"hook": func(t *testing.T, s *Store, runtime string, pids map[string]int) {
			deliver(t, s, runtime, pids["hook"], firstWord)
		},
		"command": func(t *testing.T, s *Store, _ string, pids map[string]int) {
			mustEnrol(t, s, pids["agent"], nil)
		},
		"sweep": func(t *testing.T, s *Store, _ string, pids map[string]int) {
			await(t, "the sweep to bind it", func() bool {
				mustSweep(t, s, SweepOptions{Grace: -1})
				return !single(t, s).Process().IsZero()
			})
		},
	} {
		t.Run(by, func(t *testing.T) {
			step := enrolStep{Root: filepath.Join(t.TempDir(), "ledger"), Runtime: hookless + "born" + by}
			s := openStep(t, step)
			began := s.now().Add(-time.Hour) // which is written once
			birth, err := s.Create(t.Context(), Entry{Runtime: step.Runtime, EnrolledBy: EnrolledByShim, StartedAt: began}, BeginCreate(deadProcess()))
			if err != nil {
				t.Fatal(err)
			}
			env := append(treeEnv(home), envID+"="+birth.LedgerID, envAttempt+"="+birth.Lease.Attempt)
			a := agent("agent", step.Runtime, env, shell("hook", env))
			a.Dir = repo
			pids := growTree(t, shell("shell", treeEnv(home), a))
			enrol(t, s, step.Runtime, pids)
			deliver(t, s, step.Runtime, pids["hook"], firstWord)
			step.Root = filepath.Join(t.TempDir(), "alone")
			alone := openStep(t, step)
			deliver(t, alone, step.Runtime, pids["hook"], firstWord)
			got, want := single(t, s), single(t, alone)
			if got.LedgerID != birth.LedgerID || got.PID != pids["agent"] || got.Lease != nil || got.RepoRoot != repo || got.EnrolledBy != EnrolledByShim || !got.StartedAt.Equal(began) {
				t.Errorf("%+v", got)
			}
			want.StartedAt = began
			sameSession(t, "a birth bound by the "+by, got, want)
			checkLedger(t, s.root)
		})
	}
}
