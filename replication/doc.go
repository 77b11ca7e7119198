// Package replication runs the Raft groups of one node. It wraps dragonboat; no room outside it
// knows dragonboat. It carries no compatibility promise.
//
// It owns the directory lock, the identity file, and the NodeHost with its small settings. It owns
// the log store around tan, dragonboat's own log on disk, and the bridge between dragonboat's state
// machine and ours. It serves proposals, the read barrier and leader changes, and passes on
// dragonboat's log lines.
//
// It knows no paths and no sessions: a command is a slice of bytes. It does not promise that a
// proposed command is applied, nor that it is applied only once. It promises that all members apply
// the same commands in the same order.
//
// A member acknowledges an entry to the leader only after it has fsynced it: dragonboat's step
// worker calls SaveRaftState of our log store (logstore.go), and sends its answers after that. The
// leader sends an entry to the others while its own fsync runs.
//
// # A frozen disk is a crashed disk
//
// dragonboat panics on I/O errors, on goroutines where nobody can recover. So all its writes go
// through a Disk with a switch. The first mutating call that fails throws the switch. That call and
// every later one succeed in memory only. Once the switch is thrown,
//
//  1. the transport is shut: it drops everything in both directions;
//  2. writes to the log, and the machine's Apply, Sync, Snapshot and Install, check the switch
//     after their work. If it is thrown they wait until the shard is stopped, and then return as if
//     they had succeeded;
//  3. nothing more is applied, because the log may only have pretended to save it.
//
// So nothing is acknowledged that is not on the disk, no error reaches dragonboat, and Close ends.
// The directory is what a crash at that instant would have left. Our own failures on dragonboat's
// goroutines throw the same switch: a machine that panics, or that cannot install a snapshot. So
// does a log that cannot be read. The goroutine that wanted to read then has nothing to go on with.
// It stays, and Close ends by its timeout.
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
// NodeHost.Close frees the waiting calls. It first stops every shard, which closes the channel that
// the shard's machine received in Open. Only then does it wait for its workers. The log store has
// no stop channel of its own and uses those of the shards that it was writing for. No shard makes a
// step before its machine was opened, so the channel is always there. dragonboat makes some calls
// under the NodeHost's lock: bootstrap records, and the removal of a replica's data. These calls
// never wait, because Close needs that lock.
//
// # What cannot be contained
//
// A broken invariant inside dragonboat may panic on dragonboat's own goroutine. Such a panic cannot
// be recovered from outside, and the process ends. dragonboat reports most of them through its
// logger first. A line that names a directory throws the switch of the node it belongs to. Any
// other line throws the switches of all hosts of the process, because the logger cannot know whose
// it was. The goroutine is kept from going on. Close of such a host may end by its timeout, and
// then says so. The same happens if somebody removes the files of a snapshot while dragonboat is
// writing them.
//
// # What is global to the process
//
//   - dragonboat's logger factory, which can be set once per process. The first Open or CheckLog
//     sets it to a bridge. The bridge writes the lines of all hosts of the process to the
//     slog.Logger of the oldest open host. A process that uses dragonboat itself has to set its own
//     factory before. Its factory stays, and we do not see its lines. A broken invariant that
//     dragonboat reports then ends in that logger's panic. (If the process sets a factory after
//     ours, dragonboat panics in that call.)
//   - VictoriaMetrics' global set. dragonboat's transport registers gauges there when it is
//     created. Their closures keep the first transport of a process reachable after it is closed.
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
// dragonboat runs its own: one step worker, an apply worker per shard, snapshot workers (shards +
// 1), a close worker and some tickers. Ours are one compaction loop per host, which Close stops,
// and one barrier loop per shard, which lives only while callers wait for a barrier. A loop repeats
// to a shard that it is to take the leadership. It lives for a fifth of an election timeout. The
// herald tells learners what dragonboat does not (herald.go). It waits unless there are learners.
// dragonboat's listener goroutine calls LeaderChanged. Its workers call a StateMachine's methods, never two at a
// time, except that a Snapshot is written while Apply goes on.
//
// # Layout of a node's directory
//
//	lock               held while the node runs
//	identity           which member this directory belongs to (identity.go)
//	raft/<host name>/  dragonboat's; renamed to the present host name at every Open
package replication
