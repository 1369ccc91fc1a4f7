package ledger

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"

	"github.com/sessionledger/ledger/internal/folder"
)

// A claim says which row holds a process, a conversation or a place: a file that holds
// the row's id, looked up and taken under the lock of its key. Claims make "one row a
// process, one open row a conversation, one row a place" hold across processes without
// reading the other rows. They are hints with a rule, not records: each is checked
// against the row that it names, so a crash between a claim and its row leaves nothing
// that the next comer could not replace.
type claim struct {
	kind    string // claimProcess, claimConversation, claimPlace
	key     string
	process ProcessID // of kind process

	// held reports whether the row still holds the key.
	held func(e *Entry) bool
}

const (
	claimProcess      = "process"
	claimConversation = "conversation"
	claimPlace        = "place"
)

// file is the claim's name: <kind>-<32 hex digits of the key's sha256>.
func (c claim) file() string {
	sum := sha256.Sum256([]byte(c.key))
	return c.kind + "-" + hex.EncodeToString(sum[:16])
}

// processClaim holds as long as its process runs and the row records it, whatever the
// row's phase: a session that ended by its hook and whose process lives on is not
// enrolled again.
func processClaim(p ProcessID) claim {
	return claim{
		kind:    claimProcess,
		key:     strconv.FormatUint(p.PIDNamespace, 10) + ":" + p.Key(),
		process: p,
		held:    func(e *Entry) bool { return p.Same(e.process()) || e.Restore != nil && p.Same(e.Restore.Launched) },
	}
}

func conversationClaim(runtime, id string) claim {
	return claim{
		kind: claimConversation,
		key:  runtime + ":" + id,
		held: func(e *Entry) bool { return e.IsOpen() && e.Runtime == runtime && e.SessionID == id },
	}
}

func placeClaim(root, window string, slot int) claim {
	return claim{
		kind: claimPlace,
		key:  root + "\x00" + window + "\x00" + strconv.Itoa(slot),
		held: func(e *Entry) bool {
			return e.IsOpen() && e.placeRoot() == root && e.Window == window && e.Slot == slot
		},
	}
}

// placeRoot is the folder that a session's place is counted in.
func (e *Entry) placeRoot() string {
	if e.RepoRoot != "" {
		return e.RepoRoot
	}
	return e.Cwd
}

// local fills in the pid namespace of a record that has none: a row of another
// implementation speaks of this machine's.
func (s *Store) local(p ProcessID) ProcessID {
	if p.PIDNamespace == 0 {
		here, _ := s.procs.here() // where this fails, claims fail: their stamp needs it too
		p.PIDNamespace = here.PIDNamespace
	}
	return p
}

// claimsOf lists the claims that a row's content entitles it to.
func (s *Store) claimsOf(e *Entry) []claim {
	var cs []claim
	if p := e.Process(); !p.IsZero() {
		cs = append(cs, processClaim(s.local(p)))
	}
	if e.Restore != nil && !e.Restore.Launched.IsZero() && !e.Restore.Launched.Same(e.Process()) {
		cs = append(cs, processClaim(s.local(e.Restore.Launched)))
	}
	if e.IsOpen() && e.SessionID != "" {
		cs = append(cs, conversationClaim(e.Runtime, e.SessionID))
	}
	if e.IsOpen() && e.Window != "" {
		cs = append(cs, placeClaim(e.placeRoot(), e.Window, e.Slot))
	}
	return cs
}

// heldError says that another row holds a key.
type heldError struct {
	claim claim
	by    string // ledger id
}

func (e *heldError) Error() string {
	return fmt.Sprintf("ledger: %s is held by %q", e.claim.kind, e.by)
}

func (e *heldError) Unwrap() error {
	if e.claim.kind == claimConversation {
		return ErrConversationHeld
	}
	return ErrExists
}

// withClaim runs write, which makes the row id hold c, under the key's lock. The error is
// a *heldError where another row holds it; write then does not run.
func (s *Store) withClaim(ctx context.Context, c claim, id string, write func() error) error {
	if err := s.completeClaims(ctx); err != nil {
		return err
	}
	unlock, err := s.lockKey(ctx, c.file())
	if err != nil {
		return err
	}
	defer unlock()
	by, err := s.holder(c)
	if err != nil {
		return err
	}
	if by != "" && by != id {
		return &heldError{c, by}
	}
	if by == "" {
		if err := s.writeClaim(c, id); err != nil {
			return err
		}
	}
	return write()
}

func (s *Store) writeClaim(c claim, id string) error {
	d, err := s.dir(dirClaims)
	if err != nil {
		return fmt.Errorf("ledger: claim: %w", err)
	}
	if err := d.Replace(s.tag(), c.file(), []byte(id+"\n"), false); err != nil {
		return fmt.Errorf("ledger: claim: %w", err)
	}
	return nil
}

// claimed reads which row a claim names; "" where it names none. torn says that there is
// something in the claim's place that names no row.
func (s *Store) claimed(c claim) (id string, torn bool, err error) {
	f, err := s.open(dirClaims)
	if errors.Is(err, fs.ErrNotExist) {
		return "", false, nil
	}
	if err != nil {
		return "", false, fmt.Errorf("ledger: claims: %w", err)
	}
	defer f.Close()
	return readClaim(f, c.file())
}

func readClaim(f *folder.Folder, name string) (id string, torn bool, err error) {
	data, _, err := f.Read(name, maxID+1, folder.Stamp{})
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", false, nil
	case errors.Is(err, folder.ErrTooLarge), errors.Is(err, folder.ErrNotRegular):
		return "", true, nil
	case err != nil:
		return "", false, fmt.Errorf("ledger: claims: %w", err)
	}
	id, whole := strings.CutSuffix(string(data), "\n")
	if !whole || !isPlainID(id) {
		return "", true, nil
	}
	return id, false, nil
}

