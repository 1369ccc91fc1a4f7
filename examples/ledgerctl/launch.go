package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/sessionledger/ledger"
)

func launch(ctx context.Context, a *app, flags *flag.FlagSet) func([]string) error {
	hosted := flags.Bool("hosted", false, "in a terminal of the ledger's own, which outlives this one (the default on a terminal)")
	direct := flags.Bool("direct", false, "in the place of this command, with its exit status and signals")
	detach := flags.Bool("d", false, "hosted, and return once the agent runs")
	name := text(flags, "name", "`name` of the hosted session")
	return func(args []string) error {
		if len(args) == 0 || args[0] == "" || *hosted && *direct || *direct && (*detach || *name != "") {
			return fmt.Errorf("%w: give a command, and either -direct or any of -hosted, -d and -name", errUsage)
		}
		ask := *hosted || *detach || *name != ""
		opts := ledger.LaunchOptions{Argv: args, Name: *name}
		s, err := a.open()
		if err != nil && ask {
			return err
		}
		if err != nil {
			return runPlainly(args)
		}
		defer s.Close()
		h := &ledger.Host{Store: s}
		if *direct || !ask && !a.onTerminal(args) {
			return h.Exec(ctx, opts)
		}
		e, err := h.Launch(ctx, opts)
		if err != nil && !ask && e.LedgerID == "" && ctx.Err() == nil && !errors.Is(err, ledger.ErrInvalid) &&
			!errors.Is(err, ledger.ErrUnknown) && !errors.Is(err, ledger.ErrNotFound) && !errors.Is(err, ledger.ErrKillIntended) { // killed meanwhile
			// Nothing of it is left, and nobody asked for hosting: the ledger keeps no one
			// from working.
			a.note("not hosted: %s", plain(err.Error()))
			return h.Exec(ctx, opts)
		}
		if err != nil {
			return begun(e, err)
		}
		if *detach || !isTerminal(os.Stdin) || !isTerminal(a.stdout) {
			return a.showOne(ctx, s, e.LedgerID)
		}
		return h.Attach(ctx, e.LedgerID, ledger.AttachOptions{})
	}
}

// begun is the error of a launch. One for want of evidence says that nothing was done, which
// does not hold where a row was left.
func begun(e ledger.Entry, err error) error {
	if e.LedgerID == "" || !errors.Is(err, ledger.ErrUnknown) {
		return err
	}
	return fmt.Errorf("%v; its row stands: ledgerctl show %s", err, e.LedgerID)
}

// tmuxKnows reports whether there is a description of a terminal, without which nothing can
// be shown in it: there a launch is direct, as without a terminal.
func tmuxKnows(term string) bool {
	if term == "" || term == "dumb" || strings.ContainsRune(term, '/') {
		return false
	}
	for _, dir := range []string{os.Getenv("TERMINFO"), filepath.Join(os.Getenv("HOME"), ".terminfo"),
		"/etc/terminfo", "/lib/terminfo", "/usr/share/terminfo", "/usr/lib/terminfo", "/usr/share/lib/terminfo"} {
		for _, first := range []string{term[:1], fmt.Sprintf("%x", term[0])} {
			if _, err := os.Stat(filepath.Join(dir, first, term)); dir != "" && err == nil {
				return true
			}
		}
	}
	return false
}

// scripted reports whether an agent with these arguments does one thing and ends.
func scripted(runtime string, args []string) bool {
	var own []string
	switch runtime {
	case "aider":
		own = []string{"--message", "-m", "--message-file"}
	case "amp":
		own = []string{"-x", "--execute"}
	case "codex":
		own = []string{"exec", "e"}
	case "opencode":
		own = []string{"run"}
	}
	own = append(own, "-p", "--print", "--prompt", "--version", "-v", "-V", "--help", "-h")
	if i := slices.Index(args, "--"); i >= 0 {
		args = args[:i]
	}
	return slices.ContainsFunc(args, func(arg string) bool {
		name, _, _ := strings.Cut(arg, "=")
		return slices.Contains(own, name)
	})
}

// onTerminal reports whether a command is to be hosted: a person is there to look at it,
// and it is neither a service of the agent nor made to print something and end.
func (a *app) onTerminal(argv []string) bool {
	name, session := ledger.BuiltinRuntimes().Match(argv, nil)
	return isTerminal(os.Stdin) && isTerminal(a.stdout) && tmuxKnows(os.Getenv("TERM")) && (session || name == "") && !scripted(name, argv[1:])
}

