package transport

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"runtime/debug"
	"slices"
	"time"

	pb "github.com/lni/dragonboat/v4/raftpb"

	"github.com/vivarium-go/vivarium/internal/crowd"
	"github.com/vivarium-go/vivarium/internal/service"
)

const (
	// handshakesMax bounds the connections whose handshake is not done. Anyone who reaches the port
	// can make such a connection. Beyond the limit the oldest of the address that has most is closed,
	// because a member needs milliseconds and only others stay longer.
	handshakesMax = 64
	// servedMax bounds the connections of one member. dragonboat makes up to 64 for snapshots and a
	// few for messages. Any others are left over from connections that the other side has given up.
	servedMax = 128
	// acceptPauseMin and acceptPauseMax bound the pauses after failed Accepts, which double. The
	// usual cause is a lack of file descriptors, which needs time to pass.
	acceptPauseMin = 5 * time.Millisecond
	acceptPauseMax = time.Second
)

// A connQueue is a bounded number of connections, oldest first.
type connQueue struct {
	max   int
	conns []net.Conn
}

// add adds a connection. If the queue is full, add removes and returns another one: see greediest.
func (c *connQueue) add(conn net.Conn) (out net.Conn) {
	if len(c.conns) >= c.max {
		out, _ = c.greediest(conn)
		c.remove(out)
	}
	c.conns = append(c.conns, conn)
	return out
}

// greediest returns the oldest connection of who has most, newcomers included, and how many these are.
func (c *connQueue) greediest(newcomers ...net.Conn) (out net.Conn, most int) {
	all := slices.Concat(c.conns, newcomers)
	who := make([]string, len(all))
	for i, conn := range all {
		who[i] = crowd.Of(conn.RemoteAddr())
	}
	first, most := crowd.Greediest(who)
	if first < 0 {
		return nil, 0
	}
	return all[first], most
}

// of returns how many connections who has.
func (c *connQueue) of(who string) (n int) {
	for _, conn := range c.conns {
		if crowd.Of(conn.RemoteAddr()) == who {
			n++
		}
	}
	return n
}

// remove removes a connection if it is there.
func (c *connQueue) remove(conn net.Conn) {
	for i, k := range c.conns {
		if k == conn {
			c.conns = append(c.conns[:i], c.conns[i+1:]...)
			return
		}
	}
}

// acceptLoop accepts connections until Shut closes the listener.
func (t *Transport) acceptLoop() {
	var pause time.Duration
	for {
		conn, err := t.o.Listener.Accept()
		if t.shut.Load() {
			if err == nil {
				cut(conn)
			}
			return
		}
		if err == nil {
			pause = 0
			t.startServing(conn)
			continue
		}
		pause = min(max(2*pause, acceptPauseMin), acceptPauseMax)
		t.notices.give(slog.LevelError, notice{event: "cannot accept connections of other members"}, "cause", err)
		select {
		case <-time.After(pause):
		case <-t.ctx.Done():
			return
		}
	}
}

// startServing serves a connection on a goroutine of its own.
func (t *Transport) startServing(conn net.Conn) {
	if !t.adopt(conn) {
		return
	}
	t.mu.Lock()
	out := t.mu.handshaking.add(conn)
	t.mu.Unlock()
	if out != nil {
		cut(out)
	}
	if !t.spawn(func() { t.serveLoop(conn) }) {
		t.release(conn)
	}
}

// handshakeDone moves a connection from the queue of handshakes to the queue of its peer. If the peer
// was forgotten during the handshake, the connection ends: nothing would note its promises.
func (t *Transport) handshakeDone(conn net.Conn, peer uint64) {
	t.mu.Lock()
	t.mu.handshaking.remove(conn)
	if _, met := t.mu.peers[peer]; !met {
		t.mu.Unlock()
		cut(conn)
		return
	}
	c := t.mu.served[peer]
	if c == nil {
		c = &connQueue{max: servedMax}
		t.mu.served[peer] = c
	}
	out := c.add(conn)
	t.mu.Unlock()
	if out != nil {
		cut(out)
	}
}

// Heard returns how many members have a connection to this one.
func (t *Transport) Heard() (n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, c := range t.mu.served {
		if len(c.conns) > 0 {
			n++
		}
	}
	return n
}

