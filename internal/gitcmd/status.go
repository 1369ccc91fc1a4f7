package gitcmd

import (
	"bytes"
	"context"
	"fmt"
	"strings"
)

// DirtyCount is the number of lines of git status --porcelain for the working tree that dir lies
// in, with the person's own configuration. It writes nothing, the index's refresh included.
func (r Runner) DirtyCount(ctx context.Context, dir string) (int, error) {
	var n lineCount
	_, err := r.run(ctx, call{dir: dir, args: []string{"status", "--porcelain"}, stdout: &n})
	if err != nil {
		return 0, err
	}
	return int(n), nil
}

type lineCount int

func (n *lineCount) Write(p []byte) (int, error) {
	*n += lineCount(bytes.Count(p, []byte("\n")))
	return len(p), nil
}

// change is one entry of git status --porcelain=v2.
type change struct {
	path  string
	kind  byte   // '1' tracked, 'u' unmerged, '?' untracked
	index byte   // X: HEAD against index
	tree  byte   // Y: index against working tree
	sub   bool   // a submodule
	idLen int    // of the repository's object ids; 0 for untracked
	ours  string // id and mode of stage 2 of an unmerged path; the mode is 000000 when it has none
	mode  string
}

// status is what a scratch index and the working tree say.
type status struct {
	changes []change
	unread  []string // folders that could not be read
}

// statusArgs outrank whatever configuration hides: untracked files, renames (a rename is a
// removal and an addition here). Submodules are looked into one by one (nested.go).
var statusArgs = []string{"status", "--porcelain=v2", "-z", "--untracked-files=all", "--no-renames", "--ignore-submodules=dirty"}

func parseStatus(out []byte, stderr string) (status, error) {
	var s status
	for rec := range strings.SplitSeq(string(out), "\x00") {
		if rec == "" {
			continue
		}
		c := change{kind: rec[0]}
		fields := map[byte]int{'1': 9, 'u': 11, '?': 2}[c.kind]
		f := strings.SplitN(rec, " ", fields)
		if fields == 0 || len(f) != fields || fields > 2 && (len(f[1]) != 2 || len(f[2]) != 4) {
			return status{}, fmt.Errorf("%w: unexpected status record %q", ErrBroken, rec)
		}
		c.path = f[fields-1]
		if fields > 2 {
			c.index, c.tree, c.sub = f[1][0], f[1][1], f[2][0] == 'S'
			c.idLen = len(f[7])
		}
		if c.kind == 'u' {
			c.mode, c.ours = f[4], f[8]
		}
		s.changes = append(s.changes, c)
	}
	for line := range strings.Lines(stderr) {
		rest, ok := strings.CutPrefix(line, "warning: could not open directory '")
		if i := strings.LastIndex(rest, "': "); ok && i >= 0 {
			s.unread = append(s.unread, rest[:i])
		} else if ok { // a path so long that the warning was cut
			s.unread = append(s.unread, strings.TrimSuffix(rest, "\n"))
		}
	}
	return s, nil
}
