package ledger

import (
	"cmp"
	"fmt"
	"strings"
	"time"
)

// Liveness says what a session is doing: the token of [Status.State].
type Liveness string

// The states, in the order in which [Classify] tries them.
const (
	LivenessFinished Liveness = "FINISHED"
	LivenessInFlight Liveness = "IN-FLIGHT"
	LivenessFrozen   Liveness = "FROZEN"
	LivenessArchived Liveness = "ARCHIVED"
	LivenessUnknown  Liveness = "UNKNOWN"
	LivenessOrphaned Liveness = "ORPHANED"
	LivenessDetached Liveness = "DETACHED-ALIVE"
	LivenessWorking  Liveness = "ALIVE-WORKING"
	LivenessIdle     Liveness = "ALIVE-IDLE"
)

// Classify says what state a session is in. It is pure; the first rule that fits wins:
//
//	FINISHED            the phase is finished
//	IN-FLIGHT           an operation is in flight
//	FROZEN, ARCHIVED    by the phase
//	UNKNOWN             the process could not be resolved either way; or there never was
//	                    one, and the launcher runs or is not known
//	ORPHANED            the process is gone: the lost-work case
//	DETACHED-ALIVE      it runs, its multiplexer session exists, no client shows it
//	ALIVE-WORKING       it runs and made progress within [IdleAfter]: its transcript grew
//	                    or, only for a runtime without transcripts, its cpu time did
//	ALIVE-IDLE          it runs, and makes none or none that is known of (Working is nil)
//
// That nobody shows a session goes before whether it works: see Working.
// Processor time never overrides a transcript: a session that is parked at its prompt
// burns ticks too, and to report every open session as working is the worse error.
func Classify(e Entry, ev Evidence, now time.Time) Status {
	open := e.IsOpen()
	st := Status{
		Mux:          ev.Mux,
		Attached:     attached(&e, &ev),
		LastActiveAt: lastActive(&e, &ev, now),
		IdleReason:   IdleNone,
		process:      ev.Process,
		Limit:        clonePart(e.Limit, func(l *Limit) *unknown { return &l.unknown }),
		Attention:    clonePart(e.Attention, func(n *Note) *unknown { return &n.unknown }),
	}
	if t := ev.Transcript; t != nil {
		st.Title, st.Activity = t.Title, t.Activity
	}
	if e.Lease != nil && open {
		st.Lease = &LeaseStatus{Op: e.Lease.Op, Owner: e.Lease.Owner, OwnerIs: ev.LeaseOwner.String(),
			Since: e.Lease.AcquiredAt, Stale: clonePtr(ev.LeaseStale)}
	}
	if open {
		st.DirtyCount = clonePtr(ev.DirtyCount)
	}
	if open && ev.Process == Running {
		st.ProcessKey, st.PID = ev.ProcessID.Key(), ev.ProcessID.PID
		st.Working = working(&ev, now)
	}
	st.State, st.Reason = decideState(&e, &ev, &st, now)
	st.Evidence = ev.text(&e, now)
	if open {
		st.IdleReason = idleReason(&e, &ev, &st)
	}
	return st
}

// decideState is the order of the rules.
func decideState(e *Entry, ev *Evidence, st *Status, now time.Time) (Liveness, string) {
	switch {
	case e.Phase == PhaseFinished:
		return LivenessFinished, cmp.Or(e.FinishReason, "finished")
	case e.Lease != nil:
		return LivenessInFlight, inFlightReason(st.Lease, now)
	case e.Phase == PhaseFrozen:
		return LivenessFrozen, frozenReason(e, ev)
	case e.Phase == PhaseArchived:
		return LivenessArchived, "shelved"
	case e.Phase != PhaseLive:
		return LivenessUnknown, fmt.Sprintf("the phase %q is not known to this version", string(e.Phase))
	case ev.Process == Gone && e.PID == 0 && ev.Launcher == Running:
		return LivenessUnknown, "starting: no process yet, and its launcher runs"
	case ev.Process == Gone && e.PID == 0 && ev.Launcher != Gone:
		return LivenessUnknown, "it never had a process, and its launcher is not known"
	case ev.Process == Unknown:
		return LivenessUnknown, cmp.Or(ev.ProcessWhy, "whether its process runs could not be found out")
	case ev.Process == Gone:
		return LivenessOrphaned, orphanedReason(e, ev)
	case ev.Mux == MuxDetached:
		return LivenessDetached, "it runs, and nobody looks at it: attach reopens it"
	case st.Working == nil:
		return LivenessIdle, "it runs; whether it makes progress is not known"
	case *st.Working:
		return LivenessWorking, "it made progress " + ago(now.Sub(ev.progressAt(now)))
	}
	return LivenessIdle, "it runs, without progress since " + st.LastActiveAt.Format(timeLayout)
}

func inFlightReason(l *LeaseStatus, now time.Time) string {
	reason := fmt.Sprintf("%s is in flight since %s, by process %d (%s)",
		l.Op, l.Since.Format(timeLayout), l.Owner.PID, l.OwnerIs)
	if l.Stale != nil && *l.Stale {
		reason += "; its lease is stale: the next reconcile settles it"
	}
	return reason
}

func frozenReason(e *Entry, ev *Evidence) string {
	switch {
	case len(ev.RestoreLacks) > 0:
		return "frozen; to resume it lacks " + strings.Join(ev.RestoreLacks, ", ")
	case e.SessionID == "":
		return "frozen, without a conversation id: resume needs a command to pick one"
	}
	return "frozen; restore resumes it by its own conversation"
}

