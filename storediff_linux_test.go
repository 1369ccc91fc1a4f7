package ledger

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sessionledger/ledger/internal/runtimes"
	"github.com/sessionledger/ledger/ledgertest"
)

// A diffBed is a bed whose agents behave as one of the CLIs and have a name of their own,
// so that no pass meets another session of the machine.
type diffBed struct {
	*bed
	like string
	name string // of runtime and program
	spec runtimes.Spec
}

func newDiffBed(t *testing.T, like string) *diffBed {
	t.Helper()
	d := &diffBed{bed: newBed(t), like: like, name: fmt.Sprintf("%s%d", like, os.Getpid())}
	bin := filepath.Join(d.home, "bin")
	if err := os.Mkdir(bin, 0o700); err != nil {
		t.Fatal(err)
	}
	program, err := lookPath(like, "")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(program, filepath.Join(bin, d.name)); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	d.spec, _ = runtimes.Builtin().Lookup(like)
	d.spec.Name, d.spec.Argv0, d.spec.Paths, d.spec.Scripts = d.name, []string{d.name}, nil, nil
	root := filepath.Join(d.home, "d")
	d.s = openStore(t, root, &Options{Runtimes: &Runtimes{table: runtimes.Table{d.spec}}})
	d.h = &Host{Store: d.s}
	t.Cleanup(func() {
		sockets, _ := filepath.Glob(filepath.Join(root, "sock", "*"))
		for _, socket := range sockets {
			endServer(t, socket)
		}
		checkLedger(t, root)
	})
	return d
}

func (d *diffBed) argv(args ...string) []string {
	return append([]string{d.name, "-as", d.like}, args...)
}

func (d *diffBed) homes() runtimes.Homes { return runtimes.Homes{Home: d.home, Getenv: os.Getenv} }

// begun waits until n conversations have begun in the project since the launch of e, and
// all of them tell.
func (d *diffBed) begun(e Entry, n int) (found []runtimes.Begun) {
	d.t.Helper()
	since, err := d.s.procs.sys.Started(e.Process().StartTicks)
	if err != nil {
		d.t.Fatal(err)
	}
	if e.StateAt.After(since) {
		since = e.StateAt
	}
	await(d.t, "the conversation to begin", func() bool {
		begun, unsure, err := d.spec.Begun(d.t.Context(), d.homes(), d.dir, since)
		found = begun
		return err == nil && len(begun) == n && len(unsure) == 0
	})
	return found
}

// forget takes a running claude out of its own list of running sessions, as of a version
// that kept none. It waits for the end of the turn, at which the entry is written anew.
func (d *diffBed) forget(e Entry, transcript string) {
	d.t.Helper()
	if d.like != "claude" {
		return
	}
	await(d.t, "the end of the turn", func() bool {
		said := strings.Contains(readFile(d.t, transcript), "did work")
		return said && strings.Contains(readFile(d.t, d.listing(e.PID)), `"idle"`)
	})
	if err := errors.Join(os.Mkdir(d.unlisted(e), 0o700), os.Remove(d.listing(e.PID))); err != nil {
		d.t.Fatal(err)
	}
}

// unlisted is where a claude writes its entry to first: a folder there keeps it from that.
func (d *diffBed) unlisted(e Entry) string { return d.listing(e.PID) + ".tmp" }

// sweep sweeps until the pass was whole: a process that is just starting hides what it is.
func (d *diffBed) sweep() (rep Report) {
	d.t.Helper()
	await(d.t, "a whole pass", func() bool {
		rep = mustSweep(d.t, d.s, SweepOptions{Host: d.h})
		return rep.Complete.Processes && rep.Complete.Rows
	})
	return rep
}

// unbound sweeps, and wants the row without a conversation for a reason.
func (d *diffBed) unbound(id, reason string) {
	d.t.Helper()
	rep := d.sweep()
	i := slices.IndexFunc(rep.Unbound, func(u Unbound) bool { return u.ID == id })
	if e := d.get(id); e.SessionID != "" || i < 0 || !strings.Contains(rep.Unbound[i].Reason, reason) {
		d.t.Errorf("%q at %q by %q; unbound %+v, want %q", e.SessionID, e.TranscriptPath, e.SessionSource, rep.Unbound, reason)
	}
}

