// Package ledger keeps a durable, truthful record of every AI coding-agent session on a
// machine (claude, codex, gemini, opencode, amp, cursor-agent, aider, copilot, qwen and
// whatever else is registered), whatever launched it, and says what state each is in.
//
// Most programs need two calls: [Open], and [Store.Sessions], which yields each open
// session with its [Status].
//
//	store, err := ledger.Open("", nil)
//	if err != nil {
//		return err
//	}
//	defer store.Close()
//
//	for s, err := range store.Sessions(ctx, nil) {
//		var damaged *ledger.DamagedError
//		if errors.As(err, &damaged) {
//			log.Print(damaged) // one bad row never stops the others
//			continue
//		}
//		if err != nil {
//			return err
//		}
//		fmt.Println(s.Entry.LedgerID, s.Status.State, s.Status.Title)
//	}
//
// # Rows
//
// A session is an [Entry]: one file under the ledger's folder, written whole and durably
// or not at all. Its identity is its ledger id; process, pane and the agent's own
// conversation id are replaced on the same row. [Store.Create] makes a row and
// [Store.Enrol] adopts a running process. [Store.Get], [Store.Find] and [Store.Entries]
// read without locks; [Store.Update] changes the descriptive members. Members that this
// version does not know are kept. A row that cannot be trusted is a [DamagedError], and
// stays as it is until [Store.Repair] sets it aside.
//
// # State
//
// What a session is meant to be (its [Phase]) and the operation in flight (its [Op]) move
// by an [Event] alone: [Transition] is the table, [Store.Apply] runs it under the row's
// lock with evidence gathered there. An operation has a [Lease] with an owner, so that a
// coordinator that dies leaves nothing that another could not finish: [Plan] says how, and
// [Host.Reconcile] does it. docs/state.md shows the table and its diagram.
//
// # Evidence
//
// A [ProcessID] names a process for ever: pid, start ticks, boot, namespaces. [Judge] says
// what a look at the process table proves of one, and [Classify] what the evidence says of
// a session. Unknown is the zero value of every verdict, and never means gone.
//
// Which conversation a session is in comes, best source first, from the runtime's hook, the
// command line, the runtime's list of running sessions, the file that the process holds
// open, or the one conversation that began in its directory after [Host] launched it there
// ([Entry.SessionSource]). Where they leave a doubt none is recorded.
//
// # Sweep, launch, hooks
//
// [Sweep] is the periodic pass that makes all of it true without anyone's co-operation.
// [Host.Launch] starts an agent in a tmux server of its own; [Host.Exec] in the caller's
// place. [HandleHook] takes an agent's own hooks. All three enrol by the same rules, so that
// a session has one row whoever announces it. [Reap], beside Sweep, removes the sockets and
// servers that hosting left behind.
//
// The ledger is the folder that [Open] is given, else $AGENT_SESSIONS_DIR, which Launch sets
// for its agents. Package tmux drives tmux exactly and within bounds, and can be used alone;
// package ledgertest has a scratch ledger and a stand-in agent for the tests of embedders.
//
// # Work
//
// [Rescue] keeps the uncommitted work of a dead session in a commit under refs/rescued/,
// without touching working tree, index or branches. [Host.Kill] ends a session for good:
// it rescues first, and finishes the row on proof alone.
//
// # Compatibility
//
// The row format only grows: rows of schema version 1 are read and written by every
// release, and a newer version's rows are read-only to an older release. The API follows
// semantic versioning.
package ledger
