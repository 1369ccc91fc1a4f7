//go:build linux

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/sys/unix"

	"github.com/sessionledger/ledger/ledgertest"
	"github.com/sessionledger/ledger/tmux"
)

// The commands run as they would from a shell, in processes of their own: see
// testdata/*.txtar, one a subject.
func TestScript(t *testing.T) {
	agents := ledgertest.BuildAgent(t)
	ctl, err := exec.LookPath("ledgerctl") // which TestMain has put there
	if err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(env *testscript.Env) error {
			for _, kv := range []string{
				"HOME=$WORK/home", "XDG_STATE_HOME=$WORK/home/state", "AGENT_SESSIONS_DIR=$WORK/ledger", "TMUX_TMPDIR=$WORK",
				"GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1", "GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.org",
				"GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.org",
				"GORACE=atexit_sleep_ms=0", // the default is a second
			} {
				name, value, _ := strings.Cut(kv, "=")
				env.Setenv(name, strings.ReplaceAll(value, "$WORK", env.WorkDir))
			}
			env.Setenv("ESC", "\x1b")
			env.Setenv("AGENTS", agents) // stand-ins, for the front of PATH
			env.Setenv("LEDGERCTL", ctl) // for links to it
			env.Defer(func() { endHosted(t, env.WorkDir) })
			return os.MkdirAll(env.WorkDir+"/home", 0o700)
		},
		Condition: func(cond string) (bool, error) {
			tool, lacks := strings.CutPrefix(cond, "lacks:")
			switch {
			case cond == "sees":
				return seesAll()
			case lacks:
				_, err := exec.LookPath(tool)
				if err != nil && os.Getenv("CI") == "true" {
					return false, err
				}
				return err != nil, nil
			}
			return false, fmt.Errorf("unknown condition %q", cond)
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"agent":  cmdAgent,
			"await":  cmdAwait,
			"fits":   cmdFits,
			"gone":   cmdGone,
			"help":   cmdHelp,
			"jsonl":  cmdJSONL,
			"safe":   cmdSafe,
			"status": cmdStatus,
			"talk":   cmdTalk,
			"tty":    cmdTTY,
			"until":  cmdUntil,
		},
	})
}

func TestMain(m *testing.M) {
	syscall.Umask(0o077) // so that rows in scripts are nobody else's
	if filepath.Base(os.Args[0]) == "codex" {
		main() // by a script's link: a shim
	}
	testscript.Main(m, map[string]func(){
		"ledgerctl": main,
		"claude":    standIn,
		"arrange":   arrange,
	})
}

// patience bounds what must happen and does so much sooner.
const patience = time.Minute

// await polls: for what another process does, and nothing reports.
func await(ts *testscript.TestScript, what string, ok func() bool) {
	for end := time.Now().Add(patience); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			ts.Fatalf("not in %s: %s", patience, what)
		}
	}
}

// read returns a file of the script, "" for one that is not there yet.
func read(ts *testscript.TestScript, name string) string {
	data, err := os.ReadFile(ts.MkAbs(name))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		ts.Fatalf("%v", err)
	}
	return string(data)
}

// agent VAR CONVERSATION TITLE starts the stand-in under the first process of the machine,
// so that no agent that runs these tests is above it, and puts its pid into VAR.
func cmdAgent(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: agent VAR CONVERSATION TITLE")
	}
	ts.Check(ts.Exec("arrange", "detach", "claude", "--session-id", args[1], args[2]))
	pid, err := strconv.Atoi(strings.TrimSpace(ts.ReadFile("stdout")))
	ts.Check(err)
	fd, err := unix.PidfdOpen(pid, 0)
	ts.Check(err)
	ts.Defer(func() {
		_ = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0) // the script may have ended it
		unix.Close(fd)
	})
	ts.Setenv(args[0], strconv.Itoa(pid))
	await(ts, "the agent is ready", func() bool { return read(ts, "ready-"+args[1]) != "" })
}

