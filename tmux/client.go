package tmux

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"sync"
	"time"
)

// Client lists one server again and again without starting a process each time,
// over a control-mode connection. Once the connection is lost, be it that the session it
// is attached to has ended, its methods go on through the binary, for good: Connect
// again where Connected is false. It is safe for concurrent use; Close it.
//
// The connection attaches to a session without a size, without output and without
// touching the session's environment. It does not count in Session.Attached, but
// does in tmux's own session_attached, and so in destroy-unattached.
type Client struct {
	server Server
	turn   chan struct{} // holds one token: the right to use the connection

	cmd    *exec.Cmd
	stdin  io.WriteCloser
	stdout io.ReadCloser
	blocks chan block         // closed at the end of the connection
	gone   chan struct{}      // closed once the process is reaped
	life   context.Context    // of the connection
	stop   context.CancelFunc // ends it, and kills the process
	close  sync.Once
}

// Connect opens a control connection. It needs a server with a session.
func (s Server) Connect(ctx context.Context) (*Client, error) {
	l, err := s.listMeant(ctx)
	if err != nil {
		return nil, err
	}
	if len(l.Sessions) == 0 {
		return nil, &Error{Args: []string{"attach-session"}, Err: ErrNotFound}
	}
	line, err := s.prefix()
	if err != nil {
		return nil, err
	}
	// -E keeps the session's environment, which attaching would update from ours.
	line = append(line, "-C", "attach-session", "-E", "-f", "no-output,read-only,ignore-size", "-t", l.Sessions[0].ID)

	life, stop := context.WithCancel(context.Background())
	c := &Client{server: s, turn: make(chan struct{}, 1), blocks: make(chan block), gone: make(chan struct{}), life: life, stop: stop}
	c.turn <- struct{}{}
	c.cmd = exec.CommandContext(life, line[0], line[1:]...)
	c.cmd.Env = s.environ()
	c.cmd.WaitDelay = pipeGrace
	ownGroup(c.cmd)
	c.cmd.Cancel = func() error { return killGroup(c.cmd) }
	if c.stdin, err = c.cmd.StdinPipe(); err == nil {
		if c.stdout, err = c.cmd.StdoutPipe(); err == nil {
			if err = c.cmd.Start(); err == nil {
				go c.read()
			}
		}
	}
	if err != nil {
		stop()
		return nil, &Error{Args: []string{"attach-session"}, Err: err}
	}
	// One listing proves that the connection works.
	if _, err := c.ask(ctx); err != nil {
		c.Close()
		return nil, &Error{Args: []string{"attach-session"}, Err: err}
	}
	return c, nil
}

// List is [Server.List], over the connection while it lasts. The Timeout bounds the whole
// of it: the connection has half of it to answer.
func (c *Client) List(ctx context.Context) (Listing, error) {
	ctx, cancel := context.WithTimeout(ctx, c.server.timeout())
	defer cancel()
	if l, err := c.ask(ctx); err == nil {
		return l, nil
	}
	return c.server.List(ctx)
}

// Connected reports whether the connection is still in use.
func (c *Client) Connected() bool { return c.life.Err() == nil }

// Close ends the connection and its process. It returns once that is gone.
func (c *Client) Close() error {
	c.hangUp()
	<-c.gone
	return nil
}

func (c *Client) hangUp() {
	c.close.Do(func() {
		c.stop()
		c.stdin.Close()
		c.stdout.Close() // a child of tmux's, or a stopped server, could hold its other end
	})
}

// block is the output of one command.
type block struct {
	out []byte
	ok  bool
}

// read hands on blocks until the connection ends, then reaps the process.
// Notifications are dropped at once, so that they do not pile up while nobody
// asks.
func (c *Client) read() {
	defer close(c.gone)
	r := bufio.NewReaderSize(c.stdout, 64<<10)
	for {
		b, err := readBlock(r)
		if err != nil {
			break
		}
		select {
		case c.blocks <- b:
			continue
		case <-c.life.Done():
		}
		break
	}
	c.stop()
	close(c.blocks)
	_ = c.cmd.Wait()
}

// readBlock returns the next block that answers a command of ours, which has
// the flag 1: attaching itself gives one with 0, at any time. A block ends with the time, number and
// flags that it began with, so that no value of a listing passes for its end by
// accident.
func readBlock(r *bufio.Reader) (block, error) {
	var out, end, fail []byte
	for {
		line, err := readLine(r)
		switch {
		case err != nil:
			return block{}, err
		case end == nil && bytes.HasPrefix(line, []byte("%begin ")):
			end = append([]byte("%end "), line[len("%begin "):]...)
			fail = append([]byte("%error "), line[len("%begin "):]...)
		case end == nil: // a notification
		case bytes.Equal(line, end), bytes.Equal(line, fail):
			if bytes.HasSuffix(line, []byte(" 1\n")) {
				return block{out, bytes.Equal(line, end)}, nil
			}
			out, end, fail = nil, nil, nil
		case len(out)+len(line) > maxOutput:
			return block{}, errTooLarge
		default:
			out = append(out, line...)
		}
	}
}

func readLine(r *bufio.Reader) ([]byte, error) {
	var line []byte
	for {
		part, err := r.ReadSlice('\n')
		line = append(line, part...)
		if err == nil {
			return line, nil
		}
		if err != bufio.ErrBufferFull {
			return nil, err
		}
		if len(line) > maxOutput {
			return nil, errTooLarge
		}
	}
}

// ask takes a listing over the connection. Any failure ends the connection,
// since a late answer would be taken for that of the next question.
func (c *Client) ask(ctx context.Context) (l Listing, err error) {
	// Half of the time, so that the binary can be tried in the other half.
	end, ok := ctx.Deadline()
	if !ok {
		end = time.Now().Add(c.server.timeout())
	}
	ctx, cancel := context.WithTimeout(ctx, time.Until(end)/2)
	defer cancel()
	select {
	case <-c.turn:
		defer func() { c.turn <- struct{}{} }()
	case <-ctx.Done():
		return Listing{}, ErrTimeout
	}
	if !c.Connected() {
		return Listing{}, ErrNoServer
	}
	defer func() {
		if err != nil {
			c.hangUp()
		}
	}()
	token := newToken()
	text, err := renderLine(listCommands(token))
	if err != nil {
		return Listing{}, err
	}
	written := make(chan error, 1)
	go func() { // a stopped server lets the pipe fill up; Close ends the write
		_, err := io.WriteString(c.stdin, text+"\n")
		written <- err
	}()
	answer, err := c.collect(ctx, token)
	if err != nil {
		return Listing{}, err
	}
	if err := <-written; err != nil {
		return Listing{}, err
	}
	return readListing(answer, token)
}

// collect gathers the output of the blocks up to the one that ends with the
// token's record.
func (c *Client) collect(ctx context.Context, token string) ([]byte, error) {
	var out []byte
	last := []byte(endFormat(token) + "\n")
	for {
		select {
		case b, ok := <-c.blocks:
			if !ok {
				return nil, fmt.Errorf("%w: connection closed", ErrNoServer)
			}
			if !b.ok {
				return nil, errors.New("command failed")
			}
			if out = append(out, b.out...); len(out) > maxOutput {
				return nil, errTooLarge
			}
			if bytes.HasSuffix(out, last) {
				return out, nil
			}
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: %w", ErrTimeout, ctx.Err())
		}
	}
}
