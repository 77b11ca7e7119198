// Package tree is what the data is and what each operation means: paths, znodes and their Stat, create modes, sequence
// numbers, versions, permissions, quotas, and transactions that happen entirely or not at all. It makes no promise of
// compatibility to users of the library; they import embed.
//
// It follows ZooKeeper: the same order of checks, the same Stat, the same sequence suffix, the same ACLs. The table in
// testdata/README.md has its rules one by one. The differences:
//   - Paths have one spelling. ZooKeeper also knows the root as ""; here "" is the path of nothing. The root is counted
//     once.
//   - Children are listed in byte order of their names. ZooKeeper promises no order.
//   - A create counter that has reached 2147483647 does not advance, wherever it is read. ZooKeeper's does for as long
//     as the create before is not applied yet, so that one of its multis may count on to -2147483648. Here every suffix
//     is ten digits.
//   - A failed transaction need not use up a zxid: replicas agree on it by applying it.
//   - TTL znodes need no switch; nothing else has the place in a znode where ZooKeeper keeps their TTL.
//   - A mode is one thing. In ZooKeeper the kind of a request and its flags may say different things, in one combination
//     with the effect that servers stop and cannot start again.
//   - A check may be alone: it is a transaction of one operation like any other.
//   - What no transaction of several can have, a SetACL or an unknown kind or mode, is refused before the first operation,
//     as in ZooKeeper; the error says which it is.
//   - Reap removes a container or TTL znode only as it was seen, and is nothing a client can ask for. In ZooKeeper a write
//     may come in between, and a client that sends the reaper's request deletes any empty znode, whoever may delete it.
//   - An ephemeral may have a TTL. Then it lingers when its session is lost, which is for the ensemble to say: it becomes a TTL znode of
//     nobody. Deleted, or closed with its session, it goes as ever.
//   - A guard, a check of children, and a delete that names the creation are operations that ZooKeeper does not have.
//   - The tree as a whole has a quota too, of memory, which the caller sets. It counts what a transaction as a whole makes of
//     the tree, and is not a znode: nobody who may only write znodes can lift it.
//   - Hard limits of quotas are always enforced. In ZooKeeper that is a setting, which would have to be the same everywhere.
//   - The usage of a quota is what is written in its stats, also after loading. ZooKeeper counts anew when a server loads;
//     below nested quotas, or after a client wrote the stats, that gives other numbers than on servers that did not.
//   - Limits and usages that cannot be read are as if they were not there: no text keeps a replica from going on.
//   - That a soft limit is passed is for the caller to log: Over tells it once for a transaction that raised the usage.
//   - No setting turns ACLs off, and nothing is checked before its place in the order.
//   - A stored ACL has at most 100 entries and 64 KiB, a text of limits or usage is read up to 1 KiB, and a transaction can
//     create the stats of one quota: what every replica has to do for one operation is bounded.
//   - Which schemes count is up to the caller, who can change them between two transactions: replicas must do so together.
//
// It never reads a clock, starts a goroutine, does I/O, logs, or imports anything outside the standard library; the same
// transactions give the same tree on every replica, so nothing depends on the order of a map.
//
// # Writing
//
// One goroutine at a time is the writer. A transaction takes three steps: Apply or Reap checks and stages it, the caller
// reads Changes (and tells watches) and Over, Publish makes it visible. Neither must be called again before Publish.
// Mortals, Drain and Walk belong to the writer too.
//
// # Reading
//
// Any number of goroutines read, without locks; they wait for nobody and nobody waits for them. The methods of Tree ask
// for no permission, a View is the tree as somebody may see it. A transaction becomes
// visible in one step, also to a reader that makes several reads: once one read has shown it, every later one does.
// Each read shows the state at one zxid that was visible at some moment of the call.
//
// That holds because a znode is a short chain of versions, each immutable once published. The writer puts one at the head
// when it begins to make it, and takes it off if the transaction fails. A reader loads the visible zxid first and then takes the
// newest version that is not later, without a look at what later ones hold:
//
//	visible = 11    /a  →  version 12 (not published)  →  version 11  →  trimmed
//	                /b  →  version 12 (not published)  →  version 7   →  trimmed
//	                /c  →  version 12 (first)          →  nothing
//
// A version's predecessor is let go when the next transaction begins, which is after the version became visible. So a
// reader that comes to the end of a trimmed chain is late, not lost: it loads the visible zxid again and finds it moved.
// A chain that ends in nothing means that the znode did not exist before. A removed znode stays in the index, as a
// version that says so, until the next transaction begins.
//
// A reader that needs many znodes at one zxid pins it: then the writer goes on as always but lets nothing go that is of
// use at that zxid and after. See Pin.
//
// Each znode knows how many there are below it, so that a count costs nothing. A create or delete stages a version of
// every znode above: they are few, and a transaction stages each once.
//
// Read op.go, znode.go, then apply.go and write.go (the writer) and tree.go and view.go (the readers); acl.go and scheme.go
// are permissions, quota.go, weight.go and mortal.go what they say, index.go finds a path, children.go and page.go keep the children,
// image.go and load.go are the way to storage and back.
package tree
