package files

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"

	"github.com/vivarium-go/vivarium/internal/testkit"
)

var must = testkit.Must

func openNew(t *testing.T, name string) File {
	t.Helper()
	f, err := OS.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o666)
	must(t, err)
	t.Cleanup(func() { _ = f.Close() })
	return f
}

func stat(t *testing.T, name string) os.FileInfo {
	t.Helper()
	info, err := OS.Stat(name)
	must(t, err)
	return info
}

// An open that fails returns no File. A nil *os.File inside the interface would not be nil.
func TestOpenFile_ReturnsNilWithAnError(t *testing.T) {
	if f, err := OS.OpenFile(filepath.Join(t.TempDir(), "missing"), os.O_RDONLY, 0); f != nil || !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%v, %v", f, err)
	}
}

func TestSyncData_OfAClosedFile(t *testing.T) {
	f := openNew(t, filepath.Join(t.TempDir(), "file"))
	must(t, f.SyncData())
	must(t, f.Close())
	if err := f.SyncData(); !errors.Is(err, os.ErrClosed) {
		t.Error(err)
	}
}

func TestLock(t *testing.T) {
	name := filepath.Join(t.TempDir(), "file")
	a, b, c := openNew(t, name), openNew(t, name), openNew(t, name)
	err := a.Lock(true)
	if errors.Is(err, errors.ErrUnsupported) {
		t.Skip(err)
	}
	must(t, err)
	must(t, b.Lock(true))
	if err := c.Lock(false); err != syscall.EWOULDBLOCK {
		t.Errorf("Lock of a file that two others share: %v", err)
	}
	must(t, a.Close())
	must(t, b.Close())
	must(t, c.Lock(false))
}

func TestSameAndLinks(t *testing.T) {
	dir := t.TempDir()
	a, b, other := filepath.Join(dir, "a"), filepath.Join(dir, "b"), filepath.Join(dir, "other")
	openNew(t, a)
	openNew(t, other)
	must(t, OS.Link(a, b))
	if !Same(stat(t, a), stat(t, b)) || Same(stat(t, a), stat(t, other)) {
		t.Error("Same does not know two names of one file from two files")
	}
	if n := Links(stat(t, a)); runtime.GOOS != "windows" && n != 2 {
		t.Errorf("a file with two names has %d", n)
	}
}

// Files of another System are the same if their inodes are. They are never those of OS.
func TestSame_AcrossSystems(t *testing.T) {
	real := stat(t, t.TempDir())
	one, again, two := described{inode: Inode{1, 3}}, described{inode: Inode{1, 2}}, described{inode: Inode{2, 3}}
	if !Same(one, again) || Same(one, two) || Same(one, real) || Same(real, one) {
		t.Error("Same is wrong about files of another System")
	}
	if n := Links(one); n != 3 {
		t.Errorf("%d links", n)
	}
}

// A described is what a System says of a file, with nothing but its inode.
type described struct {
	os.FileInfo
	inode Inode
}

func (d described) Sys() any { return d.inode }
