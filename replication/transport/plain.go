package transport

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log/slog"
	"net"
	"sync/atomic"
)

// While the members of an ensemble change from plain text to TLS or back, some of them talk both.
// They dial with TLS first. A peer without TLS takes that for nonsense and closes the connection;
// then they dial in plain text. They tell what the others begin with by its first byte.

// errNoTLS says that the peer ended the handshake of TLS as one does that knows nothing of it.
var errNoTLS = errors.New("the peer does not seem to use TLS")

// endedWithoutTLS reports whether a handshake of TLS ended although nobody has refused a
// certificate or anything else in the words of TLS.
func endedWithoutTLS(err error) bool {
	var certificate *tls.CertificateVerificationError
	var alert *net.OpError
	return !errors.As(err, &certificate) && !errors.As(err, new(x509.CertificateInvalidError)) &&
		!(errors.As(err, &alert) && alert.Op == "remote error")
}

// dialPlain dials a peer without TLS.
func (n tlsNetwork) dialPlain(ctx context.Context, to Target) (net.Conn, error) {
	conn, err := n.below.Dial(ctx, to)
	if err != nil {
		return nil, err
	}
	return plainConn{conn}, nil
}

// A plainConn is a connection without TLS of a member that has TLS.
type plainConn struct{ net.Conn }

func (plainConn) isPlain() bool { return true }

// An eitherConn is accepted with TLS or without, as the peer begins. Its handshake tells.
type eitherConn struct {
	*secureConn
	below *begunConn
	plain atomic.Bool
}

func newEitherConn(conn net.Conn, server, client *tls.Config) *eitherConn {
	below := &begunConn{Conn: conn}
	return &eitherConn{secureConn: &secureConn{Conn: tls.Server(below, server), own: client.Certificates}, below: below}
}

// HandshakeContext waits for the peer's first byte. Then it does the handshake of TLS, if the peer
// has begun one.
func (c *eitherConn) HandshakeContext(ctx context.Context) error {
	var first [1]byte
	if _, err := io.ReadFull(c.below.Conn, first[:]); err != nil {
		return err
	}
	c.below.first = first[:]
	if first[0] == tlsHandshake[0] {
		return c.secureConn.HandshakeContext(ctx)
	}
	c.plain.Store(true)
	return nil
}

func (c *eitherConn) isPlain() bool { return c.plain.Load() }

func (c *eitherConn) Read(b []byte) (int, error) {
	if c.isPlain() {
		return c.below.Read(b)
	}
	return c.secureConn.Read(b)
}

func (c *eitherConn) Write(b []byte) (int, error) {
	if c.isPlain() {
		return c.below.Write(b)
	}
	return c.secureConn.Write(b)
}

// A begunConn has been read from. What was read is read again.
type begunConn struct {
	net.Conn
	first []byte
}

func (c *begunConn) Read(b []byte) (int, error) {
	if len(c.first) > 0 {
		n := copy(b, c.first)
		c.first = c.first[n:]
		return n, nil
	}
	return c.Conn.Read(b)
}

// warnPlain logs that this member, which has TLS, talks in plain text with a peer.
func (t *Transport) warnPlain(conn net.Conn, peer uint64) {
	if c, ok := conn.(interface{ isPlain() bool }); ok && c.isPlain() {
		t.notices.give(slog.LevelWarn, notice{event: "plain text with member", peer: peer})
	}
}