// await FILE REGEXP [COMMAND…] waits for a file's content, and runs a command again and
// again until it is there.
func cmdAwait(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: await FILE REGEXP [COMMAND]")
	}
	re := regexp.MustCompile("(?m)" + args[1])
	await(ts, args[1]+" in "+args[0], func() bool {
		if len(args) > 2 {
			ts.Check(ts.Exec(args[2], args[3:]...))
		}
		return re.MatchString(read(ts, args[0]))
	})
}

// until REGEXP COMMAND… runs a command until it prints that: a process of another test
// that is just starting a program hides what it is for a moment, and much is unknown then.
func cmdUntil(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: until REGEXP COMMAND")
	}
	re := regexp.MustCompile("(?m)" + args[0])
	await(ts, args[0]+" from "+strings.Join(args[1:], " "), func() bool {
		_ = ts.Exec(args[1], args[2:]...) // what it prints tells
		return re.MatchString(ts.ReadFile("stdout"))
	})
}

// gone PID waits for the end of a process.
func cmdGone(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: gone PID")
	}
	await(ts, args[0]+" is gone", func() bool {
		_, err := os.Stat("/proc/" + args[0])
		return errors.Is(err, os.ErrNotExist)
	})
}

// help checks that each command explains itself.
func cmdHelp(ts *testscript.TestScript, neg bool, args []string) {
	for _, c := range commands() {
		ts.Check(ts.Exec("ledgerctl", c.name, "-h"))
		if out := ts.ReadFile("stdout"); !strings.HasPrefix(out, "Usage: ledgerctl "+c.name) || ts.ReadFile("stderr") != "" {
			ts.Fatalf("the help of %s: %q", c.name, out)
		}
	}
}

// fits N FILE checks that no line of a table is wider than that many columns, the escape
// sequences of colours not counted.
func cmdFits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: fits COLUMNS FILE")
	}
	columns, err := strconv.Atoi(args[0])
	ts.Check(err)
	widest := 0
	for line := range strings.Lines(regexp.MustCompile("\x1b\\[[0-9;]*m").ReplaceAllString(ts.ReadFile(args[1]), "")) {
		widest = max(widest, width(strings.TrimSuffix(line, "\n")))
	}
	if widest > columns || widest < columns-1 {
		ts.Fatalf("the widest line has %d columns of %d", widest, columns)
	}
}

// jsonl FILE [KEY…] checks that every line of a file, of which there is one at least, is a
// JSON object that has exactly these members.
func cmdJSONL(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) == 0 {
		ts.Fatalf("usage: jsonl FILE [KEY]")
	}
	slices.Sort(args[1:])
	for line := range strings.Lines(ts.ReadFile(args[0])) {
		var object map[string]json.RawMessage
		if err := json.Unmarshal([]byte(line), &object); err != nil {
			ts.Fatalf("%q is no JSON object: %v", line, err)
		}
		var keys []string
		for key := range object {
			keys = append(keys, key)
		}
		slices.Sort(keys)
		if len(args) > 1 && !slices.Equal(keys, args[1:]) {
			ts.Fatalf("%q has the members %q, want %q", line, keys, args[1:])
		}
	}
	if ts.ReadFile(args[0]) == "" {
		ts.Fatalf("no line in %s", args[0])
	}
}

// safe FILE… checks that nothing in a file is other than printable characters and line ends.
func cmdSafe(ts *testscript.TestScript, neg bool, args []string) {
	for _, name := range args {
		for line := range strings.Lines(ts.ReadFile(name)) {
			for _, r := range strings.TrimSuffix(line, "\n") {
				if unsafe(r) || r == '\u2028' || r == '\u202e' || r == 0x1b || r == 0x9b || r == 0x7f {
					ts.Fatalf("%s: %q has a raw %q", name, line, r)
				}
			}
		}
	}
}

// status N COMMAND… runs a command and wants that exit status.
func cmdStatus(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: status N COMMAND")
	}
	err := ts.Exec(args[1], args[2:]...)
	status := 0
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		status = exit.ExitCode()
	} else {
		ts.Check(err)
	}
	if strconv.Itoa(status) != args[0] {
		ts.Fatalf("exit status %d, want %s", status, args[0])
	}
}

