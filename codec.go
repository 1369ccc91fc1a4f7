package ledger

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// plainEntry has Entry's members and none of its methods.
type plainEntry Entry

// MarshalJSON returns the row as it is stored, on one line. It fails for an entry whose
// unknown members were built by hand.
func (e Entry) MarshalJSON() ([]byte, error) { return encodeEntry(&e) }

// UnmarshalJSON reads a row as it is stored. It does not check it against a file name.
func (e *Entry) UnmarshalJSON(data []byte) error {
	d, err := decodeEntry(data)
	if err != nil {
		return err
	}
	*e = d
	return nil
}

var (
	encodeOptions = json.JoinOptions(
		jsontext.PreserveRawStrings(true), // unknown members keep the spelling of their escapes
		json.FormatNilSliceAsNull(true),
		json.WithMarshalers(json.JoinMarshalers(
			json.MarshalToFunc(encodeText),
			json.MarshalToFunc(encodeInt),
			json.MarshalToFunc(encodeTime),
			json.MarshalToFunc(encodeProcess),
		)),
	)
	// showOptions are for what goes out beside rows: there a count of 0 is a count.
	showOptions = json.WithMarshalers(json.JoinMarshalers(
		json.MarshalToFunc(encodeText),
		json.MarshalToFunc(encodeMux),
		json.MarshalToFunc(encodeTime),
		json.MarshalToFunc(encodeProcess),
	))
	plainOptions  = jsontext.PreserveRawStrings(true)
	decodeOptions = json.JoinOptions(
		jsontext.PreserveRawStrings(true),
		json.WithUnmarshalers(json.JoinUnmarshalers(
			json.UnmarshalFromFunc(decodeText),
			json.UnmarshalFromFunc(decodeTime),
			json.UnmarshalFromFunc(decodeProcess),
		)),
	)
)

// encodeEntry returns e as one line of JSON, without a final newline.
func encodeEntry(e *Entry) ([]byte, error) {
	data, err := json.Marshal((*plainEntry)(e), encodeOptions)
	if err != nil {
		return nil, fmt.Errorf("ledger: encode row %q: %w", e.LedgerID, err)
	}
	return data, nil
}

// decodeEntry reads a row, and refuses what cannot be one.
func decodeEntry(data []byte) (Entry, error) {
	var e Entry
	if len(bytes.TrimLeft(data, "\x00")) == 0 {
		return e, errors.New("empty, or nothing but NULs")
	}
	if err := unmarshalEntry(data, &e); err != nil {
		return Entry{}, err
	}
	if err := e.checkShape(); err != nil {
		return Entry{}, err
	}
	e.assumePhase()
	return e, nil
}

// unmarshalEntry decodes a row. Every value pays for the functions of decodeOptions, about
// half of the whole, so that a row in which nothing can need them is read without. What
// fails then is read again with all care.
func unmarshalEntry(data []byte, e *Entry) error {
	if needsCare(data) || json.Unmarshal(data, (*plainEntry)(e), plainOptions) != nil {
		*e = Entry{}
		return json.Unmarshal(data, (*plainEntry)(e), decodeOptions)
	}
	for _, t := range e.ownTimes() {
		*t = storedTime(*t)
	}
	return nil
}

// needsCare reports whether plainOptions might not read the row rightly: where there is an
// escape, or any part that they would have to look into but mux and rescuedPaths, which are
// in every row and hold neither times nor process identities. A bracket in a text costs
// time, no more.
func needsCare(data []byte) bool {
	if len(data) == 0 || bytes.IndexByte(data, '\\') >= 0 {
		return true
	}
	for _, bracket := range []byte("{[") {
		for rest := data[1:]; ; {
			i := bytes.IndexByte(rest, bracket)
			if i < 0 {
				break
			}
			if before := rest[:i]; !bytes.HasSuffix(before, []byte(`"mux":`)) && !bytes.HasSuffix(before, []byte(`"rescuedPaths":`)) {
				return true
			}
			rest = rest[i+1:]
		}
	}
	return false
}

// asStored makes of an edited row what the next reader of its file will see: times in UTC
// and whole seconds, no identity of nobody, and the phase that a reader assumes. The error is of a row that no
// reader would accept.
func (e *Entry) asStored() error {
	for _, t := range append(e.ownTimes(), e.partTimes()...) {
		if *t = storedTime(*t); t.Year() < 0 || t.Year() > 9999 {
			return fmt.Errorf("year %d", t.Year())
		}
	}
	for _, p := range e.omittedProcesses() {
		if p.IsZero() {
			*p = ProcessID{}
		}
	}
	e.assumePhase()
	return e.checkShape()
}

