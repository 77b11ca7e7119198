//go:build unix && !solaris && !illumos && !aix

package disk

import (
	"errors"
	"os"
	"syscall"
)

// flock locks an open file without waiting. It returns nil on a file system without locks, because
// the node's own lock keeps other processes out.
func flock(f *os.File) error {
	err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	switch {
	case err == syscall.EWOULDBLOCK:
		return ErrLocked
	case err == syscall.ENOLCK || errors.Is(err, errors.ErrUnsupported):
		return nil
	}
	return err
}
