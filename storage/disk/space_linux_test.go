package disk

import (
	"os"
	"syscall"
	"testing"
)

// wantSpace checks a file's size and how much of the disk it has.
func wantSpace(t *testing.T, name string, size, space int64) {
	t.Helper()
	info := must[os.FileInfo](t)(os.Stat(name))
	if info.Size() != size {
		t.Errorf("%s has %d bytes, want %d", name, info.Size(), size)
	}
	if got := info.Sys().(*syscall.Stat_t).Blocks * 512; got < space {
		t.Errorf("%s has %d bytes of the disk, want %d", name, got, space)
	}
}

// wantNoMore checks that a file has no more than so much of the disk.
func wantNoMore(t *testing.T, name string, space int64) {
	t.Helper()
	info := must[os.FileInfo](t)(os.Stat(name))
	if got := info.Sys().(*syscall.Stat_t).Blocks * 512; got > space {
		t.Errorf("%s has %d bytes of the disk, want no more than %d", name, got, space)
	}
}
