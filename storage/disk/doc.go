// Package disk is a node's directory behind one switch.
//
// It owns every file below that directory: the log's and the image's file systems are thin adapters over one
// [Disk]. While all goes well a Disk passes calls on to the operating system. The first mutating call that
// fails records its cause and throws the switch, and from then on nothing below the directory changes any
// more: that call and all later ones take effect in memory only, where reads see them. So the code above,
// which answers a failed write by panicking or by retrying for ever, meets no failed write, comes to its end in
// good order, and leaves on disk what a crash at that instant would have left. Whoever could tell the world
// of a write has to look at [Disk.Failed] after it.
//
// An error that answers the question (no such file, it exists already, it is a directory) is not a
// failure. A failed read is returned as the error it is. Neither throws the switch. Opening a
// directory counts as a change: it is half of making one durable.
//
// # What must be there
//
// A directory that this Disk has made or opened, and has not removed, must exist. If one is missing
// from the path of a call, "no such file" is no answer: somebody else removed or moved the
// directory. That throws the switch with [ErrRemoved]. The Disk never makes the directory again,
// because that would hide the loss of its contents. Code that goes on in memory sees it there and
// empty.
//
// An open file outlives its name, and an fsync of it succeeds. So after each fsync of a log the
// Disk asks how many names the file has, and throws the switch if it has none. At most ten times a
// second, it asks the same about the open directories. That costs about a microsecond and looks up
// no path. A directory that was moved keeps its files, and writes to them are durable in the new
// place. The Disk notices such a move at the next call that needs a name.
//
// # What is waited for
//
// A full disk, a full quota and a lack of file descriptors pass when somebody makes room. A call
// that meets one has changed nothing, or has written part of its bytes at a known place, and nobody
// has seen the result. So the Disk repeats the call every 20 ms for as long as [Disk.Patience]
// says. Only then does the call throw the switch. The caller just sees a slow disk. Reads that need
// a descriptor wait too.
//
// An fsync is never repeated. The kernel reports once what it could not write, and from then on
// counts it as written. The next fsync would succeed and prove nothing. The same goes for an error
// of Close. EIO and all other errors do not wait, because nothing says that they pass. A call that
// waits holds no lock of this package. It ends at once when the patience is withdrawn or the switch
// is thrown.
//
// # What it promises
//
// Package disk never acknowledges a failed write as durable without Failed being closed first, never changes
// a file after the switch (calls that were already inside the kernel at that moment may still land), and never
// knows what the bytes mean. After the switch it only reads the disk: what a file holds, and which names
// there are where memory does not know; a disk that answers not even that delays only who asked. It does not
// keep other processes out: that is the lock of the node. It carries no compatibility promise.
//
// Invariants:
//  1. a call that starts after another one saw the switch thrown does not change the directory;
//  2. no mutating call that took effect in memory returns before Failed is closed, and Failed is closed after
//     every function given to [Disk.OnFail] has returned (a View, which is not failed but born frozen, is
//     the exception);
//  3. no lock that another handle or name needs is held while the operating system works, so one slow call
//     delays nobody else (but for those who write to a log or truncate a file: before the switch they take turns);
//  4. all handles and names of one file share one node, so what one writes the others read, also when
//     some were opened before the switch and some after it.
//
// What is written after the switch stays in memory until the Disk is dropped. A node is on its way down by
// then; nothing is evicted.
//
// No goroutine is started here. Everything may be called by many goroutines at once; the calls on one name at
// one time have no order among them but that of their callers.
//
// Read disk.go first, then switch.go, names.go, file.go and node.go, dirs.go and wait.go; what happens after the
// switch is in overlay.go, tree.go and extents.go.
package disk
