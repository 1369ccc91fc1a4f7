package ledger

import (
	"cmp"
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
	of       [3]string // the row's runtime, conversation and recorded path
	path     string    // "": not found
	lookedAt time.Time
	mtime    time.Time
	size     int64
	found    TranscriptEvidence
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
	next := transcriptRead{of: [3]string{e.Runtime, e.SessionID, e.TranscriptPath}, lookedAt: s.clock.Now()}
	c.mu.Lock()
	last, known := c.rows[e.LedgerID]
	c.mu.Unlock()
	if known = known && last.of == next.of; !known {
		last = transcriptRead{}
	}
	if info, err := os.Lstat(last.path); err == nil && last.size == info.Size() && last.mtime.Equal(info.ModTime()) {
		return &last.found
	}
	if known && last.path == "" && next.lookedAt.Sub(last.lookedAt) < lookAgain {
		return nil
	}
	path := cmp.Or(last.path, e.TranscriptPath)
	t, ok := e.transcriptAt(ctx, rt, path)
	if !ok {
		var err error
		path, t, err = s.rowTranscript(ctx, e, s.environOf(e))
		ok = err == nil
	}
	if ok && (t.Subagent == nil || !*t.Subagent) {
		next.path, next.mtime, next.size = path, t.ModTime, t.Size
		next.found = TranscriptEvidence{ModTime: t.ModTime, Title: t.Title, Activity: t.Activity}
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
	return &next.found
}
