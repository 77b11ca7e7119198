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
// listen is the host:port to bind. A nil config means plain text. A name is looked up at every
// dial. So it may come to stand for another address.
//
// With a config, both sides of every connection show a certificate. Each verifies the other's
// certificate against the authorities in RootCAs and ClientCAs; if one of these is nil, the other
// is used for both. A certificate must be valid for both roles. It must name Target.Host, or the
// host in Target.Address, or config.ServerName. TCP clones the config. Listen and Dial return
// ErrNoAuthority or ErrNoVerification if the config verifies no certificates.
func TCP(listen string, config *tls.Config) Network {
	n := &tcpNetwork{listen: listen}
	if config == nil {
		return n
	}
	secure := tlsNetwork{below: n}
	secure.server, secure.client, secure.err = mutual(config)
	return secure
}

// tcpNetwork is immutable.
type tcpNetwork struct {
	listen   string
	resolver *net.Resolver // resolves names; nil is the default one, tests have another
}

// Listen binds the address.
func (n *tcpNetwork) Listen() (net.Listener, error) {
	c := net.ListenConfig{KeepAliveConfig: tcpKeepAlive}
	return c.Listen(context.Background(), "tcp", n.listen)
}

// Dial connects to an address.
func (n *tcpNetwork) Dial(ctx context.Context, to Target) (net.Conn, error) {
	d := net.Dialer{KeepAliveConfig: tcpKeepAlive, Resolver: n.resolver}
	return d.DialContext(ctx, "tcp", to.Address)
}

// Resolve returns all IP addresses of a name.
func (n *tcpNetwork) Resolve(ctx context.Context, address string) ([]Target, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	ips, err := n.resolver.LookupHost(ctx, host)
	if err != nil {
		return nil, err
	}
	list := make([]Target, 0, len(ips))
	for _, ip := range ips {
		list = append(list, Target{Address: net.JoinHostPort(ip, port), Host: host})
	}
	return list, nil
}
