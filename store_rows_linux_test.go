package ledger

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// fullEntry has a value in every member, at every level.
func fullEntry(t testing.TB, id string) Entry {
	t.Helper()
	var e Entry
	fill(t, reflect.ValueOf(&e).Elem(), "entry")
	e.SchemaVersion, e.LedgerID, e.Runtime, e.Phase = 1, id, "claude", PhaseLive
	e.FinishedAt, e.FinishReason, e.KillIntentAt = time.Time{}, "", time.Time{}
	e.Lease.Op, e.Epoch, e.Revision = OpFreeze, 7, 7
	return e
}

func fill(t testing.TB, v reflect.Value, name string) {
	t.Helper()
	switch v.Kind() {
	case reflect.String:
		v.SetString(name + " é<&>\u2028\t\"")
	case reflect.Int, reflect.Int64:
		v.SetInt(4711)
	case reflect.Uint64:
		v.SetUint(18446744073709551615) // more than a float holds
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(t, v.Elem(), name)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		fill(t, v.Index(0), name+"0")
		fill(t, v.Index(1), name+"1")
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			v.Set(reflect.ValueOf(time.Date(2026, 11, 30, 12, 34, 56, 0, time.UTC)))
			return
		}
		for i := range v.NumField() {
			if v.Field(i).CanSet() {
				fill(t, v.Field(i), v.Type().Field(i).Name)
			}
		}
	default:
		t.Fatalf("a %s", v.Type())
	}
}

// Case 3: every field makes the round trip.
func TestEveryFieldRoundTrips(t *testing.T) {
	for name, e := range map[string]Entry{
		"full":  fullEntry(t, "row"),
		"empty": {SchemaVersion: 1, LedgerID: "row", Phase: PhaseLive},
	} {
		data, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		var got Entry
		if err := json.Unmarshal(data, &got); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(got, e) {
			t.Errorf("%s: %s\nread as %+v", name, data, got)
		}
		if name == "empty" { // what contract B has is there as null, the rest is not
			var members map[string]any
			if err := json.Unmarshal(data, &members); err != nil {
				t.Fatal(err)
			}
			for i := range reflect.TypeFor[Entry]().NumField() {
				tag, omit, _ := strings.Cut(reflect.TypeFor[Entry]().Field(i).Tag.Get("json"), ",")
				if _, there := members[tag]; tag != "" && there == (omit != "") && tag != "phase" {
					t.Errorf("member %q of an empty row: written is %t", tag, there)
				}
			}
		}
	}
}

// What an update returns is what the next reader sees, whatever the caller put in, and
// putting in what reads the same writes nothing.
func TestWhatIsReturnedIsWhatIsRead(t *testing.T) {
	odd := time.Date(2026, 11, 30, 12, 34, 56, 789, time.FixedZone("", 3600))
	awkward := map[string]func(v reflect.Value){
		"times with a zone and fractions": func(v reflect.Value) {
			if v.Type() == reflect.TypeFor[time.Time]() {
				v.Set(reflect.ValueOf(odd))
			}
		},
		"times before the first second": func(v reflect.Value) {
			if v.Type() == reflect.TypeFor[time.Time]() {
				v.Set(reflect.ValueOf(time.Time{}.Add(1)))
			}
		},
		"text that is no text": func(v reflect.Value) {
			if v.Type() == reflect.TypeFor[string]() {
				v.SetString("\"\xff\x00\\x")
			}
		},
		"lists without elements": func(v reflect.Value) {
			if v.Kind() == reflect.Slice && v.Type() != reflect.TypeFor[jsontext.Value]() {
				v.Set(reflect.MakeSlice(v.Type(), 0, 0))
			}
		},
		"zeros": func(v reflect.Value) {
			if v.Kind() == reflect.Int || v.Kind() == reflect.Uint64 || v.Kind() == reflect.Bool {
				v.SetZero()
			}
		},
	}
	for name, change := range awkward {
		t.Run(name, func(t *testing.T) {
			was := fullEntry(t, "row")
			edit := func(e *Entry) (verdict, error) {
				each(reflect.ValueOf(e).Elem(), change)
				e.SchemaVersion, e.LedgerID, e.Lease.AcquiredAt = 1, "row", odd
				for i := range e.SessionIDs {
					e.SessionIDs[i].ID = "former"
				}
				e.Lease.Owner.PID, e.Revision = 1, was.Revision
				return unchanged, nil
			}
			p, err := prepare(&row{entry: was}, maxRow, edit)
			if err != nil || !p.write {
				t.Fatalf("%+v, %v", p, err)
			}
			read, err := decodeEntry(p.data)
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(&read, p.entry) {
				t.Errorf("returned %+v\n    read %+v", p.entry, read)
			}
			was.Revision = read.Revision
			again, err := prepare(&row{entry: read}, maxRow, edit)
			if err != nil || again.write {
				t.Errorf("the same again: written is %t, %v", again.write, err)
			}
		})
	}
	for _, year := range []int{-1, 10_000} {
		_, err := prepare(&row{entry: fullEntry(t, "row")}, maxRow, func(e *Entry) (verdict, error) {
			e.Waiting.Since = time.Date(year, 1, 1, 0, 0, 0, 0, time.UTC)
			return unchanged, nil
		})
		if !errors.Is(err, ErrInvalid) {
			t.Errorf("year %d: %v", year, err)
		}
	}
}

