package runtimes

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func exeIs(path string) func() (string, error) {
	return func() (string, error) { return path, nil }
}

func TestMatch(t *testing.T) {
	table := Builtin()
	for _, c := range []struct {
		args    string // separated by spaces
		exe     string
		want    string
		service bool
	}{
		// By the base name of argv[0], exactly.
		{args: "claude", want: "claude"},
		{args: "/home/u/.local/bin/claude --resume x", want: "claude"},
		{args: "codex resume x", want: "codex"},
		{args: "gemini", want: "gemini"},
		{args: "qwen", want: "qwen"},
		{args: "opencode", want: "opencode"},
		{args: "amp threads continue T-1", want: "amp"},
		{args: "cursor-agent", want: "cursor-agent"},
		{args: "aider --model x", want: "aider"},
		{args: "copilot", want: "copilot"},
		{args: "claude-code"}, {args: "claude2"}, {args: "xclaude"}, {args: "Claude"}, {args: "codex-tui"},
		{args: "-claude"}, {args: "claude/"}, {args: ""}, {args: "/claude/x"},

		// A shell, a multiplexer, a wrapper or an editor is none, whatever it runs.
		{args: "bash -c claude"}, {args: "-bash"}, {args: "/bin/sh /usr/bin/claude"}, {args: "tmux new-session -s claude claude"},
		{args: "tmux: server"}, {args: "env claude"}, {args: "sudo claude"}, {args: "npx claude"}, {args: "vim claude"},
		{args: "node /usr/bin/npx claude"}, {args: "uv tool run aider"},

		// Under an interpreter, by the script.
		{args: "node /usr/local/bin/claude", want: "claude"},
		{args: "node --no-warnings --max-old-space-size=8192 /usr/bin/gemini -m x", want: "gemini"},
		{args: "node --require ./hook.js /usr/bin/gemini", want: "gemini"},
		{args: "node -r ./hook.js /usr/bin/gemini", want: "gemini"},
		{args: "/usr/bin/node /opt/lib/node_modules/@anthropic-ai/claude-code/cli.js", want: "claude"},
		{args: "node /opt/lib/node_modules/@openai/codex/bin/codex.js", want: "codex"},
		{args: "node /opt/node_modules/@google/gemini-cli/dist/index.js", want: "gemini"},
		{args: "node /opt/node_modules/@qwen-code/qwen-code/cli.js", want: "qwen"},
		{args: "node /opt/node_modules/@sourcegraph/amp/dist/main.js", want: "amp"},
		{args: "node /opt/node_modules/@github/copilot/index.js", want: "copilot"},
		{args: "bun run /usr/bin/opencode", want: "opencode"},
		{args: "python3.12 /home/u/.local/bin/aider", want: "aider"},
		{args: "python -m aider --model x", want: "aider"},
		{args: "python3 -um aider", want: "aider"},
		{args: "python3 -W ignore -maider", want: "aider"},
		{args: "python3 /usr/lib/python3/site-packages/aider/__main__.py", want: "aider"},
		{args: "node"}, {args: "node /srv/index.js"}, {args: "node /srv/dist/index.js claude"}, {args: "node cli.js"},
		{args: "node -e claude"}, {args: "node --eval x /usr/bin/claude"}, {args: "node -p /usr/bin/claude"},
		{args: "python3 -c aider"}, {args: "python3 -m pip install aider"}, {args: "python3 run aider"}, {args: "python3 x.py aider"},
		{args: "pythonista /usr/bin/aider"}, {args: "node -"}, {args: "node --require"}, {args: "python3 -m"},
		{args: "node /opt/@anthropic-ai/claude-code/install.js"},

		// By the full path, where the file's name is a version.
		{args: "/home/u/.local/share/claude/versions/2.1.237", want: "claude"},
		{args: "/home/u/.local/share/claude/versions/2.1.237 --bg-spare x", want: "claude", service: true},
		{args: "/home/u/work/versions/2.1.237"}, {args: "/home/u/claude/versions/latest"},

		// "agent" needs a proof that it is cursor's.
		{args: "agent"}, {args: "/usr/bin/agent serve"}, {args: "agent", exe: "/opt/grok/agent"},
		{args: "/home/u/.local/bin/agent", exe: "/home/u/.local/share/cursor-agent/versions/1/node", want: "cursor-agent"},
		{args: "/home/u/.local/share/cursor-agent/versions/1/agent", want: "cursor-agent"},
		{args: "/home/u/.local/bin/agent --use-system-ca /home/u/.local/share/cursor-agent/versions/1/index.js --resume=x", want: "cursor-agent"},
		{args: "agent --use-system-ca /x/cursor-agent/versions/1/index.js worker-server", want: "cursor-agent", service: true},
		{args: "cursor-agent --use-system-ca /x/cursor-agent/versions/1/index.js login", want: "cursor-agent", service: true},
		{args: "node /x/cursor-agent/versions/1/index.js", want: "cursor-agent"},
		{args: "node /x/agent"},

		// Services, by the first argument alone.
		{args: "claude mcp serve", want: "claude", service: true},
		{args: "claude daemon", want: "claude", service: true},
		{args: "codex app-server", want: "codex", service: true},
		{args: "codex login", want: "codex", service: true},
		{args: "node /usr/bin/codex login", want: "codex", service: true},
		{args: "node --no-warnings /usr/bin/claude setup-token", want: "claude", service: true},
		{args: "python3 -m aider update", want: "aider", service: true},
		{args: "opencode serve", want: "opencode", service: true},
		{args: "claude -p mcp", want: "claude"},
		{args: "codex --profile login", want: "codex"},
		{args: "codex exec update", want: "codex"},
		{args: "gemini serve", want: "gemini"},
	} {
		args := strings.Split(c.args, " ")
		name, ok := table.Match(args, exeIs(c.exe))
		if name != c.want || ok != (c.want != "") {
			t.Errorf("%q: %q, want %q", c.args, name, c.want)
		}
		if s := table.Service(args, exeIs(c.exe)); s != c.service {
			t.Errorf("%q: service %v", c.args, s)
		}
	}
}

