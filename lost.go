package ledger

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/sessionledger/ledger/internal/durable"
)

// lostRows is an error where sessions/ is missing from a ledger that has been in use:
// renamed, say, or not mounted. Its rows are then not gone but unknown: nothing is listed,
// closed, cleared, reaped or enrolled on the strength of their absence. A ledger has been in
// use where a claim or a session's socket is there: sessions/ is made before both.
func (s *Store) lostRows() error {
	path := s.path(dirSessions)
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		return nil // whatever is there, who opens it will see
	}
	used, err := s.wasUsed()
	if _, again := os.Lstat(path); !errors.Is(again, fs.ErrNotExist) || err == nil && !used {
		return nil // another process has begun the ledger meanwhile, or nobody has
	}
	return fmt.Errorf("ledger: %w: %q is missing, though the ledger has been in use: bring it back, or make an empty one to begin anew", ErrUnknown, path)
}

func (s *Store) wasUsed() (bool, error) {
	sockets, err := s.sockets()
	if err != nil || len(sockets) > 0 {
		return true, err
	}
	f, err := s.open(dirClaims)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer f.Close()
	names, _, err := f.Names()
	for _, name := range names {
		if isClaim(name) {
			return true, nil
		}
	}
	return false, err
}

// isClaim tells a claim by the name of its file.
func isClaim(name string) bool {
	kind, _, _ := strings.Cut(name, "-")
	return kind == claimProcess || kind == claimConversation || kind == claimPlace
}

// makeSessions makes sessions/, also where it was lost: a person's new session is not to
// fail for it. Its row is then the first of a ledger that begins anew.
func (s *Store) makeSessions() error {
	if s.lostRows() != nil {
		if err := durable.MkdirAll(s.path(dirSessions), 0o700); err != nil {
			return fmt.Errorf("ledger: create: %w", err)
		}
	}
	if _, err := s.dir(dirSessions); err != nil {
		return fmt.Errorf("ledger: create: %w", err)
	}
	return nil
}
