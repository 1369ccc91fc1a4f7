package main

import (
	"crypto/rand"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
	"unicode/utf16"
)

// Where each CLI keeps its conversations (facts/runtimes.md).

var claudeStore = &store{
	newID: newUUID,
	// A resume looks into the folder of its directory, and nowhere else.
	dir:     func(a *agent) string { return filepath.Join(a.root, "projects", projectFolder(a.launchDir)) },
	path:    func(a *agent) string { return filepath.Join(a.store.dir(a), a.id+".jsonl") },
	idOf:    uuidNamed(".jsonl"),
	records: claudeRecords,
}

var qwenStore = &store{
	newID:   newUUID,
	dir:     func(a *agent) string { return filepath.Join(a.root, "projects", projectFolder(a.launchDir), "chats") },
	path:    func(a *agent) string { return filepath.Join(a.store.dir(a), a.id+".jsonl") },
	idOf:    uuidNamed(".jsonl"),
	records: claudeRecords,
}

var codexStore = &store{
	newID: newUUID,
	dir:   func(a *agent) string { return filepath.Join(a.root, "sessions") },
	path: func(a *agent) string {
		now := time.Now() // local, unlike the times inside
		return filepath.Join(a.store.dir(a), now.Format("2006"), now.Format("01"), now.Format("02"),
			"rollout-"+now.Format("2006-01-02T15-04-05")+"-"+a.id+".jsonl")
	},
	idOf: func(path string) string {
		name := stem(path)
		if len(name) > 36 && strings.HasPrefix(name, "rollout-") && isUUID(name[len(name)-36:]) {
			return name[len(name)-36:]
		}
		return ""
	},
	records: codexRecords,
	held:    true,
}

var geminiStore = &store{
	newID: newUUID,
	dir:   func(a *agent) string { return filepath.Join(a.root, "tmp", geminiSlug(a), "chats") },
	path: func(a *agent) string {
		return filepath.Join(a.store.dir(a), "session-"+time.Now().UTC().Format("2006-01-02T15-04")+"-"+a.id[:8]+".jsonl")
	},
	idOf: func(path string) string {
		var header struct{ SessionID string }
		if !strings.HasPrefix(filepath.Base(path), "session-") || firstLine(path, &header) != nil {
			return ""
		}
		return header.SessionID
	},
	records: geminiRecords,
}

var opencodeStore = &store{
	newID: func() string { return "ses_" + token(13) },
	dir:   func(a *agent) string { return filepath.Join(a.root, "storage", "session", hash(a.launchDir)) },
	path:  func(a *agent) string { return filepath.Join(a.store.dir(a), a.id+".json") },
	idOf:  prefixed("ses_"),
	whole: opencodeWhole,
}

var ampStore = &store{
	newID: func() string { return "T-" + newUUID() },
	dir:   func(a *agent) string { return filepath.Join(a.root, "threads") },
	path:  func(a *agent) string { return filepath.Join(a.store.dir(a), a.id+".json") },
	idOf:  prefixed("T-"),
	whole: ampWhole,
}

var cursorStore = &store{
	newID: newUUID,
	dir: func(a *agent) string {
		return filepath.Join(a.root, "projects", strings.Trim(projectFolder(a.launchDir), "-"), "agent-transcripts")
	},
	path:    func(a *agent) string { return filepath.Join(a.store.dir(a), a.id+".txt") },
	idOf:    uuidNamed(".txt"),
	records: cursorRecords,
}

var copilotStore = &store{
	newID: newUUID,
	dir:   func(a *agent) string { return filepath.Join(a.root, "session-state") },
	path:  func(a *agent) string { return filepath.Join(a.store.dir(a), a.id, "events.jsonl") },
	idOf: func(path string) string {
		if id := filepath.Base(filepath.Dir(path)); isUUID(id) && filepath.Base(path) == "events.jsonl" {
			return id
		}
		return ""
	},
	records: copilotRecords,
}

