package ledger

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/sessionledger/ledger/tmux"
)

// ReapOptions say how a reap is made. The zero value is the default.
type ReapOptions struct {
	// Wait is how long a running sweep is waited for; 0: 2 min.
	Wait time.Duration
	// Tmux says how to run tmux; its Socket and Process are filled in. Its Timeout bounds
	// each call; 0: 2 s.
	Tmux tmux.Server
}

// ReapReport says what a [Reap] did.
type ReapReport struct {
	Probed []string `json:"probed"` // ids whose socket was asked
	Reaped []Reaped `json:"reaped"` // what was ended or removed, and what could not be
	Spared []Spared `json:"spared"` // servers of sessions that are over, and why they were left
	// Complete says whether the list of rows stood still while it was read. Where it did
	// not, a row that is not there may be.
	Complete bool `json:"complete"`
}

// Reaped is what became of one socket.
type Reaped struct {
	ID      string `json:"id"`
	Action  string `json:"action"`          // "end server" or "remove socket"
	Outcome string `json:"outcome"`         // done, failed or unknown
	Error   string `json:"error,omitempty"` // why not
}

// Spared is a server that was left though its session is over or on no record.
type Spared struct {
	ID     string `json:"id"`
	Reason string `json:"reason"` // what runs in it, or what could not be found out
}

const (
	reapWait = 2 * time.Minute
	maxProbe = 8 // sockets that one pass asks
	probeFor = 2 * time.Second

	dirSock = "sock"

	reapServer = "end server"
	reapSocket = "remove socket"
)

// Reap ends what hosting left behind, and nothing else: a tmux server that this library
// started for a session (its socket lies where [Host.Launch] puts it, and every pane bears
// the session's stamp), once the session is finished, nobody is attached and no process of a session
// runs in it; and the socket file of a server that is provably gone. What cannot be found
// out counts as attached. At most 8 sockets are asked in a pass, those first that were
// asked longest ago.
//
// A session whose row is gone is over, too, unless a process below the server carries its
// id, whatever it runs: what is on no record was ended by nobody. In the server of a
// finished row, a shell that carries the id is what the session left.
//
// It waits for a running sweep, and fails with [ErrBusy] where that takes too long.
func Reap(ctx context.Context, s *Store, opts ReapOptions) (ReapReport, error) {
	rep := ReapReport{Probed: []string{}, Reaped: []Reaped{}, Spared: []Spared{}}
	if err := s.begin(ctx); err != nil {
		return rep, err
	}
	unlock, err := s.lockFor(ctx, cmp.Or(opts.Wait, reapWait))
	if err != nil {
		return rep, err
	}
	defer unlock()
	sockets, err := s.sockets()
	if err != nil {
		return rep, err
	}
	far, err := s.farSockets()
	if err != nil {
		s.logger.Warn("reap", "error", err) // of another user, for one: those under the root are reaped all the same
	}
	if sockets = append(sockets, far...); len(sockets) == 0 {
		rep.Complete = err == nil // there was nothing to compare with
		return rep, nil
	}
	r := &reaper{s: s, opts: opts, rep: &rep, open: map[string]Entry{}}
	if err := r.read(ctx); err != nil {
		return rep, err
	}
	cur, _ := s.loadCursors() // without them, the order is that of the names
	for id := range cur.Probed {
		if !slices.Contains(sockets, id) {
			delete(cur.Probed, id)
		}
	}
	slices.SortStableFunc(sockets, func(a, b string) int {
		return cmp.Or(cur.Probed[a].Compare(cur.Probed[b]), cmp.Compare(a, b))
	})
	for _, id := range sockets[:min(maxProbe, len(sockets))] {
		if err = ctx.Err(); err != nil {
			break
		}
		rep.Probed = append(rep.Probed, id)
		r.reap(ctx, id)
		cur.Probed[id] = s.now()
	}
	if saveErr := s.saveCursors(cur); saveErr != nil {
		s.logger.Warn("reap", "error", saveErr)
	}
	return rep, err
}

