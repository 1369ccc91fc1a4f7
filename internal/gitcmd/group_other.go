//go:build !unix

package gitcmd

import "os/exec"

// Git syncs what it writes: an object is read-only, and could not be synced without write access.
const (
	fsyncComponents = "committed"
	syncsObjects    = false
)

func ownGroup(*exec.Cmd) {}

func terminateGroup(*exec.Cmd) {}

func killGroup(cmd *exec.Cmd) { _ = cmd.Process.Kill() }
