package ledger

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/sessionledger/ledger/internal/runtimes"
)

// Create writes the birth record of a session: e says what is known of it, birth is
// [Enrol] (a process that runs already) or [BeginCreate] (one that is to be started). An
// empty e.LedgerID is minted. The row is durable before Create returns.
//
// A conversation (e.SessionID) and a place (e.Window) are claimed for the new row in
// writes of their own: a conversation that another row holds leaves the row without it
// and is noted in SessionIDs; in a window that has an agent already the lowest free slot
// is given.
//
// Where the process has a row already, that row comes back with [ErrExists]; an id that
// is taken is [ErrExists] too. Other errors are [ErrInvalid], [ErrUnknown] for a process
// that is not provably running, a *[LockTimeoutError], a *[DurabilityError], or the file
// system's.
func (s *Store) Create(ctx context.Context, e Entry, birth Event) (Entry, error) {
	if err := s.begin(ctx); err != nil {
		return Entry{}, err
	}
	window := cmp.Or(birth.Location.Window, e.Window)
	birth.Location.Window, birth.Location.Slot = "", 0
	row, err := s.newRow(e)
	if err != nil {
		return Entry{}, err
	}
	if err := s.makeSessions(); err != nil {
		return Entry{}, err
	}
	created, err := s.birth(ctx, row, birth)
	var held *heldError
	if errors.As(err, &held) {
		other, getErr := s.Get(ctx, held.by)
		return other, errors.Join(err, getErr)
	}
	if err != nil && !isUnsynced(err) {
		return Entry{}, err
	}
	if e.SessionID != "" {
		ev := Claim(e.SessionID, "launch")
		ev.TranscriptPath = e.TranscriptPath
		claimed, _, claimErr := s.Apply(ctx, created.LedgerID, ev)
		switch {
		case claimErr == nil, errors.Is(claimErr, ErrConversationHeld):
			created = claimed
		case isUnsynced(claimErr):
			created, err = claimed, claimErr
		default:
			return created, claimErr
		}
	}
	if window != "" {
		placed, placeErr := s.takePlace(ctx, created, window)
		if placeErr != nil {
			return placed, placeErr
		}
		created = placed
	}
	return created, err
}

// newRow fills in what every row has, and keeps what only events move out of it.
func (s *Store) newRow(e Entry) (Entry, error) {
	row := e.clone()
	if err := checkRuntime(row.Runtime); err != nil {
		return Entry{}, err
	}
	if row.SessionID != "" && !runtimes.ValidID(row.SessionID) {
		return Entry{}, fmt.Errorf("ledger: create: %w: %.140q is no conversation id", ErrInvalid, row.SessionID)
	}
	row.SessionID, row.TranscriptPath, row.SessionSource, row.Window, row.Slot = "", "", "", "", 0
	if row.LedgerID != "" {
		if err := checkID(row.LedgerID); err != nil {
			return Entry{}, err
		}
	}
	born := Entry{
		SchemaVersion: row.SchemaVersion, LedgerID: row.LedgerID, Runtime: row.Runtime, HostID: row.HostID,
		BootID: row.BootID, PIDNamespace: row.PIDNamespace, TimeNamespace: row.TimeNamespace,
	}
	if err := checkProtected(&born, &row); err != nil {
		return Entry{}, err
	}
	if row.SchemaVersion == 0 {
		row.SchemaVersion = SchemaVersion
	}
	if row.SchemaVersion != SchemaVersion {
		return Entry{}, fmt.Errorf("ledger: create: %w: version %d", ErrSchemaTooNew, row.SchemaVersion)
	}
	if row.Host == "" {
		row.Host, _ = os.Hostname() // for people; null where the system does not tell
	}
	if here, err := s.procs.here(); err == nil {
		row.HostID = cmp.Or(row.HostID, here.HostID)
		row.BootID = cmp.Or(row.BootID, here.BootID)
		row.PIDNamespace = cmp.Or(row.PIDNamespace, here.PIDNamespace)
		row.TimeNamespace = cmp.Or(row.TimeNamespace, here.TimeNamespace)
	}
	return row, nil
}

