package ledger

import (
	"context"
	"errors"

	"github.com/sessionledger/ledger/internal/runtimes"
)

// bindConversation makes a conversation the row's, with its source. Where another open
// row holds it, what happens depends on that row's process: while it may run, or the row
// is frozen or in an operation, the claim is refused and recorded in the row; where it is
// gone, this process has taken the conversation of a lost session up, and the row becomes
// that one's successor.
func (s *Store) bindConversation(ctx context.Context, row Entry, c conversation) (Entry, error) {
	ev := Claim(c.id, c.source)
	ev.TranscriptPath, ev.ProcessKey = c.path, row.Process().Key()
	better := row.SessionSource == fromStoreDiff && c.source != fromStoreDiff
	back := row.refused() && c.source == fromHook // in its own conversation, after a refusal
	if row.SessionID == c.id && !better && !back && (c.path == "" || row.TranscriptPath == c.path) || !runtimes.ValidID(c.id) {
		return row, nil
	}
	from, err := s.succeed(ctx, row, c.id)
	if err != nil {
		return row, err
	}
	bound, _, err := s.Apply(ctx, row.LedgerID, ev)
	if errors.Is(err, ErrConversationHeld) {
		return bound, nil // it stands in the row, with who holds it
	}
	if err != nil && !isUnsynced(err) {
		return row, err
	}
	if from == "" || bound.SessionID != c.id || bound.ResumedFrom != "" {
		return bound, err
	}
	marked, markErr := s.Update(ctx, row.LedgerID, func(e *Entry) error {
		e.ResumedFrom = from
		return nil
	})
	if markErr != nil {
		return bound, errors.Join(err, markErr)
	}
	return marked, err
}

// succeed frees a conversation that a row holds whose process is gone. It returns that
// row's id, or "" where there is none to succeed.
func (s *Store) succeed(ctx context.Context, row Entry, id string) (from string, err error) {
	if err := s.completeClaims(ctx); err != nil {
		return "", err
	}
	from, err = s.holder(conversationClaim(row.Runtime, id))
	if err != nil || from == "" || from == row.LedgerID {
		return "", err
	}
	old := s.sightRow(from)
	if old.state != rowThere {
		return "", nil
	}
	st := old.entry.State()
	if st.Phase != PhaseLive || st.Op != OpNone || st.Process.IsZero() {
		return "", nil
	}
	// The guard looks at that row's process, under the row's lock.
	_, out, err := s.Apply(ctx, from, Cede(id, row.LedgerID))
	switch {
	case errors.Is(err, ErrIllegal), errors.Is(err, ErrUnknown), errors.Is(err, ErrLeaseHeld), err == nil && out != Applied:
		return "", nil
	case err != nil && !isUnsynced(err):
		return "", err
	}
	return from, nil
}
