package ledger

import "testing"

// An idle pass without rows in tmux starts no child process at all.
func TestAnIdleSweepStartsNoProcess(t *testing.T) {
	s := sweepStore(t, nil)
	live, _ := startAgent(t, hooked)
	if _, err := s.Create(t.Context(), Entry{LedgerID: "live", Runtime: hooked, RepoRoot: t.TempDir()}, Enrol(live, Location{})); err != nil {
		t.Fatal(err)
	}
	deadRow(t, s, "orphan", hooked, otherTicks(1), rescued, func(e *Entry) { e.SessionID = "c" })
	mustSweep(t, s, SweepOptions{}) // settles what is new
	git, tmux := fakeTool(t, "git", "exit 1"), fakeTool(t, "tmux", "exit 1")
	if rep := mustSweep(t, s, SweepOptions{}); len(about(rep.Warnings)) > 0 {
		t.Errorf("%v", rep.Warnings)
	}
	if git() != 0 || tmux() != 0 {
		t.Errorf("git ran %d times, tmux %d times", git(), tmux())
	}
}
