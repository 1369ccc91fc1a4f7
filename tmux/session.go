package tmux

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"
)

// SessionOptions says how a session starts. Name is required.
type SessionOptions struct {
	// Name is passed as it is, but tmux changes some characters (before 3.8,
	// . and : become _): the name to remember is the returned Pane's.
	Name   string
	Window string // name of its first window; "" leaves it to tmux
	Start
	// Width and Height are in cells; 0 leaves them to tmux (80 by 24 as long
	// as no client is attached).
	Width, Height int
	// Options are global options, each a name and its value, set before the
	// session starts and in its dispatch. They are for a server that is the
	// caller's own: every session of the server has them.
	Options [][2]string
}

// WindowOptions says how a window starts.
type WindowOptions struct {
	Name string // "" leaves it to tmux
	Start
}

// createdFormat is one format, since a new server can be asked nothing before.
const createdFormat = serverFormat + "\n" + paneFormat

// NewSession creates a detached session and returns its pane. It starts the server if
// there is none, unless s.Process says which one is meant. A taken name gives ErrExists.
// After ErrTimeout the session may exist.
func (s Server) NewSession(ctx context.Context, opts SessionOptions) (Pane, error) {
	if opts.Name == "" {
		return Pane{}, invalid("session without a name")
	}
	args, err := opts.Start.args()
	if err != nil {
		return Pane{}, err
	}
	c := command{"new-session", "-d", "-P", "-F", createdFormat, "-s", literal(opts.Name)}
	if opts.Window != "" {
		c = append(c, "-n", literal(opts.Window))
	}
	if opts.Width > 0 {
		c = append(c, "-x", strconv.Itoa(opts.Width))
	}
	if opts.Height > 0 {
		c = append(c, "-y", strconv.Itoa(opts.Height))
	}
	var cmds []command
	for _, o := range opts.Options {
		if o[0] == "" || o[0][0] == '-' {
			return Pane{}, invalid("option name %q", o[0])
		}
		cmds = append(cmds, command{"set-option", "-g", "--", o[0], o[1]})
	}
	out, err := s.start(ctx, append(cmds, append(c, args...)))
	if err != nil {
		return Pane{}, err
	}
	return readCreated(out)
}

// start performs commands in the server that s means, or in any, be it a new one.
func (s Server) start(ctx context.Context, cmds []command) ([]byte, error) {
	if s.Process != (ServerID{}) {
		if err := current(s.Process.PID, s.Process.StartTicks, "server"); err != nil {
			return nil, err
		}
		ans, err := s.dispatch(ctx, dispatch{conds: s.Process.conditions(), then: cmds})
		return ans.out, err
	}
	argv, err := renderArgv(cmds)
	if err != nil {
		return nil, err
	}
	return s.exec(ctx, request{argv: argv, wrap: s.Wrap})
}

// NewWindow creates a window in the session of exactly that name, without
// selecting it, and returns its pane.
func (s Server) NewWindow(ctx context.Context, session string, opts WindowOptions) (Pane, error) {
	args, err := opts.Start.args()
	if err != nil {
		return Pane{}, err
	}
	server, id, err := s.resolve(ctx, session)
	if err != nil {
		return Pane{}, err
	}
	c := command{"new-window", "-d", "-P", "-F", createdFormat, "-t", id + ":"}
	if opts.Name != "" {
		c = append(c, "-n", literal(opts.Name))
	}
	ans, err := s.onSession(ctx, server, id, dispatch{then: []command{append(c, args...)}})
	if err != nil {
		return Pane{}, err
	}
	return readCreated(ans.out)
}

// readCreated reads the head and the pane that a command printed.
func readCreated(out []byte) (Pane, error) {
	recs, err := decode(out)
	var p Pane
	if err == nil {
		p, err = onePane(recs)
	}
	if err != nil {
		return Pane{}, &Error{Args: []string{"new"}, Err: err}
	}
	return p, nil
}

// onePane reads a pane with its server from a head and the pane's record.
func onePane(recs []record) (p Pane, err error) {
	if len(recs) != 2 || recs[0].kind != 'S' || recs[1].kind != 'p' {
		return Pane{}, errMalformed
	}
	if p, err = recs[1].pane(); err != nil {
		return Pane{}, err
	}
	if p.Server, _, _, err = recs[0].server(); err != nil {
		return Pane{}, err
	}
	p.Server.see()
	return p, nil
}

// Has says whether a session of exactly that name exists. The error explains
// Unknown and is nil otherwise.
func (s Server) Has(ctx context.Context, session string) (Presence, error) {
	l, p, err := s.view(ctx)
	if p != Present {
		return p, err
	}
	if _, ok := l.Session(session); ok {
		return Present, nil
	}
	return Absent, nil
}

// HasPane says whether a pane of that very server exists. The error explains
// Unknown and is nil otherwise.
func (s Server) HasPane(ctx context.Context, server ServerID, id string) (Presence, error) {
	s.Process = server
	l, p, err := s.view(ctx)
	if p != Present {
		return p, err
	}
	return l.HasPane(server, id), nil
}

// view lists the server that s means: Present with a listing, Absent if
// that server is definitely gone, else Unknown with the reason.
func (s Server) view(ctx context.Context) (Listing, Presence, error) {
	l, err := s.listMeant(ctx)
	switch {
	case err == nil:
		return l, Present, nil
	case s.Presence(err) == Absent:
		return l, Absent, nil
	}
	return l, Unknown, err
}

