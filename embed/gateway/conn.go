package gateway

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vivarium-go/vivarium/engine"
	"github.com/vivarium-go/vivarium/internal/rank"
	"github.com/vivarium-go/vivarium/internal/wire"
	"github.com/vivarium-go/vivarium/tree"
	"github.com/vivarium-go/vivarium/watch"
)

// A conn is one client's connection. One goroutine serves it, the reader: it decodes the requests in their order, submits writes, carries
// out reads, and queues the answers. Before it waits for more it sends those that are ready, in their order with the events that belong
// before each. What is ready later, the outcome of a write or an event, is sent by a goroutine that comes for it and goes. One at a time
// sends: see turn.
//
// A client of ZooKeeper's may rely on an order among answers and events: what comes before the answer of the request that armed its
// watch finds nobody to be told, and what a request's answer shows must not come before the events of it. So every answer has a place
// among the events. Those of reads, and of what is answered here, have it when they are queued. Those of writes, which are
// on their way then, and of all that is queued behind a write, get it when whoever sends comes to them, which may be when later writes are
// applied too: that of a write is by its zxid. Until then the reader carries out no read. So places are in the order of the queue.
type conn struct {
	// Immutable after newConn; those of the second group after the handshake.
	gate    *Gateway
	sock    net.Conn
	raw     net.Conn // what sock is over, if it is encrypted; or sock
	came    time.Time
	session *engine.Session
	watches watches

	// The reader's.
	in         input
	identities []tree.Identity

	figures   figures
	held      atomic.Int64 // bytes that the gateway counts for it
	greediest bool         // it is ended for them; guarded by the gateway's mu

	baton        baton
	lastPlace    watch.Place // of the last answer; the holder of the baton has it
	nudgeFunc    func()      // nudge
	stateChanged atomic.Bool // the session's state may have changed

	mu          rank.Mutex[rank.Connection]
	stage       stage
	progress    sync.Cond // the reader waits: an answer has left the queue, the baton is retired, or the connection has ended
	queue       []answer  // from head on
	head        int
	unplaced    int  // answers in the queue that have no place yet
	bytes       int  // of the requests or results in the queue
	deferEvents bool // the reader makes an answer: events that belong to no answer wait until it is queued
	last        lastAnswer
}

// A stage says how far a connection has come. The package doc draws the stages.
type stage uint8

const (
	stageGreeting stage = iota // the client has no session yet
	stageServing               // requests are answered
	stageClosing               // the client closes its session: the end of the session does not end the connection
	stageEnded                 // the socket is closed
)

// goToLocked moves the connection to its next stage, unless it has ended. A step that the package
// doc does not draw is a defect.
func (c *conn) goToLocked(next stage) {
	switch {
	case c.stage == stageEnded:
	case next == c.stage+1, next == stageEnded:
		c.stage = next
	default:
		panic(fmt.Sprintf("gateway: connection in stage %d goes to %d", c.stage, next))
	}
}

// lastAnswer is what cons shows of a connection.
type lastAnswer struct {
	op    wire.Op
	xid   int32
	zxid  int64
	at    time.Time
	after time.Duration
}

// Limits of one connection, and what happens at them.
const (
	queueBytesMax = 4 << 20  // bytes of requests under way and of answers not sent: the next request is not read until there are less
	readBytesMax  = 16 << 20 // bytes of a multiRead's results; with more the connection ends
	portionBytes  = 64 << 10 // bytes of answers and events that are sent in one go; what is queued behind waits
	queueKept     = 4        // answers an idle connection keeps room for
	answerBytes   = 512      // an answer in the queue, beside its bytes; one in a reply of several takes about as much
	lingerMax     = time.Second
	lingerBytes   = 64 << 10 // how much of what a client still sends is read at the end, lest the system lose the last answer
)

var errEnded = errors.New("connection ended")

func newConn(g *Gateway, raw net.Conn) *conn {
	sock := raw
	if g.tls != nil {
		sock = tls.Server(raw, g.tls)
	}
	c := &conn{gate: g, sock: sock, raw: raw, came: time.Now()}
	c.progress.L, c.nudgeFunc = &c.mu, c.nudge
	c.in.sock, c.in.hold = sock, c.hold
	return c
}