// holder returns the id of the row that holds c, or "". A row that exists and cannot be
// read keeps its claims. Where the claim is torn, or names a row that is not there, the rows
// in sessions/ tell: another one may hold the key.
func (s *Store) holder(c claim) (string, error) {
	id, spoiled, err := s.claimant(c)
	if !spoiled || err != nil {
		return id, err
	}
	whole, err := s.scan(s.closed, dirSessions, func(_ string, r *row) bool {
		if r.err == nil && c.held(&r.entry) {
			id = r.entry.LedgerID
		}
		return id == ""
	})
	switch {
	case id != "":
		return id, nil
	case err == nil && !whole:
		err = fmt.Errorf("ledger: claims: %w: the list of rows changes all the time", ErrUnknown)
	}
	return "", err
}

// claimant is holder as far as the claim itself tells. spoiled says that it was written and
// leads to no row.
func (s *Store) claimant(c claim) (id string, spoiled bool, err error) {
	id, torn, err := s.claimed(c)
	if id == "" || err != nil {
		return "", torn, err
	}
	r, _, err := s.lookUp(id)
	switch {
	case errors.Is(err, ErrNotFound):
		return "", true, nil
	case err != nil:
		return "", false, err
	case r.err == nil && !c.held(&r.entry):
		return "", false, nil
	}
	return id, false, nil
}

// The stamp in claims/ names the boot under which the claims were complete.
const (
	claimsStamp = "complete"
	claimsLock  = "claims.lock"
)

// claimsComplete reports whether the claims name every row that this boot's processes
// could ask for, and the stamp that says so.
func (s *Store) claimsComplete() (complete bool, stamp, found string, err error) {
	here, err := s.procs.here()
	if err != nil {
		return false, "", "", fmt.Errorf("ledger: claims: %w", err)
	}
	stamp = here.BootID + "\n"
	f, err := s.open(dirClaims)
	if errors.Is(err, fs.ErrNotExist) {
		return false, stamp, "", nil
	}
	if err != nil {
		return false, stamp, "", fmt.Errorf("ledger: claims: %w", err)
	}
	defer f.Close()
	data, _, err := f.Read(claimsStamp, 256, folder.Stamp{})
	if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, folder.ErrTooLarge) {
		return false, stamp, "", fmt.Errorf("ledger: claims: %w", err)
	}
	return string(data) == stamp, stamp, string(data), nil
}

// completeClaims rebuilds the claims from the rows where they may lack some: after a
// boot, since they are not durable, and in a ledger that another implementation wrote.
func (s *Store) completeClaims(ctx context.Context) error {
	complete, _, _, err := s.claimsComplete()
	if complete || err != nil {
		return err
	}
	unlock, err := s.lockPass(ctx, claimsLock)
	if err != nil {
		return err
	}
	defer unlock()
	complete, stamp, found, err := s.claimsComplete() // another process may have been faster
	if complete || err != nil {
		return err
	}
	// Only rows of processes that may run can hold a claim beside the open ones. After a
	// boot there are none of the old, so the finished rows are read just where no stamp
	// tells that one was complete before.
	subs := []string{dirSessions}
	if found == "" {
		subs = append(subs, dirFinished)
	}
	if err := s.restoreAllClaims(ctx, subs); err != nil {
		return err
	}
	d, err := s.dir(dirClaims)
	if err != nil {
		return fmt.Errorf("ledger: claims: %w", err)
	}
	if err := d.Replace(s.tag(), claimsStamp, []byte(stamp), false); err != nil {
		return fmt.Errorf("ledger: claims: %w", err)
	}
	return nil
}

// restoreAllClaims writes the claims of all rows in the given folders. A folder that never
// stands still is listed until it shows no row that was not seen before.
func (s *Store) restoreAllClaims(ctx context.Context, subs []string) error {
	const tries = 10
	seen := map[string]bool{}
	for try := range tries {
		known, complete := len(seen), true
		for _, sub := range subs {
			var failed error
			whole, err := s.scan(ctx, sub, func(name string, r *row) bool {
				// A damaged row holds no key that could be read, and a repair enrols it again.
				if !seen[name] && r.err == nil {
					failed = s.restoreClaims(ctx, &r.entry)
				}
				seen[name] = true
				return failed == nil
			})
			if failed != nil {
				return failed
			}
			if err != nil {
				return err
			}
			complete = complete && whole
		}
		if complete || try > 0 && len(seen) == known {
			return nil
		}
	}
	return fmt.Errorf("ledger: claims: %w: the list of rows changes all the time", ErrUnknown)
}

// restoreClaims writes the claims that one row should have. Where two rows claim one key,
// the one that was found first keeps it.
func (s *Store) restoreClaims(ctx context.Context, e *Entry) error {
	for _, c := range s.claimsOf(e) {
		if s.procs.verdict(c.process) == Gone { // the zero value never is
			continue
		}
		if by, _, err := s.claimant(c); err != nil {
			return err
		} else if by != "" {
			continue
		}
		unlock, err := s.lockKey(ctx, c.file())
		if err != nil {
			return err
		}
		// What cannot be read must not be passed over: the claims are about to be called
		// complete, and what has none is then held by nobody.
		by, _, err := s.claimant(c)
		if by == "" && err == nil {
			err = s.writeClaim(c, e.LedgerID)
		}
		unlock()
		if err != nil {
			return err
		}
	}
	return nil
}
