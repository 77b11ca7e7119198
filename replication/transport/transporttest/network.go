package transporttest

import (
	"context"
	"net"
)

// A Network makes the connections between members. It is the same interface as transport.Network.
type Network interface {
	Listen() (net.Listener, error)
	Dial(ctx context.Context, member uint64) (net.Conn, error)
}
