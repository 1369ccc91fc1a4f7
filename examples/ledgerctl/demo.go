package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/sessionledger/ledger"
)

// step is what the demo prints at each step.
type step struct {
	Step  string          `json:"step"`
	ID    string          `json:"id,omitempty"`
	State ledger.Liveness `json:"state,omitempty"`
	Says  string          `json:"says"`
}

func demo(ctx context.Context, a *app, flags *flag.FlagSet) func([]string) error {
	keep := flags.Bool("keep", false, "keep the scratch folder, to look around in")
	return func(args []string) error {
		ctx, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		dir, err := os.MkdirTemp("", "ledger-demo-")
		if err != nil {
			return err
		}
		if *keep {
			defer fmt.Fprintln(a.stderr, "kept: "+dir)
		} else {
			defer os.RemoveAll(dir)
		}
		d := &demonstration{app: a, dir: dir, repo: filepath.Join(dir, "project")}
		if err := d.prepare(ctx); err != nil {
			return err
		}
		defer d.store.Close()
		defer d.end()
		return d.run(ctx)
	}
}

// demonstration is the story of one agent, in a scratch folder.
type demonstration struct {
	*app
	store     *ledger.Store
	host      *ledger.Host
	dir, repo string
}

// prepare makes a repository, a harmless agent on PATH, and an empty ledger.
func (d *demonstration) prepare(ctx context.Context) error {
	for _, tool := range []string{"git", "tmux"} {
		if _, err := exec.LookPath(tool); err != nil {
			return fmt.Errorf("the demo needs %s: %w", tool, err)
		}
	}
	git := exec.CommandContext(ctx, "git", "init", "-q", d.repo)
	git.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL="+os.DevNull, "GIT_CONFIG_NOSYSTEM=1")
	if out, err := git.CombinedOutput(); err != nil {
		return fmt.Errorf("git init: %w: %s", err, out)
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	bin, home := filepath.Join(d.dir, "bin"), filepath.Join(d.dir, "home")
	// A copy, since a link to this program would be a shim.
	if err := errors.Join(os.Mkdir(bin, 0o700), os.Mkdir(home, 0o700), copyProgram(self, filepath.Join(bin, "claude"))); err != nil {
		return err
	}
	// All of it is for this process and its children alone.
	err = errors.Join(os.Setenv("PATH", bin+string(os.PathListSeparator)+os.Getenv("PATH")),
		os.Setenv("HOME", home), os.Unsetenv("CLAUDE_CONFIG_DIR"), os.Setenv(demoAgentEnv, "1"))
	if err != nil {
		return err
	}
	d.store, err = ledger.Open(filepath.Join(d.dir, "ledger"), &ledger.Options{Home: home})
	d.host = &ledger.Host{Store: d.store}
	return err
}

func copyProgram(from, to string) error {
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, data, 0o700)
}

func (d *demonstration) run(ctx context.Context) error {
	first, err := d.host.Launch(ctx, ledger.LaunchOptions{
		Runtime: "claude", Argv: []string{"claude", "--session-id", demoConversation}, Dir: d.repo, SessionID: demoConversation,
	})
	if err != nil {
		return err
	}
	if err := d.awaitWork(ctx, first.LedgerID); err != nil {
		return err
	}
	if err := d.tell(ctx, "launch", first.LedgerID, "An agent runs in a terminal of its own. It works, and nobody looks at it."); err != nil {
		return err
	}
	if err := killHard(first.PID); err != nil {
		return err
	}
	if err := d.awaitState(ctx, first.LedgerID, ledger.LivenessOrphaned); err != nil {
		return err
	}
	if err := d.tell(ctx, "kill -9", first.LedgerID, "Its process is gone without a word. Nothing is lost, and nothing is guessed."); err != nil {
		return err
	}
	if err := d.sweep(ctx, first.LedgerID); err != nil {
		return err
	}
	second, err := d.host.Reopen(ctx, first.LedgerID, ledger.AttachOptions{})
	if err != nil {
		return err
	}
	if err := d.tell(ctx, "reopen", second.LedgerID, "Its own conversation is resumed, as a session that knows which one it continues."); err != nil {
		return err
	}
	if _, err := d.host.Kill(ctx, second.LedgerID, ledger.KillOptions{Reason: "the demo is over"}); err != nil {
		return err
	}
	if err := d.tell(ctx, "kill", second.LedgerID, "This one is ended on purpose: processes first, then its work, then the record."); err != nil {
		return err
	}
	if err := d.sweep(ctx, first.LedgerID); err != nil {
		return err
	}
	return d.check(ctx)
}

