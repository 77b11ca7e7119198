package disk

import (
	"os"
	"syscall"
)

// syncData makes the contents of f durable, with only the metadata needed to find them. It leaves
// out the time of the last change, which alone would cost each fsync an entry in the file system's
// journal.
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
		// Control fails only for a closed file, but its error does not say so.
		return named("fsync", f.Name(), os.ErrClosed)
	}
	return named("fsync", f.Name(), result)
}
