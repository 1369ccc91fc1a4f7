package ledger

import "time"

// IdleAfter is how long a session may make no progress before it counts as idle.
const IdleAfter = 10 * time.Minute

// Status is what a session is doing, derived from [Evidence] and never stored.
type Status struct {
	State        Liveness     `json:"state"`
	Reason       string       `json:"reason"`     // why that state, in plain words
	Evidence     string       `json:"evidence"`   // what was seen, in plain words
	Working      *bool        `json:"working"`    // progress within IdleAfter; nil: not known, or not running
	Attached     *bool        `json:"attached"`   // whether somebody looks at it; nil: not known
	Mux          MuxState     `json:"mux"`        // MuxUnknown is written as null
	ProcessKey   string       `json:"processKey"` // "", written as null, without a live process
	PID          int          `json:"pid"`        // 0, written as null, without a live process
	Title        string       `json:"title"`      // one clean line
	Activity     string       `json:"activity"`   // one clean line
	LastActiveAt time.Time    `json:"lastActiveAt"`
	DirtyCount   *int         `json:"dirtyCount"` // lines of git status; nil: finished, not asked, or not known
	IdleReason   IdleReason   `json:"idleReason"`
	Limit        *Limit       `json:"limit"`
	Lease        *LeaseStatus `json:"lease"`
	Attention    *Note        `json:"attention"`

	process Verdict // for the open actions
}

// LeaseStatus is an operation in flight, as a person would ask about it.
type LeaseStatus struct {
	Op      Op        `json:"op"`
	Owner   ProcessID `json:"owner"`
	OwnerIs string    `json:"ownerIs"` // running, gone or unknown
	Since   time.Time `json:"since"`
	Stale   *bool     `json:"stale"` // nil: not known
}

// MarshalJSON writes what is not known as null, and times with whole seconds in UTC.
func (st Status) MarshalJSON() ([]byte, error) { return encodeStruct(&st) }

// MuxState says how a session's multiplexer stands. The zero value is "not known".
type MuxState string

// The multiplexer states.
const (
	MuxUnknown     MuxState = ""
	MuxNone        MuxState = "none"        // it is in no multiplexer
	MuxAttached    MuxState = "attached"    // a client shows it
	MuxDetached    MuxState = "detached"    // it exists, and no client shows it
	MuxUnreachable MuxState = "unreachable" // it should exist, and does not answer, or not for this session
)

// IdleReason says why a session makes no progress, from recorded facts alone, never from
// the wording on a screen.
type IdleReason string

// The idle reasons.
const (
	IdleNone                IdleReason = "none"
	IdleUsageLimit          IdleReason = "usage-limit"
	IdleProcessExited       IdleReason = "process-exited"
	IdlePromptNotDelivered  IdleReason = "prompt-not-delivered"
	IdleDeliveryUnconfirmed IdleReason = "delivery-unconfirmed"
	IdleNoPaneChange        IdleReason = "no-pane-change-since-delivery"
	IdleSettled             IdleReason = "settled-after-pane-change"
)

// The values of [Prompt.Status]: what came of typing a prompt into a session.
const (
	PromptDelivered       = "delivered"
	PromptNotDelivered    = "not-delivered"
	PromptSentUnverified  = "sent-unverified"
	PromptCouldNotConfirm = "could-not-confirm"
)

// Evidence is what was found out about one session, as values. The zero value is
// "nothing was found out", and yields UNKNOWN wherever the state depends on the process.
type Evidence struct {
	BootID string // boot of this machine; "" not known

	Process    Verdict   // of the session's process, by the order of resolution
	ProcessID  ProcessID // the running one
	ProcessWhy string    // how that is known, or why it is not, in plain words
	Launcher   Verdict   // of the row's launcher; used for a row that never had a process

	Mux MuxState
	TTY *bool // whether the recorded terminal exists

	HasTranscripts bool                // the runtime writes them: processor time then proves nothing
	Transcript     *TranscriptEvidence // nil: none was found, or it could not be read
	CPUSampled     bool                // processor time was looked at, and CPUGrewAt says what was seen
	CPUGrewAt      time.Time           // when it was last seen to grow; zero: it was not

	DirtyCount   *int     // lines of git status; nil: not asked, or not known
	LeaseOwner   Verdict  // of the lease's owner
	LeaseStale   *bool    // nil: not known
	RestoreLacks []string // what a resume would need and is not there, in plain words
}

// TranscriptEvidence is what a bounded look at a conversation's file showed.
type TranscriptEvidence struct {
	ModTime         time.Time
	Title, Activity string
}

// Session is a row with what it is doing.
type Session struct {
	Entry  Entry  `json:"entry"`
	Status Status `json:"status"`
}
