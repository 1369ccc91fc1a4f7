package runtimes

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/sessionledger/ledger/internal/transcript"
	"github.com/sessionledger/ledger/internal/transcript/loose"
)

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// ErrBadRegistry says that a live registry's file is damaged or is another's.
var ErrBadRegistry = errors.New("not a live registry entry")

// A Live is what a runtime's registry of running sessions says of one process.
// The file outlives a crash, and its id was stale after /clear in some
// versions: it speaks for a process only when pid and start ticks are that
// process's, and the id is a weak source even then. Texts are verbatim.
type Live struct {
	PID        int
	StartTicks uint64 // 0 when the file has none (not on Linux)
	SessionID  string
	Cwd        string
	Status     string // busy, idle, waiting, or what a newer version says
	Kind       string
	Name       string
	Version    string
	StartedAt  time.Time
	UpdatedAt  time.Time
}

const maxLive = 64 << 10

// ReadLive reads Claude Code's registry entry of a process. Root is the config
// home. The error wraps fs.ErrNotExist when there is none, ErrBadRegistry when
// it is no such entry or names another process, else it is the file system's.
func ReadLive(root string, pid int) (Live, error) {
	path := filepath.Join(root, "sessions", strconv.Itoa(pid)+".json")
	f, _, err := transcript.Open(path)
	if err != nil {
		return Live{}, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxLive+1))
	if err != nil {
		return Live{}, &fs.PathError{Op: "read", Path: path, Err: err}
	}
	o, whole := loose.Parse(text)
	n, _ := o.Uint("pid")
	if !whole || len(text) > maxLive || n != uint64(pid) {
		return Live{}, fmt.Errorf("%s: %w", path, ErrBadRegistry)
	}
	ticks, _ := o.Uint("procStart")
	return Live{
		PID:        pid,
		StartTicks: ticks,
		SessionID:  o.String("sessionId"),
		Cwd:        o.String("cwd"),
		Status:     o.String("status"),
		Kind:       o.String("kind"),
		Name:       o.String("name"),
		Version:    o.String("version"),
		StartedAt:  millis(o, "startedAt"),
		UpdatedAt:  millis(o, "updatedAt"),
	}, nil
}

// millis reads a time in milliseconds since 1970, the zero time when there is
// none that a clock could have shown.
func millis(o loose.Object, name string) time.Time {
	ms, ok := o.Uint(name)
	if !ok || ms == 0 || ms > 1<<53 {
		return time.Time{}
	}
	return time.UnixMilli(int64(ms)).UTC()
}
