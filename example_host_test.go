package ledger_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"strings"

	"github.com/sessionledger/ledger"
)

// A hook that runs under no session is no evidence of one. The wiring of a hook command is
// this, and exits 0 whatever comes back.
// A hook's whole main: it ends in a second whatever hangs, prints nothing, and exits with 0.
// In the program itself, which names the default ledger:
//
//	time.AfterFunc(time.Second, func() { os.Exit(0) })
//	if store, err := ledger.Open("", nil); err == nil {
//		_, _ = ledger.HandleHook(context.Background(), store, "claude", os.Stdin, ledger.HookOptions{})
//	}
func ExampleHandleHook() {
	store, done := exampleStore()
	defer done()
	payload := strings.NewReader(`{"hook_event_name":"Stop","session_id":"a"}`)
	result, err := ledger.HandleHook(context.Background(), store, "an-agent", payload, ledger.HookOptions{})
	fmt.Printf("%s %q %v\n", result.Event, result.LedgerID, err)
	// Output: Stop "" <nil>
}

func ExampleInstallHooks() {
	home, err := os.MkdirTemp("", "ledger-example-")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(home)
	opts := ledger.InstallOptions{
		Command: "/usr/local/bin/ledgerctl hook gemini",
		Home:    home, // only for the example: the user's own by default
	}
	for range 2 {
		change, err := ledger.InstallHooks("gemini", opts)
		if err != nil {
			log.Fatal(err)
		}
		path, _ := filepath.Rel(home, change.Path)
		fmt.Println(path, change.Events, change.Changed)
	}
	_, err = ledger.InstallHooks("aider", opts)
	fmt.Println(errors.Is(err, ledger.ErrInvalid))
	// Output:
	// .gemini/settings.json [AfterAgent BeforeAgent Notification SessionEnd SessionStart] true
	// .gemini/settings.json [AfterAgent BeforeAgent Notification SessionEnd SessionStart] false
	// true
}

// A refusal says what is lacking, and its type why.
func ExampleResumeCommand() {
	store, done := exampleStore()
	defer done()
	row := ledger.Entry{LedgerID: "aider-1", Runtime: "aider", SessionID: "a", Cwd: os.TempDir()}
	_, err := ledger.ResumeCommand(context.Background(), store, row)
	var lacks *ledger.ResumeError
	fmt.Println(errors.As(err, &lacks), lacks.Lack)
	// Output: true aider cannot resume a conversation by its id
}

// An agent that no terminal can take down, and a way to look at it.
func ExampleHost_Launch() {
	store, err := ledger.Open("", nil)
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
	host := &ledger.Host{Store: store}
	row, err := host.Launch(context.Background(), ledger.LaunchOptions{Argv: []string{"claude"}, TaskID: "fix the build"})
	if err != nil {
		log.Fatal(err)
	}
	if err := host.Attach(context.Background(), row.LedgerID, ledger.AttachOptions{}); err != nil {
		log.Fatal(err)
	}
}
