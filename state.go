package ledger

// Phase is what a session is meant to be. The zero value is "no row": what a session is
// before its birth and after its removal.
type Phase string

// The phases. Archived is reserved: rows that carry it are listed and left alone.
const (
	PhaseNone     Phase = ""
	PhaseLive     Phase = "live"
	PhaseFrozen   Phase = "frozen"
	PhaseArchived Phase = "archived"
	PhaseFinished Phase = "finished"
)

// Op is the multi-step change that is in flight. The zero value is none. An op other
// than none exists exactly while a lease exists.
type Op string

// The operations.
const (
	OpNone    Op = ""
	OpCreate  Op = "create"
	OpFreeze  Op = "freeze"
	OpRestore Op = "restore"
	OpAbort   Op = "abort"
	OpStandIn Op = "standin"
	OpHandoff Op = "handoff"
	OpRespawn Op = "respawn"
	OpKill    Op = "kill"
	OpDrop    Op = "drop"
)

// FreezeMode says what a freeze does with the pane. In mode pane the agent's pane gets
// a stand-in; in mode shell the agent runs below a person's shell, which stays.
type FreezeMode string

// The freeze modes.
const (
	FreezePane  FreezeMode = "pane"
	FreezeShell FreezeMode = "shell"
)

// RestoreMode says how a restore names its conversation: resume by the recorded id, or
// repick by a command of the embedder, whose id is adopted.
type RestoreMode string

// The restore modes.
const (
	RestoreResume RestoreMode = "resume"
	RestoreRepick RestoreMode = "repick"
)

// Ack says how a restore was acknowledged: by the agent's own hook (verified) or only by
// a live process (unverified). Empty: not yet.
type Ack string

// The acknowledgements.
const (
	AckHook     Ack = "hook"
	AckLiveness Ack = "liveness"
)
