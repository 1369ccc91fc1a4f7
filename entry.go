package ledger

import (
	"slices"
	"time"

	"github.com/go-json-experiment/json/jsontext"
)

// SchemaVersion is the version of the row format that this package writes. Fields are
// only ever added to it, so a row of this version written by any other release is
// readable and writable; a row of a higher version is readable alone.
const SchemaVersion = 1

// maxList bounds the lists of a row that grow with its life. What does not fit is
// counted beside the list, never silently dropped.
const maxList = 200

// Entry is one session's record: what is on disk under sessions/<LedgerID>.json.
//
// Its zero value is the record of nothing. A zero member means "not known" and is
// written as null (the members of contract B) or left out (those that this library
// adds); where zero is a real value the member is a pointer. Times have whole seconds,
// in UTC. Members that this version does not know are kept with their raw tokens, at
// this level and inside every part, through any number of rewrites.
//
// Entries are values: what a [Store] returns shares nothing with it. The texts of one row
// share its memory: whoever keeps single ones of very many rows clones them.
type Entry struct {
	SchemaVersion int       `json:"schemaVersion"` // 1; a row with a higher one is never written
	LedgerID      string    `json:"ledgerId"`      // the session's identity, minted once
	Runtime       string    `json:"runtime"`       // registry name of the agent CLI ("claude", "codex", ...)
	StartedAt     time.Time `json:"startedAt"`     // birth of the process by kernel clocks; never recomputed
	Host          string    `json:"host"`          // host name, for people
	BootID        string    `json:"bootId"`        // boot under which PID and PIDStartTicks are true
	Cwd           string    `json:"cwd"`           // where the session was launched
	RepoRoot      string    `json:"repoRoot"`      // top of the working tree that holds Cwd
	Project       string    `json:"project"`       // name of the repository's main checkout
	Branch        string    `json:"branch"`        // branch at enrolment
	Worktree      *bool     `json:"worktree"`      // whether RepoRoot is a linked worktree; nil: not known
	TTY           string    `json:"tty"`           // terminal, for people; never evidence

	LauncherPID    int    `json:"launcherPid"`    // process that asked for the launch
	ParentLedgerID string `json:"parentLedgerId"` // ledger id of the agent that launched this one
	Parent         string `json:"parent"`         // the same, or "<name> (pid N)" of a launching agent without a row
	LaunchedBy     string `json:"launchedBy"`     // LaunchedByUser, LaunchedByFactory, LaunchedByAgent
	Account        string `json:"account"`        // slug of the account; "" is the default account
	EnrolledBy     string `json:"enrolledBy"`     // EnrolledByShim, EnrolledByHook, EnrolledByDiscovery

	Mux         Mux    `json:"mux"`         // multiplexer that holds the session; zero is normal
	TmuxSession string `json:"tmuxSession"` // tmux session, once its server has accepted it
	TmuxSocket  string `json:"tmuxSocket"`  // that server's socket

	PID           int     `json:"pid"`           // last known process; true only together with PIDStartTicks and BootID
	PIDStartTicks *uint64 `json:"pidStartTicks"` // field 22 of /proc/<pid>/stat
	CPUTicks      *uint64 `json:"cpuTicks"`      // utime+stime when the process was last described

	SessionID      string `json:"sessionId"`      // the runtime's own conversation id; absent, never guessed
	TranscriptPath string `json:"transcriptPath"` // that conversation's file

	ProcessDescribedAt time.Time `json:"processDescribedAt"`
	LastActiveAt       time.Time `json:"lastActiveAt"`
	LastHeartbeatAt    time.Time `json:"lastHeartbeatAt"`

	FinishedAt   time.Time `json:"finishedAt"`   // makes the row an ended one
	FinishReason string    `json:"finishReason"` // in plain words; null on an ended row is normal

	RescuedAt     time.Time `json:"rescuedAt"` // written once, by a rescue alone
	RescueRef     string    `json:"rescueRef"`
	RescueCommit  string    `json:"rescueCommit"`
	RescuedPaths  []string  `json:"rescuedPaths"` // relative to RepoRoot, at most 200
	RescuedMore   int       `json:"rescuedPathsMore,omitzero"`
	RescueOmitted []Omitted `json:"rescueOmitted,omitzero"` // what the rescue could not hold, at most 200
	OmittedMore   int       `json:"rescueOmittedMore,omitzero"`

	Revision uint64    `json:"revision,omitzero"` // +1 on every write
	Epoch    uint64    `json:"epoch,omitzero"`    // +1 when phase, op, limit or process identity changes
	Phase    Phase     `json:"phase,omitzero"`    // what the session is meant to be
	Lease    *Lease    `json:"lease,omitzero"`    // present exactly while an operation is in flight
	StateAt  time.Time `json:"stateAt,omitzero"`  // when phase or op last changed

	KillIntentAt time.Time `json:"killIntentAt,omitzero"` // tombstone: finish this session, never restore it

	HostID        string `json:"hostId,omitzero"`        // machine-id of the host whose pids these are
	PIDNamespace  uint64 `json:"pidNamespace,omitzero"`  // inode of the pid namespace under which PID is true
	TimeNamespace uint64 `json:"timeNamespace,omitzero"` // inode of the time namespace under which the ticks are true

	Window     string    `json:"window,omitzero"`     // window name: with the project and Slot, the session's place
	Slot       int       `json:"slot,omitzero"`       // 0 for the first agent of a window
	PaneID     string    `json:"paneId,omitzero"`     // tmux pane (%N) of PaneServer
	PaneServer ProcessID `json:"paneServer,omitzero"` // the tmux server process that numbered the pane

	TaskID      string `json:"taskId,omitzero"`
	Operation   string `json:"operation,omitzero"`
	Model       string `json:"model,omitzero"`
	AgentString string `json:"agentString,omitzero"`

	SessionSource  string     `json:"sessionSource,omitzero"` // what SessionID is known from: "hook", "launch", "registry", "open file", "store diff"; "" not recorded
	SessionIDs     []FormerID `json:"sessionIds,omitzero"`    // former and refused conversation ids, newest last, at most 200
	SessionIDsMore int        `json:"sessionIdsMore,omitzero"`

	Frozen  *Frozen  `json:"frozen,omitzero"`
	Restore *Restore `json:"restore,omitzero"`
	Limit   *Limit   `json:"limit,omitzero"`
	Prompt  *Prompt  `json:"prompt,omitzero"`

	LastPaneChurnAt time.Time `json:"lastPaneChurnAt,omitzero"`

	Handoffs      []Handoff `json:"handoffs,omitzero"` // append-only, newest last, at most 200
	HandoffsMore  int       `json:"handoffsMore,omitzero"`
	HandoffTarget string    `json:"handoffTarget,omitzero"` // runtime of the swap in flight
	BriefPending  string    `json:"briefPending,omitzero"`  // brief whose delivery is not confirmed

	EndNoted  *EndNoted `json:"endNoted,omitzero"`  // an end reported during an operation
	Unclear   *Note     `json:"unclear,omitzero"`   // since when reconcile could not settle the row
	Rescuing  *Rescuing `json:"rescuing,omitzero"`  // a rescue in hand, written before git runs
	Waiting   *Waiting  `json:"waiting,omitzero"`   // the agent waits for a person
	Attention *Note     `json:"attention,omitzero"` // something that only a person can settle

	Cgroup      string `json:"cgroup,omitzero"`      // as observed at enrolment
	ResumedFrom string `json:"resumedFrom,omitzero"` // row whose conversation this process took up

	unknown
}

