package runtimes

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

var (
	// ErrNoResume says that a runtime cannot resume a conversation by its id.
	ErrNoResume = errors.New("the runtime cannot resume by id")
	// ErrBadID says that a text is no conversation id that may be passed on.
	ErrBadID = errors.New("not a conversation id")
)

const maxID = 255

// ValidID reports whether id can be a conversation's: it may stand in a command
// line and be a file's name. It does not begin with a dash, is neither "." nor
// "..", and has no path separator, no control character, no white space, nothing
// that is not UTF-8 or stands for what was none (U+FFFD), and at most 255 bytes.
func ValidID(id string) bool {
	return id != "" && len(id) <= maxID && id[0] != '-' && id != "." && id != ".." && utf8.ValidString(id) &&
		!strings.ContainsFunc(id, func(r rune) bool {
			return r == '/' || r == '\\' || r == utf8.RuneError || unicode.IsControl(r) || unicode.IsSpace(r)
		})
}

// ResumeArgs are the arguments after the program's name that resume the
// conversation id, and no other. The error is ErrNoResume or wraps ErrBadID.
func (s Spec) ResumeArgs(id string) ([]string, error) {
	if !s.ResumesByID() {
		return nil, ErrNoResume
	}
	if !ValidID(id) || s.reserved != nil && s.reserved(id) {
		return nil, fmt.Errorf("%w: %q", ErrBadID, id)
	}
	args := slices.Clone(s.Resume)
	for i := range args {
		args[i] = strings.ReplaceAll(args[i], "{id}", id)
	}
	return args, nil
}
