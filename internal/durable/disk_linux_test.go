package durable

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

func needMount(t *testing.T) {
	t.Helper()
	need(t, os.Getuid() == 0, "root")
	path := t.TempDir()
	err := unix.Mount("durable-test", path, "tmpfs", unix.MS_RDONLY, "size=4k")
	need(t, err == nil, "leave to mount")
	if err := unix.Unmount(path, 0); err != nil {
		t.Fatal(err)
	}
}

// smallDisk mounts a tmpfs of the size in KiB.
func smallDisk(t *testing.T, size int) *Dir {
	t.Helper()
	path := t.TempDir()
	if err := unix.Mount("durable-test", path, "tmpfs", 0, fmt.Sprintf("size=%dk,mode=700", size)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(path, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return open(t, path)
}

func TestFullDisk(t *testing.T) {
	needMount(t)
	d := smallDisk(t, 64)
	for _, name := range []string{"row", "other"} {
		if err := d.Create("t", name, []byte(oldRow), true); err != nil {
			t.Fatal(err)
		}
	}
	filler := filepath.Join(d.Path(), "filler")
	if err := os.WriteFile(filler, make([]byte, 1<<20), 0o600); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("filling the disk: %v", err)
	}
	big := []byte(strings.Repeat("big", 8000)) // more than a page: the write may come up short first
	for step, err := range map[string]error{
		"replace": d.Replace("t", "row", big, true),
		"create":  d.Create("t", "new", big, true),
		"relaxed": d.Replace("t", "row", big, false),
	} {
		if !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("%s on a full disk: %v, want ENOSPC", step, err)
		}
	}
	want(t, d, "row", oldRow)
	want(t, d, "other", oldRow)
	wantFiles(t, d, "filler", "other", "row")
	if err := d.Remove("filler"); err != nil {
		t.Fatal(err)
	}
	if err := d.Replace("t", "row", big, true); err != nil {
		t.Fatalf("after room was made: %v", err)
	}
	want(t, d, "row", string(big))
}