// forget closes an accepted connection and removes it from all tables.
func (t *Transport) forget(conn net.Conn, peer uint64) {
	t.release(conn)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.mu.handshaking.remove(conn)
	t.mu.asking.remove(conn)
	if c := t.mu.served[peer]; c != nil {
		c.remove(conn)
	}
}

// serveLoop does the handshake of an accepted connection and then serves its frames until it ends.
func (t *Transport) serveLoop(conn net.Conn) {
	var h hello
	defer func() { t.forget(conn, h.Member) }()
	r := bufio.NewReaderSize(conn, readBuffer)
	h, err := t.acceptHandshakeInTime(conn, r)
	if h.purpose != forQuestion {
		t.recordVerdict(h.Member, err)
	}
	switch {
	case h.version > t.o.Highest:
		t.logNewer(conn, err)
	case err != nil:
		t.logNotAccepted(conn, err)
	case h.purpose == forQuestion:
		t.logQuestion(conn, t.serveQuestion(conn, r))
	default:
		t.handshakeDone(conn, h.Member)
		t.warnPlain(conn, h.Member)
		t.logEnd(h.Member, t.serveFrames(conn, r, h))
	}
}

// logEnd logs why the connection of a peer has ended, unless the peer closed it.
func (t *Transport) logEnd(peer uint64, err error) {
	switch {
	case err == nil || t.shut.Load():
	case errors.Is(err, errPanic):
		t.notices.give(slog.LevelError, notice{event: "panic over a message of a member", peer: peer}, "cause", err)
	case errors.Is(err, errFrame) || errors.Is(err, errChunk):
		t.notices.give(slog.LevelWarn, notice{event: "connection from member dropped", peer: peer}, "cause", err)
	default:
		t.notices.give(slog.LevelInfo, notice{event: "connection from member lost", peer: peer}, "cause", err)
	}
}

// errPanic is wrapped by the error that a handler's panic becomes.
var errPanic = errors.New("panic")

// acceptHandshakeInTime does the handshake of TLS, if there is one, and then acceptHandshake, with
// one deadline.
func (t *Transport) acceptHandshakeInTime(conn net.Conn, r *bufio.Reader) (hello, error) {
	if err := conn.SetDeadline(time.Now().Add(handshakeTimeout)); err != nil {
		return hello{}, err
	}
	if s, ok := conn.(interface{ HandshakeContext(context.Context) error }); ok {
		ctx, cancel := context.WithTimeout(t.ctx, handshakeTimeout+service.HandshakeGrace)
		defer cancel()
		if err := s.HandshakeContext(ctx); err != nil {
			return hello{}, insecure(err)
		}
	}
	h, err := t.acceptHandshake(conn, r)
	if err != nil || h.purpose == forQuestion { // the deadline goes on until the question is read
		return h, err
	}
	return h, conn.SetDeadline(time.Time{})
}

// An insecureError is an error of the handshake of TLS.
type insecureError struct{ error }

func (e insecureError) Unwrap() error { return e.error }

func insecure(err error) error {
	if h := (tls.RecordHeaderError{}); errors.As(err, &h) && string(h.RecordHeader[:4]) == helloMagic {
		err = fmt.Errorf("the peer does not use TLS and this member does: %w", err)
	}
	return insecureError{named(err)}
}

// logNewer logs that a peer offers a newer version of the protocol than this build speaks.
func (t *Transport) logNewer(conn net.Conn, err error) {
	address, host := addressOf(conn)
	t.notices.give(slog.LevelInfo, notice{event: "a peer offers a newer version of the protocol", host: host}, "address", address, "cause", err)
}

// addressOf returns the address of a peer, and who counts as one behind it.
func addressOf(conn net.Conn) (address, host string) {
	return conn.RemoteAddr().String(), crowd.Of(conn.RemoteAddr())
}

// logNotAccepted logs why a connection was not accepted.
func (t *Transport) logNotAccepted(conn net.Conn, err error) {
	if t.shut.Load() {
		return
	}
	address, host := addressOf(conn)
	n, level := notice{event: "connection not accepted", host: host}, slog.LevelWarn
	var no *Refusal
	switch bad := (insecureError{}); {
	case errors.As(err, &no):
		n.event, n.kind, level = "connection refused", no.Kind, no.level()
	case errors.As(err, &bad):
		n.event = "connection not secured"
	}
	cause := err
	if fault, ok := errors.AsType[*service.Fault](err); ok {
		level, cause = slog.LevelError, fmt.Errorf("%w\n%s", err, fault.Stack)
	}
	t.notices.give(level, n, "address", address, "cause", cause)
	if told, ok := err.(*refusedError); ok && no.Final() {
		t.askBack(told.peer)
	}
}

