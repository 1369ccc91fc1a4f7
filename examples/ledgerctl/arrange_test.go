//go:build linux

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/rogpeppe/go-internal/lockedfile"

	"github.com/sessionledger/ledger"
)

// standIn plays an agent of that name: it begins a conversation whose title is its last
// argument, says that it is ready, and stays. Usage: claude --session-id ID TITLE.
func standIn() {
	id, title := os.Args[2], os.Args[3]
	cwd, err := os.Getwd()
	must(err)
	folder := strings.NewReplacer("/", "-", ".", "-", "_", "-").Replace(cwd)
	dir := filepath.Join(os.Getenv("HOME"), ".claude", "projects", folder)
	must(os.MkdirAll(dir, 0o700))
	line, err := json.Marshal(map[string]any{
		"type": "user", "sessionId": id, "cwd": cwd, "timestamp": time.Now().UTC().Format(time.RFC3339),
		"message": map[string]any{"role": "user", "content": title},
	})
	must(err)
	must(os.WriteFile(filepath.Join(dir, id+".jsonl"), append(line, '\n'), 0o600))
	must(os.WriteFile("ready-"+id, []byte("ready\n"), 0o600))
	stay()
}

// stay waits to be killed, and no longer than a test may take.
func stay() { time.Sleep(5 * time.Minute) }

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// arrange brings about through the library what no command of ledgerctl does on its own,
// mostly what a coordinator leaves behind that dies. Usage: arrange WHAT [ARGUMENTS].
func arrange() {
	what, args := os.Args[1], os.Args[2:]
	do, ok := arrangements[what]
	if !ok {
		must(fmt.Errorf("nothing is called %q", what))
	}
	s, err := ledger.Open("", nil)
	must(err)
	do(s, args)
	must(s.Close())
}

var arrangements = map[string]func(s *ledger.Store, args []string){
	// detach COMMAND…: start it as nobody's child, and print its pid.
	"detach": func(_ *ledger.Store, args []string) {
		cmd := exec.Command(args[0], args[1:]...)
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		must(cmd.Start())
		fmt.Println(cmd.Process.Pid)
	},
	// dead ID [FOLDER]: a row whose process is gone.
	"dead": func(s *ledger.Store, args []string) {
		cmd := exec.Command(os.Args[0], "stay")
		must(cmd.Start())
		e := ledger.Entry{LedgerID: args[0], Runtime: "claude"}
		if len(args) > 1 {
			e.Cwd, e.RepoRoot, e.Project = args[1], args[1], filepath.Base(args[1])
		}
		_, err := s.Create(context.Background(), e, ledger.Enrol(processOf(cmd.Process.Pid), ledger.Location{}))
		must(err)
		must(cmd.Process.Kill())
		_ = cmd.Wait() // it was killed
	},
	// birth ID: a row of a session that was never started.
	"birth": func(s *ledger.Store, args []string) {
		_, err := s.Create(context.Background(), ledger.Entry{LedgerID: args[0], Runtime: "claude"}, ledger.BeginCreate(self()))
		must(err)
	},
	// kill ID [hold]: begin to kill, and no more. With hold, go on holding the lease.
	"kill": func(s *ledger.Store, args []string) {
		for _, ev := range []ledger.Event{ledger.IntendKill(), ledger.BeginKill(self())} {
			_, _, err := s.Apply(context.Background(), rowOf(s, args[0]).LedgerID, ev)
			must(err)
		}
		if len(args) > 1 {
			must(os.WriteFile(args[1], []byte("held\n"), 0o600))
			stay()
		}
	},
	// age ID: put the begin of its operation an hour back on the boot clock.
	"age": func(s *ledger.Store, args []string) {
		e := rowOf(s, args[0])
		path := filepath.Join(s.Dir(), "sessions", e.LedgerID+".json")
		data, err := os.ReadFile(path)
		must(err)
		const member = `"acquiredBootSec":`
		now := fmt.Sprint(member, e.Lease.AcquiredBootSec)
		if strings.Count(string(data), now) != 1 {
			must(fmt.Errorf("%s is not in %s", now, data))
		}
		must(os.WriteFile(path, []byte(strings.Replace(string(data), now, fmt.Sprint(member, e.Lease.AcquiredBootSec-3600), 1)), 0o600))
	},
	// tombstone ID: mean to kill, and no more.
	"tombstone": func(s *ledger.Store, args []string) {
		_, _, err := s.Apply(context.Background(), args[0], ledger.IntendKill())
		must(err)
	},
	// touch ID: write the row.
	"touch": func(s *ledger.Store, args []string) {
		_, err := s.Update(context.Background(), args[0], func(e *ledger.Entry) error {
			e.LastHeartbeatAt = e.LastHeartbeatAt.Add(time.Second)
			return nil
		})
		must(err)
	},
	// lock FILE READY: hold a lock.
	"lock": func(_ *ledger.Store, args []string) {
		f, err := lockedfile.Create(args[0])
		must(err)
		defer f.Close()
		must(os.WriteFile(args[1], []byte("held\n"), 0o600))
		stay()
	},
	// write NAME: a file in sessions/ of a name in Go's quotes, which is no row.
	"write": func(s *ledger.Store, args []string) {
		var name string
		must(json.Unmarshal([]byte(args[0]), &name))
		must(os.MkdirAll(filepath.Join(s.Dir(), "sessions"), 0o700))
		must(os.WriteFile(filepath.Join(s.Dir(), "sessions", name), []byte("{"), 0o600))
	},
	"stay": func(*ledger.Store, []string) { stay() },
}

// rowOf is the row whose id begins so.
func rowOf(s *ledger.Store, prefix string) ledger.Entry {
	e, err := s.Find(context.Background(), ledger.Query{Prefix: prefix})
	must(err)
	return e
}

func self() ledger.ProcessID {
	p, err := ledger.Self()
	must(err)
	return p
}

// processOf names a process of this machine.
func processOf(pid int) ledger.ProcessID {
	p := self()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	must(err)
	// The name, in parentheses, can hold anything; start ticks are the 20th field after it.
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	p.PID = pid
	_, err = fmt.Sscan(fields[19], &p.StartTicks)
	must(err)
	return p
}

// seesAll reports whether the doctor finds nothing wrong with this machine.
func seesAll() (bool, error) {
	dir, err := os.MkdirTemp("", "ledger")
	if err != nil {
		return false, err
	}
	defer os.RemoveAll(dir)
	s, err := ledger.Open(dir, nil)
	if err != nil {
		return false, err
	}
	defer s.Close()
	found, err := s.CheckMachine(context.Background())
	return len(found) == 0, err
}
