package clienttest

import (
	"context"
	"log/slog"
	"net"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/client"
	"github.com/vivarium-go/vivarium/embed/gateway"
	"github.com/vivarium-go/vivarium/embed/internal/inside"
	"github.com/vivarium-go/vivarium/engine/clock"
)

// Clock returns a clock that runs in virtual time inside a bubble of testing/synctest. The system's
// does not. Like the system's, it has a Quick clock.
func Clock() clock.Clock {
	began := time.Now()
	return clock.Clock{Boot: func() time.Duration { return time.Since(began) }, Wall: time.Now,
		Quick: func() (wall, mono time.Duration) {
			now := time.Now()
			return time.Duration(now.UnixNano()), now.Sub(began)
		}}
}

// Over is the sessionsflag.Over of this package's clients.
func Over(n *embed.Node, dial func(ctx context.Context) (net.Conn, error)) (embed.Opener, func(), error) {
	door, err := gateway.Start(n, gateway.Config{Listen: "127.0.0.1:0", ConnectionsPerAddress: -1, Handshakes: -1})
	if err != nil {
		return nil, nil, err
	}
	node := (*inside.Node)(n).Parts().Config
	c := client.Config{Servers: []string{door.Addr().String()}, SessionTimeout: node.SessionTimeout, RequestTimeout: node.RequestTimeout,
		Logger: slog.New(slog.DiscardHandler), Inside: &inside.ClientSeams{Clock: Clock()}}
	if dial != nil {
		c.Servers = []string{"member:1"}
		c.Dial = func(ctx context.Context, _ string) (net.Conn, error) { return dial(ctx) }
	}
	k, err := client.New(c)
	if err != nil {
		return nil, nil, err
	}
	return k, func() { _ = k.Close() }, nil
}
