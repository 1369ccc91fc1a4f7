// Package durable publishes small whole files in one folder, so that neither a
// crash of the process nor a power cut leaves anything but the old bytes or the
// new ones.
//
// The usual packages for atomic writes sync the file and not its folder: after
// a power cut a created file is missing and a replaced one is old, although the
// write returned without an error. Here a write with sync set has both.
//
// It does not lock, does not merge, and does not follow a folder that is moved
// on systems other than Linux.
package durable

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
)

// tempPrefix begins the name of each temporary file.
const tempPrefix = ".tmp-"

// Dir is one opened folder. It is safe for concurrent use, Close included.
type Dir struct {
	path string
	sys  handle

	running sync.Mutex // held by the fsync that runs
	mu      sync.Mutex // guards next
	next    *syncRound // the fsync that has not begun, nil: nobody waits for one
	failure atomic.Pointer[SyncError]
}

// syncRound is one fsync of the folder, shared by all who asked for it before it
// began.
type syncRound struct {
	once sync.Once
	err  *SyncError
}

// SyncError says that the new bytes are visible under their name, and that it is
// unknown whether they survive a power cut.
type SyncError struct {
	Path string // the folder
	Err  error  // why its fsync failed
}

func (e *SyncError) Error() string {
	return fmt.Sprintf("sync folder %s: %v (the change is visible, its durability is unknown)", e.Path, e.Err)
}

func (e *SyncError) Unwrap() error { return e.Err }

// OpenDir opens the folder at path, whose last element must not be a symbolic
// link. On Linux the folder stays the same one though it be moved.
func OpenDir(path string) (*Dir, error) {
	path = filepath.Clean(path) // a slash at the end would follow a link
	sys, err := openHandle(path)
	if err != nil {
		return nil, wrap("open", path, err)
	}
	return &Dir{path: path, sys: sys}, nil
}

// Path is the cleaned path that the folder was opened by.
func (d *Dir) Path() string { return d.path }

// Close closes the folder. What is called afterwards fails with [fs.ErrClosed].
func (d *Dir) Close() error { return d.sys.close() }

// Staged is a file written in full under a temporary name, to be published or discarded.
// One goroutine at a time may use it.
type Staged struct {
	dir     *Dir
	temp    string
	name    string
	failure *SyncError // the folder's last failure before this was staged
	file    file
	open    bool // the file is still open
	done    bool // published or discarded
}

// Stage writes data to a new temporary file of mode 0600, whatever the umask, and
// with sync set makes its bytes durable. tag names the writer, so that a left
// file can be told from one in use: see [Dir.Temps]. After an error there is no
// temporary file.
func (d *Dir) Stage(tag, name string, data []byte, sync bool) (*Staged, error) {
	s, err := d.write(tag, name, data)
	if err == nil {
		err = s.finish(sync)
	}
	if err != nil {
		return nil, err
	}
	return s, nil
}

// Begin is Stage, with sync, for one file of many: its bytes are on their way to the disk,
// and [Staged.Flush] waits for them. Begun together and then flushed, the files share the
// commits of the file system's journal. Each holds a descriptor until then.
func (d *Dir) Begin(tag, name string, data []byte) (*Staged, error) {
	s, err := d.write(tag, name, data)
	if err != nil {
		return nil, err
	}
	s.file.startWriteback()
	return s, nil
}

// Flush waits until the bytes of a file that was begun are durable. After an error there
// is no temporary file.
func (s *Staged) Flush() error { return s.finish(true) }

// write makes and fills the temporary file, and leaves it open.
func (d *Dir) write(tag, name string, data []byte) (*Staged, error) {
	path := filepath.Join(d.path, name)
	if !isName(name) || strings.HasPrefix(name, tempPrefix) || strings.ContainsAny(tag, "/\\\x00") {
		return nil, &fs.PathError{Op: "create", Path: path, Err: fs.ErrInvalid}
	}
	s := &Staged{dir: d, name: name, failure: d.failure.Load()}
	s.temp = tempPrefix + tag + "-" + strconv.FormatUint(rand.Uint64(), 16)
	var err error
	if s.file, err = d.sys.create(s.temp); err != nil {
		return nil, wrap("create", path, err)
	}
	s.open = true
	op := "chmod"
	if err = s.file.private(); err == nil {
		op, err = "write", s.file.write(data)
	}
	if err != nil {
		s.Discard()
		return nil, wrap(op, path, err)
	}
	return s, nil
}

