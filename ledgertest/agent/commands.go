package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// obey does what a line says. done says that the program ends with status.
func (a *agent) obey(text string) (status int, done bool) {
	if strings.TrimSpace(text) == "" {
		return 0, false
	}
	if !strings.HasPrefix(text, "/") {
		a.prompt(text)
		return 0, false
	}
	command, rest, _ := strings.Cut(strings.TrimRight(text, " "), " ")
	said, err := cmp.Or(rest, "done"), error(nil)
	switch command {
	case "/clear":
		a.clear()
		said = a.id
	case "/compact":
		a.compact()
	case "/fork":
		err = a.fork()
		said = a.id
	case "/resume":
		err = a.switchTo(rest)
	case "/title":
		a.write(record{kind: recordTitle, text: rest})
	case "/stale":
		a.startedAs(newUUID(), "resume", "")
	case "/wait":
		a.notified("permission_prompt", "Claude needs your permission to use Bash")
	case "/idle":
		a.notified("idle_prompt", "Claude is waiting for your input")
	case "/limit":
		a.failed("rate_limit")
	case "/fail":
		a.failed(cmp.Or(rest, "unknown"))
	case "/subagent":
		a.subagent()
	case "/edit":
		err = a.edit(rest)
	case "/cd":
		err = a.changeDir(rest)
	case "/work":
		if s := a.work(rest); s != nil {
			return a.signalled(s), true
		}
	case "/spawn":
		said, err = a.spawn(rest)
	case "/nested":
		err = a.nest(strings.Fields(rest))
	case "/to":
		err = a.tell(rest)
	case "/join":
		err = a.join()
	case "/ignore":
		a.ignore(rest)
	case "/env":
		said = os.Getenv(rest)
	case "/end":
		a.ended(rest)
		return 0, true
	case "/exit":
		a.ended(reasonExit)
		return 0, true
	case "/crash":
		if self, err := os.FindProcess(os.Getpid()); err == nil {
			_ = self.Kill()
		}
		select {} // until it takes effect
	default:
		err = errors.New("no such command")
	}
	if err != nil {
		said = err.Error()
	}
	a.say("%s %s", command, said)
	return 0, false
}

// edit writes a file, which its conversation tells.
func (a *agent) edit(rest string) error {
	name, text, _ := strings.Cut(rest, " ")
	if name == "" {
		return errors.New("needs a file")
	}
	path := name
	if !filepath.IsAbs(path) {
		path = filepath.Join(a.cwd, name)
	}
	a.write(record{kind: recordTool, tool: "Edit", path: path})
	return os.WriteFile(path, []byte(text+"\n"), 0o666)
}

func (a *agent) changeDir(dir string) error {
	if err := os.Chdir(dir); err != nil {
		return err
	}
	now, err := realDir()
	if err != nil {
		return err
	}
	old := a.cwd
	a.cwd = now
	a.fire(eventCwd, "", object{"old_cwd": old, "new_cwd": now})
	return nil
}

// work keeps a processor busy, and returns the signal that ended it.
func (a *agent) work(rest string) os.Signal {
	d, err := time.ParseDuration(rest)
	if n, nerr := strconv.ParseFloat(rest, 64); err != nil && nerr == nil {
		d = time.Duration(n * float64(time.Second))
	}
	sum := 0
	for end := time.Now().Add(d); time.Now().Before(end); {
		for i := range 1 << 16 {
			sum += i
		}
		select {
		case s := <-a.signals:
			return s
		default:
		}
	}
	return nil
}

// spawn starts a command as a tool does that is left in the background. It is
// in the agent's process group and has none of its pipes.
func (a *agent) spawn(command string) (string, error) {
	cmd := shell(noContext, command)
	cmd.Dir, cmd.Env = a.cwd, a.childEnv()
	if err := cmd.Start(); err != nil {
		return "", err
	}
	go cmd.Wait()
	return strconv.Itoa(cmd.Process.Pid), nil
}

// A child is an agent below this one. It ends with the pipe to it, so that none
// outlives its parent.
type child struct {
	cmd *exec.Cmd
	in  io.WriteCloser
}

// nest starts an agent with the inherited environment, as a tool would. Its
// name is looked up on PATH, so that a shim in front of it is used.
func (a *agent) nest(argv []string) error {
	if len(argv) == 0 {
		return errors.New("needs a name")
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.Command(argv[0], argv[1:]...)
	if cmd.Err != nil {
		cmd = exec.Command(self, argv[1:]...)
		cmd.Args[0] = argv[0]
	}
	cmd.Dir, cmd.Env = a.cwd, a.childEnv()
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	a.nested = append(a.nested, &child{cmd, in})
	return nil
}

var errNoNested = errors.New("no nested agent")

func (a *agent) tell(line string) error {
	if len(a.nested) == 0 {
		return errNoNested
	}
	_, err := fmt.Fprintln(a.nested[len(a.nested)-1].in, line)
	return err
}

// joinWait is how long a nested agent has for its end.
const joinWait = 10 * time.Second

func (a *agent) join() error {
	if len(a.nested) == 0 {
		return errNoNested
	}
	c := a.nested[len(a.nested)-1]
	a.nested = a.nested[:len(a.nested)-1]
	c.in.Close()
	kill := time.AfterFunc(joinWait, func() { _ = c.cmd.Process.Kill() })
	defer kill.Stop()
	return c.cmd.Wait()
}

// firstOf is a text's first line, cut to what a terminal shows.
func firstOf(text string) string {
	text, _, _ = strings.Cut(text, "\n")
	if r := []rune(text); len(r) > 200 {
		return string(r[:200])
	}
	return text
}
