package ledger

import (
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/sessionledger/ledger/internal/procscan"
)

// What the processes above a session tell: which multiplexer holds it, and who launched it.

// muxSight is a multiplexer among a process's ancestors.
type muxSight struct {
	kind    string    // MuxTmux or MuxDtach
	socket  string    // absolute; "": not known
	process ProcessID // its server
	below   []int     // pids of the chain from the session's process up to below the server
}

// muxesAbove finds the multiplexers above a process, the nearest first. environ is that
// process's environment, which names the socket of the nearest tmux server.
func (p *pass) muxesAbove(pid int, environ func(string) (string, bool)) []muxSight {
	var found []muxSight
	chain := []int{pid}
	for above := range p.snap.Ancestors(pid) {
		m := muxSight{process: p.identity(above), below: slices.Clone(chain)}
		chain = append(chain, above.PID)
		switch {
		case isTmuxServer(above):
			m.kind, m.socket = MuxTmux, p.tmuxSocket(above, environ)
		default:
			socket, ok := dtachSocket(above.Args)
			if !ok {
				continue
			}
			m.kind, m.socket = MuxDtach, p.absolute(above.PID, socket)
		}
		found = append(found, m)
	}
	return found
}

// isTmuxServer goes by the name that the server gives itself, its program's and ": server",
// which the kernel keeps 15 bytes of and tmux cuts at a word: its command line is that of the
// client which happened to start it. A client, which can be cut to the same, has nothing
// below it. A program of another name than tmux-something is not known.
func isTmuxServer(q procscan.Proc) bool {
	program, role, ok := strings.Cut(q.Comm, ":")
	return ok && strings.HasPrefix(program, "tmux") && (role == " server" || role == "" && program != "tmux")
}

// tmuxSocket is the socket of a tmux server: as the session's own TMUX variable says,
// where that speaks of this server, else as the server's command line says.
func (p *pass) tmuxSocket(server procscan.Proc, environ func(string) (string, bool)) string {
	if tmux, ok := environ("TMUX"); ok {
		if socket, pid := splitTMUX(tmux); pid == server.PID && filepath.IsAbs(socket) {
			return socket
		}
	}
	socket, label := tmuxArgs(server.Args)
	if socket != "" {
		return p.absolute(server.PID, socket)
	}
	if label == "" || strings.Contains(label, "/") {
		return ""
	}
	env, err := p.snap.Environ(server.PID)
	uid, uidErr := p.snap.UID(server.PID)
	if err != nil || uidErr != nil {
		return ""
	}
	dir, _ := env.Lookup("TMUX_TMPDIR")
	if dir == "" {
		dir = "/tmp"
	}
	if dir, err = filepath.EvalSymlinks(dir); err != nil || !filepath.IsAbs(dir) {
		return ""
	}
	return filepath.Join(dir, "tmux-"+strconv.FormatUint(uint64(uid), 10), label)
}

// splitTMUX takes the variable apart: socket,server's pid,session.
func splitTMUX(value string) (socket string, pid int) {
	rest, _, ok := cutLast(value, ",")
	socket, text, ok2 := cutLast(rest, ",")
	pid, err := strconv.Atoi(text)
	if !ok || !ok2 || err != nil {
		return "", 0
	}
	return socket, pid
}

func cutLast(s, sep string) (before, after string, found bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return s, "", false
}

// tmuxArgs reads -S and -L among the options before tmux's command.
func tmuxArgs(args []string) (socket, label string) {
	for i := 1; i < len(args) && len(args[i]) > 1 && args[i][0] == '-' && args[i] != "--"; i++ {
		cluster := args[i][1:]
		at := strings.IndexAny(cluster, "cfLST") // the options with a value
		if at < 0 {
			continue
		}
		option, value := cluster[at], cluster[at+1:]
		if value == "" {
			if i++; i == len(args) {
				break
			}
			value = args[i]
		}
		switch option {
		case 'S':
			socket = value
		case 'L':
			label = value
		}
	}
	return socket, label
}

// dtachSocket reads the socket of a dtach that creates a session: its mode comes first,
// and the socket after it. One that attaches is no session's ancestor.
func dtachSocket(args []string) (socket string, ok bool) {
	if len(args) < 3 || filepath.Base(args[0]) != "dtach" || args[2] == "" {
		return "", false
	}
	switch args[1] {
	case "-c", "-A", "-n", "-N":
		return args[2], true
	}
	return "", false
}

// absolute resolves a path as that process would; "" where its folder is not known.
func (p *pass) absolute(pid int, path string) string {
	if filepath.IsAbs(path) {
		return filepath.Clean(path)
	}
	dir, err := p.snap.Cwd(pid)
	if err != nil {
		return ""
	}
	return filepath.Join(dir, path)
}

