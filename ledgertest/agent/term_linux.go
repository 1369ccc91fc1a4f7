package main

import (
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

const getTermios, setTermios = unix.TCGETS, unix.TCSETS

// startTicks is when this process started, in the kernel's ticks since boot.
func startTicks() string {
	stat, err := os.ReadFile("/proc/self/stat")
	if err != nil {
		return ""
	}
	// The name before may hold anything; what follows its bracket begins with
	// field 3.
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	if len(fields) < 20 {
		return ""
	}
	return fields[22-3]
}