func attach(ctx context.Context, a *app, flags *flag.FlagSet) func([]string) error {
	return func(args []string) error {
		s, err := a.open()
		if err != nil {
			return err
		}
		defer s.Close()
		e, err := a.one(ctx, s, args)
		if err != nil {
			return err
		}
		h := &ledger.Host{Store: s}
		if isTerminal(os.Stdin) && isTerminal(a.stdout) {
			return h.Attach(ctx, e.LedgerID, ledger.AttachOptions{})
		}
		// Off a terminal there is nothing to show it in: make sure that it runs, and say so.
		e, err = h.Reopen(ctx, e.LedgerID, ledger.AttachOptions{})
		if err != nil {
			return begun(e, err)
		}
		return a.showOne(ctx, s, e.LedgerID)
	}
}

// showOne prints one session as list does.
func (a *app) showOne(ctx context.Context, s *ledger.Store, id string) error {
	sess, err := s.Session(ctx, id, nil)
	if err != nil {
		return err
	}
	if a.json {
		return a.line(sess)
	}
	a.table(a.stdout, listHead, [][]cell{sessionCells(sess)})
	fmt.Fprintln(a.stdout, "Everything about it: ledgerctl show "+id)
	return nil
}

// shim is this program called under a runtime's name, by a link in the shim folder: a
// launch of the next program of that name on PATH. Whatever goes wrong with the record,
// the agent runs.
func shim(ctx context.Context, a *app, argv []string) int {
	name := filepath.Base(argv[0])
	folder := os.Getenv("AGENT_LEDGER_SHIMS")
	if link, err := exec.LookPath(argv[0]); folder == "" && err == nil {
		folder = filepath.Dir(link)
	}
	program, err := ledger.NextOnPath(name, folder)
	if err != nil {
		fmt.Fprintf(a.stderr, "ledgerctl: there is no %s on PATH behind the shim\n", plain(name))
		return 127
	}
	opts := ledger.LaunchOptions{Runtime: name, Argv: append([]string{program}, argv[1:]...)}
	s, err := a.open()
	if err != nil {
		return a.exit(runPlainly(opts.Argv))
	}
	defer s.Close()
	h := &ledger.Host{Store: s}
	_, err = s.Find(ctx, ledger.Query{PID: os.Getpid()})
	if recorded := err == nil; recorded || !a.onTerminal(opts.Argv) {
		return a.exit(h.Exec(ctx, opts)) // what has been launched is where it belongs
	}
	e, err := h.Launch(ctx, opts)
	if err != nil && e.LedgerID == "" && ctx.Err() == nil {
		return a.exit(h.Exec(ctx, opts)) // nothing of it is left
	}
	if err != nil {
		return a.exit(begun(e, err))
	}
	return a.exit(h.Attach(ctx, e.LedgerID, ledger.AttachOptions{}))
}

// runPlainly becomes a command without any record of it, and without the identity of the
// session that it was started from: no row says that it is one's child.
func runPlainly(argv []string) error {
	program, err := exec.LookPath(argv[0])
	if err != nil {
		return err
	}
	env := slices.DeleteFunc(os.Environ(), func(kv string) bool {
		return strings.HasPrefix(kv, "AGENT_LEDGER_ID=") || strings.HasPrefix(kv, "AGENT_LEDGER_OWN_ID=") || strings.HasPrefix(kv, "AGENT_LEDGER_ATTEMPT=")
	})
	err = syscall.Exec(program, argv, env)
	if errors.Is(err, syscall.ENOEXEC) {
		err = fmt.Errorf("%q is no program", program)
	}
	return err
}

// isShim reports whether this program was called under a runtime's name.
func isShim(argv0 string) bool {
	name := filepath.Base(argv0)
	if strings.HasPrefix(name, "ledgerctl") {
		return false
	}
	if _, known := ledger.BuiltinRuntimes().Lookup(name); known {
		return true
	}
	folder := os.Getenv("AGENT_LEDGER_SHIMS")
	if folder == "" {
		return false
	}
	_, err := os.Lstat(filepath.Join(folder, name))
	return err == nil
}
