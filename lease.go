package ledger

import "time"

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
	unknown
}
