//go:build unix

package folder

import (
	"cmp"
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// Secure makes sure that the folder at path is a real folder of this user which nobody
// else can write to; it takes away the write bits of others where it may.
func Secure(path string) error {
	info, err := os.Lstat(path)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return fmt.Errorf("%w: %q is %s, not a folder", ErrInsecure, path, kind(info.Mode()))
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return fmt.Errorf("%w: %q: owner is not known", ErrInsecure, path)
	}
	if uid := os.Geteuid(); int64(st.Uid) != int64(uid) {
		return fmt.Errorf("%w: %q belongs to uid %d, not %d", ErrInsecure, path, st.Uid, uid)
	}
	if info.Mode().Perm()&0o022 == 0 {
		return nil
	}
	chmodErr := os.Chmod(path, 0o700)
	// Some file systems ignore a chmod and report success.
	if info, err = os.Lstat(path); err != nil {
		return err
	}
	if chmodErr != nil || info.Mode().Perm()&0o022 != 0 {
		return fmt.Errorf("%w: %q is writable by others (mode %#o) and cannot be tightened: %w",
			ErrInsecure, path, info.Mode().Perm(), cmp.Or(chmodErr, error(fs.ErrPermission)))
	}
	return nil
}

func kind(mode fs.FileMode) string {
	if mode&fs.ModeSymlink != 0 {
		return "a symlink"
	}
	return "a file"
}
