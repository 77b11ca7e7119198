// Package partition spreads the parts of a set over processes: the shards of a table, the
// partitions of a stream, the tenants of a service. Each part is worked on by one process at a
// time. It has no leader and no coordinator. It moves no data: fn loads what its part needs. Work
// that any process may take at any time needs a queue instead.
//
//	err := partition.Run(ctx, node, "/indexer", parts, partition.Options{},
//		func(ctx context.Context, part string, h *lock.Hold) error {
//			return index(ctx, part, h.Token()) // its ctx ends when the part moves, or is lost
//		})
//
// # What it promises
//
//   - A part has one owner at a time: its Hold is that of a lock.Mutex. All that package lock says
//     of a Hold is true of it: it ends on its own node first, and has a Token and a Guard. As with
//     any lock, a call that is already in flight needs the Token.
//   - While members come and go, only parts that change their owner stop. The others go on.
//   - A part that moves is handed over: its ctx ends with the cause ErrMoved, and the next owner
//     begins when fn has returned. If fn does not return, the part stays where it is.
//   - Each member owns at most its share of the parts, rounded up.
//   - A part is given only to a member that has it in its set. So the set may change by a rolling
//     restart, part by part.
//
// A member is told by the calls of fn and by their ctx, because a part is worked on for as long as
// it is owned. Owners shows all parts at a moment; there is no sequence of that.
//
// # Computed is desired, locked is effective
//
// Each member has an ephemeral znode, and sees those of the others. From them it computes the owner
// of each part. The computation is the same in all members, so they need not talk about it. A
// member queues for the locks of the parts that it should have, and gives up those that it should
// not have any more. For a moment two members may see different members, and so want the same part,
// or neither wants it. The lock decides meanwhile, and soon both see the same.
//
// Every member ranks with every part by a hash of the two. A part goes to the member that ranks
// highest and has room. So when a member comes, it takes its share from the others, and few other
// parts move. When it goes, its parts are spread over the rest.
//
// A newcomer counts Options.Settle after it was seen, so members that start together cost one move.
// Who leaves or is lost counts no longer at once.
//
// # When a member is lost
//
// The others take its parts over when the ensemble has expired its session, after the timeout
// embed.Config.SessionTimeout at the latest. Its own functions learn of it before: see Hold. A
// member that ends Run, by its ctx, hands its parts over without that wait. The others then begin
// as each fn returns.
//
// # Layout
//
//	<dir>/members/<id>      ephemeral; JSON: {"weight":1,"parts":["a","b"]}
//	<dir>/parts/<part>      a lock.Mutex; the note of its contenders is the member's id
//
// The parts' names are escaped as lock.Keys does. All znodes above the ephemerals are containers,
// so nothing stays when the last member has left. A znode below members that does not decode is a
// member that gets nothing; nobody removes it.
//
// # Beside kazoo
//
// With Options.Kazoo, a member works beside kazoo's SetPartitioner, with its layout, function and
// manner:
//
//	<dir>/party/<32 hex>-<id>   ephemeral, kazoo's ShallowParty; the id
//	<dir>/locks/<part>          kazoo's Lock
//
// Then each member takes every n-th part in order. When a member comes or goes, all give up all
// parts, and lock again when nobody has come or gone for Options.Settle. All have to know the same
// set, and a part whose name has a slash or a percent sign is another one to kazoo. What a member
// holds is a Hold all the same, so it has one owner at a time.
//
// The tests play kazoo's member by its source, at 4476a3b. Those in embed/gateway/clienttest run
// kazoo itself.
//
// # What it costs
//
// A part is a container and a contender, and a goroutine on its owner. In a test with three members
// of an ensemble in one process, 5,000 parts took 14 KB each. A move is two commits. The loss of a
// member with a thousand parts is a thousand of each, which travel in batches. Each member's znode
// has the whole set, at most embed.Config.MaxDataSize. A view of the members takes some 1.5 MiB in
// each process. Have ten times as many parts as members, or more: otherwise the shares are uneven.
//
// election.Balance does something similar for a few names: there every process stands for every
// name, so there is a candidate in waiting.
//
// Start reading in run.go; assign.go has the computation.
package partition
