package disk

import (
	"errors"
	"path/filepath"
	"syscall"
	"testing"
	"unsafe"
)

// An fsync of a file asks the kernel. The kernel refuses to sync a pipe, which shows that it was
// asked.
func TestSyncAsksTheKernel(t *testing.T) {
	d := open(t)
	name := filepath.Join(d.Dir(), "pipe")
	ok(t, syscall.Mkfifo(name, 0o600))
	f := must[File](t)(d.OpenForAppend(name))
	ok(t, f.Sync())
	wantErr(t, d.Err(), syscall.EINVAL)
	ok(t, f.Close())
}

// After an fsync, the kernel holds no unwritten page of the file.
func TestSyncLeavesNothingDirty(t *testing.T) {
	_, log := openLog(t)
	defer log.Close()
	dirty := func() uint64 {
		t.Helper()
		n, err := dirtyPages(log.(*file).mu.real.(interface{ Fd() uintptr }))
		if errors.Is(err, syscall.ENOSYS) || errors.Is(err, syscall.EOPNOTSUPP) {
			t.Skip("the kernel does not tell what is dirty")
		}
		ok(t, err)
		return n
	}
	must[int](t)(log.Write(make([]byte, 64<<10)))
	before := dirty()
	if before == 0 {
		t.Skip("the file system does not wait with what it writes")
	}
	ok(t, log.Sync())
	if after := dirty(); after > 0 {
		t.Errorf("%d pages are still to be written, %d before the fsync", after, before)
	}
}

// dirtyPages calls cachestat(2), which Linux has since 6.5.
func dirtyPages(f interface{ Fd() uintptr }) (uint64, error) {
	const cachestat = 451 // on every architecture except alpha
	var all struct{ off, length uint64 }
	var stat struct{ cache, dirty, writeback, evicted, recentlyEvicted uint64 }
	_, _, errno := syscall.Syscall6(cachestat, f.Fd(), uintptr(unsafe.Pointer(&all)), uintptr(unsafe.Pointer(&stat)), 0, 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return stat.dirty + stat.writeback, nil
}
