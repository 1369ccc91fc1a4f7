// Package gitcmd is everything the library asks of git. It runs the git binary, because no Go
// implementation reads every repository shape a person has.
//
// Four questions and one act:
//
//   - [DescribeFast] reads a working tree's place from files alone, for hooks that must be cheap.
//   - [Runner.Describe] asks git the same, and the commit, in one child process.
//   - [Runner.DirtyCount] counts what git status reports.
//   - [Runner.List] lists the rescued refs of a repository.
//   - [Runner.Snapshot] puts uncommitted work into a ref, without touching anything a person or
//     another session works with.
//
// # What a git child may do
//
// Each child has an argument vector, a deadline, a process group of its own that is ended with
// it, bounded output, no standard input but what it is given, and no terminal. Of the caller's
// environment no GIT_ variable survives but those that say where git and its configuration are.
// Hooks, fsmonitor, prompts, optional index locks and the network are off; filters
// (git-lfs and the like) run where git itself would run them for git add.
//
// # Durability
//
// Git by default fsyncs neither loose objects nor folders, so that a ref can outlive its objects
// after a power cut, or vanish. Snapshot therefore syncs, in this order: every object that is new
// relative to HEAD and the folders that name them; the ref, by core.fsync; the folder that names
// the ref. Objects that git had written earlier, unsynced, for the lost session are included.
//
// # Versions
//
// Measured with git 2.39, written for 2.31 and later. Before 2.36 git does not know core.fsync,
// and the ref's own content is then as durable as that git makes it.
package gitcmd
