package ledger

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/sessionledger/ledger/internal/durable"
)

// change is one row's part in a batch.
type change struct {
	id   string
	edit func(*Entry) (verdict, error)
}

// batchWriters is how many temp files are written and fsynced side by side. The journal
// commits them together, which is where a batch saves its time; the row locks are not
// held meanwhile.
const batchWriters = 16

// batch makes many changes durable together. For each row it returns what [Store.rewrite]
// would have, at the same place; the folder is synced once, before batch returns. A row
// that another writer changed meanwhile is done again by itself.
func (s *Store) batch(ctx context.Context, changes []change) ([]Entry, []error) {
	entries, errs := make([]Entry, len(changes)), make([]error, len(changes))
	d, err := s.dir(dirSessions)
	if err != nil {
		for i := range errs {
			errs[i] = fmt.Errorf("ledger: write: %w", err)
		}
		return entries, errs
	}
	pending := make([]staged, len(changes))
	var group sync.WaitGroup
	limit := make(chan struct{}, batchWriters)
	for i := range changes {
		limit <- struct{}{}
		group.Go(func() {
			defer func() { <-limit }()
			pending[i], errs[i] = s.stage(ctx, d, changes[i])
			entries[i] = pending[i].entry
		})
	}
	group.Wait()
	busy := stripes{}
	var published []*durable.Staged
	var placed []int
	for i := range pending {
		if errs[i] != nil || pending[i].file == nil {
			continue
		}
		switch err := s.publish(ctx, busy, changes[i].id, pending[i]); {
		case errors.Is(err, errOutrun):
			entries[i], errs[i] = s.rewrite(ctx, changes[i].id, true, maxRow, changes[i].edit)
		case err != nil:
			errs[i] = err
		default:
			published, placed = append(published, pending[i].file), append(placed, i)
		}
		pending[i].file.Discard()
	}
	if len(published) > 0 {
		if err := writeError("batch", d.Sync(published...)); err != nil {
			for _, i := range placed {
				errs[i] = err
			}
		}
	}
	return entries, errs
}

// staged is an edited row whose temp file is written and synced.
type staged struct {
	prepared
	from *row // what was edited
	file *durable.Staged
}

// errOutrun says that a row changed between its edit and its publication.
var errOutrun = errors.New("outrun by another writer")

// stage edits a row as it is now, without its lock, and writes the temp file. A change
// that removes its row or records a refusal, and one whose row lies elsewhere, is left to
// rewrite.
func (s *Store) stage(ctx context.Context, d *durable.Dir, c change) (staged, error) {
	if err := s.begin(ctx); err != nil {
		return staged{}, err
	}
	if err := checkID(c.id); err != nil {
		return staged{}, err
	}
	r, sub, err := s.lookUp(c.id)
	if err != nil {
		return staged{}, err
	}
	p, err := prepare(r, maxRow, c.edit)
	if err != nil && !p.write {
		return staged{}, err
	}
	if err != nil || p.remove || p.write && sub != dirSessions {
		e, err := s.rewrite(ctx, c.id, true, maxRow, c.edit)
		return staged{prepared: prepared{entry: e}}, err
	}
	if !p.write {
		return staged{prepared: p}, nil
	}
	file, err := d.Stage(s.tag(), c.id+rowExtension, p.data, true)
	return staged{prepared: p, from: r, file: file}, writeError(c.id, err)
}

// publish renames a staged row into place, if the row is still the one that was edited.
func (s *Store) publish(ctx context.Context, busy stripes, id string, p staged) error {
	unlock, err := busy.lock(stripe(id), func() (func(), error) { return s.lockRow(ctx, id) })
	if err != nil {
		return err
	}
	defer unlock()
	r, sub, err := s.lookUp(id)
	switch {
	case err != nil:
		return err
	case sub != dirSessions, r.err != nil, r.entry.Revision != p.from.entry.Revision, r.stamp != p.from.stamp:
		return errOutrun
	}
	return writeError(id, p.file.Replace())
}