// serve is the connection's life.
func (c *conn) serve() {
	err := c.contain(c.converse)
	c.drop()
	c.in.freeBuffers()
	if c.session != nil {
		c.session.Busy(false)
		c.stopSending()
		c.session.OnTurn(nil)
		c.watches.End(nil)
		c.gate.outstanding.Add(-int64(len(c.queue) - c.head)) // nobody else is left
	}
	if err != nil && err != io.EOF && !errors.Is(err, errEnded) {
		c.gate.log.Debug("client's connection ended", "client", c.sock.RemoteAddr(), "cause", err)
	}
}

// contain is fn, or the panic under it as an error. That is a mistake of ours, or of one of the service's schemes; the process is the
// service's, so it costs no more than the connection. Locks that are held where that can happen are given back by defer.
func (c *conn) contain(fn func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			c.gate.log.Error("a client's connection panicked", "client", c.raw.RemoteAddr(), "cause", p, "stack", string(debug.Stack()))
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	return fn()
}

// drop ends the connection at once. Anybody may call it, at any time.
func (c *conn) drop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stage == stageEnded {
		return
	}
	c.goToLocked(stageEnded)
	c.progress.Broadcast()
	_ = c.raw.Close() // TLS would say goodbye, and wait until it has
}

// hold counts bytes that the connection holds more than before, or less. It may be called under any lock.
func (c *conn) hold(bytes int) {
	c.held.Add(int64(bytes))
	if all := c.gate.held.Add(int64(bytes)); bytes > 0 && all > int64(c.gate.cfg.Memory) {
		c.gate.relieve()
	}
}

// converse is the reader. It returns why the conversation ended.
func (c *conn) converse() error {
	if err := c.sock.SetDeadline(time.Now().Add(c.gate.cfg.FirstFrame)); err != nil {
		return err
	}
	head, err := c.in.head()
	if err != nil {
		return err
	}
	if wire.FourLetterWord(head) {
		return c.say(c.gate.word(string(head)))
	}
	frame, err := c.in.readFrame(c.gate.cfg.FrameSize)
	if err != nil {
		return err
	}
	if err := c.handshake(frame); err != nil {
		return err
	}
	c.in.before = c.sendHere
	c.in.limitSilence(c.session.Timeout())
	for err == nil {
		err = c.request()
	}
	if err != errLast {
		return err
	}
	if err := c.sendHere(); err != nil {
		return err
	}
	c.awaitRetired()
	return c.linger()
}

// say is all that is said to this client.
func (c *conn) say(text []byte) error {
	if err := c.send(text); err != nil {
		return err
	}
	return c.linger()
}

func (c *conn) send(b []byte) error {
	if err := c.sock.SetWriteDeadline(time.Now().Add(c.gate.cfg.WriteTimeout)); err != nil {
		return err
	}
	_, err := c.sock.Write(b)
	return err
}

// linger ends the sending side and reads on for a while: a connection that is closed with something unread is reset, and the client
// may not see what was sent before.
func (c *conn) linger() error {
	if half, ok := c.sock.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
	}
	_ = c.sock.SetReadDeadline(time.Now().Add(lingerMax))
	_, _ = io.CopyN(io.Discard, c.sock, lingerBytes)
	return nil
}

// handshake answers the connect request.
func (c *conn) handshake(frame []byte) error {
	var q wire.ConnectRequest
	if err := q.Decode(frame); err != nil {
		return err
	}
	c.identities = ownIdentities(c.sock)
	timeout := time.Duration(q.Timeout) * time.Millisecond
	ctx, cancel := c.gate.handshakeContext()
	defer cancel()
	var s *engine.Session
	var err error
	if q.SessionID == 0 {
		if err = c.gate.behind(q.LastZxid); err == nil {
			s, err = c.gate.open(ctx, timeout, c.identities)
		}
	} else if s, err = c.gate.resume(ctx, tree.SessionID(q.SessionID), q.Password, timeout, c.identities); err == nil {
		err = c.gate.behind(q.LastZxid) // now that this member has applied what the client saw before it came
	}
	if err == nil && c.gate.node.Config.Shards > 1 && q.LastZxid > 0 {
		_, err = s.Sync(ctx, "/") // on every shard: zxids of several do not compare, so behind cannot tell
	}
	password := [16]byte{}
	a := wire.ConnectResponse{Old: q.Old, Password: password[:]}
	if errors.Is(err, engine.ErrSessionExpired) {
		return errors.Join(c.say(a.AppendFrame(nil)), errEnded)
	} else if err != nil {
		return err
	}
	password = s.Password()
	a.SessionID, a.Timeout = int64(s.ID()), int32(s.Timeout().Milliseconds())
	if err := c.send(a.AppendFrame(nil)); err != nil {
		return err
	}
	c.attach(s, q.SessionID == 0)
	s.OnTurn(c.onStateChange)
	c.stateChanged.Store(true) // it may have changed before
	return nil
}

