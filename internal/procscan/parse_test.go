package procscan

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// statText is a stat line as the kernel writes it.
func statText(p Proc, flags uint64) string {
	return fmt.Sprintf("%d (%s) %c %d 7 7 %d -1 %d 1 2 3 4 %d 0 5 6 20 0 %d 0 %d 1000 10 18446744073709551615 1 2 3 4 5 0 0 0 0 0 0 0 17 1 0 0 0 0 0 8 9 10 11 12 100 200 0\n",
		p.PID, p.Comm, p.State, p.PPID, p.TTY, flags, p.Ticks, p.Threads, p.Start)
}

func TestStatLineCountsFromTheLastParenthesis(t *testing.T) {
	for _, comm := range []string{"sleep", "", "a b", ")", "x) S 1 1 1", "(", "a\nb", "\xff\xfe)", "((()))", "1 (2) R 3"} {
		want := Proc{PID: 42, Comm: comm, State: 'S', PPID: 7, TTY: 34816, Ticks: 99, Threads: 3, Start: 123456}
		st, got, err := parseStat([]byte(statText(want, 0x400000)))
		if err != nil {
			t.Errorf("%q: %v", comm, err)
			continue
		}
		st.Comm = string(got)
		if diff := cmp.Diff(want, st.Proc); diff != "" {
			t.Errorf("%q: -want +got\n%s", comm, diff)
		}
		if st.envStart != 100 || st.envEnd != 200 {
			t.Errorf("%q: environment at %d to %d", comm, st.envStart, st.envEnd)
		}
	}
}

func TestStatLineFlags(t *testing.T) {
	for flags, want := range map[uint64][2]bool{
		0x00400000:                {false, false},
		kernelThread:              {true, false},
		exiting:                   {false, true},
		0x10208140 | kernelThread: {true, false},
	} {
		st, _, err := parseStat([]byte(statText(Proc{PID: 1, State: 'S'}, flags)))
		if got := [2]bool{st.Kernel, st.exiting}; err != nil || got != want {
			t.Errorf("flags %#x: kernel, exiting = %v, %v; want %v", flags, got, err, want)
		}
	}
}

func TestStatLineDamaged(t *testing.T) {
	good := statText(Proc{PID: 42, Comm: "sleep", State: 'S', Threads: 1, Start: 5}, 0)
	if _, _, err := parseStat([]byte(good)); err != nil {
		t.Fatal(err)
	}
	short := strings.Join(strings.Fields(good)[:21], " ")
	for name, line := range map[string]string{
		"empty":                 "",
		"NUL filled":            strings.Repeat("\x00", 200),
		"no parenthesis":        "42 sleep S 1 2 3",
		"closed before opened":  "42 )sleep( S 1",
		"no pid":                strings.TrimPrefix(good, "42"),
		"pid zero":              strings.Replace(good, "42", "0", 1),
		"pid too large":         strings.Replace(good, "42", "2147483648", 1),
		"torn before the ticks": short,
		"torn in the name":      good[:6],
		"two spaces":            strings.Replace(good, " S ", " S  ", 1),
		"long state":            strings.Replace(good, " S ", " SS ", 1),
		"ticks not a number":    strings.Replace(good, " 5 1000", " 5x 1000", 1),
		"ticks too large":       strings.Replace(good, " 5 1000", " 18446744073709551616 1000", 1),
		"negative ticks":        strings.Replace(good, " 5 1000", " -5 1000", 1),
	} {
		if st, _, err := parseStat([]byte(line)); !errors.Is(err, errStat) {
			t.Errorf("%s: %+v, %v", name, st, err)
		}
	}
	// All up to the start ticks is enough: older kernels write fewer fields.
	if st, _, err := parseStat([]byte(short + " 77")); err != nil || st.Start != 77 {
		t.Errorf("22 fields: %+v, %v", st, err)
	}
}

func TestTerminalNumberIsSigned(t *testing.T) {
	for _, tty := range []int32{0, 1024, -1, math.MaxInt32, math.MinInt32} {
		st, _, err := parseStat([]byte(statText(Proc{PID: 1, State: 'S', TTY: tty}, 0)))
		if err != nil || st.TTY != tty {
			t.Errorf("tty %d: %d, %v", tty, st.TTY, err)
		}
	}
}

func TestGone(t *testing.T) {
	for _, c := range []struct {
		state   byte
		threads int
		want    bool
	}{
		{'R', 1, false}, {'S', 1, false}, {'D', 1, false}, {'T', 1, false}, {'t', 1, false}, {'I', 1, false},
		{'Z', 1, true}, {'X', 1, true}, {'x', 1, true}, {'X', 0, true},
		{'Z', 2, false}, // only its first thread has ended
	} {
		if got := (Proc{State: c.state, Threads: c.threads}).Gone(); got != c.want {
			t.Errorf("state %c with %d threads: Gone %v", c.state, c.threads, got)
		}
	}
	if (Proc{}).Gone() {
		t.Error("the zero Proc is gone")
	}
}

