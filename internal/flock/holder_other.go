//go:build !linux

package flock

import "errors"

type mount struct{ kind string }

func mountOf(string, string) mount { return mount{} }

// Holder is the process that holds the lock called name. Only Linux says so.
func (s *Set) Holder(name string) (pid int, ok bool) { return 0, false }

// Holders lists the locks that are held now. Only Linux says so.
func (s *Set) Holders() (map[string]int, error) { return nil, errors.ErrUnsupported }
