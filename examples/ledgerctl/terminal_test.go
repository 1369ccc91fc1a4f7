//go:build linux

package main

import (
	"bufio"
	"bytes"
	"strings"
	"testing"
	"time"
)

// What takes longer than a second says so on a terminal, and takes it away before the
// result. What does not is silent, as is everything off a terminal.
func TestProgressIsShownAfterASecond(t *testing.T) {
	master, slave, err := openTerminal(80)
	if err != nil {
		t.Fatal(err)
	}
	defer master.Close()
	defer slave.Close()
	a := newApp(nil, slave, slave)
	a.busy("too quick to be seen")()
	began := time.Now()
	done := a.busy("working")
	terminal := bufio.NewReader(master)
	got, err := terminal.ReadString('g')
	if took := time.Since(began); err != nil || got != "working" || took < time.Second {
		t.Errorf("%q after %s, %v", got, took, err)
	}
	done()
	done()
	a.note("result")
	if got, err := terminal.ReadString('\n'); err != nil || got != "…\r\x1b[Kresult\r\n" {
		t.Errorf("then %q, %v", got, err)
	}

	var out bytes.Buffer
	quiet := newApp(nil, slave, &out)
	quiet.busy("working")()
	quiet.json = true
	quiet.tip("a hint")
	if out.Len() > 0 {
		t.Errorf("off a terminal: %q", &out)
	}
}

func TestWidthIsTheTerminals(t *testing.T) {
	master, slave, err := openTerminal(33)
	if err != nil {
		t.Fatal(err)
	}
	defer master.Close()
	defer slave.Close()
	if n, ok := terminalWidth(slave); n != 33 || !ok {
		t.Errorf("width %d, %t", n, ok)
	}
	if n, ok := terminalWidth(&strings.Builder{}); n != 0 || ok {
		t.Errorf("width of no terminal %d, %t", n, ok)
	}
}