func TestReadOnlyDisk(t *testing.T) {
	needMount(t)
	d := smallDisk(t, 64)
	if err := d.Create("t", "row", []byte(oldRow), true); err != nil {
		t.Fatal(err)
	}
	staged, err := d.Stage("t", "row", []byte(newRow), true)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("", d.Path(), "", unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	for step, err := range map[string]error{
		"replace": d.Replace("t", "row", []byte(newRow), true),
		"create":  d.Create("t", "new", []byte(newRow), true),
		"publish": staged.Replace(),
		"remove":  d.Remove("row"),
		"mkdir":   MkdirAll(filepath.Join(d.Path(), "a"), 0o700),
	} {
		var pe *fs.PathError
		if !errors.Is(err, syscall.EROFS) || !errors.As(err, &pe) {
			t.Errorf("%s on a read-only disk: %v, want EROFS", step, err)
		}
	}
	want(t, d, "row", oldRow)
}

func TestRenameAcrossFileSystems(t *testing.T) {
	needMount(t)
	from, to := smallDisk(t, 64), smallDisk(t, 64)
	if err := from.Create("t", "row", []byte(oldRow), true); err != nil {
		t.Fatal(err)
	}
	if err := from.Rename("row", to); !errors.Is(err, syscall.EXDEV) {
		t.Fatalf("rename: %v, want EXDEV", err)
	}
	want(t, from, "row", oldRow)
}

// disk is a file system in an image file.
type disk struct {
	image, path, options string
	mounted              bool
}

func run(t *testing.T, name string, args ...string) {
	t.Helper()
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
}

func newDisk(t *testing.T, kind string) *disk {
	t.Helper()
	k := &disk{image: filepath.Join(t.TempDir(), "image"), path: t.TempDir(), options: "loop"}
	size, args := int64(16<<20), []string{"-q"}
	switch kind {
	case "ext4":
		args = append(args, "-F")
		k.options += ",commit=900" // nothing is written unasked while the test runs
	case "xfs":
		size = 320 << 20
	case "btrfs":
		size = 128 << 20
		k.options += ",commit=300"
	default:
		t.Fatalf("%s: unknown size", kind)
	}
	mkfs := "mkfs." + kind
	_, err := exec.LookPath(mkfs)
	if b, _ := os.ReadFile("/proc/filesystems"); kind != "ext4" && (err != nil || !strings.Contains(string(b), "\t"+kind+"\n")) {
		t.Skipf("no %s on this machine", kind)
	}
	need(t, err == nil, mkfs)
	f, err := os.Create(k.image)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Truncate(size); err != nil {
		t.Fatal(err)
	}
	run(t, mkfs, append(args, k.image)...)
	k.mount(t)
	return k
}

func (k *disk) mount(t *testing.T) {
	t.Helper()
	run(t, "mount", "-o", k.options, k.image, k.path)
	k.mounted = true
	t.Cleanup(func() { k.unmount(t) })
}

func (k *disk) unmount(t *testing.T) {
	t.Helper()
	if k.mounted {
		k.mounted = false
		run(t, "umount", k.path)
	}
}

// cut is the disk as a loss of power now would leave it: what the file system has
// not written to the image is not there. It is mounted by hand, once the original
// is not, since some file systems refuse a second one of the same identity.
func (k *disk) cut(t *testing.T) *disk {
	t.Helper()
	c := &disk{image: filepath.Join(t.TempDir(), "image"), path: t.TempDir(), options: k.options}
	run(t, "cp", "--sparse=always", k.image, c.image)
	return c
}

// What was synced is there after a power cut, and what was not is whole or absent.
// xfs and btrfs show what ext4 forgives; they are tried where the machine has them.
func TestPowerCut(t *testing.T) {
	needMount(t)
	for _, kind := range []string{"ext4", "xfs", "btrfs"} {
		t.Run(kind, func(t *testing.T) { testPowerCut(t, kind) })
	}
}

func testPowerCut(t *testing.T, kind string) {
	k := newDisk(t, kind)
	sessions := filepath.Join(k.path, "ledger", "sessions")
	finished := filepath.Join(sessions, "finished")
	var d, to *Dir
	stage := func(name, content string) *Staged {
		s, err := d.Stage("t", name, []byte(content), true)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	const missing = "\x00"
	steps := []struct {
		name string
		do   func() error
		want map[string]string // by path below sessions, after the power cut
	}{
		{"folder made", func() error {
			return MkdirAll(sessions, 0o700)
		}, map[string]string{"row": missing}},
		{"file created", func() (err error) {
			if d, err = OpenDir(sessions); err != nil {
				return err
			}
			return d.Create("t", "row", []byte(oldRow), true)
		}, map[string]string{"row": oldRow}},
		{"file replaced", func() error {
			return d.Replace("t", "row", []byte(newRow), true)
		}, map[string]string{"row": newRow}},
		{"batch under one sync", func() error {
			batch := []*Staged{stage("b0", "0"), stage("b1", "1"), stage("b2", "2"), stage("row", oldRow)}
			for _, s := range batch {
				if err := s.Replace(); err != nil {
					return err
				}
			}
			return d.Sync(batch...)
		}, map[string]string{"b0": "0", "b1": "1", "b2": "2", "row": oldRow}},
		{"file moved", func() (err error) {
			if err := MkdirAll(finished, 0o700); err != nil {
				return err
			}
			if to, err = OpenDir(finished); err != nil {
				return err
			}
			return errors.Join(d.Rename("b0", to), to.Sync(), d.Sync())
		}, map[string]string{"b0": missing, "finished/b0": "0", "b1": "1"}},
		{"file removed", func() error {
			return errors.Join(d.Remove("b1"), d.Sync())
		}, map[string]string{"b1": missing, "b2": "2"}},
		{"relaxed write before another's sync", func() error {
			return errors.Join(d.ReplaceRelaxed("t", "b2", []byte("3")), d.Replace("t", "row", []byte(oldRow), true))
		}, map[string]string{"b2": "3", "row": oldRow}},
		// The controls: a power cut in this test does lose what is not synced.
		{"control: created without the folder's sync", func() error {
			return stage("lost", "x").Create()
		}, map[string]string{"lost": missing, "row": oldRow}},
		{"control: replaced without the folder's sync", func() error {
			return stage("row", newRow).Replace()
		}, map[string]string{"row": oldRow}},
	}
	cuts := make([]*disk, len(steps))
	for i, step := range steps {
		if err := step.do(); err != nil {
			t.Fatalf("%s: %v", step.name, err)
		}
		cuts[i] = k.cut(t)
	}
	for _, dir := range []*Dir{d, to} {
		if err := dir.Close(); err != nil {
			t.Fatal(err)
		}
	}
	k.unmount(t)
	for i, step := range steps {
		cut := cuts[i]
		cut.mount(t)
		root := filepath.Join(cut.path, "ledger", "sessions")
		if fi, err := os.Stat(root); err != nil || fi.Mode().Perm() != 0o700 {
			t.Errorf("%s: folder: %v, %v", step.name, fi, err)
		}
		for name, content := range step.want {
			b, err := os.ReadFile(filepath.Join(root, name))
			switch {
			case content == missing && errors.Is(err, fs.ErrNotExist):
			case err != nil || string(b) != content:
				t.Errorf("%s: %s holds %.20q, %v, want %.20q", step.name, name, b, err, content)
			}
		}
		cut.unmount(t)
	}
}
