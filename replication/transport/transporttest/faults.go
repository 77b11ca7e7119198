package transporttest

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"os"
	"time"

	"github.com/vivarium-go/vivarium/internal/rank"
)

// A Fault is what is wrong with the link from one member to another. The zero Fault is none.
type Fault struct {
	Cut   bool          // nothing arrives, and neither end learns of it
	Delay time.Duration // every message takes that much longer; the order stays
	Loss  float64       // the share of messages that vanish, from 0 to 1
}

// Faults break what one member sends to the others. They stand between the transport and the
// network below it, above TLS. They act on the connections that the member dials, because all that
// it sends travels on those. A fault from member 1 to member 2 does not affect what 2 sends to 1,
// including the answers that the connections of 2 need.
//
// A cut is silent, like a cable that is pulled. All that is delayed, held or written while it lasts
// is lost, in both directions of the affected connections. (Bytes that the network below already
// has may still arrive, and a closed connection is noticed. Neither tells Raft anything.) Dials
// fail at once. When a cut heals, its connections break, because bytes are missing in them. The
// transport makes new ones with the next messages, within about a quarter of a second.
//
// A delay applies to handshakes and snapshots too. So a delay near the transport's timeouts, of 1.5
// s for an answer and 3 s for a handshake, works like a cut. It does not slow down the sender until
// [QueueMax] bytes are on their way.
//
// Loss affects only batches of messages, which Raft sends again. It affects no snapshots: the
// network below repeats what it lost, so half a snapshot does not vanish.
//
// If the address of a dial is a place, or has the name of a member in a mesh, such as
// member-2.test:1, the faults to that member count. If not, those to the member that is expected
// count.
//
// The methods may be called by several goroutines at once.
type Faults struct {
	mu struct {
		rank.Mutex[rank.Faults]
		links  map[uint64]*link
		places map[string]uint64 // by address
	}
}

// A link leads to one member. The lock of the Faults guards it.
type link struct {
	fault Fault
	held  bool
	conns map[*faultyConn]struct{}
}

// Errors of the connections that a cut affects.
var (
	ErrCut    = errors.New("link is cut")
	ErrHealed = errors.New("link was cut, and bytes sent meanwhile are missing")
)

// QueueMax is how many bytes may be delayed or held on a connection. Beyond it the sender waits, as
// for a full window of TCP.
const QueueMax = 16 << 20

// NewFaults returns Faults that break nothing yet.
func NewFaults() *Faults {
	f := &Faults{}
	f.mu.links, f.mu.places = make(map[uint64]*link), make(map[string]uint64)
	return f
}

// Place makes the faults to a member count for an address, whoever is there. Where members come and
// go, a test knows where they are before it knows who they are.
func (f *Faults) Place(address string, member uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.places[address] = member
}

// memberOf returns whose faults count for a dial.
func (f *Faults) memberOf(to Target) uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	if m := f.mu.places[to.Address]; m != 0 {
		return m
	}
	return memberOf(to)
}

// Set replaces the fault of the link to a member.
func (f *Faults) Set(to uint64, fault Fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	l := f.linkLocked(to)
	healed := l.fault.Cut && !fault.Cut
	l.fault = fault
	for c := range l.conns {
		switch {
		case fault.Cut:
			c.loseLocked()
		case healed:
			c.endLocked(ErrHealed)
		}
	}
}

// Hold keeps all that is sent to a member until Hold is called again with false. Then all arrives,
// in order, unless the transport has given the connection up. It does so after 1.5 s without an
// answer.
func (f *Faults) Hold(to uint64, held bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	l := f.linkLocked(to)
	l.held = held
	for c := range l.conns {
		c.wakeLocked()
	}
}

// linkLocked returns the link to a member.
func (f *Faults) linkLocked(to uint64) *link {
	l := f.mu.links[to]
	if l == nil {
		l = &link{conns: make(map[*faultyConn]struct{})}
		f.mu.links[to] = l
	}
	return l
}

// Network returns the network of a member with these faults.
func (f *Faults) Network(n Network) Network { return faultyNetwork{Network: n, faults: f} }

type faultyNetwork struct {
	Network
	faults *Faults
}

// Dial connects to a member unless the link there is cut.
func (n faultyNetwork) Dial(ctx context.Context, to Target) (net.Conn, error) {
	member := n.faults.memberOf(to)
	if n.faults.isCut(member) {
		return nil, &net.OpError{Op: "dial", Net: "mesh", Err: ErrCut} // as the real network has it
	}
	conn, err := n.Network.Dial(ctx, to)
	if err != nil {
		return nil, err
	}
	return n.faults.dialled(conn, member)
}

func (f *Faults) isCut(to uint64) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.linkLocked(to).fault.Cut
}

// dialled puts the faults on a new connection.
func (f *Faults) dialled(conn net.Conn, to uint64) (net.Conn, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	l := f.linkLocked(to)
	if l.fault.Cut {
		cut(conn)
		return nil, &net.OpError{Op: "dial", Net: "mesh", Err: ErrCut}
	}
	c := &faultyConn{Conn: conn, faults: f, link: l, changed: make(chan struct{})}
	l.conns[c] = struct{}{}
	return c, nil
}

