package gitcmd

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Ref is one rescued ref of a repository.
type Ref struct {
	Name    string // refs/rescued/...
	Commit  string // its full id
	Time    time.Time
	Subject string // first line of the message
}

// List returns the rescued refs of the repository that dir lies in, ordered by name.
func (r Runner) List(ctx context.Context, dir string) ([]Ref, error) {
	args := []string{"for-each-ref", "--format=%(objecttype)%00%(refname)%00%(objectname)%00%(committerdate:unix)%00%(contents:subject)", RescuePrefix}
	out, _, err := r.output(ctx, call{dir: dir, args: args})
	if err != nil {
		return nil, err
	}
	var refs []Ref
	for _, line := range splitLines(out) {
		f := strings.SplitN(line, "\x00", 5)
		if len(f) != 5 {
			return nil, fmt.Errorf("%w: unexpected output of git for-each-ref", ErrBroken)
		}
		if f[0] != "commit" {
			continue // not ours
		}
		sec, err := strconv.ParseInt(f[3], 10, 64)
		if err != nil {
			return nil, fmt.Errorf("%w: date of %s", ErrBroken, f[1])
		}
		refs = append(refs, Ref{Name: f[1], Commit: f[2], Time: time.Unix(sec, 0), Subject: f[4]})
	}
	return refs, nil
}
