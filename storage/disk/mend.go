package disk

import (
	"errors"
	"syscall"
)

// Mendable reports whether a directory that failed with err may be used again as soon as somebody
// has mended the disk: has made room, raised a limit, or replaced a cable. It is false for all
// other errors, and for those of an fsync, whatever they are. After a failed fsync the kernel may
// show bytes that are on no disk, until the machine starts again or the volume is mounted again.
func Mendable(err error) bool {
	var lost unsynced
	if errors.As(err, &lost) {
		return false
	}
	// Linux makes a file system read-only after an error of the disk.
	return isLack(err) || errors.Is(err, syscall.EIO) || errors.Is(err, syscall.EROFS)
}

// unsynced is the error of a call that was to make bytes durable which were written before.
type unsynced struct{ error }

func (u unsynced) Unwrap() error { return u.error }
