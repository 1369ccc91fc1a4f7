package ledger

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/sessionledger/ledger/internal/procscan"
)

// ProcessID identifies one running process of one machine for ever: a pid is re-used,
// a pid with its start ticks and boot id is not. HostID is the machine-id, BootID is
// /proc/sys/kernel/random/boot_id, the namespaces are the inodes of /proc/<pid>/ns/pid
// and ns/time under which PID and StartTicks are true, StartTicks is field 22 of
// /proc/<pid>/stat. Wall-clock start times are no part of it: NTP and suspend move them.
//
// The zero value names no process. Compare with [ProcessID.Same].
type ProcessID struct {
	HostID        string `json:"hostId,omitzero"`
	BootID        string `json:"bootId"`
	PIDNamespace  uint64 `json:"pidNamespace,omitzero"`
	TimeNamespace uint64 `json:"timeNamespace,omitzero"`
	PID           int    `json:"pid"`
	StartTicks    uint64 `json:"startTicks"`

	// rest holds the members of a stored identity that this version does not know, as
	// text so that the type stays comparable.
	rest string
}

// Key returns the process key, bootId:pid:startTicks; "" for the zero value.
func (p ProcessID) Key() string {
	if p.IsZero() {
		return ""
	}
	return p.BootID + ":" + strconv.Itoa(p.PID) + ":" + strconv.FormatUint(p.StartTicks, 10)
}

// IsZero reports whether p names no process.
func (p ProcessID) IsZero() bool { return p.PID == 0 }

// Same reports whether p and q name the same process. Members that one of them lacks
// (rows of other implementations record no host and no namespaces) are not compared;
// pid, start ticks and boot always are. The zero value is the same as nothing.
func (p ProcessID) Same(q ProcessID) bool {
	return !p.IsZero() && p.PID == q.PID && p.StartTicks == q.StartTicks && p.BootID == q.BootID &&
		(p.HostID == "" || q.HostID == "" || p.HostID == q.HostID) &&
		(p.PIDNamespace == 0 || q.PIDNamespace == 0 || p.PIDNamespace == q.PIDNamespace) &&
		(p.TimeNamespace == 0 || q.TimeNamespace == 0 || p.TimeNamespace == q.TimeNamespace)
}

// Verdict is what is known of a process. The zero value is Unknown: "could not find
// out" is never "gone".
type Verdict int

// The verdicts.
const (
	Unknown Verdict = iota
	Running
	Gone
)

// String returns the verdict's name in lower case.
func (v Verdict) String() string {
	switch v {
	case Running:
		return "running"
	case Gone:
		return "gone"
	}
	return "unknown"
}

// Sighting is what one look at a process table showed of one pid, as values.
type Sighting struct {
	Here       ProcessID // whose table it is: HostID, BootID and the namespaces; PID and StartTicks unused
	Read       bool      // the table could be read, and an absent pid means that there is no such process
	Found      bool      // the pid is there
	StartTicks uint64    // its start ticks, where Found
	Dead       bool      // its state is Z or X, where Found
	Readable   bool      // StartTicks and Dead could be read, where Found
}

// Judge says what a sighting proves of the process id. It is pure: the table of
// identity. Identity members that the record lacks are taken to be the sighting's.
//
//	seen                                              verdict
//	another host, or a host id that cannot be read    Unknown
//	boot id differs                                   Gone
//	another pid or time namespace                     Unknown
//	no such pid; other ticks; state Z or X            Gone
//	same pid and ticks                                Running
//	anything unreadable                               Unknown
func Judge(id ProcessID, seen Sighting) Verdict {
	here := seen.Here
	switch {
	case id.IsZero():
		return Unknown
	case id.HostID != "" && id.HostID != here.HostID:
		return Unknown
	case id.BootID == "" || here.BootID == "":
		return Unknown
	case id.BootID != here.BootID:
		return Gone
	case id.PIDNamespace != 0 && id.PIDNamespace != here.PIDNamespace:
		return Unknown
	case id.TimeNamespace != 0 && id.TimeNamespace != here.TimeNamespace:
		return Unknown
	case seen.Found && !seen.Readable:
		return Unknown
	case seen.Found && seen.StartTicks != id.StartTicks:
		return Gone
	case seen.Found && seen.Dead:
		return Gone
	case seen.Found:
		return Running
	case seen.Read:
		return Gone
	}
	return Unknown
}

