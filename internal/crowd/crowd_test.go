package crowd

import (
	"net"
	"net/http"
	"testing"
)

type address string

func (address) Network() string  { return "test" }
func (a address) String() string { return string(a) }

// Addresses of one network of IPv6 count as one, because whoever has one of them has all.
func TestOf(t *testing.T) {
	for from, want := range map[address]string{
		"192.0.2.1:7": "192.0.2.1", "[2001:db8::1:2]:7": "2001:db8::/64", "[2001:db8:0:0:9::]:8": "2001:db8::/64",
		"[::ffff:192.0.2.1]:7": "192.0.2.1", "[fe80::1%eth0]:7": "fe80::/64", "member-1": "member-1",
	} {
		if got := Of(from); got != want {
			t.Errorf("%s counts as %s, want %s", from, got, want)
		}
	}
}

func TestFits(t *testing.T) {
	files := openMax()
	if files == 0 {
		t.Skip("the number of files is not known here")
	}
	for _, c := range []struct{ bound, shards, want int }{
		{1, 1, 1}, {files, 1, max(files-nodeFiles-shardFiles, files/4)}, {-1, 1, max(files-nodeFiles-shardFiles, files/4)}, {-1, files, files / 4},
	} {
		if got, of := Fits(c.bound, c.shards); got != c.want || of != files {
			t.Errorf("a bound of %d beside %d shards: %d of %d, want %d", c.bound, c.shards, got, of, c.want)
		}
	}
}

// visitor is a connection that somebody makes.
type visitor struct {
	net.Conn
	from   string
	closed bool
}

func (v *visitor) RemoteAddr() net.Addr { return address(v.from) }
func (v *visitor) Close() error         { v.closed = true; return nil }

// visitors is a listener to which visitors come in turn.
type visitors struct {
	net.Listener
	come []*visitor
}

func (l *visitors) Accept() (net.Conn, error) {
	if len(l.come) == 0 {
		return nil, net.ErrClosed
	}
	v := l.come[0]
	l.come = l.come[1:]
	return v, nil
}

// M126, M151: connections make room for newcomers, the longest idle one of the greediest first. A part
// of a request changes nothing; those of somebody who may ask stay, and then the newcomer is closed.
func TestListener(t *testing.T) {
	in, told := &visitors{}, 0
	l := Listen(in, 4, 3, func(net.Addr) { told++ })
	from := func(host string) *visitor {
		v := &visitor{from: host + ":1"}
		in.come = []*visitor{v}
		if conn, err := l.Accept(); (err == nil) == v.closed || err == nil && conn != net.Conn(v) {
			t.Fatalf("accepted %v, %v", conn, err)
		}
		return v
	}
	want := func(what string, v *visitor, closed bool) {
		t.Helper()
		if v.closed != closed {
			t.Errorf("%s: closed is %v", what, v.closed)
		}
	}
	keep := func(v *visitor) {
		l.State(v, http.StateActive)
		l.Keep(l.Context(t.Context(), v))
	}
	a1, a2, a3 := from("192.0.2.1"), from("192.0.2.1"), from("192.0.2.1")
	keep(a1)
	l.State(a2, http.StateActive) // a stranger
	a4 := from("192.0.2.1")
	want("busy", a1, false)
	want("the longest idle one of an address with too many", a2, true)
	b1 := from("192.0.2.2")
	want("the fourth", b1, false)
	keep(b1)
	l.State(b1, http.StateIdle)
	c1 := from("192.0.2.3")
	want("the longest idle one of the address that has most", a3, true)
	l.State(a1, http.StateIdle)
	d1 := from("192.0.2.4")
	want("the one that was idle before", a4, true)
	for _, v := range []*visitor{a1, b1, c1, d1} {
		keep(v)
	}
	want("who comes while all are busy", from("192.0.2.5"), true)
	l.State(b1, http.StateClosed)
	l.State(a1, http.StateIdle)
	e1 := from("192.0.2.5")
	want("who comes again and again", from("192.0.2.5"), false)
	want("the older one of that address", e1, true)
	keep(a1)
	for _, v := range []*visitor{a1, b1, c1, d1} {
		want("busy", v, false)
	}
	if told != 5 {
		t.Errorf("told of %d, want 5", told)
	}
}
