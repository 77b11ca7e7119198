package transport

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"sync/atomic"
	"time"

	"github.com/vivarium-go/vivarium/internal/certs"
	"github.com/vivarium-go/vivarium/internal/service"
)

// Errors of a TLS configuration that would accept anyone.
var (
	ErrNoAuthority    = errors.New("tls: no certificate authority in RootCAs or ClientCAs")
	ErrNoVerification = errors.New("tls: InsecureSkipVerify without VerifyConnection or VerifyPeerCertificate")
)

// A tlsNetwork secures the connections of another network. It is immutable.
type tlsNetwork struct {
	below        Network
	certificates *certs.Store
	plainToo     bool // for peers without TLS
}

// Over returns the network below, secured as tcp is, which TCP has returned. So a test's network is
// secured too.
func Over(tcp, below Network) Network {
	secure, ok := tcp.(tlsNetwork)
	if !ok {
		return below
	}
	secure.below = below
	return secure
}

// Listen listens below.
func (n tlsNetwork) Listen() (net.Listener, error) {
	if _, _, err := mutual(n.certificates.Config()); err != nil {
		return nil, err
	}
	l, err := n.below.Listen()
	if err != nil {
		return nil, err
	}
	return tlsListener{l, n}, nil
}

type tlsListener struct {
	net.Listener
	network tlsNetwork
}

// Accept returns a connection whose handshake has not begun.
func (l tlsListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	server, client, err := mutual(l.network.certificates.Config())
	if err != nil { // rare: Listen and each reload have checked it
		conn.Close()
		return nil, err
	}
	if l.network.plainToo {
		return newEitherConn(conn, server, client), nil
	}
	return &secureConn{Conn: tls.Server(conn, server), own: client.Certificates}, nil
}

// Dial connects to a target. It has verified the certificate there when it returns, unless the peer
// has no TLS and that is allowed.
func (n tlsNetwork) Dial(ctx context.Context, to Target) (net.Conn, error) {
	conn, err := n.dialSecure(ctx, to)
	if n.plainToo && errors.Is(err, errNoTLS) {
		return n.dialPlain(ctx, to)
	}
	return conn, err
}

func (n tlsNetwork) dialSecure(ctx context.Context, to Target) (net.Conn, error) {
	_, client, err := mutual(n.certificates.Config())
	if err != nil {
		return nil, err
	}
	conn, err := n.below.Dial(ctx, to)
	if err != nil {
		return nil, err
	}
	secure := &secureConn{Conn: tls.Client(conn, clientConfig(client, to)), own: client.Certificates}
	if err := secure.HandshakeContext(ctx); err != nil {
		conn.Close()
		if ctx.Err() == nil && endedWithoutTLS(err) {
			err = fmt.Errorf("%w: %w", errNoTLS, err)
		}
		return nil, fmt.Errorf("tls with %s: %w", to.Address, named(err))
	}
	return secure, nil
}

// Resolve resolves below.
func (n tlsNetwork) Resolve(ctx context.Context, address string) ([]Target, error) {
	return n.below.Resolve(ctx, address)
}

// A secureConn ends when the peer's certificate does. It says in plain words that the peer refuses
// this member's expired certificate. With TLS 1.3 the peer says so only after the handshake.
type secureConn struct {
	*tls.Conn
	own     []tls.Certificate
	ends    atomic.Pointer[time.Timer] // set by the handshake
	over    atomic.Bool                // nobody looks any more
	expired atomic.Bool
}

var (
	errOwnExpired  = errors.New("the peer refuses this member's certificate")
	errPeerExpired = errors.New("the peer's certificate has expired since the connection began")
)

// errExpired is how an alert of the peer reads. Its type is not exported.
var errExpired = tls.AlertError(45).Error()

// HandshakeContext does the handshake. Then it looks now and then whether the peer's certificate
// has expired; the clock may be set meanwhile.
func (c *secureConn) HandshakeContext(ctx context.Context) error {
	if err := service.Handshake(ctx, c.Conn); err != nil {
		return err
	}
	c.lookOn()
	return nil
}

// lookOn begins to look.
func (c *secureConn) lookOn() {
	c.ends.Store(time.AfterFunc(certs.Look, c.look))
	c.lookLater()
}

// look ends the connection if the peer's certificate has expired.
func (c *secureConn) look() {
	if time.Now().After(c.peer().NotAfter) {
		c.expired.Store(true)
		c.NetConn().Close()
		return
	}
	c.lookLater()
}