// Self returns the identity of the calling process. It fails where /proc is not
// mounted or not readable.
func Self() (ProcessID, error) { return newTable("").self() }

// table answers questions about single processes from one proc file system, with what
// never changes while this process runs read once.
type table struct {
	sys     *procscan.System
	machine known[ProcessID]
	own     known[ProcessID]
}

func newTable(procRoot string) *table { return &table{sys: procscan.New(procRoot)} }

// here returns the identity members that all processes of the table share.
func (t *table) here() (ProcessID, error) {
	return t.machine.get(func() (ProcessID, error) { return identifyHere(t.sys) })
}

// known keeps a value once it could be found out. A failure is not kept: a lack of
// descriptors, say, must not make a process that runs for days see nothing.
type known[T any] struct{ v atomic.Pointer[T] }

func (k *known[T]) get(find func() (T, error)) (T, error) {
	if v := k.v.Load(); v != nil {
		return *v, nil
	}
	v, err := find()
	if err == nil {
		k.v.Store(&v)
	}
	return v, err
}

func identifyHere(sys *procscan.System) (ProcessID, error) {
	boot, err := sys.BootID()
	if err != nil {
		return ProcessID{}, fmt.Errorf("boot id: %w", err)
	}
	pidNS, err := sys.PIDNamespace(0)
	if err != nil {
		return ProcessID{}, fmt.Errorf("pid namespace: %w", err)
	}
	// A kernel without time namespaces has one clock: zero is then never compared.
	timeNS, err := sys.TimeNamespace(0)
	if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, errors.ErrUnsupported) {
		return ProcessID{}, fmt.Errorf("time namespace: %w", err)
	}
	return ProcessID{HostID: hostID(), BootID: boot, PIDNamespace: pidNS, TimeNamespace: timeNS}, nil
}

func (t *table) self() (ProcessID, error) {
	return t.own.get(func() (ProcessID, error) {
		pid, err := t.sys.SelfPID()
		if err != nil {
			return ProcessID{}, fmt.Errorf("ledger: identify this process: %w", err)
		}
		return t.identify(pid)
	})
}

// identify returns the identity of the running process pid. The error is
// procscan.ErrGone where there is none.
func (t *table) identify(pid int) (ProcessID, error) {
	p, err := t.here()
	if err != nil {
		return ProcessID{}, fmt.Errorf("ledger: identify process %d: %w", pid, err)
	}
	st, err := t.sys.Stat(pid)
	if err != nil {
		return ProcessID{}, fmt.Errorf("ledger: identify process %d: %w", pid, err)
	}
	if st.Gone() {
		return ProcessID{}, fmt.Errorf("ledger: identify process %d: %w", pid, procscan.ErrGone)
	}
	p.PID, p.StartTicks = pid, st.Start
	return p, nil
}

// verdict looks the process id up.
func (t *table) verdict(id ProcessID) Verdict {
	if id.IsZero() {
		return Unknown
	}
	here, err := t.here()
	if err != nil {
		return Unknown
	}
	if id.BootID != here.BootID || id.HostID != "" && id.HostID != here.HostID {
		return Judge(id, Sighting{Here: here}) // no look at this machine's processes tells more
	}
	seen := Sighting{Here: here}
	st, err := t.sys.Stat(id.PID)
	switch {
	case err == nil:
		seen.Found, seen.Readable = true, true
		seen.StartTicks, seen.Dead = st.Start, st.Gone()
	case isGone(err):
		seen.Read = true // procscan tells "hidden" from "gone"
	default:
		seen.Found = true
	}
	return Judge(id, seen)
}

// hostID returns the machine-id, or the host name where there is none.
func hostID() string {
	for _, path := range []string{"/etc/machine-id", "/var/lib/dbus/machine-id"} {
		if b, err := procscan.ReadFile(path); err == nil {
			if id := strings.TrimSpace(string(b)); id != "" {
				return id
			}
		}
	}
	name, err := os.Hostname()
	if err != nil {
		return runtime.GOOS
	}
	return name
}

// isGone reports whether err says that there is no such process.
func isGone(err error) bool { return errors.Is(err, procscan.ErrGone) }
