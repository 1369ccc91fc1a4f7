package ledger

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"time"
)

// A command that starts a session goes through a carrier: it waits until the gate of its
// attempt names its own pid, and then becomes the command. A coordinator opens the gate
// only once that very process is on record, so that what a killed tmux client left queued
// in its server can run late without harm: its gate stays shut.

const dirGates = "gates"

// gate is the path of an attempt's gate.
func (s *Store) gate(attempt string) string { return s.path(dirGates, attempt) }

// longCommand is how long a command line may be to go through tmux, of which one message
// holds 16 KiB with everything else. A longer one goes through a file beside the gate.
const longCommand = 8 << 10

// commandSuffix names that file after the gate.
const commandSuffix = ".sh"

// carrierScript waits at the gate $1 for about a minute, and then becomes the command that
// follows; where none does, that of the file beside the gate. The own id ends here: the agent
// keeps the session's identity, without the authority to write its row. A sleep that takes
// whole seconds alone makes the minute no longer.
const carrierScript = `gate=$1; shift
unset AGENT_LEDGER_OWN_ID
left=700
while [ "$left" -gt 0 ]; do
	if [ -f "$gate" ] && read -r pid < "$gate" && [ "$pid" = "$$" ]; then
		[ "$#" -gt 0 ] || . "$gate.sh"
		exec "$@"
	fi
	left=$((left - 1))
	if [ "$left" -gt 600 ]; then nap=0.01; else nap=0.1; fi
	sleep "$nap" 2>/dev/null || { sleep 1; left=$((left - 11)); }
done
echo "ledger: nobody took this session up" >&2
exit 75
`

// carrier is the command that waits at the gate of an attempt and then becomes argv. The
// identity is in its environment alone: what a person starts beside it in the same server
// is no part of the session.
func (h *Host) carrier(id, attempt string, argv []string) []string {
	carrier := h.Carrier
	if len(carrier) == 0 {
		carrier = []string{"/bin/sh", "-c", carrierScript, "ledger-carrier"}
	}
	line := []string{"/usr/bin/env", envID + "=" + id, envOwnID + "=" + id, envAttempt + "=" + attempt}
	return append(append(append(line, carrier...), h.Store.gate(attempt)), argv...)
}

// layCommand puts a command that is too long for tmux beside its gate, and returns what is
// left to be passed on the command line. A carrier of the embedder's own gets it there
// always.
func (h *Host) layCommand(attempt string, argv []string) ([]string, error) {
	script := []byte("exec")
	for _, arg := range argv {
		script = fmt.Appendf(script, " '%s'", strings.ReplaceAll(arg, "'", `'\''`))
	}
	if len(script) <= longCommand || len(h.Carrier) > 0 {
		return argv, nil
	}
	d, err := h.Store.dir(dirGates)
	if err != nil {
		return nil, err
	}
	return nil, d.Replace(h.Store.tag(), attempt+commandSuffix, append(script, '\n'), false)
}

// openGate lets the process of an attempt through, unless the session is to be killed.
func (l *launching) openGate(ctx context.Context) error {
	s := l.h.Store
	e, err := s.Get(ctx, l.row.LedgerID)
	switch {
	case err != nil:
		return err
	case !e.KillIntentAt.IsZero():
		return ErrKillIntended
	case !e.Process().Same(l.gated):
		return fmt.Errorf("%w: another process has the row", ErrConflict)
	}
	d, err := s.dir(dirGates)
	if err != nil {
		return err
	}
	// Not durable: no process of this boot is left after a power cut. The pid is the one
	// that the carrier has in its own namespace.
	return d.Replace(s.tag(), l.row.Lease.Attempt, []byte(strconv.Itoa(l.pane.PID)+"\n"), false)
}

// closeGate shuts an attempt's gate for good.
func (s *Store) closeGate(attempt string) {
	for _, name := range []string{attempt, attempt + commandSuffix} {
		d, err := s.dir(dirGates)
		if err == nil {
			err = d.Remove(name)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			s.logger.Warn("gate not removed", "attempt", attempt, "error", err)
		}
	}
}

// fenceBirth makes a birth that is given up harmless: its gate is shut, and whatever waits
// there ends by its identity, with no need of the tmux server that it is in. A process that
// has passed the gate is left alone: the row is its own.
func (h *Host) fenceBirth(ctx context.Context, attempt string, o EndOptions) error {
	h.Store.closeGate(attempt)
	return h.Store.procs.end(ctx, func() ([]ProcessID, error) {
		p, err := h.Store.newPass(ctx)
		if err != nil {
			return nil, err
		}
		if _, _, atGate := p.attempt(attempt); !atGate {
			return nil, nil
		}
		waiting, _ := p.carrying(envAttempt, attempt)
		return waiting, nil
	}, o)
}

// gateAge is how old a gate is that no launch can still need: carriers wait a minute.
const gateAge = 5 * time.Minute

// clearGates removes the gates that dead coordinators left.
func (s *Store) clearGates() error {
	gates, err := os.ReadDir(s.path(dirGates))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, g := range gates {
		if info, err := g.Info(); err == nil && info.Mode().IsRegular() && time.Since(info.ModTime()) > gateAge {
			s.closeGate(g.Name())
		}
	}
	return err
}