// sockets lists the ids that have a socket under sock/, in order.
func (s *Store) sockets() (ids []string, err error) { return socketsIn(s.path(dirSock)) }

// farSockets lists those that have one where sockets lie whose path would be too long under
// the root. Those of other ledgers lie there too, so that a row must tell whose it is.
func (s *Store) farSockets() (ids []string, err error) {
	dir := farDir()
	if dir == "" {
		return nil, nil
	}
	if ids, err = socketsIn(dir); err != nil {
		return nil, err
	}
	return slices.DeleteFunc(ids, func(id string) bool {
		path, err := s.hostSocket(id)
		return err != nil || path != filepath.Join(dir, id) || s.sightRow(id).state != rowThere
	}), nil
}

func socketsIn(dir string) (ids []string, err error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	for _, e := range entries {
		if e.Type() == fs.ModeSocket && isPlainID(e.Name()) {
			ids = append(ids, e.Name())
		}
	}
	return ids, err
}

// reaper is one pass.
type reaper struct {
	s    *Store
	opts ReapOptions
	rep  *ReapReport
	open map[string]Entry // open rows by id
}

func (r *reaper) read(ctx context.Context) error {
	whole, err := r.s.scan(ctx, dirSessions, func(_ string, row *row) bool {
		if row.err == nil && row.entry.IsOpen() {
			r.open[row.entry.LedgerID] = row.entry
		}
		return true
	})
	r.rep.Complete = whole
	return err
}

func (r *reaper) did(id, action string, err error) {
	done := Reaped{ID: id, Action: action, Outcome: OutcomeOf(err)}
	if err != nil {
		done.Error = err.Error()
	}
	r.rep.Reaped = append(r.rep.Reaped, done)
	r.s.logger.Info("reaped", "session", id, "action", action, "outcome", done.Outcome, "error", done.Error)
}

// socket is where the session's socket lies.
func (r *reaper) socket(id string) string {
	path, err := r.s.hostSocket(id)
	if err != nil {
		return r.s.path(dirSock, id) // where it was found
	}
	return path
}

func (r *reaper) server(id string) tmux.Server {
	srv := r.opts.Tmux
	srv.Socket, srv.Name = r.socket(id), ""
	srv.Timeout = cmp.Or(srv.Timeout, probeFor)
	return srv
}

// reap asks one socket, and does what the answer proves.
func (r *reaper) reap(ctx context.Context, id string) {
	row := r.s.sightRow(id)
	if row.state != rowThere && row.state != rowAbsent || row.entry.Lease != nil {
		return // it is not known whose it is, or somebody is at it
	}
	srv := r.server(id)
	before, err := os.Lstat(srv.Socket)
	if err != nil {
		return
	}
	list, err := srv.List(ctx)
	if err != nil {
		if srv.Presence(err) == tmux.Absent && r.serverGone(&row.entry) {
			r.did(id, reapSocket, removeSame(srv.Socket, before))
		}
		return
	}
	if !r.over(id, row) {
		return
	}
	if !ours(list, id) {
		r.rep.Spared = append(r.rep.Spared, Spared{id, "somebody is attached to its server, or has opened a window there"})
		return
	}
	if why := r.busy(ctx, list.Server, row, id); why != "" {
		r.rep.Spared = append(r.rep.Spared, Spared{id, why})
		return
	}
	// A second look right before, since it takes time to look for processes.
	again, err := srv.List(ctx)
	if err != nil || again.Server.Same(list.Server) != tmux.Present || !ours(again, id) || !r.over(id, r.s.sightRow(id)) {
		return
	}
	if err = srv.KillServer(ctx, list.Server); err != nil {
		err = fmt.Errorf("%w: %w", ErrUnknown, err)
	}
	r.did(id, reapServer, err)
	if err == nil {
		_ = removeSame(srv.Socket, before) // tmux has done so, as a rule
	}
}

