package settings

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const ours = `'/opt/a "b"/ledgerctl' hook claude`

var someEvents = []string{"SessionStart", "SessionEnd", "Stop"}

func scratch(t testing.TB, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "settings.json")
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func content(t testing.TB, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func install(t testing.TB, path string, form Form, want bool) {
	t.Helper()
	changed, err := Install(path, form, someEvents, ours, 10*time.Second)
	if err != nil || changed != want {
		t.Fatalf("Install: changed %v, error %v; want %v\n%s", changed, err, want, content(t, path))
	}
}

func uninstall(t testing.TB, path string, form Form, want bool) {
	t.Helper()
	changed, err := Uninstall(path, form, ours)
	if err != nil || changed != want {
		t.Fatalf("Uninstall: changed %v, error %v; want %v\n%s", changed, err, want, content(t, path))
	}
}

// shapes are settings files as people and programs write them.
var shapes = map[string]string{
	"empty":                      "",
	"white space":                " \n\t\n",
	"no members":                 "{}",
	"no members, newline":        "{}\n",
	"no members, CRLF":           "{}\r\n",
	"space inside":               "{ }",
	"lines inside":               "{\n\n}\n",
	"tabs":                       "{\n\t\"model\": \"opus\",\n\t\"env\": {\n\t\t\"A\": \"1\"\n\t}\n}\n",
	"two spaces":                 "{\n  \"model\": \"opus\"\n}\n",
	"four spaces, no newline":    "{\n    \"model\": \"opus\"\n}",
	"no indentation":             "{\n\"model\": \"opus\"\n}",
	"CRLF":                       "{\r\n  \"model\": \"opus\",\r\n  \"hooks\": {}\r\n}\r\n",
	"minified":                   `{"model":"opus","permissions":{"allow":["Bash(ls:*)"]}}`,
	"one line":                   `{"model": "opus"}` + "\n",
	"spaced":                     `{ "model" : "opus" , "hooks" : { } }`,
	"commas first":               "{ \"a\": 1\n, \"b\": 2\n}\n",
	"blank around":               "\n\n  {\n  \"a\": 1\n  }  \n\n",
	"odd members":                `{"": {"": [null, true, [[], {}, [{}]]]}, "hook s": 1, "Hooks": []}`,
	"escapes":                    "{\n  \"\\u0061\\/\\ud83d\\ude00\": \"\\u00e9é\\n\",\n  \"emoji\": \"😀\"\n}\n",
	"numbers":                    `{"n": [1e400, 2.50, 123456789012345678901234567890, -0, 1E+2]}`,
	"empty hooks":                "{\n  \"hooks\": {}\n}\n",
	"empty hooks on one line":    `{"hooks":{}}`,
	"spaced hooks on one line":   `{"hooks":{  }}`,
	"hooks with lines inside":    "{\n  \"hooks\": {\n  }\n}\n",
	"hooks with space inside":    "{\n  \"hooks\": { }\n}\n",
	"empty event":                "{\n  \"hooks\": {\n    \"SessionStart\": [],\n    \"Stop\": [\n    ]\n  }\n}\n",
	"empty event on one line":    `{"hooks": {"SessionStart": [], "Stop": [ ]}}`,
	"escaped names":              `{"h\u006foks": {"Session\u0053tart": []}}`,
	"other events":               "{\n  \"hooks\": {\n    \"PreToolUse\": [\n      {\n        \"matcher\": \"Bash\",\n        \"hooks\": [\n          {\n            \"type\": \"command\",\n            \"command\": \"check\"\n          }\n        ]\n      }\n    ]\n  },\n  \"last\": true\n}\n",
	"own hooks of the events":    "{\n\t\"hooks\": {\n\t\t\"SessionStart\": [\n\t\t\t{\n\t\t\t\t\"hooks\": [{ \"type\": \"command\", \"command\": \"mine\" }]\n\t\t\t}\n\t\t]\n\t}\n}",
	"own hooks, cuddled":         "{\"hooks\": {\"Stop\": [{\n  \"hooks\": [{\"type\": \"command\", \"command\": \"mine\"}]\n}]}}",
	"own hooks, minified":        `{"hooks":{"SessionStart":[{"matcher":"startup","hooks":[{"type":"command","command":"mine"},{"type":"command","command":"mine"}]}]},"z":1}`,
	"a group without entries":    "{\n  \"hooks\": {\n    \"Stop\": [\n      {\n        \"hooks\": []\n      }\n    ]\n  }\n}\n",
	"gemini's switch in hooks":   `{"hooks": {"enabled": true, "disabled": ["x"]}}`,
	"a command that is not ours": `{"hooks":{"Stop":[{"hooks":[{"type":"command","command":"` + strings.ReplaceAll(ours, `"`, `\"`) + ` "}]}]}}`,
}

func TestUninstallRestoresTheBytes(t *testing.T) {
	for name, text := range shapes {
		t.Run(name, func(t *testing.T) {
			path := scratch(t, text)
			install(t, path, Claude, true)
			installed := content(t, path)
			if !json.Valid([]byte(installed)) {
				t.Fatalf("not JSON:\n%s", installed)
			}
			events, err := Installed(path, Claude, ours)
			if want := []string{"SessionEnd", "SessionStart", "Stop"}; err != nil || !slices.Equal(events, want) {
				t.Errorf("Installed = %v, %v; want %v", events, err, want)
			}
			install(t, path, Claude, false)
			if diff := cmp.Diff(installed, content(t, path)); diff != "" {
				t.Errorf("installed twice (-once +twice):\n%s", diff)
			}
			uninstall(t, path, Claude, true)
			if diff := cmp.Diff(text, content(t, path)); diff != "" {
				t.Errorf("after uninstall (-before +after):\n%s\ninstalled was:\n%s", diff, installed)
			}
			uninstall(t, path, Claude, false)
			if events, err := Installed(path, Claude, ours); err != nil || len(events) > 0 {
				t.Errorf("Installed = %v, %v after uninstall", events, err)
			}
		})
	}
}

// TestOldTextIsKept: what was there is there, in order, whatever came between.
func TestOldTextIsKept(t *testing.T) {
	for name, text := range shapes {
		t.Run(name, func(t *testing.T) {
			path := scratch(t, text)
			install(t, path, Claude, true)
			now := content(t, path)
			for rest := []byte(text); len(rest) > 0; rest = rest[1:] {
				i := strings.IndexByte(now, rest[0])
				if i < 0 {
					t.Fatalf("%q is gone", rest)
				}
				now = now[i+1:]
			}
			if text != "" && strings.TrimSpace(text) != "" {
				var before, after map[string]any
				decode(t, text, &before)
				decode(t, content(t, path), &after)
				delete(before, "hooks")
				delete(after, "hooks")
				if diff := cmp.Diff(before, after); diff != "" {
					t.Errorf("other members (-before +after):\n%s", diff)
				}
			}
		})
	}
}

func decode(t *testing.T, text string, to any) {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	if err := d.Decode(to); err != nil {
		t.Fatal(err)
	}
}

// TestLayoutIsTheFiles shows the text that comes in, style by style.
func TestLayoutIsTheFiles(t *testing.T) {
	tests := []struct {
		name, before, after string
		form                Form
	}{
		{"a new file's", "{}\n", `{
  "hooks": {
    "Stop": [
      {
        "hooks": [
          {
            "type": "command",
            "command": "c",
            "timeout": 2
          }
        ]
      }
    ]
  }
}
`, Claude},
		{"tabs", "{\n\t\"a\":1\n}", "{\n\t\"a\":1,\n\t\"hooks\":{\n\t\t\"Stop\":[\n\t\t\t{\n\t\t\t\t\"command\":\"c\",\n\t\t\t\t\"timeout\":2\n\t\t\t}\n\t\t]\n\t},\n\t\"version\":1\n}", Cursor},
		{"minified", `{"a":1}`, `{"a":1,"hooks":{"Stop":[{"hooks":[{"type":"command","command":"c","timeout":1500}]}]}}`, Gemini},
		{"one line", `{"version": 1, "hooks": {"Stop": [{"bash": "x"}]}}`, `{"version": 1, "hooks": {"Stop": [{"bash": "x"}, {"type": "command", "bash": "c", "timeoutSec": 2}]}}`, Copilot},
		{"CRLF", "{\r\n    \"hooks\": {}\r\n}", "{\r\n    \"hooks\": { \r\n        \"Stop\": [\r\n            {\r\n                \"command\": \"c\",\r\n                \"timeout\": 2\r\n            }\r\n        ]\r\n    }\r\n}", Cursor},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			path := scratch(t, tt.before)
			if _, err := Install(path, tt.form, []string{"Stop", "Stop"}, "c", 1500*time.Millisecond); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.after, content(t, path)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if _, err := Uninstall(path, tt.form, "c"); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.before, content(t, path)); diff != "" {
				t.Errorf("after uninstall (-want +got):\n%s", diff)
			}
		})
	}
}