func orphanedReason(e *Entry, ev *Evidence) string {
	what := "its process is gone"
	if e.PID == 0 {
		what = "it never got a process, and its launcher is gone"
	}
	if e.BootID != "" && ev.BootID != "" && e.BootID != ev.BootID {
		what = "the machine was rebooted since"
	}
	if e.SessionID != "" {
		what += "; resume brings its conversation back"
	}
	return what
}

// working says whether a running session makes progress; nil where that is not known.
func working(ev *Evidence, now time.Time) *bool {
	var yes bool
	switch {
	case ev.HasTranscripts && ev.progressAt(now).IsZero():
		return nil
	case !ev.HasTranscripts && !ev.CPUSampled && now.Sub(ev.progressAt(now)) >= IdleAfter:
		return nil // it may have grown since: nobody looked
	default:
		yes = now.Sub(ev.progressAt(now)) < IdleAfter
	}
	return &yes
}

// progressAt is when progress was last seen; zero: never.
func (ev *Evidence) progressAt(now time.Time) time.Time {
	switch {
	case !ev.HasTranscripts:
		return ev.CPUGrewAt
	case ev.Transcript != nil && !ev.Transcript.ModTime.After(now.Add(clockSlack)):
		return ev.Transcript.ModTime
	}
	return time.Time{} // a time to come is a clock's error, and proves nothing
}

// lastActive is the newest trace of activity. The stamp that a sweep makes when ticks
// grew counts only for a runtime without transcripts.
func lastActive(e *Entry, ev *Evidence, now time.Time) time.Time {
	at := e.LastHeartbeatAt
	if t := ev.progressAt(now); t.After(at) {
		at = t
	}
	if !ev.HasTranscripts && e.LastActiveAt.After(at) {
		at = e.LastActiveAt
	}
	if at.IsZero() {
		at = e.StartedAt
	}
	return at.UTC().Truncate(time.Second)
}

// attached says whether somebody looks at the session. In no multiplexer that is only
// whether its terminal exists, for display: no state depends on it.
func attached(e *Entry, ev *Evidence) *bool {
	yes := ev.Mux == MuxAttached
	switch ev.Mux {
	case MuxAttached, MuxDetached:
		return &yes
	case MuxNone:
		if e.Mux.Kind != "" || ev.Process == Gone {
			yes = false // its terminal was the multiplexer's, or is another's by now: names are used again
			return &yes
		}
		return clonePtr(ev.TTY)
	}
	return nil
}

// idleReason says why no progress is made, from recorded facts alone.
func idleReason(e *Entry, ev *Evidence, st *Status) IdleReason {
	p := e.Prompt
	switch {
	case st.Working != nil && *st.Working:
		return IdleNone
	case e.Limit != nil:
		return IdleUsageLimit
	case ev.Process == Gone && e.PID != 0:
		return IdleProcessExited
	case p == nil:
		return IdleNone
	case p.Status == PromptNotDelivered:
		return IdlePromptNotDelivered
	case p.Status != PromptDelivered:
		return IdleDeliveryUnconfirmed
	case !e.LastPaneChurnAt.After(p.AttemptedAt):
		return IdleNoPaneChange
	}
	return IdleSettled
}

// text says what was seen, in plain words.
func (ev *Evidence) text(e *Entry, now time.Time) string {
	if !e.IsOpen() {
		return "recorded as finished at " + e.FinishedAt.Format(timeLayout) // nothing else is asked
	}
	var seen []string
	switch ev.Process {
	case Running:
		seen = append(seen, cmp.Or(ev.ProcessWhy, fmt.Sprintf("process %d runs", ev.ProcessID.PID)))
	case Gone:
		seen = append(seen, cmp.Or(ev.ProcessWhy, "no process of it is left"))
	default:
		seen = append(seen, cmp.Or(ev.ProcessWhy, "the process could not be resolved"))
	}
	switch ev.Mux {
	case MuxAttached:
		seen = append(seen, "a client shows it")
	case MuxDetached:
		seen = append(seen, "no client shows it")
	case MuxUnreachable:
		seen = append(seen, "its multiplexer does not answer for it")
	}
	if t := ev.Transcript; t != nil && t.ModTime.After(now.Add(clockSlack)) {
		seen = append(seen, "transcript written at a time to come")
	} else if t != nil {
		seen = append(seen, "transcript written "+ago(now.Sub(t.ModTime)))
	}
	if ev.CPUSampled && !ev.HasTranscripts && ev.CPUGrewAt.IsZero() {
		seen = append(seen, "no processor time used")
	}
	return strings.Join(seen, ", ")
}

// ago writes how long something is past, in whole units.
func ago(d time.Duration) string {
	switch {
	case d < 2*time.Second:
		return "just now"
	case d < 2*time.Minute:
		return fmt.Sprintf("%d seconds ago", d/time.Second)
	case d < 2*time.Hour:
		return fmt.Sprintf("%d minutes ago", d/time.Minute)
	case d < 48*time.Hour:
		return fmt.Sprintf("%d hours ago", d/time.Hour)
	}
	return fmt.Sprintf("%d days ago", d/(24*time.Hour))
}

// alive reports whether the session's process is known to run.
func (l Liveness) alive() bool {
	return l == LivenessWorking || l == LivenessIdle || l == LivenessDetached
}
