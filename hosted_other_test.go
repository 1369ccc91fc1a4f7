//go:build !linux

package ledger

// removeBuilt has nothing to remove: only the tests for Linux build programs.
func removeBuilt() {}
