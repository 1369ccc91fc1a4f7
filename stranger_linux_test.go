package ledger

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sessionledger/ledger/ledgertest"
)

// lost is a session that ended in a crash, and its row as wanted: orphaned or finished.
func (b *bed) lost(runtime string, over bool) Entry {
	b.t.Helper()
	a, e := b.enrolledAgent(runtime, b.dir)
	a.Send("/crash")
	a.Wait()
	b.gone(e.Process())
	if over {
		e = finished(b.t, b.s, e.LedgerID)
	}
	return e
}

// stranger starts an agent that nothing enrols, in a conversation of its own.
func (b *bed) stranger(runtime string, args ...string) *ledgertest.Agent {
	b.t.Helper()
	cmd := ledgertest.Command(b.t, runtime, args...)
	cmd.Dir = b.dir
	a := ledgertest.Start(b.t, cmd)
	a.Session()
	return a
}

// goTo makes an agent go on with a conversation, which its command line does not tell.
func goTo(a *ledgertest.Agent, id string) {
	a.Send("/resume " + id)
	a.Expect("/resume " + id)
}

// listing is a claude's entry in its list of running sessions.
func (b *bed) listing(pid int) string {
	return filepath.Join(b.home, ".claude", "sessions", itoa(pid)+".json")
}

// relist changes one member of an entry.
func (b *bed) relist(pid int, change func(map[string]any)) {
	b.t.Helper()
	o := map[string]any{}
	if err := json.Unmarshal([]byte(readFile(b.t, b.listing(pid))), &o); err != nil {
		b.t.Fatal(err)
	}
	change(o)
	text, err := json.Marshal(o)
	if err != nil {
		b.t.Fatal(err)
	}
	putFile(b.t, b.listing(pid), string(text))
}

// A person has gone on with a session's conversation beside the ledger. Whether its row is
// open or over, it is not resumed a second time, and the refusal names the process.
func TestResumeBesideAStrangerInItsConversation(t *testing.T) {
	for _, runtime := range []string{"claude", "codex"} {
		for _, over := range []bool{false, true} {
			for how, enter := range map[string]func(b *bed, e Entry) *ledgertest.Agent{
				"by its command line": func(b *bed, e Entry) *ledgertest.Agent {
					spec, _ := b.s.runtimes.table.Lookup(runtime)
					args, err := spec.ResumeArgs(e.SessionID)
					if err != nil {
						t.Fatal(err)
					}
					return b.stranger(runtime, args...)
				},
				"by its list or open file": func(b *bed, e Entry) *ledgertest.Agent {
					a := b.stranger(runtime)
					goTo(a, e.SessionID)
					return a
				},
				// Its list may be stale, and its command line is what there is for sure.
				"by its command line, though its list names another": func(b *bed, e Entry) *ledgertest.Agent {
					spec, _ := b.s.runtimes.table.Lookup(runtime)
					args, err := spec.ResumeArgs(e.SessionID)
					if err != nil {
						t.Fatal(err)
					}
					a := b.stranger(runtime, args...)
					if runtime == "claude" {
						b.relist(a.PID(), func(o map[string]any) { o["sessionId"] = idA })
					}
					return a
				},
				"below a session in another": func(b *bed, e Entry) *ledgertest.Agent {
					above, row := b.enrolledAgent(runtime, b.dir)
					if row.SessionID == e.SessionID {
						t.Fatal("one conversation")
					}
					above.Send("/nested " + runtime)
					above.Expect("/nested")
					above.Expect(": session ")
					above.Send("/to /resume " + e.SessionID)
					above.Expect(runtime + ": /resume " + e.SessionID)
					return above
				},
			} {
				t.Run(fmt.Sprintf("%s %v %s", runtime, over, how), func(t *testing.T) {
					b := newBed(t)
					e := b.lost(runtime, over)
					if c, err := ResumeCommand(t.Context(), b.s, e); err != nil {
						t.Fatalf("before: %+v, %v", c, err)
					}
					a := enter(b, e)
					rows := len(rowsByID(t, b.s))
					refused := func(what string, err error) {
						t.Helper()
						var lacks *ResumeError
						if !errors.Is(err, ErrConversationHeld) || !errors.As(err, &lacks) || lacks.ID != e.LedgerID ||
							!strings.Contains(lacks.Lack, "in use by process ") || how != "below a session in another" && !strings.HasSuffix(lacks.Lack, " "+itoa(a.PID())) {
							t.Errorf("%s: %v", what, err)
						}
					}
					c, err := ResumeCommand(t.Context(), b.s, e)
					refused(fmt.Sprintf("the command %+v", c), err)
					if !over {
						_, err := b.h.Reopen(t.Context(), e.LedgerID, AttachOptions{})
						if refused("reopen", err); err == nil {
							t.FailNow() // it runs now, and an attach would not come back
						}
						refused("attach", b.h.Attach(t.Context(), e.LedgerID, AttachOptions{}))
					}
					if got := rowsByID(t, b.s); len(got) != rows {
						t.Errorf("rows: %v", got)
					}
					// It leaves the conversation, or ends: the session can be resumed again.
					if how != "by its list or open file" {
						a.Close()
					} else {
						a.Send("/clear")
						a.Expect("/clear")
						a.Send("work")
						a.Expect("did work")
					}
					await(t, "the conversation to be free", func() bool {
						_, err = ResumeCommand(t.Context(), b.s, e)
						return err == nil || !errors.Is(err, ErrConversationHeld) && !errors.Is(err, ErrUnknown)
					})
					if err != nil {
						t.Errorf("after: %v", err)
					}
				})
			}
		}
	}
}