// TestOnlyOursGo: a person works on the file between install and uninstall.
func TestOnlyOursGo(t *testing.T) {
	group := `{"hooks": [{"type": "command", "command": "c"}]}`
	entry := `{"type": "command", "command": "c"}`
	tests := []struct{ name, before, after string }{
		{"entries around it", `{"hooks": {"Stop": [{"hooks": []}, ` + group + `, {"hooks": [{"command": "x"}]}]}}`, `{"hooks": {"Stop": [{"hooks": []}, {"hooks": [{"command": "x"}]}]}}`},
		{"entries after it", `{"hooks": {"Stop": [` + group + `,  {"matcher": "", "hooks": []}]}}`, `{"hooks": {"Stop": [{"matcher": "", "hooks": []}]}}`},
		{"another in its group", `{"hooks": {"Stop": [{"hooks": [` + entry + `, {"command": "x"}]}]}}`, `{"hooks": {"Stop": [{"hooks": [{"command": "x"}]}]}}`},
		{"a matcher in its group", `{"hooks": {"Stop": [{"matcher": "startup", "hooks": [` + entry + `]}]}}`, `{"hooks": {"Stop": [{"matcher": "startup", "hooks": []}]}}`},
		{"another event after it", `{"hooks": {"Stop": [` + group + `], "X": []}, "a": 1}`, `{"hooks": {"X": []}, "a": 1}`},
		{"another event before it", `{"hooks": {"X": [], "Stop": [` + group + `]}, "a": 1}`, `{"hooks": {"X": []}, "a": 1}`},
		{"a member after it", `{"hooks": {"Stop": [` + group + `]}, "a": 1}`, `{"a": 1}`},
		{"several times", `{"a":1,"hooks":{"X":[` + group + `,` + group + `],"Stop":[` + group + `]}}`, `{"a":1}`},
		{"a member in a marked file", "{ \n  \"hooks\": {\"Stop\": [" + group + "]},\n  \"a\": 1\n}\n", "{\n  \"a\": 1\n}\n"},
		{"reformatted", "{\n  \"hooks\": {\n    \"Stop\": [\n      " + group + "\n    ]\n  }\n}\n", "{}\n"},
		{"odd events beside it", `{"hooks": {"A": 1, "B": ["s", {"hooks": {}}, {}], "Stop": [7, ` + group + `]}}`, `{"hooks": {"A": 1, "B": ["s", {"hooks": {}}, {}], "Stop": [7]}}`},
		{"a version in a claude file", `{"hooks": {"Stop": [` + group + `]}, "version": 1}`, `{"version": 1}`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			path := scratch(t, tt.before)
			changed, err := Uninstall(path, Claude, "c")
			if err != nil || !changed {
				t.Fatalf("Uninstall: %v, %v", changed, err)
			}
			if diff := cmp.Diff(tt.after, content(t, path)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestAnEventThatHasItIsLeftAlone(t *testing.T) {
	text := `{"hooks": {"Stop": [{"matcher": "x", "hooks": [{"command": "\u0063", "timeout": 99}]}]}}`
	path := scratch(t, text)
	if changed, err := Install(path, Claude, []string{"Stop"}, "c", time.Second); err != nil || changed {
		t.Errorf("Install: %v, %v", changed, err)
	}
	if got := content(t, path); got != text {
		t.Errorf("changed to %s", got)
	}
}

func TestVersionComesAndGoesWithTheHooks(t *testing.T) {
	for _, form := range []Form{Cursor, Copilot} {
		for text, want := range map[string]bool{
			"":                                   true,
			"{}\n":                               true,
			"{\n  \"a\": 1\n}":                   true,
			`{"version":1}`:                      true,
			"{\"version\": 1, \"hooks\": {}}":    true,
			"{\"hooks\": {}, \"version\": 1}":    true,
			`{"hooks":{"x":[{"command":"y"}]}}`:  false, // a person's own affair
			"{\"version\": 2, \"x\": [1, 2, 3]}": true,
		} {
			path := scratch(t, text)
			install(t, path, form, true)
			var now struct{ Version *int }
			decode(t, content(t, path), &now)
			if got := now.Version != nil; got != want {
				t.Errorf("form %d, %q: version %v, want %v", form, text, got, want)
			}
			uninstall(t, path, form, true)
			if got := content(t, path); got != text {
				t.Errorf("form %d: %q became %q", form, text, got)
			}
		}
	}
}

func TestTimeouts(t *testing.T) {
	tests := []struct {
		form Form
		d    time.Duration
		want string
	}{
		{Claude, 0, ""}, {Claude, -time.Second, ""}, {Claude, time.Millisecond, `"timeout": 1`}, {Claude, 90 * time.Second, `"timeout": 90`},
		{Gemini, 90 * time.Second, `"timeout": 90000`},
		// Newer versions of qwen take anything less for seconds.
		{Gemini, 20 * time.Millisecond, `"timeout": 1000`},
		{Copilot, 1001 * time.Millisecond, `"timeoutSec": 2`},
	}
	for _, tt := range tests {
		path := filepath.Join(t.TempDir(), "s.json")
		if _, err := Install(path, tt.form, []string{"e"}, "c", tt.d); err != nil {
			t.Fatal(err)
		}
		text := content(t, path)
		if tt.want == "" && strings.Contains(text, "timeout") || !strings.Contains(text, tt.want+"\n") {
			t.Errorf("%d, %v: want %s in\n%s", tt.form, tt.d, tt.want, text)
		}
	}
}

func TestRefusedUntouched(t *testing.T) {
	tests := []struct {
		name, text string
		want       error
	}{
		{"a comment", "{\n  // mine\n  \"a\": 1\n}", ErrMalformed},
		{"a trailing comma", `{"a": 1,}`, ErrMalformed},
		{"torn", `{"a": {"b": `, ErrMalformed},
		{"torn at the end", `{"a": 1`, ErrMalformed},
		{"two values", `{} {}`, ErrMalformed},
		{"text after it", `{} x`, ErrMalformed},
		{"a duplicate", `{"a": 1, "\u0061": 2}`, ErrMalformed},
		{"a nested duplicate", `{"z": [{"a": 1, "a": 2}]}`, ErrMalformed},
		{"a byte order mark", "\ufeff{}", ErrMalformed},
		{"only a byte order mark", "\ufeff", ErrMalformed},
		{"UTF-16", "{\x00}\x00", ErrMalformed},
		{"not UTF-8", "{\"a\": \"\xff\"}", ErrMalformed},
		{"a lone surrogate", `{"a": "\ud800"}`, ErrMalformed},
		{"a NUL", "{}\x00", ErrMalformed},
		{"endless nesting", strings.Repeat("[", 200_000), ErrMalformed},
		{"a list", `[]`, ErrShape},
		{"null", `null`, ErrShape},
		{"a string", `"hooks"`, ErrShape},
		{"hooks that are null", `{"hooks": null}`, ErrShape},
		{"hooks that are a list", `{"hooks": []}`, ErrShape},
		{"hooks that are true", `{"hooks": true}`, ErrShape},
		{"an event that is an object", `{"hooks": {"Stop": {}}}`, ErrShape},
		{"an event that is null", `{"hooks": {"SessionEnd": null}}`, ErrShape},
		{"a group that is a string", `{"hooks": {"Stop": ["x"]}}`, ErrShape},
		{"a group without hooks", `{"hooks": {"Stop": [{"matcher": ""}]}}`, ErrShape},
		{"a group with an object", `{"hooks": {"Stop": [{"hooks": {}}]}}`, ErrShape},
		{"an entry that is a string", `{"hooks": {"Stop": [{"hooks": ["x"]}]}}`, ErrShape},
		{"too large", "{}" + strings.Repeat(" ", MaxFile), ErrTooLarge},
		{"too large with it", "{}" + strings.Repeat(" ", MaxFile-10), ErrTooLarge},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			path := scratch(t, tt.text)
			before, err := os.Stat(path)
			if err != nil {
				t.Fatal(err)
			}
			changed, err := Install(path, Claude, someEvents, ours, time.Second)
			if !errors.Is(err, tt.want) || changed {
				t.Errorf("Install: %v, %v; want %v", changed, err, tt.want)
			}
			if pe := (*fs.PathError)(nil); !errors.As(err, &pe) || pe.Path != path {
				t.Errorf("the error %v does not name the file", err)
			}
			after, err := os.Stat(path)
			if err != nil {
				t.Fatal(err)
			}
			if !os.SameFile(before, after) || content(t, path) != tt.text {
				t.Error("the file was touched")
			}
			if names, _ := filepath.Glob(filepath.Join(filepath.Dir(path), "*")); len(names) != 1 {
				t.Errorf("files: %v", names)
			}
		})
	}
}

func TestBadArguments(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.json")
	for _, err := range []error{
		second(Install(path, Claude, nil, "", 0)),
		second(Install(path, Claude, []string{""}, "c", 0)),
		second(Install(path, Claude, []string{"e\xff"}, "c", 0)),
		second(Install(path, Claude, nil, "c\xff", 0)),
		second(Uninstall(path, Claude, "")),
	} {
		if !errors.Is(err, fs.ErrInvalid) {
			t.Errorf("error %v, want fs.ErrInvalid", err)
		}
	}
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("made a file: %v", err)
	}
}

func second[A any](_ A, err error) error { return err }

func TestRuntimesWithoutSettings(t *testing.T) {
	for _, runtime := range []string{"opencode", "amp", "aider", "", "Claude"} {
		form, err := FormOf(runtime)
		if !errors.Is(err, ErrNoSettings) || form != 0 {
			t.Errorf("FormOf(%q) = %v, %v", runtime, form, err)
		}
		path := filepath.Join(t.TempDir(), "d", "s.json")
		if _, err := Install(path, form, someEvents, ours, 0); !errors.Is(err, ErrNoSettings) {
			t.Errorf("Install: %v", err)
		}
		if _, err := Uninstall(path, form, ours); !errors.Is(err, ErrNoSettings) {
			t.Errorf("Uninstall: %v", err)
		}
		if _, err := Installed(path, form, ours); !errors.Is(err, ErrNoSettings) {
			t.Errorf("Installed: %v", err)
		}
		if _, err := os.Lstat(filepath.Dir(path)); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("made a folder: %v", err)
		}
	}
	forms := map[string]Form{"claude": Claude, "codex": Claude, "gemini": Gemini, "qwen": Gemini, "cursor-agent": Cursor, "copilot": Copilot}
	for runtime, want := range forms {
		if form, err := FormOf(runtime); err != nil || form != want {
			t.Errorf("FormOf(%q) = %v, %v", runtime, form, err)
		}
	}
}

func TestMissingFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "new", "folder", "settings.json")
	if changed, err := Uninstall(path, Claude, ours); changed || err != nil {
		t.Errorf("Uninstall: %v, %v", changed, err)
	}
	if events, err := Installed(path, Claude, ours); len(events) > 0 || err != nil {
		t.Errorf("Installed: %v, %v", events, err)
	}
	if _, err := os.Lstat(filepath.Dir(path)); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("a look made the folder: %v", err)
	}
	install(t, path, Claude, true)
	uninstall(t, path, Claude, true)
	if got := content(t, path); got != "{}\n" {
		t.Errorf("left %q", got)
	}
}
