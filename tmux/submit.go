package tmux

import (
	"context"
	"errors"
	"fmt"
	"time"
	"unicode/utf8"
)

// Result says what became of a submitted text. The zero value is
// CouldNotConfirm.
type Result int

const (
	// CouldNotConfirm: all or part of the text may have been typed, and it is
	// not known that Enter was. Do not submit it again without looking.
	CouldNotConfirm Result = iota
	// NotDelivered: nothing was typed, or the pane's program took none of it,
	// and Enter was not sent. It is safe to submit again.
	NotDelivered
	// SentUnverified: text and Enter were sent, but the pane did not show that
	// the text was taken.
	SentUnverified
	// Delivered: the pane showed the text, and no longer in its place after
	// Enter.
	Delivered
)

// String returns the result in words: "could-not-confirm", "not-delivered",
// "sent-unverified" or "delivered".
func (r Result) String() string {
	switch r {
	case NotDelivered:
		return "not-delivered"
	case SentUnverified:
		return "sent-unverified"
	case Delivered:
		return "delivered"
	}
	return "could-not-confirm"
}

// SubmitOptions bounds and guards a submission; nil is the default.
type SubmitOptions struct {
	// Settle is how long to wait for the pane to show the text, and again for
	// it to react to Enter, at most 4 s; 0 is 3 s.
	Settle time.Duration
	// Reader, if not 0, is the process that the text is meant for where it is
	// not the pane's own, such as an agent below a shell. It must be in the
	// foreground of the pane's terminal. ReaderTicks, if not 0, is its start time
	// in clock ticks after boot. On other systems than Linux this cannot be
	// checked and the text is refused.
	Reader      int
	ReaderTicks uint64
}

const (
	maxSettle = 4 * time.Second
	// submitWork bounds what is done while the pane's input is claimed: at most
	// two waits for the text and two for Enter, and the commands between.
	submitWork = 25 * time.Second
	// claimAge is how long a claim must be seen unchanged before it is taken
	// for that of a dead process. Its owner cannot type any more by then: each
	// of its steps is guarded by its own claim.
	claimAge = submitWork + 5*time.Second
	pollStep = 50 * time.Millisecond
	maxText  = 1 << 20
)

// Submit types a text into a pane and presses Enter, if the guard holds, and
// says from what the pane showed before and after whether it arrived. The text is
// pasted (in brackets, where the program asked for that) through a private buffer,
// which is always removed. Input is serialised per pane, across processes too.
//
// Enter is pressed only once the pane shows the text: a dialog that ignores it is
// not answered by accident. Only what was seen not to have happened is tried again,
// once. Escape is never sent, so a text with control characters other than newline
// and tab is refused (ErrInvalid), as is one without anything to see.
//
// A program that did not ask for bracketed paste takes each line of a text by
// itself. The error explains every result other than Delivered.
func (s Server) Submit(ctx context.Context, g Guard, text string, opts *SubmitOptions) (Result, error) {
	if err := submittable(text); err != nil {
		return NotDelivered, err
	}
	if g.Dead {
		return NotDelivered, invalid("submit to a dead pane")
	}
	var o SubmitOptions
	if opts != nil {
		o = *opts
	}
	if o.Settle <= 0 {
		o.Settle = 3 * time.Second
	}
	sub := &submission{
		s: s, g: g, text: text, opts: o, needle: needleOf(text),
		claim: newToken(), settle: min(o.Settle, maxSettle), patience: claimAge,
	}
	defer sub.clean(ctx)
	if err := sub.acquire(ctx); err != nil {
		return NotDelivered, err
	}
	ctx, cancel := context.WithTimeout(ctx, submitWork)
	defer cancel()
	return sub.perform(ctx)
}

