//go:build linux

package ledger

import (
	"context"
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
)

const (
	idA = "aaaaaaaa-0000-4000-8000-000000000001"
	idB = "bbbbbbbb-0000-4000-8000-000000000002"
	idC = "cccccccc-0000-4000-8000-000000000003"
	idD = "dddddddd-0000-4000-8000-000000000004"
)

// Each form of a resume and of a creation, and what looks like one.
func TestArgumentIDs(t *testing.T) {
	for _, test := range []struct {
		line string
		want string
	}{
		{"claude", ""},
		{"claude --session-id " + idA, idA},
		{"claude --session-id=" + idA, idA},
		{"claude --resume " + idA + " --model x", idA},
		{"claude -r " + idA, idA},
		{"claude --resume", ""},
		{"claude --resume --model x", ""},
		{"claude --continue", ""},
		{"claude --resume " + idA + " --fork-session", ""},
		{"claude --resume " + idA + " --fork-session --session-id " + idB, idB},
		{"claude --resume " + idA + " --session-id " + idB, idA + " " + idB},
		{"claude -p -- --resume " + idA, ""},
		{"node /usr/lib/node_modules/@anthropic-ai/claude-code/cli.js --resume " + idA, idA},
		{"node -r " + idB + " /opt/bin/claude --resume " + idA, idA},
		{"codex resume " + idA, idA},
		{"codex exec resume " + idA + " go", idA},
		{"codex resume --last", ""},
		{"codex fork " + idA, ""},
		{"codex --profile resume", ""},
		{"codex --profile resume prompt", ""},
		{"codex --full-auto resume " + idA, idA},
		{"node /usr/lib/node_modules/@openai/codex/bin/codex.js resume " + idA, idA},
		{"gemini --resume " + idA, idA},
		{"gemini --resume latest", ""},
		{"gemini --resume 3", ""},
		{"qwen --resume " + idA, idA},
		{"opencode --session ses_1", "ses_1"},
		{"opencode -s ses_1 --fork", ""},
		{"amp threads continue T-" + idA, "T-" + idA},
		{"amp threads list", ""},
		{"cursor-agent --resume=" + idA, idA},
		{"cursor-agent resume", ""},
		{"copilot --resume=" + idA, idA},
		{"aider --restore-chat-history", ""},
	} {
		args := strings.Fields(test.line)
		table := runtimes.Builtin()
		name, ok := table.Match(args, nil)
		if !ok {
			t.Errorf("%s: no runtime", test.line)
			continue
		}
		spec, _ := table.Lookup(name)
		if got := strings.Join(argumentIDs(table, spec, args), " "); got != test.want {
			t.Errorf("%s: %q, want %q", test.line, got, test.want)
		}
	}
	own := BuiltinRuntimes().With(Runtime{Name: "mine", Resume: []string{"again", "{id}"}})
	spec, _ := own.table.Lookup("mine")
	if got := argumentIDs(own.table, spec, []string{"mine", "again", "7f"}); !slices.Equal(got, []string{"7f"}) {
		t.Errorf("an embedder's runtime: %q", got)
	}
}

// conversations is a home folder with transcripts, for one process at a time.
type conversations struct {
	t    *testing.T
	s    *Store
	home string
	dir  string // where the session runs
	env  []string
}

func newConversations(t *testing.T) *conversations {
	s, home := treeStore(t)
	return &conversations{t: t, s: s, home: home, dir: mustReal(t, t.TempDir()), env: treeEnv(home)}
}

func (c *conversations) write(path, text string, grown bool) string {
	c.t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		c.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		c.t.Fatal(err)
	}
	at := time.Now().Add(-24 * time.Hour)
	if grown {
		at = time.Now().Add(time.Hour)
	}
	if err := os.Chtimes(path, at, at); err != nil {
		c.t.Fatal(err)
	}
	return path
}

func (c *conversations) claude(id string, grown, sidechain bool) string {
	line := fmt.Sprintf(`{"type":"user","uuid":"u","sessionId":%q,"cwd":%q,"isSidechain":%v,"message":{"role":"user","content":"hello"}}`+"\n", id, c.dir, sidechain)
	return c.write(filepath.Join(c.home, ".claude", "projects", runtimes.EncodeClaudeProject(c.dir), id+".jsonl"), line, grown)
}

func (c *conversations) rollout(id, source string) string {
	text := fmt.Sprintf(`{"type":"session_meta","payload":{"id":%q,"cwd":%q,"source":%s}}`+"\n", id, c.dir, source)
	if source == "" {
		text = ""
	}
	return c.write(filepath.Join(c.home, ".codex", "sessions", "2026", "01", "02", "rollout-2026-01-02T03-04-05-"+id+".jsonl"), text, true)
}

