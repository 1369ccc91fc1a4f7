package ledger

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"reflect"

	"github.com/sessionledger/ledger/internal/durable"
)

// UpdateOption narrows or relaxes one [Store.Update].
type UpdateOption func(*updateOptions)

type updateOptions struct {
	revision, epoch        uint64
	checkRevision, relaxed bool
	checkEpoch             bool
}

// IfRevision makes an update fail with [ErrConflict] unless the row is at revision n.
func IfRevision(n uint64) UpdateOption {
	return func(o *updateOptions) { o.revision, o.checkRevision = n, true }
}

// IfEpoch makes an update fail with [ErrConflict] unless the row is at epoch n.
func IfEpoch(n uint64) UpdateOption {
	return func(o *updateOptions) { o.epoch, o.checkEpoch = n, true }
}

// Relaxed lets an update skip the fsync: after a power cut the row may be the one before
// it, whole. It is meant for heartbeats and activity.
func Relaxed() UpdateOption { return func(o *updateOptions) { o.relaxed = true } }

// Update changes the row id: fn gets the newest row on disk, under the row's lock, and
// changes it in place. It must not block or call the store, and may run more than once.
// An error of fn comes back as it is, and nothing is written; an fn that changes nothing
// writes nothing. Update returns the row as it is afterwards, on disk before it returns
// (see [Relaxed]).
//
// Phase, lease, epoch, tombstone, process, conversation, location and rescue move by
// events alone ([Store.Apply]): an fn that touches them fails with a
// *[ProtectedFieldError]. Other errors are [ErrNotFound], [ErrInvalid] (also for a row
// that would exceed 768 KiB), [ErrConflict], [ErrSchemaTooNew], a *[DamagedError], a
// *[LockTimeoutError], a *[DurabilityError], or the file system's, which then still
// holds the old row.
func (s *Store) Update(ctx context.Context, id string, fn func(*Entry) error, opts ...UpdateOption) (Entry, error) {
	var o updateOptions
	for _, opt := range opts {
		opt(&o)
	}
	return s.rewrite(ctx, id, !o.relaxed, maxUpdate, func(e *Entry) (verdict, error) {
		return unchanged, updateRow(e, o, fn)
	})
}

// updateRow is an embedder's update as a function of values.
func updateRow(e *Entry, o updateOptions, fn func(*Entry) error) error {
	if o.checkRevision && e.Revision != o.revision {
		return fmt.Errorf("ledger: %w: %q is at revision %d, not %d", ErrConflict, e.LedgerID, e.Revision, o.revision)
	}
	if o.checkEpoch && e.Epoch != o.epoch {
		return fmt.Errorf("ledger: %w: %q is at epoch %d, not %d", ErrConflict, e.LedgerID, e.Epoch, o.epoch)
	}
	before := e.clone()
	if err := fn(e); err != nil {
		return err
	}
	return checkProtected(&before, e)
}

// verdict says what is to become of a row that was edited.
type verdict int

const (
	unchanged verdict = iota // write it if anything in it differs
	remove                   // take the row away
)

// rewrite is the one read-modify-write of a row, under its lock and on the newest bytes.
// Where edit fails and has changed the row all the same, the row is written and the
// error returned: some refusals are recorded.
func (s *Store) rewrite(ctx context.Context, id string, durably bool, limit int, edit func(*Entry) (verdict, error)) (Entry, error) {
	if err := s.begin(ctx); err != nil {
		return Entry{}, err
	}
	if err := checkID(id); err != nil {
		return Entry{}, err
	}
	unlock, err := s.lockRow(ctx, id)
	if err != nil {
		return Entry{}, err
	}
	defer unlock()
	r, sub, err := s.lookUp(id)
	if err != nil {
		return Entry{}, err
	}
	p, err := prepare(r, limit, edit)
	if err != nil && !p.write {
		return Entry{}, err
	}
	if p.remove {
		return p.entry, s.removeRow(sub, id)
	}
	if p.write {
		switch werr := s.writeRow(sub, id, p.data, durably); {
		case werr != nil && !isUnsynced(werr):
			return Entry{}, werr // the old row is what is on disk
		case werr != nil:
			return p.entry, errors.Join(err, werr)
		}
	}
	return p.entry, err
}

// prepared is a row that was edited, ready to be written.
type prepared struct {
	entry         Entry
	data          []byte
	write, remove bool
}

// recordedError marks a refusal that is written all the same.
type recordedError struct{ error }

func (e recordedError) Unwrap() error { return e.error }

// prepare applies edit to a row that was read. It is pure but for edit.
func prepare(r *row, limit int, edit func(*Entry) (verdict, error)) (prepared, error) {
	if r.err != nil {
		return prepared{}, r.err
	}
	if v := r.entry.SchemaVersion; v > SchemaVersion {
		return prepared{}, fmt.Errorf("ledger: %w: %q has version %d", ErrSchemaTooNew, r.entry.LedgerID, v)
	}
	e := r.entry.clone()
	v, err := edit(&e)
	var recorded recordedError
	if err != nil && !errors.As(err, &recorded) {
		return prepared{}, err
	}
	if v == remove {
		return prepared{entry: e, remove: true}, nil
	}
	// What is returned is what the next reader will see, and only what he could see is a
	// change.
	if shapeErr := e.asStored(); shapeErr != nil {
		return prepared{}, fmt.Errorf("ledger: %w: row %q: %w", ErrInvalid, r.entry.LedgerID, shapeErr)
	}
	if reflect.DeepEqual(&r.entry, &e) {
		return prepared{entry: e}, err
	}
	e.Revision++
	data, encErr := encodeEntry(&e)
	if encErr != nil {
		return prepared{}, fmt.Errorf("%w: %w", ErrInvalid, encErr)
	}
	if len(data) > limit {
		return prepared{}, fmt.Errorf("ledger: %w: row %q would have %d bytes, at most %d are allowed", ErrInvalid, e.LedgerID, len(data), limit)
	}
	return prepared{entry: e, data: data, write: true}, err
}

