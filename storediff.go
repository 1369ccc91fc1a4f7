package ledger

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/sessionledger/ledger/internal/folder"
	"github.com/sessionledger/ledger/internal/runtimes"
)

// The last source of a conversation id: what the runtime's store shows after a launch that
// it cannot have shown before. No listing from before the launch is kept: a conversation's
// own first record says when it began and in which directory, which outlives the launcher,
// does not mistake a file that was moved or touched for a new one, and leaves one that was
// taken up again where it is, since that began before.

const (
	// launchWindow is how long after its launch a session may begin its conversation. What
	// could begin one in its place, and was seen by no sweep, has run for less than that.
	launchWindow = 5 * time.Minute
	// clockBlur is how far two times of different origin can be apart for one moment: rows
	// store whole seconds, and the time of boot is known to one. Only what speaks against
	// a find is given that much.
	clockBlur = time.Second
)

// launchDiff is what is known of the conversations that began in a session's directory
// since it was launched there.
type launchDiff struct {
	since  time.Time         // the runtime was not executed earlier
	begun  []runtimes.Begun  // by the time of their beginning
	unsure []string          // files that may be such conversations and do not tell
	others []othersLife      // what else runs or ran the runtime, in that directory or nobody knows where
	had    map[string]string // conversations that other rows have or had, with the row's id
}

// othersLife is when another session could have begun a conversation.
type othersLife struct {
	who   string
	from  time.Time // zero: not known
	until time.Time // zero: it may run yet
}

// decide names the conversation that the launched session alone can have begun. Of several
// it names none, the newest least of all.
func (d *launchDiff) decide() conversation {
	refuse := func(format string, args ...any) conversation {
		return conversation{reason: fmt.Sprintf(format, args...)}
	}
	switch n := len(d.begun); {
	case len(d.unsure) > 0:
		return refuse("%q does not tell yet what it is", d.unsure[0])
	case n == 0:
		return refuse("no conversation began in its directory since its launch")
	case n > 1:
		return refuse("%d conversations began in its directory since its launch", n)
	}
	one := d.begun[0]
	if row := d.had[one.ID]; row != "" {
		return refuse("the conversation that began in its directory since its launch is that of %s", row)
	}
	if after := one.At.Sub(d.since); after > launchWindow {
		return refuse("the conversation that began in its directory did so %v after its launch", after.Round(time.Second))
	}
	for _, o := range d.others {
		begins := o.from.IsZero() || !o.from.Add(-clockBlur).After(one.At)
		ended := !o.until.IsZero() && o.until.Add(clockBlur).Before(d.since)
		if begins && !ended {
			return refuse("the conversation that began in its directory since its launch may be that of %s", o.who)
		}
	}
	return conversation{id: one.ID, path: one.Path, source: fromStoreDiff}
}

// sighting is a conversation that could be a session's alone when a pass looked. It may be
// that of another that came and went since the launch and has no row, so that it is bound
// only once a later pass finds it grown and still finds nobody else: what is gone writes no
// more.
type sighting struct {
	ID      string    `json:"id"`
	Path    string    `json:"path"`
	Process string    `json:"process"` // key of the session's
	Size    int64     `json:"size"`
	Mtime   time.Time `json:"mtime"`
}

// grewSince reports whether the same file has become longer.
func (s sighting) grewSince(was sighting) bool {
	return s.ID == was.ID && s.Path == was.Path && s.Process == was.Process && s.Size > was.Size && s.Mtime.After(was.Mtime)
}

// watched lets a find pass that has grown since the last pass, and keeps any other for the
// next one. A pass that looks and finds none, or more than one, begins anew.
func (sw *sweeper) watched(ctx context.Context, e *Entry) conversation {
	c := sw.byStoreDiff(ctx, e)
	if !sw.whole() {
		return c // nothing was looked at
	}
	was := sw.cur.Seen[e.LedgerID]
	delete(sw.cur.Seen, e.LedgerID)
	if c.id == "" {
		return c
	}
	info, err := os.Stat(c.path)
	if err != nil {
		return conversation{reason: fmt.Sprintf("nothing names it; the conversation that began in its directory cannot be looked at: %v", err)}
	}
	seen := sighting{c.id, c.path, e.Process().Key(), info.Size(), info.ModTime().UTC()}
	if seen.grewSince(was) {
		return c
	}
	sw.cur.Seen[e.LedgerID] = seen
	return conversation{reason: "nothing names it; of the conversation that began in its directory since its launch it is not known yet whose it is: it has not grown while it was watched"}
}

// byStoreDiff looks for the conversation of a session that this library launched, which no
// other source names. Only of such a one are directory and time of the launch on record.
func (sw *sweeper) byStoreDiff(ctx context.Context, e *Entry) conversation {
	fail := func(format string, args ...any) conversation {
		return conversation{reason: "nothing names it; " + fmt.Sprintf(format, args...)}
	}
	rt := e.Runtime
	spec, _ := sw.s.runtimes.table.Lookup(rt)
	q, running := sw.pass.snap.Get(e.PID)
	env, envErr := sw.pass.snap.Environ(e.PID)
	began, beganErr := sw.pass.sys.Started(q.Start)
	own := sw.s.runtimes.own[rt]
	switch {
	case e.EnrolledBy != EnrolledByShim || e.StateAt.IsZero() || !filepath.IsAbs(e.Cwd):
		return fail("it was not launched by this library")
	case own.Transcript != nil || own.Read != nil:
		return fail("its store is an embedder's")
	case choosesConversation(sw.s.runtimes.table, spec, q.Args):
		return fail("its command line takes up what was there before")
	case !running || envErr != nil || beganErr != nil:
		return fail("its process cannot be read")
	case !sw.whole():
		return fail("what else may have begun one cannot be seen")
	}
	// Its process was on record before the runtime was executed in it, which a direct launch
	// does in a process that has long run.
	d := launchDiff{since: e.StateAt}
	if began.After(d.since) {
		d.since = began
	}
	homes := sw.pass.homes(env)
	var err error
	d.begun, d.unsure, err = spec.Begun(ctx, homes, e.Cwd, d.since)
	if errors.Is(err, runtimes.ErrEmbedder) {
		return fail("a conversation of %s does not tell when it began", rt)
	}
	if err != nil {
		return fail("its store cannot be looked through: %v", err)
	}
	if len(d.begun) == 1 && len(d.unsure) == 0 { // else nothing of this counts
		d.others = sw.othersIn(e, spec.ConfigHome(homes))
		if err := sw.rowsBeside(ctx, e, &d); err != nil {
			return fail("what else may have begun one cannot be read: %v", err)
		}
	}
	c := d.decide()
	if c.id == "" {
		return fail("%s", c.reason)
	}
	return c
}

