//go:build !linux

package procscan

import (
	"context"
	"errors"
	"os"
	"syscall"
	"time"
)

// Nothing is known about processes here. Unsupported is not gone: each method returns
// errors.ErrUnsupported and a snapshot is never complete.

func (s *System) readBootID() (string, error)       { return "", errors.ErrUnsupported }
func (s *System) readBootTime() (time.Time, error)  { return time.Time{}, errors.ErrUnsupported }
func clockTicks() int64                             { return 100 }
func (s *System) environ(Proc) (Env, error)         { return Env{}, errors.ErrUnsupported }
func (s *System) cgroup(Proc) (string, error)       { return "", errors.ErrUnsupported }
func (s *System) link(Proc, string) (string, error) { return "", errors.ErrUnsupported }
func (s *System) uid(Proc) (uint32, error)          { return 0, errors.ErrUnsupported }
func (s *System) openFiles(Proc) ([]string, error)  { return nil, errors.ErrUnsupported }

// ReadFile is os.ReadFile.
func ReadFile(path string) ([]byte, error) { return os.ReadFile(path) }

// BootSeconds is not supported.
func (s *System) BootSeconds() (int64, error) { return 0, errors.ErrUnsupported }

// Started is not supported.
func (s *System) Started(startTicks uint64) (time.Time, error) {
	return time.Time{}, errors.ErrUnsupported
}

// PIDNamespace is not supported.
func (s *System) PIDNamespace(pid int) (uint64, error) { return 0, errors.ErrUnsupported }

// TimeNamespace is not supported.
func (s *System) TimeNamespace(pid int) (uint64, error) { return 0, errors.ErrUnsupported }

// SelfPID is not supported.
func (s *System) SelfPID() (int, error) { return 0, errors.ErrUnsupported }

// HidesProcesses does not know.
func (s *System) HidesProcesses() (hidden, known bool) { return false, false }

// HostUserNamespace is not supported.
func (s *System) HostUserNamespace() (host bool, err error) { return false, errors.ErrUnsupported }

// Stat is not supported.
func (s *System) Stat(pid int) (Proc, error) { return Proc{}, errors.ErrUnsupported }

// Snapshot is not supported. The snapshot beside the error is empty and not complete.
func (s *System) Snapshot(ctx context.Context) (*Snapshot, error) {
	return &Snapshot{sys: s, problem: errors.ErrUnsupported.Error()}, errors.ErrUnsupported
}

// SnapshotEnviron is not supported, as Snapshot.
func (s *System) SnapshotEnviron(ctx context.Context) (*Snapshot, error) { return s.Snapshot(ctx) }

// Signal is not supported.
func (s *System) Signal(pid int, start uint64, sig syscall.Signal) error {
	return errors.ErrUnsupported
}

// Exit tells when one process exits. It is not supported.
type Exit struct{}

// OpenExit is not supported.
func (s *System) OpenExit(pid int, start uint64) (*Exit, error) {
	return nil, errors.ErrUnsupported
}

// Wait is not supported.
func (e *Exit) Wait(ctx context.Context) error { return errors.ErrUnsupported }

// FD returns -1.
func (e *Exit) FD() int { return -1 }

// Close does nothing.
func (e *Exit) Close() error { return nil }