// each calls f for every value of a row that can be set.
func each(v reflect.Value, f func(reflect.Value)) {
	if !v.CanSet() {
		return
	}
	f(v)
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			each(v.Elem(), f)
		}
	case reflect.Slice:
		for i := range v.Len() {
			each(v.Index(i), f)
		}
	case reflect.Struct:
		if v.Type() != reflect.TypeFor[time.Time]() {
			for i := range v.NumField() {
				each(v.Field(i), f)
			}
		}
	}
}

// A value of another kind than a member has makes a damaged row, in every member at every
// level. Null is of all kinds.
func TestValuesOfAnotherKind(t *testing.T) {
	full := fullEntry(t, "row")
	data, err := encodeEntry(&full)
	if err != nil {
		t.Fatal(err)
	}
	var root any
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	if err := dec.Decode(&root); err != nil {
		t.Fatal(err)
	}
	n := 0
	try := func(path string, was any, put func(any)) {
		if was == nil {
			return
		}
		for _, v := range []any{"", "text", json.Number("7"), json.Number("7.5"), true, []any{}, map[string]any{}, map[string]any{"z": 1}} {
			if v != json.Number("7.5") && reflect.TypeOf(v) == reflect.TypeOf(was) {
				continue
			}
			put(v)
			text, err := json.Marshal(root)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := decodeEntry(text); err == nil {
				t.Errorf("%s: %v is read", path, v)
			}
			n++
		}
		put(was)
	}
	var walk func(path string, v any)
	walk = func(path string, v any) {
		switch v := v.(type) {
		case map[string]any:
			for name, was := range v {
				try(path+"."+name, was, func(x any) { v[name] = x })
				walk(path+"."+name, was)
			}
		case []any:
			try(path+"[0]", v[0], func(x any) { v[0] = x })
			walk(path+"[0]", v[0])
		}
	}
	walk("", root)
	if n < 700 {
		t.Errorf("%d values were tried", n)
	}
}

// An identity without a pid names nobody, and is kept with its unknown members all the same.
func TestIdentityOfNobodyIsKept(t *testing.T) {
	s := newStore(t, nil)
	const server = `"paneServer":{"bootId":"b","pid":null,"startTicks":0,"z":2.50}`
	putRow(t, s, "row", `{"schemaVersion":1,"ledgerId":"row","runtime":"claude",`+server+`}`)
	before := readFile(t, rowPath(s, "row"))
	if _, err := s.Update(t.Context(), "row", func(*Entry) error { return nil }); err != nil {
		t.Fatal(err)
	}
	if after := readFile(t, rowPath(s, "row")); after != before {
		t.Errorf("nothing changed, and it was written: %s", after)
	}
	if _, err := s.Update(t.Context(), "row", touch); err != nil {
		t.Fatal(err)
	}
	if after := readFile(t, rowPath(s, "row")); !strings.Contains(after, server) {
		t.Errorf("it is lost: %s", after)
	}
}

// strange are members that this version does not know, in every spelling that a decoder
// which understands them would change.
const strange = `"zInt":12345678901234567890,"zFloat":2.50,"zExp":1E+2,"zNeg":-0,"zText":"\u00e9\/\u003c\ud83d\ude00é",` +
	`"zObject":{"a":[1,{"b":null}],"A":1.0},"Runtime":"not runtime","ledgerid":""`

