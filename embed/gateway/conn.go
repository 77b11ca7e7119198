package gateway

import (
	"context"
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
	"github.com/vivarium-go/vivarium/internal/crowd"
	"github.com/vivarium-go/vivarium/internal/rank"
	"github.com/vivarium-go/vivarium/internal/service"
	"github.com/vivarium-go/vivarium/internal/wire"
	"github.com/vivarium-go/vivarium/tree"
	"github.com/vivarium-go/vivarium/watch"
)

// A conn is one client's connection. The package doc says how its goroutines work together.
//
// Clients of ZooKeeper rely on an order among answers and events. An event that comes before the
// answer of the request that armed its watch finds no watcher in the client. And an answer must not
// show a change before the event of that change. So every answer has a place among the events.
//
// The answer to a read has its place when it is queued. A write is still in flight when its answer
// is queued. That answer gets its place when it is sent, perhaps after later writes were applied,
// so the place follows from the write's zxid. Answers that are queued behind it get their places
// after it. Until then the reader carries out no read. So the places are in the order of the queue.
type conn struct {
	// Immutable after newConn; session and watches after the handshake.
	gate    *Gateway
	sock    net.Conn
	raw     net.Conn      // the connection below TLS; without TLS the same as sock
	host    string        // who counts as one behind its address
	over    chan struct{} // closed when the stage is stageEnded
	arrived time.Time
	session session
	writes  *engine.Session // the session; nil if it may only read
	watches watches

	// Owned by the reader.
	in         input
	identities []tree.Identity
	exchange   Exchange // of SASL; nil until the client begins one
	reserved   int      // bytes counted for what a request is about to read; see reserve
	walk       *walk    // that goes on with the client's next request; nil if there is none
	proved     bool     // the exchange has proved who the client is

	figures figures
	held    atomic.Int64 // bytes that the gateway counts for this connection
	// greedy means that this connection is being ended for the memory it holds. It is guarded by the
	// gateway's mu.
	greedy bool

	baton        baton
	lastPlace    watch.Place // place of the last answer; owned by the holder of the baton
	nudgeFunc    func()      // nudge, as a value that is made once
	stateChanged atomic.Bool // the session's state may have changed
	isNative     atomic.Bool // it is a connection of package embed/client

	mu    rank.Mutex[rank.Connection]
	stage stage
	// progress wakes the reader when an answer leaves the queue, the baton is retired or the
	// connection ends.
	progress sync.Cond
	queue    []answer // its first answer is at head
	head     int
	unplaced int // answers in the queue that have no place yet
	bytes    int // of the requests or results in the queue
	// deferEvents means that the reader makes an answer. Events that belong to no answer wait until
	// it is queued.
	deferEvents bool
	last        lastAnswer
}

// A stage says how far a connection has come. The package doc draws the stages.
type stage uint8

const (
	stageGreeting stage = iota // the client has no session yet
	stageServing               // requests are answered
	// stageClosing means that the client closes its session, whose end does not end the connection.
	stageClosing
	stageEnded // the socket is closed
)

// goToLocked moves the connection to its next stage, unless it has ended. A step that the package
// doc does not draw is a defect and panics.
func (c *conn) goToLocked(next stage) {
	switch {
	case c.stage == stageEnded:
	case next == c.stage+1, next == stageEnded:
		c.stage = next
	default:
		panic(fmt.Sprintf("gateway: connection in stage %d goes to %d", c.stage, next))
	}
}

// lastAnswer is what the word cons shows of a connection.
type lastAnswer struct {
	op      wire.Op
	xid     int32
	zxid    int64
	at      time.Time
	latency time.Duration
}

// Limits of one connection, and what happens at them.
const (
	// queueBytesMax bounds the bytes of requests in flight and of answers not sent. At the bound no
	// request is read.
	queueBytesMax = 4 << 20
	// readBytesMax bounds the bytes of a multiRead's results. Beyond it the connection ends.
	readBytesMax = 16 << 20
	// portionBytes is how many bytes of answers and events are gathered before they are sent.
	portionBytes = 64 << 10
	// queueKept is the room for answers that an idle connection keeps.
	queueKept = 4
	// answerBytes is counted for an answer in the queue, beside its bytes, and for each result of a
	// multi or multiRead.
	answerBytes = 512
	// lingerMax and lingerBytes bound what linger reads.
	lingerMax   = time.Second
	lingerBytes = 64 << 10
)

var errEnded = errors.New("connection ended")

