package ledger

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"slices"
	"testing"
)

// elsewhere is what a sweep in another time namespace said.
type elsewhere struct {
	Enrolled     []string
	Unverifiable []int
}

var sweepElsewhere = inChild("sweep elsewhere", func(a killedSweep) error {
	s, err := Open(a.Dir, &Options{Runtimes: sweepRuntimes(a.Hooked, a.Hookless), Home: a.Home})
	if err != nil {
		return err
	}
	defer s.Close()
	rep, err := Sweep(context.Background(), s, SweepOptions{})
	if err != nil {
		return err
	}
	said := elsewhere{Enrolled: rep.Enrolled}
	for _, u := range rep.Unverifiable {
		said.Unverifiable = append(said.Unverifiable, u.PID)
	}
	return json.NewEncoder(os.Stdout).Encode(said)
})

// Ticks of another time namespace cannot be compared: a process with a recorded pid may be
// that row's, and gets no second one.
func TestASweepInAnotherTimeNamespaceEnrolsNothingAgain(t *testing.T) {
	unshare, err := exec.LookPath("unshare")
	need(t, err == nil, "unshare")
	in := []string{unshare, "-T", "-f", "--kill-child", "--boottime", "100000"}
	need(t, exec.Command(in[0], append(in[1:], "true")...).Run() == nil, "time namespaces")
	s := sweepStore(t, nil)
	plain, _ := startAgent(t, hooked)
	carrier, _ := startAgent(t, hooked, envID+"="+hooked+"-20260101T000000Z-000001")
	if rep := mustSweep(t, s, SweepOptions{}); len(rep.Enrolled) != 2 {
		t.Fatalf("%+v", rep)
	}
	before := rowsByID(t, s)
	cmd := childCommand(t, sweepElsewhere, killedSweep{Dir: s.root, Home: s.home, Hooked: hooked, Hookless: hookless})
	cmd.Path, cmd.Args = unshare, append(slices.Clone(in), cmd.Path)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	var said elsewhere
	if err := json.Unmarshal(out, &said); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	want := []int{plain.PID, carrier.PID}
	slices.Sort(want)
	slices.Sort(said.Unverifiable)
	if len(said.Enrolled) > 0 || !slices.Equal(said.Unverifiable, want) {
		t.Errorf("%+v, want unverifiable %v", said, want)
	}
	mustSweep(t, s, SweepOptions{})
	after := rowsByID(t, s)
	if len(after) != len(before) {
		t.Errorf("%d rows, were %d", len(after), len(before))
	}
	for id, e := range before {
		if !after[id].Process().Same(e.Process()) || !after[id].IsOpen() {
			t.Errorf("%s: %+v", id, after[id])
		}
	}
}
