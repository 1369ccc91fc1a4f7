package ledger

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sessionledger/ledger/internal/durable"
)

// Finding is one thing about a ledger that is not as it should be.
type Finding struct {
	Kind    FindingKind `json:"kind"`
	ID      string      `json:"id,omitzero"` // the row concerned, if it is one
	Path    string      `json:"path,omitzero"`
	PID     int         `json:"pid,omitzero"` // the process concerned, if it is one
	Message string      `json:"message"`
	// Broken says that a rule of the ledger does not hold; what is not broken needs a
	// person's or the next sweep's care.
	Broken bool `json:"broken"`
}

// FindingKind names what a [Finding] is about.
type FindingKind string

// The kinds of findings.
const (
	FindDamaged   FindingKind = "damaged"   // a row that cannot be trusted
	FindDuplicate FindingKind = "duplicate" // two rows hold one process, conversation, place or id
	FindClaim     FindingKind = "claim"     // a claim that is missing, or names the wrong row
	FindState     FindingKind = "state"     // phase, operation and lease contradict each other
	FindMode      FindingKind = "mode"      // a file or folder that others can read
	FindTemp      FindingKind = "temp"      // left by a dead writer; the next sweep clears it
	FindLease     FindingKind = "lease"     // an operation in flight
	FindKill      FindingKind = "kill"      // a session that is meant to be killed and is not yet
	FindAttention FindingKind = "attention" // something that only a person can settle
	FindSchema    FindingKind = "schema"    // a row of a newer version, read-only here
	FindLock      FindingKind = "lock"      // a lock that is held now, and by whom
	FindView      FindingKind = "view"      // something that cannot be seen from here, so that much stays unknown
)

// Check looks through the whole ledger and says what breaks one of its rules or needs
// care. What cannot be read is itself a finding ([FindView]), and keeps nothing else from
// being looked at; the error is the context's, or that of a closed store. It changes nothing
// and takes no lock, so that beside a writer at work it can see a step half done.
func (s *Store) Check(ctx context.Context) ([]Finding, error) {
	if err := s.begin(ctx); err != nil {
		return nil, err
	}
	c := &checker{s: s, holders: map[string]string{}}
	if err := s.lostRows(); err != nil {
		c.found = append(c.found, Finding{Kind: FindView, Path: s.path(dirSessions), Message: err.Error(), Broken: true})
		return c.found, nil
	}
	for _, sub := range []string{dirSessions, dirFinished} {
		_, err := s.scan(ctx, sub, func(name string, r *row) bool {
			c.row(sub, name, r)
			return true
		})
		c.unseen(s.path(sub), err)
	}
	c.unseen(s.path(dirClaims), c.claims())
	c.files(ctx)
	c.unseen("", s.staleTemps(ctx, func(d *durable.Dir, name string) {
		c.found = append(c.found, Finding{Kind: FindTemp, Path: filepath.Join(d.Path(), name),
			Message: "left by a writer that is gone; the next sweep clears it"})
	}))
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return c.found, nil
}

// unseen reports what could not be looked at, if there was an error.
func (c *checker) unseen(path string, err error) {
	if err != nil {
		c.found = append(c.found, Finding{Kind: FindView, Path: path,
			Message: "view incomplete: " + strings.TrimPrefix(err.Error(), "ledger: ")})
	}
}

type checker struct {
	s       *Store
	rows    []Entry
	holders map[string]string // claim's key and id's: the row that holds it
	found   []Finding
}

func (c *checker) add(kind FindingKind, broken bool, id, format string, args ...any) {
	c.found = append(c.found, Finding{Kind: kind, ID: id, Message: fmt.Sprintf(format, args...), Broken: broken})
}

// once notes that id holds what, and reports a second holder.
func (c *checker) once(what, id string) {
	if by, taken := c.holders[what]; taken {
		c.add(FindDuplicate, true, id, "%s is held by %q too", strings.ReplaceAll(what, "\x00", " "), by)
		return
	}
	c.holders[what] = id
}

