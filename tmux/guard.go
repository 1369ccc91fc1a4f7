package tmux

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Guard is what must hold of a pane for an action on it, checked by the server
// in the dispatch that acts. [Pane.Guard] makes one from what was seen; change a
// member to expect something else. Server.PID, Pane and, unless Dead, PID are
// required.
type Guard struct {
	Server ServerID
	Pane   string // "%N"

	// PID is the pane's own process; it is not looked at if Dead.
	PID int
	// StartTicks, if not 0, is the start time of that process in clock ticks
	// after boot. tmux does not know it: it is compared with /proc just before
	// the dispatch.
	StartTicks uint64
	// Dead means that the pane's process must have ended.
	Dead bool

	// Ledger and Attempt are the exact values of OptionID and OptionAttempt;
	// "" means that it must not be set. Letters, digits and ._:@/+- are
	// possible, others give ErrInvalid.
	Ledger  string
	Attempt string
}

// Guard returns the guard that holds as long as the pane stays what it was
// when listed: same server, process, stamp and mark.
func (p Pane) Guard() Guard {
	g := Guard{Server: p.Server, Pane: p.ID, Dead: p.Dead, Ledger: p.Ledger, Attempt: p.Attempt}
	if !p.Dead {
		g.PID = p.PID
	}
	return g
}

// Action is one step of a guarded dispatch, made by Respawn, Set, Unset or Kill.
type Action struct {
	name string
	rest []string // arguments after the target
	kill bool
	err  error
}

// Start says what runs in a new session, window or respawned pane.
type Start struct {
	// Command is run as it is, without a shell; none is the user's shell
	// (Respawn requires one).
	Command []string
	// Dir is the working directory, absolute. It must exist: tmux would
	// silently use the home directory.
	Dir string
	// Env is added to the server's environment, each "KEY=value".
	Env []string
}

// Respawn replaces the pane's process, ending the old one with SIGHUP, which a
// process may ignore: confirm that it is gone.
func Respawn(start Start) Action {
	args, err := start.args()
	if err == nil && len(start.Command) == 0 {
		err = invalid("respawn without a command")
	}
	return Action{name: "respawn-pane", rest: append([]string{"-k"}, args...), err: err}
}

// Set sets an option of the pane: a user option, whose name begins with @, or one
// of tmux's own, such as remain-on-exit. The value is taken as it is.
func Set(name, value string) Action {
	a := Action{name: "set-option", rest: []string{"-p", "--", name, value}}
	if !isOption(name) {
		a.err = invalid("option name %q", name)
	}
	return a
}

// Unset removes an option of the pane.
func Unset(name string) Action {
	a := Action{name: "set-option", rest: []string{"-p", "-u", "--", name}}
	if !isOption(name) {
		a.err = invalid("option name %q", name)
	}
	return a
}

// Kill removes the pane. It must be the last action.
func Kill() Action { return Action{name: "kill-pane", kill: true} }

func (a Action) command(pane string) command {
	return append(command{a.name, "-t", pane}, a.rest...)
}

// Do performs actions in order, if the guard holds, in one dispatch of the server
// that nothing comes between, and returns the pane as it is afterwards (the zero
// Pane if it is gone). ErrRefused means that the guard did not hold and nothing
// was done; the Pane then is what was found instead.
//
// Success is proved by a fresh token written after the last action. After any
// other error the actions may have run in part, or may run later: a stopped
// server performs what was sent to it when it wakes up. To make that harmless,
// change the mark, so that the late dispatch fails its guard, and look again.
func (s Server) Do(ctx context.Context, g Guard, actions ...Action) (Pane, error) {
	if len(actions) == 0 {
		return Pane{}, invalid("no actions")
	}
	then := make([]command, len(actions))
	for i, a := range actions {
		if a.name == "" {
			return Pane{}, invalid("zero Action")
		}
		if a.err != nil {
			return Pane{}, a.err
		}
		if a.kill && i != len(actions)-1 {
			return Pane{}, invalid("actions after Kill")
		}
		then[i] = a.command(g.Pane)
	}
	ans, err := s.guarded(ctx, g, dispatch{then: then})
	return ans.pane, err
}

// conditions checks a guard for what can be told without the server, and
// returns the rest as format conditions.
func (g Guard) conditions() ([]string, error) {
	switch {
	case g.Server.PID <= 0:
		return nil, invalid("guard without a server process")
	case !isID(g.Pane, '%'):
		return nil, invalid("guard with pane %q", g.Pane)
	case g.PID <= 0 && !g.Dead:
		return nil, invalid("guard without a pane process")
	case !plain(g.Ledger), !plain(g.Attempt):
		return nil, invalid("guard with stamp %q, mark %q", g.Ledger, g.Attempt)
	}
	conds := append(g.Server.conditions(), equal("pane_id", g.Pane),
		equal(OptionID, g.Ledger), equal(OptionAttempt, g.Attempt))
	if g.Dead {
		return append(conds, "#{==:#{?pane_dead,1,0},1}"), nil
	}
	return append(conds, "#{==:#{?pane_dead,1,0},0}", equal("pane_pid", strconv.Itoa(g.PID))), nil
}

func (id ServerID) conditions() []string {
	conds := []string{equal("pid", strconv.Itoa(id.PID))}
	if id.Started != 0 {
		conds = append(conds, equal("start_time", strconv.FormatInt(id.Started, 10)))
	}
	return conds
}

// current refuses when the process behind a pid is another one than meant.
func current(pid int, ticks uint64, what string) error {
	if ticks == 0 {
		return nil
	}
	st, p := readStat(pid)
	switch {
	case p == Unknown:
		return fmt.Errorf("%w: %s: start time of process %d cannot be read", ErrUnsupported, what, pid)
	case p == Absent || st.ticks != ticks:
		return &Error{Args: []string{"if-shell"}, Err: fmt.Errorf("%w: %s: process %d is another one or gone", ErrRefused, what, pid)}
	}
	return nil
}