// strangely puts strange members into every object of a row.
func strangely(t testing.TB, e Entry) string {
	t.Helper()
	data, err := encodeEntry(&e)
	if err != nil {
		t.Fatal(err)
	}
	return strings.ReplaceAll(string(data), "{", "{"+strange+",")
}

// strangeObjects are the paths of a row's objects, true for those with strange members.
func strangeObjects(t testing.TB, data string) map[string]bool {
	t.Helper()
	var root any
	if err := json.Unmarshal([]byte(data), &root); err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	var walk func(path string, v any)
	walk = func(path string, v any) {
		switch v := v.(type) {
		case map[string]any:
			_, found[path] = v["zInt"]
			for name, m := range v {
				if name != "zObject" {
					walk(path+"/"+name, m)
				}
			}
		case []any:
			for i, m := range v {
				walk(fmt.Sprint(path, "/", i), m)
			}
		}
	}
	walk("", root)
	return found
}

// Case 3: unknown members survive 100 rewrites by every verb (12 without -store.full), with their raw tokens, in
// every object that is still there.
func TestUnknownMembersSurviveEveryVerb(t *testing.T) {
	t.Parallel()
	clock := newClock()
	s := newStore(t, &Options{Clock: clock})
	ctx := t.Context()
	inFlight, idle := fullEntry(t, "in-flight"), fullEntry(t, "idle")
	idle.Lease, idle.Unclear, idle.EndNoted, idle.Attention = nil, nil, nil, nil
	for _, e := range []*Entry{&inFlight, &idle} {
		e.BootID, e.SessionID, e.Window = e.LedgerID, "c-"+e.LedgerID, e.LedgerID
		e.Restore.Launched.BootID = e.LedgerID
		e.HostID, e.Restore.Launched.HostID = "", "" // of this machine, and so gone
		putRow(t, s, e.LedgerID, strangely(t, *e))
	}
	before := map[string]map[string]bool{}
	for _, id := range []string{"in-flight", "idle"} {
		before[id] = strangeObjects(t, readFile(t, rowPath(s, id)))
		if len(before[id]) < 15 {
			t.Fatalf("only %d objects", len(before[id]))
		}
	}
	verify := func(verb, id string) {
		t.Helper()
		path := rowPath(s, id)
		if _, err := os.Lstat(path); err != nil {
			path = s.path(dirFinished, id+rowExtension)
		}
		data := readFile(t, path)
		count := 0
		for path, had := range strangeObjects(t, data) {
			if had {
				count++
			} else if before[id][path] {
				t.Fatalf("%s: %q has lost its unknown members: %s", verb, path, data)
			}
		}
		if n := strings.Count(data, strange); n != count {
			t.Fatalf("%s: of %d objects with unknown members, %d have them as they were: %s", verb, count, n, data)
		}
	}
	update := func(opts ...UpdateOption) func(id string) error {
		return func(id string) error { _, err := s.Update(ctx, id, touch, opts...); return err }
	}
	events := func(evs ...Event) func(id string) error {
		return func(id string) error {
			for _, ev := range evs {
				if _, out, err := settled(t, s, id, ev); err != nil || out != Applied {
					return fmt.Errorf("%s: %v, %w", ev.Kind, out, err)
				}
			}
			return nil
		}
	}
	handoff, drop := BeginHandoff(self(t), "codex"), BeginDrop(self(t))
	for _, verb := range []struct {
		name, id string
		times    int
		do       func(id string) error
	}{
		{"update in flight", "in-flight", 100, update()},
		{"relaxed update", "in-flight", 100, update(Relaxed())},
		{"kill intended", "in-flight", 1, events(IntendKill())},
		{"update", "idle", 100, update()},
		{"tombstone", "idle", 100, events(IntendKill(), WithdrawKill())},
		{"handoff given up", "idle", 100, events(handoff, AbortHandoff(handoff.Nonce))},
		{"limit", "idle", 100, func(id string) error {
			clock.advance(time.Minute)
			return events(ObserveLimit(idle.Process().Key(), clock.Now()))(id)
		}},
		{"batch", "idle", 100, func(id string) error {
			_, errs := s.batch(ctx, []change{{id, func(e *Entry) (verdict, error) { return unchanged, touch(e) }}})
			return errs[0]
		}},
		{"finish", "idle", 1, events(Finish(idle.Process().Key(), "over"))},
		{"filing", "idle", 1, func(string) error {
			clock.advance(time.Hour)
			tidied, err := s.Tidy(ctx)
			if err == nil && !slices.Equal(tidied.Filed, []string{"idle"}) {
				err = fmt.Errorf("%+v", tidied)
			}
			return err
		}},
		{"update of a filed row", "idle", 100, update()},
		{"relaxed update of a filed row", "idle", 100, update(Relaxed())},
		{"drop given up", "idle", 1, events(drop, AbortDrop(drop.Nonce))},
	} {
		if !*storeFull {
			verb.times = min(verb.times, 12)
		}
		for range verb.times {
			if err := verb.do(verb.id); err != nil {
				t.Fatalf("%s: %v", verb.name, err)
			}
		}
		verify(verb.name, verb.id)
	}
	if e, err := s.Get(ctx, "idle"); err != nil || e.Revision < 80 {
		t.Errorf("revision %d, %v", e.Revision, err)
	}
}

