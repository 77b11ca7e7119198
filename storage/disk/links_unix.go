//go:build unix

package disk

import (
	"os"
	"syscall"
)

// links returns how many names a file has. A file system that does not count says 0 of files that have one too.
func links(info os.FileInfo) uint64 {
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		return uint64(s.Nlink)
	}
	return 1
}
