// Package ledgertest helps to test programs that deal with agent sessions: a
// home and a ledger of their own, a stand-in for every agent CLI, a clock to
// turn, and checks that the ledger keeps its rules and nothing is left running.
//
//	func TestMain(m *testing.M) { os.Exit(ledgertest.Main(m)) }
//
//	func TestSession(t *testing.T) {
//		home := ledgertest.Isolate(t)
//		cmd := ledgertest.Command(t, "claude")
//		cmd.Dir = home
//		agent := ledgertest.Start(t, cmd)
//		agent.Send("fix the build")
//		agent.Expect("did fix the build")
//		// The transcript is in home/.claude/projects, and the hooks of
//		// home/.claude/settings.json have run.
//		agent.Send("/crash")
//		ledgertest.Await(t, "the process to be gone", agent.Exited)
//	}
//
// # Isolation
//
// [Isolate] gives a test a home directory, XDG folders, a folder for tmux
// sockets and a git without a person's settings, takes away what an agent CLI or
// a multiplexer around the test has set, and marks everything that is started
// from the test by a variable. When the test ends, whatever still bears that
// mark, and every tmux server with a socket in that folder, is a failure, and is
// killed so that the next test does not suffer; [Clean] looks for it at once.
//
// Build your own programs before [Isolate]: HOME is new, and with it GOCACHE and
// GOMODCACHE.
//
// # The ledger
//
// Package scratch, below this one, opens a scratch ledger, which at the end of the test
// fails it for every rule of the ledger that does not hold. [Clock] is for the ledger's
// Options. A program that opens the default ledger is given it by
//
//	t.Setenv("AGENT_SESSIONS_DIR", store.Dir())
//
// Sweep looks at the whole machine, also in an isolated test: it enrols agents that the
// test did not start, a person's own too, and a Kill of their rows then ends them. Kill
// only what the test started, or run the test in a pid namespace.
//
// # The stand-in
//
// [BuildAgent] builds the program in ledgertest/agent and links it under the
// name of each CLI. Called as one it takes that CLI's arguments, writes its
// conversations, runs its hooks, has its environment for children, and reads
// prompts and commands line by line; its own documentation lists them. It needs
// neither an account nor a network, ends with its input or terminal, and bears
// no model: it answers every prompt by repeating it.
//
// The go command builds it from source, which a vendor folder does not hold,
// since nothing imports it.
package ledgertest
