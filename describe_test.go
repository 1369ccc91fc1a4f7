//go:build linux

package ledger

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

func run(t *testing.T, env []string, dir, name string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env, cmd.Dir = env, dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %q: %v\n%s", name, args, err, out)
	}
	return strings.TrimSpace(string(out))
}

// lacks skips a test without a tool that it needs, except in CI.
func lacks(t *testing.T, tool string) {
	t.Helper()
	_, err := exec.LookPath(tool)
	need(t, err == nil, tool)
}

// Cases 37 and 38: each fact from its source, and null without.
func TestFactsEachFromItsSource(t *testing.T) {
	lacks(t, "git")
	s, home := treeStore(t)
	env := treeEnv(home)
	repo := filepath.Join(t.TempDir(), "shop")
	linked := filepath.Join(filepath.Dir(repo), "side")
	git := func(args ...string) { run(t, env, "", "git", append([]string{"-C", repo}, args...)...) }
	run(t, env, "", "git", "init", "-q", "-b", "main", repo)
	git("-c", "user.name=t", "-c", "user.email=t@t", "commit", "-q", "--allow-empty", "-m", "first")
	git("worktree", "add", "-q", "-b", "topic", linked)
	sub := filepath.Join(repo, "pkg")
	if err := os.Mkdir(sub, 0o700); err != nil {
		t.Fatal(err)
	}
	bare := t.TempDir()

	at := func(n node, dir string) node { n.Dir = dir; return n }
	began := time.Now()
	pids := growTree(t, shell("root", env,
		at(agent("main", "claude", treeEnv(home, "CLAUDE_CONFIG_DIR=/x/accounts/work/claude", envFactory+"=1")), sub),
		at(agent("linked", "codex", treeEnv(home, "CODEX_HOME=/x/accounts/lab/codex", envFactory+"=0")), linked),
		at(agent("home", "gemini", treeEnv("/x/accounts/slug")), bare),
	))
	ended := time.Now()
	rows := map[string]Entry{}
	for _, name := range []string{"main", "linked", "home"} {
		rows[name] = mustEnrol(t, s, pids[name], nil)
	}
	for name, want := range map[string]Entry{
		"main":   {Cwd: sub, RepoRoot: repo, Project: "shop", Branch: "main", Worktree: new(bool), Account: "work", LaunchedBy: LaunchedByFactory},
		"linked": {Cwd: linked, RepoRoot: linked, Project: "shop", Branch: "topic", Worktree: ptr(true), Account: "lab"},
		"home":   {Cwd: bare, Account: "slug"},
	} {
		got := rows[name]
		if got.Cwd != want.Cwd || got.RepoRoot != want.RepoRoot || got.Project != want.Project || got.Branch != want.Branch ||
			got.Account != want.Account || got.LaunchedBy != want.LaunchedBy && want.LaunchedBy != "" ||
			(got.Worktree == nil) != (want.Worktree == nil) || got.Worktree != nil && *got.Worktree != *want.Worktree {
			t.Errorf("%s:\ngot  %+v\nwant %+v", name, got, want)
		}
		if got.LaunchedBy == LaunchedByAgent || got.Parent != "" || got.ParentLedgerID != "" {
			t.Errorf("%s was launched by %q of %q", name, got.LaunchedBy, got.Parent)
		}
		if got.StartedAt.Before(began.Add(-clockSlack)) || got.StartedAt.After(ended.Add(clockSlack)) || got.StartedAt.Location() != time.UTC {
			t.Errorf("%s: started at %s, not between %s and %s", name, got.StartedAt, began, ended)
		}
		cgroup, err := os.ReadFile("/proc/" + strconv.Itoa(pids[name]) + "/cgroup")
		if err != nil || got.Cgroup == "" || !strings.Contains(string(cgroup), ":"+got.Cgroup+"\n") {
			t.Errorf("%s: cgroup %q of %q", name, got.Cgroup, cgroup)
		}
		if got.Mux.Kind != "" || got.Mux.Socket != "" || got.Mux.Target != "" || got.PaneID != "" || got.TmuxSession != "" {
			t.Errorf("%s: in a multiplexer: %+v", name, got.Mux)
		}
		if got.Host == "" || got.CPUTicks == nil || got.ProcessDescribedAt.IsZero() || got.HostID == "" {
			t.Errorf("%s: %+v", name, got)
		}
	}
	if rows["linked"].LaunchedBy == LaunchedByFactory {
		t.Error("FACTORY_ADW=0 is a factory")
	}
}

