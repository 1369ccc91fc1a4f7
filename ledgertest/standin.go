package ledgertest

import (
	"os/exec"
	"testing"

	"github.com/sessionledger/ledger/internal/standin"
)

// Marker is the environment variable by which a process is known as one that an
// isolated test started. Its value is the test's own.
const Marker = standin.Marker

// An Agent is a stand-in that runs, driven through pipes.
type Agent = standin.Agent

// Isolate gives a test an environment of its own, and returns its HOME: a new
// folder, as are the XDG folders below it and TMUX_TMPDIR, all with short paths
// since sockets have few bytes for theirs. git sees no settings of the machine's
// or a person's, and has an author. Variables of agent CLIs, of this library, of
// git and of multiplexers are unset.
//
// When the test ends all is put back, and [Clean] has its say. A test that runs
// in parallel cannot be isolated, as with [testing.T.Setenv].
func Isolate(t testing.TB) (home string) { t.Helper(); return standin.Isolate(t) }

// Clean fails the test where something that it started since [Isolate] still
// runs, and kills it: processes that bear its [Marker] (on Linux; others are not
// told), the test's own excepted, and tmux servers with a socket in its
// TMUX_TMPDIR. What is about to end is given some seconds. Isolate calls it at
// the test's end.
func Clean(t testing.TB) { t.Helper(); standin.Clean(t) }

// Await waits until cond reports true, for a minute at most, then fails the test
// and says what it waited for. It must be called from the test's goroutine.
func Await(t testing.TB, what string, cond func() bool) { t.Helper(); standin.Await(t, what, cond) }

// Main runs the tests of a package and keeps what they share until the last has
// ended: for TestMain, as os.Exit(ledgertest.Main(m)). Without it the stand-in
// is built anew for each test that asks for it while no other does.
func Main(m *testing.M) int { return standin.Main(m) }

// Runtimes are the names under which the stand-in knows how to behave.
func Runtimes() []string { return standin.Runtimes() }

// BuildAgent builds the stand-in and returns a folder in which it has the name
// of every CLI in [Runtimes], and of "agent" itself: a folder for the front of
// PATH. All tests of the process share it.
func BuildAgent(t testing.TB) string { t.Helper(); return standin.BuildAgent(t) }

// Command returns the command of the stand-in as that CLI, with those
// arguments, in the test's working directory and environment. It is for [Start],
// or to be run in a terminal.
func Command(t testing.TB, runtime string, args ...string) *exec.Cmd {
	t.Helper()
	return standin.Command(t, runtime, args...)
}

// Start starts a command of [Command] and waits for nothing. The agent is ended
// with the test: by the end of its input, and if that does not help by a kill.
func Start(t testing.TB, cmd *exec.Cmd) *Agent { t.Helper(); return standin.Start(t, cmd) }
