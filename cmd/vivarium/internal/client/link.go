package client

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/vivarium-go/vivarium/internal/wire"
)

// A link is a connection to a server that has accepted the client.
type link struct {
	// Immutable.
	sock    net.Conn
	silence time.Duration // how long the server may send nothing
	kicked  chan struct{} // there is something to write
	done    chan struct{} // closed when the reader has ended

	mu    sync.Mutex
	xid   int32
	sent  map[int32]*call // awaiting their replies
	auths []*call         // likewise, in the order sent; nil for those sent again on a new connection
}

func (l *link) kick() {
	select {
	case l.kicked <- struct{}{}:
	default:
	}
}

var errExpired = errors.New("the session has expired")

// loop connects and reads until the client ends.
func (c *Client) loop() {
	defer close(c.ended)
	for pause := pauseMin; c.ctx.Err() == nil; {
		sock, err := c.round()
		switch {
		case c.ctx.Err() != nil:
			if sock != nil {
				_ = sock.Close()
			}
		case errors.Is(err, errExpired):
			c.end(Expired, wire.StateExpired)
			return
		case err != nil:
			c.failQueue(wire.ConnectionLoss, err)
		default:
			came := time.Now()
			if c.serve(sock) {
				c.end(AuthFailed, wire.StateAuthFailed)
				return
			}
			if time.Since(came) > pauseMax {
				pause = pauseMin
			} else { // a server that loses its clients at once counts as none
				c.failQueue(wire.ConnectionLoss, c.Cause())
			}
		}
		select {
		case <-time.After(pause):
			pause = min(2*pause, pauseMax)
		case <-c.ctx.Done():
		}
	}
	c.end(Closed, wire.StateClosed)
}

// end sets the final state. The loop calls it last.
func (c *Client) end(s State, e wire.State) {
	c.become(s, e)
	code := wire.SessionExpired
	if s == AuthFailed {
		code = wire.AuthFailed
	}
	c.failQueue(code, nil)
}

// round tries one server after another. It returns the connection to the first that accepts the
// client, or the last server's error.
func (c *Client) round() (sock net.Conn, err error) {
	for _, server := range c.cfg.Servers {
		sock, err = c.open(server)
		if err == nil || errors.Is(err, errExpired) || c.ctx.Err() != nil {
			return sock, err
		}
		err = fmt.Errorf("%s: %w", server, err)
		c.mu.Lock()
		c.mu.cause = err
		c.mu.Unlock()
	}
	return nil, err
}

// open connects to a server and opens or reattaches the session.
func (c *Client) open(server string) (net.Conn, error) {
	patience := max(c.cfg.Timeout/time.Duration(len(c.cfg.Servers)), time.Millisecond)
	deadline := time.Now().Add(patience)
	sock, err := c.dial(&net.Dialer{Deadline: deadline}, server)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(c.ctx, func() { _ = sock.Close() })
	defer stop()
	_ = sock.SetDeadline(deadline)
	if err := c.shakeHands(sock); err != nil {
		_ = sock.Close()
		return nil, err
	}
	_ = sock.SetDeadline(time.Time{})
	return sock, nil
}

func (c *Client) dial(d *net.Dialer, server string) (net.Conn, error) {
	if c.cfg.pipe != nil {
		return c.cfg.pipe(c.ctx, server)
	}
	if c.cfg.TLS == nil {
		return d.DialContext(c.ctx, "tcp", server)
	}
	secure := tls.Dialer{NetDialer: d, Config: c.cfg.TLS}
	return secure.DialContext(c.ctx, "tcp", server)
}