// listMeant lists the server that s means, and no other.
func (s Server) listMeant(ctx context.Context) (Listing, error) {
	l, err := s.List(ctx)
	if err == nil && s.Process != (ServerID{}) && s.Process.Same(l.Server) != Present {
		return Listing{}, &Error{Args: []string{"list-panes"},
			Err: fmt.Errorf("%w: server %d answered, %d is meant", ErrRefused, l.Server.PID, s.Process.PID)}
	}
	return l, err
}

// resolve finds a session by its exact name. tmux's own targets cannot do it for
// every name: even =$1 means the session with the id $1.
func (s Server) resolve(ctx context.Context, session string) (ServerID, string, error) {
	l, err := s.listMeant(ctx)
	if err != nil {
		return ServerID{}, "", err
	}
	found, ok := l.Session(session)
	if !ok {
		return ServerID{}, "", &Error{Args: []string{"list-sessions"}, Err: ErrNotFound}
	}
	return l.Server, found.ID, nil
}

// onSession performs a dispatch if the session of that id is there, on that
// server.
func (s Server) onSession(ctx context.Context, server ServerID, id string, d dispatch) (answer, error) {
	d.target = id + ":"
	d.conds = append(server.conditions(), equal("session_id", id))
	return s.dispatch(ctx, d)
}

// RenameSession renames the session of exactly that name and returns the name
// that tmux made of the new one.
func (s Server) RenameSession(ctx context.Context, session, name string) (string, error) {
	if name == "" {
		return "", invalid("empty session name")
	}
	server, id, err := s.resolve(ctx, session)
	if err != nil {
		return "", err
	}
	ans, err := s.onSession(ctx, server, id, dispatch{then: []command{
		{"rename-session", "-t", id, "--", literal(name)},
		{"display-message", "-p", "-t", id + ":", serverFormat},
		{"display-message", "-p", "-t", id + ":", sessionFormat},
	}})
	if err != nil {
		return "", err
	}
	recs, err := decode(ans.out)
	if err == nil && len(recs) == 2 && recs[1].kind == 's' {
		return recs[1].fields[2], nil
	}
	return "", &Error{Args: []string{"rename-session"}, Err: errMalformed}
}

// KillSession ends the session of exactly that name and all its processes.
// ErrNotFound means that there is none.
func (s Server) KillSession(ctx context.Context, session string) error {
	server, id, err := s.resolve(ctx, session)
	if err != nil {
		return err
	}
	_, err = s.onSession(ctx, server, id, dispatch{then: []command{{"kill-session", "-t", id}}})
	return err
}

// forkGrace is the longest that a forked child may take to run its program.
const forkGrace = 200 * time.Millisecond

// KillServer ends that very server and returns once it is gone. A server that
// is gone already is no error.
func (s Server) KillServer(ctx context.Context, server ServerID) error {
	if server.PID <= 0 {
		return invalid("no server process")
	}
	ctx, cancel := context.WithTimeout(ctx, s.timeout())
	defer cancel()
	if err := s.killServer(ctx, server); err != nil {
		return err
	}
	s.hungUp(ctx)
	return nil
}

func (s Server) killServer(ctx context.Context, server ServerID) error {
	if s.ended(ctx, server) == Absent {
		return nil
	}
	ans, err := s.dispatch(ctx, dispatch{conds: server.conditions(), last: []command{{"kill-server"}}})
	if err != nil && !ans.held {
		// It may have been ending by itself, which ends the client with it.
		if errors.Is(err, ErrRefused) || pause(ctx, 100*time.Millisecond) != nil || s.ended(ctx, server) != Absent {
			return err
		}
		return nil
	}
	for s.ended(ctx, server) != Absent {
		// It said that it would end, and nothing answers: its pid need not count here.
		if _, err := s.List(ctx); server.StartTicks == 0 && errors.Is(err, ErrNoServer) {
			return nil
		}
		if err := pause(ctx, 20*time.Millisecond); err != nil {
			return &Error{Args: []string{"kill-server"}, Err: err}
		}
	}
	return nil
}

// hungUp waits until nothing takes a connection at the socket of a server that is gone. A
// child that the server has just forked holds the socket open until it runs its program,
// and a client that connects meanwhile gets no server but "server exited unexpectedly".
// Whatever else listens there is a new server, which is not waited for.
func (s Server) hungUp(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, forkGrace)
	defer cancel()
	for s.Socket != "" && dial(s.Socket) == nil && pause(ctx, 5*time.Millisecond) == nil {
	}
}

// ended is Absent if a server is provably gone: its process is, or, where that
// cannot be seen, the socket says so.
func (s Server) ended(ctx context.Context, server ServerID) Presence {
	st, p := readStat(server.PID)
	switch {
	case server.StartTicks == 0: // it was not seen here: its pid may be of another namespace
	case p == Absent:
		return Absent
	case p == Present:
		if st.ticks != server.StartTicks {
			return Absent
		}
		return Present
	}
	l, err := s.List(ctx)
	if err != nil {
		return s.Presence(err)
	}
	return l.Server.Same(server)
}

// pause waits, or says why the wait ended early.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		if ctx.Err() == context.Canceled {
			return ctx.Err()
		}
		return fmt.Errorf("%w: %w", ErrTimeout, ctx.Err())
	}
}
