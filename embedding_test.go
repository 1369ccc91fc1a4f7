package ledger_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"strings"
	"testing"

	"github.com/sessionledger/ledger"
)

// list is the code of the README and of the package's documentation.
func list(ctx context.Context) error {
	store, err := ledger.Open("", nil)
	if err != nil {
		return err
	}
	defer store.Close()

	for s, err := range store.Sessions(ctx, nil) {
		var damaged *ledger.DamagedError
		if errors.As(err, &damaged) {
			log.Print(damaged) // one bad row never stops the others
			continue
		}
		if err != nil {
			return err
		}
		fmt.Println(s.Entry.LedgerID, s.Status.State, s.Status.Title)
	}
	return nil
}

// sweepAndList is the first embedding of a program that also keeps the record true.
func sweepAndList(ctx context.Context, toast func(context.Context, []ledger.Edge) error) error {
	store, err := ledger.Open("", nil)
	if err != nil {
		return err
	}
	defer store.Close()

	if _, err := ledger.Sweep(ctx, store, ledger.SweepOptions{Notify: toast}); err != nil {
		return err
	}
	for s, err := range store.Sessions(ctx, nil) {
		var damaged *ledger.DamagedError
		if errors.As(err, &damaged) {
			log.Print(damaged)
			continue
		}
		if err != nil {
			return err
		}
		fmt.Println(s.Entry.LedgerID, s.Status.State, s.Status.Title)
	}
	return nil
}

// TestDocumentedCodeCompiles: what README and package documentation show is the code of
// this file, which the compiler has seen, and it runs.
func TestDocumentedCodeCompiles(t *testing.T) {
	t.Setenv("AGENT_SESSIONS_DIR", t.TempDir())
	t.Setenv("HOME", t.TempDir())
	if err := list(t.Context()); err != nil {
		t.Error(err)
	}
	if err := sweepAndList(t.Context(), nil); err != nil {
		t.Error(err)
	}
	body, ok := between(read(t, "embedding_test.go"), "func list(ctx context.Context) error {\n", "\treturn nil\n}\n")
	if !ok {
		t.Fatal("the code is not in this file")
	}
	shown := strings.ReplaceAll("\n"+body, "\n\t", "\n")
	if code, ok := between(read(t, "README.md"), "```go", "```"); !ok || code != shown {
		t.Errorf("README.md shows\n%s\nwant\n%s", code, shown)
	}
	comment := strings.ReplaceAll(strings.TrimSuffix("\n"+body, "\n"), "\n\t", "\n//\t")
	if comment = strings.ReplaceAll(comment, "\n\n", "\n//\n") + "\n"; !strings.Contains(read(t, "doc.go"), comment) {
		t.Errorf("doc.go does not show\n%s", comment)
	}
}

func read(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func between(s, begin, end string) (string, bool) {
	_, rest, ok := strings.Cut(s, begin)
	found, _, closed := strings.Cut(rest, end)
	return found, ok && closed
}
