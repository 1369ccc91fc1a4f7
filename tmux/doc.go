// Package tmux is a small, exact and bounded client of the tmux binary.
//
//	s := tmux.Server{Socket: "/run/user/1000/work"}
//	pane, err := s.NewSession(ctx, tmux.SessionOptions{Name: "build", Start: tmux.Start{Command: argv, Dir: dir}})
//	...
//	listing, err := s.List(ctx)
//	capture, err := s.Capture(ctx, pane.Guard(), nil)
//	result, err := s.Submit(ctx, pane.Guard(), "run the tests", nil)
//
// It is not a binding of all of tmux: it does what a program needs that must not
// mistake one pane for another, or a failure for an absence.
//
// # Verdicts
//
// "Could not find out" is a value: [Presence] is Unknown, Present or Absent, and
// Unknown is its zero value. A session or pane is Absent only on a complete answer
// of the server, and a server only on tmux's own "no server running", or when its
// socket is missing and [Server.Probe] says that its process is gone. A failed
// listing is an error, never an empty listing, and a timeout does not prove that
// a command did not run.
//
// # Identity
//
// Pane and session ids are unique within one server process, and start again at
// zero in the next: a [ServerID] goes with them. Names are exact. No call sends a
// name to tmux as a target, since a target may match a prefix, an id or a pattern;
// names are looked up in a listing. The command line of [Server.AttachArgs] alone has
// one, as =name. The name to remember is the one reported back.
//
// # Guarded actions
//
// [Server.Do], [Server.Capture] and [Server.Submit] take a [Guard]: server, pane,
// process, and the ledger's stamp and mark. tmux checks it in the dispatch that
// acts, so nothing can come between, and success is proved by a fresh token that
// is written last. Change the mark, and a command that is still on its way from an
// earlier call is harmless.
//
// # Bounds
//
// Each command has a deadline ([DefaultTimeout]), a process group that is killed at
// the deadline, and a bound on its output (16 MiB, captures 64 MiB). No shell is
// involved: commands are argument vectors, also those that run in panes. Text from
// outside never reaches a place where tmux expands formats or runs #(...).
//
// # Requirements
//
// tmux 3.2 or later; VERSIONS.md lists the releases that were tested. An older
// server gives ErrUnsupported. Start times of processes come from /proc and are 0,
// which is unknown, on other systems than Linux.
package tmux