func (c *Client) shakeHands(sock net.Conn) error {
	q := wire.ConnectRequest{LastZxid: c.lastZxid, Timeout: int32(c.cfg.Timeout.Milliseconds()), SessionID: c.session.SessionID,
		Password: c.session.Password, ReadOnly: c.cfg.ReadOnly}
	if q.Password == nil {
		q.Password = make([]byte, 16)
	}
	if _, err := sock.Write(q.AppendFrame(nil)); err != nil {
		return err
	}
	frame, err := wire.ReadFrame(sock, nil, wire.FrameMax)
	if err == io.EOF {
		return errors.New("the server closed the connection")
	} else if err != nil {
		return err
	}
	var r wire.ConnectResponse
	if err := r.Decode(frame); err != nil {
		return err
	}
	switch {
	case r.Timeout > 0 && r.SessionID != 0:
		c.session = r
		return nil
	case c.session.SessionID == 0:
		return errors.New("the server gave no session")
	}
	return errExpired
}

// serve sends and reads until the connection is lost. It reports whether the server refused to
// authenticate the client.
func (c *Client) serve(sock net.Conn) (refused bool) {
	l := &link{sock: sock, silence: max(time.Duration(c.session.Timeout)*time.Millisecond*2/3, time.Millisecond), kicked: make(chan struct{}, 1),
		done: make(chan struct{}), sent: make(map[int32]*call)}
	first := c.attach(l)
	state, told := Connected, wire.StateSyncConnected
	if c.session.ReadOnly {
		state, told = ConnectedReadOnly, wire.StateConnectedReadOnly
	}
	c.become(state, told)
	stop := context.AfterFunc(c.ctx, func() { _ = sock.Close() })
	var writer sync.WaitGroup
	writer.Go(func() { c.write(l, first) })
	err := c.read(l)
	_ = sock.Close()
	close(l.done)
	writer.Wait()
	stop()
	return c.detach(l, err)
}

// attach makes the link the client's, and returns what must be sent first: identities and watches.
func (c *Client) attach(l *link) []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	var first []byte
	for _, a := range c.mu.auths {
		q := wire.Request{Xid: wire.XidAuth, Auth: a}
		q.Op = wire.OpAuth
		first = q.AppendFrame(first)
		l.auths = append(l.auths, nil)
	}
	for _, q := range c.mu.watches.again(c.lastZxid) {
		first = q.AppendFrame(first)
	}
	c.mu.link, c.mu.cause = l, nil
	l.kick()
	return first
}

// detach removes the link and fails the calls that it did not answer.
func (c *Client) detach(l *link, err error) (refused bool) {
	err = fmt.Errorf("%s: %w", l.sock.RemoteAddr(), err)
	c.mu.Lock()
	c.mu.link, c.mu.cause = nil, err
	closing := c.mu.closing
	c.mu.Unlock()
	l.mu.Lock()
	var lost []*call
	for _, k := range l.sent {
		lost = append(lost, k)
	}
	for _, k := range l.auths {
		if k != nil {
			lost = append(lost, k)
		}
	}
	l.mu.Unlock()
	if refused = errors.Is(err, errRefused); !refused && !closing {
		c.become(Connecting, wire.StateDisconnected)
	}
	c.failAll(lost, wire.ConnectionLoss, err)
	if closing {
		c.cancel()
	}
	return refused
}

// write sends first, then the queued calls. If it sends nothing for a while, it pings.
func (c *Client) write(l *link, first []byte) {
	ping := time.NewTicker(max(l.silence/3, time.Millisecond))
	defer ping.Stop()
	for out := first; ; {
		if len(out) > 0 {
			_ = l.sock.SetWriteDeadline(time.Now().Add(l.silence))
			if _, err := l.sock.Write(out); err != nil {
				_ = l.sock.Close() // ends read
				return
			}
			ping.Reset(max(l.silence/3, time.Millisecond))
		}
		out = out[:0]
		select {
		case <-l.kicked:
			out = c.drain(l, out)
		case <-ping.C:
			q := wire.Request{Xid: wire.XidPing}
			q.Op = wire.OpPing
			out = q.AppendFrame(out)
		case <-l.done:
			return
		}
	}
}

