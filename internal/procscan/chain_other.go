//go:build !linux

package procscan

import "errors"

// Chain is not supported.
func (s *System) Chain(pid int) (*Snapshot, error) {
	return &Snapshot{sys: s, problem: errors.ErrUnsupported.Error()}, errors.ErrUnsupported
}

// ChainTo is not supported.
func (s *System) ChainTo(pid int, _ func(*Proc) bool) (*Snapshot, error) { return s.Chain(pid) }
