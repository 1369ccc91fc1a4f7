package ledger

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"
)

// Discovery end to end, with the runtimes that are built in, in a pid namespace where no
// process but the test's own is to be seen.
func TestSweepDiscoversSessionsInAndOutOfTmuxUnderShellsAndAgents(t *testing.T) {
	need(t, os.Geteuid() == 0, "root, to mount proc")
	_, err := exec.LookPath("tmux")
	need(t, err == nil, "tmux")
	dir, err := os.MkdirTemp("", "disc")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	inNamespace(t, syscall.CLONE_NEWPID|syscall.CLONE_NEWNS, "discovery", dir)
}

func init() { namespaced["discovery"] = discover }

func discover(dir string) error {
	if err := syscall.Mount("", "/", "", syscall.MS_PRIVATE|syscall.MS_REC, ""); err != nil {
		return err
	}
	if err := syscall.Mount("proc", "/proc", "proc", 0, ""); err != nil {
		return err
	}
	repo, home := filepath.Join(dir, "shop"), filepath.Join(dir, "home")
	env := append(treeEnv(home), "TERM=xterm")
	start := func(path string, args ...string) (*exec.Cmd, error) {
		found, err := exec.LookPath(path)
		if err != nil {
			return nil, err
		}
		cmd := &exec.Cmd{Path: found, Args: args, Dir: repo, Env: env}
		return cmd, cmd.Start()
	}
	for _, folder := range []string{repo, home} {
		if err := os.MkdirAll(folder, 0o700); err != nil {
			return err
		}
	}
	for _, args := range [][]string{{"git", "init", "-q", "-b", "trunk"}, {"git", "-c", "user.name=t", "-c", "user.email=t@t", "commit", "-q", "--allow-empty", "-m", "m"},
		{"tmux", "-S", filepath.Join(dir, "t"), "-f", "/dev/null", "new-session", "-d", "-s", "work", "-n", "win", "bash", "-c", "exec -a gemini sleep 1000"}} {
		cmd, err := start(args[0], args...)
		if err == nil {
			err = cmd.Wait()
		}
		if err != nil {
			return fmt.Errorf("%v: %w", args, err)
		}
	}
	// A shell with codex below it, and claude with a shell and codex below that.
	if _, err := start("bash", "bash", "-c", "(exec -a codex sleep 1000) & wait"); err != nil {
		return err
	}
	nested, err := start("bash", "claude", "-c", "bash -c '(exec -a codex sleep 1001) & wait' & wait")
	if err != nil {
		return err
	}
	ctx := context.Background()
	s, err := Open(filepath.Join(dir, "l"), &Options{Home: home})
	if err != nil {
		return err
	}
	defer s.Close()
	var all []string
	var rep Report
	var said [][]Edge
	opts := SweepOptions{Notify: func(_ context.Context, edges []Edge) error { said = append(said, edges); return nil }}
	// Whoever has just started may be in the middle of becoming another program.
	if err := pollUntil(func() bool {
		if rep, err = Sweep(ctx, s, opts); err != nil {
			return true
		}
		all = append(all, rep.Enrolled...)
		return len(all) >= 4
	}); err != nil || len(all) != 4 {
		return fmt.Errorf("enrolled %v, %w: %+v", all, err, rep)
	}
	rows := map[string]Entry{}
	for e, err := range s.OpenEntries(ctx) {
		if err != nil {
			return err
		}
		name := e.Runtime
		if e.ParentLedgerID != "" {
			name += " below"
		}
		rows[name] = e
		if e.Cwd != repo || e.RepoRoot != repo || e.Project != "shop" || e.Branch != "trunk" || e.EnrolledBy != EnrolledByDiscovery {
			return fmt.Errorf("%s: %+v", name, e)
		}
	}
	inTmux, below, agent := rows["gemini"], rows["codex below"], rows["claude"]
	if len(rows) != 4 || below.ParentLedgerID != agent.LedgerID || below.LaunchedBy != LaunchedByAgent {
		return fmt.Errorf("rows %+v", rows)
	}
	if inTmux.Mux.Kind != MuxTmux || inTmux.Mux.Target != "work" || inTmux.PaneID == "" || inTmux.Window != "win" {
		return fmt.Errorf("location %+v %q %q", inTmux.Mux, inTmux.PaneID, inTmux.Window)
	}
	// The server dies with its session, and the agent with its own; a child lives on.
	said = nil
	kill := exec.Command("tmux", "-S", filepath.Join(dir, "t"), "kill-server")
	if out, err := kill.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	if err := nested.Process.Kill(); err != nil {
		return err
	}
	_ = nested.Wait()
	var closed []string
	if err := pollUntil(func() bool {
		if rep, err = Sweep(ctx, s, opts); err != nil {
			return true
		}
		closed = append(closed, closedIDs(rep.Closed)...)
		return len(closed) >= 2
	}); err != nil {
		return fmt.Errorf("closed %v, %w: %+v", closed, err, rep)
	}
	slices.Sort(closed)
	if want := []string{agent.LedgerID, inTmux.LedgerID}; !slices.Equal(closed, want) {
		return fmt.Errorf("closed %v, want %v", closed, want)
	}
	if e, err := s.Get(ctx, below.LedgerID); err != nil || !e.IsOpen() {
		return fmt.Errorf("the child: %+v, %w", e, err)
	}
	if n := len(slices.Concat(said...)); n != 2 {
		return fmt.Errorf("%d edges were said: %v", n, said)
	}
	began := time.Now()
	if rep, err = Sweep(ctx, s, opts); err != nil || len(rep.Enrolled)+len(rep.Closed)+len(rep.Refreshed) > 0 {
		return fmt.Errorf("an idle pass of %v: %+v, %w", time.Since(began), rep, err)
	}
	return nil
}
