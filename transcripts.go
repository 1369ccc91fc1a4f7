package ledger

import (
	"context"
	"os"
	"sync"
	"time"
)

// transcripts keeps what was read of conversation files, so that an untouched one costs
// one lstat. It holds one element for each row that was asked for lately.
type transcripts struct {
	mu   sync.Mutex
	rows map[string]transcriptRead // by ledger id
}

type transcriptRead struct {
	runtime, session string
	path             string // "" : not found
	lookedAt         time.Time
	mtime            time.Time
	size             int64
	found            TranscriptEvidence
}

// lookAgain is how long a conversation file that was not found is not looked for again: a
// look-up can mean to list all folders of a store.
const lookAgain = 5 * time.Second

// maxTranscripts bounds the cache; beyond it everything is read anew.
const maxTranscripts = 4096

// read returns what the row's conversation file shows, or nil.
func (c *transcripts) read(ctx context.Context, s *Store, rt Runtime, e *Entry) *TranscriptEvidence {
	if !rt.HasTranscripts || e.SessionID == "" && e.TranscriptPath == "" {
		return nil
	}
	c.mu.Lock()
	last, known := c.rows[e.LedgerID]
	c.mu.Unlock()
	known = known && last.runtime == e.Runtime && last.session == e.SessionID
	now := s.clock.Now()
	if known && last.path == "" && now.Sub(last.lookedAt) < lookAgain {
		return nil
	}
	next := transcriptRead{runtime: e.Runtime, session: e.SessionID, lookedAt: now}
	next.path = s.transcriptPath(ctx, rt, e, last.path)
	if info, err := os.Lstat(next.path); next.path != "" && err == nil && info.Mode().IsRegular() {
		if known && last.path == next.path && last.size == info.Size() && last.mtime.Equal(info.ModTime()) {
			found := last.found
			return &found
		}
		t, err := rt.Read(ctx, next.path)
		if err != nil || t.Subagent != nil && *t.Subagent {
			return nil
		}
		next.mtime, next.size = t.ModTime, t.Size
		next.found = TranscriptEvidence{ModTime: t.ModTime, Title: t.Title, Activity: t.Activity}
	} else {
		next.path = ""
	}
	c.mu.Lock()
	if c.rows == nil || len(c.rows) >= maxTranscripts {
		c.rows = map[string]transcriptRead{}
	}
	c.rows[e.LedgerID] = next
	c.mu.Unlock()
	if next.path == "" {
		return nil
	}
	found := next.found
	return &found
}

// transcriptPath is where the row's conversation file is: where it was recorded or last
// found, else where the runtime's look-up finds the conversation; "" where it does not. A
// recorded path may point into a wrong folder.
func (s *Store) transcriptPath(ctx context.Context, rt Runtime, e *Entry, last string) string {
	for _, path := range []string{e.TranscriptPath, last} {
		if there := exists(path); path != "" && there != nil && *there {
			return path
		}
	}
	if e.SessionID == "" {
		return ""
	}
	env := s.environOf(e)
	if env == nil && e.Account != "" {
		return "" // the account's store is not the default one
	}
	path, err := rt.Transcript(ctx, TranscriptQuery{ID: e.SessionID, Cwd: e.Cwd, Home: s.home, Env: env})
	if err != nil {
		return ""
	}
	return path
}
