package gitcmd

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// DescribeFast reads the place of the working tree that dir, an absolute path, lies in from a
// few small files, without a child process; the zero Place means that it lies in no
// repository. It reports ok only where it is sure to agree with [Runner.Describe]: anything
// unusual (foreign owner, submodules, symbolic links in place of git's files, reftable,
// configuration that moves the working tree, unknown extensions, a mount point on the way
// up) is !ok, to be answered by git or left unknown. Environment variables such as GIT_DIR
// are not considered.
func DescribeFast(dir string) (p Place, ok bool) {
	if !filepath.IsAbs(dir) {
		return Place{}, false
	}
	at, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return Place{}, false
	}
	start, ok := lookAt(at)
	if !ok || !start.dir {
		return Place{}, false
	}
	for {
		here, ok := lookAt(at)
		if !ok || here.device != start.device {
			return Place{}, false
		}
		dot, err := os.Lstat(filepath.Join(at, ".git"))
		switch {
		case err == nil && here.mine && dot.IsDir():
			p = Place{Root: at, GitDir: filepath.Join(at, ".git")}
			p.CommonDir = p.GitDir
			return p.read()
		case err == nil && here.mine && dot.Mode().IsRegular():
			p = Place{Root: at, Linked: true}
			return p.readLinked()
		case err == nil || !os.IsNotExist(err):
			return Place{}, false
		}
		// Inside a bare repository or a git directory.
		if _, err := os.Lstat(filepath.Join(at, "HEAD")); !os.IsNotExist(err) {
			return Place{}, false
		}
		parent := filepath.Dir(at)
		if parent == at {
			return Place{}, true
		}
		at = parent
	}
}

// readLinked follows the .git file of a linked worktree.
func (p Place) readLinked() (Place, bool) {
	dotGit := filepath.Join(p.Root, ".git")
	info, ok := lookAt(dotGit)
	if !ok || !info.mine {
		return Place{}, false
	}
	line, ok := readLine(dotGit)
	target, isGit := strings.CutPrefix(line, "gitdir: ")
	if !ok || !isGit || target == "" {
		return Place{}, false
	}
	p.GitDir = resolve(p.Root, target)
	// Only linked worktrees have a commondir; submodules and separate git directories do not.
	common, ok := readLine(filepath.Join(p.GitDir, "commondir"))
	if !ok || common == "" {
		return Place{}, false
	}
	p.CommonDir = resolve(p.GitDir, common)
	for _, d := range []*string{&p.GitDir, &p.CommonDir} {
		real, err := filepath.EvalSymlinks(*d)
		if err != nil {
			return Place{}, false
		}
		*d = real
	}
	return p.read()
}

// read checks the git directory as git does, and reads the branch.
func (p Place) read() (Place, bool) {
	gitDir, ok := lookAt(p.GitDir)
	if !ok || !gitDir.dir || !gitDir.mine {
		return Place{}, false
	}
	for _, name := range []string{"objects", "refs"} {
		if d, ok := lookAt(filepath.Join(p.CommonDir, name)); !ok || !d.dir {
			return Place{}, false
		}
	}
	if !plainConfig(p.CommonDir, p.GitDir, p.Linked) {
		return Place{}, false
	}
	head, ok := readLine(filepath.Join(p.GitDir, "HEAD"))
	if !ok {
		return Place{}, false
	}
	if full, symbolic := strings.CutPrefix(head, "ref: "); symbolic {
		name, isBranch := strings.CutPrefix(full, "refs/heads/")
		if !isBranch || name == "" || name == ".invalid" || strings.Contains(name, "..") || strings.TrimSpace(name) != name {
			return Place{}, false
		}
		// A branch may itself be symbolic, and git then names the last one.
		path := filepath.Join(p.CommonDir, filepath.FromSlash(full))
		if value, ok := readLine(path); ok && !isObjectID(value) {
			return Place{}, false
		} else if _, err := os.Lstat(path); !ok && !os.IsNotExist(err) {
			return Place{}, false
		}
		p.Branch = name
	} else if !isObjectID(head) {
		return Place{}, false
	}
	p.Project = projectName(p.Root, p.CommonDir, p.Linked)
	return p, true
}

func resolve(base, path string) string {
	if filepath.IsAbs(path) {
		return filepath.Clean(path)
	}
	return filepath.Join(base, path)
}

// readLine reads a file of one line, at most 4 KiB.
func readLine(path string) (string, bool) {
	b, ok := readSmall(path, 4<<10)
	line, rest, _ := bytes.Cut(b, []byte("\n"))
	if !ok || len(rest) > 0 || bytes.IndexByte(line, 0) >= 0 {
		return "", false
	}
	return string(bytes.TrimSuffix(line, []byte("\r"))), true
}

// readSmall reads a regular file of at most max bytes.
func readSmall(path string, max int64) ([]byte, bool) {
	f, err := openRegular(path)
	if err != nil {
		return nil, false
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, max+1))
	return b, err == nil && int64(len(b)) <= max
}
