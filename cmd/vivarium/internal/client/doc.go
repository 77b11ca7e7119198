// Package client is a small client of ZooKeeper's protocol, with what vivarium's shell needs: every
// request, and little else. The usual client in Go, go-zookeeper, lacks several requests.
//
//	c, err := client.New(client.Config{Servers: []string{"127.0.0.1:2181"}})
//	...
//	defer c.Close()
//	get := wire.Operation{Op: wire.OpGetData, Path: "/a"}
//	reply, err := c.Call(ctx, wire.Request{Operation: get})
//
// A Client keeps one session over one connection at a time. It tries its servers in the order in
// which they are named until one accepts it. When the connection is lost it tries them again, with
// its session, its identities and its watches.
//
// A request that was sent and not answered when the connection is lost fails with ConnectionLoss.
// The client never sends it again, because a server may have carried it out. A request that was not
// sent yet waits. It fails with ConnectionLoss after a whole round in which no server accepted the
// client, or when a server accepted the client and lost it at once.
//
// # Goroutines
//
// New starts a goroutine that connects and then reads. While there is a connection, a second one
// writes. Only the first calls Config.Events, so events come one after another, each before any
// later answer. Close ends both goroutines and waits for them.
//
// # Limits
//
// At most callsMax requests are in flight. A frame from a server has at most frameMax bytes. The
// client leaves a server that sends nothing, or does not finish a frame, for two thirds of the
// session's timeout. It leaves a server at once that replies to no request or sends what cannot be
// decoded.
package client