// tty COLUMNS FILE COMMAND… runs a command on a terminal of that width, and keeps what it
// prints there in FILE.
func cmdTTY(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 3 {
		ts.Fatalf("usage: tty COLUMNS FILE COMMAND")
	}
	columns, err := strconv.Atoi(args[0])
	ts.Check(err)
	cmd, master := onTerminal(ts, columns, args[2:])
	defer master.Close()
	var out bytes.Buffer
	_, _ = io.Copy(&out, master) // until the other end is closed, which Linux calls EIO
	_ = cmd.Wait()               // the script looks at what was printed
	keep(ts, args[1], out.String())
}

// talk FILE REGEXP KEYS COMMAND… runs a command on a terminal, types KEYS, in which Go's
// escapes are possible, once REGEXP is shown there, and keeps what was shown in FILE. The
// command must succeed.
func cmdTalk(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 4 {
		ts.Fatalf("usage: talk FILE REGEXP KEYS COMMAND")
	}
	re := regexp.MustCompile(args[1])
	keys, err := strconv.Unquote(`"` + args[2] + `"`)
	ts.Check(err)
	cmd, master := onTerminal(ts, 100, args[3:])
	defer master.Close()
	// It leads a group of its own, whose tmux client holds the terminal too.
	late := time.AfterFunc(patience, func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) })
	var out strings.Builder
	buf := make([]byte, 4096)
	for typed := false; err == nil; {
		var n int
		n, err = master.Read(buf)
		out.Write(buf[:n])
		if !typed && re.MatchString(out.String()) {
			typed = true
			time.Sleep(10 * time.Millisecond) // as pasted, and no command, tmux takes what comes within one
			_, err = master.WriteString(keys)
		}
	}
	late.Stop()
	err = cmd.Wait()
	keep(ts, args[0], out.String())
	if err != nil {
		ts.Fatalf("%v; shown was %q", err, out.String())
	}
}

// onTerminal starts a command on a terminal of that width.
func onTerminal(ts *testscript.TestScript, columns int, argv []string) (cmd *exec.Cmd, master *os.File) {
	master, slave, err := openTerminal(columns)
	ts.Check(err)
	defer slave.Close()
	path, err := lookPath(ts.Getenv("PATH"), argv[0])
	if err == nil {
		cmd = exec.Command(path, argv[1:]...)
		cmd.Args[0] = argv[0]
		cmd.Dir = ts.MkAbs(".")
		cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
		for _, name := range []string{"PATH", "HOME", "AGENT_SESSIONS_DIR", "NO_COLOR", "TERM", "GORACE"} {
			cmd.Env = append(cmd.Env, name+"="+ts.Getenv(name))
		}
		err = cmd.Start()
	}
	if err != nil {
		master.Close()
	}
	ts.Check(err)
	return cmd, master
}

// keep writes what a terminal was sent into a file of the script.
func keep(ts *testscript.TestScript, name, text string) {
	ts.Check(os.WriteFile(ts.MkAbs(name), []byte(strings.ReplaceAll(text, "\r\n", "\n")), 0o600))
}

// endHosted ends what a script has left running in tmux servers of its ledger.
func endHosted(t *testing.T, work string) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	sockets, _ := filepath.Glob(filepath.Join(work, "*", "sock", "*"))
	for _, socket := range sockets {
		srv := tmux.Server{Socket: socket}
		if l, err := srv.List(ctx); err == nil {
			if err := srv.KillServer(ctx, l.Server); err != nil {
				t.Error(err)
			}
		}
	}
}

func lookPath(path, name string) (string, error) {
	for dir := range strings.SplitSeq(path, ":") {
		if p, err := exec.LookPath(dir + "/" + name); err == nil {
			return p, nil
		}
	}
	return "", exec.ErrNotFound
}

// openTerminal makes a terminal of that width. What is written to the slave is read from
// the master.
func openTerminal(columns int) (master, slave *os.File, err error) {
	master, err = os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, nil, err
	}
	fd := int(master.Fd())
	n, err := unix.IoctlGetUint32(fd, unix.TIOCGPTN)
	err = errors.Join(err, unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0),
		unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: 50, Col: uint16(columns)}))
	if err == nil {
		slave, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	}
	if err != nil {
		master.Close()
		return nil, nil, err
	}
	return master, slave, nil
}
