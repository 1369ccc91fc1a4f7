package ledger

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

const (
	// DefaultRetention is how long finished rows are kept.
	DefaultRetention = 30 * 24 * time.Hour

	// The names in finished/ are listed once a day, however many they are. What is found
	// to be due is remembered, up to a number that a day's passes get through.
	listEvery = 24 * time.Hour
	maxDue    = 8192
	maxRead   = 20_000 // rows of finished/ that one listing reads
)

// A retentionClause says what becomes of a row, by age or by what it lacks. The clauses
// are all there is: a row of which none speaks is kept for ever, and refs/rescued/ is
// never touched.
type retentionClause struct {
	name   string
	reason string
	when   func(c *retentionCase) bool
	prune  func(e *Entry) verdict // what becomes of it
}

// retentionCase is what the clauses look at.
type retentionCase struct {
	entry   *Entry
	now     time.Time
	keep    time.Duration // 0: for ever
	capture Answer        // whether the output of a frozen session is there
	process Verdict       // of the recorded process
}

var retentionClauses = []retentionClause{
	{"finished", "it finished longer ago than rows are kept", func(c *retentionCase) bool {
		return c.keep > 0 && exempt(c) == "" && c.now.Sub(c.entry.FinishedAt) >= c.keep
	}, func(*Entry) verdict { return remove }},
	{"capture_missing", "its captured output is gone", func(c *retentionCase) bool {
		st := c.entry.State()
		return st.Phase == PhaseFrozen && st.Op == OpNone && !st.SchemaTooNew && st.Capture != "" && c.capture == No
	}, loseCapture},
}

// exemptions are the rows that never go by age.
var exemptions = []struct {
	name string
	when func(c *retentionCase) bool
}{
	{"open, frozen, archived or tombstoned", func(c *retentionCase) bool { return c.entry.IsOpen() || c.entry.FinishedAt.IsZero() }},
	{"of a newer version", func(c *retentionCase) bool { return c.entry.SchemaVersion > SchemaVersion }},
	{"asks for attention", func(c *retentionCase) bool { return c.entry.Attention != nil }},
	{"in an operation", func(c *retentionCase) bool { return c.entry.Lease != nil }},
	// Its claim keeps the process from being enrolled again.
	{"its process lives on", func(c *retentionCase) bool { return c.process == Running }},
	{"keeps a capture that an unverified restore left", func(c *retentionCase) bool {
		f := c.entry.Frozen
		return f != nil && len(f.Kept) > 0 && c.now.Sub(c.entry.StateAt) < c.keep
	}},
}

// exempt names the exemption that keeps a row; "" where none does.
func exempt(c *retentionCase) string {
	for _, x := range exemptions {
		if x.when(c) {
			return x.name
		}
	}
	return ""
}

// loseCapture takes the reference to a capture that is gone out of a frozen row. The row
// stays: its conversation can still be resumed. The attempt stays among those that are
// kept, so that files which turn up again are not taken for left over.
func loseCapture(e *Entry) verdict {
	f := e.Frozen
	f.Kept = appendCapped(f.Kept, &f.KeptMore, f.Attempt)
	f.Attempt, f.Lines = "", 0
	return unchanged
}

// retention says which clause speaks of a row, if any. It is pure.
func retention(c *retentionCase) (retentionClause, bool) {
	for _, r := range retentionClauses {
		if r.when(c) {
			return r, true
		}
	}
	return retentionClause{}, false
}

// retain removes the births of which nothing came, and does what the clauses say.
func (sw *sweeper) retain(ctx context.Context) error {
	if !sw.whole() {
		return nil
	}
	sw.removeBirths(ctx)
	due := sw.pick(func(e *Entry) bool {
		_, speaks := retention(sw.retentionCase(e))
		return speaks
	})
	listed, err := sw.dueInFinished(ctx)
	due = append(due, listed...)
	slices.Sort(due)
	sw.cur.turn("retain", slices.Compact(due), maxRetired, func(id string) bool {
		sw.prune(ctx, id)
		return ctx.Err() == nil
	})
	return err
}

func (sw *sweeper) retentionCase(e *Entry) *retentionCase {
	c := &retentionCase{entry: e, now: sw.now, keep: cmp.Or(sw.opts.Retention, DefaultRetention)}
	if c.keep < 0 {
		c.keep = 0
	}
	if !e.IsOpen() && !e.Process().IsZero() {
		c.process = sw.verdict(e.Process())
	}
	if e.Phase == PhaseFrozen && e.Frozen != nil && e.Frozen.Attempt != "" && sw.s.hasCaptures() {
		c.capture = sw.s.captured(e.LedgerID, e.Frozen.Attempt)
	}
	return c
}

// hasCaptures reports whether the folder of captures is there: without it, it may be
// elsewhere, and says nothing of any.
func (s *Store) hasCaptures() bool {
	there := exists(filepath.Dir(s.captureDir("x", "")))
	return there != nil && *there
}

