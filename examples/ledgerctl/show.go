package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"slices"
	"strings"

	"github.com/sessionledger/ledger"
)

func show(ctx context.Context, a *app, flags *flag.FlagSet) func([]string) error {
	return func(args []string) error {
		s, err := a.open()
		if err != nil {
			return err
		}
		defer s.Close()
		e, err := a.one(ctx, s, args)
		if err != nil {
			return err
		}
		sess, err := s.Session(ctx, e.LedgerID, &ledger.ClassifyOptions{Dirty: true})
		if err != nil {
			return err
		}
		if a.json {
			return a.line(struct {
				ledger.Session
				Actions []ledger.ActionState `json:"actions"`
			}{sess, sess.Actions()})
		}
		return a.describe(sess)
	}
}

// describe prints one session for a person: what it does, what can be done, and then
// every member of the row that is known.
func (a *app) describe(sess ledger.Session) error {
	look := looks[sess.Status.State]
	head := [][]cell{
		{{"state", "1"}, {look.symbol + " " + string(sess.Status.State), look.color}},
		{{"why", "1"}, {plain(sess.Status.Reason), ""}},
		{{"seen", "1"}, {plain(sess.Status.Evidence), ""}},
	}
	for _, act := range sess.Actions() {
		if act.Open {
			head = append(head, []cell{{act.Action, "1"}, {"possible", "32"}})
		} else {
			head = append(head, []cell{{act.Action, "1"}, {"not now: " + plain(act.Reason), "90"}})
		}
	}
	a.table(a.stdout, []string{sess.Entry.LedgerID, ""}, head)
	members, err := knownMembers(sess.Entry)
	if err != nil {
		return err
	}
	fmt.Fprintln(a.stdout)
	a.table(a.stdout, []string{"RECORD", ""}, members)
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
	names := make([]string, 0, len(members))
	for name, value := range members {
		if string(value) != "null" && name != "ledgerId" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	rows := make([][]cell, len(names))
	for i, name := range names {
		rows[i] = []cell{{plain(name), ""}, {plain(strings.Trim(string(members[name]), `"`)), ""}}
	}
	return rows, nil
}
