//go:build !linux

package flock

import "io"

// try leaves all locks to the wait.
func try(string) (io.Closer, bool) { return nil, false }
