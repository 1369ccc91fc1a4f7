package ledgertest

import (
	"testing"
	"time"
)

const (
	// awaitTime is ample for anything that comes at all: a loaded machine is
	// slow, and a test that fails may take its time.
	awaitTime = 60 * time.Second
	// pollEvery is how often a condition is looked at that nothing announces.
	pollEvery = 5 * time.Millisecond
)

// Await waits until cond reports true, for a minute at most, then fails the test
// and says what it waited for. It must be called from the test's goroutine.
func Await(t testing.TB, what string, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(awaitTime); !cond(); time.Sleep(pollEvery) {
		if time.Now().After(end) {
			t.Fatalf("waited %v in vain for %s", awaitTime, what)
		}
	}
}