// omittedProcesses are the identities that are left out of a row where they name nobody.
func (e *Entry) omittedProcesses() []*ProcessID {
	processes := []*ProcessID{&e.PaneServer}
	if e.Frozen != nil {
		processes = append(processes, &e.Frozen.StandIn)
	}
	if e.Restore != nil {
		processes = append(processes, &e.Restore.Launched)
	}
	return processes
}

func storedTime(t time.Time) time.Time {
	if t.IsZero() {
		return time.Time{}
	}
	return t.UTC().Truncate(time.Second)
}

// ownTimes are the times of a row itself.
func (e *Entry) ownTimes() []*time.Time {
	return []*time.Time{&e.StartedAt, &e.ProcessDescribedAt, &e.LastActiveAt, &e.LastHeartbeatAt,
		&e.FinishedAt, &e.RescuedAt, &e.StateAt, &e.KillIntentAt, &e.LastPaneChurnAt}
}

// partTimes are the times in its parts.
func (e *Entry) partTimes() (times []*time.Time) {
	if e.Lease != nil {
		times = append(times, &e.Lease.AcquiredAt)
	}
	if e.Frozen != nil {
		times = append(times, &e.Frozen.At)
	}
	if e.Limit != nil {
		times = append(times, &e.Limit.ReachedAt, &e.Limit.ResetAt)
	}
	if e.Prompt != nil {
		times = append(times, &e.Prompt.AttemptedAt)
	}
	if e.EndNoted != nil {
		times = append(times, &e.EndNoted.At)
	}
	for _, n := range []*Note{e.Unclear, e.Attention} {
		if n != nil {
			times = append(times, &n.Since)
		}
	}
	if e.Rescuing != nil {
		times = append(times, &e.Rescuing.At)
	}
	if e.Waiting != nil {
		times = append(times, &e.Waiting.Since)
	}
	for i := range e.SessionIDs {
		times = append(times, &e.SessionIDs[i].Since)
	}
	for i := range e.Handoffs {
		times = append(times, &e.Handoffs[i].At)
	}
	return times
}

// assumePhase is what a reader makes of a row without a phase, or with an end: the end wins,
// since another implementation closes a row by it.
func (e *Entry) assumePhase() {
	switch {
	case !e.FinishedAt.IsZero():
		e.Phase = PhaseFinished
	case e.Phase == PhaseNone:
		e.Phase = PhaseLive
	}
}

// checkShape refuses what JSON allows and no writer of a row produces.
func (e *Entry) checkShape() error {
	switch l := e.Lease; {
	case e.SchemaVersion < 1:
		return errors.New("no schemaVersion")
	case e.LedgerID == "":
		return errors.New("no ledgerId")
	case e.PID < 0 || e.LauncherPID < 0:
		return errors.New("negative pid")
	case l != nil && (l.Op == OpNone || l.Attempt == "" || l.Nonce == "" || l.Owner.IsZero() || l.AcquiredAt.IsZero()):
		return errors.New("half a lease")
	case slices.ContainsFunc(e.SessionIDs, func(f FormerID) bool { return f.ID == "" }):
		return errors.New("an element of sessionIds has no id")
	}
	return nil
}

// encodeText writes an empty string as null, and text that is not UTF-8 quoted as git
// quotes a path, marked by its leading quotation mark. Text that begins with one is
// quoted too, so that the mark is never ambiguous.
func encodeText(enc *jsontext.Encoder, s string) error {
	switch {
	case s == "":
		return enc.WriteToken(jsontext.Null)
	case s[0] == '"' || !utf8.ValidString(s):
		return enc.WriteToken(jsontext.String(quoteBytes(s)))
	}
	return errors.ErrUnsupported // the default does the rest
}

// encodeInt writes 0 as null: no member of this type has it for a value. (Counts are left
// out where they are zero.)
func encodeInt(enc *jsontext.Encoder, n int) error {
	if n == 0 {
		return enc.WriteToken(jsontext.Null)
	}
	return errors.ErrUnsupported
}

