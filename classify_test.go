package ledger

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
)

var (
	noon  = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	alice = ProcessID{HostID: "h", BootID: "b", PIDNamespace: 1, PID: 100, StartTicks: 7}
)

// liveRow is a live session whose process is alice.
func liveRow() Entry {
	ticks := alice.StartTicks
	return Entry{
		SchemaVersion: 1, LedgerID: "claude-20261130T110000Z-000001", Runtime: "claude", Phase: PhaseLive,
		StartedAt: noon.Add(-time.Hour), HostID: "h", BootID: "b", PIDNamespace: 1,
		PID: alice.PID, PIDStartTicks: &ticks, SessionID: "c1",
	}
}

// running is the evidence that alice runs, with a transcript written age ago.
func running(age time.Duration) Evidence {
	return Evidence{
		BootID: "b", Process: Running, ProcessID: alice, Mux: MuxNone, HasTranscripts: true,
		Transcript: &TranscriptEvidence{ModTime: noon.Add(-age), Title: "fix the bug", Activity: "Bash: go test"},
	}
}

func with[T any](v T, change func(*T)) T { change(&v); return v }

// TestClassifyStates has each state from minimal evidence, and the next weaker truth when
// a single piece of it is missing: never a wrong death.
func TestClassifyStates(t *testing.T) {
	yes, no := true, false
	lease := &Lease{Op: OpFreeze, Attempt: "a", Nonce: "a", Owner: alice, AcquiredAt: noon.Add(-time.Minute)}
	tests := []struct {
		name    string
		entry   Entry
		ev      Evidence
		want    Liveness
		working *bool
		reason  string // a part of it
	}{
		{"finished", with(liveRow(), func(e *Entry) {
			e.Phase, e.FinishedAt, e.FinishReason = PhaseFinished, noon, "exited at the prompt"
		}), Evidence{}, LivenessFinished, nil, "exited at the prompt"},
		{"finished wins over a running process", with(liveRow(), func(e *Entry) {
			e.Phase, e.FinishedAt = PhaseFinished, noon
		}), running(0), LivenessFinished, nil, "finished"},
		{"in flight", with(liveRow(), func(e *Entry) { e.Lease = lease }), running(0), LivenessInFlight, &yes, "freeze"},
		{"in flight and stale", with(liveRow(), func(e *Entry) { e.Lease = lease }),
			Evidence{LeaseStale: &yes, LeaseOwner: Gone}, LivenessInFlight, nil, "stale"},
		{"frozen", with(liveRow(), func(e *Entry) { e.Phase = PhaseFrozen }), Evidence{Process: Gone}, LivenessFrozen, nil, "restore"},
		{"frozen lacks", with(liveRow(), func(e *Entry) { e.Phase = PhaseFrozen }),
			Evidence{RestoreLacks: []string{"its folder"}}, LivenessFrozen, nil, "its folder"},
		{"archived", with(liveRow(), func(e *Entry) { e.Phase = PhaseArchived }), Evidence{Process: Gone}, LivenessArchived, nil, ""},
		{"a phase of the future", with(liveRow(), func(e *Entry) { e.Phase = "dreaming" }), running(0), LivenessUnknown, &yes, "dreaming"},

		{"nothing known", liveRow(), Evidence{}, LivenessUnknown, nil, "could not be found out"},
		{"gone", liveRow(), Evidence{BootID: "b", Process: Gone}, LivenessOrphaned, nil, "process is gone; resume"},
		{"gone, fresh transcript", liveRow(), with(running(0), func(ev *Evidence) { ev.Process = Gone }), LivenessOrphaned, nil, "gone"},
		{"gone, no conversation", with(liveRow(), func(e *Entry) { e.SessionID = "" }), Evidence{BootID: "b", Process: Gone}, LivenessOrphaned, nil, "process is gone"},
		{"gone with a reboot", liveRow(), Evidence{BootID: "c", Process: Gone}, LivenessOrphaned, nil, "rebooted"},
		{"gone, this boot not known", liveRow(), Evidence{Process: Gone}, LivenessOrphaned, nil, "process is gone"},

		{"starting", with(liveRow(), func(e *Entry) { e.PID, e.PIDStartTicks = 0, nil }),
			Evidence{Process: Gone, Launcher: Running}, LivenessUnknown, nil, "starting"},
		{"never had a process, launcher unknown", with(liveRow(), func(e *Entry) { e.PID, e.PIDStartTicks = 0, nil }),
			Evidence{Process: Gone}, LivenessUnknown, nil, "never had a process"},
		{"never had a process, launcher gone", with(liveRow(), func(e *Entry) { e.PID, e.PIDStartTicks = 0, nil }),
			Evidence{BootID: "b", Process: Gone, Launcher: Gone}, LivenessOrphaned, nil, "never got a process"},
		{"never had a process, partial view", with(liveRow(), func(e *Entry) { e.PID, e.PIDStartTicks = 0, nil }),
			Evidence{Launcher: Gone}, LivenessUnknown, nil, ""},

		{"working", liveRow(), running(time.Minute), LivenessWorking, &yes, "60 seconds ago"},
		{"just under the threshold", liveRow(), running(IdleAfter - time.Second), LivenessWorking, &yes, ""},
		{"at the threshold", liveRow(), running(IdleAfter), LivenessIdle, &no, "without progress"},
		{"a tool call longer than the threshold is idle, not dead", liveRow(), running(3 * time.Hour), LivenessIdle, &no, ""},
		{"transcript not readable", liveRow(), with(running(0), func(ev *Evidence) { ev.Transcript = nil }), LivenessIdle, nil, "not known"},
		{"a transcript from the future proves nothing", liveRow(), running(-time.Hour), LivenessIdle, nil, "not known"},
		{"cpu does not override a transcript", liveRow(), with(running(time.Hour), func(ev *Evidence) {
			ev.CPUSampled, ev.CPUGrewAt = true, noon
		}), LivenessIdle, &no, ""},
		{"cpu, no transcripts", liveRow(), Evidence{Process: Running, ProcessID: alice, CPUSampled: true, CPUGrewAt: noon}, LivenessWorking, &yes, ""},
		{"cpu at rest", liveRow(), Evidence{Process: Running, ProcessID: alice, CPUSampled: true}, LivenessIdle, &no, ""},
		{"cpu not looked at", liveRow(), Evidence{Process: Running, ProcessID: alice}, LivenessIdle, nil, "not known"},
		{"cpu grew long ago, not looked at since", liveRow(), Evidence{Process: Running, ProcessID: alice, CPUGrewAt: noon.Add(-time.Hour)}, LivenessIdle, nil, "not known"},
		{"cpu grew between sweeps", liveRow(), Evidence{Process: Running, ProcessID: alice, CPUGrewAt: noon.Add(-time.Minute)}, LivenessWorking, &yes, ""},

		{"detached and busy", liveRow(), with(running(0), func(ev *Evidence) { ev.Mux = MuxDetached }), LivenessDetached, &yes, "attach"},
		{"detached and idle", liveRow(), with(running(time.Hour), func(ev *Evidence) { ev.Mux = MuxDetached }), LivenessDetached, &no, ""},
		{"attached", liveRow(), with(running(0), func(ev *Evidence) { ev.Mux = MuxAttached }), LivenessWorking, &yes, ""},
		{"unreachable multiplexer does not outrank a process", liveRow(), with(running(0), func(ev *Evidence) { ev.Mux = MuxUnreachable }), LivenessWorking, &yes, ""},
		{"multiplexer not known", liveRow(), with(running(0), func(ev *Evidence) { ev.Mux = MuxUnknown }), LivenessWorking, &yes, ""},
		{"detached, process gone", liveRow(), Evidence{BootID: "b", Process: Gone, Mux: MuxDetached}, LivenessOrphaned, nil, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := Classify(tt.entry, tt.ev, noon)
			if got.State != tt.want {
				t.Errorf("state %s (%s), want %s", got.State, got.Reason, tt.want)
			}
			if (got.Working == nil) != (tt.working == nil) || got.Working != nil && *got.Working != *tt.working {
				t.Errorf("working %v, want %v", show(got.Working), show(tt.working))
			}
			if !strings.Contains(got.Reason, tt.reason) {
				t.Errorf("reason %q lacks %q", got.Reason, tt.reason)
			}
			if live := tt.ev.Process == Running && tt.entry.IsOpen(); live != (got.ProcessKey != "") {
				t.Errorf("process key %q", got.ProcessKey)
			}
		})
	}
}

