package ledger

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/sessionledger/ledger/internal/durable"
	"github.com/sessionledger/ledger/internal/gitcmd"
)

// RescueOptions say how work is rescued. The zero value is the default.
type RescueOptions struct {
	Timeout     time.Duration // bound for all git work on one row; 0: 30 s
	MaxFileSize int64         // larger untracked files are left out and listed, in bytes; 0: no limit
	Git         string        // the git binary; "": git on PATH

	nonce string // of a kill or drop that rescues first
}

const defaultRescueTimeout = 30 * time.Second

// Rescued is the work of one dead session, held by a commit under refs/rescued/.
type Rescued struct {
	ID      string    `json:"id"` // ledger id
	Ref     string    `json:"ref"`
	Commit  string    `json:"commit"`
	Paths   []string  `json:"paths"` // relative to the top of the working tree, at most 200
	More    int       `json:"pathsMore,omitzero"`
	Omitted []Omitted `json:"omitted"` // what the commit does not hold, and why; at most 200
	At      time.Time `json:"at"`

	Already bool `json:"already,omitzero"` // it was rescued before, and nothing was done now
	// Nothing says why there is no ref: there was nothing uncommitted, or no repository.
	Nothing string `json:"nothing,omitzero"`
}

// Rescue snapshots the uncommitted work of a session whose process is gone into
// refs/rescued/<id> of its repository, once. It touches neither working tree nor index,
// HEAD nor branches, and runs no hook. It is for rows that once recorded a process, also for
// finished ones whose work was not rescued before; a row with an operation in flight, or
// frozen, has its work in use.
//
// The error is [ErrIllegal] for a row that is none of these or whose process runs,
// [ErrUnknown] where its end is not proven, or says why git could not do it: the row then
// stays as it was, to be tried again.
func Rescue(ctx context.Context, s *Store, id string, opts RescueOptions) (Rescued, error) {
	e, err := s.startRescue(ctx, id, opts.nonce)
	if err != nil {
		return Rescued{ID: id}, err
	}
	if !e.RescuedAt.IsZero() {
		return rescuedOf(&e), nil
	}
	snap, err := s.snapshotWork(ctx, &e, opts)
	if err != nil && !errors.Is(err, gitcmd.ErrNotRepository) {
		return Rescued{ID: id}, errors.Join(fmt.Errorf("ledger: rescue %q: %w", id, err), s.giveUpRescue(ctx, &e))
	}
	e, err = s.rewrite(context.WithoutCancel(ctx), id, true, maxRow, func(e *Entry) (verdict, error) {
		e.recordRescue(&snap, s.now())
		return unchanged, nil
	})
	r := rescuedOf(&e)
	r.Already = false
	switch {
	case snap.Clean:
		r.Nothing = "nothing was uncommitted"
	case snap.Root == "":
		r.Nothing = "no repository"
	case snap.Ref == "":
		r.Nothing = "nothing of it fits into a commit here; what is omitted says where it is"
	}
	return r, err
}

// startRescue marks the row before git runs, so that no new process is bound to it
// meanwhile. A row that was rescued comes back as it is.
func (s *Store) startRescue(ctx context.Context, id, nonce string) (Entry, error) {
	return s.rewrite(ctx, id, true, maxRow, func(e *Entry) (verdict, error) {
		state := e.State()
		refuse := func(reason string) error {
			return fmt.Errorf("ledger: rescue %q: %w: %s", id, ErrIllegal, reason)
		}
		switch {
		case state.Rescued:
			return unchanged, nil
		case e.PID == 0:
			return unchanged, refuse("it never recorded a process")
		case nonce != "" && state.Nonce == nonce && (state.Op == OpKill || state.Op == OpDrop):
		case state.Op != OpNone:
			return unchanged, refuse(string(state.Op) + " is in flight")
		// One that ended before its work could be rescued still has it.
		case state.Phase != PhaseLive && state.Phase != PhaseFinished:
			return unchanged, refuse("it is " + string(state.Phase))
		}
		switch s.sessionVerdict(ctx, e) {
		case Running:
			return unchanged, refuse("its process runs")
		case Unknown:
			return unchanged, fmt.Errorf("ledger: rescue %q: %w: whether its process is gone", id, ErrUnknown)
		}
		e.Rescuing = &Rescuing{At: s.now(), ProcessKey: e.Process().Key()}
		return unchanged, nil
	})
}