func newConn(g *Gateway, raw net.Conn) *conn {
	sock := raw
	if g.tls != nil {
		sock = tls.Server(raw, g.tls.Config())
	}
	c := &conn{gate: g, sock: sock, raw: raw, host: crowd.Of(raw.RemoteAddr()), arrived: time.Now(), over: make(chan struct{})}
	c.progress.L, c.nudgeFunc = &c.mu, c.nudge
	c.in.sock, c.in.hold, c.in.bytes = sock, c.hold, &g.meters.received
	return c
}

// serve runs the connection from its first byte to its end.
func (c *conn) serve() {
	err := c.contain(c.converse)
	c.drop()
	c.endWalk()
	c.in.freeBuffers()
	c.gate.readOnly.forget(c)
	if c.session != nil {
		c.session.Busy(false)
		c.stopSending()
		c.session.OnStateChange(nil)
		c.watches.End(nil)
		// No other goroutine changes the queue now.
		c.gate.outstanding.Add(-int64(len(c.queue) - c.head))
	}
	if err != nil && err != io.EOF && !errors.Is(err, errEnded) {
		c.logEnd(err)
	}
}

// contain runs fn and returns a panic under it as an error. Such a panic is a defect of the
// gateway, or of one of the service's schemes. The process belongs to the service, so the panic
// costs only the connection. Locks that fn may hold while it panics are unlocked by defer.
func (c *conn) contain(fn func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			c.panicked(p, string(debug.Stack()))
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	return fn()
}

// secure does the handshake of TLS, if there is one. The connection has its deadline.
func (c *conn) secure() error {
	sock, ok := c.sock.(*tls.Conn)
	if !ok {
		return nil
	}
	ctx, cancel := context.WithTimeout(c.gate.ctx, c.gate.cfg.FirstFrame+service.HandshakeGrace)
	defer cancel()
	err := service.Handshake(ctx, sock)
	if fault, ok := errors.AsType[*service.Fault](err); ok {
		c.panicked(fault, fault.Stack)
	}
	return err
}

// drop ends the connection at once. It may be called at any time, by any goroutine.
func (c *conn) drop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stage == stageEnded {
		return
	}
	c.goToLocked(stageEnded)
	close(c.over)
	c.progress.Broadcast()
	_ = c.raw.Close() // closing sock would send TLS's goodbye, and wait for that
}

// hold counts bytes that the connection holds more, or less if negative. It may be called under any
// lock.
func (c *conn) hold(bytes int) {
	c.held.Add(int64(bytes))
	if all := c.gate.held.Add(int64(bytes)); bytes > 0 && all > int64(c.gate.cfg.Memory) {
		c.gate.relieve()
	}
}

// reliefMax is how long a request waits while all connections hold too much.
const reliefMax = time.Second

// awaitMemory waits while all connections hold too much, and some are ended for it: what others ask
// for meanwhile could be more than that frees. It returns false if this one has ended.
func (c *conn) awaitMemory() bool {
	for begin := time.Now(); c.gate.held.Load() > int64(c.gate.cfg.Memory) && time.Since(begin) < reliefMax; {
		if c.hasEnded() {
			return false
		}
		c.session.Busy(true)
		time.Sleep(time.Millisecond)
	}
	return true
}

func (c *conn) hasEnded() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stage == stageEnded
}

// reserve counts bytes that a request is about to read, until it is answered, and waits while all
// connections hold too much. If what is read counted only once it is there, a thousand connections
// could read at once.
func (c *conn) reserve(bytes int) error {
	if bytes <= frameFree {
		return nil
	}
	c.reserved += bytes
	c.hold(bytes)
	if !c.awaitMemory() {
		return errEnded
	}
	return nil
}

// nameBytes is what the name of a child takes in an answer, about.
const nameBytes = 32

// reserveFor reserves what a read of one znode shows.
func (c *conn) reserveFor(o *wire.Operation) error {
	path, err := readPath(o.Path)
	if err != nil {
		return nil // it shows nothing, nor does another that is refused
	}
	switch o.Op {
	case wire.OpGetData:
		stat, _, _ := c.session.Exists(path)
		return c.reserve(int(stat.DataLength))
	case wire.OpGetChildren, wire.OpGetChildren2:
		stat, _, _ := c.session.Exists(path)
		return c.reserve(nameBytes * int(stat.NumChildren))
	}
	return nil
}

// unreserve ends what reserve counts: the answer counts by now.
func (c *conn) unreserve() {
	if c.reserved > 0 {
		c.hold(-c.reserved)
		c.reserved = 0
	}
}