func (c *checker) row(sub, name string, r *row) {
	if r.err != nil {
		var d *DamagedError
		errors.As(r.err, &d)
		c.found = append(c.found, Finding{Kind: FindDamaged, ID: d.ID, Path: d.Path, Message: d.Err.Error()})
		return
	}
	e := &r.entry
	c.rows = append(c.rows, r.entry)
	c.once("id "+e.LedgerID, e.LedgerID)
	for _, cl := range c.s.claimsOf(e) {
		c.once(cl.kind+" "+cl.key, e.LedgerID)
	}
	if sub == dirFinished && e.IsOpen() {
		c.add(FindState, true, e.LedgerID, "filed away, but %s", e.Phase)
	}
	if e.SchemaVersion == SchemaVersion && (e.Phase.bit() == 0 || e.Lease != nil && e.Lease.Op.bit() == 0) {
		c.add(FindState, true, e.LedgerID, "phase %q and operation %q are none that exist", e.Phase, e.State().Op)
	}
	if e.Phase == PhaseFinished && e.FinishedAt.IsZero() {
		c.add(FindState, true, e.LedgerID, "finished without a time")
	}
	if e.Phase == PhaseFrozen && e.Frozen == nil {
		c.add(FindState, true, e.LedgerID, "frozen without saying where its output is")
	}
	if e.SchemaVersion > SchemaVersion {
		c.add(FindSchema, false, e.LedgerID, "schema version %d is newer than %d: read-only", e.SchemaVersion, SchemaVersion)
	}
	if l := e.Lease; l != nil && e.IsOpen() {
		c.lease(e, l)
	}
	if !e.KillIntentAt.IsZero() && e.IsOpen() {
		c.add(FindKill, false, e.LedgerID, "meant to be killed since %s", e.KillIntentAt.Format(timeLayout))
	}
	if e.Attention != nil && e.IsOpen() {
		c.add(FindAttention, false, e.LedgerID, "%s (since %s)", e.Attention.Reason, e.Attention.Since.Format(timeLayout))
	}
}

// lease reports an operation in flight, by whom, and whether that one may still end it.
func (c *checker) lease(e *Entry, l *Lease) {
	state, seen := e.State(), c.s.sightLease(l, 0)
	holds := "held"
	switch state.leaseStale(&seen) {
	case Yes:
		holds = "stale"
	case Unsure:
		holds = "not known to be stale"
	}
	age := "since " + l.AcquiredAt.Format(timeLayout)
	if d, known := state.leaseAge(&seen); known && d != forever {
		age = fmt.Sprintf("for %s (%s)", d, age)
	}
	c.found = append(c.found, Finding{Kind: FindLease, ID: e.LedgerID, PID: l.Owner.PID,
		Message: fmt.Sprintf("%s in flight %s; its owner, process %d, is %s: the lease is %s", l.Op, age, l.Owner.PID, seen.Owner, holds)})
}

// claims checks that every key which a row holds leads to it. Claims of processes that are
// gone may be missing: nobody can ask for them.
func (c *checker) claims() error {
	complete, _, _, err := c.s.claimsComplete()
	if err != nil || !complete {
		return err // rebuilt by the next writer
	}
	for i := range c.rows {
		e := &c.rows[i]
		for _, cl := range c.s.claimsOf(e) {
			by, _, err := c.s.claimant(cl)
			if err != nil {
				return err
			}
			gone := c.s.procs.verdict(cl.process) == Gone
			if by != e.LedgerID && !gone && c.holders[cl.kind+" "+cl.key] == e.LedgerID && c.stands(e) {
				c.add(FindClaim, true, e.LedgerID, "its %s leads to %q", cl.kind, by)
			}
		}
	}
	return nil
}

// stands reports whether a row is still as it was read: a session that ends meanwhile has
// given its claims up.
func (c *checker) stands(e *Entry) bool {
	now, _, err := c.s.lookUp(e.LedgerID)
	return err == nil && now.err == nil && now.entry.Revision == e.Revision
}

// files checks the modes. It ends early with the context alone.
func (c *checker) files(ctx context.Context) {
	_ = filepath.WalkDir(c.s.root, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // it went away meanwhile
		}
		if err != nil {
			if !slices.ContainsFunc(c.found, func(f Finding) bool { return f.Kind == FindView && f.Path == path }) {
				c.unseen(path, err)
			}
			return nil // nothing below it is walked
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		info, err := os.Lstat(path)
		if err != nil || info.Mode()&fs.ModeSymlink != 0 || info.Mode()&fs.ModeSocket != 0 {
			return nil
		}
		if filepath.Dir(path) == c.s.path(dirScratch) && d.IsDir() {
			return fs.SkipDir // git makes its own files there, behind a folder that lets nobody in
		}
		// Others may look into a folder (the root can be one that a person made), not write.
		lets := info.Mode().Perm() & 0o077
		if lets != 0 {
			c.found = append(c.found, Finding{Kind: FindMode, Path: path, Broken: !d.IsDir() || lets&0o022 != 0,
				Message: fmt.Sprintf("mode %#o lets others in", info.Mode().Perm())})
		}
		return nil
	})
}
