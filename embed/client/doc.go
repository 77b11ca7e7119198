// Package client opens sessions of an ensemble from a process that is not a member of it.
//
//	c, err := client.New(client.Config{Servers: []string{"10.0.0.1:2181", "10.0.0.2:2181"}})
//	...
//	session, err := c.NewSession(ctx, embed.SessionOptions{})
//
// A Client is an embed.Opener, as a node is, and its sessions are *embed.Session. So locks,
// elections and all other recipes work with either. The members need a gateway; see package
// embed/gateway. Sessions survive their connections: a session moves to another member, and its
// locks move along.
//
// # What differs from a member's session
//
//   - A read asks the connected member, and costs a round trip. It never goes back in time, and
//     shows every write of the session that has returned, also on the next member.
//   - If a connection breaks, writes without an answer fail with embed.ErrUnknownOutcome. A member
//     would send them again.
//   - The session becomes Suspended sooner: at most 0.57 of its timeout after a ping that was
//     answered. A member's session has 0.9.
//   - When a connection breaks, a persistent or recursive watch ends with embed.ErrWatchGap. A
//     WatchOnce goes on, or tells what has changed; one on a missing znode always tells
//     NodeCreated.
//   - A WatchOnce of a znode that the session may not read ends at once with embed.ErrNoAuth. A
//     member's does so when the znode changes. Of the session's own ephemerals all watches are told.
//   - A tenure guards transactions of its own session only.
//   - Children, Page and Ephemerals show at most 16 MiB, and a Walk 1 GiB, which it gathers before
//     it shows the first znode. More is embed.ErrTooLarge.
//   - The ensemble's metrics do not count what a client holds.
//
// What stays: a lock, a leadership or any other claim ends in this process before anyone else can
// be granted it, by this process's own clock. Tokens and guards hold. Nothing is left behind.
package client
