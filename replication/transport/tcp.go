package transport

import (
	"context"
	"crypto/tls"
	"net"
)

// TCP returns the network of members that reach each other over TCP.
//
// listen is the host:port to bind. addr says the host:port of a member and is asked at every dial. A nil
// config means plain text. With one, both sides of every connection show a certificate and verify the
// other's against the config's certificate authorities (RootCAs, ClientCAs; one serves for both if the
// other is nil, and without either Listen and Dial fail). The config is cloned.
func TCP(listen string, addr func(member uint64) string, config *tls.Config) Network {
	return &tcpNetwork{listen: listen, addr: addr}
}

type tcpNetwork struct {
	listen string
	addr   func(member uint64) string
}

func (n *tcpNetwork) Listen() (net.Listener, error) { return net.Listen("tcp", n.listen) }

func (n *tcpNetwork) Dial(ctx context.Context, member uint64) (net.Conn, error) {
	var d net.Dialer
	return d.DialContext(ctx, "tcp", n.addr(member))
}
