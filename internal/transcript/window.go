package transcript

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"iter"
	"os"
)

const (
	// HeadWindow and TailWindow are the most bytes that are read of one file,
	// from its start and from its end.
	HeadWindow = 64 << 10
	TailWindow = 64 << 10
)

// ErrNotRegular says that a path names no regular file: a link, a FIFO, a
// directory, a socket or a device.
var ErrNotRegular = errors.New("not a regular file")

func regular(f *os.File, path string) (*os.File, fs.FileInfo, error) {
	fi, err := f.Stat()
	if err == nil && !fi.Mode().IsRegular() {
		err = &fs.PathError{Op: "open", Path: path, Err: ErrNotRegular}
	}
	if err != nil {
		f.Close()
		return nil, nil, err
	}
	return f, fi, nil
}

// A window is what was read of a file. Head and tail are the same bytes when
// the file fits into both.
type window struct {
	head, tail []byte
	whole      bool
	read       int64
}

// readWindow reads f, whose size was size a moment ago. It may have been
// truncated since: what is no longer there is not an error.
func readWindow(f io.ReaderAt, size int64, buf []byte) (window, error) {
	if size <= HeadWindow+TailWindow {
		n, err := readAt(f, buf[:size], 0)
		return window{head: buf[:n], tail: buf[:n], whole: true, read: int64(n)}, err
	}
	h, err := readAt(f, buf[:HeadWindow], 0)
	if err != nil {
		return window{}, err
	}
	t, err := readAt(f, buf[HeadWindow:HeadWindow+TailWindow], size-TailWindow)
	if err != nil {
		return window{}, err
	}
	return window{
		head: buf[:h],
		tail: buf[HeadWindow : HeadWindow+t],
		read: int64(h + t),
	}, nil
}

func readAt(f io.ReaderAt, p []byte, off int64) (int, error) {
	n, err := f.ReadAt(p, off)
	if err == io.EOF {
		err = nil
	}
	return n, err
}

// trim drops what surrounds a line without being part of it: the carriage
// return of a CRLF file, and the NULs that a power loss leaves behind.
func trim(line []byte) []byte {
	return bytes.Trim(line, "\r \t\x00")
}

// forward yields the head's lines. The last one is left out when the window
// cuts it, and when complete asks for lines that end in a newline.
func (w window) forward(complete bool) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		for rest := w.head; len(rest) > 0; {
			line, after, ended := bytes.Cut(rest, []byte("\n"))
			if !ended && (complete || !w.whole) {
				return
			}
			if line = trim(line); len(line) > 0 && !yield(line) {
				return
			}
			rest = after
		}
	}
}

// backward yields the tail's lines, last first. A first line that the window
// may cut is left out. A last line without a newline is not: JSON that parses
// to its closing brace is complete.
func (w window) backward() iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		rest := w.tail
		if !w.whole {
			_, rest, _ = bytes.Cut(rest, []byte("\n"))
		}
		for len(rest) > 0 {
			i := bytes.LastIndexByte(rest, '\n')
			if line := trim(rest[i+1:]); len(line) > 0 && !yield(line) {
				return
			}
			rest = rest[:max(i, 0)]
		}
	}
}

// tailLines yields the tail's complete lines in their order, white space kept,
// for text formats in which it means something.
func (w window) tailLines() iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		rest := w.tail
		if !w.whole {
			_, rest, _ = bytes.Cut(rest, []byte("\n"))
		}
		for {
			line, after, ended := bytes.Cut(rest, []byte("\n"))
			if !ended || !yield(bytes.TrimRight(bytes.Trim(line, "\x00"), "\r")) {
				return
			}
			rest = after
		}
	}
}
