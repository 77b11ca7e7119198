package campaign

import (
	"math/rand/v2"
	"net"
	"sync"
	"time"
)

// wires carry the connections of a process's clients to the gateways. They all break in the same
// way. A cut wire keeps what is sent and delivers it once it is mended. A lost message breaks its
// connection, because TCP loses nothing else.
type wires struct {
	mu      sync.Mutex
	link    link
	changed chan struct{} // closed when link changes; nil if nobody waits
}

func (w *wires) set(l link) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.link = l
	if w.changed != nil {
		close(w.changed)
		w.changed = nil
	}
}

// pass waits until something may be delivered, and reports whether it is.
func (w *wires) pass() bool {
	for {
		w.mu.Lock()
		l := w.link
		if l.Cut && w.changed == nil {
			w.changed = make(chan struct{})
		}
		changed := w.changed
		w.mu.Unlock()
		if !l.Cut {
			time.Sleep(l.Delay)
			return rand.Float64() >= l.Loss
		}
		<-changed
	}
}

// over returns a connection that reaches what far reaches, over a wire.
func (w *wires) over(far net.Conn) (net.Conn, error) {
	near, mid, err := pair()
	if err != nil {
		far.Close()
		return nil, err
	}
	go w.carry(far, mid)
	go w.carry(mid, far)
	return near, nil
}

// carry delivers from one connection to another, until one of them ends. It ends both.
func (w *wires) carry(to, from net.Conn) {
	defer to.Close()
	defer from.Close()
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if n == 0 && err != nil || !w.pass() {
			return
		}
		if _, err := to.Write(buf[:n]); err != nil {
			return
		}
	}
}

// pair returns the two ends of a connection within the process.
func pair() (a, b net.Conn, err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, nil, err
	}
	defer l.Close()
	if a, err = net.Dial("tcp", l.Addr().String()); err != nil {
		return nil, nil, err
	}
	for {
		if b, err = l.Accept(); err != nil {
			a.Close()
			return nil, nil, err
		}
		if b.RemoteAddr().String() == a.LocalAddr().String() {
			return a, b, nil
		}
		b.Close() // a stranger
	}
}
