package ledger

import (
	"math/bits"
	"strconv"
)

// guards is a set of conditions, checked in the order of their bits.
type guards uint32

const (
	namesProcess guards = 1 << iota
	neverRan
	restorable
	confirmable
	notRescued
	otherRuntime
	rowConversation
	byAttempt
	launchedIt
	rebindable
	recordedRuns
	recordedGone
	captured
	uncommitted
	carriesRow
	carriesAttempt
	subjectRuns
	unclaimed
	carriersGone
	attemptGone
	sessionGone
	conversationFree
	idFree
	sameConversation
	claimable
	staleLease
)

// guardTexts says, in the order of the bits, what each guard asks and which facts it
// consults.
var guardTexts = [...]struct {
	name, text string
	facts      facts
}{
	{"namesProcess", "the process that the event names is the recorded one: with another one now it is Dropped", 0},
	{"neverRan", "the row holds no evidence that a session ever ran", 0},
	{"restorable", "mode resume: a conversation is recorded; mode repick: the embedder has a command", 0},
	{"confirmable", "the process is restore.launched, and restore.error does not name this attempt", 0},
	{"notRescued", "its work was not rescued, and no rescue is in hand: else a successor row takes the process", 0},
	{"otherRuntime", "the target is another runtime than the row's", 0},
	{"rowConversation", "the conversation is the recorded one", 0},
	{"byAttempt", "without the nonce: the process carries the attempt in its environment", factCarriesAttempt},
	{"launchedIt", "the process is restore.launched; before Launched, the outermost carrier of the attempt", factOutermost},
	{"rebindable", "the recorded process again: always; else the recorded one is Gone, the new one Running and no other row's, and the row neither rescued nor in rescue",
		factRecorded | factSubject | factClaimed},
	{"recordedRuns", "the recorded process is Running", factRecorded},
	{"recordedGone", "the recorded process is Gone", factRecorded},
	{"captured", "the attempt's capture is complete", factCapture},
	{"uncommitted", "not both: the recorded process Gone and the capture complete (then commit)", factRecorded | factCapture},
	{"carriesRow", "the process is a session process that carries the row's id", factCarriesRow},
	{"carriesAttempt", "the process carries the attempt in its environment", factCarriesAttempt},
	{"subjectRuns", "the process is Running", factSubject},
	{"unclaimed", "the process has no other row of its own", factClaimed},
	{"carriersGone", "every process that carries the attempt is Gone", factCarriers},
	{"attemptGone", "restore.launched and every process that carries the attempt is Gone", factLaunched | factCarriers},
	{"sessionGone", "every session process of the row is Gone", factSession},
	{"conversationFree", "mode resume: no other open row and no process holds the conversation", factHeld},
	{"idFree", "no other open row holds the newcomer's conversation", factHeld},
	{"sameConversation", "mode resume: the conversation is the recorded one, or one that has a transcript where the runtime changes ids on resume; no other open row holds it; another one that has a transcript is a mismatch, and recorded",
		factHeld | factTranscript | factChangesID},
	{"claimable", "no other open row holds the conversation (a refusal is recorded); one without a transcript yields to a recorded one with a transcript, one that a store diff found to any; to cede, the recorded process is Gone",
		factHeld | factTranscript | factHasTranscript | factRecorded},
	{"staleLease", "the lease is stale", factLease},
}

// checkGuards checks them in order. It returns Unset and no error where all hold, an
// outcome where one makes the event come to nothing, and a sentinel with its reason
// where one stands against it.
func (m *move) checkGuards(s *State, ev *Event) (out Outcome, reason string, err error) {
	for g := m.guards; g != 0; g &= g - 1 {
		one := guards(1) << bits.TrailingZeros32(uint32(g))
		if out, reason, err = one.check(s, ev); out != Unset || err != nil {
			return out, reason, err
		}
	}
	return Unset, "", nil
}

