package runtimes

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

const (
	begunA = "aaaaaaaa-0000-4000-8000-00000000000a"
	begunB = "bbbbbbbb-0000-4000-8000-00000000000b"
)

// begunClaude is a message of a conversation, which began when and where it says.
func begunClaude(id, cwd string, at time.Time, side bool) string {
	return fmt.Sprintf(`{"type":"user","uuid":"u","sessionId":%q,"cwd":%q,"isSidechain":%v,"timestamp":%q,"message":{"role":"user","content":"x"}}`+"\n",
		id, cwd, side, at.UTC().Format("2006-01-02T15:04:05.000Z"))
}

func begunGemini(id, dir, kind string, at time.Time) string {
	hash := sha256.Sum256([]byte(dir))
	return fmt.Sprintf(`{"sessionId":%q,"projectHash":%q,"startTime":%q,"kind":%q}`+"\n",
		id, hex.EncodeToString(hash[:]), at.UTC().Format(time.RFC3339Nano), kind)
}

// What is in a store beside one conversation that has begun, and what is made of it.
func TestBegun(t *testing.T) {
	launch := time.Now().Add(-time.Minute)
	before, after := launch.Add(-time.Hour), launch.Add(time.Second)
	type file struct{ name, text string }
	type store struct {
		runtime string
		name    func(dir, id string) string
		text    func(id, dir string, at time.Time, subagent bool) string
	}
	claude := func(id, dir string, at time.Time, side bool) string {
		return `{"type":"permission-mode","sessionId":"` + id + `"}` + "\n" + begunClaude(id, dir, at, side)
	}
	stores := []store{
		{"claude", func(dir, id string) string {
			return ".claude/projects/" + EncodeClaudeProject(dir) + "/" + id + ".jsonl"
		}, claude},
		{"qwen", func(dir, id string) string {
			return ".qwen/projects/" + EncodeClaudeProject(dir) + "/chats/" + id + ".jsonl"
		}, claude},
		{"gemini", func(_, id string) string {
			return ".gemini/tmp/slug/chats/session-2026-01-02T03-04-" + id[:8] + ".jsonl"
		}, func(id, dir string, at time.Time, subagent bool) string {
			kind := "main"
			if subagent {
				kind = "subagent"
			}
			return begunGemini(id, dir, kind, at)
		}},
	}
	for _, s := range stores {
		for _, tt := range []struct {
			name   string
			beside func(dir string) file
			ids    string
			unsure bool
		}{
			{"alone", nil, begunA, false},
			{"beside one that began before and was touched since", func(dir string) file {
				return file{s.name(dir, begunB), s.text(begunB, dir, before, false)}
			}, begunA, false},
			{"beside another", func(dir string) file {
				return file{s.name(dir, begunB), s.text(begunB, dir, after, false)}
			}, begunA + " " + begunB, false},
			{"beside a subagent's", func(dir string) file {
				return file{s.name(dir, begunB), s.text(begunB, dir, after, true)}
			}, begunA, false},
			{"beside another directory's in the same folder", func(dir string) file {
				return file{s.name(dir, begunB), s.text(begunB, dir+"x", after, false)}
			}, begunA, false},
			{"beside one that does not tell yet", func(dir string) file {
				return file{s.name(dir, begunB), "{}\n"}
			}, begunA, true},
			{"beside an empty one", func(dir string) file { return file{s.name(dir, begunB), ""} }, begunA, true},
		} {
			home, dir := t.TempDir(), t.TempDir()
			put(t, home, s.name(dir, begunA), s.text(begunA, dir, after, false))
			if tt.beside != nil {
				f := tt.beside(dir)
				put(t, home, f.name, f.text)
			}
			spec, _ := Builtin().Lookup(s.runtime)
			begun, unsure, err := spec.Begun(t.Context(), homesOf(home), dir, launch)
			ids := ""
			for _, b := range begun {
				if ids != "" {
					ids += " "
				}
				ids += b.ID
			}
			if err != nil || ids != tt.ids || (len(unsure) > 0) != tt.unsure {
				t.Errorf("%s, %s: %q, unsure %q, %v", s.runtime, tt.name, ids, unsure, err)
			}
			if want := filepath.Join(home, s.name(dir, begunA)); !slices.ContainsFunc(begun, func(b Begun) bool { return b.Path == want && b.At.Sub(after).Abs() < time.Second }) {
				t.Errorf("%s, %s: %+v", s.runtime, tt.name, begun)
			}
		}
	}
}

