package tmux

// AttachArgs returns the command line that shows the session of exactly that name in a
// terminal. It is for a terminal of its own to run, without TMUX in its environment: a
// client's output is the terminal's. ErrInvalid means that there can be no such session, or
// that its name begins with "$": tmux takes "=$1" for the session with that id, whatever
// it is called.
func (s Server) AttachArgs(session string) ([]string, error) {
	if session == "" || session[0] == '$' {
		return nil, invalid("%q cannot be named as a target", session)
	}
	return s.attachArgs("=" + session)
}

// AttachPaneArgs is AttachArgs for the session of a pane, by its id in that server.
func (s Server) AttachPaneArgs(pane string) ([]string, error) {
	if !isID(pane, '%') {
		return nil, invalid("%q is no pane", pane)
	}
	return s.attachArgs(pane)
}

func (s Server) attachArgs(target string) ([]string, error) {
	line, err := s.prefix()
	if err != nil {
		return nil, err
	}
	argv, err := renderArgv([]command{{"attach-session", "-t", target}})
	if err != nil {
		return nil, err
	}
	return append(line, argv...), nil
}
