package ledger

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sessionledger/ledger/internal/durable"
	"github.com/sessionledger/ledger/internal/folder"
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
	if id == "" || len(id)+len(rowExtension) > 255 || strings.ContainsAny(id, "/\x00") {
		return fmt.Errorf("ledger: repair: %w: %.140q names no row", ErrInvalid, id)
	}
	unlock, err := s.lockRow(ctx, id)
	if err != nil {
		return err
	}
	defer unlock()
	r, sub, err := s.lookUp(id)
	if errors.Is(err, ErrNotFound) {
		return errors.Join(checkID(id), err)
	}
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
		err := s.setAside(from, id, fmt.Sprintf("%s-%d", s.now().Format("20060102T150405Z"), n))
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err != nil && !isUnsynced(err) {
			return fmt.Errorf("ledger: repair %q: %w", id, err)
		}
		return err
	}
}

func (s *Store) setAside(from *durable.Dir, id, folder string) error {
	path := s.path(dirDamaged, folder)
	if err := durable.MkdirAll(path, 0o700); err != nil {
		return err
	}
	to, err := durable.OpenDir(path)
	if err != nil {
		return err
	}
	defer to.Close()
	if err := from.Rename(id+rowExtension, to); err != nil {
		return err
	}
	return errors.Join(writeError(id, to.Sync()), writeError(id, from.Sync()))
}

// Tidied says what a [Store.Tidy] did.
type Tidied struct {
	Filed    []string // ids of finished rows that were moved to finished/
	Temps    int      // temp files of dead writers that were removed
	Claims   int      // claims that were removed: no row holds the key, or the process is gone
	Warnings []error  // what could not be done, each naming its row
}

// fileAfter is how long a finished row stays where the next reader of open rows sees it:
// long enough for a watcher to show that it ended.
const fileAfter = time.Minute

// maxFiled bounds the rows that one pass files away.
const maxFiled = 10_000

// Tidy files finished rows away and removes what dead writers and ended sessions left:
// temp files and claims. It changes no row and can be killed anywhere. A row that cannot
// be filed is named in Warnings; the error is for what concerns the whole folder. What it
// costs does not depend on how many rows were filed.
func (s *Store) Tidy(ctx context.Context) (Tidied, error) {
	var t Tidied
	if err := s.begin(ctx); err != nil {
		return t, err
	}
	ctx = withPassWait(ctx)
	var due []string
	held, now := map[string]bool{}, s.now()
	_, err := s.scan(ctx, dirSessions, func(name string, r *row) bool {
		if r.err != nil {
			return true
		}
		for _, c := range s.claimsOf(&r.entry) {
			held[c.file()] = s.procs.verdict(c.process) != Gone
		}
		if isDue(&r.entry, now) && len(due) < maxFiled {
			due = append(due, r.entry.LedgerID)
		}
		return true
	})
	if err != nil {
		return t, err
	}
	if len(due) > 0 {
		if err := s.file(ctx, due, &t); err != nil {
			return t, err
		}
	}
	if err := s.clearClaims(ctx, held, &t); err != nil {
		return t, err
	}
	return t, s.clearTemps(ctx, &t)
}

// isDue reports whether a row is to be filed away. One of a newer version is left alone.
func isDue(e *Entry, now time.Time) bool {
	return !e.IsOpen() && e.SchemaVersion <= SchemaVersion && now.Sub(e.FinishedAt) >= fileAfter
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
			t.Warnings = append(t.Warnings, &rowError{id, err})
		case moved:
			t.Filed = append(t.Filed, id)
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	return errors.Join(writeError("filed", to.Sync()), writeError("filed", from.Sync()))
}

// rowError says which row could not be filed.
type rowError struct {
	id  string
	err error
}

func (e *rowError) Error() string { return fmt.Sprintf("ledger: file %q: %v", e.id, e.err) }
func (e *rowError) Unwrap() error { return e.err }

