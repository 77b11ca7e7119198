package transport

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
)

// names is a name server without a socket. Before it is set it knows no name. Afterwards every name
// is 127.0.0.1.
type names struct {
	known atomic.Bool
	asked atomic.Int32
}

func (n *names) resolver() *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		client, server := net.Pipe()
		go n.serve(server)
		return client, nil
	}}
}

// serve answers queries, each behind its length, until the client closes the connection.
func (n *names) serve(conn net.Conn) {
	defer conn.Close()
	for {
		var size [2]byte
		if _, err := io.ReadFull(conn, size[:]); err != nil {
			return
		}
		query := make([]byte, binary.BigEndian.Uint16(size[:]))
		if _, err := io.ReadFull(conn, query); err != nil {
			return
		}
		answer := n.answer(query)
		if _, err := conn.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(answer))), answer...)); err != nil {
			return
		}
	}
}

// answer turns a query into its answer: the header, the question, and the address if the query is
// for IPv4.
func (n *names) answer(query []byte) []byte {
	n.asked.Add(1)
	const header, ipv4 = 12, 1
	end := header + strings.IndexByte(string(query[header:]), 0) + 1 + 4 // name, type and class
	a := append([]byte(nil), query[:end]...)
	a[2] |= 0x80       // this is an answer
	clear(a[6:header]) // to one question, without more
	if !n.known.Load() {
		a[3] = a[3]&0xf0 | 3 // no such name
		return a
	}
	if binary.BigEndian.Uint16(a[end-4:]) != ipv4 {
		return a
	}
	a[7] = 1
	return append(a, 0xc0, header, 0, ipv4, 0, 1, 0, 0, 0, 0, 0, 4, 127, 0, 0, 1)
}

// The name of a pod resolves once the pod is ready, and its address changes when the pod moves. So
// names are looked up at every dial. An error meanwhile is logged once, not at every lookup.
func TestTCP_NameThatDoesNotResolveYet(t *testing.T) {
	t.Parallel()
	var at addresses
	b := at.onTCP(t, 2, "127.0.0.1", nil)
	_, port, err := net.SplitHostPort(at.of(2))
	if err != nil {
		t.Fatal(err)
	}
	at.m.Store(uint64(2), net.JoinHostPort("member-2.service.invalid", port))
	var dns names
	n := TCP("127.0.0.1:0", nil, false)
	n.(*tcpNetwork).resolver = dns.resolver()
	l, err := n.Listen()
	if err != nil {
		t.Fatal(err)
	}
	a := newPeer(t, Options{Self: identity(1), Address: at.of, Network: n, Listener: l})
	link := a.link(t, 2)
	const looks = 8 // each asks at most twice, for both kinds of addresses
	until(t, "several looks", func() bool {
		link.SendMessageBatch(beat(1, 2, 1))
		return dns.asked.Load() > 2*looks
	})
	if len(b.batches) != 0 {
		t.Fatal("a message passed")
	}
	if got := strings.Count(a.log.String(), "no such host"); got == 0 || got > looks/2 { // twice, if this took 10 s
		t.Errorf("said %d times, want once:\n%s", got, a.log)
	}
	dns.known.Store(true)
	until(t, "a message that passes", func() bool {
		link.SendMessageBatch(beat(1, 2, 1))
		return len(b.batches) > 0
	})
}
