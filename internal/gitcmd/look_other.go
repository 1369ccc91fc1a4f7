//go:build !unix

package gitcmd

import "os"

type seen struct {
	dir, mine bool
	device    uint64
}

// lookAt never succeeds where ownership cannot be read as git reads it: DescribeFast then leaves
// the answer to git.
func lookAt(string) (seen, bool) { return seen{}, false }

func openRegular(path string) (*os.File, error) {
	info, err := os.Lstat(path)
	if err == nil && !info.Mode().IsRegular() {
		err = &os.PathError{Op: "open", Path: path, Err: errNotRegular}
	}
	if err != nil {
		return nil, err
	}
	return os.Open(path)
}
