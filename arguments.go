package ledger

import (
	"slices"
	"strings"

	"github.com/sessionledger/ledger/internal/runtimes"
)

// argumentIDs reads from the command line of a runtime which conversations it creates or
// resumes; two if it contradicts itself. An id that is only the beginning of another
// conversation, a fork, is none.
func argumentIDs(table runtimes.Table, s runtimes.Spec, args []string) []string {
	args = programArgs(table, s.Name, args)
	if end := slices.Index(args, "--"); end >= 0 {
		args = args[:end] // what follows is text
	}
	fork := slices.ContainsFunc(args, func(a string) bool { return a == "fork" || strings.HasPrefix(a, "--fork") })
	var created, resumed []string
	for i, a := range args {
		for _, flag := range s.IDFlags {
			value, inline := strings.CutPrefix(a, flag+"=")
			if !inline {
				if a != flag || i+1 == len(args) {
					continue
				}
				value = args[i+1]
			}
			if flag == "--session-id" {
				created = append(created, value)
			} else {
				resumed = append(resumed, value)
			}
		}
	}
	for _, words := range slices.Concat(s.IDCommands, resumeWords(s)) {
		if id, ok := afterWords(args, words); ok {
			resumed = append(resumed, id)
		}
	}
	if fork {
		resumed = nil
	}
	ids := slices.DeleteFunc(append(created, resumed...), func(id string) bool {
		_, err := s.ResumeArgs(id)
		return err != nil && s.ResumesByID() || !runtimes.ValidID(id)
	})
	slices.Sort(ids)
	return slices.Compact(ids)
}

// choosesConversation reports whether a command line has an option that says which
// conversation is opened, by a name or otherwise: what goes on with an older one.
func choosesConversation(table runtimes.Table, s runtimes.Spec, args []string) bool {
	args = programArgs(table, s.Name, args)
	if end := slices.Index(args, "--"); end >= 0 {
		args = args[:end]
	}
	return slices.ContainsFunc(args, func(a string) bool {
		name, _, _ := strings.Cut(a, "=")
		return slices.Contains(s.IDFlags, name) || slices.Contains(s.OlderFlags, name)
	})
}

// resumeWords are the words before the id in the runtime's own form of a resume, where
// the table says no more than that.
func resumeWords(s runtimes.Spec) [][]string {
	if len(s.IDFlags) > 0 || len(s.IDCommands) > 0 || len(s.Resume) < 2 || s.Resume[len(s.Resume)-1] != "{id}" {
		return nil
	}
	return [][]string{s.Resume[:len(s.Resume)-1]}
}

// afterWords finds the argument after a subcommand. A first word that stands after an
// option may be that option's value ("codex --profile resume"): then only what has the
// shape of an id counts.
func afterWords(args, words []string) (string, bool) {
	for i := 0; i+len(words) < len(args); i++ {
		if !slices.Equal(args[i:i+len(words)], words) {
			continue
		}
		id := args[i+len(words)]
		value := i > 0 && strings.HasPrefix(args[i-1], "-") && !strings.HasPrefix(words[0], "-")
		if id != "" && id[0] != '-' && (!value || looksLikeID(id)) {
			return id, true
		}
	}
	return "", false
}

// programArgs are the arguments after the program: under an interpreter, after the script
// that makes the process one of the runtime.
func programArgs(table runtimes.Table, name string, args []string) []string {
	if len(args) == 0 {
		return nil
	}
	if found, ok := table.Match(args[:1], nil); ok && found == name {
		return args[1:]
	}
	for i := 1; i < len(args); i++ {
		if strings.HasPrefix(args[i], "-") {
			continue
		}
		if found, ok := table.Match([]string{args[0], args[i]}, nil); ok && found == name {
			return args[i+1:]
		}
	}
	return args[1:]
}

// looksLikeID reports the shapes of conversation ids: a UUID, bare or after T-, and ses_
// with what follows. Other words may be a title or a search.
func looksLikeID(id string) bool {
	if rest, ok := strings.CutPrefix(id, "ses_"); ok {
		return rest != ""
	}
	id = strings.TrimPrefix(id, "T-")
	if len(id) != 36 {
		return false
	}
	for i := range len(id) {
		c := id[i]
		if i == 8 || i == 13 || i == 18 || i == 23 {
			if c != '-' {
				return false
			}
			continue
		}
		if !('0' <= c && c <= '9' || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F') {
			return false
		}
	}
	return true
}
