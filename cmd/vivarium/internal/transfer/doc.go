// Package transfer copies a subtree of one living tree into another over ZooKeeper's protocol,
// follows its changes until the cut-over, and compares both sides. The source is a server of
// ZooKeeper or Vivarium, the target one of Vivarium.
//
//	result, err := transfer.Run(ctx, transfer.Config{
//		From: transfer.Side{Servers: []string{"zk1:2181"}, Path: "/app"},
//		To:   transfer.Side{Servers: []string{"127.0.0.1:2181"}, Path: "/app"},
//	})
//	equal := err == nil && result.Equal()
//
// # How no change is missed
//
// Run arms a recursive watch at the source, and then walks through the subtree. What an event names
// is read again afterwards. Events alone are not enough:
//
//   - A server does not keep events for a client that is away. After each lost connection or
//     session, the whole subtree is walked again, with the watch armed before.
//   - The server of a new session may be behind that of the session before. So each session begins
//     with a sync, before the walk.
//   - A change of an ACL makes no event. A walk sees it, and there is one after the last sync.
//   - Servers before ZooKeeper 3.6 have no recursive watch. Then walks are all there is.
//
// A walk lists each znode and reads only those whose Stat differs from what was copied. Znodes are
// read in the order parent, child, and each is written when it has been read.
//
// # What is never done
//
// No request that could change a znode goes to the source: source sends only those in readOnly. At
// the target nothing outside the subtree changes, except for the ephemeral of a moment in apart. A
// znode that was there before is changed only with Config.Overwrite, and deleted only with
// Config.Prune. A copy into its own tree does not begin.
//
// # Memory
//
// Run keeps the path and three numbers of each znode, and two sums while it compares. It keeps the
// data of a few at a time.
//
// Read run.go first, then walk.go, apply.go and compare.go. side.go has what goes on when a
// connection or a session ends.
package transfer
