//go:build unix

package tmux

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"
)

// program is what runs in panes for the tests of Submit: the test binary called
// as "ledger-test-program KIND LOG". It puts its terminal into raw mode, logs every
// byte that it reads, and then behaves as its kind says.
func program(kind string) {
	log, err := os.OpenFile(os.Args[3], os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		panic(err)
	}
	stty := exec.Command("stty", "raw", "-echo")
	stty.Stdin = os.Stdin
	if err := stty.Run(); err != nil {
		panic(err)
	}
	p := composer{kind: kind}
	p.draw()
	if kind == "busy" { // never reads
		select {}
	}
	buf := make([]byte, 4096)
	for {
		n, err := os.Stdin.Read(buf)
		if err != nil {
			os.Exit(0)
		}
		log.Write(buf[:n])
		p.take(string(buf[:n]))
		if kind == "slow" { // shows the text, and reads on when it is told to
			for {
				if _, err := os.Stat(os.Args[3] + ".go"); err == nil {
					break
				}
				time.Sleep(10 * time.Millisecond)
			}
		}
	}
}

const pasteStart, pasteEnd = "\x1b[200~", "\x1b[201~"

// composer is a program with an input box, as agents have.
type composer struct {
	kind     string
	in       string // read and not understood yet
	text     string
	said     []string
	pasting  bool
	enters   int
	pastes   int
	answered bool
}

func (c *composer) take(s string) {
	c.in += s
	for c.in != "" {
		switch {
		case strings.HasPrefix(c.in, pasteStart):
			c.in, c.pasting = c.in[len(pasteStart):], true
			c.pastes++
		case strings.HasPrefix(c.in, pasteEnd):
			c.in, c.pasting = c.in[len(pasteEnd):], false
		case strings.HasPrefix(pasteStart, c.in) || strings.HasPrefix(pasteEnd, c.in):
			return // the rest of the sequence is still to come
		case c.in[0] == '\r' && !c.pasting:
			c.in = c.in[1:]
			c.enter()
		default:
			n := 1 + strings.IndexAny(c.in[1:]+"\x1b", "\x1b\r") // a whole run, since texts are long
			if c.kind != "dialog" && c.kind != "silent" && !(c.kind == "drops-first" && c.pastes == 1) {
				c.text += strings.ReplaceAll(c.in[:n], "\r", "\n")
			}
			c.in = c.in[n:]
		}
	}
	c.draw()
}

func (c *composer) enter() {
	c.enters++
	switch c.kind {
	case "dialog":
		c.answered = true
	case "silent":
	case "enter-lost":
	case "first-enter-lost":
		if c.enters > 1 {
			c.submit()
		}
	case "exits":
		os.Exit(0)
	default:
		c.submit()
	}
}

func (c *composer) submit() {
	c.said = append(c.said, c.text)
	c.text = ""
}

func (c *composer) draw() {
	out := "\x1b[?2004h\x1b[H\x1b[2J"
	if c.kind == "dialog" {
		out += "Run this command?\r\n 1. Yes\r\n 2. No\r\n"
		if c.answered {
			out += "ANSWERED"
		}
		fmt.Print(out)
		return
	}
	for _, s := range c.said {
		out += "said: " + strings.ReplaceAll(s, "\n", "\r\n") + "\r\n"
	}
	shown := strings.ReplaceAll(c.text, "\n", "\r\n  ")
	if n := strings.Count(c.text, "\n"); c.kind == "folds" && n > 0 {
		shown = fmt.Sprintf("[Pasted text #1 +%d lines]", n)
	}
	out += "> " + shown
	if c.kind == "parked" { // the cursor is drawn, the real one is elsewhere
		out += "\x1b[24;1H"
	}
	fmt.Print(out)
}
