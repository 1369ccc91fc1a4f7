//go:build !unix

package folder

import (
	"fmt"
	"os"
)

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
