package ledger

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/sessionledger/ledger/internal/folder"
)

// Get returns the row id, open or finished. It takes no lock.
//
// The error is [ErrNotFound], [ErrInvalid] for what is no plain id, or a *[DamagedError].
func (s *Store) Get(ctx context.Context, id string) (Entry, error) {
	if err := s.begin(ctx); err != nil {
		return Entry{}, err
	}
	if err := checkID(id); err != nil {
		return Entry{}, err
	}
	r, _, err := s.lookUp(id)
	if err != nil {
		return Entry{}, err
	}
	if r.err != nil {
		return Entry{}, r.err
	}
	return r.entry.clone(), nil
}

// Entries yields every row, open ones first, each as one whole generation. It takes no
// lock. A row that cannot be trusted yields a *[DamagedError] and the iteration goes on;
// any other error ends it. A row that is written, filed or removed meanwhile is yielded
// at most once.
func (s *Store) Entries(ctx context.Context) iter.Seq2[Entry, error] {
	return s.each(ctx, dirSessions, dirFinished)
}

// OpenEntries is [Store.Entries] for the rows that are not finished. Finished rows that
// were filed away cost it nothing, whatever their number.
func (s *Store) OpenEntries(ctx context.Context) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		for e, err := range s.each(ctx, dirSessions) {
			if err == nil && !e.IsOpen() {
				continue
			}
			if !yield(e, err) {
				return
			}
		}
	}
}

// each yields the rows of the named folders in turn. The order matters: a row can move
// from sessions to finished meanwhile, never back.
func (s *Store) each(ctx context.Context, subs ...string) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		if err := s.begin(ctx); err != nil {
			yield(Entry{}, err)
			return
		}
		seen := map[string]bool{}
		for i, sub := range subs {
			_, err := s.scan(ctx, sub, func(name string, r *row) bool {
				if seen[name] {
					return true
				}
				if i < len(subs)-1 {
					seen[name] = true
				}
				if r.err != nil {
					return yield(Entry{}, r.err)
				}
				return yield(r.entry.clone(), nil)
			})
			if err == errStopped {
				return
			}
			if err != nil {
				yield(Entry{}, err)
				return
			}
		}
	}
}

// row is one generation of a row's file, decoded, or why it cannot be. It is shared by
// the cache and all readers, and never changed.
type row struct {
	stamp folder.Stamp
	entry Entry
	err   error  // a *DamagedError, or nil
	raw   string // the file, where the row is not kept
}

// cache holds the rows of sessions/ as they were last read. Those of finished/ are not
// kept: their number has no bound.
type cache struct {
	mu   sync.RWMutex
	rows map[string]*row
}

func (c *cache) get(name string) *row {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.rows[name]
}

func (c *cache) put(name string, r *row) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.rows == nil {
		c.rows = map[string]*row{}
	}
	c.rows[name] = r
}

// keep forgets all rows but the named ones.
func (c *cache) keep(names map[string]bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.DeleteFunc(c.rows, func(name string, _ *row) bool { return !names[name] })
}

// cacheAge is how old a file must be before what was read of it is kept: a file system's
// clock is coarse, and two writes within one of its ticks can leave the same stamp.
const cacheAge = time.Second

// read reads one row's file. The error is fs.ErrNotExist, or one that concerns the whole
// store; what concerns the row alone is in the row.
func (s *Store) read(f *folder.Folder, name string, warm bool) (*row, error) {
	return s.readListed(f, nil, name, warm)
}

