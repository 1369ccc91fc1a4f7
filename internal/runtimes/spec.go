// Package runtimes knows the agent CLIs: how their processes are recognised,
// where their conversations lie, how one is resumed, and what their hooks say.
//
// A runtime is a row of a table (builtin.go) and a few small functions. What
// the rows claim is established in the vendors' documents and in public
// reports; where two generations of a CLI differ, both are covered.
package runtimes

import (
	"context"

	"github.com/sessionledger/ledger/internal/transcript"
)

// A Spec describes one runtime. Its slices are shared: callers only read them.
type Spec struct {
	// Name is the registry's name, the Entry's runtime.
	Name string

	// Argv0 are the exact base names of argv[0]. Under an interpreter they are
	// also the base names of the script: npm and pip link a CLI's script into a
	// bin folder under its name.
	Argv0 []string
	// Common are base names of argv[0] that other programs bear too. One counts
	// only where Proof is an element of the path of argv[0], of the script that
	// it runs, or of the executable.
	Common []string
	Proof  string
	// Paths are suffixes of argv[0] for a program that is started by its full
	// path under another name, Scripts those of an interpreter's script. An
	// element may be a pattern of path.Match.
	Paths   []string
	Scripts []string
	// Modules are names after an interpreter's -m.
	Modules []string
	// Services are first arguments that make a process no session, besides
	// those that hold for every runtime.
	Services []string

	// ConfigEnv is the variable that replaces the config home, ConfigSub what is
	// appended to its value, ConfigDir the default below HOME.
	ConfigEnv, ConfigSub, ConfigDir string

	// HasTranscripts tells that each conversation is a file that grows with it,
	// so that a file at rest means an agent at rest.
	HasTranscripts bool
	// HasEndHook tells that the runtime reports its own end.
	HasEndHook bool
	// ResumeChangesID tells that a resume may go on under another id.
	ResumeChangesID bool
	// Format is how its conversation files are read.
	Format transcript.Format
	// HookFile is where its hooks are configured, below the config home; "" when
	// that is not established. Hooks are the events that tell of a session.
	HookFile string
	Hooks    []string

	// Resume are the arguments that resume one conversation; {id} in them stands
	// for its id. None: the runtime cannot resume by id.
	Resume []string
	// IDFlags are the options whose value names a conversation, and IDCommands the
	// subcommands whose first argument does.
	IDFlags    []string
	IDCommands [][]string
	// OlderFlags are the options that take up an older conversation, or copy one,
	// without naming it.
	OlderFlags []string

	// reserved reports ids that the CLI takes for something else than an id.
	reserved func(id string) bool
	// find is the store's own look-up; nil when only an embedder has one.
	find func(ctx context.Context, q query) (string, error)
	// list names the files that may be conversations of the directory q.cwd; nil
	// where a conversation's file does not tell when it began and where, or the
	// process itself tells better.
	list func(q query) []string
}

// ResumesByID reports whether the runtime can resume one given conversation.
func (s Spec) ResumesByID() bool { return len(s.Resume) > 0 }

// A Table is a set of runtimes, matched in order.
type Table []Spec

// Lookup returns the runtime of that name. One that the table does not have is
// given the properties of an unknown runtime, which works with kernel evidence
// alone, and false.
func (t Table) Lookup(name string) (Spec, bool) {
	for _, s := range t {
		if s.Name == name {
			return s, true
		}
	}
	return Generic(name), false
}

// Generic is a runtime of which only the name is known: it is recognised by
// that name, has no transcripts, no hooks, and cannot resume.
func Generic(name string) Spec {
	return Spec{Name: name, Argv0: []string{name}}
}
