package durable

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func needStrace(t *testing.T) {
	t.Helper()
	_, err := exec.LookPath("strace")
	need(t, err == nil, "strace")
	need(t, exec.Command("strace", "-qq", "-o", os.DevNull, "true").Run() == nil, "leave to trace")
}

// A folder with the old row, or without a row where old is "".
func rowDir(t *testing.T, old string) *Dir {
	t.Helper()
	d := open(t, t.TempDir())
	if old != "" {
		if err := d.Create("t", "row", []byte(old), true); err != nil {
			t.Fatal(err)
		}
	}
	return d
}

// rowOf is the row's content, "" where there is none.
func rowOf(t *testing.T, d *Dir) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(d.Path(), "row"))
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return string(b)
}

func clearTemps(t *testing.T, d *Dir, tag string) (n int) {
	t.Helper()
	temps, err := d.Temps()
	if err != nil {
		t.Fatal(err)
	}
	for _, temp := range temps {
		if temp.Tag != tag {
			t.Errorf("left file %+v, want the tag %s", temp, tag)
		}
		if err := d.Remove(temp.Name); err != nil {
			t.Error(err)
		}
	}
	return len(temps)
}

// narrow makes each new file need its mode set.
var narrow = []string{"DURABLE_TEST_UMASK=777"}

// Whatever system call the writer dies in, the row is the old or the new one, the
// left file carries its writer's tag, and the next writer works.
func TestKillAtEverySystemCall(t *testing.T) {
	needStrace(t)
	for _, tt := range []struct {
		step   string
		old    string
		inject []string // beside the kill
		calls  string
	}{
		{"replace", oldRow, nil, "openat fstat fchmod write fsync close renameat exit_group"},
		{"create", "", nil, "openat fchmod write fsync close renameat2 exit_group"},
		{"create", "", []string{"renameat2:error=EINVAL"}, "openat fsync linkat unlinkat exit_group"},
	} {
		name := tt.step
		if tt.inject != nil {
			name += " by link"
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			seen := map[string]int{}
			for call := range strings.FieldsSeq(tt.calls) {
				kills := 0
				for n := 1; ; n++ {
					d := rowDir(t, tt.old)
					kill := fmt.Sprintf("%s:signal=SIGKILL:when=%d", call, n)
					o := child(t, tt.step, d.Path(), narrow, append([]string{kill}, tt.inject...)...)
					row := rowOf(t, d)
					if row != tt.old && row != newRow {
						t.Fatalf("killed at %s %d: the row is neither old nor new: %.40q", call, n, row)
					}
					if !o.killed {
						if row != newRow || len(o.reports) != 1 || o.reports[0].Err != "" {
							t.Fatalf("not killed at %s %d, yet the step failed: %+v", call, n, o.reports)
						}
						break
					}
					kills++
					left := "clean"
					if clearTemps(t, d, "child") > 0 {
						left = "left"
					}
					which := "old"
					if row == newRow {
						which = "new"
					}
					seen[which+" "+left]++
					if err := d.Replace("t", "row", []byte("next"), true); err != nil {
						t.Fatalf("next writer: %v", err)
					}
					wantFiles(t, d, "row")
				}
				if kills == 0 {
					t.Errorf("%s is never called", call)
				}
			}
			t.Logf("outcomes: %v", seen)
			// Else the search has missed the steps that matter.
			for _, which := range []string{"old clean", "old left", "new clean"} {
				if seen[which] == 0 {
					t.Errorf("outcome %q never met", which)
				}
			}
		})
	}
}

