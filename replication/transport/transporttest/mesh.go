package transporttest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"github.com/vivarium-go/vivarium/internal/rank"
)

// A Mesh is a network in memory for an ensemble in one process. It opens no port.
//
// A dial goes to the member whose name is in the address, such as member-2.test:1. Without such a
// name it goes to the member that is expected. The name members.test stands for all members that
// listen.
//
// All methods may be called from several goroutines at once.
type Mesh struct {
	mu struct {
		rank.Mutex[rank.Mesh]
		listeners map[uint64]*meshListener
	}
}

// Errors of dials in a mesh.
var (
	ErrNoListener = errors.New("nobody listens")
	errCrowded    = errors.New("too many connections wait to be accepted")
	errInUse      = errors.New("member listens already")
)

const (
	// meshBacklog is how many connections may wait to be accepted.
	meshBacklog = 128
	// MeshBuffer is how many bytes may be under way in one direction of a connection.
	MeshBuffer = 256 << 10
)

// NewMesh returns a mesh on which nobody listens yet.
func NewMesh() *Mesh {
	m := &Mesh{}
	m.mu.listeners = make(map[uint64]*meshListener)
	return m
}

// Network returns the mesh as one member sees it. A member that was stopped may listen again
// through the same Network or a new one.
func (m *Mesh) Network(member uint64) Network { return meshNetwork{mesh: m, member: member} }

// meshNetwork is the mesh as one member sees it.
type meshNetwork struct {
	mesh   *Mesh
	member uint64
}

// Listen lets other members dial this one.
func (n meshNetwork) Listen() (net.Listener, error) {
	m := n.mesh
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.mu.listeners[n.member] != nil {
		return nil, &net.OpError{Op: "listen", Net: "mesh", Addr: meshAddr(n.member), Err: errInUse}
	}
	l := &meshListener{mesh: m, member: n.member, backlog: make(chan net.Conn, meshBacklog), closed: make(chan struct{})}
	m.mu.listeners[n.member] = l
	return l, nil
}

// Dial connects to another member. It never waits.
func (n meshNetwork) Dial(ctx context.Context, to Target) (net.Conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	member := memberOf(to)
	conn, err := n.mesh.dial(n.member, member)
	if err != nil {
		return nil, &net.OpError{Op: "dial", Net: "mesh", Addr: meshAddr(member), Err: err}
	}
	return conn, nil
}

func (m *Mesh) dial(from, to uint64) (net.Conn, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	l := m.mu.listeners[to]
	if l == nil {
		return nil, ErrNoListener
	}
	there, back := newPipe(), newPipe()
	near := &meshConn{in: back, out: there, local: meshAddr(from), remote: meshAddr(to)}
	far := &meshConn{in: there, out: back, local: meshAddr(to), remote: meshAddr(from)}
	select {
	case l.backlog <- far:
	default:
		return nil, errCrowded
	}
	return near, nil
}

// meshListener accepts for one member.
type meshListener struct {
	mesh    *Mesh
	member  uint64
	backlog chan net.Conn
	closed  chan struct{} // closed under mesh.mu
}

