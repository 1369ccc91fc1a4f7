package ledger

import "testing"

// Every row of the table of identity, by what one look at one pid showed.
func TestJudgeIsTheTableOfIdentity(t *testing.T) {
	here := ProcessID{HostID: "host", BootID: "boot", PIDNamespace: 1, TimeNamespace: 2}
	recorded := tweak(here, func(p *ProcessID) { p.PID, p.StartTicks = 10, 4200 })
	with := func(change func(*ProcessID)) ProcessID { return tweak(recorded, change) }
	there := Sighting{Here: here, Found: true, Readable: true, StartTicks: 4200}
	seen := func(change func(*Sighting)) Sighting { return tweak(there, change) }
	absent := Sighting{Here: here, Read: true}
	var unknownTicks Entry // a row of another implementation
	unknownTicks.BootID, unknownTicks.PID = "boot", 10

	for _, tt := range []struct {
		name string
		id   ProcessID
		seen Sighting
		want Verdict
	}{
		{"the same", recorded, there, Running},
		{"the same, and nobody said that the table is whole", recorded, seen(func(s *Sighting) { s.Read = false }), Running},
		{"nobody", ProcessID{}, absent, Unknown},
		{"null ticks, and the pid is there", unknownTicks.Process(), there, Unknown},
		{"null ticks, and it is not", unknownTicks.Process(), absent, Unknown},

		// Whose table it is comes before what it shows.
		{"another host", with(func(p *ProcessID) { p.HostID = "elsewhere" }), there, Unknown},
		{"another host, and the pid is not here", with(func(p *ProcessID) { p.HostID = "elsewhere" }), absent, Unknown},
		{"another host in another boot", with(func(p *ProcessID) { p.HostID, p.BootID = "elsewhere", "before" }), absent, Unknown},
		{"this host is not known", recorded, seen(func(s *Sighting) { s.Here.HostID = "" }), Unknown},
		{"no host recorded", with(func(p *ProcessID) { p.HostID = "" }), there, Running},
		{"another boot", with(func(p *ProcessID) { p.BootID = "before" }), there, Gone},
		{"another boot in another namespace", with(func(p *ProcessID) { p.BootID, p.PIDNamespace = "before", 9 }), there, Gone},
		{"another boot, and no look", with(func(p *ProcessID) { p.BootID = "before" }), Sighting{Here: here}, Gone},
		{"no boot recorded", with(func(p *ProcessID) { p.BootID = "" }), there, Unknown},
		{"no boot recorded, and the pid is not here", with(func(p *ProcessID) { p.BootID = "" }), absent, Unknown},
		{"this boot is not known", recorded, seen(func(s *Sighting) { s.Here.BootID = "" }), Unknown},
		{"this boot is not known, and the pid is not here", recorded, tweak(absent, func(s *Sighting) { s.Here.BootID = "" }), Unknown},
		{"another pid namespace", with(func(p *ProcessID) { p.PIDNamespace = 9 }), there, Unknown},
		{"another pid namespace, and the pid is not here", with(func(p *ProcessID) { p.PIDNamespace = 9 }), absent, Unknown},
		{"no pid namespace recorded", with(func(p *ProcessID) { p.PIDNamespace = 0 }), there, Running},
		{"another time namespace", with(func(p *ProcessID) { p.TimeNamespace = 9 }), there, Unknown},
		{"another time namespace, and other ticks", with(func(p *ProcessID) { p.TimeNamespace = 9 }), seen(func(s *Sighting) { s.StartTicks = 4300 }), Unknown},
		{"another time namespace, and the pid is not here", with(func(p *ProcessID) { p.TimeNamespace = 9 }), absent, Unknown},
		{"no time namespace recorded", with(func(p *ProcessID) { p.TimeNamespace = 0 }), there, Running},

		{"no such pid", recorded, absent, Gone},
		{"other ticks", recorded, seen(func(s *Sighting) { s.StartTicks = 4201 }), Gone},
		{"other ticks, dead", recorded, seen(func(s *Sighting) { s.StartTicks, s.Dead = 4201, true }), Gone},
		{"ticks of zero recorded", with(func(p *ProcessID) { p.StartTicks = 0 }), there, Gone},
		{"dead", recorded, seen(func(s *Sighting) { s.Dead = true }), Gone},

		{"not looked at", recorded, Sighting{Here: here}, Unknown},
		{"there, and not readable", recorded, Sighting{Here: here, Found: true}, Unknown},
		{"there in a table that was read, and not readable", recorded, Sighting{Here: here, Found: true, Read: true}, Unknown},
		{"not readable, whatever stands in its place", recorded, seen(func(s *Sighting) { s.Readable, s.Dead = false, true }), Unknown},
	} {
		if got := Judge(tt.id, tt.seen); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}
}