func TestMatchOfOddCommandLines(t *testing.T) {
	table := Builtin()
	for _, args := range [][]string{nil, {}, {""}, {"", "claude"}, {"node", ""}, {"node", "--"}, {"/"}, {"\xff"}} {
		if name, ok := table.Match(args, nil); ok {
			t.Errorf("%q: %q", args, name)
		}
	}
	for _, args := range [][]string{
		{"claude", ""}, // a rewritten title leaves empty arguments
		{"/home/My (old) Dir\n/claude", "x"},
		append([]string{"claude"}, make([]string, 300)...),
		{"node", "/home/My Dir/bin/claude"},
		{"node", "--", "/usr/bin/claude"},
	} {
		if name, _ := table.Match(args, nil); name != "claude" {
			t.Errorf("%q: %q", args[:2], name)
		}
	}
}

// The file behind a command line is asked only where the name needs a proof,
// and not knowing it proves nothing.
func TestExecutableIsAskedOnlyForCommonNames(t *testing.T) {
	table := Builtin()
	asked := 0
	exe := func() (string, error) { asked++; return "", errors.New("gone") }
	for _, args := range []string{"claude", "bash", "node /usr/bin/codex", "vim", "cursor-agent", "node /x/index.js"} {
		table.Match(strings.Split(args, " "), exe)
	}
	if asked != 0 {
		t.Errorf("asked %d times", asked)
	}
	if name, ok := table.Match([]string{"agent"}, exe); ok || asked != 1 {
		t.Errorf("%q, %v, asked %d times", name, ok, asked)
	}
}

// A script that starts the native build, and a script that starts itself once
// more, are one session with their child; an agent's own child is not.
func TestContinues(t *testing.T) {
	table := Builtin()
	for _, c := range []struct {
		parent, child string
		want          bool
	}{
		{"node /usr/bin/codex resume x", "/opt/vendor/codex/codex resume x", true},
		{"node /usr/bin/gemini -m a", "/usr/bin/node --max-old-space-size=99 /usr/bin/gemini -m a", true},
		{"node /usr/bin/codex", "/opt/codex exec hello", false},
		{"codex", "codex", false},
		{"node /usr/bin/codex", "claude", false},
		{"bash", "codex", false},
		{"node /usr/bin/codex", "git status", false},
	} {
		if got := table.Continues(strings.Fields(c.parent), strings.Fields(c.child), nil); got != c.want {
			t.Errorf("%q, %q: %v", c.parent, c.child, got)
		}
	}
}

