//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package replication

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// lockFile acquires the file's flock, alone or shared. The lock ends with its last descriptor, so
// also with the process.
func lockFile(f *os.File, shared bool) error {
	how := syscall.LOCK_EX
	if shared {
		how = syscall.LOCK_SH
	}
	err := syscall.Flock(int(f.Fd()), how|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return fmt.Errorf("%w: it is open by another process", ErrLocked)
	}
	return err
}
