//go:build !unix

package folder

import (
	"errors"
	"fmt"
	"os"
)

// ErrInsecure is returned by Secure for a folder that others control.
var ErrInsecure = errors.New("insecure folder")

// Secure makes sure that path is a real folder. Owners and modes mean nothing here.
func Secure(path string) error {
	info, err := os.Lstat(path)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return fmt.Errorf("%w: %q is not a folder", ErrInsecure, path)
	}
	return nil
}
