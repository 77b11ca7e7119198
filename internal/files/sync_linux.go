package files

import (
	"os"
	"syscall"
)

// SyncData leaves out the time of the last change, which alone would cost each fsync an entry in
// the file system's journal.
func (f *file) SyncData() error {
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
		result = os.ErrClosed
	}
	if result != nil {
		return &os.PathError{Op: "fsync", Path: f.Name(), Err: result}
	}
	return nil
}