// over reports whether the session is finished. A row that is gone is, where all rows
// could be listed and the socket is no other ledger's.
func (r *reaper) over(id string, row rowSight) bool {
	switch row.state {
	case rowThere:
		return !row.entry.IsOpen() && row.entry.Lease == nil
	case rowAbsent:
		return r.rep.Complete && r.socket(id) == r.s.path(dirSock, id)
	}
	return false
}

// serverGone reports whether the recorded server may be what the socket was: a row that
// names a server which still runs contradicts a refused connection.
func (r *reaper) serverGone(e *Entry) bool {
	return e.PaneServer.IsZero() || r.s.procs.verdict(e.PaneServer) == Gone
}

// ours reports whether a server was started for the session, with nobody attached: every
// pane bears the session's stamp. A window that a person opened there does not.
func ours(l tmux.Listing, id string) bool {
	for _, p := range l.Panes {
		if p.Ledger != id {
			return false
		}
	}
	for _, s := range l.Sessions {
		if s.Attached != 0 {
			return false
		}
	}
	return len(l.Panes) > 0
}

// busy says which process of a session runs below the server, or may: one that runs a
// runtime, one that a row names, one that carries the id of a session whose end is on no
// record. It is "" where there is provably none.
func (r *reaper) busy(ctx context.Context, server tmux.ServerID, row rowSight, id string) string {
	p, err := r.s.newPass(ctx)
	if err != nil {
		return err.Error()
	}
	if !p.whole {
		return "the process table was not read completely: " + p.partial
	}
	q, ok := p.snap.Get(server.PID)
	if !ok || server.StartTicks != 0 && q.Start != server.StartTicks {
		return "its server answers, and is not to be seen: it is in another namespace"
	}
	below := func(pid int) bool {
		for above := range p.snap.Ancestors(pid) {
			if above.PID == server.PID {
				return true
			}
		}
		return false
	}
	for _, c := range p.candidates() {
		if c.carries.id == id || below(c.process.PID) {
			return fmt.Sprintf("process %d runs %s", c.process.PID, c.runtime)
		}
	}
	for _, e := range r.open {
		v := p.verdict(r.s.procs, e.Process())
		if v == Running && below(e.PID) || v == Unknown && e.PaneServer.PID == server.PID {
			return fmt.Sprintf("process %d of %q is %s", e.PID, e.LedgerID, v)
		}
	}
	if e := &row.entry; !e.Process().IsZero() { // one that a hook ended can live on
		if v := p.verdict(r.s.procs, e.Process()); v == Running && below(e.PID) || v == Unknown {
			return fmt.Sprintf("process %d of the finished session is %s", e.PID, v)
		}
	}
	for q := range p.snap.All() {
		if q.Kernel || q.Gone() || !below(q.PID) {
			continue
		}
		env, err := p.environ(q)
		if isGone(err) {
			continue
		}
		if err != nil {
			return fmt.Sprintf("what process %d carries cannot be read: %v", q.PID, err)
		}
		if bears := r.unended(carried(env.Lookup)); bears != "" {
			return fmt.Sprintf("process %d carries the id of %q, whose end is on no record", q.PID, bears)
		}
	}
	return ""
}

// unended returns the id that a process carries of a session which has no row to say that
// it is over; "" where it carries none.
func (r *reaper) unended(c carriedEnv) string {
	for _, id := range []string{c.id, c.own} {
		if isPlainID(id) && r.s.sightRow(id).state != rowThere {
			return id
		}
	}
	return ""
}

// removeSame removes a socket file, unless it is another one by now.
func removeSame(path string, before fs.FileInfo) error {
	now, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case !os.SameFile(before, now):
		return fmt.Errorf("%w: another socket has its place", ErrUnknown)
	}
	return os.Remove(path)
}
