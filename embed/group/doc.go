// Package group has who is here and what they say of themselves. Announce keeps an ephemeral znode
// up through the loss of sessions. Join and Watch are about the members of a directory. Follow and
// AwaitApplied are for a value that all members are known to have applied, and Group.Share for a
// rate that they keep together. A list of members is neither mutual exclusion nor a failure
// detector. For up to a session's timeout a dead member is listed, and a live one may be missing.
// What only one process may do needs a lock, an election, or a transaction with a check.
//
//	here := group.Join(node, "/workers", "worker-7", []byte("10.0.0.7:80"), group.Options{})
//	defer here.Close()
//
//	workers, err := group.Watch(ctx, session, "/workers", group.Options{})
//	...
//	for change, err := range workers.Changes(ctx) {
//		// change.Members, and who has joined, left, changed or come again
//	}
//
// # What an announcement promises
//
//   - While a session of its node can live, the znode is there, once, with the newest data. It goes
//     with a lost session. The next session creates it again, or replaces what the lost one has
//     left, in one transaction.
//   - It never touches the znode of another live session, and of two announcements of one path the
//     second ends with ErrTaken.
//   - Announcement.Status compares the clock: it does not say Present when others may already see
//     that the znode has gone.
//   - After Close, or when it has ended, nothing is left behind.
//
// A session that is only Suspended keeps its znode, so nobody leaves while there is no quorum. With
// Options.Linger a member whose process restarts quickly does not leave either.
//
// # What a group promises
//
// Members are those of one zxid, and never go back. They are local reads: they lag behind other
// members by replication, and by the whole cut while this node is cut off. Changes yields the
// present state first and never misses the newest one. It goes on across a gap in what this node
// knows. A member whose znode the session may not read is not shown; if a SetACL hides it, it has
// left.
//
// # Rollouts
//
// Each member that Follows a value is an ephemeral with the zxid of the write that it has applied.
// It joins first, and reads the value then. So when all members that are there have applied a
// write, nobody works with an earlier value. A member that is lost counts as gone, because the ctx
// of its apply has ended before. What it has sent elsewhere may still be on its way. Use
// embed.OpCheckMzxid or a token to keep that out.
//
// # Layouts
//
//	Announce              the path                         the data
//	Join, Curator         <dir>/<id>                       the member's data
//	Join, Party           <dir>/<32 hex digits>__party__   the id
//	Join, ShallowParty    <dir>/<32 hex digits>-<id>       the id
//	Follow                <path>                           the value by its Codec
//	                      <path>/members/<id>              8 bytes, big-endian: the Mzxid of
//	                                                       the value that it has applied
//
// These are the znodes of Curator's PersistentNode and GroupMember and of kazoo's two Parties, so
// members of all of them list one another through the gateway. By default a GroupMember has its IP
// address as data.
//
// # What it costs
//
// An Announcement has a session and two goroutines at most. At rest it costs nothing else. Each Set
// is one commit. A Group is a view of the directory: 1.5 MiB of room for events, and 225 bytes for
// a member besides its data. A Change copies the list of members, which is some milliseconds for
// 10,000 of them. N members that watch one another get N events each while all of them join: have
// one Group for each node, and few changes if there are many.
//
// Read announcement.go first, then keeper.go; group.go and rollout.go are about the others.
package group
