//go:build !linux

package tmux

type processStat struct {
	name              string
	group, foreground int
	ticks             uint64
}

func readStat(int) (processStat, Presence) { return processStat{}, Unknown }

func unread(string) (int, bool) { return 0, false }
