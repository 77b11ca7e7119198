package transport

import (
	"context"
	"net"
)

// A Target is where to dial. It is the same type as transporttest.Target.
type Target = struct {
	Member  uint64 // who is expected there; zero if it may be anybody
	Address string // host:port
	Host    string // the name that a certificate there must carry; empty means the host of Address
}

// A Network makes the connections between members. TCP returns the real one; package transporttest
// has one in memory.
//
// Its methods may be called from several goroutines at once.
type Network interface {
	// Listen binds this member's address. The listener's Accept may fail and work again later.
	Listen() (net.Listener, error)

	// Dial connects to a target. It returns at the latest when ctx ends. The connection must
	// support deadlines.
	Dial(ctx context.Context, to Target) (net.Conn, error)

	// Resolve returns all addresses that a host:port stands for. Host of each Target is the name.
	// An IP address stands for itself.
	Resolve(ctx context.Context, address string) ([]Target, error)
}
