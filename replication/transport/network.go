package transport

import (
	"context"
	"net"
)

// A Network makes the connections between members. TCP returns the real one; package transporttest
// has one in memory.
//
// Its methods may be called from several goroutines at once.
type Network interface {
	// Listen binds this member's address. The listener's Accept may fail and work again later.
	Listen() (net.Listener, error)

	// Dial connects to a member. It returns at the latest when ctx ends. The connection must
	// support deadlines.
	Dial(ctx context.Context, member uint64) (net.Conn, error)
}
