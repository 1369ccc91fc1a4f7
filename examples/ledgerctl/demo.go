package main

import (
	"bufio"
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

// The demo's agent is this program under another name, so that it needs no account and
// nothing that is not here. See demoAgent.
const demoAgentEnv = "LEDGERCTL_DEMO_AGENT"

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
		if len(args) > 0 {
			return fmt.Errorf("%w: demo takes no arguments", errUsage)
		}
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
		s, err := ledger.Open(filepath.Join(dir, "ledger"), &ledger.Options{Home: filepath.Join(dir, "home")})
		if err != nil {
			return err
		}
		defer s.Close()
		d := &demonstration{app: a, store: s, dir: dir, repo: filepath.Join(dir, "project")}
		return d.run(ctx)
	}
}

type demonstration struct {
	*app
	store     *ledger.Store
	dir, repo string
}

func (d *demonstration) run(ctx context.Context) error {
	if err := d.git(ctx, "init", "-q", d.repo); err != nil {
		return fmt.Errorf("the demo needs git: %w", err)
	}
	agent, err := d.startAgent()
	if err != nil {
		return err
	}
	defer agent.stop()
	e, _, err := d.store.Enrol(ctx, agent.cmd.Process.Pid, &ledger.EnrolOptions{Runtime: "claude"})
	if err != nil {
		return err
	}
	id := e.LedgerID
	if err := d.tell(ctx, "enrol", id, "A running agent is adopted: its process, folder and conversation are on record."); err != nil {
		return err
	}
	if err := agent.say("add a greeting"); err != nil {
		return err
	}
	if err := d.tell(ctx, "work", id, "It works: its transcript grows, and a file in its project is uncommitted."); err != nil {
		return err
	}
	agent.stop()
	if err := d.tell(ctx, "kill -9", id, "Its process is gone without a word. Nothing is lost, and nothing is guessed."); err != nil {
		return err
	}
	r, err := ledger.Rescue(ctx, d.store, id, ledger.RescueOptions{})
	if err != nil {
		return err
	}
	if err := d.tell(ctx, "rescue", id, fmt.Sprintf("Its uncommitted work (%s) is kept as %s.", strings.Join(r.Paths, ", "), r.Ref)); err != nil {
		return err
	}
	if _, err := (&ledger.Host{Store: d.store}).Kill(ctx, id, ledger.KillOptions{Reason: "the demo is over"}); err != nil {
		return err
	}
	if err := d.tell(ctx, "finish", id, "The session is finished on purpose, and stays on record."); err != nil {
		return err
	}
	findings, err := d.store.Check(ctx)
	if err != nil {
		return err
	}
	for _, f := range findings {
		return fmt.Errorf("the ledger is not whole: %s %s", f.Kind, f.Message)
	}
	return d.print(step{Step: "check", Says: "Every rule of the ledger holds."})
}

// tell prints where the session stands.
func (d *demonstration) tell(ctx context.Context, what, id, says string) error {
	sess, err := d.store.Session(ctx, id, &ledger.ClassifyOptions{Dirty: true})
	if err != nil {
		return err
	}
	return d.print(step{what, id, sess.Status.State, says})
}

func (d *demonstration) print(s step) error {
	if d.json {
		return d.line(s)
	}
	look := looks[s.State]
	d.table(d.stdout, []string{"", "", ""}, [][]cell{{{fmt.Sprintf("%-8s", s.Step), "1"}, {fmt.Sprintf("%-15s", look.symbol+" "+string(s.State)), look.color}, {plain(s.Says), ""}}})
	return nil
}

func (d *demonstration) git(ctx context.Context, args ...string) error {
	cmd := exec.CommandContext(ctx, "git", args...)
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL="+os.DevNull, "GIT_CONFIG_NOSYSTEM=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("git %s: %w: %s", args[0], err, plain(string(out)))
	}
	return nil
}

// agentProcess is the running stand-in. It answers each line with one.
type agentProcess struct {
	cmd     *exec.Cmd
	in      *os.File
	answers *bufio.Scanner
}

func (d *demonstration) startAgent() (*agentProcess, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	in, ours, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer in.Close()
	const id = "00000000-0000-4000-8000-000000000001"
	cmd := exec.Command(self)
	cmd.Args = []string{"claude", "--session-id", id}
	cmd.Dir, cmd.Stdin = d.repo, in
	cmd.Env = []string{demoAgentEnv + "=" + id, "HOME=" + filepath.Join(d.dir, "home")}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		ours.Close()
		return nil, err
	}
	p := &agentProcess{cmd, ours, bufio.NewScanner(out)}
	if !p.answers.Scan() {
		p.stop()
		return nil, errors.New("the demo's agent did not start")
	}
	return p, nil
}

func (p *agentProcess) say(line string) error {
	if _, err := fmt.Fprintln(p.in, line); err != nil {
		return err
	}
	if !p.answers.Scan() {
		return errors.New("the demo's agent did not answer")
	}
	return nil
}

// stop is kill -9. A second call does nothing.
func (p *agentProcess) stop() {
	p.in.Close()
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
}
