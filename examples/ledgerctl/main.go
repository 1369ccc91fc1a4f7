// Ledgerctl shows how the parts of package ledger are wired together, in one small
// binary: every command is a screenful that can be copied.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/sessionledger/ledger"
	_ "github.com/sessionledger/ledger/examples/ledgerctl/internal/early"
	"github.com/sessionledger/ledger/tmux"
)

func main() {
	if os.Getenv(demoAgentEnv) != "" {
		if err := demoAgent(os.Args, os.Stdin); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(exitFailed)
		}
		return
	}
	if isShim(os.Args[0]) {
		os.Exit(shim(context.Background(), newApp(os.Stdin, os.Stdout, os.Stderr), os.Args))
	}
	os.Exit(run(context.Background(), os.Args, os.Stdin, os.Stdout, os.Stderr))
}

func newApp(stdin io.Reader, stdout, stderr io.Writer) *app {
	return &app{stdin: stdin, stdout: &output{Writer: stdout}, stderr: stderr, idle: func() {}}
}

// output remembers a write that failed: few who print look.
type output struct {
	io.Writer
	err error
}

func (o *output) Write(p []byte) (int, error) {
	n, err := o.Writer.Write(p)
	if o.err == nil {
		o.err = err
	}
	return n, err
}

// app is what all commands share.
type app struct {
	command string // that runs; "" before it is known
	dir     string
	shims   string
	json    bool

	servers servers

	stdin  io.Reader
	stdout *output
	stderr io.Writer
	idle   func() // ends what busy shows
}

// command is one verb. Its function gets the arguments after the flags.
type command struct {
	name, args, does string
	run              func(ctx context.Context, a *app, flags *flag.FlagSet) func(args []string) error
}

func commands() []command {
	return []command{
		{"demo", "", "tell the whole story on a scratch ledger, in under a minute", demo},
		{"list", "", "show the open sessions", list},
		{"show", "ID", "show everything about one session", show},
		{"run", "CMD [ARGUMENTS]", "launch an agent with a birth record", launch},
		{"attach", "ID", "reopen a session in this terminal", attach},
		{"enrol", "", "adopt a running process: -runtime NAME -pid N", enrol},
		{"hook", "RUNTIME", "take an agent's hook payload on standard input; silent, always exit 0", hook},
		{"install-hooks", "[RUNTIME…]", "have the agents tell the ledger what they do", installHooks},
		{"uninstall-hooks", "[RUNTIME…]", "take that out of their settings again", uninstallHooks},
		{"kill", "ID…", "end sessions for good, and keep their work", kill},
		{"rescue", "ID", "keep the uncommitted work of a dead session", rescue},
		{"rescues", "[REPO]", "list the rescued work of a repository", rescues},
		{"sweep", "", "make the ledger true: enrol, rescue, close, settle, file", sweep},
		{"reap", "", "end what hosting left behind", reap},
		{"reconcile", "", "settle what a dead coordinator left half done", reconcile},
		{"watch", "", "show changes and exits as they happen", watch},
		{"doctor", "", "say what is wrong, and mend it where asked to", doctor},
	}
}

var errUsage = errors.New("usage")

// run is main without the process: it returns the exit status.
func run(ctx context.Context, argv []string, stdin io.Reader, stdout, stderr io.Writer) int {
	a := newApp(stdin, stdout, stderr)
	err := a.run(ctx, argv[1:])
	if err == nil {
		err = a.stdout.err
	}
	return a.exit(err)
}

func (a *app) run(ctx context.Context, args []string) error {
	flags := a.flags()
	err := flags.Parse(args)
	args = flags.Args()
	switch {
	case errors.Is(err, flag.ErrHelp), err == nil && len(args) > 0 && args[0] == "help":
		a.overview(a.helpOut(), flags)
		return nil
	case err != nil && flags.Arg(0) == "hook":
		return nil // see hook
	case err != nil:
		return fmt.Errorf("%w: %w", errUsage, err)
	case len(args) == 0:
		a.overview(a.stderr, flags)
		return errors.Join(errUsage, errSilent)
	}
	all := commands()
	i := slices.IndexFunc(all, func(c command) bool { return c.name == args[0] })
	if i < 0 {
		return fmt.Errorf("%w: there is no command %q", errUsage, args[0])
	}
	c := all[i]
	a.command = c.name
	if c.name != "hook" { // which is over before anybody could interrupt it
		// A second interrupt kills at once: the ledger loses nothing by that.
		var stop func()
		ends := []os.Signal{os.Interrupt, syscall.SIGTERM}
		if !signal.Ignored(syscall.SIGHUP) { // as nohup has it
			ends = append(ends, syscall.SIGHUP) // the terminal was closed: an operation gives its lease back
		}
		ctx, stop = signal.NotifyContext(ctx, ends...)
		defer stop()
	}
	do := c.run(ctx, a, flags)
	args, err = parse(flags, args[1:], c.name == "run")
	switch {
	case errors.Is(err, flag.ErrHelp):
		a.explain(a.helpOut(), c, flags)
		return nil
	case err != nil && c.name == "hook":
		return nil // an agent would show what is said here, or stop
	case err != nil:
		return fmt.Errorf("%w: %w", errUsage, err)
	}
	if c.args == "" && len(args) > 0 {
		return fmt.Errorf("%w: %s takes no arguments", errUsage, c.name)
	}
	return do(args)
}

