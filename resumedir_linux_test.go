package ledger

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/sessionledger/ledger/internal/runtimes"
)

// The folder of a transcript has a name that several directories share: the transcript says
// which it is. Where that has moved on since, it is the one that the folder fits.
func TestResumeDirectoryOfAFolderThatFitsSeveral(t *testing.T) {
	b := newBed(t)
	dir := func(path string) string {
		path = filepath.Join(b.home, "w", path)
		if err := os.MkdirAll(path, 0o700); err != nil {
			t.Fatal(err)
		}
		return path
	}
	slash, dash, other := dir("a/b-c"), dir("a-b/c"), dir("elsewhere")
	folder := runtimes.EncodeClaudeProject(slash)
	if !runtimes.FiledUnder(folder, dash) || runtimes.FiledUnder(folder, other) {
		t.Fatalf("the folder %s does not fit both", folder)
	}
	for i, tt := range []struct{ name, says, recorded, want string }{
		{"both agree", slash, slash, slash},
		{"the row names the other", slash, dash, slash},
		{"the same the other way round", dash, slash, dash},
		{"the transcript moved on", other, slash, slash},
		{"the transcript moved on from the other", other, dash, dash},
		{"the row names what the folder does not fit", slash, other, slash},
		{"the folder fits neither", other, filepath.Join(b.home, "gone"), other},
		{"the transcript says nothing", "", dash, dash},
	} {
		t.Run(tt.name, func(t *testing.T) {
			id := fmt.Sprintf("aaaaaaaa-0000-4000-8000-%012d", i)
			path := filepath.Join(b.home, ".claude", "projects", folder, id+".jsonl")
			said := fmt.Sprintf(`{"type":"user","sessionId":%q,"cwd":%q,"message":{"content":"x"}}`, id, tt.says)
			if tt.says == "" {
				said = fmt.Sprintf(`{"type":"user","sessionId":%q,"message":{"content":"x"}}`, id)
			}
			putFile(t, path, said+"\n")
			e, cmd := enrolled(t, b.s, Entry{Runtime: "claude", Cwd: tt.recorded, SessionID: id, TranscriptPath: path})
			endProcess(cmd)
			c, err := ResumeCommand(t.Context(), b.s, e)
			if err != nil || c.Dir != tt.want {
				t.Errorf("%q, %v, want %q", c.Dir, err, tt.want)
			}
		})
	}
}
