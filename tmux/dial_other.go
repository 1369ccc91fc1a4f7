//go:build !unix

package tmux

import "errors"

func dial(string) error { return errors.ErrUnsupported }
