package ledger

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Report says what a [Sweep] saw and did. Its JSON form is stable: members are only ever
// added, and a list without elements is an empty list.
type Report struct {
	Enrolled       []string          `json:"enrolled"`      // ids of sessions that nobody had announced
	Refreshed      []string          `json:"refreshed"`     // ids of live rows that had something new
	Described      []string          `json:"described"`     // ids of rows that lacked facts about their process
	Rescued        []Rescued         `json:"rescued"`       // whose uncommitted work was looked after, also where there was none
	Closed         []Closed          `json:"closed"`        // finished rows
	RemovedBirths  []Closed          `json:"removedBirths"` // births of which nothing ever ran
	Pruned         []Pruned          `json:"pruned"`        // what retention did, clause by clause
	Filed          []string          `json:"filed"`         // ids of finished rows that were moved to finished/
	Reconciled     []Reconciled      `json:"reconciled"`    // rows that were in mid-operation
	Unbound        []Unbound         `json:"unbound"`       // live rows whose conversation was looked for in vain
	Unverifiable   []Unverifiable    `json:"unverifiable"`  // processes that may be sessions and cannot be told
	Damaged        []DamagedRow      `json:"damaged"`       // rows that cannot be trusted
	UpdateFailures []UpdateFailure   `json:"updateFailures"`
	Warnings       []Warning         `json:"warnings"`
	Edges          []Edge            `json:"edges"`    // what changed since the last sweep that a person wants to hear
	Complete       Completeness      `json:"complete"` // what was seen in full
	TookMs         map[string]Millis `json:"tookMs"`   // by stage
}

// Millis is a duration in milliseconds.
type Millis float64

// Completeness says which views of a pass were complete. What an incomplete view does not
// show is unknown: nothing is closed or removed on its account.
type Completeness struct {
	Rows      bool `json:"rows"`      // the list of rows stood still while it was read
	Processes bool `json:"processes"` // the process table was read in full
	Discovery bool `json:"discovery"` // sessions that nobody announced can be told here
	Mux       bool `json:"mux"`       // every multiplexer that was asked about a session has answered
}

// Closed is a row that was finished, or removed, and why.
type Closed struct {
	ID     string `json:"id"`
	Reason string `json:"reason"`
}

// Pruned is a row that a clause of retention spoke about.
type Pruned struct {
	ID     string `json:"id"`
	Clause string `json:"clause"` // "finished" or "capture_missing"
	Reason string `json:"reason"`
}

// Unverifiable is a process that runs a runtime and whose environment cannot be read. It
// may be enrolled already, so it is not enrolled.
type Unverifiable struct {
	ID      string `json:"id"` // its pid
	PID     int    `json:"pid"`
	Runtime string `json:"runtime"`
	Reason  string `json:"reason"`
}

// Unbound is a live row whose conversation is not known, and why.
type Unbound struct {
	ID     string `json:"id"`
	Reason string `json:"reason"`
}

// DamagedRow is a row that cannot be trusted. It is left as it is.
type DamagedRow struct {
	ID    string `json:"id"`
	Path  string `json:"path"`
	Error string `json:"error"`
}

// UpdateFailure is a row that could not be written. The pass went on without it.
type UpdateFailure struct {
	ID     string `json:"id"`
	Error  string `json:"error"`
	Holder int    `json:"holder,omitzero"` // pid of who holds its lock, where that is why and is known
}

// Warning is something that could not be done or found out, and why. It is reported once
// in a streak of failures.
type Warning struct {
	ID    string `json:"id"` // the row concerned; "" where it is none
	Stage string `json:"stage"`
	Error string `json:"error"`
}

// SweepError says which stages of a sweep failed as a whole. The others were done, and
// the report says what came of them.
type SweepError struct {
	Errs []error // each names its stage
}

// Error implements error.
func (e *SweepError) Error() string {
	texts := make([]string, len(e.Errs))
	for i, err := range e.Errs {
		texts[i] = err.Error()
	}
	return "ledger: sweep: " + strings.Join(texts, "; ")
}

// Unwrap returns the errors of the stages.
func (e *SweepError) Unwrap() []error { return e.Errs }

// reporter fills a report in, and logs it.
type reporter struct {
	Report
	mu     sync.Mutex
	logger *slog.Logger
}

func newReporter(logger *slog.Logger) *reporter {
	return &reporter{logger: logger, Report: Report{
		Enrolled: []string{}, Refreshed: []string{}, Described: []string{}, Rescued: []Rescued{}, Closed: []Closed{},
		RemovedBirths: []Closed{}, Pruned: []Pruned{}, Filed: []string{}, Reconciled: []Reconciled{},
		Unbound: []Unbound{}, Unverifiable: []Unverifiable{}, Damaged: []DamagedRow{}, UpdateFailures: []UpdateFailure{},
		Warnings: []Warning{}, Edges: []Edge{}, TookMs: map[string]Millis{},
	}}
}

// note appends to one of the report's lists, and logs the change: one line each.
func note[T any](r *reporter, list *[]T, v T, change, id string, args ...any) {
	r.mu.Lock()
	*list = append(*list, v)
	r.mu.Unlock()
	if change != "" {
		r.logger.Info(change, append([]any{"session", id}, args...)...)
	}
}

func (r *reporter) closed(list *[]Closed, change, id, reason string) {
	note(r, list, Closed{id, reason}, change, id, "reason", reason)
}

func (r *reporter) unverifiable(m *match) {
	pid := m.process.PID
	note(r, &r.Unverifiable, Unverifiable{strconv.Itoa(pid), pid, m.runtime, m.reason}, "", "")
}

// failed notes that something about one row could not be done.
func (r *reporter) failed(id, stage string, err error) {
	var locked *LockTimeoutError
	var file *fs.PathError
	switch {
	case err == nil:
	case errors.As(err, &locked):
		note(r, &r.UpdateFailures, UpdateFailure{id, err.Error(), locked.HolderPID}, "", "")
	case isUnsynced(err), errors.As(err, &file):
		note(r, &r.UpdateFailures, UpdateFailure{ID: id, Error: err.Error()}, "", "")
	default:
		r.warn(id, stage, err)
		return
	}
	if err != nil {
		r.logger.Warn("row not written", "session", id, "stage", stage, "error", err)
	}
}

func (r *reporter) warn(id, stage string, err error) {
	note(r, &r.Warnings, Warning{id, stage, err.Error()}, "", "")
	r.logger.Warn("sweep", "session", id, "stage", stage, "error", err)
}

// took notes how long a stage took.
func (r *reporter) took(stage string, d time.Duration) {
	r.TookMs[stage] = Millis(float64(d.Round(10*time.Microsecond)) / float64(time.Millisecond))
}

// stageError names the stage that failed.
func stageError(stage string, err error) error { return fmt.Errorf("%s: %w", stage, err) }