// finish closes the file, and with sync set makes its bytes durable first.
func (s *Staged) finish(sync bool) (err error) {
	if !s.open {
		return nil
	}
	op := "sync"
	if sync {
		// Without this the rename can reach the disk before the bytes: after a power
		// cut the name would hold an empty file or NULs.
		err = s.file.sync()
	}
	s.open = false
	// The close is checked too: NFS reports a full quota no earlier.
	if cerr := s.file.close(); err == nil && cerr != nil && !errors.Is(cerr, syscall.EINTR) {
		op, err = "close", cerr
	}
	if err != nil {
		// The file goes away with its descriptor and is never synced again: after a
		// failed fsync the kernel may count the lost pages as clean, and a second
		// fsync would succeed.
		s.Discard()
	}
	return wrap(op, filepath.Join(s.dir.path, s.name), err)
}

// Replace gives the staged file its name, in place of a file that has it. It does
// not sync the folder. After an error the old file is intact.
func (s *Staged) Replace() error { return s.replaceIn(s.dir) }

func (s *Staged) replaceIn(to *Dir) error {
	return s.publish("rename", func(temp, name string) error { return s.dir.sys.replace(temp, &to.sys, name) })
}

// Create gives the staged file its name, and fails with [fs.ErrExist] where
// something has it already. It does not sync the folder.
func (s *Staged) Create() error {
	return s.publish("create", func(temp, name string) error {
		h := &s.dir.sys
		linked, err := h.move(temp, h, name)
		if linked {
			_ = h.remove(temp) // published all the same; cleared as a left file
		}
		return err
	})
}

func (s *Staged) publish(op string, how func(temp, name string) error) error {
	if err := s.finish(true); err != nil {
		return err
	}
	err := fs.ErrClosed // published or discarded before
	if !s.done {
		err = how(s.temp, s.name)
	}
	if err != nil {
		return wrap(op, filepath.Join(s.dir.path, s.name), err)
	}
	s.done = true
	return nil
}

// Discard removes the temporary file. After Replace or Create succeeded it does
// nothing, so it may always be deferred.
func (s *Staged) Discard() {
	if s.open {
		s.open = false
		_ = s.file.close()
	}
	if s.done {
		return
	}
	s.done = true
	// A file that cannot be removed stays until the folder's temporary files are
	// cleared; the caller's own error says more than this one.
	_ = s.dir.sys.remove(s.temp)
}

// Sync makes durable what was published, removed or moved in the folder before
// the call. Calls made while an fsync runs share the next one. A failure is a
// *[SyncError].
//
// The kernel reports a failed writeback once to each descriptor. Another
// goroutine's call can have had the report that was due to this one, so name the
// files in question: the call then fails as well where any fsync of the folder
// failed since one of them was staged.
func (d *Dir) Sync(staged ...*Staged) error {
	d.mu.Lock()
	r := d.next
	if r == nil {
		r = new(syncRound)
		d.next = r
	}
	d.mu.Unlock()
	r.once.Do(func() {
		// One at a time, so that a failure is recorded before another fsync on this
		// descriptor can succeed.
		d.running.Lock()
		defer d.running.Unlock()
		d.mu.Lock()
		d.next = nil // who comes from here on is not covered
		d.mu.Unlock()
		// Without this a power cut takes the rename back: a created file is missing,
		// a replaced one is old, a removed one is there again.
		if err := d.sys.sync(); err != nil {
			r.err = &SyncError{Path: d.path, Err: cause(err)}
			d.failure.Store(r.err)
		}
	})
	if r.err != nil {
		return r.err
	}
	last := d.failure.Load()
	for _, s := range staged {
		if s.failure != last {
			return last
		}
	}
	return nil
}

// Replace stages data and puts it in place of what name holds; with sync set
// file and folder are synced. Without sync a power cut can leave an empty file:
// that is for what can be made again. After an error the old file is intact and no
// temporary file is left; only after a *[SyncError] the new bytes are visible.
func (d *Dir) Replace(tag, name string, data []byte, sync bool) error {
	return d.put(tag, name, data, sync, (*Staged).Replace)
}

// Create is Replace for a new file: where something has the name it fails with
// [fs.ErrExist].
func (d *Dir) Create(tag, name string, data []byte, sync bool) error {
	return d.put(tag, name, data, sync, (*Staged).Create)
}

