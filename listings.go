package ledger

import (
	"context"
	"errors"
	"sync"

	"github.com/sessionledger/ledger/tmux"
)

// listings asks each tmux server once, however many ask for it in one pass.
type listings struct {
	s  *Store
	mu sync.Mutex
	by map[string]*serverListing // by socket
}

type serverListing struct {
	once    sync.Once
	listing tmux.Listing
	err     error
}

func (s *Store) listings() *listings { return &listings{s: s, by: map[string]*serverListing{}} }

func (ls *listings) at(socket string) *serverListing {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	l := ls.by[socket]
	if l == nil {
		l = &serverListing{err: errors.New("not asked")}
		ls.by[socket] = l
	}
	return l
}

func (ls *listings) of(ctx context.Context, server tmux.Server) (tmux.Listing, error) {
	l := ls.at(socketOf(server))
	l.once.Do(func() {
		ctx, cancel := context.WithTimeout(ctx, muxWait)
		defer cancel()
		l.listing, l.err = server.List(ctx)
	})
	return l.listing, l.err
}

// pane is the look-up of panes for one pass.
func (ls *listings) pane(ctx context.Context, socket string, serverPID int, panePIDs []int) (session, window, pane string, ok bool) {
	l, err := ls.of(ctx, ls.s.server(socket, ProcessID{}))
	if err != nil {
		return "", "", "", false
	}
	return paneIn(l, serverPID, panePIDs)
}

// ownSocket finds the socket of a server process among the store's own servers; "" where
// it is none of them.
func (ls *listings) ownSocket(ctx context.Context, serverPID int) string {
	for _, srv := range ls.s.servers {
		if l, err := ls.of(ctx, srv); err == nil && l.Server.PID == serverPID {
			return socketOf(srv)
		}
	}
	return ""
}
