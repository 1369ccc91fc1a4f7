//go:build !linux

package durable

import "os"

// runChild is for the tests that inject faults, which need Linux.
func runChild(string) { os.Exit(3) }