// fileRow moves one row under its lock, so that no writer brings the old name back.
func (s *Store) fileRow(ctx context.Context, from, to *durable.Dir, id string) (moved bool, err error) {
	unlock, err := s.lockRow(ctx, id)
	if err != nil {
		return false, err
	}
	defer unlock()
	r, sub, err := s.lookUp(id)
	if errors.Is(err, ErrNotFound) || err == nil && (sub != dirSessions || r.err != nil || !isDue(&r.entry, s.now())) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	name := id + rowExtension
	if err = from.Rename(name, to); errors.Is(err, fs.ErrExist) && r.sameIn(to.Path(), name) {
		// Where a file system knows no exclusive rename, a crash can leave both names.
		err = from.Remove(name)
	}
	return err == nil, err
}

// sameIn reports whether the row's file has that name in another folder too.
func (r *row) sameIn(dir, name string) bool {
	f, err := folder.Open(dir)
	if err != nil {
		return false
	}
	defer f.Close()
	stamp, err := f.Lstat(name)
	return err == nil && stamp == r.stamp
}

// clearClaims removes the claims that no row holds. held names those that the rows in
// sessions/ hold, true where the process is not gone; only the others are looked at, each
// under the lock of its key.
func (s *Store) clearClaims(ctx context.Context, held map[string]bool, t *Tidied) error {
	f, err := s.open(dirClaims)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("ledger: claims: %w", err)
	}
	defer f.Close()
	names, _, err := f.Names()
	if err != nil {
		return fmt.Errorf("ledger: claims: %w", err)
	}
	looked := 0
	for _, name := range names {
		if held[name] || !isClaim(name) {
			continue
		}
		if looked++; looked > maxFiled {
			break
		}
		removed, err := s.clearClaim(ctx, f, name)
		if err != nil {
			t.Warnings = append(t.Warnings, fmt.Errorf("ledger: clear claim %q: %w", name, err))
		}
		if removed {
			t.Claims++
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	return nil
}

// clearClaim removes one claim unless the row that it names may hold it.
func (s *Store) clearClaim(ctx context.Context, f *folder.Folder, name string) (bool, error) {
	unlock, err := s.lockKey(ctx, name)
	if err != nil {
		return false, err
	}
	defer unlock()
	id, _, err := readClaim(f, name)
	if err != nil {
		return false, err
	}
	if id != "" {
		switch r, _, err := s.lookUp(id); {
		case errors.Is(err, ErrNotFound):
		case err != nil:
			return false, err
		case r.err != nil || slices.ContainsFunc(s.claimsOf(&r.entry), func(c claim) bool {
			return c.file() == name && s.procs.verdict(c.process) != Gone
		}):
			return false, nil
		}
	}
	d, err := s.dir(dirClaims)
	if err != nil {
		return false, err
	}
	if err = d.Remove(name); errors.Is(err, fs.ErrNotExist) {
		return false, nil // another pass was faster
	}
	return err == nil, err
}

// tag names this process in its temp files, so that they can be cleared once it is provably
// gone.
func (s *Store) tag() string {
	tag, err := s.writer.get(func() (string, error) {
		self, err := s.procs.self()
		return strings.Join([]string{
			strconv.FormatUint(self.PIDNamespace, 10), strconv.FormatUint(self.TimeNamespace, 10), self.BootID,
			strconv.Itoa(self.PID), strconv.FormatUint(self.StartTicks, 10), strings.ReplaceAll(self.HostID, "/", "_"),
		}, "."), err
	})
	if err != nil {
		return "unknown" // never cleared
	}
	return tag
}

// writerOf undoes tag. It returns the zero value for what is no tag.
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

// staleTemps hands each temp file whose writer is provably gone to do. A folder that cannot
// be read does not keep the others.
func (s *Store) staleTemps(ctx context.Context, do func(d *durable.Dir, name string)) error {
	var errs []error
	for _, sub := range []string{".", dirSessions, dirClaims} {
		d, err := durable.OpenDir(s.path(sub))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("ledger: temp files: %w", err))
			continue
		}
		temps, err := d.Temps()
		for _, temp := range temps {
			if s.procs.verdict(writerOf(temp.Tag)) == Gone {
				do(d, temp.Name)
			}
		}
		d.Close()
		if err != nil {
			errs = append(errs, fmt.Errorf("ledger: temp files: %w", err))
		}
	}
	return errors.Join(append(errs, ctx.Err())...)
}
