//go:build !unix

package main

import (
	"os"
	"path/filepath"
)

// terminalWidth reports whether v is a terminal: a character device that is not the null
// device. Its width is not known here.
func terminalWidth(v any) (columns int, ok bool) {
	if o, ok := v.(*output); ok {
		v = o.Writer
	}
	f, isFile := v.(*os.File)
	if !isFile {
		return 0, false
	}
	info, err := f.Stat()
	return 0, err == nil && info.Mode()&os.ModeCharDevice != 0 && filepath.Clean(f.Name()) != os.DevNull
}
