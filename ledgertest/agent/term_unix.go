//go:build linux || darwin

package main

import (
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
)

// terminal puts the terminal, if the input is one, into the mode of a program
// with a composer of its own: no line mode, no echo, pastes marked. Signals
// stay. It returns how to put it back.
func (a *agent) terminal() (restore func()) {
	fd := int(os.Stdin.Fd())
	old, err := unix.IoctlGetTermios(fd, getTermios)
	if err != nil || a.has("cooked") {
		return nil
	}
	// To set a terminal's mode from the background stops a program.
	signal.Ignore(syscall.SIGTTOU)
	mode := *old
	mode.Lflag &^= unix.ICANON | unix.ECHO | unix.IEXTEN
	mode.Cc[unix.VMIN], mode.Cc[unix.VTIME] = 1, 0
	if unix.IoctlSetTermios(fd, setTermios, &mode) != nil {
		return nil
	}
	a.raw = true
	fmt.Print(pasteOn)
	return func() {
		fmt.Print(pasteOff)
		_ = unix.IoctlSetTermios(fd, setTermios, old)
	}
}

// ownGroup puts a command into a process group of its own, all of which is
// killed when its time is over.
func ownGroup(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
}
