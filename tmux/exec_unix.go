//go:build unix

package tmux

import (
	"os"
	"os/exec"
	"syscall"
)

// ownGroup gives the client a process group, so that what it starts can be
// ended with it.
func ownGroup(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

func killGroup(cmd *exec.Cmd) error {
	if err := syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL); err != nil {
		return os.ErrProcessDone
	}
	return nil
}