// writeRow replaces a row's file. Temp files are written to sessions/ alone, so that
// clearing those of dead writers never lists the finished rows.
func (s *Store) writeRow(sub, id string, data []byte, durably bool) error {
	d, err := s.dir(dirSessions)
	if err != nil {
		return fmt.Errorf("ledger: write %q: %w", id, err)
	}
	name := id + rowExtension
	switch {
	case sub != dirSessions:
		var to *durable.Dir
		if to, err = s.dir(sub); err == nil {
			err = d.ReplaceIn(to, s.tag(), name, data)
		}
	case durably:
		err = d.Replace(s.tag(), name, data, true)
	default:
		err = d.ReplaceRelaxed(s.tag(), name, data)
	}
	return writeError(id, err)
}

// removeRow deletes a row's file; its claims end with it.
func (s *Store) removeRow(sub, id string) error {
	d, err := s.dir(sub)
	if err != nil {
		return fmt.Errorf("ledger: remove %q: %w", id, err)
	}
	if err := d.Remove(id + rowExtension); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("ledger: remove %q: %w", id, err)
	}
	return writeError(id, d.Sync())
}

func isUnsynced(err error) bool {
	var unsynced *DurabilityError
	return errors.As(err, &unsynced)
}

func writeError(id string, err error) error {
	var unsynced *durable.SyncError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &unsynced):
		return &DurabilityError{Path: unsynced.Path, Err: unsynced.Err}
	}
	return fmt.Errorf("ledger: write %q: %w", id, err)
}

// protected are the members that only events move.
var protected = []struct {
	name string
	get  func(*Entry) any
}{
	{"schemaVersion", func(e *Entry) any { return e.SchemaVersion }},
	{"ledgerId", func(e *Entry) any { return e.LedgerID }},
	{"revision", func(e *Entry) any { return e.Revision }},
	{"epoch", func(e *Entry) any { return e.Epoch }},
	{"phase", func(e *Entry) any { return e.Phase }},
	{"lease", func(e *Entry) any { return e.Lease }},
	{"stateAt", func(e *Entry) any { return e.StateAt }},
	{"killIntentAt", func(e *Entry) any { return e.KillIntentAt }},
	{"pid", func(e *Entry) any { return e.PID }},
	{"pidStartTicks", func(e *Entry) any { return e.PIDStartTicks }},
	{"bootId", func(e *Entry) any { return e.BootID }},
	{"hostId", func(e *Entry) any { return e.HostID }},
	{"pidNamespace", func(e *Entry) any { return e.PIDNamespace }},
	{"timeNamespace", func(e *Entry) any { return e.TimeNamespace }},
	{"sessionId", func(e *Entry) any { return e.SessionID }},
	{"transcriptPath", func(e *Entry) any { return e.TranscriptPath }},
	{"sessionIds", func(e *Entry) any { return e.SessionIDs }},
	{"sessionIdsMore", func(e *Entry) any { return e.SessionIDsMore }},
	{"runtime", func(e *Entry) any { return e.Runtime }}, // part of the conversation's key
	{"mux", func(e *Entry) any { return e.Mux }},
	{"tmuxSession", func(e *Entry) any { return e.TmuxSession }},
	{"tmuxSocket", func(e *Entry) any { return e.TmuxSocket }},
	{"window", func(e *Entry) any { return e.Window }},
	{"slot", func(e *Entry) any { return e.Slot }},
	{"paneId", func(e *Entry) any { return e.PaneID }},
	{"paneServer", func(e *Entry) any { return e.PaneServer }},
	{"frozen", func(e *Entry) any { return e.Frozen }},
	{"restore", func(e *Entry) any { return e.Restore }},
	{"limit", func(e *Entry) any { return e.Limit }},
	{"handoffs", func(e *Entry) any { return e.Handoffs }},
	{"handoffsMore", func(e *Entry) any { return e.HandoffsMore }},
	{"handoffTarget", func(e *Entry) any { return e.HandoffTarget }},
	{"endNoted", func(e *Entry) any { return e.EndNoted }},
	{"rescuing", func(e *Entry) any { return e.Rescuing }},
	{"finishedAt", func(e *Entry) any { return e.FinishedAt }},
	{"finishReason", func(e *Entry) any { return e.FinishReason }},
	{"rescuedAt", func(e *Entry) any { return e.RescuedAt }},
	{"rescueRef", func(e *Entry) any { return e.RescueRef }},
	{"rescueCommit", func(e *Entry) any { return e.RescueCommit }},
	{"rescuedPaths", func(e *Entry) any { return e.RescuedPaths }},
	{"rescuedPathsMore", func(e *Entry) any { return e.RescuedMore }},
	{"rescueOmitted", func(e *Entry) any { return e.RescueOmitted }},
	{"rescueOmittedMore", func(e *Entry) any { return e.OmittedMore }},
	{"repoRoot", func(e *Entry) any { // part of the place's key, where there is one
		if e.Window == "" {
			return ""
		}
		return e.placeRoot()
	}},
}

func checkProtected(before, after *Entry) error {
	for _, p := range protected {
		if !reflect.DeepEqual(p.get(before), p.get(after)) {
			return &ProtectedFieldError{Field: p.name}
		}
	}
	return nil
}