// unknown keeps the members of an object that this version does not know. It is a type
// of its own so that the raw JSON stays out of the exported fields.
type unknown struct {
	Members jsontext.Value `json:",embed"`
}

func (u unknown) clone() unknown { return unknown{slices.Clone(u.Members)} }

// The values of [Entry.LaunchedBy]. Empty is "no evidence".
const (
	LaunchedByUser    = "user"
	LaunchedByFactory = "factory"
	LaunchedByAgent   = "agent"
)

// The values of [Entry.EnrolledBy]: which of the three enrolment points wrote the row.
const (
	EnrolledByShim      = "shim"
	EnrolledByHook      = "hook"
	EnrolledByDiscovery = "discovery"
)

// The values of [Mux.Kind]. Empty is a session in no multiplexer, or in an unknown one.
const (
	MuxTmux  = "tmux"
	MuxDtach = "dtach"
)

// Mux says which multiplexer holds a session. Target is the session's name as tmux
// reports it; Socket is an absolute path.
type Mux struct {
	Kind   string `json:"kind"`
	Socket string `json:"socket"`
	Target string `json:"target"`
	unknown
}

// FormerID is a conversation id that was current once, or one that was refused because
// another row holds it (HeldBy names that row).
type FormerID struct {
	ID     string    `json:"id"`
	From   string    `json:"from,omitzero"` // where the id came from
	Since  time.Time `json:"since,omitzero"`
	HeldBy string    `json:"heldBy,omitzero"`
	unknown
}

