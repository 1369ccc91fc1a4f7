package procscan

import (
	"iter"
	"strings"
)

// Env is the environment that a process was started with, as it is in its memory now: a
// program may have written over it. Values may be any bytes. The zero Env is empty.
type Env struct {
	block string // NAME=value, each ended by NUL
}

// Lookup returns the value of a variable. Of several with one name the first counts, as
// it does for getenv.
func (e Env) Lookup(name string) (string, bool) {
	if name == "" || strings.ContainsAny(name, "=\x00") {
		return "", false
	}
	for from := 0; ; {
		i := strings.Index(e.block[from:], name)
		if i < 0 {
			return "", false
		}
		i += from
		from = i + len(name)
		if value, ok := strings.CutPrefix(e.block[from:], "="); ok && (i == 0 || e.block[i-1] == 0) {
			value, _, _ = strings.Cut(value, "\x00")
			return value, true
		}
	}
}

// All returns the variables in their order, with repeated names. Entries that have no
// name or no "=" are not variables and are left out.
func (e Env) All() iter.Seq2[string, string] {
	return func(yield func(name, value string) bool) {
		for entry := range strings.SplitSeq(e.block, "\x00") {
			name, value, ok := strings.Cut(entry, "=")
			if ok && name != "" && !yield(name, value) {
				return
			}
		}
	}
}