// submittable refuses what could leave the brackets of a paste, or press keys.
func submittable(text string) error {
	if len(text) > maxText {
		return invalid("text of %d bytes, at most %d are possible", len(text), maxText)
	}
	if !utf8.ValidString(text) {
		return invalid("text is not UTF-8")
	}
	for _, r := range text {
		if r < 0x20 && r != '\n' && r != '\t' || r >= 0x7f && r < 0xa0 {
			return invalid("text with control character %U", r)
		}
	}
	if needleOf(text).tail == "" {
		return invalid("text without anything to see")
	}
	return nil
}

type submission struct {
	s      Server
	g      Guard
	text   string
	needle needle
	opts   SubmitOptions
	settle time.Duration
	claim  string // our value of optionInput, and part of the buffers' names

	patience time.Duration // with a claim that does not change
}

func (u *submission) buffer(kind string) string { return "ledger-" + u.claim[:16] + "-" + kind }

// perform does the work under the claim.
func (u *submission) perform(ctx context.Context) (Result, error) {
	before, err := u.look(ctx)
	if err != nil {
		return NotDelivered, err
	}
	var pasted screen
	for try := 0; ; try++ {
		if ans, err := u.paste(ctx); err != nil {
			// The server's complete answer without proof: the one command that
			// types did not run.
			if ans.told {
				return NotDelivered, err
			}
			return CouldNotConfirm, err
		}
		var seen bool
		pasted, seen, err = u.await(ctx, func(now screen) bool { return u.needle.shown(before, now) })
		if err != nil {
			return CouldNotConfirm, err
		}
		if seen {
			break
		}
		if !before.equal(pasted) || !u.drained(pasted.tty) {
			return CouldNotConfirm, fmt.Errorf("tmux: pane %s does not show the text, Enter was not pressed", u.g.Pane)
		}
		if try > 0 {
			return NotDelivered, fmt.Errorf("tmux: pane %s did not take the text", u.g.Pane)
		}
	}
	for try := 0; ; try++ {
		if _, err := u.enter(ctx); err != nil {
			if try > 0 {
				return SentUnverified, err
			}
			return CouldNotConfirm, err
		}
		now, taken, err := u.await(ctx, func(now screen) bool { return u.needle.taken(pasted, now) })
		switch {
		case err != nil:
			return SentUnverified, err
		case taken:
			return Delivered, nil
		case try > 0 || !u.drained(now.tty): // a slow program has the first one still to read
			return SentUnverified, fmt.Errorf("tmux: pane %s still shows the text after Enter", u.g.Pane)
		}
	}
}

// drained reports whether the program has provably read all input, so that what
// it does not react to was discarded and not merely delayed.
func (u *submission) drained(tty string) bool {
	n, known := unread(tty)
	return known && n == 0
}

// mine are the conditions of every step after the claim.
func (u *submission) mine() []string { return []string{equal(optionInput, u.claim)} }

// reader checks that the text will reach the process it is meant for.
func (u *submission) reader() error {
	if u.opts.Reader == 0 {
		return nil
	}
	if err := current(u.opts.Reader, u.opts.ReaderTicks, "reader"); err != nil {
		return err
	}
	st, p := readStat(u.opts.Reader)
	if p != Present || st.group != st.foreground {
		return &Error{Args: []string{"paste-buffer"},
			Err: fmt.Errorf("%w: process %d is not in the foreground of its terminal", ErrRefused, u.opts.Reader)}
	}
	return nil
}

// acquire claims the pane's input by a compare-and-set in the server, which no
// crash of a claimant can hold for longer than its patience, and which works across
// processes. Nothing has been typed when it fails.
func (u *submission) acquire(ctx context.Context) error {
	var holder string
	var since time.Time // on this process's monotonic clock, so no wall clock matters
	expected := ""
	for {
		ans, err := u.s.guarded(ctx, u.g, dispatch{
			conds: []string{equal(optionInput, expected)},
			then:  []command{{"set-option", "-p", "-t", u.g.Pane, optionInput, u.claim}},
		})
		if err == nil || !errors.Is(err, ErrRefused) {
			return err
		}
		if p := ans.pane; p.input == expected || !plain(p.input) || !u.g.matches(p) {
			return err
		} else if p.input != holder {
			holder, since, expected = p.input, time.Now(), ""
		} else if time.Since(since) > u.patience {
			expected = holder
		}
		if err := pause(ctx, pollStep); err != nil {
			return &Error{Args: []string{"set-option"}, Err: fmt.Errorf("pane %s: input is taken: %w", u.g.Pane, err)}
		}
	}
}