// readListed is read for a name that a listing has just shown to be a regular file's where
// buf is not nil: memory that the next call may use again.
func (s *Store) readListed(f *folder.Folder, buf *[]byte, name string, warm bool) (*row, error) {
	var cached *row
	var known folder.Stamp
	if warm {
		if cached = s.cache.get(name); cached != nil {
			known = cached.stamp
		}
	}
	start := time.Now()
	var data []byte
	var stamp folder.Stamp
	var err error
	if cached == nil && buf != nil {
		if data, stamp, err = f.ReadListed(*buf, name, maxRow); data != nil {
			*buf = data
		}
	} else {
		data, stamp, err = f.Read(name, maxRow, known)
	}
	if cached != nil && err == nil && stamp == known {
		return cached, nil
	}
	text := string(data)
	r := &row{stamp: stamp}
	content := err == nil || errors.Is(err, folder.ErrTooLarge) // what was seen stays so for this stamp
	id := strings.TrimSuffix(name, rowExtension)
	switch {
	case errors.Is(err, fs.ErrNotExist), isElsewhere(err):
		return nil, err
	case err == nil && !isPlainID(id):
		err = errors.New("its name is no ledger id")
	case err == nil:
		if err = r.entry.decode(data, text); err == nil && r.entry.LedgerID != id {
			err = fmt.Errorf("holds the row %.140q", r.entry.LedgerID)
		}
	}
	if err != nil {
		r.entry, r.err = Entry{}, &DamagedError{ID: id, Path: f.Path() + "/" + name, Err: err}
	}
	if warm && content && start.Sub(time.Unix(0, max(stamp.Mtime, stamp.Ctime))) > cacheAge {
		s.cache.put(name, r)
	} else {
		r.raw = text
	}
	return r, nil
}

// isElsewhere tells a lack of this process or machine, and a store that was closed, from a
// fault of one row.
func isElsewhere(err error) bool {
	return errors.Is(err, fs.ErrClosed) || errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) || errors.Is(err, syscall.ENOMEM)
}

// lookUp finds the row id where it lies. The error is ErrNotFound.
func (s *Store) lookUp(id string) (*row, string, error) { return s.lookUpIn(nil, id) }

// lookUpIn is lookUp for a caller that has sessions/ open.
func (s *Store) lookUpIn(sessions *folder.Folder, id string) (*row, string, error) {
	for _, sub := range []string{dirSessions, dirFinished} {
		f := sessions
		if f == nil || sub != dirSessions {
			opened, err := s.open(sub)
			if errors.Is(err, fs.ErrNotExist) {
				if err := s.lostRows(); err != nil {
					return nil, "", fmt.Errorf("look up %q: %w", id, err)
				}
				continue
			}
			if err != nil {
				return nil, "", fmt.Errorf("ledger: look up %q: %w", id, err)
			}
			defer opened.Close()
			f = opened
		}
		r, err := s.read(f, id+rowExtension, sub == dirSessions)
		if err == nil {
			return r, sub, nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return nil, "", fmt.Errorf("ledger: look up %q: %w", id, err)
		}
	}
	return nil, "", fmt.Errorf("ledger: %w: %q", ErrNotFound, id)
}

// errStopped ends a scan whose caller has seen enough.
var errStopped = errors.New("stopped")

// scan reads the rows of one folder, on two cores where there are two, and hands them to
// yield in the order of their names. complete says whether the listing is known to have
// shown every row. A folder that does not exist has no rows, unless it was lost.
func (s *Store) scan(ctx context.Context, sub string, yield func(name string, r *row) bool) (complete bool, err error) {
	names, odd, complete, err := s.listKinds(ctx, sub)
	if err != nil {
		return false, fmt.Errorf("ledger: list: %w", err)
	}
	warm := sub == dirSessions
	if warm {
		defer s.forget(names)
	}
	if len(names) == 0 {
		return complete, nil
	}
	f, err := s.open(sub)
	if err != nil {
		return false, fmt.Errorf("ledger: list: %w", err)
	}
	defer f.Close()
	err = s.readAll(ctx, f, names, odd, warm, yield)
	return complete && err == nil, err
}

// forget drops rows from the cache that a listing no longer shows.
func (s *Store) forget(names []string) {
	s.cache.mu.RLock()
	cached := len(s.cache.rows)
	s.cache.mu.RUnlock()
	if cached <= len(names) {
		return // what is superfluous is at most what is needed; the next listing settles it
	}
	listed := make(map[string]bool, len(names))
	for _, name := range names {
		listed[name] = true
	}
	s.cache.keep(listed)
}

