package transporttest

import (
	"context"
	"net"
)

// A Target is where to dial. It is the same type as transport.Target.
type Target = struct {
	Member  uint64 // who is expected there; zero if it may be anybody
	Address string // host:port
	Host    string // the name that a certificate there must carry; empty means the host of Address
}

// A Network makes the connections between members. It is the same interface as transport.Network.
type Network interface {
	Listen() (net.Listener, error)
	Dial(ctx context.Context, to Target) (net.Conn, error)
	Resolve(ctx context.Context, address string) ([]Target, error)
}