// notGrown is why what was found is not bound at once.
const notGrown = "it has not grown while it was watched"

// bound sweeps, lets the agent go on with its conversation and sweeps again: then it is the
// row's. Prompt is nil for one in a terminal.
func (d *diffBed) bound(id string, want runtimes.Begun, prompt func(string)) Entry {
	d.t.Helper()
	d.unbound(id, notGrown)
	if prompt == nil {
		e := d.get(id)
		prompt = func(line string) { d.say(e, line) }
	}
	d.grow(want.Path, prompt)
	rep := d.sweep()
	e := d.get(id)
	if e.SessionID != want.ID || e.TranscriptPath != want.Path || e.SessionSource != fromStoreDiff || len(e.SessionIDs) > 0 {
		d.t.Fatalf("%q at %q by %q, %+v; want %+v; unbound %+v", e.SessionID, e.TranscriptPath, e.SessionSource, e.SessionIDs, want, rep.Unbound)
	}
	return e
}

// grow has an agent write to a conversation, by a whole turn.
func (d *diffBed) grow(path string, prompt func(string)) {
	d.t.Helper()
	word := fmt.Sprintf("more%d", strings.Count(readFile(d.t, path), "did more"))
	prompt(word)
	await(d.t, "the conversation to grow", func() bool { return strings.Contains(readFile(d.t, path), "did "+word) })
}

// From the launch to the sweep that finds what the session has begun.
func TestASweepFindsTheConversationThatALaunchBegan(t *testing.T) {
	for _, like := range []string{"claude", "gemini", "qwen"} {
		t.Run(like, func(t *testing.T) {
			d := newDiffBed(t, like)
			e := d.launch(LaunchOptions{Argv: d.argv()})
			d.say(e, "work")
			one := d.begun(e, 1)[0]
			d.forget(e, one.Path)
			e = d.bound(e.LedgerID, one, nil)
			if rep := d.sweep(); len(rep.Unbound) > 0 || d.get(e.LedgerID).Revision != e.Revision {
				t.Errorf("the next sweep wrote it again: %+v", rep)
			}
			if cur, err := d.s.loadCursors(); err != nil || len(cur.Seen) > 0 {
				t.Errorf("watched yet: %+v, %v", cur.Seen, err)
			}
			// It is a conversation like any other: it can be resumed, and not twice.
			again := d.launch(LaunchOptions{Argv: d.argv(), Dir: d.home})
			claimed, err := d.s.bindConversation(t.Context(), again, conversation{id: one.ID, path: one.Path, source: fromHook})
			if err != nil || claimed.SessionID != "" {
				t.Errorf("claimed by another: %q, %v", claimed.SessionID, err)
			}
		})
	}
}

func TestASweepFindsTheConversationOfADirectLaunch(t *testing.T) {
	d := newDiffBed(t, "gemini")
	a := d.become(direct{Argv: d.argv()})
	id := a.Session()
	e := d.onlyRow()
	one := d.begun(e, 1)[0]
	if one.ID != id {
		t.Fatalf("began %+v, the agent says %q", one, id)
	}
	d.bound(e.LedgerID, one, a.Send)
}

// Two in one directory: whose is whose cannot be told, the newest least of all.
func TestTwoLaunchesInOneDirectoryStayUnbound(t *testing.T) {
	d := newDiffBed(t, "gemini")
	first := d.launch(LaunchOptions{Argv: d.argv()})
	second := d.launch(LaunchOptions{Argv: d.argv()})
	d.begun(first, 2)
	d.unbound(first.LedgerID, "2 conversations began")
	d.unbound(second.LedgerID, "began in its directory since its launch")
}

