package main

import "golang.org/x/sys/unix"

const getTermios, setTermios = unix.TIOCGETA, unix.TIOCSETA

// startTicks is empty: only Linux has them.
func startTicks() string { return "" }
