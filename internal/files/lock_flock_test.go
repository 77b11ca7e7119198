//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package files

import (
	"path/filepath"
	"syscall"
	"testing"
)

// A second descriptor of the open file is what a child process has between its fork and its exec.
func TestLock_EndsWithCloseAlsoBesideAFork(t *testing.T) {
	for _, shared := range []bool{false, true} {
		name := filepath.Join(t.TempDir(), "file")
		f, next := openNew(t, name), openNew(t, name)
		must(t, f.Lock(shared))
		child, err := syscall.Dup(int(f.(*file).Fd()))
		must(t, err)
		must(t, f.Close())
		if err := next.Lock(false); err != nil {
			t.Errorf("shared %v: %v", shared, err)
		}
		must(t, syscall.Close(child))
	}
}