func (g guards) check(s *State, ev *Event) (out Outcome, reason string, err error) {
	f := &ev.Facts
	switch g {
	case namesProcess:
		switch {
		case s.Process.IsZero():
		case ev.ProcessKey == "" && ev.Kind == EventFinish:
			err, reason = ErrInvalid, "it names no process"
		case ev.ProcessKey != "" && !s.Process.hasKey(ev.ProcessKey):
			out = Dropped
		}
	case neverRan:
		reason, err = refuseIf(s.Ran, "a session may have run")
	case restorable:
		if ev.RestoreMode == RestoreResume {
			reason, err = refuseIf(s.SessionID == "", "no conversation is recorded to resume")
		} else {
			reason, err = refuseIf(ev.Command == "", "no command to pick a conversation with")
		}
	case confirmable:
		if reason, err = refuseIf(!ev.Process.Same(s.Restore.Launched), "the process is not the launched one"); err == nil {
			reason, err = refuseIf(s.Restore.Failed, "the restore has failed")
		}
	case notRescued:
		reason, err = refuseIf(s.Rescued || s.Rescuing, "its work was rescued: a new process gets a row of its own")
	case otherRuntime:
		reason, err = refuseIf(ev.Target == "" || ev.Target == s.Runtime, "the target is not another runtime")
	case rowConversation:
		reason, err = refuseIf(ev.SessionID == "" || ev.SessionID != s.SessionID, "the conversation is not the row's")
	case byAttempt:
		if ev.Nonce == "" {
			reason, err = needAnswer(f.CarriesAttempt, Yes, ErrIllegal, "whether the process carries the attempt")
		}
	case launchedIt:
		if s.Restore.Launched.IsZero() {
			reason, err = needAnswer(f.Outermost, Yes, ErrIllegal, "whether the process is the attempt's outermost carrier")
		} else {
			reason, err = refuseIf(!ev.Process.Same(s.Restore.Launched), "the process is not the launched one")
		}
	case rebindable:
		reason, err = rebind(s, ev)
	case recordedRuns:
		reason, err = needVerdict(f.Recorded, Running, "the recorded process")
	case recordedGone:
		reason, err = needVerdict(f.Recorded, Gone, "the recorded process")
	case captured:
		reason, err = needAnswer(f.Capture, Yes, ErrIllegal, "whether the capture is complete")
	case uncommitted:
		switch {
		case f.Recorded == Running || f.Capture == No:
		case f.Recorded == Gone && f.Capture == Yes:
			reason, err = "the process is gone and its output kept: commit", ErrIllegal
		case f.Recorded == Unknown:
			reason, err = "the recorded process", ErrUnknown
		default:
			reason, err = "whether the capture is complete", ErrUnknown
		}
	case carriesRow:
		reason, err = needAnswer(f.CarriesRow, Yes, ErrIllegal, "whether the process carries the row's id")
	case carriesAttempt:
		reason, err = needAnswer(f.CarriesAttempt, Yes, ErrIllegal, "whether the process carries the attempt")
	case subjectRuns:
		reason, err = needVerdict(f.Subject, Running, "the process")
	case unclaimed:
		reason, err = needAnswer(f.Claimed, No, ErrExists, "whether the process has another row")
	case carriersGone:
		reason, err = needVerdict(f.Carriers, Gone, "a process of the attempt")
	case attemptGone:
		if !s.Restore.Launched.IsZero() {
			reason, err = needVerdict(f.Launched, Gone, "the launched process")
		}
		if err == nil {
			reason, err = needVerdict(f.Carriers, Gone, "a process of the attempt")
		}
	case sessionGone:
		reason, err = needVerdict(f.Session, Gone, "a process of the session")
	case conversationFree:
		if ev.RestoreMode == RestoreResume {
			reason, err = needAnswer(f.Held, No, ErrConversationHeld, "whether the conversation is held elsewhere")
		}
	case idFree:
		if ev.SessionID != "" {
			reason, err = needAnswer(f.Held, No, ErrConversationHeld, "whether the conversation is held elsewhere")
		}
	case sameConversation:
		reason, err = acknowledged(s, ev)
	case claimable:
		return claimed(s, ev)
	case staleLease:
		reason, err = needAnswer(s.leaseStale(&f.Lease), Yes, ErrLeaseHeld, "whether the lease is stale")
	}
	return out, reason, err
}

