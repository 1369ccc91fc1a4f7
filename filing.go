package ledger

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/sessionledger/ledger/internal/gitcmd"
)

// file moves finished rows out of the way of those that read the open ones, and clears
// what dead writers and ended sessions left.
func (sw *sweeper) file(ctx context.Context) error {
	pending := sw.pendingEdges(ctx)
	var due []string
	held := map[string]bool{} // claims that rows in sessions/ hold, less those of processes that are gone
	var holders []holding
	for _, r := range sw.rows {
		e := r.now
		if e == nil {
			continue
		}
		h := holding{id: e.LedgerID}
		for _, c := range sw.s.claimsOf(e) {
			if sw.verdict(c.process) != Gone {
				held[c.file()] = true
				h.claims = append(h.claims, c.file())
			}
		}
		if len(h.claims) > 0 {
			holders = append(holders, h)
		}
		// One that a person has not heard of yet waits for the next pass.
		if isDue(e, sw.now) && (sw.now.Sub(e.FinishedAt) >= time.Hour || !pending(e.LedgerID)) {
			due = append(due, e.LedgerID)
		}
	}
	var t Tidied
	var errs []error
	if len(due) > 0 {
		var batch []string
		sw.cur.turn("file", due, maxFiled, func(id string) bool {
			batch = append(batch, id)
			return true
		})
		sw.progress(0, len(batch))
		errs = append(errs, sw.s.file(ctx, batch, &t))
	}
	for _, id := range t.Filed {
		note(sw.rep, &sw.rep.Filed, id, "", id)
		v := &sw.cur.Finished
		if e := sw.entry(id); e != nil && !v.Oldest.IsZero() {
			v.Oldest = earlier(v.Oldest, e.FinishedAt)
		}
	}
	if len(t.Filed) > 0 {
		sw.s.logger.Info("filed", "rows", len(t.Filed))
	}
	errs = append(errs, sw.healClaims(ctx, holders), sw.s.clearClaims(ctx, held, &t), sw.s.clearTemps(ctx, &t))
	for _, err := range t.Warnings {
		id := ""
		if about := (*rowError)(nil); errors.As(err, &about) {
			id = about.id
		}
		sw.rep.failed(id, sw.stage, err)
	}
	if err := gitcmd.SweepScratch(sw.s.path(dirScratch), time.Now().Add(-scratchAge)); err != nil {
		sw.rep.warn("", sw.stage, err)
	}
	if err := errors.Join(sw.clearLeftOvers(ctx), sw.s.clearGates()); err != nil {
		sw.rep.warn("", sw.stage, err)
	}
	return errors.Join(errs...)
}

// holding is a row with the names of the claims that it holds.
type holding struct {
	id     string
	claims []string
}

// What one pass mends of the claims.
const (
	maxMissing = 1024 // rows with a claim that is not there
	maxTorn    = 8    // rows whose claims are read
)

// healClaims writes the claims that rows hold and that are missing, or torn. Claims are not
// durable, and a person or another program can have lost one. Whose are read goes by the
// clock, so that looking in vain writes nothing.
func (sw *sweeper) healClaims(ctx context.Context, rows []holding) error {
	complete, _, _, err := sw.s.claimsComplete()
	if err != nil || !complete {
		return err // the next enrolment rebuilds them all
	}
	f, err := sw.s.open(dirClaims)
	if err != nil {
		return err
	}
	defer f.Close()
	names, _, err := f.Names()
	if err != nil {
		return err
	}
	there := make(map[string]bool, len(names))
	for _, name := range names {
		there[name] = true
	}
	lacks := func(h holding) bool {
		return slices.ContainsFunc(h.claims, func(name string) bool { return !there[name] })
	}
	var look []holding
	for _, h := range rows {
		if lacks(h) && len(look) < maxMissing {
			look = append(look, h)
		}
	}
	if n := len(rows); n > maxTorn {
		first := int(sw.now.Unix()/int64(time.Minute/time.Second)) * maxTorn % n
		rows = slices.Concat(rows[first:], rows[:first])[:maxTorn]
	}
	for _, h := range rows {
		// One that names another row may be right: restoreClaims tells.
		if slices.ContainsFunc(h.claims, func(name string) bool {
			id, _, err := readClaim(f, name)
			return there[name] && (err != nil || id != h.id)
		}) {
			look = append(look, h)
		}
	}
	for _, h := range look {
		if err := sw.s.restoreClaims(ctx, sw.entry(h.id)); err != nil {
			sw.rep.failed(h.id, sw.stage, err)
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	return nil
}

// scratchAge is how old the throwaway files of a rescue are before they must have been
// left: no rescue takes so long. Files are aged by the machine's clock.
const scratchAge = time.Hour

// maxLeftOver bounds the sessions whose attempt folders one pass looks into.
const maxLeftOver = 512

// clearLeftOvers removes the folders of attempts that no row names any more. They are
// listed first and the row is read after, so that an attempt which begins meanwhile is
// not met.
func (sw *sweeper) clearLeftOvers(ctx context.Context) error {
	if !sw.rep.Complete.Rows {
		return nil
	}
	root, err := os.OpenRoot(filepath.Dir(sw.s.captureDir("x", "")))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer root.Close()
	ids, err := subfolders(root, ".")
	var errs []error
	sw.cur.turn("left over", ids, maxLeftOver, func(id string) bool {
		errs = append(errs, sw.clearAttempts(root, id))
		return ctx.Err() == nil
	})
	return errors.Join(append(errs, err)...)
}

func (sw *sweeper) clearAttempts(root *os.Root, id string) error {
	attempts, err := subfolders(root, id)
	if err != nil {
		return err
	}
	r := sw.s.sightRow(id)
	// A folder of captures that several ledgers share holds those of rows that are not ours.
	if r.state != rowThere && (r.state != rowAbsent || sw.s.sharesCaptures()) {
		return nil
	}
	named := namedAttempts(&r.entry)
	if r.state == rowThere && r.entry.Frozen != nil && r.entry.Frozen.KeptMore > 0 {
		return nil // it does not say which
	}
	for _, attempt := range attempts {
		if !named[attempt] {
			err = errors.Join(err, root.RemoveAll(filepath.Join(id, attempt)))
		}
	}
	_ = root.Remove(id) // succeeds once it is empty
	return err
}

func (s *Store) sharesCaptures() bool { return s.captureDir("", "") != s.path("frozen") }

// namedAttempts are those whose files a row may ask for.
func namedAttempts(e *Entry) map[string]bool {
	named := map[string]bool{}
	if f := e.Frozen; f != nil {
		named[f.Attempt] = true
		for _, kept := range f.Kept {
			named[kept] = true
		}
	}
	if e.Lease != nil {
		named[e.Lease.Attempt] = true
	}
	return named
}

// subfolders lists the folders in one that have plain ids for names.
func subfolders(root *os.Root, name string) (ids []string, err error) {
	f, err := root.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	entries, err := f.ReadDir(-1)
	for _, e := range entries {
		if e.IsDir() && isPlainID(e.Name()) {
			ids = append(ids, e.Name())
		}
	}
	return ids, err
}
