//go:build unix

package ledger

import (
	"fmt"
	"syscall"
)

// become replaces this process's program. It returns only on failure.
func become(argv, env []string) error {
	return fmt.Errorf("ledger: launch %q: %w", argv[0], syscall.Exec(argv[0], argv, env))
}
