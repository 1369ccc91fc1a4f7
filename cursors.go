package ledger

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"time"

	"github.com/sessionledger/ledger/internal/folder"
)

const (
	cursorsFile  = "cursors.json"
	maxStateFile = 64 << 20 // of cursors.json and notified.json
)

// cursors is what one pass leaves to the next: how far each class of bounded work has
// come, what keeps failing, and what is watched. It is best effort: without it a pass begins at the first
// row again.
type cursors struct {
	After    map[string]string             `json:"after"`    // by class: the row that was attempted last
	Pacing   map[string]map[string]Backoff `json:"pacing"`   // by ledger id and kind of work
	Finished finishedView                  `json:"finished"` // of retention
	Probed   map[string]time.Time          `json:"probed"`   // by socket: when reap asked it last
	Seen     map[string]sighting           `json:"seen"`     // by ledger id: what may be its conversation

	saved []byte // as on disk
	boot  string // this boot and its clock, for the pacing
	now   int64
}

// loadCursors reads the cursors. What cannot be read counts as lost; the error is for the
// report.
func (s *Store) loadCursors() (*cursors, error) {
	c := &cursors{}
	data, err := s.readState(cursorsFile)
	if err == nil && data != nil {
		if err = json.Unmarshal(data, c); err != nil {
			c = &cursors{}
		}
	}
	c.saved = data
	for _, m := range []*map[string]string{&c.After} {
		if *m == nil {
			*m = map[string]string{}
		}
	}
	if c.Pacing == nil {
		c.Pacing = map[string]map[string]Backoff{}
	}
	if c.Seen == nil {
		c.Seen = map[string]sighting{}
	}
	if c.Probed == nil {
		c.Probed = map[string]time.Time{}
	}
	if here, hereErr := s.procs.here(); hereErr == nil {
		c.boot = here.BootID
	}
	c.now, _ = s.bootSeconds() // where it is not known, everything is due
	if err != nil {
		err = fmt.Errorf("%s cannot be read, and is begun anew: %w", cursorsFile, err)
	}
	return c, err
}

// save writes the cursors where they changed.
func (s *Store) saveCursors(c *cursors) error {
	data, err := json.Marshal(c)
	if err != nil || string(data) == string(c.saved) {
		return err
	}
	if err := s.writeState(cursorsFile, data); err != nil {
		return fmt.Errorf("cursors not kept: %w", err)
	}
	c.saved = data
	return nil
}

// readState reads one of the files beside the rows; nil where it is not there.
func (s *Store) readState(name string) ([]byte, error) {
	f, err := s.open(".")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, _, err := f.Read(name, maxStateFile, folder.Stamp{})
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return data, err
}

// writeState replaces one of them. After a power cut it is the old one or the new one.
func (s *Store) writeState(name string, data []byte) error {
	d, err := s.dir(".")
	if err != nil {
		return err
	}
	return d.ReplaceRelaxed(s.tag(), name, data)
}

// turn picks whose turn it is: at most limit of the ids, beginning behind the row that the
// class attempted last and around to the first again. do attempts one, and returns false
// to end the turn before that one. The cursor moves past every row that was attempted, so
// that no prefix of rows, however damaged or locked, keeps the others waiting.
func (c *cursors) turn(class string, ids []string, limit int, do func(id string) bool) {
	if len(ids) == 0 {
		delete(c.After, class)
		return
	}
	ids = slices.Clone(ids)
	slices.Sort(ids)
	first, found := slices.BinarySearch(ids, c.After[class])
	if found {
		first++
	}
	whole := true
	for i := range ids {
		id := ids[(first+i)%len(ids)]
		if i == limit || !do(id) {
			whole = false
			break
		}
		c.After[class] = id
	}
	if whole {
		delete(c.After, class)
	}
}

// due reports whether work on a row is to be tried now.
func (c *cursors) due(id, kind string) bool { return c.Pacing[id][kind].Due(c.boot, c.now) }

// retired reports whether no retry of the work can help.
func (c *cursors) retired(id, kind string) bool { return c.Pacing[id][kind].Retired }

// failed paces the next try, and reports whether the failure is to be reported: once in a
// streak.
func (c *cursors) failed(id, kind string) (report bool) {
	next, report := c.Pacing[id][kind].Fail(c.boot, c.now)
	c.pace(id, kind, next)
	return report
}

// rescuePatience is how many paced tries, of five minutes each, a repository gets that is
// away, damaged or another's: a disk may be mounted a day later.
const rescuePatience = 24 * 12

// givesUp retires work which has failed so often that no retry will help, or that none ever
// could.
func (c *cursors) givesUp(id, kind string, err error) bool {
	if c.Pacing[id][kind].Failures < rescuePatience && !errors.Is(err, errNoFolder) {
		return false
	}
	c.retire(id, kind)
	return true
}

func (c *cursors) retire(id, kind string) { c.pace(id, kind, c.Pacing[id][kind].Retire()) }

func (c *cursors) pace(id, kind string, b Backoff) {
	if c.Pacing[id] == nil {
		c.Pacing[id] = map[string]Backoff{}
	}
	c.Pacing[id][kind] = b
}

// succeeded ends a streak of failures.
func (c *cursors) succeeded(id, kind string) {
	delete(c.Pacing[id], kind)
	if len(c.Pacing[id]) == 0 {
		delete(c.Pacing, id)
	}
}

// keep forgets the pacing of rows that are not there any more.
func (c *cursors) keep(there func(id string) bool) {
	maps.DeleteFunc(c.Pacing, func(id string, _ map[string]Backoff) bool { return !there(id) })
}
