// Package tree holds the data of one shard and says what each operation on it means. It covers
// paths, znodes and their Stat, create modes, sequence numbers, versions, permissions, quotas, and
// transactions that are applied completely or not at all.
//
//	t := tree.New(nil)
//	op := tree.Op{Kind: tree.KindCreate, Path: "/a", Data: []byte("v1")}
//	results, err := t.Apply(tree.Header{Zxid: 1, Time: now}, []tree.Op{op})
//	for _, change := range t.Changes() { … } // tell the watches
//	t.Publish()
//	data, stat, err := t.Get("/a")
//
// It makes no promise of compatibility to users of the library; they import embed.
//
// Every member applies the same transactions to its own tree and gets the same tree. So package
// tree never reads a clock, starts a goroutine, does I/O, or logs, and no result depends on the
// order of a map. It follows ZooKeeper: the same order of checks, the same Stat, the same sequence
// suffix, the same ACLs. testdata/README.md lists ZooKeeper's rules one by one.
//
// # Writing
//
// One goroutine at a time is the writer. A transaction takes three steps:
//
//  1. Apply or Reap checks the transaction and prepares its changes, which nobody can see yet.
//  2. The caller reads Changes, to tell the watches, and Over, to log which soft quotas are
//     exceeded. It calls Announce before it tells the first watch.
//  3. Publish makes the changes visible.
//
// The writer must call Publish before the next Apply or Reap. Mortals, Drain and Walk belong to the
// writer too.
//
// # Reading
//
// Any number of goroutines may read. They delay nobody, and wait only between Announce and Publish,
// for a znode that the transaction changes. The methods of Tree check no permission. A View shows
// the tree with somebody's permissions.
//
// A transaction becomes visible in one step, even to a reader that makes several reads: once one
// read has shown it, every later read does. Each read shows the state at one zxid that was visible
// at some moment during the call.
//
// A reader that needs many znodes at one zxid pins it. Then the writer continues as always, but
// keeps every version that is needed at that zxid or after it. See Pin.
//
// # Versions
//
// Each znode is a short chain of versions, the newest first. A version is immutable once published.
// When a transaction first changes a znode, the writer puts a new version at the head of the chain.
// If the transaction fails, the writer removes that version. A reader first loads the visible zxid.
// Then it takes the newest version that is not later, without looking into later ones:
//
//	visible = 11    /a  →  version 12 (not published)  →  version 11  →  trimmed
//	                /b  →  version 12 (not published)  →  version 7   →  trimmed
//	                /c  →  version 12 (first)          →  nothing
//
// When the next transaction begins, the writer trims the chains: it drops the predecessor of each
// version that has become visible. A reader that reaches the end of a trimmed chain is only late:
// it loads the visible zxid again, finds it advanced, and repeats the search. A chain that ends in
// nothing means that the znode did not exist before. A removed znode stays in the index until the
// next transaction begins, as a version that says so.
//
// Each znode counts the znodes below it, so a count costs nothing. Therefore a create or delete
// makes a version of every znode above it. These are few, and a transaction makes one version of
// each.
//
// # Differences from ZooKeeper
//
// Paths and names:
//
//   - Each znode has one path. ZooKeeper also knows the root as ""; here "" names no znode. The
//     root is counted once.
//   - Children are listed in byte order of their names. ZooKeeper promises no order.
//   - A create counter stops at 2147483647. ZooKeeper's counter goes on while earlier creates are
//     not applied yet, so a multi may count on to -2147483648. Here every suffix has ten digits.
//   - Creates below a znode with a full counter still change its Pzxid. In ZooKeeper they do not,
//     so a client that comes back does not learn that its child watch has missed them.
//
// Transactions:
//
//   - A failed transaction need not use up a zxid. Replicas agree on the failure by applying it.
//   - A check may be the only operation of a transaction.
//   - A transaction of several operations cannot contain a SetACL, or an unknown kind or mode. As
//     in ZooKeeper, it is refused before its first operation. Here the error says which rule it
//     breaks.
//   - ZooKeeper has no guard, no check of children, and no delete that names the creation.
//
// Lifetime:
//
//   - A create has one mode. In ZooKeeper the kind of a request and its flags may contradict each
//     other. One such combination stops servers, and they cannot start again.
//   - TTL znodes need no setting to enable them, because the TTL has a field of its own. ZooKeeper
//     keeps it in a field with another meaning.
//   - Reap removes a container or TTL znode only if nothing has changed since the reaper saw it,
//     and clients cannot request it. In ZooKeeper a write may come in between. There, a client that
//     sends the reaper's request deletes any empty znode, without permission.
//   - An ephemeral may have a TTL. If the ensemble decides that its session is lost, the znode
//     lingers: it becomes a TTL znode without an owner. If the znode is deleted, or its session is
//     closed, it goes like any other ephemeral.
//
// Quotas:
//
//   - Hard limits are always enforced. In ZooKeeper that is a setting, which would have to be the
//     same everywhere.
//   - The usage of a quota is what its stats znode says, also after loading. ZooKeeper counts again
//     when a server loads. Below nested quotas, or after a client wrote the stats, that server then
//     has other numbers than the rest.
//   - Limits and usages that cannot be read are ignored: no text can stop a replica.
//   - The caller logs that a soft limit is exceeded. Over reports it once for each transaction that
//     raised the usage.
//   - The whole tree also has a quota of memory, which the caller sets. It applies to the result of
//     a transaction as a whole. It is not a znode, so nobody can lift it by writing znodes.
//
// Permissions and bounds:
//
//   - No setting turns ACLs off, and no check is made earlier than in ZooKeeper's order.
//   - The caller decides which schemes exist, and may change them between two transactions. All
//     replicas must do so between the same two.
//   - The work of one operation is bounded, because every replica must do it. A stored ACL has at
//     most 100 entries and 64 KiB. A text of limits or usage is read up to 1 KiB. A transaction can
//     create the stats of only one quota.
package tree
