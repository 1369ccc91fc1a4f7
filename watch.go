package ledger

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/sessionledger/ledger/internal/procscan"
)

// ChangeKind says what a [Change] is about.
type ChangeKind string

// The kinds of changes.
const (
	ChangeCreated ChangeKind = "created" // a row that was not there
	ChangeUpdated ChangeKind = "updated" // a row was written
	ChangeRemoved ChangeKind = "removed" // a row went away; filing it is no change
	ChangeDamaged ChangeKind = "damaged" // a row can no longer be trusted
	ChangeExited  ChangeKind = "exited"  // the recorded process of an open row ended, or had when the row was first seen
)

// Change is something that happened to a session while it was watched.
type Change struct {
	ID   string     `json:"id"`
	Kind ChangeKind `json:"kind"`
	From string     `json:"from"` // state before, as phase/op, or "running"; "" where there was none
	To   string     `json:"to"`   // state after it, or "gone"; "" where there is none
	At   time.Time  `json:"at"`   // when it was noticed

	Entry Entry `json:"-"` // the row as it is now; as it was, where it is removed or damaged
}

// Watch yields the changes of open rows, and the exits of their processes, as they
// happen, from the moment the range over it begins until the context ends or the caller
// stops. A process that is gone by then is among the exits: of what ended between a list and
// the watch that follows it, the caller learns too. Rows
// are watched by file notification and processes by one pidfd each: nothing is polled.
// Writes that follow each other closely may be joined into one change. Where notifications
// were lost all rows are read again, so that no change is.
//
// A damaged row comes as a Change; an error ends the iteration, the context's own
// excepted, which ends it silently.
func (s *Store) Watch(ctx context.Context) iter.Seq2[Change, error] {
	return func(yield func(Change, error) bool) {
		if err := s.begin(ctx); err != nil {
			if ctx.Err() == nil {
				yield(Change{}, err)
			}
			return
		}
		ctx, cancel := context.WithCancel(ctx)
		w := &watcher{s: s, ctx: ctx, rows: map[string]watched{}, exits: make(chan exited)}
		defer w.close()
		defer cancel()
		if err := w.run(yield); err != nil && ctx.Err() == nil {
			yield(Change{}, fmt.Errorf("ledger: watch: %w", err))
		}
	}
}

// watcher is one watch. Its rows belong to the goroutine that iterates; the waiters for
// exits only send.
type watcher struct {
	s       *Store
	ctx     context.Context
	rows    map[string]watched // by file name
	exits   chan exited
	waiters sync.WaitGroup
}

// watched is a row as it was last seen.
type watched struct {
	entry   Entry
	damaged bool
	process ProcessID // whose exit is waited for
	stop    context.CancelFunc
}

// exited says that the process of a row is gone.
type exited struct {
	name    string
	process ProcessID
}

func (w *watcher) close() {
	for _, r := range w.rows {
		r.unwatch()
	}
	w.waiters.Wait()
}

func (r watched) unwatch() {
	if r.stop != nil {
		r.stop()
	}
}

// errEnough says that the caller has seen enough.
var errEnough = errors.New("enough")

