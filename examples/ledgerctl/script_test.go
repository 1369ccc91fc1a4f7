//go:build linux

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/sys/unix"
)

// The commands run as they would from a shell, in processes of their own: see
// testdata/*.txtar, one a subject.
func TestScript(t *testing.T) {
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
			return os.MkdirAll(env.WorkDir+"/home", 0o700)
		},
		Condition: func(cond string) (bool, error) {
			if cond != "sees" {
				return false, fmt.Errorf("unknown condition %q", cond)
			}
			return seesAll()
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
			"tty":    cmdTTY,
			"until":  cmdUntil,
		},
	})
}

func TestMain(m *testing.M) {
	syscall.Umask(0o077) // so that rows in scripts are nobody else's
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
	master, slave, err := openTerminal(columns)
	ts.Check(err)
	defer master.Close()
	path, err := exec.LookPath(args[2])
	if err != nil {
		path, err = lookPath(ts.Getenv("PATH"), args[2])
	}
	ts.Check(err)
	cmd := exec.Command(path, args[3:]...)
	cmd.Args[0] = args[2]
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	for _, name := range []string{"PATH", "HOME", "AGENT_SESSIONS_DIR", "NO_COLOR", "TERM", "GORACE"} {
		cmd.Env = append(cmd.Env, name+"="+ts.Getenv(name))
	}
	ts.Check(cmd.Start())
	slave.Close()
	var out bytes.Buffer
	_, _ = io.Copy(&out, master) // until the other end is closed, which Linux calls EIO
	_ = cmd.Wait()               // the script looks at what was printed
	text := strings.ReplaceAll(out.String(), "\r\n", "\n")
	ts.Check(os.WriteFile(ts.MkAbs(args[1]), []byte(text), 0o600))
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