func TestInjectedErrors(t *testing.T) {
	needStrace(t)
	type expect int
	const (
		never     expect = iota // the call comes this often before the step only
		oldIntact               // typed error, old row, no temp
		unsynced                // SyncError, new row, no temp
		fine                    // new row, no error
	)
	for _, tt := range []struct {
		step, call string
		errnos     string
		outcomes   []expect // that the enumeration must meet
	}{
		{"replace", "openat", "EMFILE ENFILE ENOSPC EDQUOT EIO EROFS EACCES", []expect{oldIntact}},
		{"replace", "fstat,fchmod", "EIO EROFS", []expect{oldIntact}},
		{"replace", "write", "ENOSPC EDQUOT EIO EFBIG", []expect{oldIntact}},
		{"replace", "fsync", "ENOSPC EDQUOT EIO EROFS", []expect{oldIntact, unsynced}},
		{"replace", "renameat", "ENOSPC EDQUOT EIO EROFS", []expect{oldIntact}},
		{"create", "renameat2", "ENOSPC EDQUOT EIO EROFS EEXIST", []expect{oldIntact}},
		{"create", "renameat2", "EINVAL ENOSYS", []expect{fine}}, // link instead
		{"create", "fsync", "EIO", []expect{oldIntact, unsynced}},
		{"replace", "openat,fstat,fchmod,write,fsync,renameat", "EINTR", []expect{fine}},
		{"create", "renameat2", "EINTR", []expect{fine}},
		{"replace", "close", "EINTR", []expect{fine}},
		{"replace", "close", "EIO EDQUOT", []expect{oldIntact}},
	} {
		for errno := range strings.FieldsSeq(tt.errnos) {
			t.Run(fmt.Sprintf("%s/%s/%s", tt.step, tt.call, errno), func(t *testing.T) {
				t.Parallel()
				old := oldRow
				if tt.step == "create" {
					old = ""
				}
				met := map[expect]bool{}
				for n := 1; ; n++ {
					d := rowDir(t, old)
					o := child(t, tt.step, d.Path(), narrow, fmt.Sprintf("%s:error=%s:when=%d", tt.call, errno, n))
					if !o.injected {
						break
					}
					if len(o.reports) == 0 {
						continue
					}
					r, row := o.reports[0], rowOf(t, d)
					temps, err := d.Temps()
					if err != nil || len(temps) > 0 {
						t.Errorf("call %d: temps left: %v, %v", n, temps, err)
					}
					switch {
					case r.Err == "" && row == newRow:
						met[fine] = true
					case !r.Synced && row == newRow && r.Path == d.Path() && r.Errno.Error() == errnoOf(t, errno).Error():
						met[unsynced] = true
					case r.Err != "" && r.Synced && row == old && r.Errno == errnoOf(t, errno) && strings.Contains(r.Err, filepath.Join(d.Path(), "row")):
						met[oldIntact] = true
					default:
						t.Errorf("call %d: %+v, and the row is %.20q", n, r, row)
					}
				}
				for _, e := range tt.outcomes {
					if !met[e] {
						t.Errorf("outcome %d not met: %v", e, met)
					}
				}
				if tt.outcomes[0] == fine && len(met) > 1 {
					t.Errorf("failed: %v", met)
				}
			})
		}
	}
}

func errnoOf(t *testing.T, name string) syscall.Errno {
	t.Helper()
	errno, ok := map[string]syscall.Errno{
		"EMFILE": syscall.EMFILE, "ENFILE": syscall.ENFILE, "ENOSPC": syscall.ENOSPC, "EDQUOT": syscall.EDQUOT,
		"EIO": syscall.EIO, "EROFS": syscall.EROFS, "EACCES": syscall.EACCES, "EFBIG": syscall.EFBIG,
		"EEXIST": syscall.EEXIST, "EINVAL": syscall.EINVAL, "ENOSYS": syscall.ENOSYS, "EINTR": syscall.EINTR,
	}[name]
	if !ok {
		t.Fatalf("unknown errno %s", name)
	}
	return errno
}

// The kernel reports a failed writeback of the folder to one call of a shared
// descriptor; the others that it concerns must learn of it too.
func TestFailedFolderSyncIsSeenByAllItConcerns(t *testing.T) {
	needStrace(t)
	d := rowDir(t, "")
	o := child(t, "shared-failure", d.Path(), nil, "fsync:error=EIO:when=1")
	if len(o.reports) != 4 {
		t.Fatalf("reports: %+v", o.reports)
	}
	for i, r := range o.reports[:2] {
		if r.Synced || r.Errno != syscall.EIO {
			t.Errorf("sync %d: %+v, want a SyncError with EIO", i, r)
		}
	}
	for i, r := range o.reports[2:] {
		if r.Err != "" {
			t.Errorf("later sync %d: %+v, want success", i, r)
		}
	}
}

