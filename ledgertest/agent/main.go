// Agent is a stand-in for the agent CLIs: a small program that leaves the files
// behind, runs the hooks and has the process shape of the real ones, as far as
// these are established, and needs neither an account nor a network.
//
// It is the CLI under whose name it is called: by the base name of argv[0], so
// that a link named claude is a claude, or by -as NAME before all other
// arguments. It takes that CLI's arguments for starting, resuming, continuing
// and forking a conversation, and passes over others. An unknown name is a CLI
// without conversations and hooks.
//
// Every line that it reads is a prompt, which it answers at once, or a command:
//
//	/clear             a new conversation in this process
//	/compact           compaction: the same conversation
//	/fork              a copy of the conversation under a new id
//	/resume ID         another conversation in this process
//	/title TEXT        a title given by a person
//	/stale             a session start that names an id without a transcript
//	/wait              a notification: a permission is asked for
//	/idle              a notification: the agent waits at its prompt
//	/limit             a failed turn: the usage limit
//	/fail ERROR        a failed turn: another error
//	/subagent          a subagent that starts, works and stops
//	/edit FILE TEXT    writes TEXT and a line end into FILE
//	/cd DIR            goes into another directory
//	/work TIME         keeps a processor busy (2, 300ms)
//	/spawn COMMAND     starts a shell command that it does not wait for
//	/nested NAME ...   starts that CLI with those arguments below this process
//	/to LINE           sends a line to the newest nested one
//	/join              ends the newest nested one and waits for it
//	/ignore SIGNALS    ignores hup, term, int from now on
//	/env NAME          prints a variable of its environment
//	/end REASON        ends with that reason
//	/exit              ends
//	/crash             kills itself: no hook runs
//
// It answers each with one line that begins with its name and a colon, the
// first of them after it has started. It ends with its input or terminal, and
// on HUP and TERM; both run the hooks for the end, if the CLI has one.
//
// The environment steers what a test wants to have otherwise:
//
//	LEDGERTEST_AGENT_IGNORE=hup,term   signals that it ignores. Without HUP it
//	                                   outlives its terminal, by a minute.
//	LEDGERTEST_AGENT_EXIT=WHEN:STATUS  ends by itself: "instant", before it has
//	                                   done anything, or "start", after its start
//	LEDGERTEST_AGENT_LOG=FILE          a JSON line for each hook that was run
//	LEDGERTEST_AGENT_QUIRKS=LIST       what some versions do:
//	    lazy      the conversation's file is made with the first prompt
//	    stale     a resume names an id first that has no transcript
//	    twice     a session start is told twice
//	    newid     a resume goes on under a new id
//	    registry  the live registry keeps its first id
//	    unsaved   no transcript where a parent's variables are inherited
//	    cooked    the terminal is left in its line mode
package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

func main() {
	name, args := os.Args[0], os.Args[1:]
	if len(args) > 1 && args[0] == "-as" {
		name, args = args[1], args[2:]
	}
	name = strings.TrimSuffix(filepath.Base(name), ".exe")
	os.Exit(run(name, args))
}

// lingering is how long an agent that ignores HUP lives on without its
// terminal.
const lingering = time.Minute

// An agent is the running program.
type agent struct {
	*cli
	root string // its config home
	cwd  string
	conversation
	parent  string // the claude record that the next one follows
	entry   string // cli, or exec for a single prompt
	began   time.Time
	quirks  []string
	signals chan os.Signal
	lines   chan string
	nested  []*child
	deaf    bool   // HUP is ignored
	raw     bool   // the terminal is not in its line mode
	hungUp  bool   // the terminal went away; set before lines is closed
	listed  string // the id in the live registry
}

// noContext is for what runs on.
var noContext = context.Background()

