package ledger

import (
	"os/exec"
	"testing"

	"github.com/sessionledger/ledger/tmux"
)

// What a listing of another server shows is no evidence of where this one's processes are.
func TestAPaneIsFoundInTheListingOfItsOwnServerAlone(t *testing.T) {
	listing := tmux.Listing{Server: tmux.ServerID{PID: 7, StartTicks: 70}, Panes: []tmux.Pane{
		{ID: "%0", PID: 10, Session: "dead", Window: "w0", Dead: true}, {ID: "%1", PID: 10, Session: "s", Window: "w1"},
	}}
	for _, tt := range []struct {
		name   string
		server int
		pids   []int
		ok     bool
	}{
		{"its own", 7, []int{12, 11, 10}, true},
		{"another server's", 8, []int{12, 11, 10}, false},
		{"no server's", 0, []int{10}, false},
		{"of no process above", 7, []int{12, 11}, false},
	} {
		session, window, pane, ok := paneIn(listing, tt.server, tt.pids)
		if ok != tt.ok || ok && (session != "s" || window != "w1" || pane != "%1") || !ok && session+window+pane != "" {
			t.Errorf("%s: %q %q %q, %v", tt.name, session, window, pane, ok)
		}
	}
}

// An agent that outlives its pane is alive, whatever its server says of the pane.
func TestAnAgentWhosePaneWasKilledIsAliveAndUnreachable(t *testing.T) {
	b := newBed(t)
	ready := b.home + "/ready"
	e := b.launch(LaunchOptions{Runtime: "claude", Argv: []string{"sh", "-c", "trap '' HUP; : > " + ready + "; while :; do sleep 1; done"}})
	await(t, "the agent to ignore the signal", func() bool { return fileExists(ready) })
	defer b.kill(e.Process())
	own := func(args ...string) {
		t.Helper()
		if out, err := exec.Command("tmux", append([]string{"-S", e.Mux.Socket}, args...)...).CombinedOutput(); err != nil {
			t.Fatalf("%q: %v: %s", args, err, out)
		}
	}
	own("new-window", "-d", "exec sleep 1000") // or the server would end with its last pane
	if st := b.status(e.LedgerID); st.Mux != MuxDetached || st.State != LivenessDetached {
		t.Fatalf("before: %+v", st)
	}
	own("kill-pane", "-t", e.PaneID)
	l, err := (tmux.Server{Socket: e.Mux.Socket}).List(t.Context())
	if err != nil || l.HasPane(serverID(e.PaneServer), e.PaneID) != tmux.Absent {
		t.Fatalf("its server says that the pane is there: %v, %+v", err, l)
	}
	if st := b.status(e.LedgerID); st.Mux != MuxUnreachable || st.State != LivenessIdle && st.State != LivenessWorking {
		t.Errorf("after: %s, %s, %s", st.Mux, st.State, st.Reason)
	}
}
