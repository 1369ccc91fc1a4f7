package ledger

// Answer is what is known of a question. The zero value is Unsure: "could not find out"
// is never "no".
type Answer int

// The answers.
const (
	Unsure Answer = iota
	Yes
	No
)

// String returns the answer in lower case.
func (a Answer) String() string {
	switch a {
	case Yes:
		return "yes"
	case No:
		return "no"
	}
	return "unsure"
}

// Facts is the evidence that the guards of an event consult, as seen under the row's
// lock. Every zero value is "not known", and a guard that needs one it does not know
// refuses with [ErrUnknown]. More knowledge never overturns what was decided with less.
type Facts struct {
	// Recorded is the verdict of the row's recorded process. For a row that never had one
	// it is Gone where a complete snapshot has no process that carries the row's id.
	Recorded Verdict
	Subject  Verdict // of the event's Process
	Launched Verdict // of restore.launched
	// Session is Running where any session process of the row runs (recorded, launched, or
	// a carrier of its id by the rule of carriers), Gone where none does in a complete view.
	Session Verdict
	// Carriers is the same for every process that carries the lease's attempt in its
	// environment, those at the gate too.
	Carriers Verdict
	Lease    LeaseSighting

	CarriesRow     Answer // the event's Process is a session process that carries the row's id
	CarriesAttempt Answer // the event's Process carries the lease's attempt
	Outermost      Answer // ... and no process above it does
	Claimed        Answer // the event's Process belongs to another row
	Capture        Answer // capture.ansi of the row's frozen.attempt is in place
	Transcript     Answer // the conversation SessionID of the event has a transcript
	HasTranscript  Answer // the row's recorded conversation has one
	Held           Answer // another open row, or a process of another one, holds the conversation
	HeldBy         string // that row
	ChangesID      bool   // the registry says that this runtime changes ids on resume
}

// facts is a set of the members of Facts.
type facts uint16

const (
	factRecorded facts = 1 << iota
	factSubject
	factLaunched
	factSession
	factCarriers
	factLease
	factCarriesRow
	factCarriesAttempt
	factOutermost
	factClaimed
	factCapture
	factTranscript
	factHasTranscript
	factHeld // with HeldBy
	factChangesID
)

// needs returns which facts the event's guards may consult: no other need be gathered.
func (ev Event) needs() facts {
	if ev.Kind <= EventNone || ev.Kind >= eventCount {
		return 0
	}
	return indexed().facts[ev.Kind]
}
