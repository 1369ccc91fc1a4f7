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
	// ErrNoResume says that a runtime cannot resume what was asked for: it has
	// no resume by id, or no resume of the newest conversation.
	ErrNoResume = errors.New("the runtime cannot resume this way")
	// ErrBadID says that a text is no conversation id that may be passed on.
	ErrBadID = errors.New("not a conversation id")
)

const maxID = 255

// ValidID reports whether id can be a conversation's: it may stand in a command
// line and be a file's name. It does not begin with a dash, is neither "." nor
// "..", and has no path separator, no control character, no white space, nothing
// that is not UTF-8, and at most 255 bytes.
func ValidID(id string) bool {
	return id != "" && len(id) <= maxID && id[0] != '-' && id != "." && id != ".." && utf8.ValidString(id) &&
		!strings.ContainsFunc(id, func(r rune) bool {
			return r == '/' || r == '\\' || unicode.IsControl(r) || unicode.IsSpace(r)
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

// LatestArgs are the arguments that resume the newest conversation of the
// directory, for a caller that asks for just that. The error is ErrNoResume.
func (s Spec) LatestArgs() ([]string, error) {
	if len(s.Latest) == 0 {
		return nil, ErrNoResume
	}
	return slices.Clone(s.Latest), nil
}

// WithoutIDs returns the arguments after the program's name without what names
// or chooses a conversation, so that the rest can be replayed: an id that is
// created twice fails, and one that is resumed twice is held by two.
func (s Spec) WithoutIDs(args []string) []string {
	args = s.withoutCommand(args)
	var kept []string
	for i := 0; i < len(args); i++ {
		if args[i] == "--" { // no options after it
			return append(kept, args[i:]...)
		}
		name, _, inline := strings.Cut(args[i], "=")
		f := slices.IndexFunc(s.IDFlags, func(f IDFlag) bool { return f.Name == name })
		if f < 0 {
			kept = append(kept, args[i])
			continue
		}
		value := s.IDFlags[f].Value
		if hasNext := i+1 < len(args); !inline && hasNext &&
			(value == OneValue || value == MayValue && !strings.HasPrefix(args[i+1], "-")) {
			i++
		}
	}
	return kept
}

// withoutCommand takes a subcommand that resumes out, with its id. A word after
// an option may be that option's value ("codex --profile resume"): it is the
// subcommand only where an id follows it.
func (s Spec) withoutCommand(args []string) []string {
	for _, c := range s.IDCommands {
		for i := 0; i+len(c) <= len(args) && args[i] != "--"; i++ {
			after := args[i+len(c):]
			hasID := len(after) > 0 && !strings.HasPrefix(after[0], "-")
			value := i > 0 && strings.HasPrefix(args[i-1], "-")
			if !slices.Equal(args[i:i+len(c)], c) || value && !hasID {
				continue
			}
			if hasID {
				after = after[1:]
			}
			return slices.Concat(args[:i], after)
		}
	}
	return args
}