// run is the program; it returns the exit status.
func run(name string, args []string) int {
	if when, status, ok := exitWanted(); ok && when == "instant" {
		return status
	}
	a := &agent{
		cli: lookup(name), began: time.Now(), entry: "cli",
		quirks:  strings.Split(os.Getenv("LEDGERTEST_AGENT_QUIRKS"), ","),
		signals: make(chan os.Signal, 8), lines: make(chan string),
	}
	l, err := a.parse(args)
	switch {
	case err != nil:
		return a.refuse(err)
	case l.version:
		fmt.Printf("1.0.0 (%s, a stand-in)\n", name)
		return 0
	}
	signal.Notify(a.signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	a.ignore(os.Getenv("LEDGERTEST_AGENT_IGNORE"))
	if restore := a.terminal(); restore != nil {
		defer restore()
	}
	if l.service {
		go a.read(os.Stdin)
		return a.serve()
	}
	if a.cwd, err = realDir(); err == nil {
		a.root = a.home()
		err = a.open(l)
	}
	if err != nil {
		return a.refuse(err)
	}
	return a.session(l)
}

// session is a conversation from its start to its end.
func (a *agent) session(l launch) int {
	if l.print {
		a.entry = "exec"
	}
	a.register("idle")
	defer a.unregister()
	source := "startup"
	switch {
	case l.fork:
		source = "fork"
	case a.resumed:
		source = "resume"
	}
	if a.has("stale") && a.resumed {
		a.startedAs(newUUID(), source, l.prompt)
	}
	a.started(source, l.prompt)
	if a.has("twice") {
		a.started(source, l.prompt)
	}
	a.say("session %s", cmp.Or(a.id, "without an id"))
	if _, status, ok := exitWanted(); ok {
		return status
	}
	if l.prompt != "" {
		a.prompt(l.prompt)
	}
	if l.print {
		a.ended(reasonDone)
		return 0
	}
	return a.loop()
}

// loop obeys until something ends it.
func (a *agent) loop() int {
	go a.read(os.Stdin)
	interrupted := false
	for {
		select {
		case line, ok := <-a.lines:
			if !ok {
				return a.inputEnded()
			}
			interrupted = false
			if status, done := a.obey(line); done {
				return status
			}
		case s := <-a.signals:
			if s != os.Interrupt || interrupted {
				return a.signalled(s)
			}
			interrupted = true // once ends the turn, of which there is none
			a.say("interrupted")
		}
	}
}

// signalled ends the session for a signal.
func (a *agent) signalled(s os.Signal) int {
	a.ended(reasonOther)
	if n, ok := s.(syscall.Signal); ok {
		return 128 + int(n)
	}
	return 1
}

// inputEnded ends the session because a person did, or the terminal went away.
// The latter brings a HUP as well, which may come later or be ignored.
func (a *agent) inputEnded() int {
	if !a.hungUp {
		a.ended(reasonExit)
		return 0
	}
	if a.deaf {
		select {
		case s := <-a.signals:
			return a.signalled(s)
		case <-time.After(lingering):
		}
	}
	return a.signalled(syscall.SIGHUP)
}

// serve is a service: no session, no files. It ends with its input.
func (a *agent) serve() int {
	for {
		select {
		case _, ok := <-a.lines:
			if !ok {
				return 0
			}
		case <-a.signals:
			return 1
		}
	}
}

// say prints one line.
func (a *agent) say(format string, args ...any) {
	fmt.Printf("%s: %s\n", a.name, fmt.Sprintf(format, args...))
}

func (a *agent) refuse(err error) int {
	fmt.Fprintf(os.Stderr, "%s: %v\n", a.name, err)
	return 1
}

func (a *agent) has(quirk string) bool { return slices.Contains(a.quirks, quirk) }

var signalNames = map[string]syscall.Signal{"hup": syscall.SIGHUP, "term": syscall.SIGTERM, "int": syscall.SIGINT}

// ignore ignores signals, named as in "hup,term".
func (a *agent) ignore(list string) {
	for name := range strings.SplitSeq(list, ",") {
		name = strings.TrimSpace(name)
		if s, ok := signalNames[name]; ok {
			signal.Ignore(s)
			a.deaf = a.deaf || name == "hup"
		}
	}
}

// exitWanted reads LEDGERTEST_AGENT_EXIT.
func exitWanted() (when string, status int, ok bool) {
	when, code, _ := strings.Cut(os.Getenv("LEDGERTEST_AGENT_EXIT"), ":")
	status, _ = strconv.Atoi(code)
	return when, status, when != ""
}

// realDir is the working directory without links, as the CLIs record it.
func realDir() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	return filepath.EvalSymlinks(dir)
}
