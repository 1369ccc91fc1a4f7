package runtimes

import (
	"path/filepath"
	"slices"
	"strings"
)

// maxEncoded is how much of a long directory's name a project folder keeps.
const maxEncoded = 200

// EncodeClaudeProject is the name of the folder in which Claude Code files the
// conversations of a directory: every UTF-16 unit outside A-Z, a-z, 0-9 is a
// dash. The program encodes the real path in NFC; path is taken as it is.
// Different directories can have one name, and the transcript's own cwd
// decides. A result longer than 200 bytes is the beginning of the name, which a
// hash follows that differs between builds.
func EncodeClaudeProject(path string) string {
	return encodeProject(path, "")
}

// encodeProject leaves the characters of keep as they are.
func encodeProject(path, keep string) string {
	var b strings.Builder
	for _, r := range path {
		if b.Len() >= maxEncoded {
			return b.String()[:maxEncoded] + "-"
		}
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9',
			strings.ContainsRune(keep, r):
			b.WriteRune(r)
		case r > 0xffff: // two units
			b.WriteString("--")
		default:
			b.WriteByte('-')
		}
	}
	if b.Len() > maxEncoded {
		return b.String()[:maxEncoded] + "-"
	}
	return b.String()
}

// projectFolders are the names that a directory's folder may have, today's
// first. Older builds kept dots and underscores. The directory is taken both as
// it is and by its real path.
func projectFolders(dir string) []string {
	if dir == "" {
		return nil
	}
	dirs := []string{dir}
	if resolved, err := filepath.EvalSymlinks(dir); err == nil && resolved != dir {
		dirs = []string{resolved, dir}
	}
	var names []string
	for _, keep := range []string{"", "._", ".", "_"} {
		for _, d := range dirs {
			if name := encodeProject(d, keep); !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	return names
}

// FiledUnder reports whether a project folder, by its name alone, is that of
// dir: whether a resume from dir would look into it.
func FiledUnder(folder, dir string) bool {
	return slices.ContainsFunc(projectFolders(dir), func(name string) bool {
		if len(name) > maxEncoded {
			return strings.HasPrefix(folder, name)
		}
		return folder == name
	})
}
