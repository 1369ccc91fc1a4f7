package runtimes

import (
	"context"
	"slices"

	"github.com/sessionledger/ledger/internal/transcript"
)

// A Rollout is the conversation file of a Codex root thread.
type Rollout struct {
	Path string
	ID   string
	Cwd  string
}

// OpenRollouts picks the root threads' rollouts out of the files that a Codex
// process holds open, which are also those of its subagents. Unsure are
// rollouts that do not tell what they are, or not yet: their first line can be
// written seconds after the start. With any of them, or with more than one root
// thread, what the process works on is not settled.
func OpenRollouts(ctx context.Context, files []string) (roots []Rollout, unsure []string) {
	var r transcript.Reader
	files = slices.Clone(files)
	slices.Sort(files)
	for _, path := range slices.Compact(files) {
		if transcript.RolloutID(path) == "" {
			continue
		}
		info, err := r.Read(ctx, path, transcript.Codex)
		switch {
		case err != nil || info.Subagent == transcript.Unknown:
			unsure = append(unsure, path)
		case info.Subagent == transcript.No:
			roots = append(roots, Rollout{Path: path, ID: info.ID, Cwd: info.Cwd})
		}
	}
	return roots, unsure
}
