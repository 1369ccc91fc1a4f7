package ledger

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sessionledger/ledger/internal/durable"
	"github.com/sessionledger/ledger/internal/flock"
	"github.com/sessionledger/ledger/internal/folder"
	"github.com/sessionledger/ledger/tmux"
)

// Clock tells the time. One that also has a method BootSeconds() (int64, error) tells
// the boot clock too: seconds since boot, suspended time included.
type Clock interface{ Now() time.Time }

// Options of a [Store]. The zero value, and nil, are the defaults.
type Options struct {
	Clock    Clock         // nil: the machine's
	ProcFS   string        // where proc is mounted; "": /proc
	Home     string        // "": the user's home folder
	Runtimes *Runtimes     // nil: BuiltinRuntimes
	Logger   *slog.Logger  // nil: silent
	LockWait time.Duration // longest wait for a lock where the context has no deadline; 0: 10 s
	Servers  []tmux.Server // a person's own tmux servers: where to look for sessions in a server of which no socket is known, and how to run tmux for them
	Grace    time.Duration // least age of a dead owner's lease before it is stale; 0: DefaultGrace, less than 0: none
}

// Store is a ledger on disk. It is safe for concurrent use by any number of goroutines
// and processes. Between calls it holds no lock, and no descriptor but those of the folders
// that it has written to.
//
// Every method that waits obeys its context. Without a deadline, a lock is waited for
// no longer than Options.LockWait.
type Store struct {
	root        string
	clock       Clock
	home        string
	runtimes    *Runtimes
	logger      *slog.Logger
	lockWait    time.Duration
	grace       time.Duration
	servers     []tmux.Server
	procs       *table
	rows        *flock.Set   // locks/
	ownLocks    func() error // refuses a symlink or file in place of locks/, once
	passes      *flock.Set   // locks of whole passes, in the root itself
	cache       cache
	transcripts transcripts

	folders folders
	closed  context.Context
	close   context.CancelFunc
	writer  known[string]
}

const (
	dirSessions = "sessions"
	dirFinished = "sessions/finished"
	dirLocks    = "locks"
	dirClaims   = "claims"
	dirDamaged  = "damaged"
)

const (
	maxRow       = 1 << 20   // a larger file is a damaged row
	maxUpdate    = 768 << 10 // an embedder's write leaves room for the transitions to come
	defaultWait  = 10 * time.Second
	rowExtension = ".json"
)

// Open opens the ledger in dir and creates the folder, mode 0700, where it is missing.
// The empty string is the default: $AGENT_SESSIONS_DIR, else
// $XDG_STATE_HOME/agent-sessions, else ~/.local/state/agent-sessions. Open deletes
// nothing and writes no row. On a file system that is mounted read-only, reading works
// and every write fails with EROFS.
//
// The error is [ErrInsecureRoot] where dir is a symlink or no folder, belongs to another
// user, or is writable by group or others and cannot be tightened.
func Open(dir string, opts *Options) (*Store, error) {
	if err := checkCodec(); err != nil {
		return nil, err
	}
	o := Options{}
	if opts != nil {
		o = *opts
	}
	root, home, err := resolveRoot(dir, o.Home)
	if err != nil {
		return nil, err
	}
	if err := makeRoot(root); err != nil {
		return nil, err
	}
	s := &Store{
		root:     root,
		clock:    o.Clock,
		home:     home,
		runtimes: o.Runtimes,
		logger:   o.Logger,
		lockWait: cmp.Or(o.LockWait, defaultWait),
		grace:    o.Grace,
		servers:  slices.Clone(o.Servers),
		procs:    newTable(o.ProcFS),
		rows:     flock.NewSet(filepath.Join(root, dirLocks), o.ProcFS),
		passes:   flock.NewSet(root, o.ProcFS),
	}
	if s.clock == nil {
		s.clock = machineClock{}
	}
	if s.runtimes == nil {
		s.runtimes = BuiltinRuntimes()
	}
	if s.logger == nil {
		s.logger = slog.New(slog.DiscardHandler)
	}
	s.ownLocks = sync.OnceValue(func() error {
		info, err := os.Lstat(s.path(dirLocks))
		if err == nil && !info.IsDir() { // the holders of a lock elsewhere are others
			return fmt.Errorf("%w: %q is %s, not a folder", ErrInsecureRoot, s.path(dirLocks), info.Mode().Type())
		}
		return nil
	})
	s.closed, s.close = context.WithCancel(context.Background())
	return s, nil
}

