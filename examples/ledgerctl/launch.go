package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/sessionledger/ledger"
)

func launch(ctx context.Context, a *app, flags *flag.FlagSet) func([]string) error {
	hosted := flags.Bool("hosted", false, "in a terminal of the ledger's own, which outlives this one (the default on a terminal)")
	direct := flags.Bool("direct", false, "in the place of this command, with its exit status and signals")
	detach := flags.Bool("d", false, "hosted, and return once the agent runs")
	name := flags.String("name", "", "`name` of the hosted session")
	return func(args []string) error {
		if len(args) == 0 || *hosted && *direct || *direct && *detach {
			return fmt.Errorf("%w: give a command, and at most one of -hosted and -direct", errUsage)
		}
		s, err := a.open()
		if err != nil {
			return err
		}
		defer s.Close()
		h := &ledger.Host{Store: s}
		opts := ledger.LaunchOptions{Argv: args, Name: *name}
		onTerminal := isTerminal(os.Stdin) && isTerminal(a.stdout)
		if *direct || !*hosted && !*detach && !onTerminal {
			return h.Exec(ctx, opts)
		}
		e, err := h.Launch(ctx, opts)
		if err != nil {
			return err
		}
		if *detach || !onTerminal {
			return a.showOne(ctx, s, e.LedgerID)
		}
		return h.Attach(ctx, e.LedgerID, ledger.AttachOptions{})
	}
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
			return err
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
	if folder == "" {
		if link, err := exec.LookPath(argv[0]); err == nil {
			folder = filepath.Dir(link)
		}
	}
	program, err := ledger.NextOnPath(name, folder)
	if err != nil {
		fmt.Fprintf(a.stderr, "ledgerctl: there is no %s on PATH behind the shim\n", name)
		return 127
	}
	opts := ledger.LaunchOptions{Runtime: name, Argv: append([]string{program}, argv[1:]...)}
	s, err := a.open()
	if err != nil {
		return a.exit(runPlainly(opts.Argv))
	}
	defer s.Close()
	h := &ledger.Host{Store: s}
	if !isTerminal(os.Stdin) || !isTerminal(a.stdout) {
		return a.exit(h.Exec(ctx, opts))
	}
	e, err := h.Launch(ctx, opts)
	if e.LedgerID == "" && err != nil && !errors.Is(err, ledger.ErrInvalid) {
		return a.exit(h.Exec(ctx, opts))
	}
	if err != nil {
		return a.exit(err)
	}
	return a.exit(h.Attach(ctx, e.LedgerID, ledger.AttachOptions{}))
}

// runPlainly runs a command without any record of it.
func runPlainly(argv []string) error {
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	return cmd.Run()
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
