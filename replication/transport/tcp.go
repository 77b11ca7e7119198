package transport

import (
	"context"
	"net"
	"time"

	"github.com/vivarium-go/vivarium/internal/certs"
)

// tcpKeepAlive notices within half a minute that the other end of an idle connection is gone.
var tcpKeepAlive = net.KeepAliveConfig{Enable: true, Idle: 10 * time.Second, Interval: 5 * time.Second, Count: 3}

// TCP returns the network of members that reach each other over TCP, IPv4 or IPv6.
//
// listen is the host:port to bind. No certificates mean plain text. With plainToo, a member that has
// certificates talks in plain text with peers that have none. A name is looked up at every dial. So
// it may come to stand for another address.
//
// With certificates, both sides of every connection show one. Each verifies the other's certificate
// against the authorities in RootCAs and ClientCAs; if one of these is nil, the other is used for
// both. A certificate must be valid for both roles. It must name Target.Host, or the host in
// Target.Address, or the config's ServerName. Each connection begins with the config of that
// moment, and ends when the peer's certificate does. Listen and Dial return ErrNoAuthority or
// ErrNoVerification if the config verifies no certificates.
func TCP(listen string, certificates *certs.Store, plainToo bool) Network {
	n := &tcpNetwork{listen: listen}
	if certificates == nil {
		return n
	}
	return tlsNetwork{below: n, certificates: certificates, plainToo: plainToo}
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