// matches reports whether a pane is what the guard expects.
func (g Guard) matches(p Pane) bool {
	return p.ID == g.Pane && p.Server.Same(g.Server) != Absent && p.Dead == g.Dead &&
		(g.Dead || p.PID == g.PID) && p.Ledger == g.Ledger && p.Attempt == g.Attempt
}

// clean removes the claim and whatever buffer is left, also when the caller's
// context has ended. A server that is stopped now does it when it wakes up, after
// what was sent to it before.
func (u *submission) clean(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	var cmds []command
	for _, kind := range []string{"text", "enter"} {
		// if-shell has no view of buffers, and deleting one that is not there
		// would end the sequence, so each is a sequence of its own.
		cmds = append(cmds, command{"if-shell", "-F", "1", `delete-buffer -b "` + u.buffer(kind) + `"`})
	}
	release := `set-option -p -u -t "` + u.g.Pane + `" ` + optionInput
	cmds = append(cmds, command{"if-shell", "-F", "-t", u.g.Pane, equal(optionInput, u.claim), release})
	_, _ = u.s.run(ctx, cmds...)
}

// paste types the text, in one guarded dispatch with the loading of its buffer: a
// client that dies while it sends the text leaves a cut buffer, but takes the rest
// of its commands with it.
func (u *submission) paste(ctx context.Context) (answer, error) {
	if err := u.reader(); err != nil {
		return answer{told: true}, err
	}
	b := u.buffer("text")
	return u.s.guarded(ctx, u.g, dispatch{
		before: []command{{"load-buffer", "-b", b, "-"}},
		stdin:  []byte(u.text),
		conds:  append(u.mine(), "#{==:#{?pane_input_off,1,0},0}"),
		then:   []command{{"paste-buffer", "-p", "-d", "-b", b, "-t", u.g.Pane}},
		orElse: []command{{"delete-buffer", "-b", b}},
	})
}

// enter presses Enter by pasting it: send-keys would give it to copy mode if a
// person scrolls, and to other panes if they are synchronized.
func (u *submission) enter(ctx context.Context) (answer, error) {
	if err := u.reader(); err != nil {
		return answer{told: true}, err
	}
	b := u.buffer("enter")
	return u.s.guarded(ctx, u.g, dispatch{
		conds: u.mine(),
		then: []command{
			{"set-buffer", "-b", b, "\r"},
			{"paste-buffer", "-r", "-d", "-b", b, "-t", u.g.Pane},
		},
	})
}

// await looks at the pane until ok, or until the settle time has passed. It
// returns the last look.
func (u *submission) await(ctx context.Context, ok func(screen) bool) (screen, bool, error) {
	end := time.Now().Add(u.settle)
	for {
		now, err := u.look(ctx)
		if err != nil {
			return screen{}, false, err
		}
		if ok(now) {
			return now, true, nil
		}
		if time.Now().After(end) {
			return now, false, nil
		}
		if err := pause(ctx, pollStep); err != nil {
			return screen{}, false, err
		}
	}
}

// look reads the visible screen and the place of the cursor.
func (u *submission) look(ctx context.Context) (screen, error) {
	ans, err := u.s.guarded(ctx, u.g, dispatch{
		conds: u.mine(),
		then: []command{
			{"display-message", "-p", "-t", u.g.Pane, "#{cursor_x}|#{cursor_y}"},
			{"capture-pane", "-p", "-t", u.g.Pane},
		},
	})
	if err != nil {
		return screen{}, err
	}
	sc, err := parseScreen(string(ans.out))
	sc.tty = ans.pane.TTY
	return sc, err
}
