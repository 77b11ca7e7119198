package disk

import (
	"os"
	"syscall"
)

// syncData makes what was written to f durable, and of what is known about f only what is needed to find it: not the time of its
// last change, which alone costs an fsync an entry in the file system's journal.
func syncData(f *os.File) error {
	conn, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var result error
	err = conn.Control(func(fd uintptr) {
		for {
			result = syscall.Fdatasync(int(fd))
			if result != syscall.EINTR {
				return
			}
		}
	})
	if err != nil {
		return named("fsync", f.Name(), os.ErrClosed) // all that it refuses is a closed file, with an error that does not say so
	}
	return named("fsync", f.Name(), result)
}
