//go:build linux

package procscan

import (
	"context"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
)

// The figures of a snapshot are ratios against peers that run alternately with it, so that
// a busy machine burdens both alike:
//
//	go test -run '^$' -bench . -benchtime 200x ./internal/procscan
//
// x-bare and x-procfs are the median time of ours divided by the median time of the peer's.

// BenchmarkSnapshot takes snapshots with 500 processes beside those of the machine, against
// a loop that reads the same two files of each through a descriptor of its folder and does
// nothing with them.
func BenchmarkSnapshot(b *testing.B) {
	sleepers(b, 500)
	s := New("")
	var ours, bare []time.Duration
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		ours = append(ours, timed(b, func() error {
			sn, err := s.Snapshot(context.Background())
			n = sn.Len()
			return err
		}))
		b.StopTimer()
		bare = append(bare, timed(b, bareScan))
		b.StartTimer()
	}
	b.ReportMetric(ratio(ours, bare), "x-bare")
	b.ReportMetric(float64(n), "processes")
}

// BenchmarkSnapshotEnvirons takes a snapshot and the environment of every process, against
// procfs reading stat, cmdline and environ of every process.
func BenchmarkSnapshotEnvirons(b *testing.B) {
	sleepers(b, 500)
	s := New("")
	var ours, peer []time.Duration
	b.ReportAllocs()
	for b.Loop() {
		ours = append(ours, timed(b, func() error {
			sn, err := s.SnapshotEnviron(context.Background())
			for p := range sn.All() {
				env, err := sn.Environ(p.PID)
				if err == nil {
					env.Lookup("AGENT_LEDGER_ID")
				}
			}
			return err
		}))
		b.StopTimer()
		peer = append(peer, timed(b, procfsScan))
		b.StartTimer()
	}
	b.ReportMetric(ratio(ours, peer), "x-procfs")
}

func ratio(ours, peer []time.Duration) float64 {
	slices.Sort(ours)
	slices.Sort(peer)
	return float64(ours[len(ours)/2]) / float64(peer[len(peer)/2])
}

func timed(b *testing.B, f func() error) time.Duration {
	start := time.Now()
	if err := f(); err != nil {
		b.Fatal(err)
	}
	return time.Since(start)
}

func bareScan() error {
	root, err := os.Open("/proc")
	if err != nil {
		return err
	}
	defer root.Close()
	names, err := root.Readdirnames(-1)
	if err != nil {
		return err
	}
	buf := make([]byte, 64<<10)
	for _, name := range names {
		if name[0] < '1' || name[0] > '9' {
			continue
		}
		dir, err := unix.Openat(int(root.Fd()), name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			continue
		}
		for _, file := range []string{"stat", "cmdline"} {
			fd, err := unix.Openat(dir, file, unix.O_RDONLY|unix.O_CLOEXEC, 0)
			if err != nil {
				continue
			}
			unix.Read(fd, buf)
			unix.Close(fd)
		}
		unix.Close(dir)
	}
	return nil
}

func procfsScan() error {
	pfs, err := procfs.NewFS("/proc")
	if err != nil {
		return err
	}
	procs, err := pfs.AllProcs()
	for _, p := range procs {
		p.Stat()
		p.CmdLine()
		p.Environ()
	}
	return err
}
