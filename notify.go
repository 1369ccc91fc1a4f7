package ledger

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

const (
	notifiedFile = "notified.json"
	notifiedLock = "notified.lock"
)

// notified is what has been said, so that it is not said again: to the reader of the
// reports, and by the function that an embedder gives. An embedder's first sweep takes the
// present states as said, also where reports have been made for long.
type notified struct {
	Version int              `json:"version"`
	Report  map[string]heard `json:"report"` // by ledger id; nil: nothing is known
	Notify  map[string]heard `json:"notify"` // the same
	Claims  []edgeClaim      `json:"claims"`
}

// edgeClaim is a delivery in hand: written before it and taken back after. Only that of
// an owner which is gone, or that failed, is delivered by another one, and once.
type edgeClaim struct {
	Token  string    `json:"token"`
	Owner  ProcessID `json:"owner"`
	At     time.Time `json:"at"`
	Edges  []Edge    `json:"edges"`
	Again  bool      `json:"again,omitzero"`  // it is the second delivery
	Failed bool      `json:"failed,omitzero"` // the function said so
}

const notifiedVersion = 1

// loadNotified reads the file. err says why it counts as lost.
func (s *Store) loadNotified() (n notified, err error) {
	data, err := s.readState(notifiedFile)
	switch {
	case err != nil:
	case data == nil:
		err = errNothingSaid
	default:
		if err = json.Unmarshal(data, &n); err == nil && n.Version != notifiedVersion {
			err = fmt.Errorf("it has version %d", n.Version)
		}
	}
	if err != nil {
		n = notified{}
	}
	n.Version = notifiedVersion
	return n, err
}

var errNothingSaid = errors.New("it is not there")

// encodeNotified writes a track of which nothing is known as null.
func encodeNotified(n *notified) ([]byte, error) {
	return json.Marshal(n)
}

func (s *Store) saveNotified(n *notified, before []byte) error {
	data, err := encodeNotified(n)
	if err != nil || string(data) == string(before) {
		return err
	}
	return s.writeState(notifiedFile, data)
}

// pendingEdges tells which rows have an edge that was not said yet, by id.
func (sw *sweeper) pendingEdges(ctx context.Context) func(id string) bool {
	n, err := sw.s.loadNotified()
	if err != nil {
		return func(string) bool { return false }
	}
	return func(id string) bool {
		e := sw.entry(id)
		for _, track := range []map[string]heard{n.Report, n.Notify} {
			if edges, _ := edgesOf(track[id], e, sw.state(e), sw.opts.Edges, sw.now); track != nil && len(edges) > 0 {
				return true
			}
		}
		return false
	}
}

// notify says what has changed: in the report, and by the embedder's function.
func (sw *sweeper) notify(ctx context.Context) error {
	claim, err := sw.claimEdges(ctx)
	if err != nil || len(claim.Edges) == 0 {
		return err
	}
	err = sw.deliver(ctx, claim.Edges)
	if errors.Is(err, errNoAnswer) {
		sw.rep.warn("", sw.stage, err)
		return nil // it may come yet; the claim stands as long as this process
	}
	if err != nil {
		sw.rep.warn("", sw.stage, fmt.Errorf("notification failed: %w", err))
	}
	return sw.confirm(context.WithoutCancel(ctx), claim, err)
}

// claimEdges finds the edges, and writes down who delivers them, before anyone does.
func (sw *sweeper) claimEdges(ctx context.Context) (claim edgeClaim, err error) {
	unlock, err := sw.s.lockPass(ctx, notifiedLock)
	if err != nil {
		return claim, err
	}
	defer unlock()
	n, lost := sw.s.loadNotified()
	before, err := encodeNotified(&n)
	if err != nil {
		return claim, err
	}
	if lost != nil {
		before = nil
		if len(sw.rows) > 0 && !(sw.first && errors.Is(lost, errNothingSaid)) {
			sw.rep.warn("", sw.stage, fmt.Errorf("%s: %w: the present states are taken as notified", notifiedFile, lost))
		}
	}
	reported := sw.compare(&n.Report)
	if sw.opts.Notify != nil {
		claim.Edges = append(sw.takeClaims(&n), sw.compare(&n.Notify)...)
		if len(claim.Edges) > 0 {
			if claim.Owner, err = sw.s.procs.self(); err != nil {
				return edgeClaim{}, err
			}
			claim.Token, claim.At = newNonce(), sw.now
			n.Claims = append(n.Claims, splitAgain(claim)...)
		}
	} else if n.Notify != nil && sw.rep.Complete.Rows {
		sw.drop(n.Notify)
	}
	if err := sw.s.saveNotified(&n, before); err != nil {
		// What cannot be written down would be said again and again.
		return edgeClaim{}, fmt.Errorf("%s cannot be written, nothing is notified: %w", notifiedFile, err)
	}
	for _, e := range reported {
		note(sw.rep, &sw.rep.Edges, e, "edge", e.ID, "from", e.From, "to", e.To)
	}
	return claim, nil
}

