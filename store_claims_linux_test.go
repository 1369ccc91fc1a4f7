package ledger

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

type enrolArg struct {
	Dir             string
	Process         ProcessID
	Session, Window string
}

// childEnrol waits for the end of its input, enrols, and prints the row's id.
var childEnrol = inChild("enrol", func(arg enrolArg) error {
	s, err := Open(arg.Dir, nil)
	if err != nil {
		return err
	}
	if _, err := io.Copy(io.Discard, os.Stdin); err != nil {
		return err
	}
	e, err := s.Create(context.Background(), Entry{Runtime: "claude", SessionID: arg.Session, Window: arg.Window}, Enrol(arg.Process, Location{}))
	if err != nil && !errors.Is(err, ErrExists) {
		return err
	}
	fmt.Println(e.LedgerID, err == nil)
	return nil
})

// Case 29a, 35: launcher, hook and sweep on one process are one row, and all learn which.
func TestOneRowAProcess(t *testing.T) {
	t.Parallel()
	s := newStore(t, nil)
	p, _ := startProcess(t)
	var args []any
	for range 8 {
		args = append(args, enrolArg{Dir: s.root, Process: p, Session: "c", Window: "w"})
	}
	ids, created := map[string]int{}, 0
	for _, c := range startTogether(t, childEnrol, args) {
		id, made, _ := strings.Cut(strings.TrimSpace(c.wait(t)), " ")
		ids[id]++
		if made == "true" {
			created++
		}
	}
	if len(ids) != 1 || created != 1 {
		t.Errorf("rows %v, created %d times", ids, created)
	}
	if rows, _ := listed(t, s); len(rows) != 1 {
		t.Errorf("%d rows", len(rows))
	}
	for id := range ids {
		for name, q := range map[string]Query{
			"process":      {Process: p},
			"pid":          {PID: p.PID},
			"conversation": {Conversation: Conversation{"claude", "c"}},
			"place":        {Place: Place{Window: "w"}},
			"prefix":       {Prefix: id[:10]},
		} {
			if e, err := s.Find(t.Context(), q); err != nil || e.LedgerID != id {
				t.Errorf("find by %s: %q, %v", name, e.LedgerID, err)
			}
		}
	}
}

// Two rows claim one conversation: one has it, the other notes who, and asks for attention.
func TestOneOpenRowAConversation(t *testing.T) {
	t.Parallel()
	s := newStore(t, nil)
	ctx := t.Context()
	var ids []string
	for range 6 {
		e, _ := enrolled(t, s, Entry{})
		ids = append(ids, e.LedgerID)
	}
	var group sync.WaitGroup
	refused := make([]error, len(ids))
	for i, id := range ids {
		store := openStore(t, s.root, nil)
		group.Go(func() { _, _, refused[i] = store.Apply(ctx, id, Claim("c", "hook")) })
	}
	group.Wait()
	holder, err := s.Find(ctx, Query{Conversation: Conversation{"claude", "c"}})
	if err != nil {
		t.Fatal(err)
	}
	for i, id := range ids {
		e, err := s.Get(ctx, id)
		if err != nil {
			t.Fatal(err)
		}
		if id == holder.LedgerID {
			if e.SessionID != "c" || refused[i] != nil {
				t.Errorf("the holder: %q, %v", e.SessionID, refused[i])
			}
			continue
		}
		if e.SessionID != "" || !errors.Is(refused[i], ErrConversationHeld) || e.Attention == nil ||
			len(e.SessionIDs) != 1 || e.SessionIDs[0].HeldBy != holder.LedgerID {
			t.Errorf("a later claim: %v, %+v", refused[i], e)
		}
	}
	// Creation with a conversation that is held leaves the row without it, and says so there.
	late, _ := enrolled(t, s, Entry{SessionID: "c"})
	if late.SessionID != "" || len(late.SessionIDs) != 1 || late.SessionIDs[0].HeldBy != holder.LedgerID {
		t.Errorf("%+v", late)
	}
	// The same id of another runtime is another conversation.
	if other, _ := enrolled(t, s, Entry{Runtime: "codex", SessionID: "c"}); other.SessionID != "c" {
		t.Errorf("%+v", other)
	}
	// Once the holder is over, the conversation is free.
	finished(t, s, holder.LedgerID)
	if got := apply(t, s, late.LedgerID, Claim("c", "hook")); got.SessionID != "c" {
		t.Errorf("%+v", got)
	}
}