func TestCommandLineIsSplitAtNUL(t *testing.T) {
	for _, c := range []struct {
		text string
		want []string
	}{
		{"", nil},
		{"\x00", []string{""}},
		{"a\x00", []string{"a"}},
		{"a\x00b c\x00", []string{"a", "b c"}},
		{"a\x00\x00\x00", []string{"a", "", ""}},
		{"\x00a\x00", []string{"", "a"}},
		{"tmux: server", []string{"tmux: server"}},
		{"a\x00b", []string{"a", "b"}},
		{"\xff\xfe\n\x00", []string{"\xff\xfe\n"}},
	} {
		got, cut := splitArgs(c.text)
		if cut || !slices.Equal(got, c.want) || (got == nil) != (c.want == nil) {
			t.Errorf("%q: %q, cut %v; want %q", c.text, got, cut, c.want)
		}
	}
	for n, want := range map[int]bool{maxArgs - 1: false, maxArgs: false, maxArgs + 1: true} {
		got, cut := splitArgs(strings.Repeat("x\x00", n))
		if cut != want || len(got) != min(n, maxArgs) {
			t.Errorf("%d arguments: %d kept, cut %v", n, len(got), cut)
		}
	}
}

func TestEnv(t *testing.T) {
	e := Env{"A=1\x00B=x=y\x00EMPTY=\x00noequals\x00=nameless\x00A=2\x00XA=3\x00N=a\nA=4\x00\xff=\xfe\x00LAST=unended"}
	for name, want := range map[string]string{"A": "1", "B": "x=y", "EMPTY": "", "XA": "3", "N": "a\nA=4", "\xff": "\xfe", "LAST": "unended"} {
		if got, ok := e.Lookup(name); !ok || got != want {
			t.Errorf("%q: %q, %v; want %q", name, got, ok, want)
		}
	}
	for _, name := range []string{"", "noequals", "C", "B=x", "A=1", "1", "EMPT", "MPTY", "A\x00B"} {
		if got, ok := e.Lookup(name); ok {
			t.Errorf("%q: found as %q", name, got)
		}
	}
	var names []string
	for name := range e.All() {
		names = append(names, name)
	}
	if want := []string{"A", "B", "EMPTY", "A", "XA", "N", "\xff", "LAST"}; !slices.Equal(names, want) {
		t.Errorf("All: %q", names)
	}
	for range e.All() {
		break // must be allowed
	}
	if _, ok := (Env{}).Lookup("A"); ok {
		t.Error("the zero Env has a variable")
	}
}

// FuzzStatLine: whatever a line holds, a line that parses keeps its numbers when it is
// written again with any name in it.
func FuzzStatLine(f *testing.F) {
	f.Add([]byte(statText(Proc{PID: 42, Comm: "a) S (b", State: 'S', Threads: 1, Start: 5}, 0)), []byte("x) 1"))
	f.Add([]byte("1 () S 0"), []byte(""))
	f.Add([]byte("1 (a) Z 0 0 0 -1 0 4228100 0 0 0 0 0 0 0 0 20 0 2 0 99"), []byte("\n\xff"))
	f.Fuzz(func(t *testing.T, line, name []byte) {
		st, comm, err := parseStat(line)
		if err != nil {
			if st, _, again := parseStat(line); again == nil {
				t.Fatalf("parsed the second time: %+v", st)
			}
			return
		}
		if !bytes.Contains(line, comm) || st.PID <= 0 || st.PPID < 0 {
			t.Fatalf("%q: %+v, name %q", line, st, comm)
		}
		flags := uint64(0)
		if st.Kernel {
			flags |= kernelThread
		}
		if st.exiting {
			flags |= exiting
		}
		want := st.Proc
		want.Comm = string(name)
		again, comm, err := parseStat([]byte(statText(want, flags)))
		if err != nil {
			t.Fatalf("%q written as %q: %v", line, statText(want, flags), err)
		}
		again.Comm = string(comm)
		if diff := cmp.Diff(want, again.Proc); diff != "" {
			t.Fatalf("%q: -want +got\n%s", line, diff)
		}
	})
}

// FuzzCommandLine: nothing but NUL bytes is lost, and within the bounds not even those.
func FuzzCommandLine(f *testing.F) {
	f.Add("sleep\x00100\x00")
	f.Add("\x00\x00a")
	f.Add(strings.Repeat("\x00", maxArgs+1))
	f.Fuzz(func(t *testing.T, text string) {
		args, cut := splitArgs(text)
		joined := strings.Join(args, "\x00")
		if cut {
			if len(args) != maxArgs || !strings.HasPrefix(text, joined+"\x00") {
				t.Fatalf("%q: cut to %q", text, args)
			}
			return
		}
		if args != nil && text != joined && text != joined+"\x00" || args == nil && text != "" {
			t.Fatalf("%q: %q", text, args)
		}
	})
}

// FuzzEnviron: Lookup finds the first variable of each name that All yields, and no other.
func FuzzEnviron(f *testing.F) {
	f.Add("A=1\x00B=2\x00A=3\x00", "A")
	f.Add("AA=1\x00=\x00\x00A", "A")
	f.Add("A=B=1\x00B=2", "B")
	f.Fuzz(func(t *testing.T, block, other string) {
		e := Env{block}
		first := map[string]string{}
		for name, value := range e.All() {
			if _, ok := first[name]; !ok {
				first[name] = value
			}
			if !strings.Contains(block, name+"="+value) {
				t.Fatalf("%q: invented %q=%q", block, name, value)
			}
		}
		names := []string{other}
		for name := range first {
			names = append(names, name)
		}
		for _, name := range names {
			want, has := first[name]
			if got, ok := e.Lookup(name); got != want || ok != has {
				t.Fatalf("%q: %q is %q, %v; want %q, %v", block, name, got, ok, want, has)
			}
		}
	})
}