// attach begins to serve a session.
func (c *conn) attach(s *engine.Session, isNew bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.goToLocked(stageServing)
	c.session, c.watches = s, c.newWatches()
	if isNew {
		c.last = lastAnswer{op: wire.OpCreateSession, zxid: int64(s.ID()), at: time.Now()}
	}
}

// behind returns why a client is not served that has seen more than this member has applied. It does not know with several shards.
func (g *Gateway) behind(seen int64) error {
	if here := g.node.Engine.Visible(); g.node.Config.Shards == 1 && seen > int64(here) {
		return fmt.Errorf("the client has seen zxid %#x, this member only %#x", seen, here)
	}
	return nil
}

// room waits until another request may be read, and reports false if the connection has ended. A connection that has none under way may
// always have one.
func (c *conn) awaitRoom() bool {
	most := c.gate.cfg.Outstanding
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.stage != stageEnded && len(c.queue) > c.head &&
		(len(c.queue)-c.head >= most || c.bytes >= queueBytesMax || c.gate.outstanding.Load() >= int64(most)) {
		c.waitLocked()
	}
	return c.stage != stageEnded
}

// awaitPlaced waits until all writes have their answers sent, and what was queued behind them. It reports false if the connection has
// ended.
func (c *conn) awaitPlaced() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.stage != stageEnded && c.unplaced > 0 {
		c.waitLocked()
	}
	return c.stage != stageEnded
}

// waitLocked has the reader wait until an answer has left the queue, and sees to it that what is ready does.
func (c *conn) waitLocked() {
	if c.readyLocked() {
		c.nudge()
	}
	c.session.Busy(true)
	c.progress.Wait()
}

// readyLocked reports whether the first answer in the queue can be sent.
func (c *conn) readyLocked() bool {
	return c.head < len(c.queue) && c.queue[c.head].ready()
}

// push queues an answer.
func (c *conn) push(a *answer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pushLocked(a)
}

func (c *conn) pushLocked(a *answer) {
	c.deferEvents = false
	switch {
	case a.state != answerMade:
	case c.unplaced > 0:
		a.goTo(answerFollowing)
	default:
		a.placeAt(c.watches.Here())
	}
	if a.state != answerPlaced {
		c.unplaced++
	}
	c.bytes += a.bytes
	c.hold(a.bytes + answerBytes)
	if n := len(c.queue); n == cap(c.queue) && c.head > n/2 { // else a queue that is never empty would grow for ever
		left := copy(c.queue, c.queue[c.head:])
		clear(c.queue[left:])
		c.queue, c.head = c.queue[:left], 0
	}
	c.queue = append(c.queue, *a)
	c.gate.outstanding.Add(1)
}

// first returns the first answer in the queue, which stays there until pop, and false if there is none that is ready.
func (c *conn) first() (answer, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.readyLocked() {
		return answer{}, false
	}
	return c.queue[c.head], true
}

// pop takes the first answer out, which was made.
func (c *conn) pop(a *answer) {
	after := c.removeFirst(a, time.Now())
	c.gate.outstanding.Add(-1)
	c.figures.answered(after)
	c.gate.figures.answered(after)
	if a.readOnly {
		c.gate.reads.answered(after)
	}
}

func (c *conn) removeFirst(a *answer, now time.Time) (after time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.queue[c.head].state != answerPlaced { // a is a copy, which has its place by now
		c.unplaced--
	}
	c.queue[c.head] = answer{}
	c.head++
	if c.head == len(c.queue) {
		c.queue, c.head = c.queue[:0], 0
	}
	c.bytes -= a.bytes
	after = now.Sub(a.came)
	c.last = lastAnswer{op: a.reply.Op, xid: a.reply.Xid, zxid: a.reply.Zxid, at: now, after: after}
	c.progress.Signal()
	return after
}
