package ledger

import (
	"strings"
	"testing"

	"github.com/sessionledger/ledger/internal/procscan"
)

// TestResolveProcess is the order of resolution, with each piece of evidence
// taken away: what is missing gives unknown, never a wrong death.
func TestResolveProcess(t *testing.T) {
	bound, unbound := testRow("x", hasProcess(10)), testRow("x")
	carrier := carrierSight{seen: Running, process: valueProcess(20)}
	tests := []struct {
		name    string
		row     Entry
		own     Verdict
		carrier carrierSight
		partial string
		want    Verdict
		pid     int
	}{
		{"its process runs", bound, Running, carrierSight{}, "", Running, 10},
		{"its process runs, in a partial view", bound, Running, carrierSight{}, "hidden", Running, 10},
		{"its process wins while another carries the id", bound, Running, carrier, "", Running, 10},
		{"its process is gone, a carrier runs", bound, Gone, carrier, "", Running, 20},
		{"its process cannot be looked at, a carrier runs", bound, Unknown, carrier, "", Running, 20},
		{"its process is gone", bound, Gone, carrierSight{}, "", Gone, 0},
		{"its process is gone, in a partial view", bound, Gone, carrierSight{}, "hidden", Unknown, 0},
		{"its process cannot be looked at", bound, Unknown, carrierSight{}, "", Unknown, 0},
		{"of another boot, in a partial view", tweak(bound, func(e *Entry) { e.BootID = "before" }), Gone, carrierSight{}, "hidden", Gone, 0},
		{"of another host", tweak(bound, func(e *Entry) { e.HostID = "other" }), Unknown, carrierSight{}, "", Unknown, 0},

		{"never had a process, a carrier runs", unbound, Unknown, carrier, "", Running, 20},
		{"never had one, none carries the id", unbound, Unknown, carrierSight{seen: Gone}, "", Gone, 0},
		{"never had one, in a partial view", unbound, Unknown, carrierSight{seen: Gone}, "hidden", Unknown, 0},
		{"never had one, one may carry the id", unbound, Unknown, carrierSight{why: "unreadable"}, "", Unknown, 0},
		{"never had one, a shell carries the id", unbound, Unknown, carrierSight{seen: Running, waiting: valueProcess(21)}, "", Unknown, 0},
		{"a pid without start ticks is no process", tweak(unbound, func(e *Entry) { e.PID = 10 }), Unknown, carrierSight{seen: Gone}, "", Gone, 0},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			r := resolveProcess(&test.row, testHere, test.own, test.carrier, test.partial)
			if r.verdict != test.want || r.process.PID != test.pid {
				t.Errorf("%v of process %d (%s), want %v of process %d", r.verdict, r.process.PID, r.why, test.want, test.pid)
			}
			if r.why == "" {
				t.Error("no reason")
			}
		})
	}
	r := resolveProcess(&bound, testHere, Gone, carrierSight{}, "")
	if strings.Contains(r.why, "restarted") {
		t.Errorf("a restart is claimed: %s", r.why)
	}
	before := tweak(bound, func(e *Entry) { e.BootID = "before" })
	if r := resolveProcess(&before, testHere, Gone, carrierSight{}, ""); !strings.Contains(r.why, "restarted") {
		t.Errorf("the restart is not named: %s", r.why)
	}
}