// One that begins nothing of its own makes what the other began ambiguous.
func TestASilentNeighbourLeavesALaunchUnbound(t *testing.T) {
	d := newDiffBed(t, "gemini")
	lazy := append(os.Environ(), "LEDGERTEST_AGENT_QUIRKS=lazy")
	silent := d.launch(LaunchOptions{Argv: d.argv(), Env: lazy})
	e := d.launch(LaunchOptions{Argv: d.argv()})
	d.begun(silent, 1)
	// Their number has no bound, so that filed rows are not read where this settles it.
	filed := d.s.path(dirFinished, "damaged"+rowExtension)
	putFile(t, filed, "")
	d.unbound(e.LedgerID, "may be that of")
	d.unbound(silent.LedgerID, "may be that of")
	if err := os.Remove(filed); err != nil {
		t.Fatal(err)
	}
	// That it ends does not undo what it may have done.
	endServer(t, silent.Mux.Socket)
	d.gone(silent.Process())
	d.unbound(e.LedgerID, "may be that of")
	d.unbound(e.LedgerID, "may be that of")
}

// One that was launched elsewhere and has come here since may have begun it, too.
func TestANeighbourThatCameHereLeavesALaunchUnbound(t *testing.T) {
	d := newDiffBed(t, "gemini")
	guest := d.launch(LaunchOptions{Argv: d.argv(), Dir: d.home})
	d.say(guest, "/cd "+d.dir)
	await(t, "it to come", func() bool {
		cwd, err := os.Readlink("/proc/" + itoa(guest.PID) + "/cwd")
		return err == nil && cwd == d.dir
	})
	e := d.launch(LaunchOptions{Argv: d.argv()})
	d.begun(e, 1)
	d.unbound(e.LedgerID, "may be that of process "+itoa(guest.PID))
}

// A neighbour of another account writes to a store of its own.
func TestANeighbourWithAnotherStoreIsNoRival(t *testing.T) {
	d := newDiffBed(t, "qwen")
	work := filepath.Join(d.home, "accounts", "work")
	d.launch(LaunchOptions{Argv: d.argv(), Env: append(os.Environ(), "QWEN_HOME="+filepath.Join(work, ".qwen"), "HOME="+work)})
	e := d.launch(LaunchOptions{Argv: d.argv()})
	d.say(e, "work")
	d.bound(e.LedgerID, d.begun(e, 1)[0], nil)
}

// The row of one that was here and is over, and filed, speaks as one that runs does.
func TestAFinishedNeighbourLeavesALaunchUnbound(t *testing.T) {
	d := newDiffBed(t, "gemini")
	e := d.launch(LaunchOptions{Argv: d.argv()})
	one := d.begun(e, 1)[0]
	n := 0
	over := func(id, dir string, ended time.Time) {
		p := deadProcess()
		row := Entry{SchemaVersion: 1, LedgerID: id, Runtime: d.name, Phase: PhaseFinished, Revision: 1,
			Cwd: dir, StartedAt: ended.Add(-time.Minute), FinishedAt: ended, FinishReason: "over", RescuedAt: ended,
			PID: p.PID, PIDStartTicks: &p.StartTicks, BootID: p.BootID, HostID: p.HostID, PIDNamespace: p.PIDNamespace, TimeNamespace: p.TimeNamespace}
		n++
		otherTicks(n)(&row)
		writeEntry(t, d.s, dirFinished, &row)
	}
	// lost adds an open row whose process is gone.
	lost := func(id string, edit func(*Entry)) {
		over(id, d.dir, e.StateAt.Add(-time.Minute))
		r := get(t, d.s, id)
		if err := os.Remove(d.s.path(dirFinished, id+rowExtension)); err != nil {
			t.Fatal(err)
		}
		r.Phase, r.SessionID, r.FinishedAt, r.FinishReason = PhaseLive, id, time.Time{}, ""
		edit(&r)
		writeEntry(t, d.s, dirSessions, &r)
	}
	lost("rescued-before", func(r *Entry) {})
	lost("other-boot", func(r *Entry) {
		r.RescuedAt, r.BootID = time.Now().Add(time.Second), "00000000-0000-4000-8000-000000000000"
	})
	over("earlier", d.dir, e.StateAt.Add(-time.Minute))
	over("elsewhere", d.home, time.Now().Add(time.Second))
	over("beside", d.dir, time.Now().Add(time.Second))
	d.unbound(e.LedgerID, "may be that of beside")
	if err := os.Remove(d.s.path(dirFinished, "beside"+rowExtension)); err != nil {
		t.Fatal(err)
	}
	// When it ended is not known of one that is only gone by now.
	lost("gone-by-now", func(r *Entry) { r.RescuedAt = time.Now().Add(time.Second) })
	d.unbound(e.LedgerID, "may be that of gone-by-now")
	if err := os.Remove(d.s.path(dirSessions, "gone-by-now"+rowExtension)); err != nil {
		t.Fatal(err)
	}
	d.bound(e.LedgerID, one, nil)
}

