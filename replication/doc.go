// Package replication runs the Raft groups of one node. It wraps dragonboat and is the only room that
// knows it. It carries no compatibility promise.
//
// It owns the directory lock and the identity file, the NodeHost with its lean settings, the log store
// around dragonboat's tan, the bridge between dragonboat's state machine and ours, proposals, the read
// barrier, leader changes and the logger bridge. It never hears of a path or a session: a command is a
// slice of bytes. It promises neither that a command that was proposed is applied nor that it is applied once;
// only that all members apply the same commands in the same order.
//
// # A frozen disk is a crashed disk
//
// dragonboat panics on I/O errors, on goroutines nobody can recover. So everything it writes goes through
// a Disk with a switch: the first mutating call that fails throws it, and that call and every later one
// succeed in memory only. Behind the switch
//  1. the transport is shut: it drops everything in both directions;
//  2. writes to the log, and the machine's Apply, Sync, Snapshot and Install, look at the switch after
//     their work. If it is thrown they wait until the shard is stopped and then return as if all were well.
//
// So nothing that is not on the disk is ever acknowledged, no error reaches dragonboat, Close ends, and the
// directory is what a crash at that instant would have left. Our own failures on dragonboat's goroutines (a
// machine that panics or cannot install a snapshot) throw the same switch. So does a log that cannot be read;
// there the goroutine that wanted to read has nothing to go on with and stays, and Close ends by its timeout.
//
// Reads do fail, and dragonboat panics on these too. Opening a directory never fails: the Disk
// waits for a descriptor first, and then has the directory in memory. If a read of contents fails
// on one of dragonboat's own goroutines, it throws the switch of this node and waits until its
// shards are stopped. Then it ends like a snapshot that was stopped (fs.go).
//
// dragonboat asks only with Stat and OpenDir whether something exists: a directory before it makes
// it, the final directory of a snapshot, the flag file in it, and tan's CURRENT. For these "no such
// file" is an answer, unless a directory of ours is missing on the way. Any other file that
// dragonboat opens to read must exist, because a record names it.
//
// NodeHost.Close is what frees the parked calls: it first stops every shard, which closes the channel that
// the shard's machine was given in Open, and only then waits for its workers. The log store has no stop
// channel of its own and uses those of the shards it was writing for; no shard is stepped before its machine
// was opened, so the channel is always there. Calls that dragonboat makes under the NodeHost's lock
// (bootstrap records, removal of a replica's data) never park, because Close needs that lock.
//
// # What cannot be contained
//
// A broken invariant inside dragonboat that panics on dragonboat's own goroutine ends the process: a bare
// panic there cannot be recovered from outside. dragonboat reports most of them through its logger first. A line that names
// a directory throws the switch of the node it belongs to. Any other throws those of all hosts of the process, because
// the logger cannot know whose it was. The goroutine is kept from going on. Close of such a host may end by its
// timeout and then says so. So it does if somebody removes the files of a snapshot while dragonboat is writing them.
//
// # What is global to the process
//
//   - dragonboat's logger factory, which can be set once per process. It is set at the first Open or CheckLog,
//     to a bridge that writes to the slog.Logger of the oldest open host: the lines of all hosts of a process
//     go there. A process that uses dragonboat itself has to set its own factory before: that one stays, its
//     lines are lost to us, and a broken invariant that dragonboat reports then ends in that logger's panic.
//     (Set after ours, dragonboat panics in the process's call.)
//   - VictoriaMetrics' global set: dragonboat's transport registers gauges there on creation, whose closures
//     keep the first transport of a process reachable after it is closed.
//   - dragonboat-soft-settings.json and dragonboat-hard-settings.json in the working directory.
//     dragonboat reads them while the process initialises its packages, before main, in every
//     binary that links this package, even if no node is ever started. It panics if a file is not
//     JSON, cannot be read, or has a value of the wrong type. A valid file changes settings. No
//     library can act earlier: packages are initialised in the order of their paths, and
//     dragonboat's comes before ours. So anyone who can write to the working directory can stop the
//     process from starting, or change how Raft works. docs/dependencies.md says what to do about
//     it. Open warns of such a file.
//
// # Goroutines
//
// dragonboat runs its own: one step worker, an apply worker per shard, snapshot workers (shards + 1), a close
// worker and some tickers. Ours are one compaction loop per host, which Close stops, and one barrier loop per
// shard that lives only while callers wait for a barrier. Callbacks: LeaderChanged comes from dragonboat's
// listener goroutine; a StateMachine's methods come from its workers, never two at a time except that a
// Snapshot is written while Apply goes on.
//
// # Layout of a node's directory
//
//	lock               held while the node runs
//	identity           who this directory belongs to (identity.go)
//	raft/<host name>/  dragonboat's; renamed to the present host name at every Open
//
// Read config.go first, then host.go with shard.go, proposal.go and barrier.go; then what stands between us and
// dragonboat: contain.go, machine.go, logstore.go, held.go, fs.go, registry.go, logger.go; compaction.go says how
// much log is kept. What happens before a host is opened: lock.go, identity.go, checklog.go, raftdir.go.
package replication
