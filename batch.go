package ledger

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/sessionledger/ledger/internal/durable"
	"github.com/sessionledger/ledger/internal/folder"
)

// change is one row's part in a batch.
type change struct {
	id   string
	edit func(*Entry) (verdict, error)
}

const (
	batchPart    = 64 // rows whose temp files are open at a time
	batchWriters = 4  // rows that are worked on side by side
)

// batch makes many changes durable together. For each row it returns what [Store.rewrite]
// would have, at the same place; the folder is synced once, before batch returns. A row
// that another writer changed meanwhile is done again by itself. All its waits for locks
// together are bounded as those of a pass.
func (s *Store) batch(ctx context.Context, changes []change) ([]Entry, []error) {
	if passWaitOf(ctx) == nil {
		ctx = withPassWait(ctx)
	}
	results := make([]staged, len(changes))
	s.batchAll(ctx, changes, results)
	entries, errs := make([]Entry, len(changes)), make([]error, len(changes))
	for i, r := range results {
		if errs[i] = r.err; r.entry != nil {
			entries[i] = *r.entry
		}
	}
	return entries, errs
}

func (s *Store) batchAll(ctx context.Context, changes []change, results []staged) {
	sessions, err := s.held(dirSessions)
	if err != nil {
		for i := range results {
			results[i].err = fmt.Errorf("ledger: batch: %w", err)
		}
		return
	}
	for start := 0; start < len(changes); start += batchPart {
		end := min(start+batchPart, len(changes))
		part, rows := changes[start:end], results[start:end]
		sideBySide(len(part), func(i int) { rows[i] = s.stage(ctx, sessions, part[i]) })
		sideBySide(len(part), func(i int) { rows[i].flush(part[i].id) })
		for i := range part {
			s.publish(ctx, sessions.read, part[i], &rows[i])
		}
	}
	var published []*durable.Staged
	for i := range results {
		if results[i].file != nil {
			published = append(published, results[i].file)
		}
	}
	if len(published) == 0 {
		return
	}
	if err := writeError("batch", sessions.dir.Sync(published...)); err != nil {
		for i := range results {
			if results[i].file != nil {
				results[i].err = err
			}
		}
	}
}

// sideBySide calls f for 0 to n-1 from a few goroutines.
func sideBySide(n int, f func(i int)) {
	var next atomic.Int64
	var group sync.WaitGroup
	for range min(n, batchWriters) {
		group.Go(func() {
			for i := next.Add(1) - 1; i < int64(n); i = next.Add(1) - 1 {
				f(int(i))
			}
		})
	}
	group.Wait()
}

// staged is an edited row on its way to the disk, or what became of it.
type staged struct {
	prepared
	from *row            // what was edited
	file *durable.Staged // its new file, nil where there is nothing more to do
	err  error
}

// stage edits a row as it is now, without its lock, and writes the temp file. A change
// that removes its row or records a refusal, and one whose row lies elsewhere, is left to
// rewrite.
func (s *Store) stage(ctx context.Context, sessions writable, c change) (r staged) {
	if r.err = s.begin(ctx); r.err != nil {
		return r
	}
	if r.err = checkID(c.id); r.err != nil {
		return r
	}
	var sub string
	if r.from, sub, r.err = s.lookUpIn(sessions.read, c.id); r.err != nil {
		return r
	}
	p, err := prepare(r.from, maxRow, c.edit)
	switch {
	case err != nil && !p.write:
		r.err = err
	case err != nil || p.remove || p.write && sub != dirSessions:
		r.entry, r.err = s.rewritten(ctx, c.id, true, maxRow, c.edit)
	case !p.write:
		r.prepared = p
	default:
		r.prepared = p
		r.file, err = sessions.dir.Begin(s.tag(), c.id+rowExtension, p.data)
		r.fail(writeError(c.id, err))
	}
	return r
}

// fail ends a row's way where err is not nil: its file is not written.
func (r *staged) fail(err error) {
	if err == nil {
		return
	}
	if r.file != nil {
		r.file.Discard()
	}
	r.prepared, r.file, r.err = prepared{}, nil, err
}

// flush waits until the temp file's bytes are on the disk.
func (r *staged) flush(id string) {
	if r.file != nil {
		r.fail(writeError(id, r.file.Flush()))
	}
}

// publish renames a staged row into place, if the row is still the one that was edited.
func (s *Store) publish(ctx context.Context, f *folder.Folder, c change, r *staged) {
	if r.file == nil {
		return
	}
	unlock, err := s.lockRow(ctx, c.id)
	if err != nil {
		r.fail(err)
		return
	}
	same := stillIs(f, c.id, r.from)
	if same {
		err = writeError(c.id, r.file.Replace())
	}
	unlock()
	switch {
	case err != nil:
		r.fail(err)
	case !same:
		r.file.Discard()
		r.file = nil
		r.entry, r.err = s.rewritten(ctx, c.id, true, maxRow, c.edit)
	}
}

// stillIs reports whether a row's file is known to be the one that was read.
func stillIs(f *folder.Folder, id string, was *row) bool {
	var known folder.Stamp
	if was.raw == "" { // the file had stood long enough for its stamp to tell
		known = was.stamp
	}
	data, stamp, err := f.Read(id+rowExtension, maxRow, known)
	return err == nil && stamp == was.stamp && string(data) == was.raw
}
