package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/lockedfile"

	"github.com/sessionledger/ledger"
)

// sentinels are all sentinel errors of package ledger, and the status of each.
var sentinels = map[string]struct {
	err    error
	status int
}{
	"ErrInvalid":          {ledger.ErrInvalid, 2},
	"ErrBusy":             {ledger.ErrBusy, 3},
	"ErrNotFound":         {ledger.ErrNotFound, 4},
	"ErrIllegal":          {ledger.ErrIllegal, 5},
	"ErrExists":           {ledger.ErrExists, 5},
	"ErrKillIntended":     {ledger.ErrKillIntended, 5},
	"ErrConversationHeld": {ledger.ErrConversationHeld, 5},
	"ErrConflict":         {ledger.ErrConflict, 6},
	"ErrStaleNonce":       {ledger.ErrStaleNonce, 6},
	"ErrSessionMismatch":  {ledger.ErrSessionMismatch, 7},
	"ErrLeaseHeld":        {ledger.ErrLeaseHeld, 8},
	"ErrDamaged":          {ledger.ErrDamaged, 9},
	"ErrUnfinished":       {ledger.ErrUnfinished, 1},
	"ErrUnknown":          {ledger.ErrUnknown, 10},
	"ErrInsecureRoot":     {ledger.ErrInsecureRoot, 11},
	"ErrSchemaTooNew":     {ledger.ErrSchemaTooNew, 11},
}

func statusOf(err error) int { return newApp(nil, io.Discard, io.Discard).exit(err) }

func TestEachSentinelHasOneStatus(t *testing.T) {
	for name, s := range sentinels {
		if got := statusOf(fmt.Errorf("ledger: somewhere: %w", s.err)); got != s.status {
			t.Errorf("%s exits %d, want %d", name, got, s.status)
		}
		rows := 0
		for _, row := range statuses {
			if row.err == s.err {
				rows++
			}
		}
		if rows != 1 {
			t.Errorf("%s is in %d rows of the table", name, rows)
		}
	}
}

// A sentinel that is added to the library must be added here, and so to the table.
func TestNoSentinelIsForgotten(t *testing.T) {
	files, err := filepath.Glob("../../*.go")
	if err != nil || len(files) == 0 {
		t.Fatalf("no sources: %v", err)
	}
	found := map[string]bool{}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, decl := range file.Decls {
			group, ok := decl.(*ast.GenDecl)
			if !ok || group.Tok != token.VAR {
				continue
			}
			for _, spec := range group.Specs {
				for _, id := range spec.(*ast.ValueSpec).Names {
					if strings.HasPrefix(id.Name, "Err") {
						found[id.Name] = true
					}
				}
			}
		}
	}
	if len(found) < 10 {
		t.Fatalf("only %d sentinels in the sources: %v", len(found), found)
	}
	for name := range found {
		if _, ok := sentinels[name]; !ok {
			t.Errorf("%s has no status here", name)
		}
	}
	for name := range sentinels {
		if !found[name] {
			t.Errorf("%s is no sentinel of the library", name)
		}
	}
}

// Typed errors carry more than one sentinel; the most telling counts.
func TestStatusOfTypedErrors(t *testing.T) {
	for _, tt := range []struct {
		err  error
		want int
	}{
		{nil, 0},
		{errors.New("anything"), 1},
		{context.Canceled, 1},
		{fs.ErrPermission, 1},
		{fmt.Errorf("%w: no command", errUsage), 2},
		{&ledger.DamagedError{ID: "x", Err: fs.ErrNotExist}, 9},
		{&ledger.LockTimeoutError{Path: "locks/000", Err: context.DeadlineExceeded}, 3},
		{&ledger.ProtectedFieldError{Field: "pid"}, 2},
		{&ledger.ResumeError{ID: "x", Err: ledger.ErrConversationHeld}, 5},
		{&ledger.RefusedError{Err: ledger.ErrLeaseHeld}, 8},
		{&ledger.IllegalTransitionError{}, 5},
		{&ledger.UnfinishedKillError{Err: ledger.ErrUnknown}, 1},
		{errors.Join(ledger.ErrLeaseHeld, ledger.ErrUnknown), 8},
	} {
		if got := statusOf(tt.err); got != tt.want {
			t.Errorf("%v exits %d, want %d", tt.err, got, tt.want)
		}
	}
}

// A lock that is held for too long is no failure of the session: busy, with its holder.
func TestHeldLockIsBusy(t *testing.T) {
	dir := t.TempDir()
	s, err := ledger.Open(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	p, err := ledger.Self()
	if err != nil {
		t.Skipf("no process can be identified here: %v", err)
	}
	e, err := s.Create(t.Context(), ledger.Entry{Runtime: "claude"}, ledger.BeginCreate(p))
	if err != nil {
		t.Fatal(err)
	}
	locks, err := filepath.Glob(filepath.Join(dir, "locks", "*"))
	if err != nil || len(locks) == 0 {
		t.Fatalf("no lock files: %v", err)
	}
	for _, path := range locks {
		f, err := lockedfile.Edit(path)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	var out, errs bytes.Buffer
	got := run(ctx, []string{"ledgerctl", "-dir", dir, "kill", e.LedgerID}, strings.NewReader(""), &out, &errs)
	if got != exitBusy || out.Len() > 0 || !strings.Contains(errs.String(), fmt.Sprintf("held by process %d", os.Getpid())) {
		t.Errorf("exit %d, %q, %q", got, &out, &errs)
	}
}