func TestLookupOfAnUnknownRuntime(t *testing.T) {
	s, ok := Builtin().Lookup("mycli")
	if ok || s.Name != "mycli" || s.HasTranscripts || s.HasEndHook || s.ResumesByID() {
		t.Errorf("%v, %+v", ok, s)
	}
	if name, ok := (Table{s}).Match([]string{"/x/mycli"}, nil); !ok || name != "mycli" {
		t.Errorf("%q, %v", name, ok)
	}
}

// A table entry under a wrapper's name does not make wrappers sessions.
func TestWrappersNeverMatch(t *testing.T) {
	for _, name := range []string{"tmux", "bash", "env"} {
		if _, ok := (Table{Generic(name)}).Match([]string{"/bin/" + name}, nil); ok {
			t.Errorf("%s matched", name)
		}
	}
}

func TestRegistryProperties(t *testing.T) {
	var ends, transcripts []string
	for _, s := range Builtin() {
		if s.HasEndHook {
			ends = append(ends, s.Name)
		}
		if s.HasTranscripts {
			transcripts = append(transcripts, s.Name)
		}
		if s.find == nil || s.Format == 0 {
			t.Errorf("%s has no store", s.Name)
		}
	}
	if diff := cmp.Diff("claude gemini qwen cursor-agent copilot", strings.Join(ends, " ")); diff != "" {
		t.Error("reports its own end:", diff)
	}
	if diff := cmp.Diff("claude codex gemini qwen amp cursor-agent aider copilot", strings.Join(transcripts, " ")); diff != "" {
		t.Error("has transcripts:", diff)
	}
}

func TestFromShims(t *testing.T) {
	dir, other := t.TempDir(), t.TempDir()
	shim := filepath.Join(other, "ledgerctl")
	for _, p := range []string{shim, filepath.Join(other, "stranger"), filepath.Join(dir, "plain")} {
		if err := os.WriteFile(p, []byte("x"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for name, target := range map[string]string{
		"claude": shim, "mycli": shim, "codex": filepath.Join(dir, "claude"), // a link to a link
		"gemini": filepath.Join(other, "stranger"), "broken": filepath.Join(other, "absent"),
		"below": filepath.Join(shim, "x"), "loop": filepath.Join(dir, "loop"),
		"bash": shim, "node": shim, "tmux": shim,
	} {
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	table, err := FromShims(dir, shim)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, s := range table {
		names = append(names, s.Name)
	}
	if diff := cmp.Diff([]string{"claude", "codex", "mycli"}, names); diff != "" {
		t.Error(diff)
	}
	if s, ok := table.Lookup("claude"); !ok || !s.HasTranscripts || !s.ResumesByID() {
		t.Error("a built-in name has the built-in properties")
	}
	if s, ok := table.Lookup("mycli"); !ok || s.HasTranscripts || s.ResumesByID() {
		t.Error("an unknown name has the properties of an unknown runtime")
	}
	for args, want := range map[string]string{"mycli": "mycli", "node /opt/bin/mycli": "mycli", "gemini": "", "claude": "claude"} {
		if name, _ := table.Match(strings.Fields(args), nil); name != want {
			t.Errorf("%q: %q, want %q", args, name, want)
		}
	}
	// The set follows the folder.
	if err := os.Symlink(shim, filepath.Join(dir, "later")); err != nil {
		t.Fatal(err)
	}
	if table, err = FromShims(dir, shim); err != nil || len(table) != 4 {
		t.Errorf("%d runtimes, %v", len(table), err)
	}
}

func TestFromShimsThatCannotBeRead(t *testing.T) {
	dir := t.TempDir()
	if _, err := FromShims(filepath.Join(dir, "absent"), os.Args[0]); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no folder: %v", err)
	}
	if _, err := FromShims(dir, filepath.Join(dir, "absent")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no shim: %v", err)
	}
	if table, err := FromShims(dir, os.Args[0]); err != nil || len(table) != 0 {
		t.Errorf("empty folder: %v, %v", table, err)
	}
}

func BenchmarkMatch(b *testing.B) {
	table := Builtin()
	lines := [][]string{
		{"/usr/lib/systemd/systemd", "--user"}, {"-bash"}, {"/usr/bin/vim", "a.go"}, {"claude", "--resume", "x"},
		{"node", "/srv/app/index.js"}, {"[kworker/0:1]"},
	}
	b.ReportAllocs()
	for b.Loop() {
		for _, l := range lines {
			table.Match(l, nil)
		}
	}
}
