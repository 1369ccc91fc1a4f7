package ledger

import (
	"os"
	"testing"
	"time"
)

func TestOldGatesAloneAreCleared(t *testing.T) {
	s, err := Open(t.TempDir()+"/ledger", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	d, err := s.dir(dirGates)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"old", "new"} {
		if err := d.Replace("test", name, []byte("1\n"), false); err != nil {
			t.Fatal(err)
		}
	}
	long := time.Now().Add(-2 * gateAge)
	if err := os.Chtimes(s.gate("old"), long, long); err != nil {
		t.Fatal(err)
	}
	if err := s.clearGates(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(s.gate("old")); !os.IsNotExist(err) {
		t.Errorf("the old one: %v", err)
	}
	if _, err := os.Lstat(s.gate("new")); err != nil {
		t.Errorf("the new one: %v", err)
	}
}
