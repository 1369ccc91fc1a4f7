package tmux

import (
	"errors"
	"slices"
	"testing"
)

func TestAttachArgs(t *testing.T) {
	got, err := Server{Socket: "/run/s"}.AttachArgs("w 1;")
	if want := []string{"tmux", "-u", "-S", "/run/s", "attach-session", "-t", `=w 1\;`}; err != nil || !slices.Equal(got, want) {
		t.Errorf("%q %v, want %q", got, err, want)
	}
	for _, name := range []string{"", "$1", "a\x00b", "a:0", "a.0", ":"} {
		if got, err := (Server{Socket: "/run/s"}).AttachArgs(name); !errors.Is(err, ErrInvalid) {
			t.Errorf("%q: %q %v", name, got, err)
		}
	}
	if _, err := (Server{Socket: "relative"}).AttachArgs("w"); !errors.Is(err, ErrInvalid) {
		t.Errorf("relative socket: %v", err)
	}
}
