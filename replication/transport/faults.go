package transport

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"net"
	"os"
	"time"

	"github.com/vivarium-go/vivarium/internal/rank"
)

// A Fault is what is wrong with the way from one member to another. The zero Fault is nothing.
type Fault struct {
	Cut   bool          // nothing arrives, and nobody is told
	Delay time.Duration // every message takes that much longer; the order stays
	Loss  float64       // the share of messages that vanish, from 0 to 1
}

// Faults break what one member sends to the others, for tests. They stand between the transport and its
// carrier, above TLS, on the connections that the member dials, where all that it sends travels. So a fault on
// the way from 1 to 2 leaves all that 2 tells 1, with the answers that the connections of 2 need.
//
// A cut is silent, like a cable that is pulled: what is delayed or held on the way, and what is written while
// it lasts, is lost, in both directions of the connections concerned. (What the carrier had taken before may
// still arrive, and who closes a connection is noticed; neither tells Raft anything.) Dials fail at once.
// Healing breaks the connections that were cut, because bytes are missing in them; the transport makes new ones
// with the next messages, within about a quarter of a second.
//
// A delay keeps back handshakes and snapshots too, so one that comes near handshakeTimeout or answerPatience
// ends as a cut. It does not keep back who sends, until queueMax bytes are on their way.
//
// Loss takes batches of messages, which Raft sends again, and nothing else: over a carrier that repeats what
// was lost, half a snapshot does not vanish.
//
// The methods may be called by several goroutines at once.
type Faults struct {
	mu struct {
		rank.Mutex[rank.Faults]
		ways map[uint64]*way
	}
}

// A way leads to one member. The lock of the Faults guards it.
type way struct {
	fault Fault
	held  bool
	conns map[*faultyConn]struct{}
}

var (
	errCut    = errors.New("link is cut")
	errHealed = errors.New("link was cut, what was sent meanwhile is missing")
)

// queueMax is how many bytes may be delayed or held on a connection. Beyond it who writes waits, as for a full
// window of TCP.
const queueMax = 16 << 20

// NewFaults returns Faults that break nothing yet.
func NewFaults() *Faults {
	f := &Faults{}
	f.mu.ways = make(map[uint64]*way)
	return f
}

// Set replaces what is wrong with the way to a member.
func (f *Faults) Set(to uint64, fault Fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	w := f.wayLocked(to)
	healed := w.fault.Cut && !fault.Cut
	w.fault = fault
	for c := range w.conns {
		switch {
		case fault.Cut:
			c.loseLocked()
		case healed:
			c.endLocked(errHealed)
		}
	}
}

// Hold keeps all that is sent to a member from now on, until it is told to let go: then it arrives, in order,
// unless the transport has given the connection up meanwhile, which it does after answerPatience.
func (f *Faults) Hold(to uint64, held bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	w := f.wayLocked(to)
	w.held = held
	for c := range w.conns {
		c.wakeLocked()
	}
}

// wayLocked returns the way to a member.
func (f *Faults) wayLocked(to uint64) *way {
	w := f.mu.ways[to]
	if w == nil {
		w = &way{conns: make(map[*faultyConn]struct{})}
		f.mu.ways[to] = w
	}
	return w
}

// Network returns a member's network with these faults.
func (f *Faults) Network(n Network) Network { return faultyNetwork{Network: n, faults: f} }

type faultyNetwork struct {
	Network
	faults *Faults
}

// Dial connects to a member if the way there is not cut.
func (n faultyNetwork) Dial(ctx context.Context, member uint64) (net.Conn, error) {
	if n.faults.cut(member) {
		return nil, errCut
	}
	conn, err := n.Network.Dial(ctx, member)
	if err != nil {
		return nil, err
	}
	return n.faults.dialled(conn, member)
}

func (f *Faults) cut(to uint64) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.wayLocked(to).fault.Cut
}

// dialled puts the faults on a new connection.
func (f *Faults) dialled(conn net.Conn, to uint64) (net.Conn, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	w := f.wayLocked(to)
	if w.fault.Cut {
		cut(conn)
		return nil, errCut
	}
	c := &faultyConn{Conn: conn, faults: f, way: w, out: frameWriter{conn: conn}, changed: make(chan struct{})}
	w.conns[c] = struct{}{}
	return c, nil
}

// A faultyConn is the dialling end of a connection. One goroutine writes to it at a time.
type faultyConn struct {
	net.Conn
	faults *Faults
	way    *way

	// Owned by the writing goroutine.
	part  []byte // of what is written, the part that is not whole yet
	wrote int    // how many whole ones came before: a hello, a verdict, and then frames

	out frameWriter // owned by carryLoop while it runs, else by the writing goroutine

	// Guarded by faults.mu.
	queue    []parcel // on their way
	queued   int      // bytes of them
	carrying bool     // carryLoop runs
	lost     bool     // was cut: what is written vanishes
	over     error    // why nothing goes any more
	limit    time.Time
	changed  chan struct{} // closed and replaced when anything above or of the way has changed
}

// A parcel is something whole on its way.
type parcel struct {
	at    time.Time // not before
	bytes []byte
}

