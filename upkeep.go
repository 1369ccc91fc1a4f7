package ledger

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/sessionledger/ledger/internal/durable"
)

// Repair sets a damaged row aside, into damaged/, so that its session can be enrolled
// again. id is the damaged row's, or the bare name that its [DamagedError] gave. It
// deletes nothing.
//
// The error is [ErrNotFound], [ErrInvalid] for a name that can be no row's, or
// [ErrIllegal] for a row that is not damaged.
func (s *Store) Repair(ctx context.Context, id string) error {
	if err := s.begin(ctx); err != nil {
		return err
	}
	if id == "" || strings.ContainsAny(id, "/\x00") || strings.Contains(id, "..") {
		return checkID(id + "/")
	}
	unlock, err := s.lockRow(ctx, id)
	if err != nil {
		return err
	}
	defer unlock()
	r, sub, err := s.lookUp(id)
	if err != nil {
		return err
	}
	if r.err == nil {
		return fmt.Errorf("ledger: repair %q: %w: the row is not damaged", id, ErrIllegal)
	}
	from, err := s.dir(sub)
	if err != nil {
		return fmt.Errorf("ledger: repair %q: %w", id, err)
	}
	for n := 0; ; n++ {
		// A folder of its own for each, since one id can be damaged more than once.
		to, err := s.dir(filepath.Join(dirDamaged, fmt.Sprintf("%s-%d", s.now().Format("20060102T150405Z"), n)))
		if err != nil {
			return fmt.Errorf("ledger: repair %q: %w", id, err)
		}
		err = from.Rename(id+rowExtension, to)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err != nil {
			return fmt.Errorf("ledger: repair %q: %w", id, err)
		}
		return errors.Join(writeError(id, to.Sync()), writeError(id, from.Sync()))
	}
}

// Tidied says what a [Store.Tidy] did.
type Tidied struct {
	Filed    []string // ids of finished rows that were moved to finished/
	Temps    int      // temp files of dead writers that were removed
	Warnings []error  // what could not be done, each naming its row
}

// fileAfter is how long a finished row stays where the next reader of open rows sees it:
// long enough for a watcher to show that it ended.
const fileAfter = time.Minute

// maxFiled bounds the rows that one pass files away.
const maxFiled = 10_000

// Tidy files finished rows away and removes the temp files that dead writers left. It
// changes no row and can be killed anywhere. A row that cannot be filed is named in
// Warnings; the error is for what concerns the whole folder.
func (s *Store) Tidy(ctx context.Context) (Tidied, error) {
	var t Tidied
	if err := s.begin(ctx); err != nil {
		return t, err
	}
	var due []string
	_, err := s.scan(ctx, dirSessions, func(name string, r *row) bool {
		if r.err == nil && !r.entry.IsOpen() && s.now().Sub(r.entry.FinishedAt) >= fileAfter {
			due = append(due, r.entry.LedgerID)
		}
		return len(due) < maxFiled
	})
	if err != nil && err != errStopped {
		return t, err
	}
	if len(due) > 0 {
		if err := s.file(ctx, due, &t); err != nil {
			return t, err
		}
	}
	return t, s.clearTemps(ctx, &t)
}

// file moves finished rows to finished/. Each rename is atomic, and the syncs at the end
// only make it last: a row that comes back after a power cut is filed again.
func (s *Store) file(ctx context.Context, ids []string, t *Tidied) error {
	from, err := s.dir(dirSessions)
	if err != nil {
		return fmt.Errorf("ledger: file rows: %w", err)
	}
	to, err := s.dir(dirFinished)
	if err != nil {
		return fmt.Errorf("ledger: file rows: %w", err)
	}
	for _, id := range ids {
		switch moved, err := s.fileRow(ctx, from, to, id); {
		case err != nil:
			t.Warnings = append(t.Warnings, fmt.Errorf("ledger: file %q: %w", id, err))
		case moved:
			t.Filed = append(t.Filed, id)
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	return errors.Join(to.Sync(), from.Sync())
}

// fileRow moves one row under its lock, so that no writer brings the old name back.
func (s *Store) fileRow(ctx context.Context, from, to *durable.Dir, id string) (moved bool, err error) {
	unlock, err := s.lockRow(ctx, id)
	if err != nil {
		return false, err
	}
	defer unlock()
	r, sub, err := s.lookUp(id)
	if errors.Is(err, ErrNotFound) || err == nil && (sub != dirSessions || r.err != nil || r.entry.IsOpen()) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return true, from.Rename(id+rowExtension, to)
}

// writerTag names this process in its temp files, so that they can be cleared once it is
// provably gone.
func (s *Store) writerTag() string {
	self, err := s.procs.self()
	if err != nil {
		return "unknown" // never cleared
	}
	return fmt.Sprintf("%d.%d.%s.%d.%d.%s", self.PIDNamespace, self.TimeNamespace, self.BootID, self.PID, self.StartTicks,
		strings.ReplaceAll(self.HostID, "/", "_"))
}

// writerOf undoes writerTag. It returns the zero value for what is no tag.
func writerOf(tag string) ProcessID {
	part := strings.SplitN(tag, ".", 6)
	if len(part) != 6 {
		return ProcessID{}
	}
	pidNS, err1 := strconv.ParseUint(part[0], 10, 64)
	timeNS, err2 := strconv.ParseUint(part[1], 10, 64)
	pid, err3 := strconv.Atoi(part[3])
	ticks, err4 := strconv.ParseUint(part[4], 10, 64)
	if errors.Join(err1, err2, err3, err4) != nil || pid <= 0 || part[2] == "" || part[5] == "" {
		return ProcessID{}
	}
	return ProcessID{HostID: part[5], BootID: part[2], PIDNamespace: pidNS, TimeNamespace: timeNS, PID: pid, StartTicks: ticks}
}

// clearTemps removes the temp files of writers that are provably gone.
func (s *Store) clearTemps(ctx context.Context, t *Tidied) error {
	return s.staleTemps(ctx, func(d *durable.Dir, name string) {
		switch err := d.Remove(name); {
		case err == nil:
			t.Temps++
		case !errors.Is(err, fs.ErrNotExist):
			t.Warnings = append(t.Warnings, fmt.Errorf("ledger: clear temp file: %w", err))
		}
	})
}

// staleTemps hands each temp file whose writer is provably gone to do.
func (s *Store) staleTemps(ctx context.Context, do func(d *durable.Dir, name string)) error {
	for _, sub := range []string{dirSessions, dirFinished, dirClaims} {
		d, err := durable.OpenDir(s.path(sub))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return fmt.Errorf("ledger: temp files: %w", err)
		}
		temps, err := d.Temps()
		for _, temp := range temps {
			if s.procs.verdict(writerOf(temp.Tag)) == Gone {
				do(d, temp.Name)
			}
		}
		d.Close()
		if err = errors.Join(err, ctx.Err()); err != nil {
			return fmt.Errorf("ledger: temp files: %w", err)
		}
	}
	return nil
}
