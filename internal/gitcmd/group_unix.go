//go:build unix

package gitcmd

import (
	"os/exec"
	"syscall"
)

// Loose objects are synced by syncObjects.
const (
	fsyncComponents = "-loose-object,pack,pack-metadata,reference"
	syncsObjects    = true
)

// ownGroup gives the command a process group, so that git's own children end with it.
func ownGroup(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

func terminateGroup(cmd *exec.Cmd) { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }

func killGroup(cmd *exec.Cmd) { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
