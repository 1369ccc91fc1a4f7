package ledger

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/sessionledger/ledger/internal/procscan"
)

// The variables by which a session's processes carry its identity.
const (
	envID      = "AGENT_LEDGER_ID"
	envOwnID   = "AGENT_LEDGER_OWN_ID"
	envAttempt = "AGENT_LEDGER_ATTEMPT"
	envDir     = "AGENT_SESSIONS_DIR" // the ledger's folder, see [Open]
)

// ahead are facts that were gathered before the row's lock was taken.
type ahead struct {
	Facts
	of string // the recorded conversation that HasTranscript is of
}

// lookAhead gathers what an event needs to know from outside the row and the process
// table, before the row's lock is taken: an embedder's function may look for a transcript.
func (s *Store) lookAhead(ctx context.Context, id string, ev Event) ahead {
	f := ahead{Facts: Facts{Lease: LeaseSighting{Grace: ev.Facts.Lease.Grace}}}
	need := ev.needs()
	if need&(factHeld|factClaimed) != 0 {
		// Where this fails the claims stay incomplete, and what they would say unsure.
		_ = s.completeClaims(ctx)
	}
	if need&(factTranscript|factHasTranscript|factChangesID) == 0 {
		return f
	}
	r, _, err := s.lookUp(id)
	if err != nil || r.err != nil {
		return f
	}
	rt, _ := s.runtimes.Lookup(r.entry.Runtime)
	f.ChangesID = rt.ResumeChangesID
	if need&factTranscript != 0 {
		f.Transcript = s.hasTranscript(ctx, rt, &r.entry, ev.SessionID, ev.TranscriptPath)
	}
	if f.of = r.entry.SessionID; need&factHasTranscript != 0 && f.of != "" {
		f.HasTranscript = s.hasTranscript(ctx, rt, &r.entry, r.entry.SessionID, r.entry.TranscriptPath)
	}
	return f
}

// hasTranscript reports whether a conversation's file is there. Its recorded path may
// point into a wrong folder, so only the look-up can say no.
func (s *Store) hasTranscript(ctx context.Context, rt Runtime, e *Entry, id, path string) Answer {
	if path != "" {
		if info, err := os.Lstat(path); err == nil && info.Mode().IsRegular() {
			return Yes
		}
	}
	_, err := s.findTranscript(ctx, rt, e, id, s.environOf(e))
	switch {
	case err == nil:
		return Yes
	case errors.Is(err, ErrNotFound):
		return No
	}
	return Unsure
}

// environOf looks variables up in the environment of the row's process. It is nil where
// that cannot be read, or is gone.
func (s *Store) environOf(e *Entry) func(string) string {
	sn, err := s.procs.sys.ChainTo(e.PID, itself)
	if err != nil {
		return nil
	}
	if p, ok := sn.Get(e.PID); !ok || e.PIDStartTicks == nil || p.Start != *e.PIDStartTicks {
		return nil
	}
	env, err := sn.Environ(e.PID)
	if err != nil {
		return nil
	}
	return func(name string) string {
		v, _ := env.Lookup(name)
		return v
	}
}

// itself makes a chain of one process.
func itself(*procscan.Proc) bool { return true }

// gather fills in the facts that ev's guards consult, under the row's lock. What cannot be
// found out stays unknown.
func (s *Store) gather(ctx context.Context, e *Entry, ev Event, seen ahead) Facts {
	f := seen.Facts
	need := ev.needs()
	if need&factSubject != 0 {
		f.Subject = s.procs.verdict(ev.Process)
	}
	if need&factRecorded != 0 {
		f.Recorded = s.recorded(ctx, e)
	}
	if need&factLaunched != 0 && e.Restore != nil {
		f.Launched = s.procs.verdict(e.Restore.Launched)
	}
	if need&factSession != 0 {
		f.Session = s.sessionVerdict(ctx, e)
	}
	if need&factCarriers != 0 && e.Lease != nil {
		f.Carriers = s.attemptVerdict(ctx, e.Lease)
	}
	if need&factLease != 0 && e.Lease != nil {
		f.Lease = s.sightLease(e.Lease, f.Lease.Grace)
	}
	if need&(factCarriesRow|factCarriesAttempt|factOutermost) != 0 {
		s.readCarrier(e, ev.Process, &f)
	}
	if need&factClaimed != 0 && f.Claimed == Unsure {
		f.Claimed = s.claimedByOther(e, processClaim(s.local(ev.Process)))
	}
	if need&factHeld != 0 && f.Held == Unsure {
		id := ev.SessionID
		if ev.Kind == EventBeginRestore {
			id = e.SessionID
		}
		if f.Held = s.claimedByOther(e, conversationClaim(e.Runtime, id)); f.Held == Yes {
			f.HeldBy, _ = s.holder(conversationClaim(e.Runtime, id))
		}
	}
	if seen.of != e.SessionID {
		f.HasTranscript = Unsure // the row has gone on since the look
	}
	if need&factCapture != 0 && e.Frozen != nil {
		f.Capture = s.captured(e.LedgerID, e.Frozen.Attempt)
	}
	return f
}

