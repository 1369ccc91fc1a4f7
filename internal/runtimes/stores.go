package runtimes

import (
	"context"
	"errors"
	"path/filepath"
	"strings"

	"github.com/sessionledger/ledger/internal/transcript"
)

// findClaude looks at projects/<folder>/<id>.jsonl.
func findClaude(_ context.Context, q query) (string, error) {
	return q.inProjects(transcript.Claude, "")
}

// findQwen looks at projects/<folder>/chats/<id>.jsonl.
func findQwen(_ context.Context, q query) (string, error) {
	return q.inProjects(transcript.Qwen, "chats")
}

// inProjects looks a file name up, first in the folder of the directory, then
// in all of them: a hook can name a wrong folder, a variable can rename one,
// and a name outside ASCII can be in another normal form.
func (q query) inProjects(format transcript.Format, sub string) (string, error) {
	projects := filepath.Join(q.root, "projects")
	file := filepath.Join(sub, q.id+".jsonl")
	for _, folder := range projectFolders(q.cwd) {
		if p := filepath.Join(projects, folder, file); len(folder) <= maxEncoded && q.has(p) {
			return p, nil
		}
	}
	var hits []string
	for _, folder := range q.names(projects) {
		if p := filepath.Join(projects, folder, file); q.has(p) {
			hits = append(hits, p)
		}
	}
	return q.one(format, hits)
}

// findCodex looks through sessions/YYYY/MM/DD and archived_sessions, newest
// first. A plain rollout wins over a compressed one.
func findCodex(_ context.Context, q query) (string, error) {
	compressed := ""
	for _, dir := range []string{"sessions", "archived_sessions"} {
		plain, zst := q.rollout(filepath.Join(q.root, dir), 3)
		if plain != "" {
			return plain, nil
		}
		if compressed == "" {
			compressed = zst
		}
	}
	if compressed != "" {
		return compressed, ErrCompressed
	}
	return "", ErrNoTranscript
}

// rollout looks for the rollout in dir and in its dated folders, depth deep.
func (q query) rollout(dir string, depth int) (plain, zst string) {
	for _, name := range q.names(dir) {
		path := filepath.Join(dir, name)
		switch {
		case strings.HasPrefix(name, "rollout-"):
			log, isZst := strings.CutSuffix(name, ".zst")
			switch {
			case !strings.HasSuffix(log, "-"+q.id+".jsonl"):
			case transcript.RolloutID(log) != "" && transcript.RolloutID(log) != q.id:
				// The id is only the end of another.
			case isZst && zst == "" && q.has(path):
				zst = path
			case !isZst && q.has(path):
				return path, ""
			}
		case depth > 0 && strings.Trim(name, "0123456789") == "":
			p, z := q.rollout(path, depth-1)
			if p != "" {
				return p, ""
			}
			if zst == "" {
				zst = z
			}
		}
	}
	return "", zst
}

// findGemini looks at tmp/<project>/chats/session-<time>-<first 8 of the id>,
// and into each that fits, for eight characters are not an id. Where a session
// has files of both generations, the newer form wins.
func findGemini(ctx context.Context, q query) (string, error) {
	short := q.id[:min(8, len(q.id))]
	var lines, objects []string
	var r transcript.Reader
	tmp := filepath.Join(q.root, "tmp")
	for _, project := range q.names(tmp) {
		chats := filepath.Join(tmp, project, "chats")
		for _, name := range q.names(chats) {
			ext := filepath.Ext(name)
			if !strings.HasPrefix(name, "session-") || !strings.HasSuffix(strings.TrimSuffix(name, ext), "-"+short) ||
				ext != ".jsonl" && ext != ".json" {
				continue
			}
			path := filepath.Join(chats, name)
			info, err := r.Read(ctx, path, transcript.Gemini)
			if err == nil && info.ID == "" {
				err = errors.New(path + " does not tell its session")
			}
			q.fail(err)
			switch {
			case err != nil || info.ID != q.id:
			case ext == ".jsonl":
				lines = append(lines, path)
			default:
				objects = append(objects, path)
			}
		}
	}
	if len(lines) > 0 {
		return q.one(transcript.Gemini, lines)
	}
	return q.one(transcript.Gemini, objects)
}

// findOpenCode looks at the older storage/session/<project>/<id>.json. Newer
// versions keep all sessions in one database.
func findOpenCode(_ context.Context, q query) (string, error) {
	var hits []string
	sessions := filepath.Join(q.root, "storage", "session")
	for _, project := range q.names(sessions) {
		if p := filepath.Join(sessions, project, q.id+".json"); q.has(p) {
			hits = append(hits, p)
		}
	}
	if len(hits) == 0 && q.has(filepath.Join(q.root, "opencode.db")) {
		return "", ErrEmbedder
	}
	return q.one(transcript.OpenCode, hits)
}

// findAmp looks at threads/<id>.json.
func findAmp(_ context.Context, q query) (string, error) {
	if p := filepath.Join(q.root, "threads", q.id+".json"); q.has(p) {
		return p, nil
	}
	return "", ErrNoTranscript
}

// findCopilot looks at session-state/<id>/events.jsonl.
func findCopilot(_ context.Context, q query) (string, error) {
	if p := filepath.Join(q.root, "session-state", q.id, "events.jsonl"); q.has(p) {
		return p, nil
	}
	return "", ErrNoTranscript
}

// findCursor looks at projects/<project>/agent-transcripts, in which a
// transcript is a file or has a folder of its own, and at
// chats/<hash>/<id>/store.db, which only proves that the chat is there.
func findCursor(_ context.Context, q query) (string, error) {
	var hits []string
	projects := filepath.Join(q.root, "projects")
	for _, project := range q.names(projects) {
		for _, file := range []string{filepath.Join(q.id, q.id+".jsonl"), q.id + ".jsonl", q.id + ".txt"} {
			if p := filepath.Join(projects, project, "agent-transcripts", file); q.has(p) {
				hits = append(hits, p)
				break
			}
		}
	}
	if len(hits) > 0 {
		return q.one(transcript.Cursor, hits)
	}
	chats := filepath.Join(q.root, "chats")
	for _, hash := range q.names(chats) {
		if p := filepath.Join(chats, hash, q.id, "store.db"); q.has(p) {
			return p, ErrEmbedder
		}
	}
	return "", ErrNoTranscript
}

// findAider looks for the chat history of the repository that holds cwd.
func findAider(_ context.Context, q query) (string, error) {
	if !filepath.IsAbs(q.cwd) {
		return "", errors.New("no directory to look for a chat history in")
	}
	for dir := filepath.Clean(q.cwd); ; dir = filepath.Dir(dir) {
		if p := filepath.Join(dir, ".aider.chat.history.md"); q.has(p) {
			return p, nil
		}
		if exists(filepath.Join(dir, ".git")) || dir == filepath.Dir(dir) {
			return "", ErrNoTranscript
		}
	}
}
