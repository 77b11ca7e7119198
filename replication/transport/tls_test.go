package transport

import (
	"net"
	"testing"

	"github.com/vivarium-go/vivarium/internal/certs"
	"github.com/vivarium-go/vivarium/internal/testkit"
)

// A connection that is closed no longer looks at the peer's certificate, even if it is closed while
// its handshake ends, or while it looks. It would stay in memory until the certificate's end.
func TestSecureConn_ClosedWhileItLooks(t *testing.T) {
	config := memberTLS(t, testkit.NewAuthority(t, "authority"))
	l, err := TCP("127.0.0.1:0", certs.Fixed(config), false).Listen()
	testkit.Must(t, err)
	defer l.Close()
	served := make(chan net.Conn, 1)
	go func() {
		conn, err := l.Accept()
		if err == nil {
			err = conn.(*secureConn).HandshakeContext(t.Context())
		}
		if err != nil {
			t.Error(err)
		}
		served <- conn
	}()
	dialled, err := TCP("", certs.Fixed(config), false).Dial(t.Context(), Target{Address: l.Addr().String()})
	testkit.Must(t, err)
	for what, conn := range map[string]net.Conn{"dialled": dialled, "served": <-served} {
		c := conn.(*secureConn)
		cut(c)
		c.look() // its timer has run out just before
		if c.ends.Load().Stop() {
			t.Errorf("%s: it looks again after its end", what)
		}
		c.lookOn() // its handshake ends
		if c.ends.Load().Stop() {
			t.Errorf("%s: it begins to look after its end", what)
		}
	}
}