// Frozen says where a frozen session's output is kept: frozen/<LedgerID>/<Attempt>/.
type Frozen struct {
	At       time.Time  `json:"at"`
	Attempt  string     `json:"attempt"`
	Mode     FreezeMode `json:"mode,omitzero"`
	Lines    int        `json:"lines,omitzero"`   // captured lines
	StandIn  ProcessID  `json:"standIn,omitzero"` // viewer in the pane; zero when there is none
	Kept     []string   `json:"kept,omitzero"`    // attempts whose captures unverified restores left, at most 200
	KeptMore int        `json:"keptMore,omitzero"`
	unknown
}

// Restore is the last restore of a session, in flight or settled.
type Restore struct {
	Attempt  string        `json:"attempt"`
	Mode     RestoreMode   `json:"mode,omitzero"`
	Launched ProcessID     `json:"launched,omitzero"`
	Ack      Ack           `json:"ack,omitzero"`
	Error    *RestoreError `json:"error,omitzero"`
	unknown
}

// RestoreError is why an attempt to restore failed or was contradicted.
type RestoreError struct {
	Attempt string `json:"attempt"`
	Reason  string `json:"reason"`
	unknown
}

// Limit is a usage limit that an embedder or a hook reported.
type Limit struct {
	ReachedAt time.Time `json:"reachedAt"`
	ResetAt   time.Time `json:"resetAt"` // zero: not known
	unknown
}

// Prompt is the last attempt to type a prompt into the session, and what came of it.
type Prompt struct {
	AttemptedAt time.Time `json:"attemptedAt"`
	Status      string    `json:"status"`
	unknown
}

// Handoff is one swap of the agent on the same work.
type Handoff struct {
	From       HandoffFrom `json:"from"`
	To         string      `json:"to"` // runtime
	At         time.Time   `json:"at"`
	HeadCommit string      `json:"headCommit"`
	Reason     string      `json:"reason"`
	Automatic  bool        `json:"automatic"`
	unknown
}

// HandoffFrom is the life that a handoff ended.
type HandoffFrom struct {
	Runtime   string `json:"runtime"`
	SessionID string `json:"sessionId"`
	unknown
}

// EndNoted is an end that was reported while an operation was in flight.
type EndNoted struct {
	At         time.Time `json:"at"`
	Reason     string    `json:"reason"`
	ProcessKey string    `json:"processKey"`
	unknown
}

// Note is a condition that holds since a time.
type Note struct {
	Since  time.Time `json:"since"`
	Reason string    `json:"reason"`
	unknown
}

// Rescuing marks a rescue in hand. It counts as RescuedAt for Bind and BeginRespawn.
type Rescuing struct {
	At         time.Time `json:"at"`
	ProcessKey string    `json:"processKey"`
	unknown
}

// Waiting says that the agent waits for a person, and for what ("permission", "input").
type Waiting struct {
	Kind  string    `json:"kind"`
	Since time.Time `json:"since"`
	unknown
}

