package gitcmd

import (
	"bytes"
	"encoding/binary"
)

// scanLimit is the size of the largest index that is read here instead of by git ls-files.
const scanLimit = 64 << 20

// scanIndex finds the entries of an index that need a look, without the child process that
// would cost as much as a tenth of a whole snapshot. ok is false for what it does not read, and
// git is asked then: version 4, split and sparse indexes. hash is the length of an object id.
// Damage need not be found: git reads the same bytes, and checks them, before the result is used.
func scanIndex(b []byte, hash int) (entries []entry, ok bool) {
	const (
		header   = 12
		modeAt   = 24
		objectAt = 40

		flagAssumed  = 1 << 15
		flagExtended = 1 << 14
		nameMask     = 1<<12 - 1
		extendedSkip = 1 << 14
	)
	if hash == 0 || len(b) < header+hash || string(b[:4]) != "DIRC" {
		return nil, false
	}
	version, count := binary.BigEndian.Uint32(b[4:]), binary.BigEndian.Uint32(b[8:])
	if version != 2 && version != 3 {
		return nil, false
	}
	b = b[header : len(b)-hash] // a checksum ends the file
	for range count {
		at := objectAt + hash + 2
		if len(b) < at+2 {
			return nil, false
		}
		flags := binary.BigEndian.Uint16(b[at-2:])
		var extended uint16
		if flags&flagExtended != 0 {
			extended = binary.BigEndian.Uint16(b[at:])
			at += 2
		}
		n := bytes.IndexByte(b[at:], 0)
		if n < 0 || n != int(flags&nameMask) && n < nameMask {
			return nil, false
		}
		e := entry{
			gitlink: binary.BigEndian.Uint32(b[modeAt:])>>12 == 0o16,
			skip:    extended&extendedSkip != 0,
			assumed: flags&flagAssumed != 0,
		}
		if e.gitlink || e.skip || e.assumed {
			e.path = string(b[at : at+n])
			entries = append(entries, e)
		}
		size := (at + n + 8) &^ 7 // one to eight NULs
		if size > len(b) {
			return nil, false
		}
		b = b[size:]
	}
	for len(b) >= 8 {
		size := int64(binary.BigEndian.Uint32(b[4:])) + 8
		if name := string(b[:4]); name == "link" || name == "sdir" || size > int64(len(b)) {
			return nil, false
		}
		b = b[size:]
	}
	return entries, len(b) == 0
}