// Close ends the use of the store: later calls fail with [fs.ErrClosed]. It writes
// nothing and removes nothing.
func (s *Store) Close() error {
	s.close()
	s.folders.mu.Lock()
	defer s.folders.mu.Unlock()
	var errs []error
	for sub, w := range s.folders.open {
		errs = append(errs, w.dir.Close(), w.read.Close())
		delete(s.folders.open, sub)
	}
	return errors.Join(errs...)
}

// Dir returns the ledger's folder as an absolute path.
func (s *Store) Dir() string { return s.root }

// begin checks what every call checks first.
func (s *Store) begin(ctx context.Context) error {
	if s.closed.Err() != nil {
		return fmt.Errorf("ledger: store: %w", fs.ErrClosed)
	}
	return ctx.Err()
}

// now is the time as rows store it.
func (s *Store) now() time.Time { return s.clock.Now().UTC().Truncate(time.Second) }

type machineClock struct{}

func (machineClock) Now() time.Time { return time.Now() }

// bootSeconds reads the boot clock: the injected one where there is one.
func (s *Store) bootSeconds() (int64, error) {
	if b, ok := s.clock.(interface{ BootSeconds() (int64, error) }); ok {
		return b.BootSeconds()
	}
	return s.procs.sys.BootSeconds()
}

// resolveRoot applies the defaults. The home folder is needed only where nothing else
// names the root, and may be unknown elsewhere.
func resolveRoot(dir, home string) (root, userHome string, err error) {
	if home == "" {
		home, err = os.UserHomeDir()
	}
	switch {
	case dir != "":
	case os.Getenv(envDir) != "":
		dir = os.Getenv(envDir)
	// The XDG specification has relative paths ignored.
	case filepath.IsAbs(os.Getenv("XDG_STATE_HOME")):
		dir = filepath.Join(os.Getenv("XDG_STATE_HOME"), "agent-sessions")
	case home != "":
		dir = filepath.Join(home, ".local", "state", "agent-sessions")
	default:
		return "", "", fmt.Errorf("ledger: no folder given, and no home folder to find the default in: %w", err)
	}
	root, err = filepath.Abs(dir)
	return root, home, err
}

func makeRoot(root string) error {
	_, err := os.Lstat(root)
	if errors.Is(err, fs.ErrNotExist) {
		err = durable.MkdirAll(root, 0o700)
	}
	if err == nil {
		err = folder.Secure(root)
	}
	if errors.Is(err, folder.ErrInsecure) {
		return fmt.Errorf("%w: %w", ErrInsecureRoot, err)
	}
	if err != nil {
		return fmt.Errorf("ledger: open: %w", err)
	}
	return nil
}

// path joins names below the root.
func (s *Store) path(names ...string) string {
	return filepath.Join(append([]string{s.root}, names...)...)
}

// open opens one of the ledger's folders for reading. The error is fs.ErrNotExist for
// one that was never needed.
func (s *Store) open(sub string) (*folder.Folder, error) { return folder.Open(s.path(sub)) }

// folders holds the folders that were written to, so that writers at the same time share
// the sync of their folder.
type folders struct {
	mu   sync.Mutex
	open map[string]writable
}

type writable struct {
	dir  *durable.Dir
	read *folder.Folder // the same, for reading
	info fs.FileInfo
}

// dir returns one of the ledger's folders for writing, as [Store.held] does.
func (s *Store) dir(sub string) (*durable.Dir, error) {
	w, err := s.held(sub)
	return w.dir, err
}

// held returns one of the ledger's folders for reading and writing, and makes it first where
// it is missing; but see [Store.lostRows]. A folder that was replaced since it was opened is opened anew.
func (s *Store) held(sub string) (writable, error) {
	s.folders.mu.Lock()
	defer s.folders.mu.Unlock()
	path := s.path(sub)
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		if strings.HasPrefix(sub, dirSessions) {
			if err := s.lostRows(); err != nil {
				return writable{}, err
			}
		}
		if err = durable.MkdirAll(path, 0o700); err == nil {
			info, err = os.Lstat(path)
		}
	}
	if err != nil {
		return writable{}, err
	}
	if w, ok := s.folders.open[sub]; ok && os.SameFile(w.info, info) {
		return w, nil
	}
	if err := s.closed.Err(); err != nil {
		return writable{}, fs.ErrClosed
	}
	w := writable{info: info}
	if w.dir, err = durable.OpenDir(path); err != nil {
		return writable{}, err
	}
	if w.read, err = folder.Open(path); err != nil {
		w.dir.Close()
		return writable{}, err
	}
	if s.folders.open == nil {
		s.folders.open = map[string]writable{}
	}
	// One that was replaced may be in use still: it is closed when nobody holds it.
	s.folders.open[sub] = w
	return w, nil
}