// decodeText undoes encodeText.
func decodeText(dec *jsontext.Decoder, s *string) error {
	if dec.PeekKind() != '"' {
		return errors.ErrUnsupported
	}
	tok, err := dec.ReadToken()
	if err != nil {
		return err
	}
	if *s = tok.String(); strings.HasPrefix(*s, `"`) {
		if raw, ok := unquoteBytes(*s); ok {
			*s = raw
		}
	}
	return nil
}

// quoteBytes quotes s in the manner of git's core.quotePath: C escapes for quotation
// mark and backslash, three octal digits for every byte that is not printable ASCII.
func quoteBytes(s string) string {
	b := append(make([]byte, 0, len(s)+2), '"')
	for i := range len(s) {
		switch c := s[i]; {
		case c == '"' || c == '\\':
			b = append(b, '\\', c)
		case c < ' ' || c >= 0x7f:
			b = fmt.Appendf(b, `\%03o`, c)
		default:
			b = append(b, c)
		}
	}
	return string(append(b, '"'))
}

func unquoteBytes(s string) (string, bool) {
	if len(s) < 2 || s[len(s)-1] != '"' {
		return "", false
	}
	// Go's literals have all of git's escapes; only the octal form needs three digits, as
	// git writes it.
	raw, err := strconv.Unquote(s)
	return raw, err == nil
}

// timeLayout is RFC 3339 in UTC with whole seconds: all the precision that is stored.
const timeLayout = "2006-01-02T15:04:05Z"

func encodeTime(enc *jsontext.Encoder, t time.Time) error {
	if t.IsZero() {
		return enc.WriteToken(jsontext.Null)
	}
	return enc.WriteToken(jsontext.String(t.UTC().Format(timeLayout)))
}

// decodeTime reads RFC 3339 in any zone, and a foreign empty string as null.
func decodeTime(dec *jsontext.Decoder, t *time.Time) error {
	if dec.PeekKind() != '"' {
		return errors.ErrUnsupported
	}
	tok, err := dec.ReadToken()
	if err != nil {
		return err
	}
	text := tok.String()
	if text == "" {
		*t = time.Time{}
		return nil
	}
	v, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return err
	}
	*t = storedTime(v)
	return nil
}

// plainProcess has ProcessID's members and none of its special treatment.
type plainProcess ProcessID

// storedProcess is a process identity with the members that this version does not know.
type storedProcess struct {
	plainProcess
	unknown
}

func encodeProcess(enc *jsontext.Encoder, p ProcessID) error {
	return json.MarshalEncode(enc, storedProcess{plainProcess(p), unknown{jsontext.Value(p.rest)}})
}

func decodeProcess(dec *jsontext.Decoder, p *ProcessID) error {
	var s storedProcess
	if err := json.UnmarshalDecode(dec, &s); err != nil {
		return err
	}
	*p = ProcessID(s.plainProcess)
	p.rest = string(s.Members)
	return nil
}

// checkCodec writes and reads a row with unknown members once, because a build can
// replace the JSON package under this one's feet: with GOEXPERIMENT=jsonv2 on Go 1.26 it
// is the standard library's, which drops unknown members in silence.
//
// The package as it is required by go.mod needs no such look: its tests are ours. It is
// known by its types, which are no others' then.
var checkCodec = sync.OnceValue(func() error {
	if reflect.TypeFor[jsontext.Value]().PkgPath() == "github.com/go-json-experiment/json/jsontext" {
		return nil
	}
	return tryCodec()
})

func tryCodec() error {
	const row = `{"schemaVersion":1,"ledgerId":"a","mux":{"x":2.50},"lease":{"op":"kill","attempt":"1","nonce":"1",` +
		`"owner":{"pid":1,"x":1E+2},"acquiredAt":"2026-01-01T00:00:00Z"},"x":"\u00e9"}`
	e, err := decodeEntry([]byte(row))
	if err != nil {
		return fmt.Errorf("ledger: this build cannot read rows: %w", err)
	}
	data, err := encodeEntry(&e)
	if err != nil {
		return fmt.Errorf("ledger: this build cannot write rows: %w", err)
	}
	for _, kept := range []string{`"x":2.50`, `"x":1E+2`, `"x":"\u00e9"`} {
		if !bytes.Contains(data, []byte(kept)) {
			return fmt.Errorf("ledger: this build's JSON package loses unknown members: %w", errors.ErrUnsupported)
		}
	}
	return nil
}