// converse is the reader. It returns the reason why the conversation ended.
func (c *conn) converse() error {
	if err := c.sock.SetDeadline(time.Now().Add(c.gate.cfg.FirstFrame)); err != nil {
		return err
	}
	if err := c.secure(); err != nil {
		return err
	}
	head, err := c.in.head()
	if err != nil {
		return err
	}
	if _, ok := words[string(head)]; ok {
		return c.say(c.gate.word(string(head)))
	}
	frame, err := c.in.readFrame(c.gate.cfg.FrameSize)
	if err != nil {
		return err
	}
	if !c.gate.cfg.RequireSASL {
		if err := c.gate.known(c); err != nil {
			return err
		}
	}
	result, err := c.handshake(frame)
	c.gate.meters.handshakes[result].Inc()
	if err != nil {
		return err
	}
	c.in.before = c.sendHere
	c.in.limitSilence(c.session.Timeout())
	for err == nil {
		c.endOldWalk()
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

// say sends text as the only thing that this client gets.
func (c *conn) say(text []byte) error {
	c.hold(len(text))
	defer c.hold(-len(text))
	if err := c.send(text); err != nil {
		return err
	}
	return c.linger()
}

func (c *conn) send(b []byte) error {
	if err := c.sock.SetWriteDeadline(time.Now().Add(c.gate.cfg.WriteTimeout)); err != nil {
		return err
	}
	n, err := c.sock.Write(b)
	c.gate.meters.sent.Add(uint64(n))
	return err
}

// linger closes the sending side and reads on for a while. If a connection is closed with input
// unread, the system resets it, and the client may lose what was sent before.
func (c *conn) linger() error {
	if half, ok := c.sock.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
	}
	_ = c.sock.SetReadDeadline(time.Now().Add(lingerMax))
	_, _ = io.CopyN(io.Discard, c.sock, lingerBytes)
	return nil
}

// handshake answers the connect request. If it returns an error, the connection ends.
func (c *conn) handshake(frame []byte) (result, error) {
	var q wire.ConnectRequest
	if err := q.Decode(frame); err != nil {
		return resultFailed, err
	}
	c.identities = ownIdentities(c.sock)
	timeout := time.Duration(q.Timeout) * time.Millisecond
	if c.gate.readOnly.look() {
		return c.handshakeReadOnly(&q, timeout)
	}
	ctx, cancel := c.gate.handshakeContext(c.over)
	defer cancel()
	var s *engine.Session
	var err error
	if q.SessionID == 0 {
		if err = c.gate.checkSeen(q.LastZxid); err == nil {
			err = c.gate.holdUp(ctx)
		}
		if err == nil {
			s, err = c.gate.open(ctx, timeout, c.identities)
		}
	} else if s, err = c.gate.reattach(ctx, tree.SessionID(q.SessionID), q.Password, timeout, c.identities); err == nil {
		// By now this member has applied what the client saw before it came.
		err = c.gate.checkSeen(q.LastZxid)
	}
	if err == nil && c.gate.node.Config.Shards > 1 && q.LastZxid > 0 {
		// On every shard: zxids of different shards do not compare, so checkSeen cannot tell.
		_, err = s.Sync(ctx, "/")
	}
	password := [16]byte{}
	a := wire.ConnectResponse{Old: q.Old, Password: password[:]}
	if errors.Is(err, engine.ErrSessionExpired) {
		return resultExpired, errors.Join(c.say(a.AppendFrame(nil)), errEnded)
	} else if err != nil {
		return resultFailed, err
	}
	c.gate.readOnly.end() // before this session is served
	password = s.Password()
	a.SessionID, a.Timeout = int64(s.ID()), int32(s.Timeout().Milliseconds())
	if err := c.send(a.AppendFrame(nil)); err != nil {
		return resultFailed, err
	}
	c.attach(s, q.SessionID == 0)
	s.OnStateChange(c.onStateChange)
	c.stateChanged.Store(true) // it may have changed before
	if q.SessionID == 0 {
		return resultNew, nil
	}
	return resultReattached, nil
}

// attach begins to serve a session.
func (c *conn) attach(s session, isNew bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.goToLocked(stageServing)
	c.session, c.watches = s, c.newWatches()
	c.writes, _ = s.(*engine.Session)
	if isNew {
		c.last = lastAnswer{op: wire.OpCreateSession, zxid: int64(s.ID()), at: time.Now()}
	}
}

// errSeen matches what checkSeen returns.
var errSeen = errors.New("the client comes from a member that is ahead")

// checkSeen returns an error if a client has seen more than this member has applied. With several
// shards it cannot tell, and returns nil.
func (g *Gateway) checkSeen(seen int64) error {
	if here := g.node.Engine.Tables.Visible(); g.node.Config.Shards == 1 && seen > int64(here) {
		return fmt.Errorf("%w: it has seen zxid %#x, this member only %#x", errSeen, seen, here)
	}
	return nil
}