// ask runs a stand-in and asks for its conversation. before is called when it runs.
func (c *conversations) ask(args, open []string, word *hookWord, before func(p ProcessID)) conversation {
	c.t.Helper()
	pids, stop := startTree(node{Name: "agent", Args: args, Env: c.env, Dir: c.dir, Open: open}, false)
	defer func() {
		if err := stop(); err != nil {
			c.t.Error(err)
		}
	}()
	p, err := c.s.chainPass(pids["agent"])
	if err != nil {
		c.t.Fatal(err)
	}
	cs := p.candidates()
	i, ok := p.at[pids["agent"]]
	if !ok {
		c.t.Fatalf("%q is no session", args)
	}
	if before != nil {
		before(cs[i].process)
	}
	return c.s.conversationOf(context.Background(), p, &match{candidate: cs[i]}, word)
}

func (c *conversations) want(what string, got conversation, id, source, path string) {
	c.t.Helper()
	if got.id != id || got.source != source || got.path != path {
		c.t.Errorf("%s: %q by %q at %q (%s), want %q by %q at %q", what, got.id, got.source, got.path, got.reason, id, source, path)
	}
	if id == "" && got.reason == "" {
		c.t.Errorf("%s: no reason", what)
	}
}

func (c *conversations) registry(id string, ticks int) func(ProcessID) {
	return func(p ProcessID) {
		c.write(filepath.Join(c.home, ".claude", "sessions", fmt.Sprintf("%d.json", p.PID)),
			fmt.Sprintf(`{"pid":%d,"sessionId":%q,"procStart":"%d"}`, p.PID, id, int(p.StartTicks)+ticks), true)
	}
}

func TestConversationOfClaude(t *testing.T) {
	c := newConversations(t)
	old := c.claude(idA, false, false)
	grown := c.claude(idB, true, false)
	c.claude(idC, true, true)
	bare := []string{"claude"}

	c.want("nothing names it: the newest file is no evidence", c.ask(bare, nil, nil, nil), "", "", "")
	c.want("the hook's word", c.ask(bare, nil, &hookWord{id: idA, path: old}, nil), idA, fromHook, old)
	c.want("the hook names a wrong folder", c.ask(bare, nil, &hookWord{id: idA, path: filepath.Join(c.home, "no", idA+".jsonl")}, nil), idA, fromHook, old)
	c.want("the hook names another's file", c.ask(bare, nil, &hookWord{id: idA, path: grown}, nil), idA, fromHook, old)
	missing := strings.Replace(idA, "a", "f", 1)
	c.want("the hook's transcript is not there yet", c.ask(bare, nil, &hookWord{id: missing}, nil), missing, fromHook, "")
	c.want("the hook wins over all else", c.ask([]string{"claude", "--resume", idB}, nil, &hookWord{id: idA}, c.registry(idB, 0)), idA, fromHook, old)
	c.want("the hook's id is a side chain", c.ask(bare, nil, &hookWord{id: idC}, nil), "", "", "")
	c.want("the hook names none", c.ask([]string{"claude", "--resume", idA}, nil, &hookWord{}, nil), idA, fromLaunch, old)

	c.want("created by the command line", c.ask([]string{"claude", "--session-id", missing}, nil, nil, nil), missing, fromLaunch, "")
	c.want("resumed by the command line", c.ask([]string{"claude", "--resume", idA}, nil, nil, nil), idA, fromLaunch, old)
	c.want("resumed by a title", c.ask([]string{"claude", "--resume", "that thing"}, nil, nil, nil), "", "", "")
	c.want("the command line contradicts itself", c.ask([]string{"claude", "--resume", idA, "--session-id", idB}, nil, nil, nil), "", "", "")
	c.want("a side chain on the command line", c.ask([]string{"claude", "--resume", idC}, nil, nil, nil), "", "", "")

	c.want("the list of running sessions", c.ask(bare, nil, nil, c.registry(idB, 0)), idB, fromRegistry, grown)
	c.want("that list speaks of another process", c.ask(bare, nil, nil, c.registry(idB, 1)), "", "", "")
	c.want("a resume went on under another id", c.ask([]string{"claude", "--resume", idA}, nil, nil, c.registry(idB, 0)), idB, fromRegistry, grown)
	c.want("that list is stale", c.ask([]string{"claude", "--resume", idB}, nil, nil, c.registry(idA, 0)), idB, fromLaunch, grown)
	c.want("an id without a transcript yields", c.ask([]string{"claude", "--session-id", missing}, nil, nil, c.registry(idB, 0)), idB, fromRegistry, grown)

	c.want("the file that it holds open", c.ask(bare, []string{old}, nil, nil), idA, fromOpenFile, old)
	c.want("several open files", c.ask(bare, []string{old, grown}, nil, nil), "", "", "")
	c.want("an open side chain", c.ask(bare, []string{filepath.Join(filepath.Dir(old), idC+".jsonl")}, nil, nil), "", "", "")
	elsewhere := c.write(filepath.Join(c.dir, idA+".jsonl"), "{}\n", true)
	backup := c.write(filepath.Join(c.home, ".claude", "backup", idA+".jsonl"), "{}\n", true)
	c.want("an open file of that name beside the conversations", c.ask(bare, []string{backup}, nil, nil), "", "", "")
	c.want("an open file of that name elsewhere", c.ask(bare, []string{elsewhere}, nil, nil), "", "", "")
}

