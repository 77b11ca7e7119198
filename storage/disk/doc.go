// Package disk puts a node's directory behind one switch, so that no write reaches the directory
// after one has failed.
//
//	d, err := disk.Open(dir)
//	f, err := d.Create(filepath.Join(dir, "a"))
//	_, err = f.Write(data) // nil also if the disk failed: from then on f is in memory
//	select {
//	case <-d.Failed(): // tell nobody that the write succeeded; d.Err says why
//	default:
//	}
//
// It owns every file below that directory. The file systems of the log and of the image are thin
// adapters over one [Disk]. While all goes well, a Disk passes calls on to the operating system.
// The first mutating call that fails records its cause and throws the switch. From then on nothing
// below the directory changes. That call and all later ones take effect in memory only, where reads
// see them.
//
// The code above this package answers a failed write by panicking or by retrying for ever. Because
// of the switch it never sees a failed write. It ends in good order, and leaves on disk what a
// crash at that instant would have left. Code that reports a write to others must check
// [Disk.Failed] after the write.
//
// An error that answers the question (no such file, already exists, is a directory) is not a
// failure. A failed read returns its error, and so does [Disk.Discard], which removes what nobody
// needs. None of them throws the switch. Opening a directory counts as a change: it is half of making
// a change durable.
//
// # What must be there
//
// A directory that this Disk has made or opened, and has not removed, must exist. If one is missing
// from the path of a call, "no such file" is no answer: somebody else removed or moved the
// directory. That throws the switch with [ErrRemoved]. The Disk never makes the directory again,
// because that would hide the loss of its contents. Code that goes on in memory sees the directory
// as existing and empty.
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
// allows. Only then does the call throw the switch. The caller just sees a slow disk. Reads that
// need a descriptor wait too.
//
// An fsync is never repeated. The kernel reports once what it could not write, and from then on
// counts it as written. The next fsync would succeed and prove nothing. The same goes for an error
// of Close. EIO and all other errors do not wait, because nothing says that they pass. A call that
// waits holds no lock of this package. It ends at once when the patience is withdrawn or the switch
// is thrown.
//
// # What it promises
//
// Package disk never reports a failed write as done before Failed is closed. It never changes a
// file after the switch, although calls that were inside the kernel at that moment may still land.
// It never knows what the bytes mean. It carries no compatibility promise.
//
// After the switch it only reads the disk: the contents of files, and the names that memory does
// not know. A disk that no longer answers even reads delays only the callers that read. Package
// disk does not keep other processes out; the node's own lock does that.
//
// Invariants:
//
//  1. If a call saw the switch thrown, no call that starts after it changes the directory.
//  2. No mutating call that took effect in memory returns before Failed is closed. Failed is closed
//     after every function given to [Disk.OnFail] has returned. A View is the exception: it starts
//     frozen without having failed.
//  3. While the operating system works, no lock is held that another handle or name needs. So one
//     slow call delays nobody else. The exception, before the switch: calls that write to one log,
//     or truncate one file, wait for each other.
//  4. All handles and names of one file share one node. What one handle writes the others read,
//     even if some were opened before the switch and some after it.
//
// What is written after the switch stays in memory until the Disk is dropped. By then the node is
// shutting down, so nothing is evicted.
//
// Package disk starts no goroutine. Any number of goroutines may call it at once. Calls on the same
// name at the same time have no order except the one their callers give them.
package disk