// Accept waits for a member that dials.
func (l *meshListener) Accept() (net.Conn, error) {
	select {
	case <-l.closed:
		return nil, net.ErrClosed
	default:
	}
	select {
	case c := <-l.backlog:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close ends Accept and closes the connections that nobody has accepted.
func (l *meshListener) Close() error {
	m := l.mesh
	m.mu.Lock()
	if m.mu.listeners[l.member] != l {
		m.mu.Unlock()
		return nil
	}
	delete(m.mu.listeners, l.member)
	close(l.closed)
	m.mu.Unlock()
	for {
		select {
		case c := <-l.backlog:
			c.Close()
		default:
			return nil
		}
	}
}

// Addr returns the name of the member.
func (l *meshListener) Addr() net.Addr { return meshAddr(l.member) }

// meshAddr is the address of a member in a mesh.
type meshAddr uint64

// Network returns "mesh".
func (meshAddr) Network() string { return "mesh" }

// String returns the name of the member.
func (a meshAddr) String() string { return fmt.Sprintf("member %d", uint64(a)) }

// A meshConn is one end of a connection in a mesh.
type meshConn struct {
	in, out       *pipe
	local, remote net.Addr
}

// Read reads what the other end wrote.
func (c *meshConn) Read(b []byte) (int, error) { return c.in.read(b) }

// Write sends bytes to the other end. It waits while MeshBuffer bytes are under way.
func (c *meshConn) Write(b []byte) (int, error) { return c.out.write(b) }

// Close ends both directions. The other end still reads the bytes that are under way.
func (c *meshConn) Close() error {
	c.out.closeWriter()
	c.in.closeReader()
	return nil
}

// CloseWrite ends the direction from this end to the other, as that of a net.TCPConn does.
func (c *meshConn) CloseWrite() error {
	c.out.closeWriter()
	return nil
}

// LocalAddr returns the name of the member at this end.
func (c *meshConn) LocalAddr() net.Addr { return c.local }

// RemoteAddr returns the name of the member at the other end.
func (c *meshConn) RemoteAddr() net.Addr { return c.remote }

// SetDeadline sets both deadlines.
func (c *meshConn) SetDeadline(t time.Time) error {
	c.in.readLimit.set(c.in, t)
	c.out.writeLimit.set(c.out, t)
	return nil
}

// SetReadDeadline sets the deadline of reads, including one that waits now.
func (c *meshConn) SetReadDeadline(t time.Time) error {
	c.in.readLimit.set(c.in, t)
	return nil
}

// SetWriteDeadline sets the deadline of writes, including one that waits now.
func (c *meshConn) SetWriteDeadline(t time.Time) error {
	c.out.writeLimit.set(c.out, t)
	return nil
}

// A pipe carries bytes in one direction of a connection.
type pipe struct {
	changed sync.Cond // uses mu; a field below has changed

	mu                     rank.Mutex[rank.Pipe]
	buf                    []byte // the bytes under way begin at begin
	begin                  int
	writerGone, readerGone bool
	readLimit, writeLimit  limit
}

func newPipe() *pipe {
	p := &pipe{}
	p.changed.L = &p.mu
	return p
}

// read waits for bytes, the end of the connection or the deadline.
func (p *pipe) read(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		switch {
		case p.readerGone:
			return 0, net.ErrClosed
		case p.readLimit.passed():
			return 0, os.ErrDeadlineExceeded
		case len(p.buf) > p.begin:
			n := copy(b, p.buf[p.begin:])
			p.begin += n
			p.changed.Broadcast()
			return n, nil
		case len(b) == 0:
			return 0, nil
		case p.writerGone:
			return 0, io.EOF
		}
		p.changed.Wait()
	}
}

// write appends bytes. It waits for room until the deadline.
func (p *pipe) write(b []byte) (n int, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		room := MeshBuffer - (len(p.buf) - p.begin)
		switch {
		case p.writerGone:
			return n, net.ErrClosed
		case p.readerGone:
			return n, io.ErrClosedPipe
		case p.writeLimit.passed():
			return n, os.ErrDeadlineExceeded
		case len(b) == 0:
			return n, nil
		case room > 0:
			k := min(room, len(b))
			p.putLocked(b[:k])
			b, n = b[k:], n+k
			p.changed.Broadcast()
			continue
		}
		p.changed.Wait()
	}
}

// putLocked appends bytes. It first moves the others to the front if the buffer would have to grow.
func (p *pipe) putLocked(b []byte) {
	if p.begin > 0 && len(p.buf)+len(b) > cap(p.buf) {
		p.buf = p.buf[:copy(p.buf, p.buf[p.begin:])]
		p.begin = 0
	}
	p.buf = append(p.buf, b...)
}

func (p *pipe) closeWriter() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.writerGone = true
	p.writeLimit.stop()
	p.changed.Broadcast()
}

func (p *pipe) closeReader() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.readerGone = true
	p.buf, p.begin = nil, 0
	p.readLimit.stop()
	p.changed.Broadcast()
}

// A limit is a deadline of a pipe, guarded by the pipe's lock.
type limit struct {
	at    time.Time
	timer *time.Timer // calls wake; nil before the first deadline
}

// set replaces the deadline; the zero time means none.
func (l *limit) set(p *pipe, t time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	l.stop()
	l.at = t
	if t.IsZero() {
		return
	}
	if l.timer == nil {
		l.timer = time.AfterFunc(time.Until(t), p.wake)
	} else {
		l.timer.Reset(time.Until(t))
	}
	p.changed.Broadcast()
}

func (l *limit) passed() bool { return !l.at.IsZero() && !time.Now().Before(l.at) }

func (l *limit) stop() {
	if l.timer != nil {
		l.timer.Stop()
	}
}

// wake makes all that wait check the deadline.
func (p *pipe) wake() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.changed.Broadcast()
}
