package tmux

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// DefaultTimeout bounds each command when Server.Timeout is zero.
const DefaultTimeout = 10 * time.Second

// maxSocket is what sockaddr_un.sun_path holds on Linux, less the final NUL.
const maxSocket = 107

// Server names one tmux server and says how to run the tmux binary for it. It
// is a plain value: copy it, build it by hand. The zero value is the user's
// default server. Its methods are safe for concurrent use.
type Server struct {
	// Socket is the absolute path of the server's socket (tmux -S), at most
	// 107 bytes. Name is a socket name in tmux's own folder (tmux -L). At most
	// one of them is set.
	Socket string
	Name   string

	// Binary is the tmux to run; "" is "tmux" on PATH.
	Binary string
	// Config is the configuration file of a server that a call starts; "" is
	// tmux's usual ones.
	Config string
	// Timeout bounds each command; 0 is DefaultTimeout. The context may be
	// tighter.
	Timeout time.Duration
	// Env is the environment of the tmux client, and so of a server it
	// starts. Nil is this process's, without TMUX and TMUX_PANE.
	Env []string
	// Wrap, if set, rewrites the command line of NewSession, the one command
	// that may start a server, so that the server can be placed in a scope or
	// container of its own.
	Wrap func(argv []string) []string

	// Process, if not zero, is the server that is meant: all verdicts are
	// then about that very process, not about whichever one answers at the
	// socket now, and all changes are made there. A Listing is of whichever
	// answers, and says which.
	Process ServerID
	// Probe says whether the process of Process is there. Nil knows nothing.
	// Only it makes a missing socket a definite absence: the socket of a
	// living server can be unlinked, and comes back when it gets SIGUSR1.
	Probe func(pid int, startTicks uint64) Presence
}

// ServerID is the identity of a server process. Pane and session ids are
// unique within one server only, and start again at 0 in the next.
type ServerID struct {
	// PID as the server itself reports it, in its own pid namespace.
	PID int
	// StartTicks is the process's start time in clock ticks after boot, field
	// 22 of /proc/PID/stat. 0 is unknown, as it is on other systems than Linux.
	StartTicks uint64
	// Started is the start time by the server's own account (#{start_time}),
	// in seconds since 1970. 0 is unknown.
	Started int64
}

// see adds what /proc shows of the process now. Where the server is in another pid
// namespace, a stranger can have its pid here: tmux calls its processes by its program's
// name and a colon, as far as the 15 bytes go that the kernel keeps.
func (id *ServerID) see() {
	if st, p := readStat(id.PID); p == Present && (strings.Contains(st.name, ":") || len(st.name) == 15) {
		id.StartTicks = st.ticks
	}
}

// Same compares two identities: Present is the same process, Absent another
// one, Unknown that too little of them is known.
func (id ServerID) Same(other ServerID) Presence {
	switch {
	case id.PID == 0 || other.PID == 0:
		return Unknown
	case id.PID != other.PID:
		return Absent
	case id.StartTicks != 0 && other.StartTicks != 0:
		if id.StartTicks == other.StartTicks {
			return Present
		}
		return Absent
	case id.Started != 0 && other.Started != 0:
		if id.Started == other.Started {
			return Present
		}
		return Absent
	}
	return Unknown
}

// Presence says what the error of a call proves about the server that s means:
// Present if it answered (nil, ErrNotFound, ErrExists), Absent on a definite
// answer, else Unknown. "No server running" is definite, unless s.Probe sees
// s.Process running behind another socket of the same path. A missing socket, or
// another server in its place, is definite only if s.Probe says that s.Process is
// gone.
func (s Server) Presence(err error) Presence {
	switch {
	case err == nil, errors.Is(err, ErrNotFound), errors.Is(err, ErrExists):
		return Present
	case errors.Is(err, ErrNoServer), errors.Is(err, ErrRefused):
		probed := s.probe()
		if e := asError(err); e != nil && e.definite && probed != Present {
			return Absent
		}
		if probed == Absent {
			return Absent
		}
	}
	return Unknown
}

// probe asks about the process of the server that is meant.
func (s Server) probe() Presence {
	if s.Probe == nil || s.Process.PID == 0 {
		return Unknown
	}
	return s.Probe(s.Process.PID, s.Process.StartTicks)
}

// Version returns the version of the tmux binary, such as "3.3a". The version of
// a running server is in its Listing, and can differ.
func (s Server) Version(ctx context.Context) (string, error) {
	out, err := s.exec(ctx, request{argv: []string{"-V"}, bare: true})
	if err != nil {
		return "", err
	}
	return strings.TrimPrefix(strings.TrimSpace(string(out)), "tmux "), nil
}

// prefix returns the command line up to the tmux command.
func (s Server) prefix() ([]string, error) {
	argv := []string{s.Binary}
	if s.Binary == "" {
		argv[0] = "tmux"
	}
	// -u, since without it a client in a C locale prints _ for non-ASCII.
	argv = append(argv, "-u")
	switch {
	case s.Socket != "" && s.Name != "":
		return nil, invalid("server has both a socket and a name")
	case s.Socket != "":
		if !filepath.IsAbs(s.Socket) {
			return nil, invalid("socket path %q is not absolute", s.Socket)
		}
		if len(s.Socket) > maxSocket {
			return nil, invalid("socket path of %d bytes, at most %d are possible", len(s.Socket), maxSocket)
		}
		argv = append(argv, "-S", s.Socket)
	case s.Name != "":
		if strings.Contains(s.Name, "/") {
			return nil, invalid("server name %q contains a slash", s.Name)
		}
		argv = append(argv, "-L", s.Name)
	}
	if s.Config != "" {
		argv = append(argv, "-f", s.Config)
	}
	return argv, nil
}

func (s Server) environ() []string {
	if s.Env != nil {
		return s.Env
	}
	env := os.Environ()
	kept := env[:0]
	for _, kv := range env {
		// With these, tmux would take this process's own pane for the target
		// of whatever has none.
		if !strings.HasPrefix(kv, "TMUX=") && !strings.HasPrefix(kv, "TMUX_PANE=") {
			kept = append(kept, kv)
		}
	}
	return kept
}

func (s Server) timeout() time.Duration {
	if s.Timeout > 0 {
		return s.Timeout
	}
	return DefaultTimeout
}