// giveUpRescue takes the mark back: a rescue that failed does not keep the session from
// being resumed.
func (s *Store) giveUpRescue(ctx context.Context, of *Entry) error {
	_, err := s.rewrite(context.WithoutCancel(ctx), of.LedgerID, true, maxRow, func(e *Entry) (verdict, error) {
		if e.Rescuing != nil && e.Rescuing.ProcessKey == of.Process().Key() {
			e.Rescuing = nil
		}
		return unchanged, nil
	})
	return err
}

// snapshotWork runs git. A folder in no repository is gitcmd.ErrNotRepository.
func (s *Store) snapshotWork(ctx context.Context, e *Entry, opts RescueOptions) (gitcmd.Snapshot, error) {
	dir := cmp.Or(e.RepoRoot, e.Cwd)
	if dir == "" {
		return gitcmd.Snapshot{}, errNoFolder
	}
	scratch := s.path(dirScratch)
	if err := durable.MkdirAll(scratch, 0o700); err != nil {
		return gitcmd.Snapshot{}, err
	}
	timeout := cmp.Or(opts.Timeout, defaultRescueTimeout)
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	shared := s.sharers(ctx, e)
	runner := gitcmd.Runner{Git: opts.Git, Timeout: timeout}
	return runner.Snapshot(ctx, gitcmd.SnapshotOptions{
		Dir: dir, Scratch: scratch, Ref: gitcmd.RescuePrefix + e.LedgerID, Time: s.now(), MaxFileSize: opts.MaxFileSize,
		Message: func(snap gitcmd.Snapshot) string { return rescueMessage(e, snap, shared) },
	})
}

// dirScratch holds the throwaway files of rescues.
const dirScratch = "scratch"

// sharers lists the live sessions of the same working tree.
func (s *Store) sharers(ctx context.Context, e *Entry) (ids []string) {
	for other, err := range s.OpenEntries(ctx) {
		if err == nil && other.LedgerID != e.LedgerID && other.placeRoot() == e.placeRoot() &&
			s.procs.verdict(other.Process()) == Running {
			ids = append(ids, other.LedgerID)
		}
	}
	return ids
}

// rescueMessage is the commit message: what it is, how to bring it back, and all that the
// row has no room for. Names are quoted, since any byte but NUL can be in one.
func rescueMessage(e *Entry, snap gitcmd.Snapshot, shared []string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "Rescued work of %s\n\n", e.LedgerID)
	fmt.Fprintf(&b, "Uncommitted when its process was found gone. Bring it back with:\n\n    git cherry-pick -n %s%s\n\n", gitcmd.RescuePrefix, e.LedgerID)
	fmt.Fprintf(&b, "Session: %s\nRuntime: %s\nFolder: %q\nStarted: %s\n", e.LedgerID, e.Runtime, e.Cwd, e.StartedAt.Format(timeLayout))
	if e.SessionID != "" {
		fmt.Fprintf(&b, "Conversation: %q\n", e.SessionID)
	}
	fmt.Fprintf(&b, "Last active: %s\n", lastActive(e, &Evidence{}, time.Time{}).Format(timeLayout))
	if len(shared) > 0 {
		fmt.Fprintf(&b, "\nThe work may not be this session's alone; these ran in the same working tree:\n")
		for _, id := range shared {
			fmt.Fprintf(&b, "  %s\n", id)
		}
	}
	if len(snap.Omitted) > 0 {
		fmt.Fprintf(&b, "\nNot held by this commit:\n")
		for _, o := range snap.Omitted {
			fmt.Fprintf(&b, "  %q: %s", o.Path, o.Reason)
			if o.Ref != "" {
				fmt.Fprintf(&b, " (rescued there as %s)", o.Ref)
			}
			b.WriteByte('\n')
		}
	}
	if len(snap.Unfiltered) > 0 {
		fmt.Fprintf(&b, "\nHeld as in the working tree, since these filters could not run: %s\n", strings.Join(snap.Unfiltered, ", "))
	}
	fmt.Fprintf(&b, "\nPaths:\n")
	for _, p := range snap.Paths {
		fmt.Fprintf(&b, "  %q\n", p)
	}
	return b.String()
}

