package crowd

import (
	"crypto/tls"
	"net"
	"net/http"

	"github.com/vivarium-go/vivarium/internal/rank"
)

// A Listener accepts connections for a [net/http.Server] and closes those that are too many. Beyond a
// bound, a connection that waits for a request gives its place up: the longest idle one of the address
// that has most of them. If none waits, the newcomer is closed. So idle connections keep nobody out.
//
// State must be the server's ConnState. Any number of goroutines may use a Listener.
type Listener struct {
	net.Listener

	// Immutable.
	total, perAddress int
	closed            func(net.Addr) // told of each connection that is closed; it must not block

	mu     rank.Mutex[rank.Guests]
	guests []*guest // in the order in which they became idle; guarded by mu
}

// A guest is a connection. Guarded by the Listener's mu.
type guest struct {
	conn net.Conn
	who  string
	busy bool // it has sent a part of a request, or waits for the answer
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
		i := l.idleLocked(func(o *guest) bool { return same < l.perAddress || o.who == g.who })
		if i < 0 {
			return conn
		}
		out = l.guests[i].conn
		l.removeLocked(i)
	}
	l.guests = append(l.guests, g)
	return out
}

// idleLocked returns the index of the guest that gives its place up, or -1.
func (l *Listener) idleLocked(may func(*guest) bool) int {
	var who []string
	var at []int
	for i, g := range l.guests {
		if !g.busy && may(g) {
			who, at = append(who, g.who), append(at, i)
		}
	}
	i, _ := Greediest(who)
	if i < 0 {
		return -1
	}
	return at[i]
}

func (l *Listener) removeLocked(i int) { l.guests = append(l.guests[:i], l.guests[i+1:]...) }

// State is the server's ConnState.
func (l *Listener) State(conn net.Conn, s http.ConnState) {
	if t, ok := conn.(*tls.Conn); ok {
		conn = t.NetConn()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, g := range l.guests {
		if g.conn != conn {
			continue
		}
		switch s {
		case http.StateActive:
			g.busy = true
		case http.StateIdle:
			l.removeLocked(i)
			g.busy = false
			l.guests = append(l.guests, g)
		case http.StateClosed, http.StateHijacked:
			l.removeLocked(i)
		}
		return
	}
}