// ReplaceRelaxed is Replace for bytes that may be lost: after a power cut the name
// holds the old bytes or the new ones. Replace without sync promises that for a
// crash of the process alone: another writer's sync of the folder can make its
// rename durable before its bytes, and on xfs and btrfs an empty file is then what
// is left of old and new.
func (d *Dir) ReplaceRelaxed(tag, name string, data []byte) error {
	s, err := d.Stage(tag, name, data, !d.sys.ordered)
	if err != nil {
		return err
	}
	defer s.Discard()
	return s.Replace()
}

// ReplaceIn is Replace, with sync, for a name in another folder of the same file
// system; the temporary file is this folder's.
func (d *Dir) ReplaceIn(to *Dir, tag, name string, data []byte) error {
	s, err := d.Stage(tag, name, data, true)
	if err != nil {
		return err
	}
	defer s.Discard()
	s.failure = to.failure.Load()
	if err := s.replaceIn(to); err != nil {
		return err
	}
	return to.Sync(s)
}

func (d *Dir) put(tag, name string, data []byte, sync bool, publish func(*Staged) error) error {
	s, err := d.Stage(tag, name, data, sync)
	if err != nil {
		return err
	}
	defer s.Discard()
	if err := publish(s); err != nil || !sync {
		return err
	}
	return d.Sync(s)
}

// Temp is a temporary file: of a writer at work, or left by one that died.
type Temp struct {
	Name string // for [Dir.Remove]
	Tag  string // as the writer gave it to [Dir.Stage]
}

// Temps lists the temporary files in the folder, in no order.
func (d *Dir) Temps() ([]Temp, error) {
	names, err := d.sys.names()
	if err != nil {
		return nil, wrap("readdir", d.path, err)
	}
	var temps []Temp
	for _, name := range names {
		rest, ok := strings.CutPrefix(name, tempPrefix)
		if i := strings.LastIndexByte(rest, '-'); ok && i >= 0 {
			temps = append(temps, Temp{Name: name, Tag: rest[:i]})
		}
	}
	return temps, nil
}

// Remove unlinks a file. It does not sync the folder.
func (d *Dir) Remove(name string) error {
	err := fs.ErrInvalid
	if isName(name) {
		err = d.sys.remove(name)
	}
	return wrap("remove", filepath.Join(d.path, name), err)
}

// Rename moves a file into another folder of the same file system under its own
// name, and fails with [fs.ErrExist] where something has that name there. It
// syncs neither folder: sync the target first.
func (d *Dir) Rename(name string, to *Dir) error {
	linked, err := false, fs.ErrInvalid
	if isName(name) {
		linked, err = d.sys.move(name, &to.sys, name)
	}
	if linked {
		err = d.sys.remove(name)
	}
	return wrap("rename", filepath.Join(d.path, name), err)
}

// MkdirAll creates the missing folders of path with exactly mode, whatever the
// umask, and syncs the parent of each one. Folders that exist are left as they
// are. A *[SyncError] names the parent whose fsync failed; the folder in it exists.
func MkdirAll(path string, mode fs.FileMode) error {
	path = filepath.Clean(path)
	fi, err := os.Stat(path)
	if err == nil && !fi.IsDir() {
		return wrap("mkdir", path, syscall.ENOTDIR)
	}
	if err == nil || !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	parent := filepath.Dir(path)
	if err := MkdirAll(parent, mode); err != nil {
		return err
	}
	err = os.Mkdir(path, mode)
	if errors.Is(err, fs.ErrExist) {
		// Another process was faster. It may not have got as far as the sync, which
		// this caller needs as well.
		if fi, serr := os.Stat(path); serr != nil || !fi.IsDir() {
			return err
		}
	} else if err != nil {
		return err
	} else if err := os.Chmod(path, mode); err != nil {
		return err
	}
	// Without this a power cut takes the folder away with all that was synced in it.
	f, err := os.Open(parent)
	if err == nil {
		err = f.Sync()
		f.Close()
	}
	if err != nil {
		return &SyncError{Path: parent, Err: cause(err)}
	}
	return nil
}

// isName reports whether name is a single path element.
func isName(name string) bool {
	return name != "" && name != "." && name != ".." && !strings.ContainsAny(name, "/\\\x00")
}

// wrap gives an error its step and path; nil stays nil.
func wrap(op, path string, err error) error {
	if err == nil {
		return nil
	}
	return &fs.PathError{Op: op, Path: path, Err: cause(err)}
}

// cause takes off the path that package os put on, which is that of a temporary
// file.
func cause(err error) error {
	switch e := err.(type) {
	case *fs.PathError:
		return e.Err
	case *os.LinkError:
		return e.Err
	}
	return err
}
