package transport

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"
)

// Errors of a TLS configuration that would accept anyone.
var (
	ErrNoAuthority    = errors.New("tls: no certificate authority in RootCAs or ClientCAs")
	ErrNoVerification = errors.New("tls: InsecureSkipVerify without VerifyConnection or VerifyPeerCertificate")
)

// A tlsNetwork secures the connections of another network. It is immutable.
type tlsNetwork struct {
	below          Network
	server, client *tls.Config
	err            error // what is wrong with the configuration
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
	if n.err != nil {
		return nil, n.err
	}
	l, err := n.below.Listen()
	if err != nil {
		return nil, err
	}
	return tls.NewListener(l, n.server), nil
}

// Dial connects to a target. It has verified the certificate there when it returns.
func (n tlsNetwork) Dial(ctx context.Context, to Target) (net.Conn, error) {
	if n.err != nil {
		return nil, n.err
	}
	conn, err := n.below.Dial(ctx, to)
	if err != nil {
		return nil, err
	}
	secure := tls.Client(conn, clientConfig(n.client, to))
	if err := secure.HandshakeContext(ctx); err != nil {
		conn.Close()
		return nil, fmt.Errorf("tls with %s: %w", to.Address, named(err))
	}
	return &dialledConn{Conn: secure, own: n.client.Certificates}, nil
}

// Resolve resolves below.
func (n tlsNetwork) Resolve(ctx context.Context, address string) ([]Target, error) {
	return n.below.Resolve(ctx, address)
}

// A dialledConn says in plain words that the peer refuses this member's expired certificate. With
// TLS 1.3 the peer says so only after the handshake.
type dialledConn struct {
	*tls.Conn
	own []tls.Certificate
}

var errOwnExpired = errors.New("the peer refuses this member's certificate")

// errExpired is how an alert of the peer reads. Its type is not exported.
var errExpired = tls.AlertError(45).Error()

func (c *dialledConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	var alert *net.OpError
	if err == nil || !errors.As(err, &alert) || alert.Err == nil || alert.Err.Error() != errExpired {
		return n, err
	}
	own := ""
	if len(c.own) > 0 && c.own[0].Leaf != nil {
		own = ", " + validity(c.own[0].Leaf)
	}
	return n, fmt.Errorf("%w%s: %w", errOwnExpired, own, err)
}

// named adds to the error of a handshake whose certificate has expired, and until when it was
// valid. It may be that of an authority.
func named(err error) error {
	var bad x509.CertificateInvalidError
	if errors.As(err, &bad) && bad.Reason == x509.Expired {
		return fmt.Errorf("the peer's certificate, %s: %w", validity(bad.Cert), err)
	}
	return err
}

// validity names a certificate and says when it is valid. Nobody may have signed it, so its names
// are quoted and cut.
func validity(c *x509.Certificate) string {
	names := append([]string{c.Subject.CommonName}, c.DNSNames...)
	for _, ip := range c.IPAddresses {
		names = append(names, ip.String())
	}
	return fmt.Sprintf("%.100q, valid from %s until %s", strings.Trim(strings.Join(names, " "), " "),
		c.NotBefore.UTC().Format(time.RFC3339), c.NotAfter.UTC().Format(time.RFC3339))
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