// legacyRow is a row as another implementation of the contract writes it.
const legacyRow = `{
  "schemaVersion": 1, "ledgerId": "codex-20250101T000000Z-000001", "runtime": "codex",
  "startedAt": "2025-01-01T01:00:00.123456+01:00", "host": "box", "bootId": "", "cwd": "/w", "repoRoot": "/w",
  "project": "w", "branch": "main", "worktree": false, "tty": "/dev/pts/3", "launcherPid": null,
  "parentLedgerId": null, "parent": "", "launchedBy": null, "account": null, "enrolledBy": "shim",
  "mux": {"kind": "dtach", "socket": "/tmp/d.sock", "target": null}, "tmuxSession": null, "tmuxSocket": null,
  "pid": null, "pidStartTicks": null, "cpuTicks": null, "sessionId": null, "transcriptPath": null,
  "processDescribedAt": null, "lastActiveAt": null, "lastHeartbeatAt": null, "finishedAt": null,
  "finishReason": null, "rescuedAt": null, "rescueRef": null, "rescueCommit": null, "rescuedPaths": null
}`

// Case 4: rows of another implementation load and can be updated, moved and ended.
func TestLegacyRows(t *testing.T) {
	t.Parallel()
	s := newStore(t, nil)
	ctx := t.Context()
	const id = "codex-20250101T000000Z-000001"
	putRow(t, s, id, legacyRow)
	ended := strings.NewReplacer("000001", "000002", `"finishedAt": null`, `"finishedAt": "2025-01-02T00:00:00Z"`, `"mux": {`, `"phase":"live","mux": {`).Replace(legacyRow)
	putRow(t, s, "codex-20250101T000000Z-000002", ended)
	bare := "codex-20250101T000000Z-000003"
	putRow(t, s, bare, `{"schemaVersion":1,"ledgerId":"`+bare+`","mux":null}`)

	rows, damaged := listed(t, s)
	if len(rows) != 3 || len(damaged) > 0 {
		t.Fatalf("%d rows, damaged: %v", len(rows), damaged)
	}
	e := rows[id]
	if e.Phase != PhaseLive || e.Revision != 0 || e.Mux.Kind != MuxDtach || e.Mux.Target != "" || e.Worktree == nil || *e.Worktree ||
		!e.Process().IsZero() || !e.StartedAt.Equal(time.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC)) {
		t.Errorf("%+v", e)
	}
	if e := rows["codex-20250101T000000Z-000002"]; e.Phase != PhaseFinished || e.IsOpen() {
		t.Errorf("a closed row is %s: finishedAt wins over the phase", e.Phase)
	}
	for want := uint64(1); want < 4; want++ {
		got, err := s.Update(ctx, id, touch)
		if err != nil || got.Revision != want || got.Phase != PhaseLive {
			t.Fatalf("update %d: %+v, %v", want, got, err)
		}
	}
	if got := apply(t, s, id, IntendKill()); got.KillIntentAt.IsZero() || got.Mux.Kind != MuxDtach {
		t.Errorf("%+v", got)
	}
	if _, err := s.Update(ctx, bare, touch); err != nil {
		t.Error(err)
	}
	if got := finished(t, s, bare); got.Phase != PhaseFinished {
		t.Errorf("%+v", got)
	}
	if tidied, err := s.Tidy(ctx); err != nil || !slices.Equal(tidied.Filed, []string{"codex-20250101T000000Z-000002"}) {
		t.Errorf("tidy: %+v, %v", tidied, err)
	}
}

