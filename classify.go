package ledger

// Liveness is what a session is doing, as derived from evidence; it is never stored. The
// zero value is "not classified" and is treated as LivenessUnknown.
type Liveness string

// The states of a session.
const (
	LivenessWorking  Liveness = "ALIVE-WORKING"  // its process runs and makes progress
	LivenessIdle     Liveness = "ALIVE-IDLE"     // its process runs, without progress for a while
	LivenessDetached Liveness = "DETACHED-ALIVE" // its process runs in a multiplexer that nobody is attached to
	LivenessOrphaned Liveness = "ORPHANED"       // its process is gone and it is not finished: the lost-work case
	LivenessUnknown  Liveness = "UNKNOWN"        // its process could not be resolved either way
	LivenessInFlight Liveness = "IN-FLIGHT"      // an operation is in flight
	LivenessFrozen   Liveness = "FROZEN"
	LivenessArchived Liveness = "ARCHIVED"
	LivenessFinished Liveness = "FINISHED"
)

// alive reports whether the session's process is known to run.
func (l Liveness) alive() bool {
	return l == LivenessWorking || l == LivenessIdle || l == LivenessDetached
}
