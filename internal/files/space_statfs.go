//go:build darwin || freebsd || linux

package files

import (
	"os"
	"syscall"
)

func (system) Space(dir string) (free, size uint64, err error) {
	var s syscall.Statfs_t
	for {
		err = syscall.Statfs(dir, &s)
		if err != syscall.EINTR {
			break
		}
	}
	if err != nil {
		return 0, 0, &os.PathError{Op: "statfs", Path: dir, Err: err}
	}
	block := uint64(s.Bsize)
	return uint64(max(s.Bavail, 0)) * block, s.Blocks * block, nil
}