// Case 5: a higher schema version is read and listed, never written.
func TestNewerSchemaVersionIsReadOnly(t *testing.T) {
	clock := newClock()
	s := newStore(t, &Options{Clock: clock})
	ctx := t.Context()
	const row = `{"schemaVersion":2,"ledgerId":"new","runtime":"claude","phase":"finished","finishedAt":"2026-01-01T00:00:00Z","shape":[1]}`
	putRow(t, s, "new", row)
	if e, err := s.Get(ctx, "new"); err != nil || e.SchemaVersion != 2 || e.Runtime != "claude" {
		t.Errorf("%+v, %v", e, err)
	}
	if rows, damaged := listed(t, s); len(rows) != 1 || len(damaged) != 0 {
		t.Errorf("listed: %v %v", rows, damaged)
	}
	_, updateErr := s.Update(ctx, "new", touch)
	_, relaxedErr := s.Update(ctx, "new", touch, Relaxed())
	_, out, applyErr := s.Apply(ctx, "new", BeginDrop(self(t)))
	_, batchErrs := s.batch(ctx, []change{{"new", func(e *Entry) (verdict, error) { return remove, nil }}})
	for i, err := range []error{updateErr, relaxedErr, applyErr, batchErrs[0]} {
		if !errors.Is(err, ErrSchemaTooNew) {
			t.Errorf("verb %d: %v, want ErrSchemaTooNew", i, err)
		}
	}
	if out != Refused {
		t.Errorf("outcome %v", out)
	}
	if tidied, err := s.Tidy(ctx); err != nil || len(tidied.Filed) > 0 {
		t.Errorf("tidy: %+v, %v", tidied, err)
	}
	if err := s.Repair(ctx, "new"); !errors.Is(err, ErrIllegal) {
		t.Errorf("repair: %v, want ErrIllegal", err)
	}
	if got := readFile(t, rowPath(s, "new")); got != row {
		t.Errorf("it was written: %s", got)
	}
}

// oddFiles are what can lie in the place of a row, by what makes it.
func oddFiles(t testing.TB) map[string]func(path string) error {
	write := func(data string) func(string) error {
		return func(path string) error { return os.WriteFile(path, []byte(data), 0o600) }
	}
	good, err := encodeEntry(&Entry{SchemaVersion: 1, LedgerID: "odd", Runtime: "claude"})
	if err != nil {
		t.Fatal(err)
	}
	row := string(good)
	odd := map[string]func(path string) error{
		"nothing":             write(""),
		"2 NULs":              write("\x00\x00"),
		"4096 NULs":           write(strings.Repeat("\x00", 4096)),
		"NULs behind":         write(row + "\x00\x00"),
		"an array":            write("[" + row + "]"),
		"null":                write("null"),
		"a string":            write(`"row"`),
		"two objects":         write(row + row),
		"an object":           write("{}"),
		"no version":          write(strings.Replace(row, `"schemaVersion":1`, `"schemaVersion":null`, 1)),
		"version 0":           write(strings.Replace(row, `"schemaVersion":1`, `"schemaVersion":0`, 1)),
		"version is text":     write(strings.Replace(row, `"schemaVersion":1`, `"schemaVersion":"1"`, 1)),
		"runtime is a number": write(strings.Replace(row, `"claude"`, `7`, 1)),
		"pid is text":         write(strings.Replace(row, `"pid":null`, `"pid":"7"`, 1)),
		"pid is long":         write(strings.Replace(row, `"pid":null`, `"pid":`+strings.Repeat("7", 1e5), 1)),
		"time is long":        write(strings.Replace(row, `"startedAt":null`, `"startedAt":"`+strings.Repeat("\\u0000", 1e4)+`"`, 1)),
		"pid is negative":     write(strings.Replace(row, `"pid":null`, `"pid":-7`, 1)),
		"pid is an object":    write(strings.Replace(row, `"pid":null`, "\"pid\":{\n}", 1)),
		"time is no time":     write(strings.Replace(row, `"startedAt":null`, `"startedAt":"yesterday"`, 1)),
		"mux is a list":       write(strings.Replace(row, `"mux":{`, `"x":[],"mux":[{`, 1) + "]"),
		"half a lease":        write(strings.Replace(row, `"mux":`, `"lease":{"op":"freeze"},"mux":`, 1)),
		"another row":         write(strings.Replace(row, `"odd"`, `"other"`, 1)),
		"no id":               write(strings.Replace(row, `"odd"`, `null`, 1)),
		"a member twice":      write(strings.Replace(row, `"runtime":`, `"runtime":"codex","runtime":`, 1)),
		"unknown twice":       write(strings.Replace(row, `"runtime":`, `"z":1,"z":1,"runtime":`, 1)),
		"twice on two lines":  write(strings.Replace(row, `"runtime":`, "\"z\":{\n},\"z\":1,\"runtime\":", 1)),
		"nested twice":        write(strings.Replace(row, `"mux":{`, `"mux":{"z":1,"z":2,`, 1)),
		"not UTF-8":           write(strings.Replace(row, "claude", "\xff", 1)),
		"deep":                write(strings.Replace(row, `"mux":`, `"z":`+strings.Repeat("[", 20000)+strings.Repeat("]", 20000)+`,"mux":`, 1)),
		"1 MiB + 1":           write(strings.Replace(row, `"claude"`, `"`+strings.Repeat("x", maxRow+1-len(row)+6)+`"`, 1)),
		"a directory":         func(path string) error { return os.Mkdir(path, 0o700) },
		"a FIFO":              func(path string) error { return syscall.Mkfifo(path, 0o600) },
		"a dangling symlink":  func(path string) error { return os.Symlink("nowhere", path) },
		"a symlink to a row":  func(path string) error { return os.Symlink("good0.json", path) },
		"a symlink to itself": func(path string) error { return os.Symlink("odd.json", path) },
	}
	if os.Getuid() == 0 {
		odd["a device"] = func(path string) error { return syscall.Mknod(path, syscall.S_IFCHR|0o600, 1<<8|5) } // /dev/zero
	}
	for n := 1; n < len(row); n++ {
		if _, err := decodeEntry(good[:n]); err == nil {
			t.Errorf("truncated at %d: it reads as a row", n)
		}
		if !*storeFull && n%97 > 0 {
			continue // every offset as a file takes a minute
		}
		odd[fmt.Sprintf("truncated at %d", n)] = write(row[:n])
	}
	return odd
}

