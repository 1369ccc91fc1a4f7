package runtimes

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/sessionledger/ledger/internal/transcript"
)

var (
	// ErrNoTranscript says that a conversation's file is not there. It is
	// definite: every folder that may hold it was seen.
	ErrNoTranscript = errors.New("no transcript")
	// ErrEmbedder says that the conversation lies, or may lie, in a store that
	// this library does not read (a database), so that an embedder's function is
	// to be asked. With a path, that is the store's file for it.
	ErrEmbedder = errors.New("the conversation store needs an embedder's function")
	// ErrCompressed says that the file is there, and compressed.
	ErrCompressed = errors.New("the transcript is compressed")
	// ErrAmbiguous says that several files claim the conversation.
	ErrAmbiguous = errors.New("several transcripts claim the conversation")
	// ErrTooMany says that a store is larger than a look-up may be.
	ErrTooMany = errors.New("too many files to look through")
)

// A query is one look-up, and what is left of its budget.
type query struct {
	ctx      context.Context
	root     string // the runtime's config home
	id, cwd  string
	left     *int // directory entries and files that may still be looked at
	failures *[]error
}

// maxLooked bounds one look-up. A store of ten years has far less.
const maxLooked = 200_000

// Find returns the file of the conversation id. Homes is the session's, and cwd
// its launch directory, which only speeds the look-up up and decides between
// several files; it may be "". Aider has no ids: its file is that of cwd.
//
// The error is or wraps ErrNoTranscript when the file is definitely not there,
// ErrCompressed or ErrEmbedder when it is not readable here (the path is then
// returned where there is one), ErrBadID for an id that no file can have. Any
// other error, ErrAmbiguous and ErrTooMany among them, means that it is not
// known where the file is, or whether it is.
func (s Spec) Find(ctx context.Context, h Homes, id, cwd string) (string, error) {
	if s.find == nil {
		return "", ErrEmbedder
	}
	left := maxLooked
	var failures []error
	q := query{ctx: ctx, root: s.ConfigHome(h), id: id, cwd: cwd, left: &left, failures: &failures}
	if s.Format != transcript.Aider {
		if !fileName(id) {
			return "", fmt.Errorf("%w: %q", ErrBadID, id)
		}
		if q.root == "" {
			return "", errors.New("no home directory is known")
		}
	}
	path, err := s.find(ctx, q)
	if errors.Is(err, ErrNoTranscript) {
		if err := ctx.Err(); err != nil {
			return "", err
		}
		if len(failures) > 0 { // it may be where we could not look
			return "", errors.Join(failures...)
		}
	}
	return path, err
}

// fileName reports whether id may be part of a file's name: letters, digits,
// dash, dot and underscore, which leaves no way into another folder and nothing
// that a pattern would expand.
func fileName(id string) bool {
	if id == "" || len(id) > maxID || id[0] == '-' || id[0] == '.' || strings.Contains(id, "..") {
		return false
	}
	return !strings.ContainsFunc(id, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '.' || r == '_')
	})
}

// fail notes that a place could not be looked at, unless it is not there.
func (q query) fail(err error) {
	switch {
	case err == nil, errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
	default:
		*q.failures = append(*q.failures, err)
	}
}

// spend takes n from the budget, and reports whether there was as much.
func (q query) spend(n int) bool {
	if q.ctx.Err() != nil {
		return false
	}
	if *q.left -= n; *q.left >= 0 {
		return true
	}
	if *q.left+n >= 0 {
		q.fail(ErrTooMany)
	}
	return false
}

// names lists a folder, the last name first: where names begin with a date,
// that is the newest. What cannot be listed is noted and empty.
func (q query) names(dir string) []string {
	if !q.spend(1) {
		return nil
	}
	f, err := openDir(dir)
	if err != nil {
		q.fail(err)
		return nil
	}
	defer f.Close()
	var names []string
	for {
		some, err := f.Readdirnames(1024)
		names = append(names, some...)
		if !q.spend(len(some)) || err != nil || len(some) == 0 {
			if err != io.EOF {
				q.fail(err)
			}
			slices.Sort(names)
			slices.Reverse(names)
			return names
		}
	}
}

// openDir opens a folder for listing. A FIFO in its place would keep an open
// waiting for its writer.
func openDir(dir string) (*os.File, error) {
	fi, err := os.Stat(dir)
	if err != nil {
		return nil, err
	}
	if !fi.IsDir() {
		return nil, &fs.PathError{Op: "open", Path: dir, Err: syscall.ENOTDIR}
	}
	return os.Open(dir)
}

// has reports whether path is a regular file. Anything else under that name is
// noted: it is no transcript, and none can be where it is.
func (q query) has(path string) bool {
	if !q.spend(1) {
		return false
	}
	fi, err := os.Lstat(path)
	if err == nil && !fi.Mode().IsRegular() {
		err = &fs.PathError{Op: "find", Path: path, Err: transcript.ErrNotRegular}
	}
	q.fail(err)
	return err == nil
}

// one settles a look-up that saw every place: the one file, or of several that
// which names cwd as its own.
func (q query) one(format transcript.Format, paths []string) (string, error) {
	paths = distinct(paths)
	switch len(paths) {
	case 0:
		return "", ErrNoTranscript
	case 1:
		return paths[0], nil
	}
	var own []string
	for _, p := range paths {
		if a, err := Belongs(q.ctx, format, p, q.cwd); err == nil && a == transcript.Yes {
			own = append(own, p)
		}
	}
	if len(own) == 1 {
		return own[0], nil
	}
	return "", fmt.Errorf("%w: %s", ErrAmbiguous, strings.Join(paths, ", "))
}

// distinct drops further names of one file: project folders can be links.
func distinct(paths []string) []string {
	var kept []string
	var seen []fs.FileInfo
	for _, p := range paths {
		fi, err := os.Lstat(p)
		if err == nil && slices.ContainsFunc(seen, func(s fs.FileInfo) bool { return os.SameFile(s, fi) }) {
			continue
		}
		kept, seen = append(kept, p), append(seen, fi)
	}
	return kept
}

// Belongs tells whether the conversation in a file was begun in the directory
// cwd. The file's own record decides, not the folder in which it lies, for
// different directories can have one folder. It is Unknown when the file does
// not tell. The error is the file system's.
func Belongs(ctx context.Context, format transcript.Format, path, cwd string) (transcript.Answer, error) {
	info, err := transcript.Read(ctx, path, format)
	if err != nil || info.Cwd == "" || cwd == "" {
		return transcript.Unknown, err
	}
	return sameDir(info.Cwd, cwd), nil
}

// sameDir compares two directories, of which one or both may be gone.
func sameDir(a, b string) transcript.Answer {
	if filepath.Clean(a) == filepath.Clean(b) {
		return transcript.Yes
	}
	fa, errA := os.Stat(a)
	fb, errB := os.Stat(b)
	switch {
	case errA == nil && errB == nil:
		if os.SameFile(fa, fb) {
			return transcript.Yes
		}
		return transcript.No
	case errA != nil && !errors.Is(errA, fs.ErrNotExist), errB != nil && !errors.Is(errB, fs.ErrNotExist):
		return transcript.Unknown
	}
	return transcript.No
}
