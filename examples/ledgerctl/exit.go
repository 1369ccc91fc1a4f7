package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"

	"github.com/sessionledger/ledger"
)

// The exit statuses of 08-cli.md.
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
	{flag.ErrHelp, exitDone, ""},
	{errUsage, exitUsage, ""},
	{ledger.ErrDamaged, exitDamaged, "ledgerctl doctor names the damaged rows; doctor -repair ID sets one aside"},
	{ledger.ErrInsecureRoot, exitRefused, "the ledger's folder must be yours alone (mode 0700), and no link"},
	{ledger.ErrSchemaTooNew, exitRefused, "a newer version wrote this row; it can be read here, not changed"},
	{ledger.ErrInvalid, exitUsage, ""},
	{ledger.ErrBusy, exitBusy, "try again; ledgerctl doctor names who holds a lock"},
	{ledger.ErrKillIntended, exitIllegal, ""},
	{ledger.ErrConversationHeld, exitIllegal, ""},
	{ledger.ErrSessionMismatch, exitMismatch, ""},
	{ledger.ErrStaleNonce, exitLost, ""},
	{ledger.ErrConflict, exitLost, ""},
	{ledger.ErrLeaseHeld, exitLeaseHeld, ""},
	{ledger.ErrUnknown, exitUnknown, "nothing was done, because not everything could be seen"},
	{ledger.ErrIllegal, exitIllegal, ""},
	{ledger.ErrExists, exitIllegal, ""},
	{ledger.ErrNotFound, exitNotFound, "ledgerctl list -all shows all sessions"},
	{context.Canceled, exitFailed, ""},
	{fs.ErrPermission, exitFailed, ""},
}

// exit reports an error to the person and returns the exit status for it.
func (a *app) exit(err error) int {
	if err == nil {
		return exitDone
	}
	for _, s := range statuses {
		if !errors.Is(err, s.err) {
			continue
		}
		if s.err != flag.ErrHelp {
			a.complain(err)
		}
		if s.hint != "" {
			fmt.Fprintln(a.stderr, "hint: "+s.hint)
		}
		return s.status
	}
	a.complain(err)
	return exitFailed
}

// errSilent ends a command that has said everything already.
var errSilent = errors.New("findings")

func (a *app) complain(err error) {
	if !errors.Is(err, errSilent) {
		fmt.Fprintln(a.stderr, "ledgerctl: "+plain(err.Error()))
	}
}
