//go:build unix

package disk

import (
	"os"
	"syscall"
)

// links returns how many names a file has. On a file system that does not count names it returns 0
// for every file.
func links(info os.FileInfo) uint64 {
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		return uint64(s.Nlink)
	}
	return 1
}