const (
	readChunk = 128 // rows that a reader takes at a time
	readAhead = 8   // chunks that are read before they are wanted
)

// readAll hands the rows of names to yield, in their order and without those that have
// vanished. Two goroutines read ahead; they have ended when it returns.
func (s *Store) readAll(ctx context.Context, f *folder.Folder, names []string, odd map[string]bool, warm bool, yield func(string, *row) bool) error {
	chunks := (len(names) + readChunk - 1) / readChunk
	part := func(i int) []string { return names[i*readChunk : min((i+1)*readChunk, len(names))] }
	type result struct {
		rows []*row
		err  error
	}
	read := func(i int) (r result) {
		names := part(i)
		r.rows = make([]*row, len(names))
		var buf []byte
		for j, name := range names {
			into := &buf
			if odd[name] {
				into = nil
			}
			var err error
			if r.rows[j], err = s.readListed(f, into, name, warm); err != nil && !errors.Is(err, fs.ErrNotExist) {
				r.err = fmt.Errorf("ledger: list: %w", err)
				break
			}
		}
		return r
	}
	next := read
	if chunks > 1 && runtime.GOMAXPROCS(0) > 1 {
		results := make([]chan result, chunks)
		for i := range results {
			results[i] = make(chan result, 1)
		}
		var taken atomic.Int64
		var readers sync.WaitGroup
		ahead, stop := make(chan struct{}, readAhead), make(chan struct{})
		defer readers.Wait()
		defer close(stop)
		for range 2 {
			readers.Go(func() {
				for {
					select {
					case ahead <- struct{}{}:
					case <-stop:
						return
					}
					i := int(taken.Add(1)) - 1
					if i >= chunks {
						return
					}
					results[i] <- read(i)
				}
			})
		}
		next = func(i int) result {
			r := <-results[i]
			<-ahead
			return r
		}
	}
	for i := range chunks {
		if err := ctx.Err(); err != nil {
			return err
		}
		r := next(i)
		if r.err != nil {
			return r.err
		}
		for j, name := range part(i) {
			if r.rows[j] != nil && !yield(name, r.rows[j]) {
				return errStopped
			}
		}
	}
	return nil
}

// listTries is how often a folder is listed again because it changed meanwhile.
const listTries = 5

// list returns the names of a folder's rows. A folder that does not exist has none.
func (s *Store) list(ctx context.Context, sub string) (names []string, complete bool, err error) {
	names, _, complete, err = s.listKinds(ctx, sub)
	return names, complete, err
}

// listKinds is list, with those names that may be of no regular files.
func (s *Store) listKinds(ctx context.Context, sub string) (names []string, odd map[string]bool, complete bool, err error) {
	f, err := s.open(sub)
	if errors.Is(err, fs.ErrNotExist) {
		if err := s.lostRows(); err != nil {
			return nil, nil, false, err
		}
		return nil, nil, true, nil
	}
	if err != nil {
		return nil, nil, false, err
	}
	defer f.Close()
	return rowNames(ctx, f)
}

// rowNames lists the files of a folder that are rows by their name, sorted. Some file
// systems (btrfs) can hide a name from a listing during which it was renamed, so a
// folder that changed meanwhile is listed again and the names are joined; complete is
// false where it never stood still.
func rowNames(ctx context.Context, f *folder.Folder) (names []string, odd map[string]bool, complete bool, err error) {
	odd = map[string]bool{}
	for try := 0; try < listTries && !complete; try++ {
		if err := ctx.Err(); err != nil {
			return nil, nil, false, err
		}
		before, err := f.Mtime()
		if err != nil {
			return nil, nil, false, err
		}
		listed, others, err := f.Names()
		if err != nil {
			return nil, nil, false, err
		}
		after, err := f.Mtime()
		if err != nil {
			return nil, nil, false, err
		}
		complete = before.Equal(after)
		maps.Copy(odd, others)
		names = append(names, slices.DeleteFunc(listed, func(name string) bool {
			return !strings.HasSuffix(name, rowExtension)
		})...)
	}
	slices.Sort(names)
	return slices.Compact(names), odd, complete, nil
}
