package crowd

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"slices"

	"github.com/vivarium-go/vivarium/internal/rank"
)

// A Listener accepts connections for a [net/http.Server] and closes those that are too many. Beyond a
// bound, a connection on which nobody who may ask is being answered gives its place up: of those of the
// address that has most, the one that has waited longest. If there is none, the newcomer is closed. So
// idle connections keep nobody out, and neither do requests of strangers, however slowly they come.
//
// State must be the server's ConnState, and Context its ConnContext. Any number of goroutines may use a
// Listener.
type Listener struct {
	net.Listener

	// Immutable.
	total, perAddress int
	closed            func(net.Addr) // told of each connection that is closed; it must not block

	mu     rank.Mutex[rank.Guests]
	guests []*guest // in the order in which they came or became idle; guarded by mu
}

// A guest is a connection. Guarded by the Listener's mu.
type guest struct {
	conn net.Conn
	who  string
	busy bool // it has a request of somebody who may ask
}

// Listen returns a Listener upon another one, with bounds in total and by address.
func Listen(l net.Listener, total, perAddress int, closed func(net.Addr)) *Listener {
	return &Listener{Listener: l, total: total, perAddress: perAddress, closed: closed}
}

// Accept returns the next connection within the bounds.
func (l *Listener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		out := l.admit(conn)
		if out != nil {
			l.closed(out.RemoteAddr())
			_ = out.Close()
		}
		if out != conn {
			return conn, nil
		}
	}
}

// admit notes a connection, and returns the one to be closed for it: perhaps itself.
func (l *Listener) admit(conn net.Conn) (out net.Conn) {
	g := &guest{conn: conn, who: Of(conn.RemoteAddr())}
	l.mu.Lock()
	defer l.mu.Unlock()
	same := 0
	for _, o := range l.guests {
		if o.who == g.who {
			same++
		}
	}
	if same >= l.perAddress || len(l.guests) >= l.total {
		i := l.idleLocked(g, func(o *guest) bool { return same < l.perAddress || o.who == g.who })
		if i < 0 {
			return conn
		}
		out = l.guests[i].conn
		l.removeLocked(i)
	}
	l.guests = append(l.guests, g)
	return out
}

// idleLocked returns the index of the guest that gives its place up for a newcomer, or -1.
func (l *Listener) idleLocked(newcomer *guest, may func(*guest) bool) int {
	var who []string
	var at []int
	for i, g := range l.guests {
		if !g.busy && may(g) {
			who, at = append(who, g.who), append(at, i)
		}
	}
	if len(who) == 0 {
		return -1
	}
	i, _ := Greediest(append(who, newcomer.who)) // never the newcomer, which is the last
	return at[i]
}

func (l *Listener) removeLocked(i int) { l.guests = append(l.guests[:i], l.guests[i+1:]...) }

type guestKey struct{}

// Context is the server's ConnContext.
func (l *Listener) Context(ctx context.Context, conn net.Conn) context.Context {
	return context.WithValue(ctx, guestKey{}, conn)
}

// Keep says that somebody who may ask has sent the request of a context. Its connection keeps its place
// until it is idle again.
func (l *Listener) Keep(ctx context.Context) {
	conn, _ := ctx.Value(guestKey{}).(net.Conn)
	l.mu.Lock()
	defer l.mu.Unlock()
	if i := l.findLocked(conn); i >= 0 {
		l.guests[i].busy = true
	}
}

// State is the server's ConnState.
func (l *Listener) State(conn net.Conn, s http.ConnState) {
	l.mu.Lock()
	defer l.mu.Unlock()
	i := l.findLocked(conn)
	if i < 0 {
		return
	}
	g := l.guests[i]
	switch s {
	case http.StateIdle:
		l.removeLocked(i)
		g.busy = false
		l.guests = append(l.guests, g)
	case http.StateClosed, http.StateHijacked:
		l.removeLocked(i)
	}
}

// findLocked returns the index of a connection, or -1.
func (l *Listener) findLocked(conn net.Conn) int {
	if t, ok := conn.(*tls.Conn); ok {
		conn = t.NetConn()
	}
	return slices.IndexFunc(l.guests, func(g *guest) bool { return g.conn == conn })
}
