package tmux

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// Dtach looks at a dtach socket: whether its session runs, and whether a
// terminal is attached to it. dtach is recognised only, not driven. A missing
// socket proves nothing (Unknown), since that of a living session can be unlinked.
// The rule for attached is dtach's own: it sets the execute bit of the socket's
// owner while a client is attached. The error explains Unknown.
func Dtach(ctx context.Context, path string) (session, attached Presence, err error) {
	if len(path) > maxSocket {
		return Unknown, Unknown, invalid("socket path of %d bytes, at most %d are possible", len(path), maxSocket)
	}
	fi, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return Unknown, Unknown, fmt.Errorf("%w: %w", ErrNoServer, err)
	}
	if err != nil {
		return Unknown, Unknown, err
	}
	if fi.Mode().Type() != fs.ModeSocket {
		return Unknown, Unknown, invalid("%q is not a socket", path)
	}
	if err := ctx.Err(); err != nil {
		return Unknown, Unknown, err
	}
	// A client that says nothing is not attached, so dialing changes nothing.
	err = dial(path)
	if errors.Is(err, syscall.ECONNREFUSED) {
		return Absent, Absent, nil
	}
	if err != nil {
		return Unknown, Unknown, err
	}
	if fi.Mode().Perm()&0o100 != 0 {
		return Present, Present, nil
	}
	return Present, Absent, nil
}
