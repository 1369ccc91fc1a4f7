package tmux

import (
	"context"
	"errors"
	"fmt"
)

// The pane options of the ledger. Pane options survive a respawn and die with
// the pane: they prove the pane, not the process in it.
const (
	OptionID      = "@ledger_id"      // the stamp: whose pane this is
	OptionAttempt = "@ledger_attempt" // the mark: which operation acts on it
	OptionReady   = "@ledger_ready"   // the attempt whose stand-in is up

	optionInput = "@ledger_input" // who types into it now, see Submit
)

// Listing is one complete, consistent answer of one server.
type Listing struct {
	Server   ServerID
	Version  string // of the server, such as "3.3a"
	Socket   string // as the server names it
	Sessions []Session
	// Panes holds each pane once for every session that its window is linked
	// into.
	Panes []Pane
}

// Session is a session of a listing.
type Session struct {
	ID       string // "$N"
	Name     string
	Created  int64 // seconds since 1970
	Attached int   // clients, without those in control mode
}

// Pane is a pane with the window and the session it was listed under.
type Pane struct {
	Server       ServerID
	ID           string // "%N"
	SessionID    string // "$N"
	WindowID     string // "@N"
	Session      string // the session's name
	Window       string // the window's name
	WindowIndex  int
	Index        int
	WindowActive bool // the current window of its session
	Active       bool // the active pane of its window
	// PID is of the process that tmux started in the pane, in the server's pid
	// namespace. Of a dead pane it is the last one or 0.
	PID  int
	Dead bool // the process ended, the pane stays (remain-on-exit)
	// Status is the exit status of a dead pane, 0 also while tmux does not know it. A tmux
	// with libutempter can lose the SIGCHLD of a process that ends at once and learns the
	// status with the next one (https://github.com/tmux/tmux/issues/311).
	Status int
	TTY    string
	Title  string // set by the program in the pane, may hold any bytes

	Ledger  string // value of OptionID, "" if unset
	Attempt string // value of OptionAttempt
	Ready   string // value of OptionReady

	input string // value of optionInput
}

// Session returns the session of exactly that name.
func (l Listing) Session(name string) (Session, bool) {
	for _, s := range l.Sessions {
		if s.Name == name {
			return s, true
		}
	}
	return Session{}, false
}

// Pane returns the first entry of a pane, by its id.
func (l Listing) Pane(id string) (Pane, bool) {
	for _, p := range l.Panes {
		if p.ID == id {
			return p, true
		}
	}
	return Pane{}, false
}

// HasPane says whether a pane of the given server is there: Unknown unless
// the listing is of that very server.
func (l Listing) HasPane(server ServerID, id string) Presence {
	if l.Server.Same(server) != Present {
		return Unknown
	}
	if _, ok := l.Pane(id); ok {
		return Present
	}
	return Absent
}

// List asks the server for everything in one run of the binary. An error is
// never an empty listing; a server without sessions is. A server older than 3.2
// gives ErrUnsupported.
func (s Server) List(ctx context.Context) (Listing, error) {
	token := newToken()
	out, err := s.run(ctx, listCommands(token)...)
	if e := asError(err); e != nil && e.Stderr == "no current target" {
		// list-clients says this where there is no session. The answer is
		// complete if it was whole up to there.
		l, bad := readListing(append(out, endFormat(token)+"\n"...), token)
		if bad == nil && len(l.Sessions) == 0 {
			return l, nil
		}
	}
	if err != nil {
		return Listing{}, err
	}
	return readListing(out, token)
}

// listCommands ends each part with a token, so that a cut answer is noticed.
func listCommands(token string) []command {
	return []command{
		{"display-message", "-p", serverFormat},
		{"list-sessions", "-F", sessionFormat},
		{"display-message", "-p", endFormat(token + "-sessions")},
		{"list-clients", "-F", clientFormat},
		{"list-panes", "-a", "-F", paneFormat},
		{"display-message", "-p", endFormat(token)},
	}
}

// readListing decodes an answer and completes the server's identity.
func readListing(out []byte, token string) (Listing, error) {
	l, err := parseListing(out, token)
	if err != nil {
		return Listing{}, &Error{Args: []string{"list-panes"}, Err: err}
	}
	if older(l.Version, 3, 2) {
		return Listing{}, &Error{Args: []string{"list-panes"}, Err: fmt.Errorf("%w: server is %s, need 3.2", ErrUnsupported, printable(l.Version))}
	}
	l.Server.see()
	for i := range l.Panes {
		l.Panes[i].Server = l.Server
	}
	return l, nil
}

// parseListing turns an answer into a listing, or says why it is none.
func parseListing(out []byte, token string) (Listing, error) {
	recs, err := decode(out)
	if err != nil {
		return Listing{}, err
	}
	if len(recs) < 2 || recs[0].kind != 'S' {
		return Listing{}, errors.New("listing without a head")
	}
	var l Listing
	if l.Server, l.Version, l.Socket, err = recs[0].server(); err != nil {
		return Listing{}, err
	}
	byID := map[string]int{} // index in Sessions
	const (
		inSessions = iota
		inPanes
		done
	)
	part := inSessions
	for _, r := range recs[1:] {
		switch {
		case r.kind == 's' && part == inSessions:
			s, err := r.session()
			if err != nil {
				return Listing{}, err
			}
			byID[s.ID] = len(l.Sessions)
			l.Sessions = append(l.Sessions, s)
		case r.kind == 'c' && part == inPanes:
			if i, ok := byID[r.fields[1]]; ok && r.fields[0] != "1" {
				l.Sessions[i].Attached++
			}
		case r.kind == 'p' && part == inPanes:
			p, err := r.pane()
			if err != nil {
				return Listing{}, err
			}
			if _, ok := byID[p.SessionID]; !ok {
				return Listing{}, fmt.Errorf("%w: pane %s of no session", errMalformed, p.ID)
			}
			l.Panes = append(l.Panes, p)
		case r.kind == 'e' && part == inSessions && r.fields[0] == token+"-sessions":
			part = inPanes
		case r.kind == 'e' && part == inPanes && r.fields[0] == token:
			part = done
		default:
			return Listing{}, fmt.Errorf("listing with a %q record out of place", r.kind)
		}
	}
	if part != done {
		return Listing{}, errors.New("listing cut short")
	}
	return l, nil
}
