package client

import (
	"bufio"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"slices"
	"sync/atomic"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/engine"
	"github.com/vivarium-go/vivarium/internal/service"
	"github.com/vivarium-go/vivarium/internal/wire"
	life "github.com/vivarium-go/vivarium/session"
	"github.com/vivarium-go/vivarium/tree"
)

// Parts of the session's timeout.
const (
	pingParts    = 8 // how often a member is asked whether the session lives
	silenceParts = 4 // how long an answer to that may take before another member is tried
	connectParts = 4 // how long a member may take to attach the session, in the first round of tries
)

// What a client waits between two tries, when it has tried all servers, or when a connection broke
// that had just begun.
const (
	pauseMin = 20 * time.Millisecond
	pauseMax = time.Second
)

const (
	// breaksMax is how many connections may break while a read is sent on them. Then it may be what
	// breaks them, and is given up. But on a bad network, others break too. So a patient read is from
	// then on sent only on connections that have lasted, and given up when as many of those have broken.
	breaksMax = 8
	shortMax  = 2 // connections that may break soon after they began, before the next one waits
)

// A link is one connection that serves the session.
type link struct {
	conn net.Conn
	r    *bufio.Reader
	done chan struct{} // closed when its reader has ended
	err  error         // why; read it after done
	// heard is when something came, or a ping was sent before which all was well.
	heard  atomic.Int64
	silent atomic.Bool // it was closed because nothing came
	lasted atomic.Bool // it did not break soon after it began
}

var errSilent = errors.New("the server does not answer")

var errProtocol = errors.New("the server does not speak the client's protocol")

// run connects the session and serves it, until nothing more is to be done for it.
func (s *session) run() {
	defer s.client.forget(s)
	rounds, short, lost := 0, 0, false
	pause := func(n int) { s.sleep(min(pauseMin<<min(n, 10), pauseMax)) }
	for s.alive.Err() == nil {
		address, last := s.client.server()
		l, err := s.connect(address, rounds)
		if err == nil {
			rounds = 0
			if lost && s.Err() == nil {
				s.client.log.Info("session connected again", "session", s.ID(), "address", address)
			}
			begun := time.Now()
			err = s.serve(l)
			if lost = s.Err() == nil; lost {
				s.client.log.Info("session's connection lost", "session", s.ID(), "address", address, "cause", err)
			}
			if time.Since(begun) > s.Timeout()/pingParts {
				short = 0
			} else if short++; short > shortMax {
				pause(short)
			}
		} else if last {
			pause(rounds)
			rounds++
		}
		s.mu.Lock()
		s.mu.lacks = fmt.Errorf("%s: %w", address, err)
		s.mu.Unlock()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.finishLocked(life.Closed, engine.ErrSessionClosed)
	s.dropQueueLocked(s.mu.end)
}

func (s *session) sleep(d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-s.alive.Done():
	}
}

// connect connects to a server, and opens the session there or reattaches it. In each round of tries
// a server may take longer, up to the session's timeout.
func (s *session) connect(address string, rounds int) (*link, error) {
	s.mu.Lock()
	timeout := s.mu.timeout
	s.mu.Unlock()
	if timeout == 0 {
		timeout = s.asked
	}
	ctx, cancel := context.WithTimeout(s.alive, min(timeout/connectParts<<min(rounds, 10), timeout))
	defer cancel()
	to, err := s.dial(ctx, address)
	if err != nil {
		return nil, err
	}
	l := &link{conn: to.Conn, r: bufio.NewReader(to.Conn), done: make(chan struct{})}
	if err := s.handshake(l); err != nil {
		to.late()
		_ = l.conn.Close()
		return nil, cmp.Or(ctx.Err(), err)
	}
	to.late() // a connection that was closed just now breaks as soon as it is used
	return l, nil
}

// A dialled connection is closed when its dial's ctx ends, unless late is called before: nobody may
// wait for it by then.
type dialled struct {
	net.Conn
	late func() bool
}