// teller is what the nearest telling ancestor of a session says about who launched it.
type teller int

const (
	tellsNothing teller = iota
	tellsAgent
	tellsPerson
	tellsClock // a scheduler: nobody sat there
)

// tellerAbove asks the ancestors of a process, the nearest first.
func (p *pass) tellerAbove(pid int) teller {
	for above := range p.snap.Ancestors(pid) {
		if len(above.Args) > 0 {
			if _, session := p.runtimes.Match(above.Args, p.exe(above.PID)); session {
				return tellsAgent
			}
		}
		if t := tells(above); t != tellsNothing {
			return t
		}
	}
	return tellsNothing
}

// tells judges one ancestor by its names: the kernel's, and that of its command line,
// which a terminal that is a script has in its first argument.
func tells(q procscan.Proc) teller {
	names := []string{q.Comm}
	for i, arg := range q.Args {
		if i > 1 {
			break
		}
		arg, _, _ = strings.Cut(arg, " ") // "sshd: user@pts/0"
		names = append(names, strings.TrimPrefix(filepath.Base(strings.TrimSuffix(arg, ":")), "-"))
	}
	switch {
	case isTmuxServer(q), slices.ContainsFunc(names[:min(2, len(names))], isPersonal):
		return tellsPerson
	case slices.ContainsFunc(names[:min(2, len(names))], isScheduler):
		return tellsClock
	case len(names) > 2 && strings.HasPrefix(names[1], "python") && isPersonal(names[2]):
		return tellsPerson
	}
	return tellsNothing
}

// personal are programs that have a person in front of them: terminal emulators and
// multiplexers, and what lets one log in. The kernel keeps 15 bytes of a name.
var personal = []string{
	"tmux", "screen", "SCREEN", "zellij", "dtach", "abduco", "mosh-server", "byobu",
	"sshd", "sshd-session", "login", "dropbear", "in.telnetd",
	"gnome-terminal-server", "ptyxis", "ptyxis-agent", "kgx", "konsole", "yakuake", "xterm", "uxterm",
	"rxvt", "urxvt", "urxvtd", "alacritty", "kitty", "wezterm", "wezterm-gui", "wezterm-mux-server",
	"foot", "footclient", "st", "tilix", "terminator", "terminology", "guake", "tilda", "qterminal",
	"xfce4-terminal", "lxterminal", "mate-terminal", "deepin-terminal", "ghostty", "rio", "contour",
	"cool-retro-term", "sakura", "termite", "warp-terminal", "tabby", "hyper",
}

const maxComm = 15

func isPersonal(name string) bool {
	return slices.ContainsFunc(personal, func(p string) bool {
		return name == p || len(name) == maxComm && strings.HasPrefix(p, name)
	})
}

func isScheduler(name string) bool {
	return slices.Contains([]string{"cron", "crond", "CRON", "CROND", "anacron", "atd", "fcron", "busybox-crond"}, name)
}

// isInteractive reports whether a cgroup is a scope that a login or a terminal opens for a
// person.
func isInteractive(cgroup string) bool {
	unit, scope := strings.CutSuffix(filepath.Base(cgroup), ".scope")
	return scope && slices.ContainsFunc([]string{"session-", "vte-spawn-", "tmux-spawn-"}, func(kind string) bool {
		return strings.HasPrefix(unit, kind) && len(unit) > len(kind)
	})
}

// launchEvidence is what tells who launched a session.
type launchEvidence struct {
	read      bool // its environment was read
	factory   bool // it marks a factory's work
	inherited bool // it carries the ledger id of another row
	above     teller
	scoped    bool // it has a terminal, in an interactive scope
}

// launchedBy decides. The first of these counts: a factory's mark; the id of another row;
// the nearest telling ancestor, which says "a person" only for a process whose environment
// could be read; an interactive scope likewise. No evidence is "".
func launchedBy(ev launchEvidence) string {
	switch {
	case ev.factory:
		return LaunchedByFactory
	case ev.inherited, ev.above == tellsAgent:
		return LaunchedByAgent
	case ev.read && (ev.above == tellsPerson || ev.above == tellsNothing && ev.scoped):
		return LaunchedByUser
	}
	return ""
}

// ttyName is the name of a terminal by its device number, without /dev/; "" for none and
// for kinds of which the number does not tell.
func ttyName(device int32) string {
	d := uint32(device)
	major, minor := d>>8&0xfff, d&0xff|d>>12&0xfff00
	switch {
	case major >= 136 && major <= 143:
		return "pts/" + strconv.FormatUint(uint64((major-136)*256+minor), 10)
	case major == 4 && minor < 64:
		return "tty" + strconv.FormatUint(uint64(minor), 10)
	case major == 4:
		return "ttyS" + strconv.FormatUint(uint64(minor-64), 10)
	}
	return ""
}
