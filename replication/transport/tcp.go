package transport

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"time"
)

// tcpKeepAlive notices within half a minute that the other end of an idle connection is gone.
var tcpKeepAlive = net.KeepAliveConfig{Enable: true, Idle: 10 * time.Second, Interval: 5 * time.Second, Count: 3}

// Errors of a TLS configuration that would accept anyone.
var (
	ErrNoAuthority    = errors.New("tls: no certificate authority in RootCAs or ClientCAs")
	ErrNoVerification = errors.New("tls: InsecureSkipVerify without VerifyConnection or VerifyPeerCertificate")
)

// TCP returns the network of members that reach each other over TCP, IPv4 or IPv6.
//
// listen is the host:port to bind. addr returns the host:port of a member. It is called at every
// dial, so its answer may change, and a name may resolve to another address. A nil config means
// plain text.
//
// With a config, both sides of every connection show a certificate. Each verifies the other's
// certificate against the authorities in RootCAs and ClientCAs; if one of these is nil, the other
// is used for both. A certificate must be valid for both roles. It must name the host under which
// its member is dialled, or config.ServerName. TCP clones the config. Listen and Dial return
// ErrNoAuthority or ErrNoVerification if the config verifies no certificates.
func TCP(listen string, addr func(member uint64) string, config *tls.Config) Network {
	n := &tcpNetwork{listen: listen, addr: addr}
	if config != nil {
		n.server, n.client, n.err = mutual(config)
	}
	return n
}

// tcpNetwork is immutable.
type tcpNetwork struct {
	listen         string
	addr           func(member uint64) string
	server, client *tls.Config   // nil for plain text
	err            error         // what is wrong with the TLS configuration
	resolver       *net.Resolver // resolves names; nil is the default one, tests have another
}

// Listen binds the address.
func (n *tcpNetwork) Listen() (net.Listener, error) {
	if n.err != nil {
		return nil, n.err
	}
	c := net.ListenConfig{KeepAliveConfig: tcpKeepAlive}
	l, err := c.Listen(context.Background(), "tcp", n.listen)
	if err != nil || n.server == nil {
		return l, err
	}
	return tls.NewListener(l, n.server), nil
}

// Dial connects to a member. With TLS, it has verified the member's certificate when it returns.
func (n *tcpNetwork) Dial(ctx context.Context, member uint64) (net.Conn, error) {
	if n.err != nil {
		return nil, n.err
	}
	address := n.addr(member)
	d := net.Dialer{KeepAliveConfig: tcpKeepAlive, Resolver: n.resolver}
	conn, err := d.DialContext(ctx, "tcp", address)
	if err != nil || n.client == nil {
		return conn, err
	}
	secure := tls.Client(conn, clientConfig(n.client, address))
	if err := secure.HandshakeContext(ctx); err != nil {
		conn.Close()
		return nil, fmt.Errorf("tls with %s: %w", address, err)
	}
	return secure, nil
}

// clientConfig adds the name that the dialled member's certificate must carry.
func clientConfig(c *tls.Config, address string) *tls.Config {
	if c.ServerName != "" {
		return c
	}
	c = c.Clone()
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		host = address
	}
	c.ServerName = host
	return c
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
