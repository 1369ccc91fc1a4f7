//go:build unix

package tmux

import (
	"context"
	"errors"
	"strings"
	"testing"
)

// An error names the command line, which may be logged, and no value of a variable in it:
// neither where a variable is an argument nor within a guarded dispatch.
func TestErrorHoldsNoEnvironmentValues(t *testing.T) {
	t.Parallel()
	s := fakeServer(t, "say:no such thing")
	ctx := context.Background()
	// An odd value, since it is quoted within a branch.
	launch := Start{Command: []string{"a", "b"}, Env: []string{"KEY=s3cret \"one\"; $x", "OTHER=s3cret"}}
	for name, call := range map[string]func() error{
		"new session": func() error { return second(s.NewSession(ctx, SessionOptions{Name: "a", Start: launch})) },
		"respawn": func() error {
			return second(s.Do(ctx, Guard{Server: ServerID{PID: 1}, Pane: "%0", PID: 1}, Respawn(launch)))
		},
		"respawn behind another action": func() error {
			return second(s.Do(ctx, Guard{Server: ServerID{PID: 1}, Pane: "%0", PID: 1}, Set("@a", "x"), Respawn(launch)))
		},
	} {
		err := call()
		var e *Error
		if !errors.As(err, &e) || len(e.Args) == 0 {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if said := strings.Join(e.Args, "\n") + err.Error(); strings.Contains(said, "s3cret") {
			t.Errorf("%s: %q", name, said)
		}
	}
}
