package gitcmd

import (
	"path/filepath"
	"strings"
)

// Place is where a working tree is and what it belongs to. Paths are absolute and physical.
type Place struct {
	Root      string // top of this working tree
	Project   string // name of the main checkout's folder
	GitDir    string // this working tree's own git directory
	CommonDir string // the one it shares with the repository's other working trees
	Branch    string // without refs/heads/; "": HEAD is no branch (detached, rebasing, bisecting)
	Linked    bool   // made by git worktree add
}

// projectName is the one rule for Place.Project. A main checkout is named by its own folder. A
// linked one knows the main checkout only by the common directory: its ".git", or a bare
// repository, "name.git" or a hidden folder beside the worktrees.
func projectName(root, commonDir string, linked bool) string {
	if !linked {
		return filepath.Base(root)
	}
	base := filepath.Base(commonDir)
	if strings.HasPrefix(base, ".") {
		return filepath.Base(filepath.Dir(commonDir))
	}
	return strings.TrimSuffix(base, ".git")
}
