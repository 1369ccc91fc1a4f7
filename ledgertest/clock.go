package ledgertest

import (
	"sync"
	"time"
)

// epoch is where the zero [Clock] stands.
var epoch = time.Date(2026, time.January, 2, 3, 4, 5, 0, time.UTC)

// bootedFor is how long the zero Clock's machine has been up: a day.
const bootedFor = 24 * time.Hour

// A Clock tells the time that a test sets. It satisfies ledger.Clock, with a
// boot clock. The zero Clock stands at 2026-01-02 03:04:05 UTC, a day after the
// boot. It is safe for concurrent use, and must not be copied.
type Clock struct {
	mu   sync.Mutex
	wall time.Duration // since epoch
	boot time.Duration // beside bootedFor
}

// NewClock returns a clock that stands at t, a day after the boot.
func NewClock(t time.Time) *Clock { return &Clock{wall: t.Sub(epoch)} }

// Now is the wall clock, in UTC.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return epoch.Add(c.wall)
}

// BootSeconds is the boot clock: whole seconds since boot, suspended time
// included. The error is always nil.
func (c *Clock) BootSeconds() (int64, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return int64((bootedFor + c.boot) / time.Second), nil
}

// Advance lets time pass.
func (c *Clock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wall += d
	c.boot += d
}

// Step sets the wall clock forward, or back where d is less than 0, as NTP or a
// person does: the boot clock stays.
func (c *Clock) Step(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wall += d
}

// Reboot lets the machine be down for d: the boot clock begins again.
func (c *Clock) Reboot(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wall += d
	c.boot = -bootedFor
}
