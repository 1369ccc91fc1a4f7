package ledger

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"
)

// maxID is the longest plain id, in bytes.
const maxID = 128

// isPlainID reports whether id can be a file's name and nothing else:
// [A-Za-z0-9][A-Za-z0-9._-]{0,127} without ".." and without a final ".lock". Ids come
// from files and environments, so all of them are checked before they become a path.
func isPlainID(id string) bool {
	if id == "" || len(id) > maxID || strings.Contains(id, "..") || strings.HasSuffix(id, ".lock") {
		return false
	}
	for i := range len(id) {
		switch c := id[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		case i > 0 && (c == '.' || c == '_' || c == '-'):
		default:
			return false
		}
	}
	return true
}

func checkID(id string) error {
	if !isPlainID(id) {
		return fmt.Errorf("ledger: %w: %.140q is no ledger id", ErrInvalid, id)
	}
	return nil
}

// idTail is the form of what follows the runtime in an id.
const idTail = "-00000000T000000Z-000000"

// checkRuntime is the rule for runtimes' names: they begin ids, so that they are plain ids
// themselves, with room for the rest.
func checkRuntime(name string) error {
	if !isPlainID(name) || len(name)+len(idTail) > maxID {
		return fmt.Errorf("ledger: %w: %.140q is no runtime's name", ErrInvalid, name)
	}
	return nil
}

// NewID mints a ledger id, <runtime>-<YYYYMMDD>T<hhmmss>Z-<6 digits>. Launchers that
// need the id before the row mint it so; [Store.Create] does it by itself otherwise,
// and mints again where the id is taken.
//
// The error is [ErrInvalid] for a runtime whose name cannot be part of an id.
func NewID(runtime string, at time.Time) (string, error) {
	if err := checkRuntime(runtime); err != nil {
		return "", err
	}
	return fmt.Sprintf("%s-%s-%06d", runtime, at.UTC().Format("20060102T150405Z"), rand.IntN(1e6)), nil
}

// splitID takes an id of [NewID] apart: the runtime, and the time as it stands there.
func splitID(id string) (runtime, at string, ok bool) {
	i := len(id) - len(idTail)
	if i <= 0 {
		return "", "", false
	}
	for k := range len(idTail) {
		c := id[i+k]
		if idTail[k] == '0' && (c < '0' || c > '9') || idTail[k] != '0' && c != idTail[k] {
			return "", "", false
		}
	}
	return id[:i], id[i+1 : i+len("-00000000T000000Z")], true
}

// stripe maps a name to one of the 256 lock files of a kind: FNV-1a 64 modulo 256.
// Pinned: two versions that differ would not exclude each other.
func stripe(name string) string {
	h := fnv.New64a()
	h.Write([]byte(name))
	return strconv.FormatUint(1000+h.Sum64()%256, 10)[1:]
}