// splitAgain keeps the edges of a second delivery apart: there is no third.
func splitAgain(c edgeClaim) []edgeClaim {
	first, again := c, c
	first.Edges, again.Edges, again.Again = nil, nil, true
	for _, e := range c.Edges {
		if e.again {
			again.Edges = append(again.Edges, e)
		} else {
			first.Edges = append(first.Edges, e)
		}
	}
	var claims []edgeClaim
	for _, c := range []edgeClaim{first, again} {
		if len(c.Edges) > 0 {
			claims = append(claims, c)
		}
	}
	return claims
}

// compare finds the edges of all rows against what was said, and notes them as said.
// Where nothing is known, the states in which the pass found the rows count as said: what
// it has done itself is news all the same.
func (sw *sweeper) compare(track *map[string]heard) (edges []Edge) {
	begun := *track != nil
	next := map[string]heard{}
	for _, r := range sw.rows {
		if r.now == nil {
			continue
		}
		id := r.now.LedgerID
		known := (*track)[id]
		if !begun {
			was := r.was
			if was == nil {
				was = r.now
			}
			_, known = edgesOf(nil, was, sw.stateAsFound(was), sw.opts.Edges, sw.now)
		}
		found, said := edgesOf(known, r.now, sw.state(r.now), sw.opts.Edges, sw.now)
		edges = append(edges, found...)
		if len(said) > 0 && !sw.filed(id) {
			next[id] = said
		}
	}
	// A row that is not to be seen may be there all the same.
	for id, said := range *track {
		if _, seen := sw.at[id]; !seen && !sw.rep.Complete.Rows {
			next[id] = said
		}
	}
	for id := range sw.damaged() {
		if said, known := (*track)[id]; known {
			next[id] = said
		}
	}
	*track = next
	return edges
}

// stateAsFound is the state of a row before the pass touched it. One that the pass has
// closed was not finished then.
func (sw *sweeper) stateAsFound(was *Entry) Liveness {
	now := sw.entry(was.LedgerID)
	if now == was {
		return sw.state(was)
	}
	held := sw.found[was.LedgerID]
	defer func() { sw.found[was.LedgerID] = held }()
	delete(sw.found, was.LedgerID)
	return sw.state(was)
}

// filed reports whether the pass has filed a row: it has ended, and gives no more edges.
func (sw *sweeper) filed(id string) bool {
	if sw.filedIDs == nil {
		sw.filedIDs = map[string]bool{}
		for _, id := range sw.rep.Filed {
			sw.filedIDs[id] = true
		}
	}
	return sw.filedIDs[id]
}

// drop forgets rows that are gone.
func (sw *sweeper) drop(track map[string]heard) {
	damaged := sw.damaged()
	for id := range track {
		if _, seen := sw.at[id]; (!seen || sw.filed(id) || sw.entry(id) == nil) && !damaged[id] {
			delete(track, id)
		}
	}
}

// takeClaims takes over deliveries that were interrupted or that failed. One of an owner
// that may still be at it is left alone; a second failure is the last.
func (sw *sweeper) takeClaims(n *notified) (edges []Edge) {
	var left []edgeClaim
	for _, c := range n.Claims {
		switch {
		case !c.Failed && sw.verdict(c.Owner) != Gone:
			left = append(left, c)
		case !c.Again:
			for _, e := range c.Edges {
				e.again = true
				if row := sw.find(e.ID); row != nil {
					e.Entry = row.clone()
				}
				edges = append(edges, e)
			}
		}
	}
	n.Claims = left
	return edges
}

var errNoAnswer = errors.New("the notification function does not return")

// deliver calls the embedder's function, with no lock but the sweep's own. One that
// outlives its context is left behind.
func (sw *sweeper) deliver(ctx context.Context, edges []Edge) error {
	ctx, cancel := context.WithTimeout(ctx, notifyWait)
	defer cancel()
	answer := make(chan error, 1)
	go func() { answer <- sw.opts.Notify(ctx, edges) }()
	select {
	case err := <-answer:
		return err
	case <-ctx.Done():
	}
	// One that keeps to its context answers about now.
	timer := time.NewTimer(time.Second)
	defer timer.Stop()
	select {
	case err := <-answer:
		return err
	case <-timer.C:
		return errNoAnswer
	}
}

// confirm takes the claim back after the delivery, or notes that it failed.
func (sw *sweeper) confirm(ctx context.Context, claim edgeClaim, failure error) error {
	unlock, err := sw.s.lockPass(ctx, notifiedLock)
	if err != nil {
		return err
	}
	defer unlock()
	n, err := sw.s.loadNotified()
	if err != nil {
		return nil // lost meanwhile: the next pass says so
	}
	var left []edgeClaim
	for _, c := range n.Claims {
		switch {
		case c.Token != claim.Token:
			left = append(left, c)
		case failure != nil && !c.Again:
			c.Failed = true
			left = append(left, c)
		}
	}
	n.Claims = left
	return sw.s.saveNotified(&n, nil)
}