func refuseIf(bad bool, reason string) (string, error) {
	if bad {
		return reason, ErrIllegal
	}
	return "", nil
}

// needAnswer turns an answer that is not the wanted one into an error: unknown, or against.
func needAnswer(got, want Answer, against error, question string) (string, error) {
	switch {
	case got == want:
		return "", nil
	case got == Unsure:
		return question, ErrUnknown
	}
	return question + ": " + got.String(), against
}

func needVerdict(got, want Verdict, what string) (string, error) {
	switch {
	case got == want:
		return "", nil
	case got == Unknown:
		return what, ErrUnknown
	}
	return what + " is " + got.String(), ErrIllegal
}

// rebind decides whether a live row may get the process.
func rebind(s *State, ev *Event) (reason string, err error) {
	if ev.Process.Same(s.Process) {
		return "", nil
	}
	reason, err = notRescued.reason(s, ev)
	if err == nil && !s.Process.IsZero() {
		reason, err = recordedGone.reason(s, ev)
	}
	if err == nil {
		reason, err = subjectRuns.reason(s, ev)
	}
	if err == nil {
		reason, err = unclaimed.reason(s, ev)
	}
	return reason, err
}

func (g guards) reason(s *State, ev *Event) (string, error) {
	_, reason, err := g.check(s, ev)
	return reason, err
}

// acknowledged decides whether the conversation that came up is the one to restore.
func acknowledged(s *State, ev *Event) (reason string, err error) {
	f := &ev.Facts
	other := s.Restore.Mode != RestoreRepick && ev.SessionID != s.SessionID
	switch {
	case ev.SessionID == "":
		return "it names no conversation", ErrIllegal
	case f.Held == Yes:
		return "another session holds the conversation " + strconv.Quote(ev.SessionID), ErrSessionMismatch
	case other && f.Transcript == Yes && !f.ChangesID:
		return "the conversation " + strconv.Quote(ev.SessionID) + " came up", ErrSessionMismatch
	case f.Held == Unsure:
		return "whether the conversation is held elsewhere", ErrUnknown
	case other && f.Transcript == No:
		return "a passing conversation, without a transcript", ErrIllegal
	case other && f.Transcript != Yes:
		return "whether the conversation has a transcript", ErrUnknown
	}
	return "", nil
}

// claimed decides whether the conversation becomes the row's.
func claimed(s *State, ev *Event) (out Outcome, reason string, err error) {
	f := &ev.Facts
	switch {
	case ev.Target != "": // to cede it
		if ev.SessionID != s.SessionID {
			return Unset, "", nil
		}
		reason, err = needVerdict(f.Recorded, Gone, "the recorded process")
		return Unset, reason, err
	case ev.SessionID == s.SessionID:
		return Unset, "", nil
	case ev.Source == fromStoreDiff && s.SessionID != "":
		return Yielded, "", nil
	case f.Held == Yes:
		return Unset, "held by " + strconv.Quote(f.HeldBy), ErrConversationHeld
	case f.Held == Unsure:
		return Unset, "whether the conversation is held elsewhere", ErrUnknown
	case s.SessionID == "" || f.Transcript == Yes || f.HasTranscript == No:
		return Unset, "", nil
	case f.Transcript == No && f.HasTranscript == Yes:
		return Yielded, "", nil
	}
	return Unset, "which of the two conversations has a transcript", ErrUnknown
}

// hasKey reports whether key is p's process key. It makes no garbage.
func (p ProcessID) hasKey(key string) bool {
	var buf [64]byte
	n := len(p.BootID)
	if p.IsZero() || len(key) <= n || key[:n] != p.BootID {
		return false
	}
	rest := append(buf[:0], ':')
	rest = strconv.AppendInt(rest, int64(p.PID), 10)
	rest = append(rest, ':')
	rest = strconv.AppendUint(rest, p.StartTicks, 10)
	return key[n:] == string(rest)
}