// What only looks like such a stranger stands in nobody's way.
func TestResumeBesideWhatIsNoStrangerInItsConversation(t *testing.T) {
	for name, arrange := range map[string]func(b *bed, e Entry){
		"an entry in the list that a crash left": func(b *bed, e Entry) {
			if !strings.Contains(readFile(b.t, b.listing(e.PID)), e.SessionID) {
				b.t.Error("the crash left no entry")
			}
		},
		"an entry of a process that had this pid before": func(b *bed, e Entry) {
			a := b.stranger("claude")
			b.relist(a.PID(), func(o map[string]any) {
				o["sessionId"], o["procStart"] = e.SessionID, fmt.Sprint(o["procStart"])+"1"
			})
		},
		"an entry that names another process": func(b *bed, e Entry) {
			a := b.stranger("claude")
			b.relist(a.PID(), func(o map[string]any) { o["sessionId"], o["pid"] = e.SessionID, a.PID()+1 })
		},
		"a damaged entry": func(b *bed, e Entry) {
			putFile(b.t, b.listing(b.stranger("claude").PID()), `{"sessionId":"`+e.SessionID+`"`)
		},
		"a process in another conversation": func(b *bed, e Entry) {
			a := b.stranger("claude")
			a.Send("work")
			a.Expect("did work")
		},
		"a process of another runtime": func(b *bed, e Entry) {
			b.stranger("codex")
		},
		"a process that has a row, and left the conversation": func(b *bed, e Entry) {
			a := b.stranger("claude", "--resume", e.SessionID)
			a.Send("/clear")
			id := a.Expect("/clear ")
			id = id[strings.LastIndexByte(id, ' ')+1:]
			a.Send("work")
			a.Expect("did work")
			row, _, err := b.s.Enrol(b.t.Context(), a.PID(), nil)
			if err != nil {
				b.t.Fatal(err)
			}
			if row.SessionID != id {
				apply(b.t, b.s, row.LedgerID, Claim(id, fromHook))
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t)
			e := b.lost("claude", true)
			arrange(b, e)
			c, err := ResumeCommand(t.Context(), b.s, e)
			if err != nil {
				t.Fatalf("%v", err)
			}
			if got := b.resumes("claude", c); got != e.SessionID {
				t.Errorf("resumed %q, want %q", got, e.SessionID)
			}
		})
	}
	// The same of a runtime that holds its file open.
	b := newBed(t)
	e := b.lost("codex", false)
	a := b.stranger("codex")
	a.Send("work")
	a.Expect("did work")
	if _, err := ResumeCommand(t.Context(), b.s, e); err != nil {
		t.Errorf("beside another codex: %v", err)
	}
	if _, err := os.Stat(e.TranscriptPath); err != nil {
		t.Error(err)
	}
}
