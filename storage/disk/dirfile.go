package disk

import (
	"os"
	"syscall"

	"github.com/vivarium-go/vivarium/internal/files"
	"github.com/vivarium-go/vivarium/internal/rank"
)

// dirFile is an open directory. It supports Sync, Stat and Close.
type dirFile struct {
	d      *Disk
	name   string
	real   files.File  // nil if it was opened in memory, after the switch
	info   os.FileInfo // the result of Stat after the switch
	linked bool        // the file system counts names

	mu struct {
		rank.Mutex[rank.File]
		closed bool
	}
}

// realDir wraps an open directory of the operating system.
func (d *Disk) realDir(name string, real files.File, info os.FileInfo) *dirFile {
	f := &dirFile{d: d, name: name, real: real, info: info, linked: files.Links(info) > 0}
	d.dirs.opened(f)
	return f
}

func (f *dirFile) fail(op string, err error) error {
	return &os.PathError{Op: op, Path: f.name, Err: err}
}

func (f *dirFile) open(op string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.mu.closed {
		return f.fail(op, os.ErrClosed)
	}
	return nil
}

// Sync makes the names in the directory durable.
func (f *dirFile) Sync() error {
	if err := f.open("sync"); err != nil {
		return err
	}
	return f.d.do(change{
		op:   OpSyncDir,
		name: f.name,
		real: func() error {
			err := f.real.Sync()
			if err == nil {
				f.d.dirSyncs.Add(1)
			}
			return err
		},
		mem: func() error { return nil },
	})
}

// Stat describes the directory.
func (f *dirFile) Stat() (os.FileInfo, error) {
	if err := f.open("stat"); err != nil {
		return nil, err
	}
	if f.d.frozen.Load() {
		return f.info, nil
	}
	return f.real.Stat()
}

// Close closes the directory.
func (f *dirFile) Close() error {
	f.mu.Lock()
	if f.mu.closed {
		f.mu.Unlock()
		return f.fail("close", os.ErrClosed)
	}
	f.mu.closed = true
	f.mu.Unlock()
	if f.real == nil {
		return nil
	}
	f.d.dirs.closed(f)
	return f.real.Close()
}

func (f *dirFile) Read([]byte) (int, error)           { return 0, f.fail("read", syscall.EISDIR) }
func (f *dirFile) ReadAt([]byte, int64) (int, error)  { return 0, f.fail("read", syscall.EISDIR) }
func (f *dirFile) Write([]byte) (int, error)          { return 0, f.fail("write", syscall.EBADF) }
func (f *dirFile) WriteAt([]byte, int64) (int, error) { return 0, f.fail("write", syscall.EBADF) }
func (f *dirFile) Seek(int64, int) (int64, error)     { return 0, f.fail("seek", syscall.EISDIR) }
