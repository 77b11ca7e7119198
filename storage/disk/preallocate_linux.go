package disk

import (
	"errors"
	"os"
	"syscall"
)

// keepSize has fallocate leave the file's size alone.
const keepSize = 1

// fallocate reserves the blocks of [off, off+length). Where that cannot be done the error is ErrUnsupported.
func fallocate(f *os.File, off, length int64) error {
	conn, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var result error
	err = conn.Control(func(fd uintptr) {
		for {
			result = syscall.Fallocate(int(fd), keepSize, off, length)
			if result != syscall.EINTR {
				return
			}
		}
	})
	if err != nil {
		return err
	}
	switch result {
	case syscall.EOPNOTSUPP, syscall.ENOSYS, syscall.EINVAL, syscall.EPERM, syscall.ENODEV:
		// The last three are a file system's, a sandbox's and a kernel's way to say that they do not know how.
		return errors.ErrUnsupported
	}
	return result
}
