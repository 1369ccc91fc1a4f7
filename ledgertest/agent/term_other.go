//go:build !(linux || darwin)

package main

import "os/exec"

// terminal leaves the terminal in its line mode.
func (a *agent) terminal() (restore func()) { return nil }

func ownGroup(*exec.Cmd) {}

func startTicks() string { return "" }