// sweep makes one pass and tells what it did about a session.
func (d *demonstration) sweep(ctx context.Context, id string) error {
	report, err := ledger.Sweep(ctx, d.store, ledger.SweepOptions{})
	if err != nil {
		return err
	}
	says := "A sweep looks at everything once."
	for _, r := range report.Rescued {
		if r.ID == id && r.Ref != "" {
			says = fmt.Sprintf("A sweep finds it and keeps its uncommitted work (%s): git cherry-pick -n %s", strings.Join(r.Paths, ", "), r.Ref)
		}
	}
	for _, c := range report.Closed {
		if c.ID == id {
			says = "A sweep closes what the other session has taken up: " + c.Reason
		}
	}
	return d.tell(ctx, "sweep", id, says)
}

func (d *demonstration) check(ctx context.Context) error {
	findings, err := d.store.Check(ctx)
	if err != nil {
		return err
	}
	for _, f := range findings {
		if f.Broken {
			return fmt.Errorf("the ledger is not whole: %s: %s", f.Kind, f.Message)
		}
	}
	return d.print(step{Step: "doctor", Says: "Every rule of the ledger holds."})
}

// killHard is kill -9.
func killHard(pid int) error {
	p, err := os.FindProcess(pid)
	if err != nil {
		return err
	}
	defer p.Release()
	return p.Kill()
}

// awaitWork waits until the agent has made its changes.
func (d *demonstration) awaitWork(ctx context.Context, id string) error {
	return d.await(ctx, id, func(st ledger.Status) bool { return st.Activity != "" })
}

func (d *demonstration) awaitState(ctx context.Context, id string, state ledger.Liveness) error {
	return d.await(ctx, id, func(st ledger.Status) bool { return st.State == state })
}

func (d *demonstration) await(ctx context.Context, id string, ok func(ledger.Status) bool) error {
	for {
		sess, err := d.store.Session(ctx, id, nil)
		if err != nil || ok(sess.Status) {
			return err
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// tell prints where a session stands.
func (d *demonstration) tell(ctx context.Context, what, id, says string) error {
	sess, err := d.store.Session(ctx, id, nil)
	if err != nil {
		return err
	}
	return d.print(step{what, id, sess.Status.State, says})
}

func (d *demonstration) print(s step) error {
	if d.json {
		return d.line(s)
	}
	look := lookOf(s.State)
	text := fmt.Sprintf("%-8s %-17s", s.Step, strings.TrimSpace(look.symbol+" "+string(s.State)))
	if wantsColor(d.stdout) {
		text = "\x1b[" + orDash(look.color) + "m" + text + "\x1b[0m"
	}
	_, err := fmt.Fprintln(d.stdout, text+" "+plain(s.Says))
	return err
}

// end leaves nothing running, also after a step that failed.
func (d *demonstration) end() {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	for e, err := range d.store.OpenEntries(ctx) {
		// A sweep of the machine may have met a person's own agents: they are none of ours.
		if err == nil && strings.HasPrefix(e.Mux.Socket, d.dir) {
			_, _ = d.host.Kill(ctx, e.LedgerID, ledger.KillOptions{})
		}
	}
}