// Case 6: whatever lies in the place of a row is one damaged row, named, and stays as it is
// through every verb; the good ones are listed and writable; nothing hangs. Case 7: an
// update of a damaged row and of a missing one refuse, with different errors.
func TestOddFilesInPlaceOfARow(t *testing.T) {
	t.Parallel()
	s := newStore(t, nil)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for i := range 9 {
		born(t, s, fmt.Sprint("good", i))
	}
	path := rowPath(s, "odd")
	n := 0
	for name, make := range oddFiles(t) {
		if err := make(path); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		before, err := os.Lstat(path)
		if err != nil {
			t.Fatal(err)
		}
		content := ""
		if before.Mode().IsRegular() {
			content = readFile(t, path)
		}
		rows, damaged := listed(t, s)
		if len(rows) != 9 || len(damaged) != 1 || damaged["odd"] == nil || damaged["odd"].Path != path || damaged["odd"].Err == nil {
			t.Errorf("%s: %d rows are listed, damaged: %v", name, len(rows), damaged)
		} else if text := damaged["odd"].Error(); strings.Contains(text, "\n") || len(text) > 4096 {
			t.Errorf("%s: its error is no line of text: %.4096q", name, text)
		}
		_, getErr := s.Get(ctx, "odd")
		_, updateErr := s.Update(ctx, "odd", touch)
		_, _, applyErr := s.Apply(ctx, "odd", IntendKill())
		_, _, claimErr := s.Apply(ctx, "odd", Claim("c", "hook"))
		_, createErr := s.Create(ctx, Entry{LedgerID: "odd", Runtime: "claude"}, BeginCreate(self(t)))
		_, batchErrs := s.batch(ctx, []change{{"odd", func(e *Entry) (verdict, error) { return remove, nil }}})
		for i, err := range []error{getErr, updateErr, applyErr, claimErr, createErr, batchErrs[0]} {
			if !errors.Is(err, ErrDamaged) {
				t.Errorf("%s: verb %d: %v, want ErrDamaged", name, i, err)
			}
		}
		if tidied, err := s.Tidy(ctx); err != nil || len(tidied.Filed)+len(tidied.Warnings) > 0 {
			t.Errorf("%s: tidy: %+v, %v", name, tidied, err)
		}
		if found, err := s.Check(ctx); err != nil || !slices.ContainsFunc(found, func(f Finding) bool { return f.Kind == FindDamaged && f.ID == "odd" }) {
			t.Errorf("%s: check does not name it: %v, %v", name, found, err)
		}
		if n++; n%20 == 0 {
			if _, err := s.Update(ctx, "good3", touch); err != nil {
				t.Errorf("%s: a good row: %v", name, err)
			}
		}
		after, err := os.Lstat(path)
		if err != nil || !os.SameFile(before, after) || after.Mode() != before.Mode() || !after.ModTime().Equal(before.ModTime()) ||
			content != "" && readFile(t, path) != content {
			t.Errorf("%s: the file was touched: %v, %v", name, after, err)
		}
		if err := s.Repair(ctx, "odd"); err != nil {
			t.Errorf("%s: repair: %v", name, err)
		}
	}
	aside, err := os.ReadDir(s.path(dirDamaged))
	if err != nil || len(aside) != n {
		t.Errorf("%d set aside of %d, %v", len(aside), n, err)
	}
	born(t, s, "odd")

	_, err = s.Update(ctx, "missing", touch)
	if !errors.Is(err, ErrNotFound) || errors.Is(err, ErrDamaged) {
		t.Errorf("update of a missing row: %v, want ErrNotFound", err)
	}
	_, _, err = s.Apply(ctx, "missing", Claim("c", "hook"))
	if !errors.Is(err, ErrNotFound) {
		t.Errorf("event of a missing row: %v, want ErrNotFound", err)
	}
}