// Two agents in one window get slots 0 and 1; a slot that is free again is given again.
func TestOneRowAPlace(t *testing.T) {
	t.Parallel()
	s := newStore(t, nil)
	ctx := t.Context()
	in := Entry{Cwd: "/work", RepoRoot: "/work", Window: "w"}
	var rows []Entry
	for want := range 3 {
		e, _ := enrolled(t, s, in)
		if e.Window != "w" || e.Slot != want {
			t.Fatalf("agent %d got %q slot %d", want, e.Window, e.Slot)
		}
		rows = append(rows, e)
	}
	if other, _ := enrolled(t, s, Entry{Cwd: "/else", Window: "w"}); other.Slot != 0 {
		t.Errorf("another project: slot %d", other.Slot)
	}
	finished(t, s, rows[1].LedgerID)
	if _, err := s.Find(ctx, Query{Place: Place{"/work", "w", 1}}); !errors.Is(err, ErrNotFound) {
		t.Errorf("a freed slot: %v, want ErrNotFound", err)
	}
	if e, _ := enrolled(t, s, in); e.Slot != 1 {
		t.Errorf("after slot 1 was freed: slot %d", e.Slot)
	}
	// A row that moves by an event leaves its slot.
	moved := apply(t, s, rows[0].LedgerID, Bind("", rows[0].Process(), Location{Window: "v"}))
	if moved.Window != "v" || moved.Slot != 0 {
		t.Errorf("moved to %q slot %d", moved.Window, moved.Slot)
	}
	if again := apply(t, s, rows[0].LedgerID, Bind("", rows[0].Process(), Location{Window: "v"})); again.Slot != 0 {
		t.Errorf("the same window again: slot %d", again.Slot)
	}
	if e, _ := enrolled(t, s, in); e.Slot != 0 {
		t.Errorf("after slot 0 was left: slot %d", e.Slot)
	}
}

// A process that another row holds cannot be written into a row by any event.
func TestEventsCannotTakeAnotherRowsProcess(t *testing.T) {
	t.Parallel()
	s := newStore(t, nil)
	ctx := t.Context()
	holder, _ := enrolled(t, s, Entry{})
	owner := self(t)

	birth := BeginCreate(owner)
	creating, err := s.Create(ctx, Entry{Runtime: "claude"}, birth)
	if err != nil {
		t.Fatal(err)
	}
	gone, cmd := enrolled(t, s, Entry{})
	endProcess(cmd)
	frozen, cmd := enrolled(t, s, Entry{SessionID: "c"})
	freeze := BeginFreeze(owner)
	apply(t, s, frozen.LedgerID, freeze)
	putFile(t, s.path("frozen", frozen.LedgerID, freeze.Nonce, "capture.ansi"), "")
	endProcess(cmd)
	apply(t, s, frozen.LedgerID, CommitFreeze(freeze.Nonce, ProcessID{}))
	restore := BeginRestore(owner)
	apply(t, s, frozen.LedgerID, restore)
	for name, tt := range map[string]struct {
		id string
		ev Event
	}{
		"Bind of a birth": {creating.LedgerID, Bind(birth.Nonce, holder.Process(), Location{})},
		"Bind":            {gone.LedgerID, Bind("", holder.Process(), Location{})},
		"Launched":        {frozen.LedgerID, Launched(restore.Nonce, holder.Process(), Location{})},
		"stale Launched":  {frozen.LedgerID, Launched("stale", holder.Process(), Location{})},
	} {
		_, out, err := s.Apply(ctx, tt.id, tt.ev)
		want := ErrExists
		if name == "stale Launched" {
			want = ErrStaleNonce // the refusal is the row's own to make
		}
		if out != Refused || !errors.Is(err, want) {
			t.Errorf("%s: %v, %v, want %v", name, out, err, want)
		}
		if e, err := s.Get(ctx, tt.id); err != nil || e.Process().Same(holder.Process()) ||
			e.Restore != nil && e.Restore.Launched.Same(holder.Process()) {
			t.Errorf("%s: the row was written: %+v, %v", name, e, err)
		}
	}
}