func TestRenameByLinkWhereTheFlagIsUnknown(t *testing.T) {
	needStrace(t)
	for _, target := range []string{"", "taken"} {
		d := rowDir(t, oldRow)
		if err := MkdirAll(filepath.Join(d.Path(), "finished"), 0o700); err != nil {
			t.Fatal(err)
		}
		to := open(t, filepath.Join(d.Path(), "finished"))
		if target != "" {
			if err := to.Create("t", "row", []byte(target), false); err != nil {
				t.Fatal(err)
			}
		}
		o := child(t, "rename", d.Path(), nil, "renameat2:error=ENOSYS")
		if !o.injected || len(o.reports) != 1 {
			t.Fatalf("outcome %+v", o)
		}
		if target == "" {
			want(t, to, "row", oldRow)
			wantFiles(t, d, "finished")
		} else {
			if o.reports[0].Errno != syscall.EEXIST {
				t.Errorf("rename over a file: %+v, want EEXIST", o.reports[0])
			}
			want(t, to, "row", target)
			want(t, d, "row", oldRow)
		}
	}
}

func TestNewFolderWhoseParentCannotBeSynced(t *testing.T) {
	needStrace(t)
	base := t.TempDir()
	o := child(t, "mkdir", base, nil, "fsync:error=EIO:when=1")
	if len(o.reports) != 1 || o.reports[0].Synced || o.reports[0].Path != base {
		t.Fatalf("reports %+v, want a SyncError of %s", o.reports, base)
	}
	// The same for the inner one.
	o = child(t, "mkdir", base, nil, "fsync:error=EIO:when=1")
	if parent := filepath.Join(base, "a"); len(o.reports) != 1 || o.reports[0].Synced || o.reports[0].Path != parent {
		t.Fatalf("reports %+v, want a SyncError of %s", o.reports, parent)
	}
}

func TestModesWhateverTheUmask(t *testing.T) {
	for _, mask := range []string{"000", "022", "077", "777"} {
		t.Run(mask, func(t *testing.T) {
			if mask == "777" && os.Getuid() != 0 {
				t.Skip("a folder made under umask 777 can be left only by root")
			}
			d := rowDir(t, "")
			env := []string{"DURABLE_TEST_UMASK=" + mask}
			for _, step := range []string{"create", "replace", "mkdir"} {
				if o := child(t, step, d.Path(), env); o.reports[0].Err != "" {
					t.Fatalf("%s: %+v", step, o.reports[0])
				}
				if step == "mkdir" {
					continue
				}
				fi, err := os.Stat(filepath.Join(d.Path(), "row"))
				if err != nil || fi.Mode() != 0o600 {
					t.Fatalf("mode after %s: %v, %v, want 0600", step, fi.Mode(), err)
				}
			}
			for _, sub := range []string{"a", "a/b"} {
				fi, err := os.Stat(filepath.Join(d.Path(), sub))
				if err != nil || fi.Mode().Perm() != 0o750 {
					t.Fatalf("mode of folder %s: %v, %v, want 0750", sub, fi.Mode(), err)
				}
			}
		})
	}
}

func TestNoDescriptorLeft(t *testing.T) {
	d := rowDir(t, oldRow)
	o := child(t, "fds", d.Path(), nil)
	if len(o.reports) != 3 {
		t.Fatalf("reports %+v", o.reports)
	}
	for i, r := range o.reports[:2] {
		if r.Errno != syscall.EMFILE || !r.Synced {
			t.Errorf("step %d: %+v, want EMFILE", i, r)
		}
	}
	if o.reports[2].Err != "" {
		t.Errorf("once there are descriptors: %+v", o.reports[2])
	}
	want(t, d, "row", newRow)
	wantFiles(t, d, "row")
}
