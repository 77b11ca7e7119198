// Package tree is what the data is and what each operation means: paths, znodes and their Stat, create modes,
// sequence numbers, versions, and transactions that happen entirely or not at all. It makes no promise of
// compatibility to users of the library; they import embed.
//
// It follows ZooKeeper: the same order of checks, the same Stat, the same sequence suffix. The differences:
//   - Paths have one spelling. ZooKeeper also knows the root as ""; here "" is the path of nothing.
//   - Children are listed in byte order of their names. ZooKeeper promises no order.
//   - A create counter that has reached 2147483647 does not advance, wherever it is read. ZooKeeper's does for as long
//     as the create before is not applied yet, so that one of its multis may count on to -2147483648. Here every suffix
//     is ten digits.
//
// It never reads a clock, starts a goroutine, does I/O, logs, or imports anything outside the standard library; the same
// transactions give the same tree on every replica, so nothing depends on the order of a map.
//
// # Writing
//
// One goroutine at a time is the writer. A transaction takes three steps: Apply checks and stages it, the caller reads
// Changes (and tells watches), Publish makes it visible. Apply must not be called again before Publish. Drain and Walk
// belong to the writer too.
//
// # Reading
//
// Any number of goroutines read, without locks; they wait for nobody and nobody waits for them. A transaction becomes
// visible in one step, also to a reader that makes several reads: once one read has shown it, every later one does.
// Each read shows the state at one zxid that was visible at some moment of the call.
//
// That holds because a znode is a short chain of versions, each immutable once published. A reader loads the visible
// zxid first and then takes the newest version that is not later:
//
//	visible = 11    /a  →  version 12 (applied, not published)  →  version 11  →  trimmed
//	                /b  →  version 12 (applied, not published)  →  version 7   →  trimmed
//	                /c  →  version 12 (first)                   →  nothing
//
// A version's predecessor is let go when the next transaction begins, which is after the version became visible. So a
// reader that comes to the end of a trimmed chain is late, not lost: it loads the visible zxid again and finds it moved.
// A chain that ends in nothing means that the znode did not exist before. A removed znode stays in the index, as a
// version marked deleted, until the next transaction begins.
//
// Read op.go, znode.go, then apply.go (the writer) and tree.go (the readers); children.go and page.go keep the children,
// image.go and load.go are the way to storage and back.
package tree