func ptr[T any](v T) *T { return &v }

func TestStartedAtIsNeverRewritten(t *testing.T) {
	s, home := treeStore(t)
	pids := growTree(t, agent("agent", "claude", treeEnv(home)))
	p, err := s.procs.identify(pids["agent"])
	if err != nil {
		t.Fatal(err)
	}
	const id = "claude-20260101T000000Z-000098"
	writeLegacyRow(t, s, id, map[string]any{"launcherPid": p.PID, "startedAt": "2020-02-02T02:02:02Z"})
	en := planFor(t, s, p.PID, map[string]string{envID: id})
	e, adopted, err := en.adopt(context.Background(), en.at[p.PID])
	if err != nil || !adopted || e.LedgerID != id || e.StartedAt.Year() != 2020 {
		t.Errorf("%s %v %v", e.StartedAt, adopted, err)
	}
}

// planFor plans a chain as if the process's environment said more.
func planFor(t *testing.T, s *Store, pid int, says map[string]string) *enroller {
	t.Helper()
	p, err := s.chainPass(pid)
	if err != nil {
		t.Fatal(err)
	}
	cs := p.candidates()
	cs[p.at[pid]].carries = carried(func(name string) (string, bool) { v, ok := says[name]; return v, ok })
	plan, err := s.plan(context.Background(), p, nil)
	if err != nil {
		t.Fatal(err)
	}
	return s.enroller(p, plan, EnrolOptions{})
}

func TestInheritedIDNamesTheParent(t *testing.T) {
	s, home := treeStore(t)
	first := growTree(t, agent("agent", "claude", treeEnv(home)))
	row := mustEnrol(t, s, first["agent"], nil)
	child := growTree(t, agent("child", "codex", treeEnv(home, envID+"="+row.LedgerID)))
	e := mustEnrol(t, s, child["child"], nil)
	if e.LaunchedBy != LaunchedByAgent || e.ParentLedgerID != row.LedgerID || e.Parent != row.LedgerID {
		t.Errorf("%+v", e)
	}
}

// A parent goes with an agent that launched the session, and with nobody else.
func TestAFactorysSessionHasNoParent(t *testing.T) {
	s, home := treeStore(t)
	pids := growTree(t, agent("above", "claude", treeEnv(home), agent("made", "codex", treeEnv(home, envFactory+"=1"))))
	if e := mustEnrol(t, s, pids["made"], nil); e.LaunchedBy != LaunchedByFactory || e.Parent != "" || e.ParentLedgerID != "" {
		t.Errorf("launched by %q, parent %q", e.LaunchedBy, e.Parent)
	}
}

