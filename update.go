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
	before := new(Entry)
	e.cloneTo(before)
	if err := fn(e); err != nil {
		return err
	}
	return checkProtected(before, e)
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
	e, err := s.rewritten(ctx, id, durably, limit, edit)
	if e == nil {
		return Entry{}, err
	}
	return *e, err
}

// rewritten is rewrite for a caller that can do with a pointer, which is nil where there is
// no row to return.
func (s *Store) rewritten(ctx context.Context, id string, durably bool, limit int, edit func(*Entry) (verdict, error)) (*Entry, error) {
	if err := s.begin(ctx); err != nil {
		return nil, err
	}
	if err := checkID(id); err != nil {
		return nil, err
	}
	unlock, err := s.lockRow(ctx, id)
	if err != nil {
		return nil, err
	}
	defer unlock()
	sessions, err := s.held(dirSessions)
	if err != nil {
		return nil, fmt.Errorf("ledger: look up %q: %w", id, err)
	}
	r, sub, err := s.lookUpIn(sessions.read, id)
	if err != nil {
		return nil, err
	}
	p, err := prepare(r, limit, edit)
	if err != nil && !p.write {
		return nil, err
	}
	if p.remove {
		return p.entry, s.removeRow(sub, id)
	}
	if p.write {
		switch werr := s.writeRow(sessions.dir, sub, id, p.data, durably); {
		case werr != nil && !isUnsynced(werr):
			return nil, werr // the old row is what is on disk
		case werr != nil:
			return p.entry, errors.Join(err, werr)
		}
	}
	return p.entry, err
}

// prepared is a row that was edited, ready to be written.
type prepared struct {
	entry         *Entry
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
	e := new(Entry)
	r.entry.cloneTo(e)
	v, err := edit(e)
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
	if reflect.DeepEqual(&r.entry, e) {
		return prepared{entry: e}, err
	}
	e.Revision++
	data, encErr := encodeEntry(e)
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
func (s *Store) writeRow(d *durable.Dir, sub, id string, data []byte, durably bool) (err error) {
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
	same func(a, b *Entry) bool
}{
	{"schemaVersion", func(a, b *Entry) bool { return a.SchemaVersion == b.SchemaVersion }},
	{"ledgerId", func(a, b *Entry) bool { return a.LedgerID == b.LedgerID }},
	{"revision", func(a, b *Entry) bool { return a.Revision == b.Revision }},
	{"epoch", func(a, b *Entry) bool { return a.Epoch == b.Epoch }},
	{"phase", func(a, b *Entry) bool { return a.Phase == b.Phase }},
	{"lease", func(a, b *Entry) bool { return reflect.DeepEqual(a.Lease, b.Lease) }},
	{"stateAt", func(a, b *Entry) bool { return a.StateAt == b.StateAt }},
	{"killIntentAt", func(a, b *Entry) bool { return a.KillIntentAt == b.KillIntentAt }},
	{"pid", func(a, b *Entry) bool { return a.PID == b.PID }},
	{"pidStartTicks", func(a, b *Entry) bool { return reflect.DeepEqual(a.PIDStartTicks, b.PIDStartTicks) }},
	{"bootId", func(a, b *Entry) bool { return a.BootID == b.BootID }},
	{"hostId", func(a, b *Entry) bool { return a.HostID == b.HostID }},
	{"pidNamespace", func(a, b *Entry) bool { return a.PIDNamespace == b.PIDNamespace }},
	{"timeNamespace", func(a, b *Entry) bool { return a.TimeNamespace == b.TimeNamespace }},
	{"sessionId", func(a, b *Entry) bool { return a.SessionID == b.SessionID }},
	{"transcriptPath", func(a, b *Entry) bool { return a.TranscriptPath == b.TranscriptPath }},
	{"sessionSource", func(a, b *Entry) bool { return a.SessionSource == b.SessionSource }},
	{"sessionIds", func(a, b *Entry) bool { return reflect.DeepEqual(a.SessionIDs, b.SessionIDs) }},
	{"sessionIdsMore", func(a, b *Entry) bool { return a.SessionIDsMore == b.SessionIDsMore }},
	{"runtime", func(a, b *Entry) bool { return a.Runtime == b.Runtime }}, // part of the conversation's key
	{"mux", func(a, b *Entry) bool { return reflect.DeepEqual(a.Mux, b.Mux) }},
	{"tmuxSession", func(a, b *Entry) bool { return a.TmuxSession == b.TmuxSession }},
	{"tmuxSocket", func(a, b *Entry) bool { return a.TmuxSocket == b.TmuxSocket }},
	{"window", func(a, b *Entry) bool { return a.Window == b.Window }},
	{"slot", func(a, b *Entry) bool { return a.Slot == b.Slot }},
	{"paneId", func(a, b *Entry) bool { return a.PaneID == b.PaneID }},
	{"paneServer", func(a, b *Entry) bool { return a.PaneServer == b.PaneServer }},
	{"frozen", func(a, b *Entry) bool { return reflect.DeepEqual(a.Frozen, b.Frozen) }},
	{"restore", func(a, b *Entry) bool { return reflect.DeepEqual(a.Restore, b.Restore) }},
	{"limit", func(a, b *Entry) bool { return reflect.DeepEqual(a.Limit, b.Limit) }},
	{"handoffs", func(a, b *Entry) bool { return reflect.DeepEqual(a.Handoffs, b.Handoffs) }},
	{"handoffsMore", func(a, b *Entry) bool { return a.HandoffsMore == b.HandoffsMore }},
	{"handoffTarget", func(a, b *Entry) bool { return a.HandoffTarget == b.HandoffTarget }},
	{"endNoted", func(a, b *Entry) bool { return reflect.DeepEqual(a.EndNoted, b.EndNoted) }},
	{"rescuing", func(a, b *Entry) bool { return reflect.DeepEqual(a.Rescuing, b.Rescuing) }},
	{"finishedAt", func(a, b *Entry) bool { return a.FinishedAt == b.FinishedAt }},
	{"finishReason", func(a, b *Entry) bool { return a.FinishReason == b.FinishReason }},
	{"rescuedAt", func(a, b *Entry) bool { return a.RescuedAt == b.RescuedAt }},
	{"rescueRef", func(a, b *Entry) bool { return a.RescueRef == b.RescueRef }},
	{"rescueCommit", func(a, b *Entry) bool { return a.RescueCommit == b.RescueCommit }},
	{"rescuedPaths", func(a, b *Entry) bool { return reflect.DeepEqual(a.RescuedPaths, b.RescuedPaths) }},
	{"rescuedPathsMore", func(a, b *Entry) bool { return a.RescuedMore == b.RescuedMore }},
	{"rescueOmitted", func(a, b *Entry) bool { return reflect.DeepEqual(a.RescueOmitted, b.RescueOmitted) }},
	{"rescueOmittedMore", func(a, b *Entry) bool { return a.OmittedMore == b.OmittedMore }},
	{"repoRoot", func(a, b *Entry) bool { // part of the place's key, where there is one
		return a.Window == "" && b.Window == "" || a.placeRoot() == b.placeRoot()
	}},
}

func checkProtected(before, after *Entry) error {
	for _, p := range protected {
		if !p.same(before, after) {
			return &ProtectedFieldError{Field: p.name}
		}
	}
	return nil
}
