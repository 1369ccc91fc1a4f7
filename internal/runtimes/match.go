package runtimes

import (
	"path"
	"slices"
	"strings"
)

// services are first arguments that make a process of any runtime a service
// and no session.
var services = []string{
	"daemon", "mcp", "install", "update", "doctor", "config", "migrate-installer",
	"setup-token", "login", "logout", "completion",
}

// wrappers are programs that run others and are no session themselves, whatever
// a table says: multiplexers, shells, and what stands before a command.
var wrappers = []string{
	"tmux", "screen", "dtach", "abduco", "zellij",
	"sh", "bash", "dash", "zsh", "fish", "ksh", "mksh", "csh", "tcsh", "ash", "busybox", "nu", "xonsh", "pwsh",
	"env", "sudo", "doas", "su", "nohup", "nice", "ionice", "setsid", "stdbuf", "timeout", "time",
	"script", "strace", "ltrace", "gdb", "xargs", "watch", "flock", "systemd-run", "systemd-inhibit",
	"ssh", "mosh-server", "npx", "npm", "pnpm", "yarn", "bunx", "uv", "uvx", "pipx",
}

// isInterpreter reports the programs that CLIs written in a script language run
// under. Their own name says nothing: the script does.
func isInterpreter(name string) bool {
	switch name {
	case "node", "nodejs", "bun", "deno", "pypy", "pypy3":
		return true
	}
	version, ok := strings.CutPrefix(name, "python")
	return ok && strings.Trim(version, "0123456789.") == ""
}

// A command is a command line taken apart. Its rest are the arguments of the
// program, which under an interpreter is the script or module.
type command struct {
	argv0, name    string
	script, module string
	rest           []string
}

func parse(args []string) (command, bool) {
	if len(args) == 0 || args[0] == "" {
		return command{}, false
	}
	c := command{argv0: args[0], name: base(args[0]), rest: args[1:]}
	if isInterpreter(c.name) {
		c.script, c.module, c.rest = script(c.name, args[1:])
	}
	return c, true
}

func base(p string) string { return p[strings.LastIndexByte(p, '/')+1:] }

// script finds what an interpreter was told to run: a script, or a module with
// -m. Both are empty when it runs neither. Rest is what follows.
func script(interpreter string, args []string) (script, module string, rest []string) {
	for i := 0; i < len(args); i++ {
		switch a := args[i]; {
		case a == "--" && i+1 < len(args):
			return args[i+1], "", args[i+2:]
		case a == "" || a == "-" || a == "--":
			return "", "", nil
		case a == "run" && (interpreter == "bun" || interpreter == "deno"):
		case a[0] != '-':
			return a, "", args[i+1:]
		case strings.HasPrefix(a, "--"):
			if !strings.Contains(a, "=") && slices.Contains(valued, a) {
				i++
			}
			if a == "--eval" || a == "--print" {
				return "", "", nil
			}
		default:
			// A cluster of one-letter options, of which a last one may take the
			// remainder or the next argument.
			letter := strings.IndexAny(a[1:], "mcepXWrC")
			if letter < 0 {
				continue
			}
			value := a[letter+2:]
			if value == "" {
				if i++; i < len(args) {
					value = args[i]
				}
			}
			switch a[letter+1] {
			case 'm':
				return "", value, args[min(i+1, len(args)):]
			case 'c', 'e', 'p': // code on the command line
				return "", "", nil
			}
		}
	}
	return "", "", nil
}

// valued are the interpreters' long options whose value is an argument of its
// own. All others are taken to have none.
var valued = []string{
	"--require", "--import", "--loader", "--experimental-loader", "--conditions", "--title",
	"--check-hash-based-pycs",
}

// Wrapper reports whether a command line is that of a multiplexer, a shell or another
// program that runs others: it is no session itself, whatever anybody says.
func Wrapper(args []string) bool {
	c, ok := parse(args)
	return ok && slices.Contains(wrappers, strings.TrimPrefix(c.name, "-"))
}