// carrier starts a process that carries variables, below none that does.
func carrier(t *testing.T, env ...string) ProcessID {
	t.Helper()
	c := startChild(t, childCarrier, env)
	p, err := newTable("").identify(c.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// childCarrier is replaced by a process with the given variables.
var childCarrier = inChild("carrier", func(env []string) error {
	path, err := exec.LookPath("sleep")
	if err != nil {
		return err
	}
	return syscall.Exec(path, []string{"sleep", "1000"}, env)
})

// An acknowledgement that comes before its Launched claims the process all the same.
func TestEarlyAcknowledgementClaimsItsProcess(t *testing.T) {
	t.Parallel()
	s := newStore(t, nil)
	ctx := t.Context()
	row, cmd := enrolled(t, s, Entry{SessionID: "c"})
	freeze, restore := BeginFreeze(self(t)), BeginRestore(self(t))
	apply(t, s, row.LedgerID, freeze)
	putFile(t, s.path("frozen", row.LedgerID, freeze.Nonce, "capture.ansi"), "")
	endProcess(cmd)
	apply(t, s, row.LedgerID, CommitFreeze(freeze.Nonce, ProcessID{}))
	apply(t, s, row.LedgerID, restore)
	p := carrier(t, envAttempt+"="+restore.Nonce, envID+"="+row.LedgerID)
	await(t, "the carrier has its environment", func() bool {
		var f Facts
		e, err := s.Get(ctx, row.LedgerID)
		if err != nil {
			t.Fatal(err)
		}
		s.readCarrier(&e, p, &f)
		return f.Outermost == Yes
	})
	got := apply(t, s, row.LedgerID, Acknowledge(restore.Nonce, p, "c"))
	if got.Phase != PhaseLive || !got.Process().Same(p) {
		t.Fatalf("%+v", got)
	}
	if e, err := s.Find(ctx, Query{Process: p}); err != nil || e.LedgerID != row.LedgerID {
		t.Errorf("by its process: %q, %v", e.LedgerID, err)
	}
	if e, err := s.Create(ctx, Entry{Runtime: "claude"}, Enrol(p, Location{})); !errors.Is(err, ErrExists) || e.LedgerID != row.LedgerID {
		t.Errorf("enrolled again: %q, %v", e.LedgerID, err)
	}
}

// A hook finds its row by the claims of its own ancestors.
func TestFindByAncestor(t *testing.T) {
	s := newStore(t, nil)
	ctx := t.Context()
	_, cmd := startProcess(t)
	if _, err := s.Find(ctx, Query{Ancestor: cmd.Process.Pid}); !errors.Is(err, ErrNotFound) {
		t.Errorf("before any row: %v, want ErrNotFound", err)
	}
	mine, err := s.Create(ctx, Entry{Runtime: "claude"}, Enrol(self(t), Location{}))
	if err != nil {
		t.Fatal(err)
	}
	if e, err := s.Find(ctx, Query{Ancestor: cmd.Process.Pid}); err != nil || e.LedgerID != mine.LedgerID {
		t.Errorf("by a child: %q, %v", e.LedgerID, err)
	}
	if e, err := s.Find(ctx, Query{Ancestor: os.Getpid()}); err != nil || e.LedgerID != mine.LedgerID {
		t.Errorf("by itself: %q, %v", e.LedgerID, err)
	}
	endProcess(cmd)
	if _, err := s.Find(ctx, Query{Ancestor: cmd.Process.Pid}); !errors.Is(err, ErrNotFound) {
		t.Errorf("of a process that is gone: %v, want ErrNotFound", err)
	}
	if _, err := s.Find(ctx, Query{PID: cmd.Process.Pid}); !errors.Is(err, ErrNotFound) {
		t.Errorf("by the pid of a process that is gone: %v, want ErrNotFound", err)
	}
	blind := openStore(t, s.root, &Options{ProcFS: t.TempDir()})
	if _, err := blind.Find(ctx, Query{Ancestor: os.Getpid()}); errors.Is(err, ErrNotFound) || err == nil {
		t.Errorf("without /proc: %v, which is no answer", err)
	}
}

func TestFindWantsOneMember(t *testing.T) {
	s := newStore(t, &Options{Clock: newClock()})
	for _, q := range []Query{{}, {Prefix: "a", PID: 1}} {
		if _, err := s.Find(t.Context(), q); !errors.Is(err, ErrInvalid) {
			t.Errorf("%+v: %v, want ErrInvalid", q, err)
		}
	}
	born(t, s, "abc1")
	born(t, s, "abc2")
	born(t, s, "abc")
	for prefix, want := range map[string]error{"ab": ErrInvalid, "abc": nil, "abc1": nil, "b": ErrNotFound} {
		if _, err := s.Find(t.Context(), Query{Prefix: prefix}); !errors.Is(err, want) {
			t.Errorf("prefix %q: %v, want %v", prefix, err, want)
		}
	}
	// A finished row is meant only where no open one fits.
	finished(t, s, "abc2")
	s.clock.(*fakeClock).advance(time.Hour)
	if _, err := s.Tidy(t.Context()); err != nil {
		t.Fatal(err)
	}
	if e, err := s.Find(t.Context(), Query{Prefix: "abc2"}); err != nil || e.IsOpen() {
		t.Errorf("%+v, %v", e, err)
	}
	pane := Location{Mux: Mux{Kind: MuxTmux, Socket: "/s", Target: "x"}, PaneID: "%1", PaneServer: self(t)}
	p, _ := startProcess(t)
	row, err := s.Create(t.Context(), Entry{Runtime: "claude"}, Enrol(p, pane))
	if err != nil {
		t.Fatal(err)
	}
	for _, q := range []Pane{{ID: "%1", Server: self(t)}, {ID: "%1", Socket: "/s"}} {
		if e, err := s.Find(t.Context(), Query{Pane: q}); err != nil || e.LedgerID != row.LedgerID {
			t.Errorf("%+v: %q, %v", q, e.LedgerID, err)
		}
	}
	for _, q := range []Pane{{ID: "%2", Server: self(t)}, {ID: "%1", Socket: "/t"}, {ID: "%1"}, {ID: "%1", Server: p}} {
		if _, err := s.Find(t.Context(), Query{Pane: q}); !errors.Is(err, ErrNotFound) {
			t.Errorf("%+v: %v, want ErrNotFound", q, err)
		}
	}
}

func TestFindIsADamagedRow(t *testing.T) {
	s := newStore(t, nil)
	e, _ := enrolled(t, s, Entry{SessionID: "c"})
	good := readFile(t, rowPath(s, e.LedgerID))
	putRow(t, s, e.LedgerID, "{")
	for _, q := range []Query{{Process: e.Process()}, {Conversation: Conversation{"claude", "c"}}, {Prefix: e.LedgerID[:8]}} {
		if _, err := s.Find(t.Context(), q); !errors.Is(err, ErrDamaged) {
			t.Errorf("%+v: %v, want ErrDamaged", q, err)
		}
	}
	// It keeps its claims: neither process nor conversation is given to another row.
	if _, err := s.Create(t.Context(), Entry{Runtime: "claude"}, Enrol(e.Process(), Location{})); !errors.Is(err, ErrExists) || !errors.Is(err, ErrDamaged) {
		t.Errorf("its process: %v, want ErrExists and ErrDamaged", err)
	}
	if other, _ := enrolled(t, s, Entry{SessionID: "c"}); other.SessionID != "" {
		t.Error("its conversation was given away")
	}
	if tidied, err := s.Tidy(t.Context()); err != nil || tidied.Claims != 0 {
		t.Errorf("tidy: %+v, %v", tidied, err)
	}
	putRow(t, s, e.LedgerID, good)
	// Once it is set aside, its process can be enrolled again.
	putRow(t, s, e.LedgerID, "")
	if err := s.Repair(t.Context(), e.LedgerID); err != nil {
		t.Fatal(err)
	}
	if again, err := s.Create(t.Context(), Entry{Runtime: "claude", SessionID: "c"}, Enrol(e.Process(), Location{})); err != nil || again.SessionID != "c" {
		t.Errorf("enrolled again: %+v, %v", again, err)
	}
}

// Claims are rebuilt from the rows: after a boot, where they are torn, and in a ledger that
// has none.
func TestClaimsAreRebuilt(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(s *Store){
		"another boot's stamp, all claims lost": func(s *Store) {
			wipeClaims(t, s, false)
			putFile(t, s.path(dirClaims, claimsStamp), "00000000-0000-0000-0000-000000000000\n")
		},
		"another boot's stamp, torn claims": func(s *Store) {
			wipeClaims(t, s, true)
			putFile(t, s.path(dirClaims, claimsStamp), "00000000-0000-0000-0000-000000000000\n")
		},
		"no stamp":     func(s *Store) { wipeClaims(t, s, false) },
		"a torn stamp": func(s *Store) { wipeClaims(t, s, false); putFile(t, s.path(dirClaims, claimsStamp), "") },
		"no folder": func(s *Store) {
			if err := os.RemoveAll(s.path(dirClaims)); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			clock := newClock()
			s := newStore(t, &Options{Clock: clock})
			ctx := t.Context()
			row, _ := enrolled(t, s, Entry{SessionID: "c", Window: "w", Cwd: "/work"})
			// Ended by its hook, filed away, and its process lives on.
			ended, _ := enrolled(t, s, Entry{})
			finished(t, s, ended.LedgerID)
			clock.advance(time.Hour)
			if tidied, err := s.Tidy(ctx); err != nil || len(tidied.Filed) != 1 {
				t.Fatalf("%+v, %v", tidied, err)
			}
			spoil(s)
			s = openStore(t, s.root, nil)
			// A look-up reads the rows as long as the claims are not complete.
			if e, err := s.Find(ctx, Query{Conversation: Conversation{"claude", "c"}}); err != nil || e.LedgerID != row.LedgerID {
				t.Errorf("before the rebuild: %q, %v", e.LedgerID, err)
			}
			var group sync.WaitGroup
			for range 4 {
				store := openStore(t, s.root, nil)
				group.Go(func() {
					e, err := store.Create(ctx, Entry{Runtime: "claude"}, Enrol(row.Process(), Location{}))
					if !errors.Is(err, ErrExists) || e.LedgerID != row.LedgerID {
						t.Errorf("a process with a row: %q, %v", e.LedgerID, err)
					}
				})
			}
			group.Wait()
			if !strings.Contains(name, "another boot") { // a process of this boot, so not after one
				if e, err := s.Create(ctx, Entry{Runtime: "claude"}, Enrol(ended.Process(), Location{})); !errors.Is(err, ErrExists) || e.LedgerID != ended.LedgerID {
					t.Errorf("a process with a filed row: %q, %v", e.LedgerID, err)
				}
			}
			if other, _ := enrolled(t, s, Entry{SessionID: "c", Window: "w", Cwd: "/work"}); other.SessionID != "" || other.Slot != 1 {
				t.Errorf("conversation and place were given away: %+v", other)
			}
			here, err := s.procs.here()
			if got := readFile(t, s.path(dirClaims, claimsStamp)); err != nil || got != here.BootID+"\n" {
				t.Errorf("stamp %q, %v", got, err)
			}
		})
	}
}

func wipeClaims(t *testing.T, s *Store, tear bool) {
	t.Helper()
	names, err := os.ReadDir(s.path(dirClaims))
	if err != nil || len(names) < 3 {
		t.Fatalf("%d claims, %v", len(names), err)
	}
	for _, name := range names {
		path := s.path(dirClaims, name.Name())
		if tear {
			putFile(t, path, "")
		} else if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
}

// A row of another implementation has neither host nor namespaces: they are this machine's,
// and its process is not enrolled twice.
func TestLegacyRowHoldsItsProcess(t *testing.T) {
	s := newStore(t, nil)
	p, _ := startProcess(t)
	legacy := strings.NewReplacer(`"bootId": ""`, `"bootId": "`+p.BootID+`"`, `"pid": null`, fmt.Sprintf(`"pid": %d`, p.PID),
		`"pidStartTicks": null`, fmt.Sprintf(`"pidStartTicks": %d`, p.StartTicks)).Replace(legacyRow)
	const id = "codex-20250101T000000Z-000001"
	putRow(t, s, id, legacy)
	if e, err := s.Create(t.Context(), Entry{Runtime: "codex"}, Enrol(p, Location{})); !errors.Is(err, ErrExists) || e.LedgerID != id {
		t.Errorf("enrolled again: %q, %v", e.LedgerID, err)
	}
	e, err := s.Get(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	for name, q := range map[string]Query{"full": {Process: p}, "bare": {Process: e.Process()}, "pid": {PID: p.PID}} {
		if got, err := s.Find(t.Context(), q); err != nil || got.LedgerID != id {
			t.Errorf("%s: %q, %v", name, got.LedgerID, err)
		}
	}
}

// Odd things in the place of a claim are no claim, and stop nobody.
func TestTornClaims(t *testing.T) {
	t.Parallel()
	for _, torn := range []string{"", "x", "no-newline", "../../etc\n", strings.Repeat("a", 200) + "\n", "a\nb\n", "missing-row\n"} {
		s := newStore(t, nil)
		p, _ := startProcess(t)
		if err := s.completeClaims(t.Context()); err != nil {
			t.Fatal(err)
		}
		path := s.path(dirClaims, processClaim(p).file())
		putFile(t, path, torn)
		e, err := s.Create(t.Context(), Entry{Runtime: "claude"}, Enrol(p, Location{}))
		if err != nil || readFile(t, path) != e.LedgerID+"\n" {
			t.Errorf("%.20q: %v, and the claim is %q", torn, err, readFile(t, path))
		}
	}
	s := newStore(t, nil)
	if err := s.completeClaims(t.Context()); err != nil {
		t.Fatal(err)
	}
	p, _ := startProcess(t)
	if err := os.Symlink("nowhere", s.path(dirClaims, processClaim(p).file())); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Create(t.Context(), Entry{Runtime: "claude"}, Enrol(p, Location{})); err != nil {
		t.Errorf("a symlink: %v", err)
	}
}

// The sweep clears the claims that nobody holds, and only those.
func TestTidyClearsClaims(t *testing.T) {
	t.Parallel()
	clock := newClock()
	s := newStore(t, &Options{Clock: clock})
	ctx := t.Context()
	live, _ := enrolled(t, s, Entry{SessionID: "live", Window: "w"})
	orphan, cmd := enrolled(t, s, Entry{SessionID: "orphan", Window: "w"})
	endProcess(cmd)
	over, _ := enrolled(t, s, Entry{SessionID: "over", Window: "w"}) // its process lives on
	finished(t, s, over.LedgerID)
	dropped, cmd := enrolled(t, s, Entry{SessionID: "dropped"})
	endProcess(cmd)
	drop := BeginDrop(self(t))
	apply(t, s, dropped.LedgerID, drop)
	apply(t, s, dropped.LedgerID, CommitDrop(drop.Nonce))
	putFile(t, s.path(dirClaims, "place-"+strings.Repeat("0", 32)), "torn")
	putFile(t, s.path(dirClaims, "notes"), "a stranger's")
	clock.advance(time.Hour)
	tidied, err := s.Tidy(ctx)
	if err != nil || len(tidied.Warnings) > 0 || !slices.Equal(tidied.Filed, []string{over.LedgerID}) {
		t.Fatalf("%+v, %v", tidied, err)
	}
	want := map[string]bool{claimsStamp: true, "notes": true}
	for _, e := range []Entry{live, orphan, over} {
		for _, c := range s.claimsOf(&e) {
			gone := c.kind == claimProcess && e.LedgerID == orphan.LedgerID || c.kind != claimProcess && e.LedgerID == over.LedgerID
			if !gone {
				want[c.file()] = true
			}
		}
	}
	names, err := os.ReadDir(s.path(dirClaims))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if !want[name.Name()] {
			t.Errorf("%s is left", name.Name())
		}
		delete(want, name.Name())
	}
	if len(want) > 0 {
		t.Errorf("cleared although held: %v", want)
	}
	if again, err := s.Tidy(ctx); err != nil || again.Claims != 0 {
		t.Errorf("a second pass: %+v, %v", again, err)
	}
	if e, err := s.Create(ctx, Entry{Runtime: "claude"}, Enrol(over.Process(), Location{})); !errors.Is(err, ErrExists) || e.LedgerID != over.LedgerID {
		t.Errorf("a session that ended by its hook was enrolled again: %q, %v", e.LedgerID, err)
	}
}

// A pass that looks for claims to clear must not take one that is about to be used.
func TestTidyBesideClaimants(t *testing.T) {
	t.Parallel()
	s := newStore(t, nil)
	stop := make(chan struct{})
	var group sync.WaitGroup
	group.Go(func() {
		tidier := openStore(t, s.root, nil)
		for {
			select {
			case <-stop:
				return
			default:
			}
			if tidied, err := tidier.Tidy(context.Background()); err != nil || len(tidied.Warnings) > 0 {
				t.Errorf("%+v, %v", tidied, err)
				return
			}
		}
	})
	for i := range 20 {
		e, _ := enrolled(t, s, Entry{SessionID: fmt.Sprint("c", i), Window: "w"})
		if e.Slot != i || e.SessionID == "" {
			t.Errorf("row %d: %+v", i, e)
		}
		again, err := s.Create(t.Context(), Entry{Runtime: "claude"}, Enrol(e.Process(), Location{}))
		if !errors.Is(err, ErrExists) || again.LedgerID != e.LedgerID {
			t.Errorf("row %d was enrolled twice: %q, %v", i, again.LedgerID, err)
		}
	}
	close(stop)
	group.Wait()
}
