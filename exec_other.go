//go:build !unix

package ledger

import (
	"errors"
	"fmt"
)

// become is not to be had here: no process can become another program.
func become(argv, env []string) error {
	return fmt.Errorf("ledger: launch %q: %w", argv[0], errors.ErrUnsupported)
}
