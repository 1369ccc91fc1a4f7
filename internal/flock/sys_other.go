//go:build !unix

package flock

import "io/fs"

const openFlags = 0

// lax is for systems whose files have modes.
func lax(fs.FileMode) bool { return false }
