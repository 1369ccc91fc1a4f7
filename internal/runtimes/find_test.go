package runtimes

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sessionledger/ledger/internal/transcript"
)

// put writes a file below dir, with the folders it needs.
func put(t testing.TB, dir, name, text string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func find(t testing.TB, runtime, home, id, cwd string) (string, error) {
	t.Helper()
	s, ok := Builtin().Lookup(runtime)
	if !ok {
		t.Fatal(runtime)
	}
	return s.Find(context.Background(), homesOf(home), id, cwd)
}

func wantFound(t testing.TB, runtime, home, id, cwd, want string) {
	t.Helper()
	if got, err := find(t, runtime, home, id, cwd); got != want || err != nil {
		t.Errorf("%s %s: %q, %v; want %q", runtime, id, got, err, want)
	}
}

func wantError(t testing.TB, runtime, home, id, cwd string, want error) string {
	t.Helper()
	got, err := find(t, runtime, home, id, cwd)
	if !errors.Is(err, want) {
		t.Errorf("%s %s: %q, %v; want %v", runtime, id, got, err, want)
	}
	return got
}

func TestEncodeClaudeProject(t *testing.T) {
	for path, want := range map[string]string{
		"/home/u/my.app_2":             "-home-u-my-app-2",
		"/w/a/b-c":                     "-w-a-b-c",
		"/w/a-b/c":                     "-w-a-b-c",
		"/w/é":                         "-w--",
		"/w/日本":                        "-w---",
		"/w/😀":                         "-w---", // two UTF-16 units
		"/w/a b":                       "-w-a-b",
		"":                             "",
		strings.Repeat("a", 200):       strings.Repeat("a", 200),
		strings.Repeat("a", 201):       strings.Repeat("a", 200) + "-",
		strings.Repeat("a", 199) + "😀": strings.Repeat("a", 199) + "--",
	} {
		if got := EncodeClaudeProject(path); got != want {
			t.Errorf("%q: %q, want %q", path, got, want)
		}
	}
}

func TestFiledUnder(t *testing.T) {
	long := "/" + strings.Repeat("a", 250)
	for _, c := range []struct {
		folder, dir string
		want        bool
	}{
		{"-w-my-app", "/w/my.app", true},
		{"-w-my.app", "/w/my.app", true}, // older builds
		{"-w-my_app", "/w/my_app", true},
		{"-w-my-app", "/w/my/app", true}, // not reversible
		{"-w-my", "/w/my.app", false},
		{"-" + strings.Repeat("a", 199) + "-1x2y3z", long, true},
		{"-" + strings.Repeat("a", 198) + "-1x2y3z", long, false},
		{"", "", false},
	} {
		if got := FiledUnder(c.folder, c.dir); got != c.want {
			t.Errorf("%q, %q: %v", c.folder, c.dir, got)
		}
	}
}

func claudeLine(cwd string) string {
	return fmt.Sprintf(`{"type":"user","sessionId":%q,"cwd":%q,"isSidechain":false,"message":{"content":"hi"}}`+"\n", idA, cwd)
}

func TestFindClaude(t *testing.T) {
	home, cwd := t.TempDir(), "/w/my.app"
	projects := filepath.Join(home, ".claude", "projects")
	wantError(t, "claude", home, idA, cwd, ErrNoTranscript) // no store at all
	put(t, projects, "-w-other/"+idB+".jsonl", "")
	wantError(t, "claude", home, idA, cwd, ErrNoTranscript)

	// In a folder that no rule gives: looked up over all of them.
	odd := put(t, projects, "renamed/"+idA+".jsonl", claudeLine(cwd))
	wantFound(t, "claude", home, idA, cwd, odd)
	wantFound(t, "claude", home, idA, "", odd)

	// The directory's own folder goes first, today's name before an older one.
	older := put(t, projects, "-w-my.app/"+idA+".jsonl", claudeLine(cwd))
	wantFound(t, "claude", home, idA, cwd, older)
	own := put(t, projects, "-w-my-app/"+idA+".jsonl", claudeLine(cwd))
	wantFound(t, "claude", home, idA, cwd, own)

	// A subagent's file is not a conversation of that id.
	put(t, projects, "-w-x/"+idA+"/subagents/agent-1.jsonl", "")
	put(t, projects, "-w-x/"+idB+"/subagents/"+strings.Replace(idA, "0", "1", 1)+".jsonl", "")
	wantError(t, "claude", home, strings.Replace(idA, "0", "1", 1), cwd, ErrNoTranscript)
}

func TestFindClaudeInAnAccount(t *testing.T) {
	home := t.TempDir()
	account := filepath.Join(t.TempDir(), "accounts", "work")
	want := put(t, account, "projects/-w/"+idA+".jsonl", claudeLine("/w"))
	put(t, home, ".claude/projects/-w/"+idB+".jsonl", claudeLine("/w"))
	s, _ := Builtin().Lookup("claude")
	h := homesOf(home, "CLAUDE_CONFIG_DIR="+account)
	if got, err := s.Find(context.Background(), h, idA, "/w"); got != want || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	if got, err := s.Find(context.Background(), h, idB, "/w"); !errors.Is(err, ErrNoTranscript) {
		t.Errorf("another account's: %q, %v", got, err)
	}
}

func TestFindClaudeThroughLinks(t *testing.T) {
	home, real := t.TempDir(), t.TempDir()
	if resolved, err := filepath.EvalSymlinks(real); err == nil {
		real = resolved
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(real, link); err != nil {
		t.Fatal(err)
	}
	projects := filepath.Join(home, ".claude", "projects")
	// Filed under the real path of the directory, in a folder that is a link and
	// so is found under two names.
	elsewhere := t.TempDir()
	put(t, elsewhere, idA+".jsonl", claudeLine(real))
	if err := os.MkdirAll(projects, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{EncodeClaudeProject(real), "another-name"} {
		if err := os.Symlink(elsewhere, filepath.Join(projects, name)); err != nil {
			t.Fatal(err)
		}
	}
	wantFound(t, "claude", home, idA, link, filepath.Join(projects, EncodeClaudeProject(real), idA+".jsonl"))
	if got, err := find(t, "claude", home, idA, "/elsewhere"); err != nil || filepath.Base(got) != idA+".jsonl" {
		t.Errorf("one file under two names: %q, %v", got, err)
	}
	s, _ := Builtin().Lookup("claude")
	if a, err := Belongs(context.Background(), s.Format, filepath.Join(elsewhere, idA+".jsonl"), link); a != transcript.Yes || err != nil {
		t.Errorf("belongs to the linked directory: %v, %v", a, err)
	}
}

// Names over 200 characters end in a hash that differs between builds.
func TestFindClaudeInALongDirectory(t *testing.T) {
	home, cwd := t.TempDir(), "/"+strings.Repeat("long-", 60)
	want := put(t, home, ".claude/projects/"+EncodeClaudeProject(cwd)+"ab12cd/"+idA+".jsonl", claudeLine(cwd))
	wantFound(t, "claude", home, idA, cwd, want)
}

// Where two folders hold one id, the transcript's own cwd decides, and nothing
// is guessed when it does not.
func TestFindOneIDTwice(t *testing.T) {
	home := t.TempDir()
	a := put(t, home, ".claude/projects/one/"+idA+".jsonl", claudeLine("/w/a"))
	put(t, home, ".claude/projects/two/"+idA+".jsonl", claudeLine("/w/b"))
	wantFound(t, "claude", home, idA, "/w/a", a)
	wantError(t, "claude", home, idA, "/w/c", ErrAmbiguous)
	wantError(t, "claude", home, idA, "", ErrAmbiguous)
}

// a/b-c and a-b/c share a folder: the transcript tells whose it is.
func TestDirectoriesThatEncodeAlike(t *testing.T) {
	const one, two = "/w/a/b-c", "/w/a-b/c"
	if EncodeClaudeProject(one) != EncodeClaudeProject(two) {
		t.Fatal("they differ")
	}
	path := put(t, t.TempDir(), idA+".jsonl", claudeLine(one))
	for cwd, want := range map[string]transcript.Answer{one: transcript.Yes, one + "/": transcript.Yes, two: transcript.No, "": transcript.Unknown} {
		if got, err := Belongs(context.Background(), transcript.Claude, path, cwd); got != want || err != nil {
			t.Errorf("%q: %v, %v", cwd, got, err)
		}
	}
	silent := put(t, t.TempDir(), idA+".jsonl", `{"type":"summary"}`+"\n")
	if got, err := Belongs(context.Background(), transcript.Claude, silent, one); got != transcript.Unknown || err != nil {
		t.Errorf("no cwd: %v, %v", got, err)
	}
	if got, err := Belongs(context.Background(), transcript.Claude, silent+"x", one); got != transcript.Unknown || !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no file: %v, %v", got, err)
	}
}

func TestFindCodex(t *testing.T) {
	home := t.TempDir()
	name := "rollout-2026-10-05T09-12-44-" + idA + ".jsonl"
	put(t, home, ".codex/sessions/2026/10/05/rollout-2026-10-05T09-00-00-"+idB+".jsonl", "")
	put(t, home, ".codex/sessions/2026/notes/"+name, "") // not a dated folder
	put(t, home, ".codex/history.jsonl", "")
	wantError(t, "codex", home, idA, "/w", ErrNoTranscript)
	// The end of another id is not an id.
	wantError(t, "codex", home, idB[24:], "/w", ErrNoTranscript)

	archived := put(t, home, ".codex/archived_sessions/"+name+".zst", "")
	if got := wantError(t, "codex", home, idA, "/w", ErrCompressed); got != archived {
		t.Errorf("%q, want %q", got, archived)
	}
	zst := put(t, home, ".codex/sessions/2026/10/05/"+name+".zst", "")
	if got := wantError(t, "codex", home, idA, "/w", ErrCompressed); got != zst {
		t.Errorf("%q, want %q", got, zst)
	}
	// Plain wins, wherever it is.
	plain := put(t, home, ".codex/archived_sessions/"+name, "")
	wantFound(t, "codex", home, idA, "/w", plain)
	live := put(t, home, ".codex/sessions/2025/01/31/"+name, "")
	wantFound(t, "codex", home, idA, "/w", live)
	newest := put(t, home, ".codex/sessions/2026/10/06/"+name, "")
	wantFound(t, "codex", home, idA, "/w", newest)
}

func TestFindGemini(t *testing.T) {
	home := t.TempDir()
	header := func(id string) string { return `{"sessionId":"` + id + `","kind":"main"}` + "\n" }
	// Another session whose id begins alike.
	alike := idA[:8] + idB[8:]
	put(t, home, ".gemini/tmp/app/chats/session-2026-10-05T09-12-"+idA[:8]+".jsonl", header(alike))
	wantError(t, "gemini", home, idA, "/w", ErrNoTranscript)
	old := put(t, home, ".gemini/tmp/"+strings.Repeat("ab", 32)+"/chats/session-2025-01-05T09-12-"+idA[:8]+".json",
		`{"sessionId":"`+idA+`","messages":[]}`)
	wantFound(t, "gemini", home, idA, "/w", old)
	lines := put(t, home, ".gemini/tmp/app2/chats/session-2026-10-05T09-12-"+idA[:8]+".jsonl", header(idA))
	wantFound(t, "gemini", home, idA, "/w", lines)
	wantFound(t, "gemini", home, alike, "/w", filepath.Join(home, ".gemini/tmp/app/chats/session-2026-10-05T09-12-"+idA[:8]+".jsonl"))
	// A file that may be the session's, but does not tell, leaves it unknown.
	put(t, home, ".gemini/tmp/app3/chats/session-2026-10-05T09-12-"+idB[:8]+".jsonl", "")
	if got, err := find(t, "gemini", home, idB, "/w"); err == nil || errors.Is(err, ErrNoTranscript) {
		t.Errorf("%q, %v", got, err)
	}
}

func TestFindOthers(t *testing.T) {
	for _, c := range []struct{ runtime, id, file string }{
		{"qwen", idA, ".qwen/projects/-w-app/chats/" + idA + ".jsonl"},
		{"qwen", idA, ".qwen/projects/renamed/chats/" + idA + ".jsonl"},
		{"opencode", "ses_1aB", ".local/share/opencode/storage/session/proj/ses_1aB.json"},
		{"amp", "T-" + idA, ".local/share/amp/threads/T-" + idA + ".json"},
		{"copilot", idA, ".copilot/session-state/" + idA + "/events.jsonl"},
		{"cursor-agent", idA, ".cursor/projects/w-app/agent-transcripts/" + idA + ".txt"},
		{"cursor-agent", idA, ".cursor/projects/w-app/agent-transcripts/" + idA + ".jsonl"},
		{"cursor-agent", idA, ".cursor/projects/w-app/agent-transcripts/" + idA + "/" + idA + ".jsonl"},
	} {
		home := t.TempDir()
		wantError(t, c.runtime, home, c.id, "/w/app", ErrNoTranscript)
		want := put(t, home, c.file, "{}")
		wantFound(t, c.runtime, home, c.id, "/w/app", want)
		wantError(t, c.runtime, home, c.id+"x", "/w/app", ErrNoTranscript)
	}
}

func TestFindInStoresThatAreNotRead(t *testing.T) {
	home := t.TempDir()
	put(t, home, ".local/share/opencode/opencode.db", "SQLite")
	if got := wantError(t, "opencode", home, "ses_1", "/w", ErrEmbedder); got != "" {
		t.Error(got)
	}
	chat := put(t, home, ".cursor/chats/h/"+idA+"/store.db", "SQLite")
	if got := wantError(t, "cursor-agent", home, idA, "/w", ErrEmbedder); got != chat {
		t.Error(got)
	}
	if _, err := Generic("mycli").Find(context.Background(), homesOf(home), idA, "/w"); !errors.Is(err, ErrEmbedder) {
		t.Error(err)
	}
}

func TestFindAider(t *testing.T) {
	repo := t.TempDir()
	if err := os.MkdirAll(filepath.Join(repo, ".git"), 0o700); err != nil {
		t.Fatal(err)
	}
	sub := filepath.Join(repo, "a", "b")
	if err := os.MkdirAll(sub, 0o700); err != nil {
		t.Fatal(err)
	}
	put(t, filepath.Dir(repo), ".aider.chat.history.md", "another repository's")
	wantError(t, "aider", "", "", sub, ErrNoTranscript)
	want := put(t, repo, ".aider.chat.history.md", "")
	wantFound(t, "aider", "", "", sub, want)
	if _, err := find(t, "aider", "", "", "relative"); err == nil || errors.Is(err, ErrNoTranscript) {
		t.Error(err)
	}
}

// An id is untrusted: it never leads out of the store, and never matches as a
// pattern.
func TestFindWithHostileIDs(t *testing.T) {
	home := t.TempDir()
	put(t, home, "secret.jsonl", "{}")
	put(t, home, ".claude/secret.jsonl", "{}")
	put(t, home, ".claude/projects/-w/"+idA+".jsonl", "{}")
	for _, s := range Builtin() {
		if s.Name == "aider" {
			continue
		}
		for _, id := range []string{"", ".", "..", "../secret", "../../secret", "a/../../secret", `..\secret`, "*", "?", "[a-z]*",
			"a\x00b", "-x", ".hidden", "a..b", "a b", "é", strings.Repeat("a", 300), idA + "\n"} {
			if got, err := s.Find(context.Background(), homesOf(home), id, "/w"); !errors.Is(err, ErrBadID) || got != "" {
				t.Errorf("%s %q: %q, %v", s.Name, id, got, err)
			}
		}
	}
}

// Not being able to look is not the same as not being there.
func TestFindThatCannotLook(t *testing.T) {
	s, _ := Builtin().Lookup("claude")
	if _, err := s.Find(context.Background(), Homes{}, idA, "/w"); err == nil || errors.Is(err, ErrNoTranscript) {
		t.Errorf("no home: %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := s.Find(ctx, homesOf(t.TempDir()), idA, "/w"); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	// Something else under the file's name.
	home := t.TempDir()
	if err := os.MkdirAll(filepath.Join(home, ".claude/projects/-w", idA+".jsonl"), 0o700); err != nil {
		t.Fatal(err)
	}
	wantError(t, "claude", home, idA, "/w", transcript.ErrNotRegular)
	// A loop of links where a folder should be.
	loop := filepath.Join(home, ".claude/projects/loop")
	if err := os.Symlink(loop, loop); err != nil {
		t.Fatal(err)
	}
	if got, err := find(t, "claude", home, idB, "/w"); err == nil || errors.Is(err, ErrNoTranscript) {
		t.Errorf("loop: %q, %v", got, err)
	}
	// A store beyond the budget.
	left, failures := 10, []error(nil)
	q := query{ctx: context.Background(), root: t.TempDir(), id: idA, cwd: "/w", left: &left, failures: &failures}
	for i := range 30 {
		put(t, q.root, fmt.Sprintf("projects/p%d/x", i), "")
	}
	if _, err := findClaude(q.ctx, q); !errors.Is(err, ErrNoTranscript) || !errors.Is(errors.Join(failures...), ErrTooMany) || len(failures) != 1 {
		t.Errorf("budget: %v, %v", err, failures)
	}
}

func TestReadLive(t *testing.T) {
	root := t.TempDir()
	put(t, root, "sessions/4321.json", `{"pid":4321,"sessionId":"`+idA+`","cwd":"/w","startedAt":1790000000000,"procStart":"987654321","version":"2.1","kind":"interactive","entrypoint":"cli","status":"busy","updatedAt":1790000001000,"name":"n"}`)
	l, err := ReadLive(root, 4321)
	if err != nil {
		t.Fatal(err)
	}
	if l.PID != 4321 || l.StartTicks != 987654321 || l.SessionID != idA || l.Cwd != "/w" || l.Status != "busy" ||
		l.StartedAt.Unix() != 1790000000 || l.UpdatedAt.Unix() != 1790000001 {
		t.Errorf("%+v", l)
	}
	put(t, root, "sessions/1.json", `{"pid":1,"procStart":55,"status":7,"updatedAt":"soon"}`)
	if l, err := ReadLive(root, 1); err != nil || l.StartTicks != 55 || l.Status != "" || !l.UpdatedAt.IsZero() {
		t.Errorf("wrong types: %+v, %v", l, err)
	}
	put(t, root, "sessions/2.json", `{"pid":3}`)
	put(t, root, "sessions/3.json", `{"pid":3,`)
	put(t, root, "sessions/4.json", ``)
	put(t, root, "sessions/5.json", `{"pid":5,"pad":"`+strings.Repeat("x", maxLive)+`"}`)
	for _, pid := range []int{2, 3, 4, 5} {
		if _, err := ReadLive(root, pid); !errors.Is(err, ErrBadRegistry) {
			t.Errorf("%d: %v", pid, err)
		}
	}
	if _, err := ReadLive(root, 6); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	if err := os.Mkdir(filepath.Join(root, "sessions/7.json"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadLive(root, 7); !errors.Is(err, transcript.ErrNotRegular) {
		t.Error(err)
	}
}

func TestOpenRollouts(t *testing.T) {
	dir := t.TempDir()
	rollout := func(id, source string) string {
		return put(t, dir, "rollout-2026-10-05T09-12-44-"+id+".jsonl",
			`{"type":"session_meta","payload":{"id":"`+id+`","cwd":"/w","source":`+source+`}}`+"\n")
	}
	root := rollout(idA, `"cli"`)
	child := rollout(idB, `{"subagent":"review"}`)
	empty := put(t, dir, "rollout-2026-10-05T09-12-45-"+strings.Replace(idA, "0", "2", 1)+".jsonl", "")
	gone := filepath.Join(dir, "rollout-2026-10-05T09-12-46-"+idB+".jsonl")

	roots, unsure := OpenRollouts(context.Background(), []string{"/dev/null", child, root, root, "socket:[1]", filepath.Join(dir, "history.jsonl")})
	if len(roots) != 1 || roots[0] != (Rollout{Path: root, ID: idA, Cwd: "/w"}) || len(unsure) != 0 {
		t.Errorf("%+v, %q", roots, unsure)
	}
	roots, unsure = OpenRollouts(context.Background(), []string{empty, gone})
	if len(roots) != 0 || len(unsure) != 2 {
		t.Errorf("%+v, %q", roots, unsure)
	}
}
