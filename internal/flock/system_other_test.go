//go:build !linux

package flock

import "fmt"

func runSystemChild(role string, _ *Set) error { return fmt.Errorf("unknown role %s", role) }
