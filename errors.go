package ledger

import (
	"errors"
	"fmt"
	"time"
)

// Errors of the store. Test for them with [errors.Is].
var (
	// ErrNotFound: there is no such row.
	ErrNotFound = errors.New("no such session")
	// ErrExists: the row, or a row for that process, is there already.
	ErrExists = errors.New("session exists already")
	// ErrInvalid: an argument cannot be right (an id that is no plain id, an ambiguous
	// prefix, an entry without runtime, a write over the size limit).
	ErrInvalid = errors.New("invalid argument")
	// ErrInsecureRoot: the ledger's folder is a symlink, another user's, or writable by
	// others and could not be tightened; or the folder of its locks is a symlink.
	ErrInsecureRoot = errors.New("insecure ledger folder")
	// ErrSchemaTooNew: the row was written by a newer version and is read-only here.
	ErrSchemaTooNew = errors.New("row has a newer schema version")
	// ErrDamaged: the row's file cannot be trusted. See [DamagedError].
	ErrDamaged = errors.New("damaged row")
	// ErrBusy: a lock was not to be had in time. See [LockTimeoutError].
	ErrBusy = errors.New("busy")
	// ErrConflict: the row is no longer at the revision or epoch asked for.
	ErrConflict = errors.New("row has changed")
)

// Errors of transitions.
var (
	// ErrIllegal: the event does not fit the state. See [IllegalTransitionError].
	ErrIllegal = errors.New("illegal in this state")
	// ErrLeaseHeld: an operation is in flight and its lease is held. See [LeaseHeldError].
	ErrLeaseHeld = errors.New("another operation holds the lease")
	// ErrStaleNonce: the lease was taken over, or its operation is over.
	ErrStaleNonce = errors.New("lease lost")
	// ErrKillIntended: the session is tombstoned.
	ErrKillIntended = errors.New("session is meant to be killed")
	// ErrSessionMismatch: another conversation came up than the one to restore.
	ErrSessionMismatch = errors.New("another conversation came up")
	// ErrConversationHeld: another open row or process holds the conversation.
	ErrConversationHeld = errors.New("conversation is held by another session")
	// ErrUnfinished: a kill was begun, and stands; it has not come to its end. See
	// [UnfinishedKillError].
	ErrUnfinished = errors.New("kill is not finished")
	// ErrUnknown: evidence that the step needs could not be had; nothing was done.
	ErrUnknown = errors.New("evidence is incomplete")
)

// DamagedError says which row cannot be trusted, and why. The file is as it was found:
// only [Store.Repair] moves it.
type DamagedError struct {
	ID   string // ledger id by the file's name; the bare file name where that is no plain id
	Path string
	Err  error
}

// Error implements error.
func (e *DamagedError) Error() string {
	return fmt.Sprintf("ledger: damaged row %q (%q): %v", e.ID, e.Path, e.Err)
}

// Unwrap returns ErrDamaged and the cause.
func (e *DamagedError) Unwrap() []error { return []error{ErrDamaged, e.Err} }

// LockTimeoutError says which lock was not to be had, who holds it and how long was
// waited. HolderPID is 0 where /proc/locks does not tell.
type LockTimeoutError struct {
	Path      string
	HolderPID int
	Waited    time.Duration
	Err       error // the context's
}

// Error implements error.
func (e *LockTimeoutError) Error() string {
	holder := "an unknown process"
	if e.HolderPID > 0 {
		holder = fmt.Sprintf("process %d", e.HolderPID)
	}
	return fmt.Sprintf("ledger: lock %q held by %s, waited %s: %v", e.Path, holder, e.Waited.Round(time.Millisecond), e.Err)
}

// Unwrap returns ErrBusy and the context's error.
func (e *LockTimeoutError) Unwrap() []error { return []error{ErrBusy, e.Err} }

// LeaseHeldError says whose operation is in the way, and whether its lease will end.
type LeaseHeldError struct {
	Op    Op
	Owner ProcessID
	Seen  Verdict       // of the owner's process
	Stale Answer        // whether the lease can be taken over by now
	Left  time.Duration // until it can, where the owner is gone; 0: now, or not known
	Err   error         // the refusal
}

// Error implements error.
func (e *LeaseHeldError) Error() string {
	text := fmt.Sprintf("%v, by process %d", e.Err, e.Owner.PID)
	switch {
	case e.Stale == Yes:
		return text + ", which has left it: the lease is stale"
	case e.Seen == Running:
		return text + ", which runs"
	case e.Seen == Unknown:
		return text + ", of which it is not known whether it runs"
	case e.Left > 0:
		return fmt.Sprintf("%s, which is gone: the lease is held for another %s", text, e.Left)
	}
	return text + ", which is gone: the age of the lease is not known"
}

// Unwrap returns the refusal, which is ErrLeaseHeld.
func (e *LeaseHeldError) Unwrap() error { return e.Err }

// UnfinishedKillError says how far a kill came. Its tombstone is on record: the next sweep
// that can see enough finishes the row once its processes are gone, and another
// [Host.Kill] goes on.
type UnfinishedKillError struct {
	ID    string
	Ended bool // the processes that are known to be the session's have ended
	Err   error
}

// Error implements error.
func (e *UnfinishedKillError) Error() string {
	what := "it is meant to be killed from now on, and whether its processes have ended is not known"
	if e.Ended {
		what = "its known processes have ended, and its row is not finished"
	}
	return fmt.Sprintf("ledger: kill %q: %s: %v", e.ID, what, e.Err)
}

// Unwrap returns ErrUnfinished and the cause.
func (e *UnfinishedKillError) Unwrap() []error { return []error{ErrUnfinished, e.Err} }

// DurabilityError says that a write is visible, and that whether it survives a power
// cut is unknown: the folder's fsync failed.
type DurabilityError struct {
	Path string
	Err  error
}

// Error implements error.
func (e *DurabilityError) Error() string {
	return fmt.Sprintf("ledger: written, but its durability is unknown: %q: %v", e.Path, e.Err)
}

// Unwrap returns the cause.
func (e *DurabilityError) Unwrap() error { return e.Err }

// ProtectedFieldError says that an update touched a member which only events may move.
type ProtectedFieldError struct {
	Field string // JSON name
}

// Error implements error.
func (e *ProtectedFieldError) Error() string {
	return fmt.Sprintf("ledger: member %q moves by events alone", e.Field)
}

// Unwrap returns ErrInvalid.
func (e *ProtectedFieldError) Unwrap() error { return ErrInvalid }