// What lies in the store and was touched after the launch, and is none of the session's.
func TestWhatTheLaunchDidNotBeginIsNotBound(t *testing.T) {
	d := newDiffBed(t, "gemini")
	chats := filepath.Join(d.home, ".gemini", "tmp", "slug", "chats")
	put := func(id, dir, kind string, at time.Time) {
		hash := sha256.Sum256([]byte(dir))
		putFile(t, filepath.Join(chats, "session-2026-01-02T03-04-"+id[:8]+".jsonl"),
			fmt.Sprintf(`{"sessionId":%q,"projectHash":%q,"startTime":%q,"kind":%q}`+"\n",
				id, hex.EncodeToString(hash[:]), at.UTC().Format(time.RFC3339Nano), kind))
	}
	e := d.launch(LaunchOptions{Argv: d.argv(), Env: append(os.Environ(), "LEDGERTEST_AGENT_QUIRKS=lazy")})
	began, err := d.s.procs.sys.Started(e.Process().StartTicks)
	if err != nil {
		t.Fatal(err)
	}
	put(idA, d.dir, "main", time.Now().Add(-time.Hour))
	put(idD, d.dir, "main", began.Add(-10*time.Millisecond)) // in the second of the launch, before it
	put(idB, d.dir, "subagent", time.Now())
	put(idC, d.home, "main", time.Now())
	d.unbound(e.LedgerID, "no conversation began in its directory")
	d.say(e, "work")
	d.bound(e.LedgerID, d.begun(e, 1)[0], nil)
}

// One without a row that came and went in the directory since the launch is seen by no pass.
// Its conversation does not grow, so that it is not taken for the session's.
func TestAStrangerThatCameAndWentLeavesALaunchUnbound(t *testing.T) {
	d := newDiffBed(t, "gemini")
	e := d.launch(LaunchOptions{Argv: d.argv(), Env: append(os.Environ(), "LEDGERTEST_AGENT_QUIRKS=lazy")})
	stranger := func(args ...string) *ledgertest.Agent {
		cmd := ledgertest.Command(t, d.like, append([]string{"-as", d.like}, args...)...)
		cmd.Args[0], cmd.Dir = d.name, d.dir
		a := ledgertest.Start(t, cmd)
		a.Session()
		return a
	}
	a := stranger()
	a.Send("work")
	a.Expect("did work")
	a.Close()
	one := d.begun(e, 1)[0]
	d.unbound(e.LedgerID, notGrown)
	before, err := os.Stat(d.s.path(cursorsFile))
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		d.unbound(e.LedgerID, notGrown)
	}
	if after, err := os.Stat(d.s.path(cursorsFile)); err != nil || !os.SameFile(before, after) || !after.ModTime().Equal(before.ModTime()) {
		t.Errorf("watching wrote the cursors again: %v", err)
	}
	// What it writes while it is there is not the session's either, nor is it afterwards.
	a = stranger("--resume", one.ID)
	d.grow(one.Path, a.Send)
	rep := d.sweep()
	if e = d.get(e.LedgerID); e.SessionID != "" {
		t.Fatalf("bound while a stranger was in it: %+v", rep)
	}
	a.Close()
	d.sweep()
	d.say(e, "own")
	d.begun(e, 2)
	d.sweep()
	if e = d.get(e.LedgerID); e.SessionID != "" {
		t.Errorf("%q by %q", e.SessionID, e.SessionSource)
	}
	// Nothing is watched for what is over.
	endServer(t, e.Mux.Socket)
	d.gone(e.Process())
	d.sweep()
	if cur, err := d.s.loadCursors(); err != nil || len(cur.Seen) > 0 {
		t.Errorf("watched yet: %+v, %v", cur.Seen, err)
	}
}

