package ledgertest_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sessionledger/ledger/internal/runtimes"
	"github.com/sessionledger/ledger/ledgertest"
)

// A terminal runs one program.
type terminal struct {
	t      *testing.T
	master *os.File
	pid    int
	ended  chan int // the exit status

	mu   sync.Mutex
	text string
}

// inTerminal starts a runtime in a terminal of its own.
func inTerminal(t *testing.T, dir, runtime string) *terminal {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	var n uint32
	err = control(master, func(fd int) (err error) {
		if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
			return err
		}
		n, err = unix.IoctlGetUint32(fd, unix.TIOCGPTN)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	slave, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer slave.Close()
	cmd := ledgertest.Command(t, runtime)
	cmd.Dir = dir
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	tt := &terminal{t: t, master: master, pid: cmd.Process.Pid, ended: make(chan int, 1)}
	go func() {
		_ = cmd.Wait()
		status := cmd.ProcessState.ExitCode()
		if status < 0 {
			status = -int(cmd.ProcessState.Sys().(syscall.WaitStatus).Signal())
		}
		tt.ended <- status
	}()
	done := make(chan struct{})
	go func() {
		defer close(done)
		buf := make([]byte, 4096)
		for {
			n, err := master.Read(buf)
			tt.mu.Lock()
			tt.text += string(buf[:n])
			tt.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	t.Cleanup(func() {
		master.Close()
		<-done
		_ = cmd.Process.Kill()
		tt.status()
	})
	return tt
}

func control(f *os.File, do func(fd int) error) error {
	conn, err := f.SyscallConn()
	if err != nil {
		return err
	}
	cerr := conn.Control(func(fd uintptr) { err = do(int(fd)) })
	if cerr != nil {
		return cerr
	}
	return err
}

func (tt *terminal) status() int {
	status := <-tt.ended
	tt.ended <- status
	return status
}

func (tt *terminal) screen() string {
	tt.mu.Lock()
	defer tt.mu.Unlock()
	return tt.text
}

func (tt *terminal) shows(text string) {
	tt.t.Helper()
	ledgertest.Await(tt.t, fmt.Sprintf("%q on the terminal", text), func() bool { return strings.Contains(tt.screen(), text) })
}

func (tt *terminal) types(keys string) {
	tt.t.Helper()
	if _, err := tt.master.WriteString(keys); err != nil {
		tt.t.Fatal(err)
	}
}

func TestComposer(t *testing.T) {
	home := ledgertest.Isolate(t)
	events := hooked(t, home, "claude")
	tt := inTerminal(t, project(t, home), "claude")
	tt.shows("\x1b[?2004h")
	tt.shows("> ")
	tt.types("hellp\x7fo wörld\r")
	tt.shows("claude: did hello wörld")
	// A paste is one prompt, whatever is in it, and is not sent by itself.
	tt.types("\x1b[200~first line\rsecond \"line\"\n/clear\x1b[201~")
	tt.shows("/clear")
	tt.types("\r")
	tt.shows("claude: did first line")
	// More than a terminal's line mode takes.
	long := strings.Repeat("0123456789", 1000)
	tt.types("\x1b[200~" + long + "\x1b[201~\r")
	tt.shows("claude: did 0123456789")
	tt.types("not sent\x15\x1b[Asent\r")
	tt.shows("claude: did sent")
	tt.types("\x03")
	tt.shows("claude: interrupted")
	tt.types("\x04")
	if status := tt.status(); status != 0 {
		t.Errorf("exit status %d", status)
	}
	tt.shows("\x1b[?2004l")
	var prompts []string
	got := events()
	for _, e := range got {
		if e.Prompt != "" {
			prompts = append(prompts, e.Prompt)
		}
	}
	want := []string{"hello wörld", "first line\nsecond \"line\"\n/clear", long[:runtimes.MaxHookText], "sent"}
	if len(prompts) != len(want) {
		t.Fatalf("prompts %q", prompts)
	}
	for i := range want {
		if prompts[i] != want[i] {
			t.Errorf("prompt %q, want %q", prompts[i], want[i])
		}
	}
	if raw := read(t, filepath.Join(home, "payloads-claude")); !strings.Contains(raw, `"`+long+`"`) {
		t.Error("the long prompt was cut")
	}
	if reason := got[len(got)-1].Reason; reason != "prompt_input_exit" {
		t.Errorf("ended for %q", reason)
	}
}

func TestEndOfTheTerminal(t *testing.T) {
	home := ledgertest.Isolate(t)
	dir := project(t, home)
	events := hooked(t, home, "claude")
	tt := inTerminal(t, dir, "claude")
	tt.shows("> ")
	tt.master.Close()
	if status := tt.status(); status != 128+int(syscall.SIGHUP) {
		t.Errorf("exit status %d", status)
	}
	if got := kinds(events()); len(got) != 2 || got[1] != "end other" {
		t.Errorf("events %q", got)
	}

	// One that ignores it lives on, until something else ends it.
	t.Setenv("LEDGERTEST_AGENT_IGNORE", "hup")
	deaf := inTerminal(t, dir, "claude")
	deaf.shows("> ")
	deaf.master.Close()
	ledgertest.Await(t, "the agent to be without a terminal", func() bool {
		to, err := os.Readlink(filepath.Join("/proc", itoa(deaf.pid), "fd", "0"))
		return err == nil && strings.HasSuffix(to, "(deleted)") || err == nil && !exists(to)
	})
	if len(deaf.ended) > 0 {
		t.Fatal("it ended with its terminal")
	}
	if err := syscall.Kill(deaf.pid, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if status := deaf.status(); status != 128+int(syscall.SIGTERM) {
		t.Errorf("exit status %d", status)
	}
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

func TestCookedTerminal(t *testing.T) {
	home := ledgertest.Isolate(t)
	t.Setenv("LEDGERTEST_AGENT_QUIRKS", "cooked")
	tt := inTerminal(t, project(t, home), "codex")
	tt.types("hello\r")
	tt.shows("codex: did hello")
	if strings.Contains(tt.screen(), "\x1b") {
		t.Errorf("the screen has escapes: %q", tt.screen())
	}
	tt.types("\x04")
	if status := tt.status(); status != 0 {
		t.Errorf("exit status %d", status)
	}
}
