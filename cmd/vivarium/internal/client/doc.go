// Package client is a small client of ZooKeeper's protocol: what vivarium's shell needs, which is every request there is, and no more.
// The client in Go that is in use, go-zookeeper, lacks several of them.
//
// A Client keeps one session over one connection at a time. It goes round its servers in the order in which they were named until one
// takes it, and again when the connection is lost: with its session, its identities and its watches. What was sent and not answered
// when a connection is lost fails with ConnectionLoss and is never sent again, for it may have been carried out. What is yet to be sent
// waits, and fails with ConnectionLoss once no server of a whole round has taken the client, or one that did has lost it at once.
//
// # Goroutines
//
// New starts one, which connects and then reads; while there is a connection a second one writes. Config.Events is called by the first
// alone, so events come one after another, each before any later answer is seen. Close ends both and waits for them.
//
// # Limits
//
// No more than callsMax requests are under way. A frame of a server may have frameMax bytes. A server that says nothing for two thirds
// of the session's timeout, or does not finish a frame in that time, is left; one that sends what is no answer to anything is left at once.
//
// Read client.go first, then link.go and watches.go; servers.go and path.go are what strings mean, errors.go how codes are called.
package client
