package ledger

import (
	"math"
	"time"
)

// Lease says who runs the operation that is in flight. Attempt is the nonce of the
// operation's Begin and names the attempt for ever; Nonce is the authority to go on with
// it, replaced by a take-over. AcquiredBootSec is the boot clock in seconds at the Begin,
// so that a stepped wall clock neither expires nor prolongs the lease.
type Lease struct {
	Op              Op        `json:"op"`
	Attempt         string    `json:"attempt"`
	Nonce           string    `json:"nonce"`
	Owner           ProcessID `json:"owner"`
	AcquiredAt      time.Time `json:"acquiredAt"`
	AcquiredBootSec int64     `json:"acquiredBootSec"`
	AcquiredBootID  string    `json:"acquiredBootId,omitzero"` // boot of the Begin, where a take-over has put an owner of another boot
	Released        bool      `json:"released,omitzero"`       // the owner gave the lease back: it is stale, its nonce is dead
	unknown
}

// DefaultGrace is the least age of a lease whose owner is gone before it counts as stale.
const DefaultGrace = time.Minute

// forever is the age of what began in another boot: older than every wait.
const forever = time.Duration(math.MaxInt64)

// LeaseSighting is what was seen of a lease's owner, and when on the boot clock. The
// zero value is "nothing was seen", which makes no lease stale.
type LeaseSighting struct {
	Owner     Verdict       // of the owner's process
	Here      ProcessID     // HostID and BootID of this machine; the rest is unused
	BootSec   int64         // seconds on the boot clock; 0: not known
	Grace     time.Duration // 0: DefaultGrace; less than 0: none
	Abandoned bool          // the owner is this very process, which no longer runs this nonce
}

// grace applies the default.
func (seen LeaseSighting) grace() time.Duration {
	switch {
	case seen.Grace == 0:
		return DefaultGrace
	case seen.Grace < 0:
		return 0
	}
	return seen.Grace
}

// StaleLease reports whether the lease may be taken over. It is stale
//
//   - when its owner gave it back, or is this very process and has forgotten it;
//   - at once when the owner belongs to another boot of this very host;
//   - when the owner is provably gone and the lease is older than the grace.
//
// A stopped owner runs. An owner on another host, in another namespace, or that cannot
// be looked at, is Unknown, and its lease is held.
func StaleLease(l Lease, seen LeaseSighting) bool {
	s := Entry{Lease: &l}.State()
	return s.leaseStale(&seen) == Yes
}

// leaseStale is the rule of StaleLease in three values.
func (s *State) leaseStale(seen *LeaseSighting) Answer {
	if s.Released || seen.Abandoned {
		return Yes
	}
	if s.Owner.HostID != "" && s.Owner.HostID == seen.Here.HostID &&
		s.Owner.BootID != "" && seen.Here.BootID != "" && s.Owner.BootID != seen.Here.BootID {
		return Yes
	}
	switch seen.Owner {
	case Running:
		return No
	case Gone:
		age, known := s.leaseAge(seen)
		switch {
		case !known:
			return Unsure
		case age >= seen.grace():
			return Yes
		}
		return No
	}
	return Unsure
}

// leaseAge is the time since the attempt's Begin, which a take-over does not change, on
// the boot clock. Known is false where the boot clock is.
func (s *State) leaseAge(seen *LeaseSighting) (age time.Duration, known bool) {
	began := s.AcquiredBootID
	if began == "" {
		began = s.Owner.BootID
	}
	switch {
	case seen.Here.BootID == "" || began == "":
		return 0, false
	case began != seen.Here.BootID:
		return forever, true
	case seen.BootSec == 0:
		return 0, false
	}
	return time.Duration(max(seen.BootSec-s.AcquiredBootSec, 0)) * time.Second, true
}