func TestAnAgentWithoutARowIsNamedByItsPid(t *testing.T) {
	s, home := treeStore(t)
	writeLegacyRow(t, s, goneID, nil)
	if err := os.WriteFile(s.path(dirSessions, goneID+rowExtension), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	// The row of the agent above is damaged, so that it cannot be enrolled.
	pids := growTree(t, agent("above", "claude", treeEnv(home, envID+"="+goneID), agent("below", "codex", treeEnv(home))))
	e := mustEnrol(t, s, pids["below"], nil)
	if want := "claude (pid " + strconv.Itoa(pids["above"]) + ")"; e.Parent != want || e.ParentLedgerID != "" || e.LaunchedBy != LaunchedByAgent {
		t.Errorf("parent %q (%q), launched by %q", e.Parent, e.ParentLedgerID, e.LaunchedBy)
	}
}

func TestDtachAncestorNamesItsSocket(t *testing.T) {
	s, home := treeStore(t)
	env := treeEnv(home)
	dir := t.TempDir()
	creates := node{Name: "dtach", Args: []string{"dtach", "-A", "sock", "claude"}, Env: env, Dir: dir, Children: []node{agent("in", "claude", env)}}
	attaches := node{Name: "client", Args: []string{"dtach", "-a", "/s"}, Env: env, Children: []node{agent("out", "codex", env)}}
	pids := growTree(t, shell("root", env, creates, attaches))
	in := mustEnrol(t, s, pids["in"], nil)
	if want := (Mux{Kind: MuxDtach, Socket: filepath.Join(dir, "sock")}); in.Mux.Kind != want.Kind || in.Mux.Socket != want.Socket || in.LaunchedBy != LaunchedByUser {
		t.Errorf("%+v, launched by %q", in.Mux, in.LaunchedBy)
	}
	if out := mustEnrol(t, s, pids["out"], nil); out.Mux.Kind != "" {
		t.Errorf("a client is taken for a session: %+v", out.Mux)
	}
}

// tmuxServer starts a server of the test's own with one session, and returns its socket
// and its pid.
func tmuxServer(t *testing.T, env []string, command string, options ...string) (tmux func(args ...string) string, socket string, pid int) {
	t.Helper()
	lacks(t, "tmux")
	dir, err := os.MkdirTemp("", "tmux") // a socket's path is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	socket = filepath.Join(dir, "s")
	env = append(env, "TMUX_TMPDIR="+dir, "TERM=dumb", "SHELL=/bin/sh")
	if len(options) == 0 {
		options = []string{"-S", socket}
	} else {
		socket = filepath.Join(dir, "tmux-"+strconv.Itoa(os.Getuid()), options[1])
	}
	tmux = func(args ...string) string {
		return run(t, env, dir, "tmux", slices.Concat(options, []string{"-f", "/dev/null"}, args)...)
	}
	tmux("new-session", "-d", "-s", "work", "-n", "pane", command)
	pid, err = strconv.Atoi(tmux("display-message", "-p", "#{pid}"))
	if err != nil {
		t.Fatal(err)
	}
	st, err := newTable("").identify(pid)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		procs := newTable("")
		procs.sys.Signal(pid, st.StartTicks, syscall.SIGKILL)
		if err := pollUntil(func() bool { return procs.verdict(st) == Gone }); err != nil {
			t.Errorf("tmux server %d was left behind", pid)
		}
	})
	return tmux, socket, pid
}

// waitSession waits until a pane's process has become a session, and returns its pid.
func waitSession(t *testing.T, s *Store, tmux func(args ...string) string) int {
	t.Helper()
	pid, err := strconv.Atoi(tmux("display-message", "-p", "-t", "=work:", "#{pane_pid}"))
	if err != nil {
		t.Fatal(err)
	}
	start, err := s.procs.identify(pid)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.procs.sys.Signal(pid, start.StartTicks, syscall.SIGKILL) })
	if err := pollUntil(func() bool {
		p, err := s.chainPass(pid)
		if err != nil {
			return false
		}
		p.candidates()
		_, ok := p.at[pid]
		return ok
	}); err != nil {
		t.Fatal("the pane runs no session")
	}
	return pid
}

