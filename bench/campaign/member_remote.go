package campaign

import (
	"context"
	"net"

	"github.com/vivarium-go/vivarium/embed"
	remote "github.com/vivarium-go/vivarium/embed/client"
	"github.com/vivarium-go/vivarium/embed/election"
)

// An opener opens sessions: the process's node, or a client of the gateways.
type opener = embed.Opener

// newRemote returns a client of the gateways at some addresses, over wires that can break. It is nil
// if there are none.
func newRemote(doors []string, w *wires) (opener, error) {
	if len(doors) == 0 {
		return nil, nil
	}
	return remote.New(remote.Config{Servers: doors, RequestTimeout: stretch(requestTimeout), Dial: func(ctx context.Context, address string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
		if err != nil {
			return nil, err
		}
		return w.over(conn)
	}})
}

// nodeOf returns the node that an opener is, or nil.
func nodeOf(o opener) *embed.Node {
	n, _ := o.(*embed.Node)
	return n
}

// sessionOf returns the session whose writes a leadership can guard. Over a connection that is its
// own session only.
func sessionOf(l *election.Leadership, _ *embed.Session) *embed.Session { return l.Session() }