func (w *watcher) run(yield func(Change, error) bool) error {
	dir := w.s.path(dirSessions)
	if _, err := w.s.dir(dirSessions); err != nil {
		return err
	}
	notify, err := fsnotify.NewWatcher()
	if err != nil {
		return err
	}
	defer notify.Close()
	if err := notify.Add(dir); err != nil {
		return err
	}
	// What is there already is no change. The watch is set before, so that nothing falls
	// in between.
	if err := w.readAll(func(Change) bool { return true }, true); err != nil {
		return err
	}
	say := func(c Change) bool { return yield(c, nil) }
	for {
		select {
		case <-w.ctx.Done():
			return w.ctx.Err()
		case x := <-w.exits:
			if r, ok := w.rows[x.name]; ok && r.process.Same(x.process) {
				c := Change{ID: r.entry.LedgerID, Kind: ChangeExited, From: Running.String(), To: Gone.String(),
					At: w.s.clock.Now(), Entry: r.entry.clone()}
				if !say(c) {
					return nil
				}
			}
		case ev, ok := <-notify.Events:
			if !ok {
				return fs.ErrClosed
			}
			err = w.notified(ev, say)
		case err = <-notify.Errors:
			if errors.Is(err, fsnotify.ErrEventOverflow) {
				err = w.readAll(say, false)
			}
		}
		if err == errEnough {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// notified handles one notification.
func (w *watcher) notified(ev fsnotify.Event, say func(Change) bool) error {
	name := filepath.Base(ev.Name)
	if ev.Name == w.s.path(dirSessions) {
		if ev.Has(fsnotify.Remove) || ev.Has(fsnotify.Rename) {
			return fmt.Errorf("%q went away", ev.Name)
		}
		return nil
	}
	if !strings.HasSuffix(name, rowExtension) {
		return nil
	}
	return w.look(name, say, false)
}

// readAll looks at every row, and at those that were there before.
func (w *watcher) readAll(say func(Change) bool, quiet bool) error {
	names, _, err := w.s.list(w.ctx, dirSessions)
	if err != nil {
		return err
	}
	for name := range w.rows {
		names = append(names, name) // one that went away; a second look finds nothing new
	}
	for _, name := range names {
		if err := w.look(name, say, quiet); err != nil {
			return err
		}
	}
	return nil
}

// look reads one row and says what changed since it was last seen.
func (w *watcher) look(name string, say func(Change) bool, quiet bool) error {
	id := strings.TrimSuffix(name, rowExtension)
	was, known := w.rows[name]
	r, sub, err := w.s.lookUp(id)
	switch {
	case errors.Is(err, ErrNotFound):
		was.unwatch()
		delete(w.rows, name)
		if known {
			return w.tell(say, Change{ID: id, Kind: ChangeRemoved, From: was.entry.State().name(), Entry: was.entry})
		}
		return nil
	case err != nil:
		return err
	case r.err != nil:
		w.rows[name] = watched{entry: was.entry, damaged: true, process: was.process, stop: was.stop}
		if was.damaged || quiet {
			return nil
		}
		return w.tell(say, Change{ID: id, Kind: ChangeDamaged, From: was.entry.State().name(), Entry: was.entry})
	}
	if sub != dirSessions && !known {
		return nil // a second notice of one that was filed away
	}
	now := w.follow(name, was, r.entry.clone())
	if sub != dirSessions {
		now.unwatch()
		delete(w.rows, name) // filed away: nothing more will happen to it here
	}
	if quiet || known && !was.damaged && was.entry.Revision == now.entry.Revision && was.entry.Revision != 0 {
		return nil
	}
	c := Change{ID: id, Kind: ChangeUpdated, To: now.entry.State().name(), Entry: now.entry.clone()}
	if known {
		c.From = was.entry.State().name()
	} else {
		c.Kind = ChangeCreated
	}
	return w.tell(say, c)
}

func (w *watcher) tell(say func(Change) bool, c Change) error {
	c.At = w.s.clock.Now()
	if !say(c) {
		return errEnough
	}
	return nil
}

// follow notes a row and waits for the exit of its process.
func (w *watcher) follow(name string, was watched, e Entry) watched {
	now := watched{entry: e}
	p := e.Process()
	switch {
	case e.IsOpen() && p.Same(was.process):
		now.process, now.stop = was.process, was.stop
	case e.IsOpen() && w.exitIsNews(&e, p):
		was.unwatch()
		now.process, now.stop = p, w.await(name, p)
	default:
		was.unwatch()
	}
	w.rows[name] = now
	return now
}

// exitIsNews reports whether an exit of a process can be told of: that of a frozen or
// archived row, which is gone before it is seen, is how it ought to be.
func (w *watcher) exitIsNews(e *Entry, p ProcessID) bool {
	v := w.s.procs.verdict(p)
	return v == Running || v == Gone && e.Phase == PhaseLive
}

// await sends to exits once the process is gone.
func (w *watcher) await(name string, p ProcessID) context.CancelFunc {
	ctx, cancel := context.WithCancel(w.ctx)
	var exit *procscan.Exit
	var err error
	if w.s.procs.verdict(p) != Gone { // of another boot, for one
		exit, err = w.s.procs.sys.OpenExit(p.PID, p.StartTicks)
	}
	if err != nil && !errors.Is(err, procscan.ErrGone) && !errors.Is(err, procscan.ErrChanged) {
		return cancel // no notice of this one; the next sweep tells
	}
	w.waiters.Go(func() {
		if exit != nil {
			defer exit.Close()
			if exit.Wait(ctx) != nil {
				return
			}
		}
		select {
		case w.exits <- exited{name, p}:
		case <-ctx.Done():
		}
	})
	return cancel
}