func TestConversationOfTheAccountsOwnStore(t *testing.T) {
	c := newConversations(t)
	path := c.claude(idA, true, false)
	c.env = append(c.env, "CLAUDE_CONFIG_DIR="+filepath.Join(c.home, "accounts", "work"))
	c.want("the default account's file is not this one's", c.ask([]string{"claude", "--resume", idA}, nil, nil, nil), idA, fromLaunch, "")
	c.home = filepath.Join(c.home, "accounts", "work")
	own := c.claude(idA, true, false)
	moved := filepath.Join(c.home, strings.TrimPrefix(own, filepath.Join(c.home, ".claude")))
	if err := os.MkdirAll(filepath.Dir(moved), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(own, moved); err != nil {
		t.Fatal(err)
	}
	c.want("the account's", c.ask([]string{"claude", "--resume", idA}, nil, nil, nil), idA, fromLaunch, moved)
	if path == moved {
		t.Error("one file")
	}
}

func TestConversationOfCodex(t *testing.T) {
	c := newConversations(t)
	root := c.rollout(idA, `"cli"`)
	sub := c.rollout(idB, `{"subagent":{"x":1}}`)
	bare := []string{"codex"}

	c.want("nothing open", c.ask(bare, nil, nil, nil), "", "", "")
	c.want("the open rollout", c.ask(bare, []string{root}, nil, nil), idA, fromOpenFile, root)
	c.want("a subagent's beside it", c.ask(bare, []string{root, sub}, nil, nil), idA, fromOpenFile, root)
	c.want("a subagent's alone", c.ask(bare, []string{sub}, nil, nil), "", "", "")
	other := c.rollout(idC, `"exec"`)
	c.want("two roots", c.ask(bare, []string{root, other}, nil, nil), "", "", "")
	unsure := c.rollout("dddddddd-0000-4000-8000-000000000004", "")
	c.want("one that does not tell yet", c.ask(bare, []string{root, unsure}, nil, nil), "", "", "")
	c.want("resumed", c.ask([]string{"codex", "resume", idA}, nil, nil, nil), idA, fromLaunch, root)
	c.want("forked", c.ask([]string{"codex", "fork", idA}, nil, nil, nil), "", "", "")
	c.want("the notification of a root thread", c.ask(bare, nil, &hookWord{id: idA, maybeSubagent: true}, nil), idA, fromHook, root)
	c.want("the notification of a subagent", c.ask(bare, []string{root}, &hookWord{id: idB, maybeSubagent: true}, nil), idA, fromOpenFile, root)
	c.want("the notification of a thread that does not tell", c.ask(bare, nil, &hookWord{id: strings.Replace(idA, "a", "e", 1), maybeSubagent: true}, nil), "", "", "")
}

func TestConversationOfANativeBuildBelowItsScript(t *testing.T) {
	c := newConversations(t)
	root := c.rollout(idA, `"cli"`)
	native := node{Name: "native", Args: []string{"/opt/codex", "-q"}, Env: c.env, Dir: c.dir, Open: []string{root}}
	pids := growTree(t, node{Name: "script", Args: []string{"node", "/x/@openai/codex/bin/codex.js", "-q"}, Env: c.env, Dir: c.dir, Children: []node{native}})
	e := mustEnrol(t, c.s, pids["native"], nil)
	if e.PID != pids["script"] || e.SessionID != idA || e.TranscriptPath != root {
		t.Errorf("%d: %q at %q", e.PID, e.SessionID, e.TranscriptPath)
	}
}

func TestEnrolBindsTheConversation(t *testing.T) {
	c := newConversations(t)
	path := c.claude(idA, true, false)
	session := func(name string) node {
		return node{Name: name, Args: []string{"claude", "--resume", idA}, Env: c.env, Dir: c.dir}
	}
	first, stop := startTree(session("first"), true)
	row := mustEnrol(t, c.s, first["first"], nil)
	if row.SessionID != idA || row.TranscriptPath != path || row.Revision != 2 {
		t.Errorf("%q at %q, revision %d", row.SessionID, row.TranscriptPath, row.Revision)
	}

	// While it runs, the conversation is its own.
	second := growTree(t, session("second"))
	refused := mustEnrol(t, c.s, second["second"], nil)
	if refused.SessionID != "" || len(refused.SessionIDs) != 1 || refused.SessionIDs[0].HeldBy != row.LedgerID || refused.Attention == nil || refused.ResumedFrom != "" {
		t.Errorf("refused: %+v", refused)
	}

	// It dies, and another process takes the conversation up: a life of its own.
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	third := growTree(t, session("third"))
	next := mustEnrol(t, c.s, third["third"], nil)
	if next.SessionID != idA || next.ResumedFrom != row.LedgerID {
		t.Errorf("the successor: %+v", next)
	}
	old, err := c.s.Get(context.Background(), row.LedgerID)
	if err != nil || old.SessionID != "" || old.Phase != PhaseLive || len(old.SessionIDs) != 1 || old.SessionIDs[0].HeldBy != next.LedgerID {
		t.Errorf("the lost session: %+v, %v", old, err)
	}
}

// A row that never had a process is no lost session: the process may be that row's.
func TestAConversationOfARowWithoutAProcessIsNotTakenOver(t *testing.T) {
	c := newConversations(t)
	c.claude(idA, true, false)
	writeLegacyRow(t, c.s, goneID, map[string]any{"sessionId": idA})
	pids := growTree(t, node{Name: "agent", Args: []string{"claude", "--resume", idA}, Env: c.env, Dir: c.dir})
	e := mustEnrol(t, c.s, pids["agent"], nil)
	if e.SessionID != "" || e.ResumedFrom != "" || len(e.SessionIDs) != 1 || e.SessionIDs[0].HeldBy != goneID {
		t.Errorf("%+v", e)
	}
}

func TestRowTranscript(t *testing.T) {
	c := newConversations(t)
	ctx := context.Background()
	path := c.claude(idA, true, false)
	other := c.claude(idB, true, false)
	row := Entry{LedgerID: "x", Runtime: "claude", SessionID: idA, Cwd: c.dir}
	want := func(what string, e Entry, at string, sentinel error) {
		t.Helper()
		got, tr, err := c.s.rowTranscript(ctx, &e, nil)
		if sentinel == nil && (err != nil || got != at || tr.Title != "hello") || sentinel != nil && !errors.Is(err, sentinel) {
			t.Errorf("%s: %q %+v %v, want %q %v", what, got, tr, err, at, sentinel)
		}
	}
	want("by its id", row, path, nil)
	want("at its path", tweak(row, func(e *Entry) { e.TranscriptPath, e.Cwd = path, "" }), path, nil)
	want("at a path that is gone", tweak(row, func(e *Entry) { e.TranscriptPath = "/no/such" }), path, nil)
	want("at another's path", tweak(row, func(e *Entry) { e.TranscriptPath = other }), path, nil)
	want("there is none", tweak(row, func(e *Entry) { e.SessionID = idC }), "", ErrNotFound)
	want("no conversation", tweak(row, func(e *Entry) { e.SessionID = "" }), "", ErrUnknown)
	want("of an account whose place is not known", tweak(row, func(e *Entry) { e.Account = "work" }), "", ErrUnknown)
	want("of that account, at its path", tweak(row, func(e *Entry) { e.Account, e.TranscriptPath = "work", path }), path, nil)
	if os.Geteuid() != 0 {
		if err := os.Chmod(filepath.Join(c.home, ".claude", "projects"), 0); err != nil {
			t.Fatal(err)
		}
		want("in a folder that cannot be read", tweak(row, func(e *Entry) { e.SessionID = idC }), "", ErrUnknown)
		if err := os.Chmod(filepath.Join(c.home, ".claude", "projects"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	fifo := filepath.Join(c.home, "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	want("a FIFO in its place", tweak(row, func(e *Entry) { e.TranscriptPath = fifo }), path, nil)
}
