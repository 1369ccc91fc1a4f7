package ledger

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"syscall"
	"time"

	"github.com/sessionledger/ledger/internal/runtimes"
	"github.com/sessionledger/ledger/internal/transcript"
)

// Runtime describes one agent CLI. The built-in ones come from [BuiltinRuntimes]; an
// embedder adds or replaces one with [Runtimes.With]. Only Name is needed: a runtime of
// which no more is known works with kernel evidence alone.
type Runtime struct {
	Name string // as rows record it; it begins their ids

	// Argv0 are the exact base names of argv[0], or of the script that an interpreter
	// runs, by which a process is recognised. Nil: Name.
	Argv0 []string
	// Services are first arguments that make a process no session, besides daemon, mcp,
	// install, update and the like, which hold for every runtime.
	Services []string

	HasTranscripts  bool // each conversation is a file that grows with it
	HasEndHook      bool // it reports its own end, so that a silent one is a lost session
	ResumeChangesID bool // a resume may go on under another conversation id

	// Resume are the arguments that resume one conversation, {id} standing for its id.
	// Nil: it cannot resume by id.
	Resume []string

	// Transcript finds the file of a conversation. The error is [ErrNotFound] where it is
	// definitely not there; any other means that this is not known. Nil: the built-in
	// look-up of the runtime of that name, if there is one.
	Transcript func(ctx context.Context, q TranscriptQuery) (path string, err error)
	// Read looks into a conversation's file, bounded. Nil: the built-in reader.
	Read func(ctx context.Context, path string) (Transcript, error)
}

// TranscriptQuery asks where a conversation's file is.
type TranscriptQuery struct {
	ID   string
	Cwd  string              // launch directory; "" not known
	Home string              // the session's home folder
	Env  func(string) string // the session's environment; "" for what is not set or not known
}

// Transcript is what a bounded look at a conversation's file showed. A member that the
// file does not tell is zero.
type Transcript struct {
	ID       string
	Cwd      string
	Branch   string
	Title    string // the runtime's own title, else the first message of a person; one clean line
	Activity string // the agent's last tool use or text; one clean line
	Subagent *bool  // a subagent's thread is never a session's; nil: not known
	ModTime  time.Time
	Size     int64
}

// Runtimes is a set of runtimes. It is immutable and safe for concurrent use.
type Runtimes struct {
	table runtimes.Table
	own   map[string]Runtime // what embedders gave, by name
	shims string             // the folder that it was derived from; "": none
}

// BuiltinRuntimes returns the agent CLIs that are known without help: claude, codex,
// gemini, qwen, opencode, amp, cursor-agent, aider and copilot.
func BuiltinRuntimes() *Runtimes { return &Runtimes{table: runtimes.Builtin()} }

// RuntimesFromShims derives the set from a shim folder: one runtime for each symlink in
// dir that leads to shim, named as the link; a name that no runtime can have is passed
// over. A CLI that is linked there later is covered without a change of code. A name that
// is built in has the built-in's properties.
//
// The error is [ErrInvalid] where dir is no folder, or no link in it leads to shim: a set
// without runtimes would have every agent that runs be none.
func RuntimesFromShims(dir, shim string) (*Runtimes, error) {
	table, err := runtimes.FromShims(dir, shim)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		err = fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	if err != nil {
		return nil, fmt.Errorf("ledger: runtimes of %q: %w", dir, err)
	}
	table = slices.DeleteFunc(table, func(s runtimes.Spec) bool { return checkRuntime(s.Name) != nil })
	if len(table) == 0 {
		return nil, fmt.Errorf("ledger: runtimes of %q: %w: no link in it leads to %q", dir, ErrInvalid, shim)
	}
	return &Runtimes{table: table, shims: dir}, nil
}

// With returns a set that also has rt, in place of one of the same name.
func (r *Runtimes) With(rt Runtime) *Runtimes {
	spec := runtimes.Generic(rt.Name)
	if builtin, ok := runtimes.Builtin().Lookup(rt.Name); ok {
		spec = builtin // its store and the form of its files
	}
	if rt.Argv0 != nil {
		spec.Argv0 = slices.Clone(rt.Argv0)
	}
	spec.Services = slices.Clone(rt.Services)
	spec.HasTranscripts, spec.HasEndHook, spec.ResumeChangesID = rt.HasTranscripts, rt.HasEndHook, rt.ResumeChangesID
	spec.Resume = slices.Clone(rt.Resume)
	next := &Runtimes{own: map[string]Runtime{rt.Name: rt}, shims: r.shims}
	for name, other := range r.own {
		if name != rt.Name {
			next.own[name] = other
		}
	}
	next.table = append(slices.DeleteFunc(slices.Clone(r.table), func(s runtimes.Spec) bool { return s.Name == rt.Name }), spec)
	return next
}

// Names lists the runtimes of the set.
func (r *Runtimes) Names() []string {
	names := make([]string, len(r.table))
	for i, s := range r.table {
		names[i] = s.Name
	}
	return names
}

// Lookup returns the runtime of that name. For one that the set does not have it returns
// a runtime without properties, and false.
func (r *Runtimes) Lookup(name string) (Runtime, bool) {
	s, ok := r.table.Lookup(name)
	rt := Runtime{
		Name: s.Name, Argv0: slices.Clone(s.Argv0), Services: slices.Clone(s.Services),
		HasTranscripts: s.HasTranscripts, HasEndHook: s.HasEndHook, ResumeChangesID: s.ResumeChangesID,
		Resume: slices.Clone(s.Resume),
	}
	own := r.own[name]
	if rt.Transcript = own.Transcript; rt.Transcript == nil {
		rt.Transcript = builtinTranscript(s)
	}
	if rt.Read = own.Read; rt.Read == nil {
		rt.Read = builtinRead(s)
	}
	return rt, ok
}

// Match says which runtime a command line runs, and whether it is a session rather than
// a service of the runtime. exe names the process's program file; it is asked only where
// a name is too common to decide, and may be nil.
func (r *Runtimes) Match(args []string, exe func() (string, error)) (name string, session bool) {
	name, ok := r.table.Match(args, exe)
	return name, ok && !r.table.Service(args, exe)
}

func builtinTranscript(s runtimes.Spec) func(context.Context, TranscriptQuery) (string, error) {
	return func(ctx context.Context, q TranscriptQuery) (string, error) {
		path, err := s.Find(ctx, runtimes.Homes{Home: q.Home, Getenv: q.Env}, q.ID, q.Cwd)
		if err != nil {
			return path, transcriptError(s.Name, err)
		}
		return path, nil
	}
}

func builtinRead(s runtimes.Spec) func(context.Context, string) (Transcript, error) {
	return func(ctx context.Context, path string) (Transcript, error) {
		info, err := transcript.Read(ctx, path, s.Format)
		if err != nil {
			return Transcript{}, fmt.Errorf("ledger: transcript of %s: %w", s.Name, err)
		}
		t := Transcript{ID: info.ID, Cwd: info.Cwd, Branch: info.Branch, Title: info.Title,
			Activity: info.Activity, ModTime: info.ModTime, Size: info.Size}
		if info.Subagent != transcript.Unknown {
			yes := info.Subagent == transcript.Yes
			t.Subagent = &yes
		}
		return t, nil
	}
}

// transcriptError keeps "definitely not there" apart from "not known".
func transcriptError(runtime string, err error) error {
	sentinel := ErrUnknown
	if errors.Is(err, runtimes.ErrNoTranscript) {
		sentinel = ErrNotFound
	}
	return fmt.Errorf("ledger: transcript of %s: %w: %w", runtime, sentinel, err)
}