// Omitted is work that a rescue could not hold. Ref is set where it could be rescued
// into a ref of its own (a nested repository, a submodule).
type Omitted struct {
	Path   string `json:"path"`
	Reason string `json:"reason"`
	Ref    string `json:"ref,omitzero"`
	unknown
}

// Process returns the identity of the recorded process. It is zero for a row without
// pid or start ticks. A row without HostID, PIDNamespace or TimeNamespace (one of
// another implementation) has them zero: a verdict takes those as this machine's.
func (e Entry) Process() ProcessID { return e.process() }

func (e *Entry) process() ProcessID {
	if e.PID <= 0 || e.PIDStartTicks == nil {
		return ProcessID{}
	}
	return ProcessID{
		HostID: e.HostID, BootID: e.BootID,
		PIDNamespace: e.PIDNamespace, TimeNamespace: e.TimeNamespace,
		PID: e.PID, StartTicks: *e.PIDStartTicks,
	}
}

// IsOpen reports whether the session is not over.
func (e Entry) IsOpen() bool { return e.Phase != PhaseFinished }

// clone returns a copy that shares no memory with e.
func (e *Entry) clone() Entry {
	c := new(Entry)
	e.cloneTo(c)
	return *c
}

// cloneTo makes c the same row as e, with nothing in common. An entry is 1.2 KB: what passes
// several as values grows its stack, and that costs a short process more than the work.
func (e *Entry) cloneTo(c *Entry) {
	*c = *e
	c.Worktree = clonePtr(e.Worktree)
	c.PIDStartTicks = clonePtr(e.PIDStartTicks)
	c.CPUTicks = clonePtr(e.CPUTicks)
	c.RescuedPaths = slices.Clone(e.RescuedPaths)
	c.RescueOmitted = cloneList(e.RescueOmitted, func(o *Omitted) *unknown { return &o.unknown })
	c.SessionIDs = cloneList(e.SessionIDs, func(f *FormerID) *unknown { return &f.unknown })
	c.Handoffs = cloneList(e.Handoffs, func(h *Handoff) *unknown { return &h.unknown })
	for i := range c.Handoffs {
		c.Handoffs[i].From.unknown = c.Handoffs[i].From.unknown.clone()
	}
	c.Mux.unknown = e.Mux.unknown.clone()
	c.Lease = clonePart(e.Lease, func(l *Lease) *unknown { return &l.unknown })
	if c.Frozen = clonePart(e.Frozen, func(f *Frozen) *unknown { return &f.unknown }); c.Frozen != nil {
		c.Frozen.Kept = slices.Clone(e.Frozen.Kept)
	}
	if c.Restore = clonePart(e.Restore, func(r *Restore) *unknown { return &r.unknown }); c.Restore != nil {
		c.Restore.Error = clonePart(e.Restore.Error, func(r *RestoreError) *unknown { return &r.unknown })
	}
	c.Limit = clonePart(e.Limit, func(l *Limit) *unknown { return &l.unknown })
	c.Prompt = clonePart(e.Prompt, func(p *Prompt) *unknown { return &p.unknown })
	c.EndNoted = clonePart(e.EndNoted, func(n *EndNoted) *unknown { return &n.unknown })
	c.Unclear = clonePart(e.Unclear, func(n *Note) *unknown { return &n.unknown })
	c.Rescuing = clonePart(e.Rescuing, func(r *Rescuing) *unknown { return &r.unknown })
	c.Waiting = clonePart(e.Waiting, func(w *Waiting) *unknown { return &w.unknown })
	c.Attention = clonePart(e.Attention, func(n *Note) *unknown { return &n.unknown })
	c.unknown = e.unknown.clone()
}

func clonePtr[T any](p *T) *T {
	if p == nil {
		return nil
	}
	v := *p
	return &v
}

func clonePart[T any](p *T, rest func(*T) *unknown) *T {
	c := clonePtr(p)
	if c != nil {
		u := rest(c)
		*u = u.clone()
	}
	return c
}

func cloneList[T any](list []T, rest func(*T) *unknown) []T {
	c := slices.Clone(list)
	for i := range c {
		u := rest(&c[i])
		*u = u.clone()
	}
	return c
}
