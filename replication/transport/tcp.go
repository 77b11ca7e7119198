package transport

import (
	"context"
	"crypto/tls"
	"net"
	"time"
)

// tcpKeepAlive notices within half a minute that the other end of an idle connection is gone.
var tcpKeepAlive = net.KeepAliveConfig{Enable: true, Idle: 10 * time.Second, Interval: 5 * time.Second, Count: 3}

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
	if config == nil {
		return n
	}
	secure := tlsNetwork{below: n, addr: addr}
	secure.server, secure.client, secure.err = mutual(config)
	return secure
}

// tcpNetwork is immutable.
type tcpNetwork struct {
	listen   string
	addr     func(member uint64) string
	resolver *net.Resolver // resolves names; nil is the default one, tests have another
}

// Listen binds the address.
func (n *tcpNetwork) Listen() (net.Listener, error) {
	c := net.ListenConfig{KeepAliveConfig: tcpKeepAlive}
	return c.Listen(context.Background(), "tcp", n.listen)
}

// Dial connects to a member.
func (n *tcpNetwork) Dial(ctx context.Context, member uint64) (net.Conn, error) {
	d := net.Dialer{KeepAliveConfig: tcpKeepAlive, Resolver: n.resolver}
	return d.DialContext(ctx, "tcp", n.addr(member))
}