// birth runs the birth event, and mints the id anew while it is taken.
func (s *Store) birth(ctx context.Context, row Entry, birth Event) (Entry, error) {
	if row.LedgerID != "" {
		return s.bear(ctx, row, birth)
	}
	const draws = 100 // of a million: more collisions are no accident
	for range draws {
		id, err := NewID(row.Runtime, s.now())
		if err != nil {
			return Entry{}, err
		}
		row.LedgerID = id
		e, err := s.bear(ctx, row, birth)
		var held *heldError
		if !errors.Is(err, ErrExists) || errors.As(err, &held) {
			return e, err // anything but a collision of ids, which another draw settles
		}
	}
	return Entry{}, fmt.Errorf("ledger: create: %w: no id is free", ErrExists)
}

// bear applies the birth event to an empty row and publishes it, under the claim of its
// process.
func (s *Store) bear(ctx context.Context, row Entry, birth Event) (created Entry, err error) {
	birth, err = s.stamp(birth)
	if err != nil {
		return Entry{}, err
	}
	write := func() error {
		e := row.clone()
		birth.Facts = s.gather(ctx, &e, birth, ahead{Facts: Facts{Claimed: No}}) // it runs under the claim
		if _, _, err := advance(&e, birth); err != nil {
			return err
		}
		// A new process makes its description stale, but this one is of that very process.
		e.CPUTicks, e.ProcessDescribedAt = clonePtr(row.CPUTicks), row.ProcessDescribedAt
		e.Waiting = clonePart(row.Waiting, func(w *Waiting) *unknown { return &w.unknown })
		if e.StartedAt.IsZero() {
			e.StartedAt = s.startedAt(birth.Process)
		}
		created, err = s.publishNew(ctx, e)
		return err
	}
	if birth.Process.IsZero() {
		err = write()
		return created, err
	}
	err = s.withClaim(ctx, processClaim(s.local(birth.Process)), row.LedgerID, write)
	return created, err
}

// startedAt is the birth of a process by the kernel's clocks, or now where there is none.
func (s *Store) startedAt(p ProcessID) time.Time {
	if !p.IsZero() {
		if at, err := s.procs.sys.StartTime(p.StartTicks); err == nil {
			return at.UTC().Truncate(time.Second)
		}
	}
	return s.now()
}

// publishNew writes a row that must not exist yet, open, finished or damaged.
func (s *Store) publishNew(ctx context.Context, e Entry) (Entry, error) {
	e.Revision = 1
	data, err := encodeEntry(&e)
	if err != nil {
		return Entry{}, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	if len(data) > maxUpdate {
		return Entry{}, fmt.Errorf("ledger: create: %w: the row would have %d bytes, at most %d are allowed", ErrInvalid, len(data), maxUpdate)
	}
	if e, err = decodeEntry(data); err != nil {
		return Entry{}, fmt.Errorf("ledger: create: %w: %w", ErrInvalid, err)
	}
	unlock, err := s.lockRow(ctx, e.LedgerID)
	if err != nil {
		return Entry{}, err
	}
	defer unlock()
	switch r, _, err := s.lookUp(e.LedgerID); {
	case err == nil && r.err != nil:
		return Entry{}, fmt.Errorf("ledger: create %q: %w", e.LedgerID, r.err)
	case err == nil:
		return Entry{}, fmt.Errorf("ledger: create: %w: %q", ErrExists, e.LedgerID)
	case !errors.Is(err, ErrNotFound):
		return Entry{}, err
	}
	d, err := s.dir(dirSessions)
	if err != nil {
		return Entry{}, fmt.Errorf("ledger: create %q: %w", e.LedgerID, err)
	}
	err = d.Create(s.tag(), e.LedgerID+rowExtension, data, true)
	if errors.Is(err, fs.ErrExist) {
		return Entry{}, fmt.Errorf("ledger: create: %w: %q", ErrExists, e.LedgerID)
	}
	return e, writeError(e.LedgerID, err)
}

// takePlace gives the row the lowest free slot of a window.
func (s *Store) takePlace(ctx context.Context, e Entry, window string) (Entry, error) {
	const maxSlots = 1000
	for slot := range maxSlots {
		placed := e
		err := s.withClaim(ctx, placeClaim(e.placeRoot(), window, slot), e.LedgerID, func() error {
			got, err := s.rewrite(ctx, e.LedgerID, true, maxRow, func(e *Entry) (verdict, error) {
				e.Window, e.Slot = window, slot
				return unchanged, nil
			})
			if err == nil || isUnsynced(err) {
				placed = got
			}
			return err
		})
		var held *heldError
		if !errors.As(err, &held) {
			return placed, err
		}
	}
	return e, fmt.Errorf("ledger: %w: window %q has %d agents", ErrInvalid, window, maxSlots)
}
