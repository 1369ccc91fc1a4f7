//go:build !unix

package settings

import (
	"io/fs"
	"os"
	"path/filepath"

	"github.com/sessionledger/ledger/internal/durable"
)

// lock makes the file's folder. There is no lock on a folder here: the
// comparison before the rename has to do.
func lock(target string) (unlock func(), err error) {
	return func() {}, durable.MkdirAll(filepath.Dir(target), 0o700)
}

// own does nothing: a new file's owner is inherited from its folder.
func own(*os.File, fs.FileInfo) error { return nil }
