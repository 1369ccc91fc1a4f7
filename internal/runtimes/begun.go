package runtimes

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/sessionledger/ledger/internal/transcript"
)

// A Begun is a conversation, and when it began by its own first record.
type Begun struct {
	Path string
	ID   string
	At   time.Time
}

// maxBegun bounds the files that one look at a store reads: those alone that were
// written to since the time that is asked about.
const maxBegun = 64

// coarse is the resolution of a file's times on any file system.
const coarse = 2 * time.Second

// Begun lists the conversations that began in the directory dir at that time or later, in
// the order of their beginnings. Unsure are files that were written to since, and do not
// tell what they are, or not yet. Homes is the session's.
//
// The error is ErrEmbedder for a runtime whose conversations do not tell this; with any
// other it is not known what began.
func (s Spec) Begun(ctx context.Context, h Homes, dir string, since time.Time) (begun []Begun, unsure []string, err error) {
	if s.list == nil {
		return nil, nil, ErrEmbedder
	}
	left := maxLooked
	var failures []error
	q := query{ctx: ctx, root: s.ConfigHome(h), cwd: dir, left: &left, failures: &failures}
	if q.root == "" {
		return nil, nil, errors.New("no home directory is known")
	}
	var r transcript.Reader
	for _, path := range distinct(q.writtenSince(s.list(q), since)) {
		info, err := r.Read(ctx, path, s.Format)
		name := strings.TrimSuffix(filepath.Base(path), filepath.Ext(path))
		switch here := beganIn(&info, dir); {
		case err != nil:
			q.fail(err)
		case info.Subagent == transcript.Yes, here == transcript.No, !info.Began.IsZero() && info.Began.Before(since):
		case s.Format != transcript.Gemini && info.ID != "" && info.ID != name:
			// It is no conversation of its own: those are named after their ids.
		case info.Subagent == transcript.Unknown, here == transcript.Unknown, info.Began.IsZero(), info.ID == "":
			unsure = append(unsure, path)
		case !slices.ContainsFunc(begun, func(b Begun) bool { return b.ID == info.ID }): // both forms of one
			begun = append(begun, Begun{path, info.ID, info.Began})
		}
	}
	slices.SortFunc(begun, func(a, b Begun) int { return cmp.Or(a.At.Compare(b.At), strings.Compare(a.ID, b.ID)) })
	return begun, unsure, errors.Join(append(failures, ctx.Err())...)
}

// writtenSince picks the files that were written to since, at most maxBegun.
func (q query) writtenSince(paths []string, since time.Time) (recent []string) {
	for _, path := range paths {
		if !q.spend(1) {
			break
		}
		fi, err := os.Lstat(path)
		if err != nil || !fi.Mode().IsRegular() || fi.ModTime().Before(since.Add(-coarse)) {
			q.fail(err)
			continue
		}
		if len(recent) == maxBegun {
			q.fail(ErrTooMany)
			break
		}
		recent = append(recent, path)
	}
	return recent
}

// beganIn tells whether a conversation began in dir, by its own word.
func beganIn(info *transcript.Info, dir string) transcript.Answer {
	switch {
	case info.Cwd != "":
		return sameDir(info.Cwd, dir)
	case info.CwdHash == "":
		return transcript.Unknown
	}
	if hash := sha256.Sum256([]byte(dir)); info.CwdHash == hex.EncodeToString(hash[:]) {
		return transcript.Yes
	}
	return transcript.No
}

func listClaude(q query) []string { return q.listProjects("") }

func listQwen(q query) []string { return q.listProjects("chats") }

// listProjects lists the conversations in the folders that are named after the directory.
func (q query) listProjects(sub string) (paths []string) {
	projects := filepath.Join(q.root, "projects")
	named := projectFolders(q.cwd)
	for _, folder := range q.names(projects) {
		if !slices.ContainsFunc(named, func(name string) bool {
			return folder == name || len(name) > maxEncoded && strings.HasPrefix(folder, name)
		}) {
			continue
		}
		for _, name := range q.names(filepath.Join(projects, folder, sub)) {
			if strings.HasSuffix(name, ".jsonl") {
				paths = append(paths, filepath.Join(projects, folder, sub, name))
			}
		}
	}
	return paths
}

// listGemini lists the conversations of all projects: which one is a directory's is told
// by their first records.
func listGemini(q query) (paths []string) {
	tmp := filepath.Join(q.root, "tmp")
	for _, project := range q.names(tmp) {
		chats := filepath.Join(tmp, project, "chats")
		for _, name := range q.names(chats) {
			if ext := filepath.Ext(name); strings.HasPrefix(name, "session-") && (ext == ".jsonl" || ext == ".json") {
				paths = append(paths, filepath.Join(chats, name))
			}
		}
	}
	return paths
}
