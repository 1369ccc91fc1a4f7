package ledgertest_test

import (
	"path/filepath"
	"testing"

	"github.com/sessionledger/ledger/ledgertest"
)

// Example is a test of a program that deals with agent sessions; its TestMain
// calls Main.
func Example() {
	_ = func(t *testing.T) {
		home := ledgertest.Isolate(t)
		cmd := ledgertest.Command(t, "claude", "--model", "any")
		cmd.Dir = home
		agent := ledgertest.Start(t, cmd)
		id := agent.Session()
		agent.Send("fix the build")
		agent.Expect("did fix the build")
		agent.Send("/crash") // kill -9: no hook, and the registry's entry stays
		agent.Wait()

		resumed := ledgertest.Command(t, "claude", "--resume", id)
		resumed.Dir = home
		ledgertest.Start(t, resumed).Expect(id)
	}
	// Output:
}

// A test that puts every stand-in in front of the real CLIs.
func ExampleBuildAgent() {
	_ = func(t *testing.T) {
		ledgertest.Isolate(t)
		t.Setenv("PATH", ledgertest.BuildAgent(t)+string(filepath.ListSeparator)+"/usr/bin:/bin")
		// Whatever runs "codex" now runs the stand-in.
	}
	// Output:
}

// TestTheDocsExample is what the package's documentation shows.
func TestTheDocsExample(t *testing.T) {
	home := ledgertest.Isolate(t)
	cmd := ledgertest.Command(t, "claude")
	cmd.Dir = home
	agent := ledgertest.Start(t, cmd)
	agent.Send("fix the build")
	agent.Expect("did fix the build")
	if files, err := filepath.Glob(filepath.Join(home, ".claude", "projects", "*", "*.jsonl")); err != nil || len(files) != 1 {
		t.Errorf("transcripts %v, %v", files, err)
	}
	agent.Send("/crash")
	ledgertest.Await(t, "the process to be gone", agent.Exited)
}