// askBack dials a member to learn whether it refuses this one. Anyone can connect to us and refuse
// us. Only the member at the address in our config counts, so its refusal goes to Options.Refused.
func (t *Transport) askBack(peer uint64) {
	now := time.Now()
	t.mu.Lock()
	due := now.Sub(t.mu.asked[peer]) >= redialRefused
	if due {
		t.mu.asked[peer] = now
	}
	t.mu.Unlock()
	if !due {
		return
	}
	t.spawn(func() {
		if conn, _, err := t.dialMember(t.ctx, peer, forMessages); err == nil {
			t.release(conn)
		}
	})
}

// contained turns a panic into an error. The peer's bytes caused it, so the connection ends and not
// the process.
func contained(err *error) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("%w: %v\n%s", errPanic, p, debug.Stack())
	}
}

// serveFrames reads the peer's frames until the connection ends. dragonboat's handlers run here.
func (t *Transport) serveFrames(conn net.Conn, r *bufio.Reader, h hello) (err error) {
	defer contained(&err)
	f := frameReader{r: r, max: t.frameMax(h.purpose), keep: bufferKeep}
	if h.purpose == forSnapshot {
		f.keep = chunkMax // every frame is large, and the connection ends soon
	}
	meters := t.meters(h.Member)
	chunks := chunkGate{g: &t.role.Load().gate, peer: h.Member}
	answer := frameWriter{conn: conn}
	for {
		k, payload, err := f.next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		meters.Received.Add(uint64(headSize + len(payload)))
		if t.shut.Load() {
			return nil
		}
		switch k {
		case kindBatch:
			err = t.acceptBatch(&h.Identity, payload, meters)
		case kindChunk:
			err = t.acceptChunk(&chunks, payload)
		case kindAsk:
			err = t.answerAsk(&answer, h)
		}
		if err != nil {
			return err
		}
	}
}

// answerAsk answers an ask. Instead, it ends a connection for messages whose member was removed
// since the handshake. The next handshake tells that member why.
func (t *Transport) answerAsk(w *frameWriter, h hello) error {
	if h.purpose == forMessages {
		if no := t.knows(h.Member); no != nil {
			return no
		}
	}
	return w.write(appendEmpty(nil, kindAnswer), time.Now())
}

// frameMax returns the limits for the frames of an accepted connection.
func (t *Transport) frameMax(p purpose) func(kind) int {
	return func(k kind) int {
		switch {
		case k == kindBatch && p == forMessages:
			return t.o.FrameMax
		case k == kindChunk && p == forSnapshot:
			return chunkMax
		case k == kindAsk:
			return 0
		}
		return -1
	}
}

// acceptBatch gives the messages that may pass to dragonboat.
func (t *Transport) acceptBatch(peer *Identity, payload []byte, meters *Meters) error {
	var b pb.MessageBatch
	if err := b.Unmarshal(payload); err != nil {
		return fmt.Errorf("%w: %w", errFrame, err)
	}
	r := t.role.Load()
	dropped, why := r.gate.batch(peer.Member, &b)
	if dropped > 0 {
		meters.Invalid.Add(uint64(dropped))
		t.notices.give(slog.LevelWarn, notice{event: "messages dropped", peer: peer.Member}, "count", dropped, "cause", why)
	}
	r.promises.note(peer, b.Requests, time.Now())
	if h := t.handlers.Load(); len(b.Requests) > 0 && h != nil && h.batch != nil {
		h.batch(b)
	}
	return nil
}

// acceptChunk gives a chunk to dragonboat.
func (t *Transport) acceptChunk(g *chunkGate, payload []byte) error {
	var c pb.Chunk
	if err := c.Unmarshal(payload); err != nil {
		return fmt.Errorf("%w: %w", errFrame, err)
	}
	if err := g.chunk(&c); err != nil {
		return err
	}
	if h := t.handlers.Load(); h == nil || h.chunk == nil || !h.chunk(c) {
		return fmt.Errorf("%w: dragonboat rejected number %d of index %d", errChunk, c.ChunkId, c.Index)
	}
	return nil
}
