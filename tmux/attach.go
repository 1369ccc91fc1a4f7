package tmux

import "strings"

// AttachArgs returns the command line that shows the session of exactly that name in a
// terminal. It is for a terminal of its own to run, without TMUX in its environment: a
// client's output is the terminal's. ErrInvalid means that there can be no such session, or
// one that cannot be named: tmux takes "=$1" for the session with that id, whatever it is
// called, and what follows a ":" or "." for a window and a pane. Where no session has the
// name and a client has (client-123), tmux takes that client's.
func (s Server) AttachArgs(session string) ([]string, error) {
	if session == "" || session[0] == '$' || strings.ContainsAny(session, ":.") {
		return nil, invalid("%q cannot be named as a target", session)
	}
	return s.attachArgs(command{"attach-session", "-t", "=" + session})
}

// AttachPaneArgs is AttachArgs for a session that a pane is in, by the pane's id in that
// server, and selects the pane.
func (s Server) AttachPaneArgs(pane string) ([]string, error) {
	if !isID(pane, '%') {
		return nil, invalid("%q is no pane", pane)
	}
	return s.attachArgs(command{"select-window", "-t", pane}, command{"select-pane", "-t", pane}, command{"attach-session", "-t", pane})
}

func (s Server) attachArgs(cmds ...command) ([]string, error) {
	line, err := s.prefix()
	if err != nil {
		return nil, err
	}
	argv, err := renderArgv(cmds)
	if err != nil {
		return nil, err
	}
	return append(line, argv...), nil
}
