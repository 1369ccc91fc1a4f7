// Package early gives a program's first goroutine the stack that a hook needs before
// anything is on it.
//
// A stack begins with 2 KB and is moved when it is full. To move it the runtime looks up
// every function that is on it, in tables of which each is a page that nothing else has
// read yet, and that is a tenth of the start of a program which runs for ten milliseconds.
// This package imports nothing and has a path that sorts before the standard library's
// internal packages, so that it is initialised right after the runtime: two functions are
// on the stack then.
package early

var n int // keeps room from being computed by the compiler

func init() { room(n) }

// room needs more than 4 KB, so that the stack is one of 8 KB afterwards.
//
//go:noinline
func room(n int) byte {
	var b [5 << 10]byte
	return b[n%len(b)]
}
