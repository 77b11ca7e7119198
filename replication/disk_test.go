package replication

import (
	"io"
	"os"
	"sync"
	"sync/atomic"
	"testing"
)

// plainDisk is a Disk directly on the operating system. It counts fsyncs. A test can make it fail,
// but it goes on writing afterwards. Tests of a thrown switch use the real disk.
type plainDisk struct {
	syncs  atomic.Uint64 // fsyncs of files
	onSync func(name string)

	once   sync.Once
	failed chan struct{}

	mu    sync.Mutex
	cause error
	hooks []func()
}

func newPlainDisk(t testing.TB) *plainDisk {
	t.Helper()
	return &plainDisk{failed: make(chan struct{})}
}

type plainFile struct {
	*os.File
	disk *plainDisk
	dir  bool
}

func (f *plainFile) Sync() error {
	if !f.dir {
		f.disk.syncs.Add(1)
		if f.disk.onSync != nil {
			f.disk.onSync(f.Name())
		}
	}
	return f.File.Sync()
}

func (d *plainDisk) open(name string, flag int) (File, error) {
	f, err := os.OpenFile(name, flag, 0o640)
	if err != nil {
		return nil, err
	}
	return &plainFile{File: f, disk: d}, nil
}

func (d *plainDisk) Create(name string) (File, error) {
	return d.open(name, os.O_RDWR|os.O_CREATE|os.O_TRUNC)
}
func (d *plainDisk) OpenForRead(name string) (File, error) { return d.open(name, os.O_RDONLY) }
func (d *plainDisk) OpenForAppend(name string) (File, error) {
	return d.open(name, os.O_RDWR|os.O_APPEND)
}
func (d *plainDisk) OpenDir(name string) (File, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	return &plainFile{File: f, disk: d, dir: true}, nil
}
func (d *plainDisk) ReuseForWrite(from, to string) (File, error) {
	if err := os.Rename(from, to); err != nil {
		return nil, err
	}
	return d.open(to, os.O_RDWR|os.O_CREATE)
}
func (d *plainDisk) Link(from, to string) error            { return os.Link(from, to) }
func (d *plainDisk) Rename(from, to string) error          { return os.Rename(from, to) }
func (d *plainDisk) Remove(name string) error              { return os.Remove(name) }
func (d *plainDisk) RemoveAll(name string) error           { return os.RemoveAll(name) }
func (d *plainDisk) MkdirAll(name string) error            { return os.MkdirAll(name, 0o700) }
func (d *plainDisk) Stat(name string) (os.FileInfo, error) { return os.Stat(name) }
func (d *plainDisk) Lock(name string) (io.Closer, error)   { return d.Create(name) }
func (d *plainDisk) Logs(func(string) bool)                {}
func (d *plainDisk) Failed() <-chan struct{}               { return d.failed }
func (d *plainDisk) Syncs() uint64                         { return d.syncs.Load() }

func (d *plainDisk) Truncate(name string, size int64) error {
	info, err := os.Stat(name)
	if err != nil || info.Size() <= size {
		return err
	}
	return os.Truncate(name, size)
}

func (d *plainDisk) List(name string) ([]string, error) {
	entries, err := os.ReadDir(name)
	names := make([]string, 0, len(entries))
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names, err
}

func (d *plainDisk) Fail(cause error) {
	d.once.Do(func() {
		d.mu.Lock()
		d.cause = cause
		hooks := d.hooks
		d.mu.Unlock()
		for _, hook := range hooks {
			hook()
		}
		close(d.failed)
	})
}

func (d *plainDisk) Err() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.cause
}

func (d *plainDisk) OnFail(fn func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.hooks = append(d.hooks, fn)
}
