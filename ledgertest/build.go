package ledgertest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"
)

// agentPackage is the stand-in's import path.
const agentPackage = "github.com/sessionledger/ledger/ledgertest/agent"

// buildTime bounds the build, which is slow where nothing is cached yet.
const buildTime = 5 * time.Minute

// Runtimes are the names under which the stand-in knows how to behave.
func Runtimes() []string {
	return []string{"claude", "codex", "gemini", "qwen", "opencode", "amp", "cursor-agent", "aider", "copilot"}
}

// The environment and directory in which the test began. A test's own do not
// serve the go command: its caches lie below HOME.
var (
	firstEnv    = os.Environ()
	firstDir, _ = os.Getwd()
)

// builds is the stand-in of this process.
var builds struct {
	sync.Mutex
	dir   string // "" while there is none
	users int    // tests that asked for it and have not ended; Main is one
}

// Main runs the tests of a package and keeps what they share until the last has
// ended: for TestMain, as os.Exit(ledgertest.Main(m)). Without it the stand-in
// is built anew for each test that asks for it while no other does.
func Main(m *testing.M) int {
	hold()
	defer release()
	return m.Run()
}

func hold() {
	builds.Lock()
	defer builds.Unlock()
	builds.users++
}

func release() {
	builds.Lock()
	defer builds.Unlock()
	if builds.users--; builds.users > 0 || builds.dir == "" {
		return
	}
	_ = os.RemoveAll(builds.dir) // a folder in the system's temporary one
	builds.dir = ""
}

// BuildAgent builds the stand-in and returns a folder in which it has the name
// of every CLI in [Runtimes], and of "agent" itself: a folder for the front of
// PATH. All tests of the process share it.
func BuildAgent(t testing.TB) string {
	t.Helper()
	hold()
	t.Cleanup(release)
	builds.Lock()
	defer builds.Unlock()
	if builds.dir == "" {
		dir, err := build()
		if err != nil {
			t.Fatalf("ledgertest: build the stand-in: %v", err)
		}
		builds.dir = dir
	}
	return builds.dir
}

// build makes the folder.
func build() (dir string, err error) {
	dir, err = os.MkdirTemp("", "ledgertest-")
	if err != nil {
		return "", err
	}
	defer func() {
		if err != nil {
			_ = os.RemoveAll(dir)
		}
	}()
	// Processes are recognised by the real path too.
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		return dir, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), buildTime)
	defer cancel()
	binary := filepath.Join(dir, "stand-in"+exe())
	cmd := exec.CommandContext(ctx, "go", "build", "-o", binary, agentPackage)
	cmd.Dir = firstDir
	cmd.Env = append(slices.Clone(firstEnv), "CGO_ENABLED=0", "GOOS="+runtime.GOOS, "GOARCH="+runtime.GOARCH)
	cmd.WaitDelay = time.Second
	if out, err := cmd.CombinedOutput(); err != nil {
		return dir, fmt.Errorf("%v: %w\n%s", cmd, err, out)
	}
	for _, name := range append(Runtimes(), "agent") {
		// A hard link: argv[0] names the CLI, and /proc/<pid>/exe does too, as it
		// does with a CLI that is one binary.
		if err := os.Link(binary, filepath.Join(dir, name+exe())); err != nil {
			return dir, err
		}
	}
	return dir, nil
}

func exe() string {
	if runtime.GOOS == "windows" {
		return ".exe"
	}
	return ""
}