func TestUnknownProcessSaysWhy(t *testing.T) {
	for want, change := range map[string]func(*ProcessID){
		"another host":           func(p *ProcessID) { p.HostID = "other" },
		"without a boot id":      func(p *ProcessID) { p.BootID = "" },
		"another pid namespace":  func(p *ProcessID) { p.PIDNamespace = 7 },
		"another time namespace": func(p *ProcessID) { p.TimeNamespace = 7 },
		"cannot be looked at":    func(*ProcessID) {},
	} {
		if got := unknownProcess(tweak(valueProcess(10), change), testHere); !strings.Contains(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	}
	if got := unknownProcess(valueProcess(10), ProcessID{}); !strings.Contains(got, "this machine") {
		t.Error(got)
	}
}

func TestLaunchedBy(t *testing.T) {
	for _, test := range []struct {
		name string
		ev   launchEvidence
		want string
	}{
		{"nothing", launchEvidence{read: true}, ""},
		{"a factory", launchEvidence{read: true, factory: true, inherited: true, above: tellsAgent}, LaunchedByFactory},
		{"an inherited id", launchEvidence{read: true, inherited: true, above: tellsPerson}, LaunchedByAgent},
		{"an agent above", launchEvidence{read: true, above: tellsAgent}, LaunchedByAgent},
		{"an agent above, unreadable", launchEvidence{above: tellsAgent}, LaunchedByAgent},
		{"a terminal", launchEvidence{read: true, above: tellsPerson}, LaunchedByUser},
		{"a terminal, unreadable", launchEvidence{above: tellsPerson}, ""},
		{"an interactive scope", launchEvidence{read: true, scoped: true}, LaunchedByUser},
		{"an interactive scope, unreadable", launchEvidence{scoped: true}, ""},
		{"a scheduler in such a scope", launchEvidence{read: true, above: tellsClock, scoped: true}, ""},
	} {
		if got := launchedBy(test.ev); got != test.want {
			t.Errorf("%s: %q, want %q", test.name, got, test.want)
		}
	}
}

func TestTellingAncestors(t *testing.T) {
	for _, test := range []struct {
		comm string
		args []string
		want teller
	}{
		{"tmux: server", []string{"tmux", "new", "-s", "x"}, tellsPerson},
		{"sshd", []string{"sshd: me@pts/0"}, tellsPerson},
		{"sshd-session", []string{"sshd-session: me@pts/0"}, tellsPerson},
		{"login", []string{"login -- me"}, tellsPerson},
		{"gnome-terminal-", []string{"/usr/libexec/gnome-terminal-server"}, tellsPerson},
		{"terminator", []string{"/usr/bin/python3", "/usr/bin/terminator"}, tellsPerson},
		{"python3", []string{"/usr/bin/python3", "/usr/bin/terminator"}, tellsPerson},
		{"dtach", []string{"dtach", "-A", "/s", "sh"}, tellsPerson},
		{"cron", []string{"/usr/sbin/CRON", "-f"}, tellsClock},
		{"bash", []string{"-bash"}, tellsNothing},
		{"bash", []string{"bash", "tmux"}, tellsNothing},
		{"vim", []string{"vim", "kitty"}, tellsNothing},
		{"systemd", []string{"/lib/systemd/systemd", "--user"}, tellsNothing},
		{"kthreadd", nil, tellsNothing},
	} {
		if got := tells(procscan.Proc{Comm: test.comm, Args: test.args}); got != test.want {
			t.Errorf("%s %q: %d, want %d", test.comm, test.args, got, test.want)
		}
	}
}

func TestInteractiveScope(t *testing.T) {
	for cgroup, want := range map[string]bool{
		"/user.slice/user-1000.slice/session-3.scope":                                  true,
		"/user.slice/user-1000.slice/user@1000.service/app.slice/vte-spawn-1b2c.scope": true,
		"/user.slice/user-1000.slice/user@1000.service/tmux-spawn-1b2c.scope":          true,
		"/user.slice/user-1000.slice/user@1000.service/app.slice/factory.service":      false,
		"/system.slice/cron.service":                                                   false,
		"/":                                                                            false,
		"/user.slice/user-1000.slice/session-3.scope/deeper":                           false,
		"": false,
	} {
		if got := isInteractive(cgroup); got != want {
			t.Errorf("%s: %v", cgroup, got)
		}
	}
}

func TestTTYName(t *testing.T) {
	dev := func(major, minor uint32) int32 { return int32(minor&0xff | major<<8 | (minor&^0xff)<<12) }
	for device, want := range map[int32]string{
		0: "", dev(136, 0): "pts/0", dev(136, 300): "pts/300", dev(137, 1): "pts/257",
		dev(4, 1): "tty1", dev(4, 64): "ttyS0", dev(4, 67): "ttyS3", dev(204, 64): "",
	} {
		if got := ttyName(device); got != want {
			t.Errorf("%#x: %q, want %q", device, got, want)
		}
	}
}

func TestMultiplexerArguments(t *testing.T) {
	for _, test := range []struct {
		args          []string
		socket, label string
	}{
		{[]string{"tmux", "new", "-S", "no"}, "", ""},
		{[]string{"tmux", "-S", "/s", "new"}, "/s", ""},
		{[]string{"tmux", "-2uS/s", "new"}, "/s", ""},
		{[]string{"tmux", "-u", "-f", "-S", "-Lname", "new"}, "", "name"},
		{[]string{"tmux", "-L", "name", "-S", "/s"}, "/s", "name"},
		{[]string{"tmux", "-S"}, "", ""},
		{[]string{"tmux", "--", "-S", "/s"}, "", ""},
		{nil, "", ""},
	} {
		if socket, label := tmuxArgs(test.args); socket != test.socket || label != test.label {
			t.Errorf("%q: %q %q", test.args, socket, label)
		}
	}
	for value, want := range map[string]int{"/tmp/tmux-0/default,123,0": 123, "/a,b/s,7,0": 7, "/s": 0, "/s,x,0": 0, "": 0} {
		if _, pid := splitTMUX(value); pid != want {
			t.Errorf("TMUX=%s: %d", value, pid)
		}
	}
	for _, test := range []struct {
		args []string
		want string
		ok   bool
	}{
		{[]string{"dtach", "-A", "/s", "-z", "claude"}, "/s", true},
		{[]string{"/usr/bin/dtach", "-n", "s", "claude"}, "s", true},
		{[]string{"dtach", "-N", "/s", "claude"}, "/s", true},
		{[]string{"dtach", "-c", "/s", "claude"}, "/s", true},
		{[]string{"dtach", "-a", "/s"}, "", false},
		{[]string{"dtach", "-A"}, "", false},
		{[]string{"bash", "-c", "/s"}, "", false},
	} {
		if got, ok := dtachSocket(test.args); got != test.want || ok != test.ok {
			t.Errorf("%q: %q %v", test.args, got, ok)
		}
	}
}