// aider keeps one history a repository, without ids.
var aiderStore = &store{
	newID:   func() string { return "" },
	dir:     func(a *agent) string { return repository(a.launchDir) },
	path:    func(a *agent) string { return filepath.Join(a.store.dir(a), ".aider.chat.history.md") },
	idOf:    func(string) string { return "" },
	records: aiderRecords,
}

func uuidNamed(ext string) func(path string) string {
	return func(path string) string {
		if id := stem(path); isUUID(id) && filepath.Ext(path) == ext {
			return id
		}
		return ""
	}
}

func prefixed(prefix string) func(path string) string {
	return func(path string) string {
		if id := stem(path); strings.HasPrefix(id, prefix) && filepath.Ext(path) == ".json" {
			return id
		}
		return ""
	}
}

// maxFolder is how much of a directory's name its folder keeps.
const maxFolder = 200

// projectFolder is the name that claude files a directory under. Its NFC step
// is left out: directories are ASCII, or as the test made them.
func projectFolder(dir string) string {
	var b strings.Builder
	for _, u := range utf16.Encode([]rune(dir)) {
		if u < 128 && (u >= 'a' && u <= 'z' || u >= 'A' && u <= 'Z' || u >= '0' && u <= '9') {
			b.WriteByte(byte(u))
		} else {
			b.WriteByte('-')
		}
	}
	if name := b.String(); len(name) > maxFolder {
		return name[:maxFolder] + "-" + hash(dir)[:6]
	}
	return b.String()
}

// geminiSlug is the short name of a directory, which projects.json keeps.
func geminiSlug(a *agent) string {
	path := filepath.Join(a.root, "projects.json")
	var known struct {
		Projects map[string]string `json:"projects"`
	}
	if text, err := os.ReadFile(path); err == nil {
		_ = json.Unmarshal(text, &known)
	}
	if slug := known.Projects[a.launchDir]; slug != "" {
		return slug
	}
	if known.Projects == nil {
		known.Projects = map[string]string{}
	}
	taken := map[string]bool{}
	for _, slug := range known.Projects {
		taken[slug] = true
	}
	base := strings.ToLower(strings.Trim(projectFolder(filepath.Base(a.launchDir)), "-"))
	slug := base
	for i := 1; slug == "" || taken[slug]; i++ {
		slug = base + "-" + strconv.Itoa(i)
	}
	known.Projects[a.launchDir] = slug
	if text, err := json.Marshal(known); err == nil {
		_ = os.MkdirAll(a.root, 0o700)
		_ = os.WriteFile(path, text, fs.FileMode(0o600))
	}
	return slug
}

// repository is the directory above dir that holds .git, else dir.
func repository(dir string) string {
	for d := dir; ; d = filepath.Dir(d) {
		if _, err := os.Lstat(filepath.Join(d, ".git")); err == nil {
			return d
		}
		if d == filepath.Dir(d) {
			return dir
		}
	}
}

// branch is the branch that dir's repository has checked out, "" for none.
func branch(dir string) string {
	git := filepath.Join(repository(dir), ".git")
	if text, err := os.ReadFile(git); err == nil { // a linked worktree
		git = strings.TrimSpace(strings.TrimPrefix(string(text), "gitdir:"))
		if !filepath.IsAbs(git) {
			git = filepath.Join(repository(dir), git)
		}
	}
	head, err := os.ReadFile(filepath.Join(git, "HEAD"))
	if err != nil {
		return ""
	}
	name, ok := strings.CutPrefix(strings.TrimSpace(string(head)), "ref: refs/heads/")
	if !ok {
		return ""
	}
	return name
}

func hash(s string) string { return fmt.Sprintf("%x", sha1.Sum([]byte(s))) }

// projectHash is gemini's older name of a directory, still in its records.
func projectHash(dir string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(dir))) }

func token(n int) string {
	b := make([]byte, n)
	_, _ = rand.Read(b) // it never fails
	return hex.EncodeToString(b)
}

func fileURL(dir string) string {
	return (&url.URL{Scheme: "file", Path: filepath.ToSlash(dir)}).String()
}
