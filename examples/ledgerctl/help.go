package main

import (
	"flag"
	"fmt"
	"io"
	"strings"
)

// helpOut is where asked-for help goes: standard output, unless that is promised to JSON.
func (a *app) helpOut() io.Writer {
	if a.json {
		return a.stderr
	}
	return a.stdout
}

// overview lists the commands.
func (a *app) overview(w io.Writer, global *flag.FlagSet) {
	fmt.Fprint(w, "Usage: ledgerctl [FLAGS] COMMAND [ARGUMENTS]\n\n")
	for _, c := range commands() {
		fmt.Fprintf(w, "  %-22s %s\n", strings.TrimSpace(c.name+" "+c.args), c.does)
	}
	fmt.Fprint(w, "\nEach command explains itself with -h. Flags of all commands:\n\n")
	printFlags(w, global, nil)
}

// explain describes one command.
func (a *app) explain(w io.Writer, c command, flags *flag.FlagSet) {
	fmt.Fprintf(w, "Usage: ledgerctl %s\n\n", strings.TrimSpace(c.name+" [FLAGS] "+c.args))
	fmt.Fprintf(w, "%s.\n\n", strings.ToUpper(c.does[:1])+c.does[1:])
	if printFlags(w, flags, a.flags()) > 0 {
		fmt.Fprintln(w)
	}
	fmt.Fprint(w, "ledgerctl -h explains -dir, -shims and -json, which every command takes.\n")
}

// printFlags describes the flags that are not in but, and counts them.
func printFlags(w io.Writer, flags, but *flag.FlagSet) (n int) {
	own := flag.NewFlagSet("", flag.ContinueOnError)
	own.SetOutput(w)
	flags.VisitAll(func(f *flag.Flag) {
		if but == nil || but.Lookup(f.Name) == nil {
			own.Var(f.Value, f.Name, f.Usage)
			own.Lookup(f.Name).DefValue = f.DefValue
			n++
		}
	})
	own.PrintDefaults()
	return n
}
