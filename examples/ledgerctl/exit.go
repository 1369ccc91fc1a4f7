package main

import (
	"errors"
	"strings"

	"github.com/sessionledger/ledger"
)

// The exit statuses, as scripts rely on them.
const (
	exitDone      = 0
	exitFailed    = 1
	exitUsage     = 2
	exitBusy      = 3
	exitNotFound  = 4
	exitIllegal   = 5
	exitLost      = 6
	exitMismatch  = 7
	exitLeaseHeld = 8
	exitDamaged   = 9
	exitUnknown   = 10
	exitRefused   = 11
)

// statuses maps each sentinel error of the library to its exit status, the most telling
// first: a damaged row is also not to be found.
var statuses = []struct {
	err    error
	status int
	hint   string
}{
	{errUsage, exitUsage, ""},
	{ledger.ErrDamaged, exitDamaged, "ledgerctl doctor names the damaged rows; doctor -repair ID sets one aside"},
	{ledger.ErrInsecureRoot, exitRefused, "the ledger's folder must be yours alone (mode 0700), and no link"},
	{ledger.ErrSchemaTooNew, exitRefused, "a newer version wrote this row; it can be read here, not changed"},
	{ledger.ErrInvalid, exitUsage, ""},
	{ledger.ErrBusy, exitBusy, "try again; ledgerctl doctor names who holds a lock"},
	{ledger.ErrKillIntended, exitIllegal, "ledgerctl kill ID finishes it"},
	{ledger.ErrConversationHeld, exitIllegal, ""},
	{ledger.ErrSessionMismatch, exitMismatch, ""},
	{ledger.ErrStaleNonce, exitLost, "somebody else took over; ledgerctl show ID tells how it stands"},
	{ledger.ErrConflict, exitLost, "try again: it changed meanwhile"},
	{ledger.ErrLeaseHeld, exitLeaseHeld, ""}, // see leaseHint
	{ledger.ErrUnfinished, exitFailed, "what was begun stands: the next ledgerctl sweep that sees enough finishes it once its processes are gone, and ledgerctl kill ID goes on with it"},
	{ledger.ErrUnknown, exitUnknown, "nothing was done, because not everything could be seen"},
	{ledger.ErrIllegal, exitIllegal, "ledgerctl show ID tells what is possible now"},
	{ledger.ErrExists, exitIllegal, ""},
	{ledger.ErrNotFound, exitNotFound, ""},
}

// errSilent ends a command that has said everything already.
var errSilent = errors.New("all is said")

// exit reports an error to the person and returns the exit status for it.
func (a *app) exit(err error) int {
	if err == nil {
		return exitDone
	}
	status, hint := exitFailed, ""
	for _, s := range statuses {
		if errors.Is(err, s.err) {
			status, hint = s.status, s.hint
			break
		}
	}
	if errors.Is(err, errSilent) {
		return status
	}
	a.complain(err)
	if status == exitLeaseHeld {
		hint = leaseHint(err)
	}
	if errors.Is(err, errUsage) {
		hint = strings.TrimSpace("ledgerctl "+a.command) + " -h explains it"
	}
	if hint != "" {
		a.note("hint: %s", hint)
	}
	return status
}

// leaseHint says how to go on where an operation is in the way.
func leaseHint(err error) string {
	const force = "ledgerctl kill -force takes it over at once"
	var held *ledger.LeaseHeldError
	switch {
	case errors.As(err, &held) && held.Stale == ledger.Yes:
		return "it could not be settled, and ledgerctl reconcile says why; " + force
	case errors.As(err, &held) && held.Op == ledger.OpKill:
		return "once that process is gone and its lease old enough, ledgerctl kill ID goes on with it; " + force
	}
	return "once that process is gone and its lease old enough, ledgerctl reconcile settles it; " + force
}

func (a *app) complain(err error) {
	a.note("ledgerctl: %s", plain(strings.TrimPrefix(err.Error(), "ledger: ")))
}