func (s *session) dial(ctx context.Context, address string) (dialled, error) {
	to, err := service.Call(ctx, "Config.Dial", func(ctx context.Context) (dialled, error) {
		conn, err := s.client.config.Dial(ctx, address)
		if err == nil && conn == nil {
			err = errors.New("Config.Dial returned nothing")
		}
		if err != nil {
			return dialled{}, err
		}
		return dialled{conn, context.AfterFunc(ctx, func() { _ = conn.Close() })}, nil
	})
	if err != nil || s.client.config.TLS == nil {
		return to, err
	}
	c := s.client.config.TLS.Clone()
	if c.ServerName == "" {
		c.ServerName, _, _ = net.SplitHostPort(address)
	}
	secure := tls.Client(to.Conn, c)
	if err := service.Handshake(ctx, secure); err != nil {
		_ = to.Close()
		return dialled{}, err
	}
	to.Conn = secure
	return to, nil
}

// handshake opens the session or reattaches it, proves its credentials, and makes the connection
// this client's own kind.
func (s *session) handshake(l *link) error {
	s.mu.Lock()
	q := wire.ConnectRequest{LastZxid: s.mu.zxid, Timeout: int32(min(s.asked.Milliseconds(), math.MaxInt32)), SessionID: int64(s.mu.id), Password: s.mu.password}
	s.mu.Unlock()
	if q.Password == nil {
		q.Password = make([]byte, 16)
	}
	clock := &s.client.config.Inside.Clock
	sent, offset := clock.Boot(), clock.Offset()
	var a wire.ConnectResponse
	frame, err := l.exchange(q.AppendFrame(nil))
	if err == nil {
		err = a.Decode(frame)
	}
	switch {
	case err != nil:
		return err
	case a.SessionID == 0 && q.SessionID != 0:
		s.mu.Lock()
		defer s.mu.Unlock()
		s.finishLocked(life.Expired, engine.ErrSessionExpired)
		s.dropQueueLocked(engine.ErrSessionExpired) // its owner may be about to close it
		s.halt()
		return engine.ErrSessionExpired
	case a.SessionID == 0 || q.SessionID != 0 && a.SessionID != q.SessionID:
		return fmt.Errorf("%w: it serves no session, or another one", errProtocol)
	}
	for i := range s.auth {
		if err := s.prove(l, &s.auth[i]); err != nil {
			return err
		}
	}
	var hello wire.Reply
	frame, err = l.exchange((&wire.Request{Operation: wire.Operation{Op: wire.OpNative}, Native: wire.Native{Kind: wire.NativeHello}}).AppendFrame(nil))
	if err != nil {
		return fmt.Errorf("%w: %w", errProtocol, err)
	}
	body, err := hello.DecodeHeader(frame)
	if err == nil && hello.Err == wire.OK {
		err = hello.DecodeBody(wire.OpNative, body)
	}
	if err != nil || hello.Err != wire.OK {
		return fmt.Errorf("%w: it is no gateway of this library's, or an older one", errProtocol)
	}
	if err := answered(&hello); err != nil {
		return err
	}
	s.begin(l, &a, &hello, sent, offset)
	return nil
}

