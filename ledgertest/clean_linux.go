package ledgertest

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
)

// marked are the processes that bear the marker. A process of another user
// cannot be read; a test starts none.
func marked(id string) (left []leftover) {
	names, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return nil
	}
	for _, dir := range names {
		pid, err := strconv.Atoi(filepath.Base(dir))
		if err != nil || pid == os.Getpid() || !bears(pid, id) {
			continue
		}
		args, _ := os.ReadFile(filepath.Join(dir, "cmdline"))
		left = append(left, leftover{
			what: fmt.Sprintf("process %d: %q", pid, bytes.ReplaceAll(bytes.TrimRight(args, "\x00"), []byte{0}, []byte{' '})),
			kill: func() error {
				p, err := os.FindProcess(pid) // which pins it
				if err != nil {
					return err
				}
				defer p.Release()
				if !bears(pid, id) {
					return nil // it has ended, and another may have its number
				}
				return p.Kill()
			},
		})
	}
	return left
}

// bears reports whether a process was started with the marker. A zombie has no
// environment any more.
func bears(pid int, id string) bool {
	env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	return err == nil && bytes.Contains(append([]byte{0}, env...), []byte("\x00"+Marker+"="+id+"\x00"))
}
