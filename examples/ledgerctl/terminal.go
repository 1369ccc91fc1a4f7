package main

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"
)

func isTerminal(w io.Writer) bool {
	_, ok := terminalWidth(w)
	return ok
}

// wantsColor follows the terminal and https://no-color.org.
func wantsColor(w io.Writer) bool {
	return isTerminal(w) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
}

// tip tells a person at a terminal what to do next. Nothing reads it elsewhere.
func (a *app) tip(format string, args ...any) {
	if !a.json && isTerminal(a.stdout) {
		a.note(format, args...)
	}
}

// note tells a person something that is not the command's result.
func (a *app) note(format string, args ...any) {
	a.idle()
	fmt.Fprintf(a.stderr, format+"\n", args...)
}

// busy says on a terminal what the command is at, if that takes longer than a second.
// done takes it away again, and must be called before anything is printed.
func (a *app) busy(doing string) (done func()) {
	if a.json || !isTerminal(a.stderr) {
		return func() {}
	}
	var mu sync.Mutex
	shown, over := false, false
	timer := time.AfterFunc(time.Second, func() {
		mu.Lock()
		defer mu.Unlock()
		if !over {
			shown = true
			fmt.Fprint(a.stderr, doing+"…")
		}
	})
	a.idle = func() {
		timer.Stop()
		mu.Lock()
		defer mu.Unlock()
		if shown && !over {
			fmt.Fprint(a.stderr, "\r\x1b[K")
		}
		over = true
	}
	return a.idle
}