// What lies in a project's folder and is no conversation of its own, or has two names.
func TestBegunPassesOverWhatIsNoConversation(t *testing.T) {
	launch := time.Now().Add(-time.Minute)
	after := launch.Add(time.Second)
	home, dir := t.TempDir(), t.TempDir()
	projects := ".claude/projects/" + EncodeClaudeProject(dir)
	own := put(t, home, projects+"/"+begunA+".jsonl", begunClaude(begunA, dir, after, false))
	put(t, home, projects+"/agent-12.jsonl", begunClaude(begunA, dir, after, false))
	put(t, home, projects+"/"+begunA+"/subagents/agent-13.jsonl", begunClaude(begunA, dir, after, false))
	put(t, home, projects+"/notes.txt", "x")
	if err := os.Symlink(own, filepath.Join(home, projects, begunB+".jsonl")); err != nil {
		t.Fatal(err)
	}
	older := put(t, home, projects+"/cccccccc-0000-4000-8000-00000000000c.jsonl", "{}\n")
	long := launch.Add(-time.Hour)
	if err := os.Chtimes(older, long, long); err != nil { // it does not tell, and was not written to since
		t.Fatal(err)
	}
	spec, _ := Builtin().Lookup("claude")
	begun, unsure, err := spec.Begun(t.Context(), homesOf(home), dir, launch)
	if err != nil || len(begun) != 1 || begun[0].Path != own || begun[0].ID != begunA || len(unsure) > 0 {
		t.Errorf("%+v, unsure %q, %v", begun, unsure, err)
	}
}

// A copy of another conversation, as a fork and older versions' resumes make it, begins
// when that one did.
func TestBegunIsNoCopy(t *testing.T) {
	launch := time.Now().Add(-time.Minute)
	home, dir := t.TempDir(), t.TempDir()
	put(t, home, ".claude/projects/"+EncodeClaudeProject(dir)+"/"+begunA+".jsonl",
		begunClaude(begunB, dir, launch.Add(-time.Hour), false)+begunClaude(begunA, dir, launch.Add(time.Second), false))
	spec, _ := Builtin().Lookup("claude")
	if begun, unsure, err := spec.Begun(t.Context(), homesOf(home), dir, launch); err != nil || len(begun)+len(unsure) > 0 {
		t.Errorf("%+v, %q, %v", begun, unsure, err)
	}
}

// Gemini keeps one session in both its forms while it moves to the newer one.
func TestBegunCountsBothFormsOfASessionOnce(t *testing.T) {
	launch := time.Now().Add(-time.Minute)
	home, dir := t.TempDir(), t.TempDir()
	for _, ext := range []string{".json", ".jsonl"} {
		put(t, home, ".gemini/tmp/slug/chats/session-2026-01-02T03-04-aaaaaaaa"+ext, begunGemini(begunA, dir, "main", launch.Add(time.Second)))
	}
	spec, _ := Builtin().Lookup("gemini")
	if begun, unsure, err := spec.Begun(t.Context(), homesOf(home), dir, launch); err != nil || len(begun) != 1 || len(unsure) > 0 {
		t.Errorf("%+v, %q, %v", begun, unsure, err)
	}
}

// Where the store does not tell, nothing is made of what it shows.
func TestBegunIsNotKnown(t *testing.T) {
	launch := time.Now().Add(-time.Minute)
	home, dir := t.TempDir(), t.TempDir()
	for _, runtime := range []string{"codex", "amp", "opencode", "cursor-agent", "aider", "copilot"} {
		spec, _ := Builtin().Lookup(runtime)
		if _, _, err := spec.Begun(t.Context(), homesOf(home), dir, launch); !errors.Is(err, ErrEmbedder) {
			t.Errorf("%s: %v", runtime, err)
		}
	}
	spec, _ := Builtin().Lookup("claude")
	if begun, _, err := spec.Begun(t.Context(), homesOf(home), dir, launch); err != nil || len(begun) > 0 {
		t.Errorf("no store: %+v, %v", begun, err)
	}
	for i := range maxBegun + 1 {
		id := fmt.Sprintf("aaaaaaaa-0000-4000-8000-%012d", i)
		put(t, home, ".claude/projects/"+EncodeClaudeProject(dir)+"/"+id+".jsonl", begunClaude(id, dir, launch.Add(-time.Hour), false))
	}
	if _, _, err := spec.Begun(t.Context(), homesOf(home), dir, launch); !errors.Is(err, ErrTooMany) {
		t.Errorf("too many: %v", err)
	}
}