// recorded is the verdict of the row's recorded process. A row that never had one has a
// process only where one carries its id.
func (s *Store) recorded(ctx context.Context, e *Entry) Verdict {
	if p := e.Process(); !p.IsZero() {
		return s.procs.verdict(p)
	}
	return s.sessionVerdict(ctx, e)
}

// claimedByOther reports whether another row holds a key.
func (s *Store) claimedByOther(e *Entry, c claim) Answer {
	if complete, _, _, err := s.claimsComplete(); err != nil || !complete {
		return Unsure
	}
	switch by, err := s.holder(c); {
	case err != nil:
		return Unsure
	case by == "" || by == e.LedgerID:
		return No
	}
	return Yes
}

// captured reports whether an attempt's capture is complete: capture.ansi is renamed into
// place last.
func (s *Store) captured(id, attempt string) Answer {
	if !isPlainID(id) || !isPlainID(attempt) {
		return Unsure
	}
	info, err := os.Lstat(filepath.Join(s.captureDir(id, attempt), "capture.ansi"))
	switch {
	case err == nil && info.Mode().IsRegular():
		return Yes
	case errors.Is(err, fs.ErrNotExist):
		return No
	}
	return Unsure
}

// captureDir is where an attempt's captures are; with an empty attempt, all of a row's.
func (s *Store) captureDir(id, attempt string) string {
	if dir := os.Getenv("AGENT_FROZEN_DIR"); filepath.IsAbs(dir) {
		return filepath.Join(dir, id, attempt)
	}
	return s.path("frozen", id, attempt)
}

// sightLease looks at the owner of a lease. A grace of 0 is the store's.
func (s *Store) sightLease(l *Lease, grace time.Duration) LeaseSighting {
	here, _ := s.procs.here() // what is not known makes no lease stale
	boot, _ := s.bootSeconds()
	return LeaseSighting{Owner: s.procs.verdict(l.Owner), Here: here, BootSec: boot, Grace: cmp.Or(grace, s.grace)}
}

// leaseHeld adds to a refusal who holds the lease, and for how long still.
func (s *Store) leaseHeld(l *Lease, refusal error) error {
	seen := s.sightLease(l, 0)
	st := Entry{Lease: l}.State()
	held := &LeaseHeldError{Op: l.Op, Owner: l.Owner, Seen: seen.Owner, Stale: st.leaseStale(&seen), Err: refusal}
	if age, known := st.leaseAge(&seen); known && seen.Owner == Gone {
		held.Left = max(seen.grace()-age, 0)
	}
	return held
}

// readCarrier looks at the environment of a process and, during an operation, of those
// above it.
func (s *Store) readCarrier(e *Entry, p ProcessID, f *Facts) {
	enough := itself
	if e.Lease != nil { // then it matters whether another one above carries the attempt
		enough = func(*procscan.Proc) bool { return false }
	}
	sn, err := s.procs.sys.ChainTo(p.PID, enough)
	if err != nil {
		return
	}
	if q, ok := sn.Get(p.PID); !ok || q.Start != p.StartTicks || q.Gone() {
		return
	}
	carries := func(pid int, name, value string) Answer {
		env, err := sn.Environ(pid)
		if err != nil {
			return Unsure
		}
		if v, ok := env.Lookup(name); ok && v == value {
			return Yes
		}
		return No
	}
	f.CarriesRow = carries(p.PID, envID, e.LedgerID)
	if e.Lease == nil {
		return
	}
	f.CarriesAttempt = carries(p.PID, envAttempt, e.Lease.Attempt)
	f.Outermost = f.CarriesAttempt
	for above := range sn.Ancestors(p.PID) {
		if f.Outermost == Yes && carries(above.PID, envAttempt, e.Lease.Attempt) == Yes {
			f.Outermost = No
		}
	}
}

// looks is how often processes are looked at for a verdict: some process or other may just
// be starting a program, and hide what it carries for a moment.
const looks = 3

// attemptVerdict is the verdict of every process that carries an attempt.
func (s *Store) attemptVerdict(ctx context.Context, l *Lease) (seen Verdict) {
	for try := 0; try < looks && seen == Unknown; try++ {
		p, err := s.newPass(ctx)
		if err != nil {
			return Unknown
		}
		seen, _, _ = p.attempt(l.Attempt)
	}
	return seen
}

// sessionVerdict is the verdict of every session process of a row: its recorded and its
// launched process, and the one that carries its id.
func (s *Store) sessionVerdict(ctx context.Context, e *Entry) Verdict {
	launched := Gone
	if e.Restore != nil && !e.Restore.Launched.IsZero() {
		launched = s.procs.verdict(e.Restore.Launched)
	}
	if launched == Running || s.procs.verdict(e.Process()) == Running {
		return Running
	}
	found := Unknown
	for try := 0; try < looks && found == Unknown; try++ {
		p, err := s.newPass(ctx)
		if err != nil {
			return Unknown
		}
		rows, err := s.rowsOf(p, []Entry{*e})
		if err != nil {
			return Unknown
		}
		found = p.resolve(s.procs, e, rows).verdict
	}
	if found == Gone {
		return launched
	}
	return found
}