func TestTmuxAncestorIsAskedOverItsOwnSocket(t *testing.T) {
	s, home := treeStore(t)
	for _, test := range []struct {
		name, command string
		options       []string
	}{
		{"by the TMUX variable", `exec bash -c "exec -a claude sleep 1000"`, nil},
		{"by -S", `exec env -u TMUX bash -c "exec -a claude sleep 1000"`, nil},
		{"by -L", `exec env -u TMUX bash -c "exec -a claude sleep 1000"`, []string{"-L", "named"}},
		{"by another server's variable", `exec env TMUX=/tmp/other,1,0 bash -c "exec -a claude sleep 1000"`, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			tmux, socket, server := tmuxServer(t, treeEnv(home), test.command, test.options...)
			pid := waitSession(t, s, tmux)
			var asked []int
			panes := func(ctx context.Context, at string, serverPID int, chain []int) (session, window, pane string, ok bool) {
				asked = append(asked, serverPID)
				if real, err := filepath.EvalSymlinks(at); err != nil || real != at || at != mustReal(t, socket) || !slices.Contains(chain, pid) {
					return "", "", "", false
				}
				return "work", "pane", tmux("display-message", "-p", "-t", "=work:", "#{pane_id}"), true
			}
			e := mustEnrol(t, s, pid, &EnrolOptions{panes: panes})
			if e.Mux.Kind != MuxTmux || e.Mux.Socket != mustReal(t, socket) || e.Mux.Target != "work" || e.PaneID != "%0" ||
				e.PaneServer.PID != server || e.Window != "pane" || e.LaunchedBy != LaunchedByUser || !slices.Equal(asked, []int{server}) {
				t.Errorf("%+v, pane %s of %d, window %q, launched by %q, asked %d", e.Mux, e.PaneID, e.PaneServer.PID, e.Window, e.LaunchedBy, asked)
			}
			if !strings.HasPrefix(e.TTY, "pts/") {
				t.Errorf("tty %q", e.TTY)
			}
		})
	}
}

func mustReal(t *testing.T, path string) string {
	t.Helper()
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		t.Fatal(err)
	}
	return real
}

func TestTmuxServerThatCannotBeAskedLeavesTheTargetOpen(t *testing.T) {
	s, home := treeStore(t)
	tmux, socket, _ := tmuxServer(t, treeEnv(home), `exec bash -c "exec -a claude sleep 1000"`)
	pid := waitSession(t, s, tmux)
	refuse := func(context.Context, string, int, []int) (string, string, string, bool) { return "a", "b", "c", false }
	for name, panes := range map[string]paneLookup{"nobody asks": nil, "no answer": refuse} {
		p, err := s.chainPass(pid)
		if err != nil {
			t.Fatal(err)
		}
		env, err := p.snap.Environ(pid)
		if err != nil {
			t.Fatal(err)
		}
		loc := p.locate(context.Background(), pid, env.Lookup, panes)
		if loc.Mux.Kind != MuxTmux || loc.Mux.Socket != mustReal(t, socket) || loc.Mux.Target != "" || loc.PaneID != "" || loc.Window != "" {
			t.Errorf("%s: %+v", name, loc)
		}
	}
}

// The row's own server is an ancestor: that binds, where another server does not.
func TestDedicatedTmuxServerBinds(t *testing.T) {
	s, home := treeStore(t)
	tmux, socket, _ := tmuxServer(t, treeEnv(home, envID+"="+goneID), `exec bash -c "exec -a claude sleep 1000"`)
	pid := waitSession(t, s, tmux)
	writeLegacyRow(t, s, goneID, nil)
	if p, err := s.chainPass(pid); err != nil {
		t.Fatal(err)
	} else if plan, err := s.plan(context.Background(), p, nil); err != nil || plan[p.at[pid]].show() != "enrol from "+goneID {
		t.Errorf("another server: %v, %v", plan, err)
	}
	p, err := s.chainPass(pid)
	if err != nil {
		t.Fatal(err)
	}
	rows, err := s.rowsOf(p, nil)
	if err != nil {
		t.Fatal(err)
	}
	rows.dedicated = func(id string) string {
		if id == goneID {
			return mustReal(t, socket)
		}
		return ""
	}
	if plan := planMatches(p.candidates(), *rows, ""); plan[p.at[pid]].show() != "bind "+goneID {
		t.Errorf("its own server: %s", plan[p.at[pid]].show())
	}
}

func TestGitIsAskedOnceAFolder(t *testing.T) {
	s, home := treeStore(t)
	env := treeEnv(home)
	pids := growTree(t, shell("root", env, agent("one", "claude", env), agent("two", "codex", env)))
	ours, en := treePlan(t, s, pids)
	for name := range ours {
		if _, _, err := en.adopt(context.Background(), en.at[pids[name]]); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(en.pass.places); n != 1 {
		t.Errorf("%d folders", n)
	}
	for dir, at := range en.pass.places {
		if again := en.pass.place(context.Background(), dir); again != at {
			t.Error("asked again")
		}
	}
}
