package tmux

// Presence is a three-valued verdict. The zero value is Unknown, so that a
// verdict nobody set is never read as an absence.
type Presence int

const (
	Unknown Presence = iota // could not find out
	Present                 // seen
	Absent                  // definitely not there
)

// String returns "unknown", "present" or "absent".
func (p Presence) String() string {
	switch p {
	case Present:
		return "present"
	case Absent:
		return "absent"
	}
	return "unknown"
}