// lookLater looks again at the end of the certificate, or earlier.
func (c *secureConn) lookLater() {
	t := c.ends.Load()
	t.Reset(min(max(time.Until(c.peer().NotAfter), time.Millisecond), certs.Look))
	if c.over.Load() { // forget may have stopped the timer before Reset, or not have found it
		t.Stop()
	}
}

// Close says goodbye.
func (c *secureConn) Close() error {
	c.forget()
	return c.Conn.Close()
}

// cut closes the connection without a farewell.
func (c *secureConn) cut() {
	c.forget()
	c.NetConn().Close()
}

// forget no longer looks at the peer's certificate.
func (c *secureConn) forget() {
	c.over.Store(true)
	if t := c.ends.Load(); t != nil {
		t.Stop()
	}
}

// peer returns the certificate of the peer, after the handshake.
func (c *secureConn) peer() *x509.Certificate { return c.ConnectionState().PeerCertificates[0] }

func (c *secureConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		return n, err
	}
	c.forget()
	if c.expired.Load() {
		return n, fmt.Errorf("%w: %s", errPeerExpired, certs.Validity(c.peer()))
	}
	var alert *net.OpError
	if !errors.As(err, &alert) || alert.Err == nil || alert.Err.Error() != errExpired {
		return n, err
	}
	own := ""
	if len(c.own) > 0 && c.own[0].Leaf != nil {
		own = ", " + certs.Validity(c.own[0].Leaf)
	}
	return n, fmt.Errorf("%w%s: %w", errOwnExpired, own, err)
}

// named adds to the error of a handshake whose certificate has expired, and until when it was
// valid. It may be that of an authority.
func named(err error) error {
	var bad x509.CertificateInvalidError
	if errors.As(err, &bad) && bad.Reason == x509.Expired {
		return fmt.Errorf("the peer's certificate, %s: %w", certs.Validity(bad.Cert), err)
	}
	return err
}

// clientConfig adds the name that the certificate of a target must carry.
func clientConfig(c *tls.Config, to Target) *tls.Config {
	if c.ServerName != "" {
		return c
	}
	c = c.Clone()
	c.ServerName = to.Host
	if to.Host == "" {
		c.ServerName = hostOf(to.Address)
	}
	return c
}

// hostOf returns the host in a host:port.
func hostOf(address string) string {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return address
	}
	return host
}

// mutual makes one config for each role from the user's config. Both verify the other side.
func mutual(config *tls.Config) (server, client *tls.Config, err error) {
	roots, clients := config.RootCAs, config.ClientCAs
	if roots == nil {
		roots = clients
	}
	if clients == nil {
		clients = roots
	}
	if roots == nil {
		// The system's authorities would be used, and anyone who owns a domain would be accepted.
		return nil, nil, ErrNoAuthority
	}
	if config.InsecureSkipVerify && config.VerifyConnection == nil && config.VerifyPeerCertificate == nil {
		return nil, nil, ErrNoVerification
	}
	client = config.Clone()
	client.RootCAs = roots
	if client.GetClientCertificate == nil && len(client.Certificates) == 0 && client.GetCertificate != nil {
		client.GetClientCertificate = asClient(client.GetCertificate)
	}
	server = demanding(config, clients)
	if get := server.GetConfigForClient; get != nil {
		// The user may choose certificates per connection, but not whether to ask for them.
		server.GetConfigForClient = func(h *tls.ClientHelloInfo) (*tls.Config, error) {
			c, err := get(h)
			if c == nil || err != nil {
				return nil, err
			}
			return demanding(c, clients), nil
		}
	}
	return server, client, nil
}

// asClient lets a member dial with the certificate that it shows when it is dialled.
func asClient(get func(*tls.ClientHelloInfo) (*tls.Certificate, error)) func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
	return func(*tls.CertificateRequestInfo) (c *tls.Certificate, err error) {
		defer func() {
			if p := recover(); p != nil { // get looked at the connection, and there is none
				err = fmt.Errorf("GetCertificate without a client: %v; set GetClientCertificate too", p)
			}
		}()
		return get(&tls.ClientHelloInfo{})
	}
}

// demanding returns a server's config that asks for a certificate and verifies it. Sessions are not
// resumed, so every connection's certificate is checked.
func demanding(config *tls.Config, clients *x509.CertPool) *tls.Config {
	c := config.Clone()
	c.ClientAuth = tls.RequireAndVerifyClientCert
	c.ClientCAs = clients
	c.SessionTicketsDisabled = true
	return c
}