// drain appends the queued calls to out and marks them as sent.
func (c *Client) drain(l *link, out []byte) []byte {
	c.mu.Lock()
	calls := c.mu.queue
	c.mu.queue = nil
	for _, k := range calls {
		k.sent = true
	}
	l.mu.Lock() // while c.mu is held, so that a call is always in the queue or in the link
	c.mu.Unlock()
	defer l.mu.Unlock()
	for _, k := range calls {
		if k.q.Op == wire.OpAuth {
			k.q.Xid = wire.XidAuth
			l.auths = append(l.auths, k)
		} else {
			l.xid++
			if l.xid <= 0 {
				l.xid = 1
			}
			k.q.Xid = l.xid
			l.sent[l.xid] = k
		}
		out = k.q.AppendFrame(out)
	}
	return out
}

var (
	errRefused = errors.New("the server refused to authenticate the client")
	errStray   = errors.New("the server replied to no request")
	errSilence = errors.New("the server sent nothing for too long")
)

// read handles the server's frames until the connection is lost, and returns why.
func (c *Client) read(l *link) error {
	in := bufio.NewReader(l.sock)
	for {
		_ = l.sock.SetReadDeadline(time.Now().Add(l.silence))
		frame, err := wire.ReadFrame(in, nil, frameMax) // not reused: a reply's data is in it
		if e, ok := err.(net.Error); ok && e.Timeout() {
			return errSilence
		} else if err == io.EOF {
			return errors.New("the server closed the connection")
		} else if err != nil {
			return err
		}
		if err := c.handle(l, frame); err != nil {
			return err
		}
	}
}

// handle handles one frame.
func (c *Client) handle(l *link, frame []byte) error {
	var r wire.Reply
	body, err := r.DecodeHeader(frame)
	if err != nil {
		return err
	}
	switch r.Xid {
	case wire.XidPing, wire.XidSetWatches:
		return nil
	case wire.XidEvent:
		if err := r.DecodeBody(wire.OpEvent, body); err != nil {
			return err
		}
		c.event(&r)
		return nil
	case wire.XidAuth:
		return c.authAnswered(l, &r)
	}
	l.mu.Lock()
	k := l.sent[r.Xid]
	delete(l.sent, r.Xid)
	l.mu.Unlock()
	if k == nil {
		return fmt.Errorf("%w: xid %d", errStray, r.Xid)
	}
	return c.answered(k, &r, body)
}

// answered finishes a call with its reply. A reply that cannot be decoded ends the connection.
func (c *Client) answered(k *call, r *wire.Reply, body []byte) error {
	if r.Zxid > 0 {
		c.lastZxid = r.Zxid
	}
	if err := r.DecodeBody(k.q.Op, body); err != nil {
		c.finish(k, nil, &Error{Code: wire.ConnectionLoss, Path: k.path, Cause: err})
		return err
	}
	c.mu.Lock()
	c.mu.watches.add(&k.q.Operation, r.Err)
	c.mu.Unlock()
	r.Path = c.fromServer(r.Path)
	for i := range r.Results {
		r.Results[i].Path = c.fromServer(r.Results[i].Path)
	}
	var err error
	if r.Err != wire.OK {
		err = &Error{Code: r.Err, Path: k.path}
	}
	c.finish(k, r, err)
	return nil
}

func (c *Client) authAnswered(l *link, r *wire.Reply) error {
	l.mu.Lock()
	if len(l.auths) == 0 {
		l.mu.Unlock()
		return fmt.Errorf("%w: auth", errStray)
	}
	k := l.auths[0]
	l.auths = l.auths[1:]
	l.mu.Unlock()
	var err error
	if r.Err != wire.OK {
		err = &Error{Code: r.Err}
		c.become(AuthFailed, wire.StateAuthFailed)
	}
	if k != nil {
		c.finish(k, r, err)
	}
	if err != nil {
		return errRefused
	}
	return nil
}

// event passes on the event of a watch, if the client still has the watch.
func (c *Client) event(r *wire.Reply) {
	c.mu.Lock()
	asked := c.mu.watches.fire(r.Event.Type, r.Event.Path)
	c.mu.Unlock()
	if asked {
		c.tell(Event{Type: r.Event.Type, State: r.Event.State, Path: c.fromServer(r.Event.Path), Zxid: r.Zxid})
	}
}