// Write sends what is whole, and keeps the rest until more is written: a fault is of whole messages.
func (c *faultyConn) Write(b []byte) (int, error) {
	c.part = append(c.part, b...)
	for {
		n := c.whole()
		if n == 0 {
			return len(b), nil
		}
		if err := c.send(c.part[:n]); err != nil {
			return 0, err
		}
		c.wrote++
		c.part = append(c.part[:0], c.part[n:]...)
		if len(c.part) == 0 && cap(c.part) > bufferKeep {
			c.part = nil
		}
	}
}

// whole returns the size of what part begins with, zero while some of it is missing.
func (c *faultyConn) whole() (n int) {
	switch b := c.part; {
	case c.wrote == 0 && len(b) >= helloHead:
		n = helloSize(b)
	case c.wrote == 1 && len(b) >= verdictSize:
		n = verdictSize + int(binary.BigEndian.Uint16(b[6:]))
	case c.wrote > 1 && len(b) >= headSize:
		n = headSize + int(binary.BigEndian.Uint32(b))
	}
	if len(c.part) < n {
		return 0
	}
	return n
}

// send sends something whole, or lets it vanish.
func (c *faultyConn) send(b []byte) error {
	f := c.faults
	f.mu.Lock()
	defer f.mu.Unlock()
	for c.over == nil && !c.lost && c.queued > 0 && c.queued+len(b) > queueMax {
		if !c.limit.IsZero() && !time.Now().Before(c.limit) {
			return os.ErrDeadlineExceeded
		}
		c.waitLocked(c.limit)
	}
	fault := c.way.fault
	switch {
	case c.over != nil:
		return c.over
	case c.lost:
		return nil
	case fault.Loss > 0 && c.wrote > 1 && kind(b[4]) == kindBatch && rand.Float64() < fault.Loss:
		return nil
	case !c.carrying && !c.way.held && fault.Delay <= 0:
		f.mu.Unlock()
		defer f.mu.Lock()
		return c.out.write(b, time.Now())
	}
	c.queue = append(c.queue, parcel{at: time.Now().Add(fault.Delay), bytes: bytes.Clone(b)})
	c.queued += len(b)
	if !c.carrying {
		c.carrying = true
		go c.carryLoop()
	}
	return nil
}

// carryLoop hands what is in the queue to the carrier, each when it is due, until the queue is empty or the
// connection is over.
func (c *faultyConn) carryLoop() {
	f := c.faults
	f.mu.Lock()
	defer f.mu.Unlock()
	for len(c.queue) > 0 {
		p := c.queue[0]
		if c.way.held {
			c.waitLocked(time.Time{})
			continue
		}
		if time.Now().Before(p.at) {
			c.waitLocked(p.at)
			continue
		}
		c.queue = c.queue[1:]
		c.queued -= len(p.bytes)
		c.wakeLocked()
		f.mu.Unlock()
		err := c.out.write(p.bytes, time.Now())
		f.mu.Lock()
		if err != nil {
			c.endLocked(err)
		}
	}
	c.carrying = false
}

// waitLocked lets go of the lock until something has changed or, if that is not the zero time, until then.
func (c *faultyConn) waitLocked(until time.Time) {
	changed := c.changed
	c.faults.mu.Unlock()
	defer c.faults.mu.Lock()
	var due <-chan time.Time
	if !until.IsZero() {
		timer := time.NewTimer(time.Until(until))
		defer timer.Stop()
		due = timer.C
	}
	select {
	case <-changed:
	case <-due:
	}
}

// wakeLocked lets those who wait look again.
func (c *faultyConn) wakeLocked() {
	close(c.changed)
	c.changed = make(chan struct{})
}

// loseLocked lets vanish what is on its way and what will be written.
func (c *faultyConn) loseLocked() {
	c.lost = true
	c.queue, c.queued = nil, 0
	c.wakeLocked()
}

// endLocked ends the connection at both ends. The first reason stays.
func (c *faultyConn) endLocked(why error) {
	if c.over != nil {
		return
	}
	c.over = why
	c.queue, c.queued = nil, 0
	delete(c.way.conns, c)
	cut(c.Conn)
	c.wakeLocked()
}

// Close ends the connection. What is on its way is lost.
func (c *faultyConn) Close() error {
	c.faults.mu.Lock()
	defer c.faults.mu.Unlock()
	c.endLocked(net.ErrClosed)
	return nil
}

// Read reads what comes back. Of a connection that was cut nothing does.
func (c *faultyConn) Read(b []byte) (int, error) {
	for {
		n, err := c.Conn.Read(b)
		lost, over := c.ends()
		switch {
		case err != nil && over != nil:
			return 0, over
		case err != nil || !lost:
			return n, err
		}
	}
}

func (c *faultyConn) ends() (lost bool, over error) {
	c.faults.mu.Lock()
	defer c.faults.mu.Unlock()
	return c.lost, c.over
}

// SetDeadline sets both deadlines.
func (c *faultyConn) SetDeadline(t time.Time) error {
	if err := c.SetWriteDeadline(t); err != nil {
		return err
	}
	return c.SetReadDeadline(t)
}

// SetWriteDeadline sets until when a Write waits for room on the way. The carrier has its own deadlines: what
// is delayed reaches it later.
func (c *faultyConn) SetWriteDeadline(t time.Time) error {
	c.faults.mu.Lock()
	defer c.faults.mu.Unlock()
	c.limit = t
	c.wakeLocked()
	return nil
}