// A file whose name is no plain id is listed by its name, and can be repaired by it.
func TestRowsWithOddNames(t *testing.T) {
	s := newStore(t, nil)
	born(t, s, "good")
	names := []string{"a b", ".hidden", "a..b", "\xff", "x\ny", "q.lock", "", strings.Repeat("y", 129)}
	for _, name := range names {
		putRow(t, s, name, strings.Replace(legacyRow, "codex-20250101T000000Z-000001", "a b", 1))
	}
	putFile(t, s.path(dirSessions, "notes.txt"), "not a row")
	putFile(t, s.path(dirSessions, "row.json.bak"), "not a row")
	rows, damaged := listed(t, s)
	if len(rows) != 1 || len(damaged) != len(names) {
		t.Errorf("%d rows, damaged: %v", len(rows), damaged)
	}
	for _, name := range names {
		if damaged[name] == nil {
			t.Errorf("%q is not named", name)
		} else if text := damaged[name].Error(); strings.Contains(text, "\n") || !utf8.ValidString(text) {
			t.Errorf("its error is no line of text: %q", text)
		}
		if name == "" {
			continue // .json: no id to repair it by
		}
		if err := s.Repair(t.Context(), name); err != nil {
			t.Errorf("repair of %q: %v", name, err)
		}
		if err := s.Repair(t.Context(), name); !errors.Is(err, ErrInvalid) || !errors.Is(err, ErrNotFound) {
			t.Errorf("second repair of %q: %v", name, err)
		}
	}
	if err := s.Repair(t.Context(), "good"); !errors.Is(err, ErrIllegal) {
		t.Errorf("repair of a good row: %v, want ErrIllegal", err)
	}
}

// Text that is not UTF-8 makes the round trip, and what looks quoted is not mistaken.
func TestTextThatIsNotUTF8(t *testing.T) {
	t.Parallel()
	s := newStore(t, nil)
	born(t, s, "row")
	for _, text := range []string{"/w/\xff\xfe", `"quoted"`, `"`, `"\`, `"\303\251"`, "\x00\x1b[31m", `\xff`, "\xed\xa0\x80", "é\xff"} {
		if _, err := s.Update(t.Context(), "row", func(e *Entry) error { e.Cwd, e.Host = text, text; return nil }); err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		fresh := openStore(t, s.root, nil)
		if e, err := fresh.Get(t.Context(), "row"); err != nil || e.Cwd != text || e.Host != text {
			t.Errorf("%q came back as %q, %v", text, e.Cwd, err)
		}
		if data := readFile(t, rowPath(s, "row")); !json.Valid([]byte(data)) {
			t.Errorf("%q: not JSON: %s", text, data)
		}
	}
	// A foreign empty string reads as null, and a mark that is no quotation as itself.
	putRow(t, s, "foreign", `{"schemaVersion":1,"ledgerId":"foreign","cwd":"\"half","host":""}`)
	if e, err := s.Get(t.Context(), "foreign"); err != nil || e.Cwd != `"half` || e.Host != "" {
		t.Errorf("%+v, %v", e, err)
	}
}