// parse takes flags before, between and after the arguments, up to a "--". Behind an
// agent's command all is the agent's own.
func parse(flags *flag.FlagSet, args []string, agent bool) (rest []string, err error) {
	for {
		if err := flags.Parse(args); err != nil {
			return nil, err
		}
		left := flags.Args()
		parsed := len(args) - len(left)
		if agent || len(left) == 0 || parsed > 0 && args[parsed-1] == "--" {
			return append(rest, left...), nil
		}
		rest, args = append(rest, left[0]), left[1:]
	}
}

// flags returns a flag set with the global flags, which are taken before the command and
// after it; a command adds its own. What is wrong with them is reported as every other error.
func (a *app) flags() *flag.FlagSet {
	fs := flag.NewFlagSet("ledgerctl", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	fs.Var((*textValue)(&a.dir), "dir", "the ledger's `folder` (default $AGENT_SESSIONS_DIR, or agent-sessions in the state folder)")
	fs.Var((*textValue)(&a.shims), "shims", "take the runtimes from the links in this `folder` (default $AGENT_LEDGER_SHIMS)")
	fs.Var(&a.servers, "server", "a person's own tmux server, by its `socket`; may be given again")
	fs.BoolVar(&a.json, "json", a.json, "print JSON, one object a line, and nothing else")
	return fs
}

// text is a flag that takes an id, a name or a path. An empty one is a usage error: it comes
// of a shell's variable that is not set, and must not be taken for no flag at all.
func text(flags *flag.FlagSet, name, usage string) *string {
	var v textValue
	flags.Var(&v, name, usage)
	return (*string)(&v)
}

type textValue string

func (v *textValue) String() string { return string(*v) }

func (v *textValue) Set(s string) error {
	if s == "" {
		return errors.New("it is empty")
	}
	*v = textValue(s)
	return nil
}

// span is a flag that takes a time of at least least. Less is a usage error, not a default.
func span(flags *flag.FlagSet, name string, value, least time.Duration, usage string) *time.Duration {
	v := &spanValue{value, least}
	flags.Var(v, name, usage)
	return &v.Duration
}

type spanValue struct {
	time.Duration
	least time.Duration
}

func (v *spanValue) Set(s string) error {
	d, err := time.ParseDuration(s)
	switch {
	case err != nil:
		return errors.New("give a time such as 90s or 5m")
	case d < v.least:
		return fmt.Errorf("it is %s at least", v.least)
	}
	v.Duration = d
	return nil
}

// open opens the ledger as the global flags say.
func (a *app) open() (*ledger.Store, error) {
	opts := &ledger.Options{Servers: a.servers}
	shims := a.shims
	if shims == "" {
		shims = os.Getenv("AGENT_LEDGER_SHIMS")
	}
	if shims != "" {
		self, err := os.Executable()
		if err != nil {
			return nil, err
		}
		if opts.Runtimes, err = ledger.RuntimesFromShims(shims, self); err != nil {
			return nil, err
		}
	}
	return ledger.Open(a.dir, opts)
}

// servers are a person's own tmux servers, as a flag that may be given again.
type servers []tmux.Server

func (v *servers) String() string {
	var sockets []string
	for _, srv := range *v {
		sockets = append(sockets, srv.Socket)
	}
	return strings.Join(sockets, " ")
}

func (v *servers) Set(socket string) error {
	if !filepath.IsAbs(socket) {
		return errors.New("a socket is an absolute path")
	}
	*v = append(*v, tmux.Server{Socket: socket})
	return nil
}

// one finds the session that the arguments name.
func (a *app) one(ctx context.Context, s *ledger.Store, args []string) (ledger.Entry, error) {
	if len(args) != 1 || args[0] == "" {
		return ledger.Entry{}, fmt.Errorf("%w: give one id, or the beginning of one", errUsage)
	}
	e, err := s.Find(ctx, ledger.Query{Prefix: args[0]})
	if errors.Is(err, ledger.ErrNotFound) {
		return e, fmt.Errorf("%w; ledgerctl list -all shows all sessions", err)
	}
	return e, err
}