// A faultyConn is the dialling end of a connection. One goroutine writes to it at a time.
type faultyConn struct {
	net.Conn
	faults *Faults
	link   *link

	// Owned by the writing goroutine.
	part  []byte // the start of a message whose end is not written yet
	wrote int    // whole messages written before it

	until time.Time // write deadline of Conn; owned by carryLoop while it runs, else by the writing goroutine

	// Guarded by faults.mu.
	queue    []parcel // messages on their way
	queued   int      // their bytes
	carrying bool     // carryLoop runs
	lost     bool     // the link was cut: all that is written vanishes
	over     error    // why the connection ended; nil before
	limit    time.Time
	changed  chan struct{} // closed and replaced when anything above or the link has changed
}

// A parcel is a message on its way.
type parcel struct {
	at    time.Time // no earlier delivery
	bytes []byte
}

// partKeep is how large the buffer for a part may stay.
const partKeep = 1 << 20

// Write sends whole messages, because a fault affects whole messages. It keeps the rest until more
// is written.
func (c *faultyConn) Write(b []byte) (int, error) {
	c.part = append(c.part, b...)
	for {
		n := messageSize(c.part, c.wrote)
		if n == 0 {
			return len(b), nil
		}
		if err := c.send(c.part[:n]); err != nil {
			return 0, err
		}
		c.wrote++
		c.part = append(c.part[:0], c.part[n:]...)
		if len(c.part) == 0 && cap(c.part) > partKeep {
			c.part = nil
		}
	}
}

// send sends a message or loses it.
func (c *faultyConn) send(b []byte) error {
	f := c.faults
	f.mu.Lock()
	defer f.mu.Unlock()
	for c.over == nil && !c.lost && c.queued > 0 && c.queued+len(b) > QueueMax {
		if !c.limit.IsZero() && !time.Now().Before(c.limit) {
			return os.ErrDeadlineExceeded
		}
		c.waitLocked(c.limit)
	}
	fault := c.link.fault
	switch {
	case c.over != nil:
		return c.over
	case c.lost:
		return nil
	case fault.Loss > 0 && isBatch(b, c.wrote) && rand.Float64() < fault.Loss:
		return nil
	case !c.carrying && !c.link.held && fault.Delay <= 0:
		f.mu.Unlock()
		defer f.mu.Lock()
		return c.carry(b)
	}
	c.queue = append(c.queue, parcel{at: time.Now().Add(fault.Delay), bytes: bytes.Clone(b)})
	c.queued += len(b)
	if !c.carrying {
		c.carrying = true
		go c.carryLoop()
	}
	return nil
}

// carryLoop writes the messages in the queue to the network below when they are due. It ends when
// the queue is empty, also because the connection is over.
func (c *faultyConn) carryLoop() {
	f := c.faults
	f.mu.Lock()
	defer f.mu.Unlock()
	for len(c.queue) > 0 {
		p := c.queue[0]
		if c.link.held {
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
		err := c.carry(p.bytes)
		f.mu.Lock()
		if err != nil {
			c.endLocked(err)
		}
	}
	c.carrying = false
}

const (
	// carryStep is how much the network below must accept within carryTimeout, as in transport.
	carryStep    = 256 << 10
	carryTimeout = 5 * time.Second
)

// carry writes a message to the network below.
func (c *faultyConn) carry(b []byte) error {
	for len(b) > 0 {
		// Setting a deadline costs as much as a small write; once a second is enough.
		if now := time.Now(); c.until.Sub(now) < carryTimeout-time.Second {
			c.until = now.Add(carryTimeout)
			if err := c.Conn.SetWriteDeadline(c.until); err != nil {
				return err
			}
		}
		n, err := c.Conn.Write(b[:min(len(b), carryStep)])
		if err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}

// waitLocked releases the lock until something has changed or until a time; the zero time is never.
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

// wakeLocked wakes all that wait in waitLocked.
func (c *faultyConn) wakeLocked() {
	close(c.changed)
	c.changed = make(chan struct{})
}

// loseLocked loses all that is on its way and all that will be written.
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
	delete(c.link.conns, c)
	cut(c.Conn)
	c.wakeLocked()
}

// cut closes a connection without the farewell of TLS, which would wait for a peer that does not
// read.
func cut(c net.Conn) {
	if s, ok := c.(interface{ NetConn() net.Conn }); ok {
		c = s.NetConn()
	}
	c.Close()
}

// Close ends the connection. All that is on its way is lost.
func (c *faultyConn) Close() error {
	c.faults.mu.Lock()
	defer c.faults.mu.Unlock()
	c.endLocked(net.ErrClosed)
	return nil
}

// Read reads what the peer answers. On a connection that was cut it returns nothing until the end.
func (c *faultyConn) Read(b []byte) (int, error) {
	for {
		n, err := c.Conn.Read(b)
		lost, over := c.state()
		switch {
		case err != nil && over != nil:
			return 0, over
		case err != nil || !lost:
			return n, err
		}
	}
}

func (c *faultyConn) state() (lost bool, over error) {
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

// SetWriteDeadline limits how long a Write waits for room in the queue. The connection below has
// deadlines of its own, because delayed messages reach it later.
func (c *faultyConn) SetWriteDeadline(t time.Time) error {
	c.faults.mu.Lock()
	defer c.faults.mu.Unlock()
	c.limit = t
	c.wakeLocked()
	return nil
}
