package ledger

import (
	"errors"
	"testing"
)

// TestAFailureToIdentifyIsNotKept: what could not be found out is asked again, and what
// was found out is not.
func TestAFailureToIdentifyIsNotKept(t *testing.T) {
	var k known[string]
	asked := 0
	for i, want := range []string{"", "boot", "boot"} {
		got, err := k.get(func() (string, error) {
			if asked++; asked == 1 {
				return "half", errors.New("too many open files")
			}
			return "boot", nil
		})
		if (err != nil) != (want == "") || err == nil && got != want {
			t.Errorf("call %d: %q, %v, want %q", i, got, err, want)
		}
	}
	if asked != 2 {
		t.Errorf("asked %d times, want 2", asked)
	}
}