// othersIn lists the other processes of the runtime that are in the row's directory, or may
// be, and may write to the same store.
func (sw *sweeper) othersIn(e *Entry, store string) (others []othersLife) {
	head := e.PID
	if i, ok := sw.pass.at[e.PID]; ok {
		head = cmp.Or(sw.pass.candidates()[i].continues, head)
	}
	spec, _ := sw.s.runtimes.table.Lookup(e.Runtime)
	for _, c := range sw.pass.candidates() {
		pid := c.process.PID
		if c.runtime != e.Runtime || pid == head || c.continues == head {
			continue
		}
		cwd, cwdErr := sw.pass.snap.Cwd(pid)
		env, envErr := sw.pass.snap.Environ(pid)
		elsewhere := cwdErr == nil && cwd != e.Cwd && !sameFile(cwd, e.Cwd)
		otherStore := false
		if envErr == nil {
			home := spec.ConfigHome(sw.pass.homes(env))
			otherStore = home != "" && home != store && !sameFile(home, store)
		}
		if elsewhere || otherStore {
			continue // one that has left the directory has a row that names it
		}
		from, _ := sw.pass.sys.StartTime(c.process.StartTicks)
		others = append(others, othersLife{who: fmt.Sprintf("process %d", pid), from: from})
	}
	return others
}

// rowsBeside adds what other rows tell: which conversations are theirs, and which of them
// may have run in the same directory.
func (sw *sweeper) rowsBeside(ctx context.Context, e *Entry, d *launchDiff) error {
	d.had = map[string]string{}
	add := func(r *Entry) {
		if r.LedgerID == e.LedgerID {
			return
		}
		for _, id := range append(formerIDs(r), r.SessionID) {
			d.had[id] = r.LedgerID
		}
		if r.Runtime == e.Runtime && r.Account == e.Account && (r.Cwd == e.Cwd || r.Cwd == "") && !sw.ofAnotherBoot(r) {
			d.others = append(d.others, othersLife{who: r.LedgerID, from: r.StartedAt, until: sw.overBy(r)})
		}
	}
	for _, r := range sw.rows {
		if r.now != nil {
			add(r.now)
		}
	}
	for _, r := range sw.rep.Damaged {
		if strings.HasPrefix(r.ID, e.Runtime+"-") {
			d.others = append(d.others, othersLife{who: r.ID + ", which is damaged"})
		}
	}
	if d.decide().id == "" {
		return nil // finished/ is listed for what hangs on it alone
	}
	return sw.s.finishedSince(ctx, d.since.Add(-clockBlur), add)
}

// ofAnotherBoot reports whether a row's session ended with an earlier boot of this machine.
// What carries its id by now is a process like any other.
func (sw *sweeper) ofAnotherBoot(e *Entry) bool {
	return e.BootID != "" && e.BootID != sw.pass.here.BootID && sw.verdict(e.Process()) == Gone
}

// overBy is a time at which a row's session was over; zero where none is known. That its
// process is gone now does not tell since when, but work is rescued of what is gone alone,
// and a rescued row gets no other process.
func (sw *sweeper) overBy(e *Entry) time.Time {
	if e.FinishedAt.IsZero() && quiet(e) && !e.Process().IsZero() && !e.RescuedAt.IsZero() && sw.verdict(e.Process()) == Gone {
		return e.RescuedAt
	}
	return e.FinishedAt
}

func formerIDs(e *Entry) (ids []string) {
	for _, f := range e.SessionIDs {
		ids = append(ids, f.ID)
	}
	return ids
}

// finishedSince yields the filed rows that were written since: a row that ended later than
// that is among them.
func (s *Store) finishedSince(ctx context.Context, since time.Time, yield func(*Entry)) error {
	names, odd, complete, err := s.listKinds(ctx, dirFinished)
	if err == nil && !complete {
		err = fmt.Errorf("%w: finished rows were moved meanwhile", ErrUnknown)
	}
	if err != nil || len(names) == 0 {
		return err
	}
	f, err := s.open(dirFinished)
	if err != nil {
		return err
	}
	defer f.Close()
	names = slices.DeleteFunc(names, func(name string) bool {
		stamp, err := f.Lstat(name)
		return err == nil && stamp.Mtime < since.UnixNano() || errors.Is(err, folder.ErrNotRegular)
	})
	var damaged error
	err = s.readAll(ctx, f, names, odd, false, func(_ string, r *row) bool {
		if damaged = r.err; damaged == nil {
			yield(&r.entry)
		}
		return damaged == nil
	})
	return cmp.Or(damaged, err)
}