func show(b *bool) string {
	if b == nil {
		return "unknown"
	}
	return map[bool]string{true: "yes", false: "no"}[*b]
}

func TestClassifyAttached(t *testing.T) {
	yes, no := true, false
	for _, tt := range []struct {
		ev   Evidence
		want *bool
	}{
		{Evidence{Mux: MuxAttached}, &yes},
		{Evidence{Mux: MuxDetached}, &no},
		{Evidence{Mux: MuxUnreachable, TTY: &yes}, nil},
		{Evidence{Mux: MuxUnknown, TTY: &yes}, nil},
		{Evidence{Mux: MuxNone, TTY: &yes}, &yes},
		{Evidence{Mux: MuxNone, TTY: &no}, &no},
		{Evidence{Mux: MuxNone}, nil},
	} {
		if got := Classify(liveRow(), tt.ev, noon).Attached; show(got) != show(tt.want) {
			t.Errorf("%+v: attached %s, want %s", tt.ev, show(got), show(tt.want))
		}
	}
}

func TestClassifyLastActive(t *testing.T) {
	at := func(min int) time.Time { return noon.Add(-time.Duration(min) * time.Minute) }
	started := liveRow().StartedAt
	for _, tt := range []struct {
		name  string
		entry Entry
		ev    Evidence
		want  time.Time
	}{
		{"nothing", liveRow(), Evidence{}, started},
		{"heartbeat", with(liveRow(), func(e *Entry) { e.LastHeartbeatAt = at(3) }), Evidence{HasTranscripts: true}, at(3)},
		{"transcript after heartbeat", with(liveRow(), func(e *Entry) { e.LastHeartbeatAt = at(3) }), running(time.Minute), at(1)},
		{"heartbeat after transcript", with(liveRow(), func(e *Entry) { e.LastHeartbeatAt = at(1) }), running(3 * time.Minute), at(1)},
		{"stamp of a sweep, no transcripts", with(liveRow(), func(e *Entry) { e.LastActiveAt = at(2) }), Evidence{}, at(2)},
		{"stamp of a sweep does not count beside transcripts", with(liveRow(), func(e *Entry) { e.LastActiveAt = at(2) }), Evidence{HasTranscripts: true}, started},
	} {
		if got := Classify(tt.entry, tt.ev, noon).LastActiveAt; !got.Equal(tt.want) {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}
}

func TestClassifyIdleReason(t *testing.T) {
	prompt := func(status string, churn time.Time) Entry {
		return with(liveRow(), func(e *Entry) {
			e.Prompt = &Prompt{AttemptedAt: noon.Add(-time.Hour), Status: status}
			e.LastPaneChurnAt = churn
		})
	}
	idle := running(time.Hour)
	for _, tt := range []struct {
		name  string
		entry Entry
		ev    Evidence
		want  IdleReason
	}{
		{"working", prompt(PromptNotDelivered, time.Time{}), running(0), IdleNone},
		{"nothing recorded", liveRow(), idle, IdleNone},
		{"limit", with(prompt(PromptNotDelivered, time.Time{}), func(e *Entry) { e.Limit = &Limit{ReachedAt: noon} }), idle, IdleUsageLimit},
		{"exited", liveRow(), Evidence{Process: Gone}, IdleProcessExited},
		{"unknown is not exited", liveRow(), Evidence{}, IdleNone},
		{"not delivered", prompt(PromptNotDelivered, time.Time{}), idle, IdlePromptNotDelivered},
		{"sent unverified", prompt(PromptSentUnverified, noon), idle, IdleDeliveryUnconfirmed},
		{"could not confirm", prompt(PromptCouldNotConfirm, noon), idle, IdleDeliveryUnconfirmed},
		{"no change since", prompt(PromptDelivered, noon.Add(-2*time.Hour)), idle, IdleNoPaneChange},
		{"settled", prompt(PromptDelivered, noon.Add(-time.Minute)), idle, IdleSettled},
	} {
		if got := Classify(tt.entry, tt.ev, noon).IdleReason; got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}
}

// TestStatusJSON pins the names that scripts read, and that unknown is null while 0 is not.
func TestStatusJSON(t *testing.T) {
	dirty := 0
	ev := running(time.Minute)
	ev.DirtyCount = &dirty
	data, err := json.Marshal(Session{liveRow(), Classify(liveRow(), ev, noon)})
	if err != nil {
		t.Fatal(err)
	}
	var got struct{ Status map[string]any }
	if err := json.Unmarshal(data, &got); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]any{
		"state": "ALIVE-WORKING", "working": true, "attached": nil, "mux": "none", "processKey": "b:100:7", "pid": 100.0,
		"title": "fix the bug", "activity": "Bash: go test", "lastActiveAt": "2026-11-30T11:59:00Z", "dirtyCount": 0.0,
		"idleReason": "none", "limit": nil, "lease": nil, "attention": nil,
	} {
		v, ok := got.Status[name]
		if !ok || v != want {
			t.Errorf("%s: %v (there: %v), want %v", name, v, ok, want)
		}
	}
	data, err = json.Marshal(Classify(liveRow(), Evidence{}, noon))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"working":null`, `"mux":null`, `"processKey":null`, `"pid":null`, `"dirtyCount":null`, `"title":null`} {
		if !strings.Contains(string(data), want) {
			t.Errorf("%s lacks %s", data, want)
		}
	}
}

// Terminal names are used again: that of a session whose process is gone, or that was in a
// multiplexer, tells nothing.
func TestAttachedIsNotTheNextUserOfATerminal(t *testing.T) {
	yes := true
	for name, tt := range map[string]struct {
		process Verdict
		kind    string
		want    bool
	}{
		"it runs in no multiplexer":  {Running, "", true},
		"it ran in no multiplexer":   {Gone, "", false},
		"it ran in one that is gone": {Gone, MuxTmux, false},
		"it runs, taken out of tmux": {Running, MuxTmux, false},
	} {
		e := liveRow()
		e.Mux.Kind, e.TTY = tt.kind, "pts/0"
		st := Classify(e, Evidence{Process: tt.process, Mux: MuxNone, TTY: &yes}, time.Now())
		if st.Attached == nil || *st.Attached != tt.want {
			t.Errorf("%s: %v", name, st.Attached)
		}
	}
}
