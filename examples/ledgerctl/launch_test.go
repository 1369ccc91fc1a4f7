package main

import (
	"os"
	"path/filepath"
	"testing"
)

func TestTmuxKnowsOnlyDescribedTerminals(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TERMINFO", dir)
	t.Setenv("HOME", t.TempDir())
	if err := os.Mkdir(filepath.Join(dir, "z"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "z", "zterm"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for term, want := range map[string]bool{"zterm": true, "zother": false, "": false, "dumb": false, "../z/zterm": false} {
		if got := tmuxKnows(term); got != want {
			t.Errorf("%q: %v", term, got)
		}
	}
}