// prove proves a credential. A credential that proves nothing ends a session for good.
func (s *session) prove(l *link, auth *embed.Auth) error {
	frame, err := l.exchange((&wire.Request{Xid: wire.XidAuth, Operation: wire.Operation{Op: wire.OpAuth},
		Auth: wire.Auth{Scheme: auth.Scheme, Proof: auth.Credential}}).AppendFrame(nil))
	var r wire.Reply
	if err == nil {
		_, err = r.DecodeHeader(frame)
	}
	if err != nil || r.Err == wire.OK {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	err = fmt.Errorf("%w: scheme %q", embed.ErrAuthFailed, auth.Scheme)
	s.finishLocked(life.Closed, err)
	s.halt()
	return err
}

// exchange sends a frame and reads one.
func (l *link) exchange(frame []byte) ([]byte, error) {
	if _, err := l.conn.Write(frame); err != nil {
		return nil, err
	}
	return wire.ReadFrame(l.r, nil, frameMax)
}

// begin takes a link into use. What has to be done again comes first.
func (s *session) begin(l *link, a *wire.ConnectResponse, hello *wire.Reply, sent, offset time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	isNew := s.mu.life == nil
	if timeout := time.Duration(a.Timeout) * time.Millisecond; isNew {
		s.mu.timeout = timeout
	} else if timeout < s.mu.timeout && s.mu.end == nil {
		s.shortenLocked(timeout, sent)
	}
	s.mu.password = append([]byte(nil), a.Password...)
	s.mu.id, s.mu.data, s.mu.frame = tree.SessionID(a.SessionID), int(hello.Native.Zxid), int(hello.Native.Count)
	s.mu.zxid = max(s.mu.zxid, hello.Zxid)
	if s.mu.end == nil && isNew {
		s.mu.life, s.mu.offset = life.NewLife(s.mu.timeout, sent-s.mu.timeout/proofParts), offset
		close(s.ready)
		s.client.goroutines.Go(s.keepTime)
	} else if s.mu.end == nil {
		s.provedLocked(sent, offset)
	}
	s.resumeLocked(tree.Zxid(hello.Zxid), isNew)
	s.mu.link, s.mu.lacks = l, nil
	s.wakeWriter()
}

// shortenLocked gives the session a shorter timeout, because the member bounds it so. What it held
// was judged by the longer one.
func (s *session) shortenLocked(timeout, sent time.Duration) {
	clock := &s.client.config.Inside.Clock
	s.mu.life.Suspend(clock.Boot())
	s.judgeLocked(clock.Offset())
	s.mu.timeout = timeout
	s.mu.life, s.mu.lost = life.NewLife(timeout, sent-timeout/proofParts), 0
}

// resumeLocked queues what a new connection begins with, ahead of everything else.
func (s *session) resumeLocked(at tree.Zxid, isNew bool) {
	if s.mu.end != nil {
		return
	}
	var before []*call
	for s.mu.queue.Len() > 0 {
		before = append(before, pop(&s.mu.queue))
	}
	s.mu.watches.resumeLocked(s, at)
	s.resumeClaimsLocked()
	s.followLocked(isNew)
	for _, c := range before {
		if c.stage == callQueued { // nothing of the above has ended it
			c.at = s.mu.queue.PushBack(c)
		}
	}
}

// breakLocked is called when the link has ended. Of the calls that it took along, some are queued
// again, ahead of everything else, and the others end.
func (s *session) breakLocked() {
	sent := s.mu.sent
	s.mu.link, s.mu.sent = nil, nil
	s.mu.watches.forget()
	var again []*call
	for _, c := range sent {
		c.breaks++
		if c.write {
			s.mu.cuts++
		}
		if err := s.brokenLocked(c); err != nil {
			s.uncountLocked(c)
			s.finishCallLocked(c, err)
			continue
		}
		again = append(again, c)
	}
	for _, c := range slices.Backward(again) {
		s.urgeLocked(c)
	}
}

// brokenLocked returns how a call ends with the connection on which it was sent, or nil if it is to
// be sent on the next one. Close still sends what the session owes.
func (s *session) brokenLocked(c *call) error {
	end := s.mu.end
	switch {
	case c.write || c.request.Op == wire.OpPing:
		return engine.ErrUnknownOutcome
	case c.owed && (end == nil || end == engine.ErrSessionClosed):
		return nil
	case end != nil:
		return end
	case c.dropped, c.breaks > breaksMax && !c.patient, c.breaks > 2*breaksMax:
		return errPoison
	}
	return nil
}

// serve serves a link until it ends, and returns why it ended.
func (s *session) serve(l *link) error {
	s.client.goroutines.Go(func() { s.read(l) })
	s.client.goroutines.Go(func() { s.send(l) })
	every := max(s.Timeout()/pingParts, time.Millisecond)
	tick := time.NewTicker(every)
	defer tick.Stop()
	var ping *call
	for ended := false; !ended; {
		select {
		case <-l.done:
			ended = true
		case <-s.alive.Done():
			_ = l.conn.Close()
			<-l.done
			ended = true
		case now := <-tick.C:
			if !l.lasted.Swap(true) {
				s.wakeWriter()
			}
			if ping == nil || isDone(ping) {
				ping = s.ping()
				l.heard.Store(now.UnixNano())
			} else if now.UnixNano()-l.heard.Load() > int64(s.Timeout()/silenceParts) {
				l.silent.Store(true)
				_ = l.conn.Close()
			}
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.breakLocked()
	return l.err
}

func isDone(c *call) bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

// ping asks whether the session lives.
func (s *session) ping() *call {
	c := newCall(wire.Request{Xid: wire.XidPing, Operation: wire.Operation{Op: wire.OpPing}})
	c.then = func(c *call) {
		if c.err == nil && c.reply.Err == wire.OK {
			s.provedLocked(c.sent, c.offset)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.countLocked(c, 1)
	s.urgeLocked(c)
	s.wakeWriter()
	return c
}

// send writes what is queued.
func (s *session) send(l *link) {
	var out []byte
	for {
		select {
		case <-s.write:
		case <-l.done:
			return
		}
		for more := true; more; {
			out, more = s.take(l, out[:0])
			if len(out) == 0 {
				break
			}
			if _, err := l.conn.Write(out); err != nil {
				_ = l.conn.Close()
				return
			}
		}
		if cap(out) > outKept {
			out = nil
		}
	}
}

// outKept and outMax bound what the writer keeps and what it writes at once.
const (
	outKept = 64 << 10
	outMax  = 256 << 10
)

// take takes calls off the queue and appends their frames.
func (s *session) take(l *link, out []byte) (frames []byte, more bool) {
	clock := &s.client.config.Inside.Clock
	s.lookAndLock() // what a tenure guards is not sent after its end
	defer s.mu.Unlock()
	if s.mu.link != l {
		s.wakeWriter() // the next link's
		return out, false
	}
	held := false // by a call that waits until the link has lasted
	at := s.mu.queue.Front()
	for at != nil && len(out) < outMax {
		c := at.Value.(*call)
		at = at.Next()
		if c.patient && (c.breaks > breaksMax || held) && !l.lasted.Load() {
			held = true // with those behind it, which Follow keeps in order
			continue
		}
		s.mu.queue.Remove(c.at)
		if err := cmp.Or(c.terms.tenures().Kept(), s.armsLocked(c)); err != nil {
			s.uncountLocked(c)
			s.finishCallLocked(c, err)
			continue
		}
		if c.request.Op == wire.OpPing {
			c.sent, c.offset = clock.Boot(), clock.Offset()
		} else {
			if s.mu.xid++; s.mu.xid < 0 {
				s.mu.xid = 1
			}
			c.request.Xid = s.mu.xid
		}
		c.stage = callSent
		out = c.request.AppendFrame(out)
		s.mu.sent = append(s.mu.sent, c)
	}
	return out, at != nil
}

// read reads answers and events until the link ends.
func (s *session) read(l *link) {
	defer close(l.done)
	for {
		frame, err := wire.ReadFrame(l.r, nil, frameMax)
		if err == nil {
			l.heard.Store(time.Now().UnixNano())
			err = s.received(frame)
		}
		if err != nil {
			switch l.err = err; {
			case l.silent.Load():
				l.err = errSilent
			case err == io.EOF:
				l.err = errors.New("the server closed the connection")
			}
			_ = l.conn.Close()
			return
		}
	}
}

func (s *session) received(frame []byte) error {
	var r wire.Reply
	body, err := r.DecodeHeader(frame)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.Xid == wire.XidNativeEvent {
		if err := r.DecodeBody(wire.OpNativeEvent, body); err != nil {
			return err
		}
		s.eventLocked(&r)
		return nil
	}
	if len(s.mu.sent) == 0 || s.mu.sent[0].request.Xid != r.Xid {
		return fmt.Errorf("%w: an answer with xid %d to no request", errProtocol, r.Xid)
	}
	c := s.mu.sent[0]
	if err := r.DecodeBody(c.request.Op, body); err != nil {
		return err
	}
	if q, n := &c.request.Native, &r.Native; c.request.Op == wire.OpNative && r.Err == wire.OK && (n.Kind != q.Kind || n.Failure == 0 && len(n.Results) != len(q.Ops)) {
		return fmt.Errorf("%w: an answer to another request", errProtocol)
	}
	if err := answered(&r); c.owed && unsettled(err) {
		return fmt.Errorf("the server has not done what this session owes: %w", err)
	}
	if s.mu.sent = s.mu.sent[1:]; len(s.mu.sent) == 0 {
		s.mu.sent = nil
	}
	s.uncountLocked(c)
	if r.Zxid > 0 {
		s.mu.zxid = max(s.mu.zxid, r.Zxid)
	}
	c.reply = r
	s.finishCallLocked(c, nil)
	return nil
}