// Match tells which runtime a process with that command line runs. The command
// line decides, not the file behind it. Exe names that file; it is asked only
// where a name is so common that its path must prove it, may be nil, and an
// error of it means no match. A service of a runtime matches too.
func (t Table) Match(args []string, exe func() (string, error)) (name string, ok bool) {
	s, _, ok := t.match(args, exe)
	if !ok {
		return "", false
	}
	return s.Name, true
}

// Service reports whether a process that matched is a service and no session:
// whether its first argument, after the script under an interpreter, is one of
// the services of that runtime or of all.
func (t Table) Service(args []string, exe func() (string, error)) bool {
	s, c, ok := t.match(args, exe)
	return ok && s.service(c.rest)
}

func (s *Spec) service(rest []string) bool {
	return len(rest) > 0 && (slices.Contains(services, rest[0]) || slices.Contains(s.Services, rest[0]))
}

// Continues reports whether the process with the command line child does its
// parent's own work under another program: a script that starts the native
// build, or itself once more with other interpreter options. Both run one
// runtime, the parent by an interpreter, with the same arguments; the two are
// one session.
func (t Table) Continues(parent, child []string, exe func() (string, error)) bool {
	ps, pc, ok := t.match(parent, nil)
	if !ok || pc.script == "" && pc.module == "" {
		return false
	}
	cs, cc, ok := t.match(child, exe)
	return ok && cs.Name == ps.Name && slices.Equal(pc.rest, cc.rest)
}

// match returns the entry of the table whose process has this command line.
func (t Table) match(args []string, exe func() (string, error)) (*Spec, command, bool) {
	c, ok := parse(args)
	if !ok || slices.Contains(wrappers, c.name) {
		return nil, c, false
	}
	for i := range t {
		if c, ok := t[i].matches(c, exe); ok {
			return &t[i], c, true
		}
	}
	return nil, c, false
}

func (s *Spec) matches(c command, exe func() (string, error)) (command, bool) {
	switch {
	case c.module != "":
		return c, slices.Contains(s.Modules, c.module)
	case c.script != "":
		return c, slices.Contains(s.Argv0, base(c.script)) || hasSuffix(c.script, s.Scripts)
	case isInterpreter(c.name):
		return c, false
	case slices.Contains(s.Argv0, c.name), hasSuffix(c.argv0, s.Paths):
		return s.behindScript(c), true
	case slices.Contains(s.Common, c.name):
		behind := s.behindScript(c)
		return behind, behind.script != "" || hasElement(c.argv0, s.Proof) || proven(exe, s.Proof)
	}
	return c, false
}

// behindScript looks for a script of the runtime behind a name of the runtime:
// a launcher that sets argv[0] itself leaves the interpreter's arguments.
func (s *Spec) behindScript(c command) command {
	if len(c.rest) == 0 || len(s.Scripts) == 0 {
		return c
	}
	if file, _, rest := script("node", c.rest); file != "" && hasSuffix(file, s.Scripts) {
		c.script, c.rest = file, rest
	}
	return c
}

func proven(exe func() (string, error), element string) bool {
	if exe == nil {
		return false
	}
	p, err := exe()
	return err == nil && hasElement(p, element)
}

func hasElement(p, element string) bool {
	return slices.Contains(strings.Split(p, "/"), element)
}

// hasSuffix reports whether p ends in one of the suffixes, element by element.
func hasSuffix(p string, suffixes []string) bool {
	for _, suffix := range suffixes {
		tail := p
		for range strings.Count(p, "/") - strings.Count(suffix, "/") {
			_, tail, _ = strings.Cut(tail, "/")
		}
		if ok, _ := path.Match(suffix, tail); ok {
			return true
		}
	}
	return false
}

// CanBeRuntime reports whether a program's name may be taken for a runtime's: that of an
// interpreter, a shell or a wrapper would make a session of every script.
func CanBeRuntime(name string) bool {
	return name != "" && !slices.Contains(wrappers, name) && !isInterpreter(name)
}
