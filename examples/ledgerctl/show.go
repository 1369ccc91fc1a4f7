package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"slices"

	"github.com/sessionledger/ledger"
)

func show(ctx context.Context, a *app, flags *flag.FlagSet) func([]string) error {
	return func(args []string) error {
		s, err := a.open()
		if err != nil {
			return err
		}
		defer s.Close()
		done := a.busy("looking at the session")
		defer done()
		e, err := a.one(ctx, s, args)
		if err != nil {
			return err
		}
		sess, err := s.Session(ctx, e.LedgerID, &ledger.ClassifyOptions{Dirty: true})
		if err != nil {
			return err
		}
		resume, resumeErr := ledger.ResumeCommand(ctx, s, sess.Entry)
		done()
		if a.json {
			return a.line(struct {
				ledger.Session
				Resume  any                  `json:"resume"`
				Actions []ledger.ActionState `json:"actions"`
			}{sess, resumeObject(resume, resumeErr), sess.Actions()})
		}
		return a.describe(sess, resume, resumeErr)
	}
}

// resumeObject is the resume plan, or why there is none.
func resumeObject(c ledger.Command, err error) any {
	if err != nil {
		return map[string]string{"error": err.Error()}
	}
	return c
}

// resumeLine is the resume plan as a command for a shell, or why there is none.
func resumeLine(c ledger.Command, err error) string {
	var lacks *ledger.ResumeError
	switch {
	case errors.As(err, &lacks):
		return "not now: " + plain(lacks.Lack)
	case err != nil:
		return "not now: " + plain(err.Error())
	}
	var env []string
	for _, name := range c.Unset {
		env = append(env, "-u", name)
	}
	for _, name := range slices.Sorted(maps.Keys(c.Env)) {
		env = append(env, name+"="+c.Env[name])
	}
	if len(env) > 0 {
		env = append([]string{"env"}, env...)
	}
	return "cd " + quote(c.Dir) + " && " + quote(append(env, c.Argv...)...)
}

// describe prints one session for a person: what it does, what can be done, and then
// every member of the row that is known. Nothing is cut.
func (a *app) describe(sess ledger.Session, resume ledger.Command, resumeErr error) error {
	e, st := sess.Entry, sess.Status
	rows := [][]cell{
		{{"state", "1"}, stateCell(st.State)},
		{{"why", "1"}, {plain(st.Reason), ""}},
		{{"seen", "1"}, {plain(st.Evidence), ""}},
	}
	if text := what(sess); text != plain(st.Reason) {
		rows = append(rows, []cell{{"what", "1"}, {text, ""}})
	}
	if at := lastSign(sess); !at.IsZero() {
		rows = append(rows, []cell{{"active", "1"}, {since(at) + " ago", ""}})
	}
	if n := st.DirtyCount; n != nil {
		rows = append(rows, []cell{{"dirty", "1"}, {count(*n, "uncommitted file"), ""}})
	}
	if e.RescueRef != "" {
		rows = append(rows, []cell{{"rescued", "1"}, {cherryPick(e.RepoRoot, e.RescueRef), ""}})
	}
	rows = append(rows, []cell{{"resume by", "1"}, {resumeLine(resume, resumeErr), ""}})
	for _, act := range sess.Actions() {
		if act.Open {
			text := "possible"
			if act.Reason != "" {
				text += ": " + plain(act.Reason)
			}
			rows = append(rows, []cell{{act.Action, "1"}, {text, "32"}})
		} else {
			rows = append(rows, []cell{{act.Action, "1"}, {"not now: " + plain(act.Reason), "90"}})
		}
	}
	a.tableOf(a.stdout, 0, []string{"SESSION", plain(e.LedgerID)}, rows)
	members, err := knownMembers(e)
	if err != nil {
		return err
	}
	fmt.Fprintln(a.stdout)
	a.tableOf(a.stdout, 0, []string{"RECORD", ""}, members)
	return nil
}

// knownMembers lists the members of the row as they are stored, without the nulls.
func knownMembers(e ledger.Entry) ([][]cell, error) {
	data, err := json.Marshal(e)
	if err != nil {
		return nil, err
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(data, &members); err != nil {
		return nil, err
	}
	var rows [][]cell
	for _, name := range slices.Sorted(maps.Keys(members)) {
		value := string(members[name])
		if name == "ledgerId" || isNull(members[name]) {
			continue
		}
		var text string
		if json.Unmarshal(members[name], &text) == nil {
			value = text
		}
		rows = append(rows, []cell{{plain(name), ""}, {plain(value), ""}})
	}
	return rows, nil
}

// isNull reports whether nothing is known in a JSON value: null, or an object of nulls.
func isNull(value json.RawMessage) bool {
	var members map[string]json.RawMessage
	if json.Unmarshal(value, &members) != nil {
		return false
	}
	for _, member := range members {
		if string(member) != "null" {
			return false
		}
	}
	return true
}
