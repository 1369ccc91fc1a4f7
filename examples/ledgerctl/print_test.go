package main

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

// hostile are texts that files and programs may hold.
var hostile = []string{
	"", "plain", "\x1b[31mred\x1b[0m", "\x1b]0;title\x07", "\x9b31m", "\u009b31m", "a\nb\tc\rd", "\u202edlrow", "\u2066x\u2069",
	"\u2028\u2029", "\x00\x7f", "\ufeff", "\U000e0041tag", "\xff\xfe", "日本語", "👩‍💻", "e\u0301", "it's $(here) `now` \\ \"q\"", "-n", "~", "*",
}

func FuzzPlainIsOneSafeLine(f *testing.F) {
	for _, s := range hostile {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got := plain(s)
		if !utf8.ValidString(got) || strings.ContainsFunc(got, unsafe) {
			t.Errorf("plain(%q) = %q", s, got)
		}
		if plain(got) != got {
			t.Errorf("plain(%q) = %q, which is not plain", s, got)
		}
		if cut := short(got, 7); width(cut) > 7 || width(got) <= 7 && cut != got {
			t.Errorf("short(%q) = %q of %d columns", got, cut, width(cut))
		}
	})
}

// JSON for a terminal says the same as JSON.
func FuzzEscapedJSONSaysTheSame(f *testing.F) {
	for _, s := range hostile {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		var out bytes.Buffer
		a := newApp(nil, &out, &out)
		if err := a.line(map[string]string{s: s}); err != nil {
			t.Fatal(err)
		}
		line := strings.TrimSuffix(out.String(), "\n")
		if strings.ContainsFunc(line, unsafe) {
			t.Errorf("raw: %q", line)
		}
		var got map[string]string
		if err := json.Unmarshal([]byte(line), &got); err != nil {
			t.Fatal(err)
		}
		// Each byte that is not UTF-8 becomes one replacement character.
		if want := string([]rune(s)); len(got) != 1 || got[want] != want {
			t.Errorf("%q reads %q", s, got)
		}
	})
}

// What is offered for copying means itself to a shell.
func TestQuotedWordsAreTheShells(t *testing.T) {
	sh, err := exec.LookPath("sh")
	if err != nil && os.Getenv("CI") == "true" {
		t.Fatal(err)
	}
	if err != nil {
		t.Skip("needs sh")
	}
	for _, s := range hostile {
		if s = plain(s); s == "" {
			continue
		}
		out, err := exec.Command(sh, "-c", "printf %s "+quote("x"+s)).Output()
		if err != nil || string(out) != "x"+s {
			t.Errorf("quote(%q) = %s gives %q, %v", s, quote(s), out, err)
		}
	}
	if got := quote("git", "-C", "/my repo", ""); got != "git -C '/my repo' ''" {
		t.Errorf("quoted: %s", got)
	}
}

func TestAge(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-time.Second: "0s", 0: "0s", 59 * time.Second: "59s", 3 * time.Minute: "3m", 47 * time.Hour: "47h", 49 * time.Hour: "2d",
	} {
		if got := age(d); got != want {
			t.Errorf("age(%s) = %s, want %s", d, got, want)
		}
	}
}

func TestColumnsAlignWhateverTheirLetters(t *testing.T) {
	var out bytes.Buffer
	a := newApp(nil, &out, &out)
	a.tableOf(&out, 40, []string{"NAME", "B", "LAST"}, [][]cell{
		{{"日本語", ""}, {"x", ""}, {"y", ""}},
		{{"e\u0301te\u0301", "31"}, {"✅ done", ""}, {"and more than there is room for", ""}},
	})
	want := "NAME    B        LAST\n日本語  x        y\ne\u0301te\u0301     ✅ done  and more than there is…\n"
	if got := out.String(); got != want {
		t.Errorf("table:\n%s\nwant:\n%s", got, want)
	}
}
