package ledger

import "time"

const (
	firstBackoff = 10 * time.Second
	lastBackoff  = 5 * time.Minute
)

// Backoff paces repeated work on one row that keeps failing: 10 s after the first
// failure, doubling to 5 min. It is a value, kept per ledger id and kind of work; the
// zero value is due. Success is the zero value again.
type Backoff struct {
	Failures int    `json:"failures,omitzero"` // in a row
	DueBoot  int64  `json:"dueBoot,omitzero"`  // seconds on the boot clock of BootID
	BootID   string `json:"bootId,omitzero"`   // another boot is later than every due time
	Retired  bool   `json:"retired,omitzero"`  // a retry cannot change the answer
}

// Due reports whether the work is to be tried at that time of that boot.
func (b Backoff) Due(bootID string, bootSec int64) bool {
	switch {
	case b.Retired:
		return false
	case b.Failures == 0 || b.BootID != bootID:
		return true
	}
	return bootSec >= b.DueBoot
}

// Fail returns the pacing after one more failure, and whether to report it: once in a
// streak.
func (b Backoff) Fail(bootID string, bootSec int64) (next Backoff, report bool) {
	report = b.Failures == 0
	wait := firstBackoff
	for i := 0; i < b.Failures && wait < lastBackoff; i++ {
		wait *= 2
	}
	b.Failures++
	b.BootID, b.DueBoot = bootID, bootSec+int64(min(wait, lastBackoff)/time.Second)
	return b, report
}

// Retire returns the pacing of work that no retry can help, until the zero value takes
// its place.
func (b Backoff) Retire() Backoff {
	b.Retired = true
	return b
}