// A pass that finds somebody else there begins to watch anew.
func TestWhatGrewWhileAnotherWasThereIsNotBound(t *testing.T) {
	was := sighting{ID: idA, Path: "/t/a", Process: "p", Size: 10, Mtime: midday}
	for name, tt := range map[string]struct {
		edit func(s *sighting)
		want bool
	}{
		"grown":             {func(s *sighting) {}, true},
		"as long":           {func(s *sighting) { s.Size = 10 }, false},
		"shorter":           {func(s *sighting) { s.Size = 9 }, false},
		"not written to":    {func(s *sighting) { s.Mtime = midday }, false},
		"another one":       {func(s *sighting) { s.ID = idB }, false},
		"another file":      {func(s *sighting) { s.Path = "/t/b" }, false},
		"another process's": {func(s *sighting) { s.Process = "q" }, false},
	} {
		now := sighting{ID: idA, Path: "/t/a", Process: "p", Size: 11, Mtime: midday.Add(time.Second)}
		if tt.edit(&now); now.grewSince(was) != tt.want {
			t.Errorf("%s: %v", name, !tt.want)
		}
	}
	if was.grewSince(sighting{}) {
		t.Error("the first sight of a file is its growth")
	}
	d := newDiffBed(t, "gemini")
	e := d.launch(LaunchOptions{Argv: d.argv()})
	one := d.begun(e, 1)[0]
	d.unbound(e.LedgerID, notGrown)
	say := func(line string) { d.say(e, line) }
	d.grow(one.Path, say)
	beside := filepath.Join(filepath.Dir(one.Path), "session-2026-01-02T03-04-torn.jsonl")
	putFile(t, beside, "{")
	d.unbound(e.LedgerID, "does not tell")
	if err := os.Remove(beside); err != nil {
		t.Fatal(err)
	}
	d.bound(e.LedgerID, one, nil)
}

// What takes up an older conversation begins none, whatever begins beside it.
func TestALaunchThatContinuesIsNotBound(t *testing.T) {
	d := newDiffBed(t, "qwen")
	old := d.become(direct{Argv: d.argv()})
	id := old.Session()
	old.Send("work")
	old.Expect("did work")
	old.Close()
	e := d.launch(LaunchOptions{Argv: d.argv("--continue")})
	d.say(e, "more")
	await(t, "the conversation to grow", func() bool {
		found, _ := filepath.Glob(filepath.Join(d.home, ".qwen", "projects", "*", "chats", id+".jsonl"))
		return len(found) == 1 && strings.Contains(readFile(t, found[0]), "did more")
	})
	d.unbound(e.LedgerID, "takes up what was there before")
}

// A process that nobody launched by this library is never asked: what was in its directory
// before it is not on record.
func TestADiscoveredSessionIsNotBoundByItsStore(t *testing.T) {
	d := newDiffBed(t, "gemini")
	a := d.become(direct{Argv: d.argv()})
	a.Session()
	other := openStore(t, filepath.Join(d.home, "other"), &Options{Runtimes: d.s.runtimes})
	row, _, err := other.Enrol(t.Context(), a.PID(), nil)
	if err != nil {
		t.Fatal(err)
	}
	rep := mustSweep(t, other, SweepOptions{})
	if len(rep.Unbound) != 1 || rep.Unbound[0].ID != row.LedgerID || !strings.Contains(rep.Unbound[0].Reason, "not launched by this library") {
		t.Errorf("%+v", rep.Unbound)
	}
}