// recordRescue writes the outcome into the row. Lists are capped; the commit message has
// all of them.
func (e *Entry) recordRescue(snap *gitcmd.Snapshot, at time.Time) {
	e.Rescuing = nil
	if !e.RescuedAt.IsZero() {
		return // another sweep was faster; the ref is the same
	}
	e.RescuedAt, e.RescueRef, e.RescueCommit = at, snap.Ref, snap.Commit
	paths := snap.Paths
	if len(paths) > maxList {
		paths, e.RescuedMore = paths[:maxList], len(paths)-maxList
	}
	e.RescuedPaths = append([]string(nil), paths...)
	for i, o := range snap.Omitted {
		if i == maxList {
			e.OmittedMore = len(snap.Omitted) - maxList
			break
		}
		e.RescueOmitted = append(e.RescueOmitted, Omitted{Path: o.Path, Reason: o.Reason, Ref: o.Ref})
	}
}

// rescuedOf reads a rescue from its row.
func rescuedOf(e *Entry) Rescued {
	return Rescued{ID: e.LedgerID, Ref: e.RescueRef, Commit: e.RescueCommit, Paths: e.RescuedPaths, More: e.RescuedMore,
		Omitted: e.RescueOmitted, At: e.RescuedAt, Already: true}
}

// Rescues lists the rescued work in the repository that holds the folder repo, with what
// the rows still know of it, the newest first. A rescue outlives its row.
func Rescues(ctx context.Context, s *Store, repo string) ([]Rescued, error) {
	held, err := gitcmd.Runner{}.List(ctx, repo)
	if err != nil {
		return nil, fmt.Errorf("ledger: rescues in %q: %w", repo, err)
	}
	list := make([]Rescued, 0, len(held))
	for _, h := range held {
		id := strings.TrimPrefix(h.Name, gitcmd.RescuePrefix)
		r := Rescued{ID: id, Ref: h.Name, Commit: h.Commit, At: h.Time}
		if e, err := s.Get(ctx, id); err == nil && e.RescueCommit == h.Commit {
			r = rescuedOf(&e)
			r.Already = false
		}
		list = append(list, r)
	}
	return list, nil
}

// rescueBeforeEnd rescues the work of a session that is about to be ended for good.
func (h *Host) rescueBeforeEnd(ctx context.Context, e *Entry) error {
	if e.PID == 0 || !e.RescuedAt.IsZero() || e.Phase != PhaseLive {
		return nil
	}
	_, err := Rescue(ctx, h.Store, e.LedgerID, RescueOptions{nonce: e.Lease.Nonce})
	return err
}

// rescueUnlessHopeless rescues the work of a row under the lease of that nonce. It is no
// failure where no retry can ever do it.
func (s *Store) rescueUnlessHopeless(ctx context.Context, id, nonce string) error {
	_, err := Rescue(ctx, s, id, RescueOptions{nonce: nonce})
	if err != nil && rescueIsHopeless(err) {
		s.logger.Warn("work not rescued", "session", id, "error", err)
		return nil
	}
	return err
}

// errNoFolder is a rescue of a row that does not say where it ran.
var errNoFolder = errors.New("its folder was never recorded")

// rescueIsHopeless reports whether a retry may never change the answer: what stands in the
// way is not git's to mend.
func rescueIsHopeless(err error) bool {
	for _, e := range []error{errNoFolder, gitcmd.ErrNoDirectory, gitcmd.ErrNoWorkTree, gitcmd.ErrForeignOwner, gitcmd.ErrBroken} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}