// prune does what a clause says about one row, which is tested on the newest bytes.
func (sw *sweeper) prune(ctx context.Context, id string) {
	var did retentionClause
	pruned, err := sw.s.rewrite(ctx, id, true, maxRow, func(e *Entry) (v verdict, err error) {
		clause, speaks := retention(sw.retentionCase(e))
		did = clause
		if !speaks {
			return unchanged, nil
		}
		if v = clause.prune(e); v != remove && e.Attention == nil {
			reason := clause.reason + "; resume still brings its conversation back"
			if e.SessionID == "" {
				reason = clause.reason + ", and it has no conversation to resume: drop it, or look for the output"
			}
			e.Attention = &Note{Since: sw.s.now(), Reason: reason}
		}
		return v, nil
	})
	switch {
	case errors.Is(err, ErrNotFound), err == nil && did.name == "":
		sw.settled(id)
		return
	case err != nil && !isUnsynced(err):
		sw.rep.failed(id, sw.stage, err)
		return
	}
	sw.settled(id)
	note(sw.rep, &sw.rep.Pruned, Pruned{id, did.name, did.reason}, "pruned", id, "clause", did.name)
	if pruned.IsOpen() {
		sw.put(id, pruned)
		return
	}
	if _, there := sw.at[id]; there {
		sw.put(id, Entry{})
	}
	// Files go after the row, and stay while it may come back. What is left here is left
	// over, and goes later.
	if err != nil {
		return
	}
	if err := sw.s.removeCaptures(id); err != nil {
		sw.rep.warn(id, sw.stage, err)
	}
}

// settled takes a row off the list of those that are due.
func (sw *sweeper) settled(id string) {
	sw.cur.Finished.Due = slices.DeleteFunc(sw.cur.Finished.Due, func(other string) bool { return other == id })
}

// finishedView is what the last listing of finished/ has shown.
type finishedView struct {
	ListedAt time.Time `json:"listedAt"`
	Oldest   time.Time `json:"oldest"`         // none of its rows finished before; zero: not known
	Due      []string  `json:"due,omitzero"`   // ids that were found to be due
	After    string    `json:"after,omitzero"` // where the next listing goes on
}

// dueInFinished returns the filed rows that are due to go. finished/ is listed only where
// one may be, and once a day at most.
func (sw *sweeper) dueInFinished(ctx context.Context) ([]string, error) {
	keep := sw.retentionCase(&Entry{}).keep
	if keep == 0 {
		return nil, nil
	}
	v := &sw.cur.Finished
	old := v.Oldest.IsZero() || sw.now.Sub(v.Oldest) >= keep
	stepped := v.ListedAt.After(sw.now) // the clock was set back
	if old && len(v.Due) == 0 && (stepped || sw.now.Sub(v.ListedAt) >= listEvery) {
		if err := sw.listFinished(ctx, keep); err != nil {
			return nil, err
		}
	}
	return v.Due, nil
}

// listFinished looks for rows that are due. A row's id tells when it was made, so that
// those of younger ones need not be read.
func (sw *sweeper) listFinished(ctx context.Context, keep time.Duration) error {
	names, _, err := sw.s.list(ctx, dirFinished)
	if err != nil {
		return err
	}
	v := &sw.cur.Finished
	v.ListedAt, v.Oldest = sw.now, sw.now
	f, err := sw.s.open(dirFinished)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	first, _ := slices.BinarySearch(names, v.After)
	v.After = ""
	read := 0
	for i := range names {
		name := names[(first+i)%len(names)]
		born, minted := mintedAt(name)
		if minted && sw.now.Sub(born) < keep {
			v.Oldest = earlier(v.Oldest, born)
			continue
		}
		if read++; read > maxRead || len(v.Due) >= maxDue || ctx.Err() != nil {
			v.Oldest, v.After = time.Time{}, name // there may be more
			break
		}
		r, err := sw.s.read(f, name, false)
		if err != nil || r.err != nil {
			continue // gone; or damaged, and then nothing is removed
		}
		if _, speaks := retention(sw.retentionCase(&r.entry)); speaks {
			v.Due = append(v.Due, r.entry.LedgerID)
		} else if !r.entry.FinishedAt.IsZero() && exempt(sw.retentionCase(&r.entry)) == "" {
			v.Oldest = earlier(v.Oldest, r.entry.FinishedAt)
		}
	}
	return nil
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// mintedAt reads the time out of an id.
func mintedAt(id string) (time.Time, bool) {
	_, text, ok := splitID(strings.TrimSuffix(id, rowExtension))
	if !ok {
		return time.Time{}, false
	}
	at, err := time.Parse("20060102T150405Z", text)
	return at, err == nil
}

// removeCaptures deletes all files of a row that is gone.
func (s *Store) removeCaptures(id string) error {
	if !isPlainID(id) {
		return nil
	}
	return os.RemoveAll(s.captureDir(id, ""))
}
