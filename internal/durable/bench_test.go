package durable

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// The peer of record: the same unavoidable calls, through package os, with a
// descriptor for the folder that stays open.
//
//	go test -run '^$' -bench . ./internal/durable
func bareReplace(b *testing.B, dir *os.File, name string, data []byte, sync bool) {
	path := filepath.Join(dir.Name(), name)
	f, err := os.OpenFile(path+".tmp", os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		b.Error(err)
		return
	}
	_, err = f.Write(data)
	if err == nil && sync {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Rename(path+".tmp", path)
	}
	if err == nil && sync {
		err = dir.Sync()
	}
	if err != nil {
		b.Error(err)
	}
}

// ratio runs bare and ours by turns, so that both meet the same disk, and reports
// what ours takes in units of bare.
func ratio(b *testing.B, bare, ours func()) {
	var times [2]time.Duration
	for b.Loop() {
		for i, f := range []func(){bare, ours} {
			start := time.Now()
			f()
			times[i] += time.Since(start)
		}
	}
	b.ReportMetric(float64(times[0].Nanoseconds())/float64(b.N), "ns/bare")
	b.ReportMetric(float64(times[1].Nanoseconds())/float64(b.N), "ns/ours")
	b.ReportMetric(float64(times[1])/float64(times[0]), "ours/bare")
}

var benchRow = make([]byte, 1300)

func BenchmarkReplace(b *testing.B) {
	for _, durable := range []bool{true, false} {
		b.Run(fmt.Sprintf("sync=%t", durable), func(b *testing.B) {
			d, dir := benchDirs(b)
			ratio(b, func() {
				bareReplace(b, dir, "row", benchRow, durable)
			}, func() {
				if err := d.Replace("w", "row", benchRow, durable); err != nil {
					b.Error(err)
				}
			})
		})
	}
}

// 64 writers, each on a row of its own; a turn is one write of each.
func BenchmarkReplace64Writers(b *testing.B) {
	d, dir := benchDirs(b)
	all := func(write func(name string)) func() {
		return func() {
			var wg sync.WaitGroup
			for i := range 64 {
				wg.Go(func() { write(fmt.Sprintf("row%02d", i)) })
			}
			wg.Wait()
		}
	}
	ratio(b, all(func(name string) {
		bareReplace(b, dir, name, benchRow, true)
	}), all(func(name string) {
		if err := d.Replace("w", name, benchRow, true); err != nil {
			b.Error(err)
		}
	}))
}

// A batch of 100 under one sync of the folder, against 100 single writes.
func BenchmarkBatch100(b *testing.B) {
	d, _ := benchDirs(b)
	ratio(b, func() {
		for i := range 100 {
			if err := d.Replace("w", fmt.Sprint(i), benchRow, true); err != nil {
				b.Error(err)
			}
		}
	}, func() {
		staged := make([]*Staged, 100)
		var wg sync.WaitGroup
		for w := range 16 {
			wg.Go(func() {
				for i := w; i < len(staged); i += 16 {
					var err error
					if staged[i], err = d.Stage("w", fmt.Sprint(i), benchRow, true); err != nil {
						b.Error(err)
					}
				}
			})
		}
		wg.Wait()
		if b.Failed() {
			return
		}
		for _, s := range staged {
			if err := s.Replace(); err != nil {
				b.Error(err)
			}
		}
		if err := d.Sync(staged...); err != nil {
			b.Error(err)
		}
	})
}

// benchDirs is one folder of each side.
func benchDirs(b *testing.B) (*Dir, *os.File) {
	dir, err := os.Open(b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { dir.Close() })
	return open(b, b.TempDir()), dir
}