// dispatch is a guarded sequence.
type dispatch struct {
	before []command // unguarded, before the check, such as load-buffer
	then   []command
	last   []command // after the token, when nothing can be written any more
	orElse []command
	conds  []string // besides those of the guard
	target string   // of the check
	report bool     // whether to report the target, a pane, afterwards
	stdin  []byte
	limit  int
}

// answer is what came back.
type answer struct {
	out  []byte // printed by then
	pane Pane   // with report, as it is afterwards
	held bool   // the guard held and all of then was done
	told bool   // the server answered to the end
}

// guarded performs a dispatch on a pane. The error is nil exactly if held.
func (s Server) guarded(ctx context.Context, g Guard, d dispatch) (answer, error) {
	conds, err := g.conditions()
	if err != nil {
		return answer{}, err
	}
	if err := current(g.Server.PID, g.Server.StartTicks, "server"); err != nil {
		return answer{}, err
	}
	if !g.Dead {
		if err := current(g.PID, g.StartTicks, "pane "+g.Pane); err != nil {
			return answer{}, err
		}
	}
	d.conds = append(conds, d.conds...)
	d.target, d.report = g.Pane, true
	ans, err := s.dispatch(ctx, d)
	if ans.pane.ID != g.Pane {
		ans.pane = Pane{}
	}
	return ans, err
}

func (s Server) dispatch(ctx context.Context, d dispatch) (answer, error) {
	token := newToken()
	then := append(append(append([]command{}, d.then...), command{"display-message", "-p", token + "-held"}), d.last...)
	orElse := append(append([]command{}, d.orElse...), command{"display-message", "-p", token + "-refused"})
	yes, err := renderLine(then)
	if err != nil {
		return answer{}, err
	}
	no, err := renderLine(orElse)
	if err != nil {
		return answer{}, err
	}
	check := command{"if-shell", "-F"}
	if d.target != "" {
		check = append(check, "-t", d.target)
	}
	cmds := append(append([]command{}, d.before...), append(check, and(d.conds), yes, no))
	if d.report {
		cmds = append(cmds,
			command{"display-message", "-p", "-t", d.target, serverFormat},
			command{"display-message", "-p", "-t", d.target, paneFormat},
			command{"display-message", "-p", endFormat(token)})
	}
	argv, err := renderArgv(cmds)
	if err != nil {
		return answer{}, err
	}
	out, err := s.exec(ctx, request{argv: argv, stdin: d.stdin, limit: d.limit})

	var ans answer
	tail := out
	for _, verdict := range []string{"-held\n", "-refused\n"} {
		if i := bytes.Index(out, []byte(token+verdict)); i >= 0 {
			ans.out, tail = out[:i], out[i+len(token)+len(verdict):]
			ans.held = verdict == "-held\n"
			if !ans.held && err == nil {
				err = &Error{Args: []string{"if-shell"}, Err: ErrRefused}
			}
			break
		}
	}
	if d.report {
		ans.pane, ans.told = readReport(tail, token)
	}
	switch {
	case ans.held && (ans.told || !d.report):
		return ans, nil // proved, whatever happened to the client later
	case err == nil:
		err = &Error{Args: []string{"if-shell"}, Err: errors.New("no proof of what was done")}
	}
	ans.held = false
	return ans, err
}

// readReport reads what follows the token. A pane that is gone leaves a
// record of empty fields, which is no pane.
func readReport(tail []byte, token string) (Pane, bool) {
	if i := bytes.Index(tail, []byte("S|")); i > 0 {
		tail = tail[i:] // output of a branch that failed before its token
	}
	if !bytes.HasSuffix(tail, []byte("\n"+endFormat(token)+"\n")) {
		return Pane{}, false
	}
	recs, err := decode(tail)
	if err != nil || len(recs) != 3 {
		return Pane{}, true
	}
	p, _ := onePane(recs[:2])
	return p, true
}

func equal(variable, value string) string { return "#{==:#{" + variable + "}," + value + "}" }

// and nests, since a format's && takes two operands before 3.6.
func and(conds []string) string {
	all := conds[0]
	for _, c := range conds[1:] {
		all = "#{&&:" + all + "," + c + "}"
	}
	return all
}

func isOption(name string) bool { return name != "" && name[0] != '-' && plain(name) }

// args renders the options and the command of a start.
func (st Start) args() ([]string, error) {
	var args []string
	if st.Dir != "" {
		if !filepath.IsAbs(st.Dir) {
			return nil, invalid("directory %q is not absolute", st.Dir)
		}
		if fi, err := os.Stat(st.Dir); err != nil {
			return nil, fmt.Errorf("%w: directory: %w", ErrInvalid, err)
		} else if !fi.IsDir() {
			return nil, invalid("%q is not a directory", st.Dir)
		}
		args = append(args, "-c", literal(st.Dir))
	}
	for _, kv := range st.Env {
		if strings.IndexByte(kv, '=') <= 0 {
			return nil, invalid("environment entry without a key and =")
		}
		args = append(args, "-e", kv)
	}
	if len(st.Command) == 0 {
		return args, nil
	}
	if st.Command[0] == "" {
		return nil, invalid("command with an empty name")
	}
	args = append(args, "--")
	if len(st.Command) == 1 {
		// tmux gives a single word to a shell; env takes it for what it is.
		if strings.Contains(st.Command[0], "=") {
			return nil, invalid("command %q without arguments contains =", st.Command[0])
		}
		args = append(args, "env", "--")
	}
	return append(args, st.Command...), nil
}
