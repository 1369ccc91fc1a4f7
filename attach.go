package ledger

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"

	"github.com/sessionledger/ledger/tmux"
)

// AttachOptions say how a session is reopened. The zero value is the default.
type AttachOptions struct {
	Launch LaunchOptions // for a session that has to be resumed: what its new row records
}

// Attach reopens a session in this process's terminal, and returns when the person leaves
// it again: one that runs in tmux is attached to; an orphaned one is resumed, by its own
// conversation, as a new row that says so.
//
// The session is shown by its pane, whatever a person has called its tmux session since.
// One that was resumed already is shown as the session that took it up.
//
// The error is [ErrIllegal] for a session that is over, that runs in a terminal of its own,
// or in whose tmux server this process's own terminal is, [ErrUnknown] where its state could
// not be found out, or that of [ResumeCommand].
func (h *Host) Attach(ctx context.Context, id string, opts AttachOptions) error {
	e, err := h.Reopen(ctx, id, opts)
	if err != nil {
		return err
	}
	c, err := h.attachCommand(ctx, e)
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, c.Argv[0], c.Argv[1:]...)
	cmd.Env = c.Environ(os.Environ())
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("ledger: attach %q: %w", e.LedgerID, err)
	}
	return nil
}

// attachCommand is AttachCommand by what the session's tmux server says now.
func (h *Host) attachCommand(ctx context.Context, e Entry) (Command, error) {
	if e.Mux.Kind != MuxTmux || e.Mux.Socket == "" {
		return AttachCommand(e)
	}
	if here, server := splitTMUX(os.Getenv("TMUX")); sameFile(here, e.Mux.Socket) && h.Store.mayBeBelow(server) {
		return Command{}, fmt.Errorf("ledger: attach %q: %w: this terminal is in its tmux server already, where the session is called %q", e.LedgerID, ErrIllegal, e.Mux.Target)
	}
	if e.PaneID == "" || e.PaneServer.IsZero() {
		return AttachCommand(e)
	}
	srv := h.Store.server(e.Mux.Socket, e.PaneServer)
	l, err := srv.List(ctx)
	if err != nil {
		return Command{}, fmt.Errorf("ledger: attach %q: %w: %w", e.LedgerID, ErrUnknown, err)
	}
	pane, ok := paneOfRow(l, &e)
	if !ok {
		return Command{}, fmt.Errorf("ledger: attach %q: %w: its pane %s is not in the tmux server that answers", e.LedgerID, ErrUnknown, e.PaneID)
	}
	argv, err := srv.AttachPaneArgs(pane.ID)
	if err != nil {
		return Command{}, fmt.Errorf("ledger: attach %q: %w", e.LedgerID, err)
	}
	return tmuxAttach(e, argv), nil
}

// mayBeBelow reports whether this process may run below another: a terminal that an editor
// opens inherits the variable of the pane that the editor was started from, and is not in it.
func (s *Store) mayBeBelow(pid int) bool {
	p, err := s.chainPass(os.Getpid())
	if err != nil {
		return true
	}
	for above := range p.snap.Ancestors(os.Getpid()) {
		if above.PID == pid {
			return true
		}
	}
	return false
}

// Reopen makes sure that the session runs where it can be attached to, and returns the row
// that it then has: its own, or that of a resumed one.
func (h *Host) Reopen(ctx context.Context, id string, opts AttachOptions) (Entry, error) {
	sess, err := h.Store.Session(ctx, id, &ClassifyOptions{CPUSample: -1, Servers: h.Servers})
	if err != nil {
		return Entry{}, err
	}
	e, st := sess.Entry, sess.Status
	if !e.IsOpen() || st.State == LivenessOrphaned && e.SessionID == "" {
		if next, err := h.Store.successor(ctx, id); err == nil && next != "" {
			return h.Reopen(ctx, next, opts)
		}
	}
	switch {
	case !e.IsOpen():
		return e, fmt.Errorf("ledger: attach %q: %w: it is over", id, ErrIllegal)
	case st.State == LivenessOrphaned:
		return h.resume(ctx, e, opts)
	case st.State == LivenessUnknown:
		return e, fmt.Errorf("ledger: attach %q: %w: %s", id, ErrUnknown, st.Reason)
	case !st.State.alive():
		return e, fmt.Errorf("ledger: attach %q: %w: %s", id, ErrIllegal, st.Reason)
	case e.Mux.Kind == "" && e.TTY != "":
		return e, fmt.Errorf("ledger: attach %q: %w: it runs in a terminal of its own, %s", id, ErrIllegal, e.TTY)
	case st.Mux == MuxUnreachable:
		return e, fmt.Errorf("ledger: attach %q: %w: it runs, and its multiplexer does not answer for it", id, ErrUnknown)
	case st.Mux != MuxAttached && st.Mux != MuxDetached:
		return e, fmt.Errorf("ledger: attach %q: %w: it runs, and nothing shows it", id, ErrIllegal)
	}
	return e, nil
}

// resume starts an orphaned session's conversation as a session of its own.
func (h *Host) resume(ctx context.Context, e Entry, opts AttachOptions) (Entry, error) {
	c, err := ResumeCommand(ctx, h.Store, e)
	if err != nil {
		return e, err
	}
	o := opts.Launch
	o.Runtime, o.Argv, o.Dir, o.SessionID, o.ResumedFrom = e.Runtime, c.Argv, c.Dir, "", e.LedgerID
	if o.Env == nil {
		o.Env = os.Environ()
	}
	o.Env = c.Environ(o.Env)
	next, err := h.Launch(ctx, o)
	if err != nil {
		return next, err
	}
	// The lost session gives its conversation up, and the new one takes it: two writes, in
	// this order each safe to be the last.
	bound, err := h.Store.bindConversation(context.WithoutCancel(ctx), next, conversation{id: e.SessionID, path: e.TranscriptPath, source: fromLaunch})
	if err != nil && !errors.Is(err, ErrConversationHeld) {
		return next, err
	}
	return bound, nil
}

// AttachCommand is what a terminal runs to show a session that is in a multiplexer, by the
// name that the row has of its tmux session. It asks nothing and starts nothing: where a
// person has renamed that session since the last sweep it finds nothing, or another.
// [Host.Attach] goes by the pane.
func AttachCommand(e Entry) (Command, error) {
	switch {
	case e.Mux.Kind == MuxTmux && e.Mux.Socket != "" && e.Mux.Target != "":
		// Not by the pane: its id may be another's in a server that was started anew.
		argv, err := tmux.Server{Socket: e.Mux.Socket}.AttachArgs(e.Mux.Target)
		if err != nil {
			return Command{}, fmt.Errorf("ledger: attach %q: %w", e.LedgerID, err)
		}
		return tmuxAttach(e, argv), nil
	case e.Mux.Kind == MuxDtach && e.Mux.Socket != "":
		return Command{Argv: []string{"dtach", "-a", e.Mux.Socket}, Dir: e.Cwd, Env: map[string]string{}, Unset: []string{}}, nil
	}
	return Command{}, fmt.Errorf("ledger: attach %q: %w: it is in no multiplexer that is known", e.LedgerID, ErrIllegal)
}

func tmuxAttach(e Entry, argv []string) Command {
	return Command{Argv: argv, Dir: e.Cwd, Env: map[string]string{}, Unset: []string{"TMUX", "TMUX_PANE"}}
}
