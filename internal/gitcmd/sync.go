package gitcmd

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"sync"
)

// syncWorkers sync at the same time, so that the file system's journal takes them together.
const syncWorkers = 8

// syncObjects makes objects and their names durable. Those in packs, which git syncs, and in the
// stores of others are passed over. Git could do this by itself (core.fsync), but one after the
// other, and not for an object that was there already, written unsynced a moment ago.
func syncObjects(ctx context.Context, commonDir string, ids []string) error {
	if !syncsObjects {
		return nil
	}
	store := filepath.Join(commonDir, "objects")
	dirs := map[string]bool{store: true}
	var files []string
	for _, id := range ids {
		if !isObjectID(id) {
			return fmt.Errorf("%w: %q is no object id", ErrBroken, id)
		}
		dir := filepath.Join(store, id[:2])
		dirs[dir] = true
		files = append(files, filepath.Join(dir, id[2:]))
	}
	if err := each(ctx, files, syncObject); err != nil {
		return err
	}
	names := make([]string, 0, len(dirs))
	for dir := range dirs {
		names = append(names, dir)
	}
	return each(ctx, names, syncDir)
}

// syncObject syncs one loose object. An empty one is what a power cut leaves of an object that
// git took for written: content that is lost, whatever refers to it.
func syncObject(path string) error {
	f, err := openRegular(path)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if info.Size() == 0 {
		return fmt.Errorf("%w: object %s is empty", ErrBroken, path)
	}
	return f.Sync()
}

func syncDir(path string) error {
	if runtime.GOOS == "windows" {
		return nil // has no such call
	}
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

// each runs fn on all paths, some at a time; one that does not exist is no error.
func each(ctx context.Context, paths []string, fn func(string) error) error {
	var wg sync.WaitGroup
	work := make(chan string)
	errs := make(chan error, syncWorkers)
	for range min(syncWorkers, len(paths)) {
		wg.Go(func() {
			var first error
			for path := range work {
				if first == nil && ctx.Err() == nil {
					if err := fn(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
						first = err
					}
				}
			}
			errs <- first
		})
	}
	for _, path := range paths {
		work <- path
	}
	close(work)
	wg.Wait()
	close(errs)
	var all error
	for err := range errs {
		all = errors.Join(all, err)
	}
	if all == nil && ctx.Err() != nil {
		return stopped(ctx.Err())
	}
	return all
}
