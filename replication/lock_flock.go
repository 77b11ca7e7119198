//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package replication

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// lockFile takes the file's flock, which ends with its last descriptor, so also with the process.
func lockFile(f *os.File) error {
	err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return fmt.Errorf("%w: it is open by another process", ErrLocked)
	}
	return err
}