// A hook that comes later has the word, and the history tells what was only found.
func TestAHookReplacesWhatTheStoreShowed(t *testing.T) {
	d := newDiffBed(t, "gemini")
	a := d.become(direct{Argv: d.argv()})
	id := a.Session()
	e := d.onlyRow()
	e = d.bound(e.LedgerID, d.begun(e, 1)[0], a.Send)
	a.Send("/spawn exec sleep 1000")
	pid := atoi(t, a.Expect("/spawn ")[len(d.like+": /spawn "):])
	defer syscall.Kill(pid, syscall.SIGKILL)
	say := func(source, id string) Entry {
		payload := fmt.Sprintf(`{"hook_event_name":"SessionStart","source":%q,"session_id":%q}`, source, id)
		if _, err := HandleHook(t.Context(), d.s, d.name, strings.NewReader(payload), HookOptions{PID: pid, Wait: patience}); err != nil {
			t.Fatal(err)
		}
		return d.get(e.LedgerID)
	}
	if e = say("startup", id); e.SessionID != id || e.SessionSource != fromHook || len(e.SessionIDs) > 0 {
		t.Errorf("the hook says the same: %q by %q, %+v", e.SessionID, e.SessionSource, e.SessionIDs)
	}
	// Again a row that knows only what was found.
	if _, err := d.s.rewrite(t.Context(), e.LedgerID, true, maxRow, func(e *Entry) (verdict, error) {
		e.SessionSource = fromStoreDiff
		return unchanged, nil
	}); err != nil {
		t.Fatal(err)
	}
	a.Send("/clear")
	next := strings.TrimPrefix(a.Expect("/clear "), d.like+": /clear ")
	if e = say("clear", next); e.SessionID != next || e.SessionSource != fromHook || len(e.SessionIDs) != 1 ||
		e.SessionIDs[0].ID != id || e.SessionIDs[0].From != fromStoreDiff || e.SessionIDs[0].HeldBy != "" {
		t.Errorf("the hook says another: %q by %q, %+v", e.SessionID, e.SessionSource, e.SessionIDs)
	}
	d.sweep()
	if e = d.get(e.LedgerID); e.SessionID != next || e.SessionSource != fromHook {
		t.Errorf("after a sweep: %q by %q", e.SessionID, e.SessionSource)
	}
}

// So has the runtime's own list of running sessions, once it has an entry.
func TestASweepReplacesWhatTheStoreShowed(t *testing.T) {
	d := newDiffBed(t, "claude")
	a := d.become(direct{Argv: d.argv()})
	id := a.Session()
	a.Send("work")
	a.Expect("did work")
	e := d.onlyRow()
	one := d.begun(e, 1)[0]
	d.forget(e, one.Path)
	e = d.bound(e.LedgerID, one, a.Send)
	if err := os.Remove(d.unlisted(e)); err != nil {
		t.Fatal(err)
	}
	a.Send("/clear")
	next := strings.TrimPrefix(a.Expect("/clear "), d.like+": /clear ")
	a.Send("more")
	a.Expect("did more")
	d.sweep()
	if e = d.get(e.LedgerID); e.SessionID != next || e.SessionSource != fromRegistry || len(e.SessionIDs) != 1 ||
		e.SessionIDs[0].ID != id || e.SessionIDs[0].From != fromStoreDiff {
		t.Errorf("%q by %q, %+v", e.SessionID, e.SessionSource, e.SessionIDs)
	}
}

// launchAndLeave is a launcher that is killed once its agent may run.
type launchAndLeave struct{ Root, Dir, Name, Like string }

var launchThenDie = inChild("launch-then-die", func(arg launchAndLeave) error {
	spec, _ := runtimes.Builtin().Lookup(arg.Like)
	spec.Name, spec.Argv0, spec.Paths, spec.Scripts = arg.Name, []string{arg.Name}, nil, nil
	s, err := Open(arg.Root, &Options{Runtimes: &Runtimes{table: runtimes.Table{spec}}})
	if err != nil {
		return err
	}
	h := &Host{Store: s, step: func(step string) {
		if step == "opened" {
			syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
	}}
	_, err = h.Launch(context.Background(), LaunchOptions{Argv: []string{arg.Name, "-as", arg.Like}, Dir: arg.Dir, Wait: patience})
	return err
})

// Nothing of what it takes is the launcher's to keep.
func TestTheConversationIsFoundAfterTheLaunchersDeath(t *testing.T) {
	d := newDiffBed(t, "gemini")
	c := startChild(t, launchThenDie, launchAndLeave{d.s.root, d.dir, d.name, d.like})
	if err := c.Wait(); err == nil || !strings.Contains(err.Error(), "killed") {
		t.Fatalf("the launcher was not killed: %v %s", err, c.errs.String())
	}
	var e Entry
	await(t, "the birth to be settled", func() bool {
		if _, err := d.h.Reconcile(t.Context(), "", ReconcileOptions{Grace: -1}); err != nil {
			t.Fatal(err)
		}
		e = d.onlyRow()
		return e.Lease == nil
	})
	d.bound(e.LedgerID, d.begun(e, 1)[0], nil)
}
