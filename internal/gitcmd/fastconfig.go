package gitcmd

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// plainConfig says whether a repository's configuration leaves the working tree where its .git
// is and asks nothing of the reader that DescribeFast does not know. It need not understand the
// configuration: what it does not expect counts as not plain.
func plainConfig(commonDir, gitDir string, linked bool) bool {
	config := filepath.Join(commonDir, "config")
	b, ok := readSmall(config, 256<<10)
	if !ok {
		_, err := os.Lstat(config)
		return errors.Is(err, fs.ErrNotExist)
	}
	perWorktree, ok := scanConfig(string(b), linked)
	if !ok || !perWorktree {
		return ok
	}
	own := filepath.Join(gitDir, "config.worktree")
	b, ok = readSmall(own, 256<<10)
	if !ok {
		_, err := os.Lstat(own)
		return errors.Is(err, fs.ErrNotExist)
	}
	_, ok = scanConfig(string(b), false)
	return ok
}

// scanConfig reads the sections that decide where a working tree is. In the configuration that a
// linked worktree shares, git ignores core.bare and core.worktree.
func scanConfig(text string, shared bool) (perWorktree, ok bool) {
	section := ""
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if strings.HasSuffix(line, "\\") {
			return false, false
		}
		if rest, isHeader := strings.CutPrefix(line, "["); isHeader {
			name, after, closed := strings.Cut(rest, "]")
			after = strings.TrimSpace(after)
			if !closed || after != "" && after[0] != '#' && after[0] != ';' && !strings.Contains(name, `"`) {
				return false, false // a key may follow its section's name
			}
			section = strings.ToLower(strings.TrimSpace(name))
			if strings.HasPrefix(section, "include") {
				return false, false
			}
			continue
		}
		key, value, hasValue := strings.Cut(line, "=")
		key, value = strings.ToLower(strings.TrimSpace(key)), strings.ToLower(strings.TrimSpace(value))
		switch section {
		case "core":
			switch key {
			case "worktree":
				if !shared {
					return false, false
				}
			case "bare":
				if !shared && (!hasValue || value != "false") {
					return false, false
				}
			case "repositoryformatversion":
				if value != "0" && value != "1" {
					return false, false
				}
			}
		case "extensions":
			switch key {
			case "", "objectformat", "partialclone", "preciousobjects", "noop":
			case "worktreeconfig":
				perWorktree = perWorktree || !hasValue || value != "false"
			default:
				if key[0] != '#' && key[0] != ';' {
					return false, false
				}
			}
		}
	}
	return perWorktree, true
}
