package ledger

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
)

// A command that starts a session goes through a carrier: it waits until the gate of its
// attempt names its own pid, and then becomes the command. A coordinator opens the gate
// only once that very process is on record, so that what a killed tmux client left queued
// in its server can run late without harm: its gate stays shut.

const dirGates = "gates"

// gate is the path of an attempt's gate.
func (s *Store) gate(attempt string) string { return s.path(dirGates, attempt) }

// carrierScript waits at the gate $1 for about a minute. The own id ends here: the agent
// keeps the session's identity, without the authority to write its row.
const carrierScript = `gate=$1; shift
unset AGENT_LEDGER_OWN_ID
tries=1500
while [ "$tries" -gt 0 ]; do
	if [ -f "$gate" ] && read -r pid < "$gate" && [ "$pid" = "$$" ]; then
		exec "$@"
	fi
	tries=$((tries - 1))
	sleep 0.04 || sleep 1
done
echo "ledger: nobody took this session up" >&2
exit 75
`

// carrier is the command that waits at a gate and then becomes argv.
func (h *Host) carrier(gate string, argv []string) []string {
	carrier := h.Carrier
	if len(carrier) == 0 {
		carrier = []string{"/bin/sh", "-c", carrierScript, "ledger-carrier"}
	}
	return append(append(append([]string(nil), carrier...), gate), argv...)
}

// openGate lets the process of an attempt through, unless the session is to be killed.
func (l *launching) openGate(ctx context.Context, e Entry) error {
	if !e.KillIntentAt.IsZero() {
		return fmt.Errorf("ledger: launch %q: %w", e.LedgerID, ErrKillIntended)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	d, err := l.h.Store.dir(dirGates)
	if err != nil {
		return fmt.Errorf("ledger: launch %q: %w", e.LedgerID, err)
	}
	// Not durable: no process of this boot is left after a power cut.
	err = d.Replace(l.h.Store.tag(), l.row.Lease.Attempt, []byte(strconv.Itoa(l.gated.PID)+"\n"), false)
	if err != nil {
		return fmt.Errorf("ledger: launch %q: %w", e.LedgerID, err)
	}
	return nil
}

// closeGate shuts an attempt's gate for good.
func (l *launching) closeGate() { l.h.Store.closeGate(l.row.Lease.Attempt) }

func (s *Store) closeGate(attempt string) {
	d, err := s.dir(dirGates)
	if err == nil {
		err = d.Remove(attempt)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		s.logger.Warn("gate not removed", "attempt", attempt, "error", err)
	}
}
