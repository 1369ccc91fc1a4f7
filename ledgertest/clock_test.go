package ledgertest_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/sessionledger/ledger/ledgertest"
)

func TestClockTellsWhatItIsTold(t *testing.T) {
	at := time.Date(2030, 5, 6, 7, 8, 9, 10, time.FixedZone("", 3600))
	c := ledgertest.NewClock(at)
	if got := c.Now(); !got.Equal(at) || got.Location() != time.UTC {
		t.Errorf("new: %v", got)
	}
	boot := func() int64 {
		n, err := c.BootSeconds()
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	up := boot()
	c.Advance(90 * time.Second)
	if got := c.Now().Sub(at); got != 90*time.Second || boot() != up+90 {
		t.Errorf("advanced: %v, boot %d", got, boot()-up)
	}
	c.Step(-time.Hour)
	if got := c.Now().Sub(at); got != 90*time.Second-time.Hour || boot() != up+90 {
		t.Errorf("stepped: %v, boot %d", got, boot()-up)
	}
	c.Reboot(2 * time.Hour)
	if got := c.Now().Sub(at); got != 90*time.Second+time.Hour || boot() != 0 {
		t.Errorf("rebooted: %v, boot %d", got, boot())
	}
	c.Advance(1999 * time.Millisecond)
	if boot() != 1 {
		t.Errorf("boot %d", boot())
	}
}

func ExampleClock() {
	var clock ledgertest.Clock
	fmt.Println(clock.Now().Format(time.DateTime))
	clock.Advance(time.Hour)
	clock.Step(-30 * time.Minute) // as NTP does
	up, _ := clock.BootSeconds()
	fmt.Println(clock.Now().Format(time.DateTime), time.Duration(up)*time.Second)
	// Output:
	// 2026-01-02 03:04:05
	// 2026-01-02 03:34:05 25h0m0s
}
