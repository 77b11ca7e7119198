package replication

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/lni/vfs"

	"github.com/vivarium-go/vivarium/internal/rank"
)

// fileSystem is a Disk as dragonboat wants to see one.
//
// It remembers which handles are open: dragonboat and tan forget some when they give up in the middle of
// opening a directory, and a start that is refused must not cost a descriptor.
type fileSystem struct {
	disk Disk

	mu struct {
		rank.Mutex[rank.Handles]
		open map[io.Closer]struct{}
	}
}

var _ vfs.FS = (*fileSystem)(nil)

func newFileSystem(d Disk) *fileSystem {
	fs := &fileSystem{disk: d}
	fs.mu.open = make(map[io.Closer]struct{})
	return fs
}

// handle is an open file that its fileSystem knows of. It is not an *os.File, so tan does not set 64 MiB
// aside for each log.
type handle struct {
	File
	fs *fileSystem
}

func (h *handle) Close() error {
	h.fs.forget(h)
	return h.File.Close()
}

// lock is a file lock that its fileSystem knows of.
type lock struct {
	io.Closer
	fs *fileSystem
}

func (l *lock) Close() error {
	l.fs.forget(l)
	return l.Closer.Close()
}

func (fs *fileSystem) forget(c io.Closer) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	delete(fs.mu.open, c)
}

func (fs *fileSystem) track(f File, err error) (vfs.File, error) {
	if err != nil {
		return nil, err
	}
	h := &handle{File: f, fs: fs}
	fs.mu.Lock()
	defer fs.mu.Unlock()
	fs.mu.open[h] = struct{}{}
	return h, nil
}

// closeAll closes what was left open. Nobody may use fs any more.
func (fs *fileSystem) closeAll() error {
	fs.mu.Lock()
	left := fs.mu.open
	fs.mu.open = make(map[io.Closer]struct{})
	fs.mu.Unlock()
	var errs []error
	for c := range left {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}

func (fs *fileSystem) Create(name string) (vfs.File, error) { return fs.track(fs.disk.Create(name)) }

// Open opens a file for reading. The options are hints to the kernel about a real file's descriptor.
func (fs *fileSystem) Open(name string, _ ...vfs.OpenOption) (vfs.File, error) {
	return fs.track(fs.disk.OpenForRead(name))
}

func (fs *fileSystem) OpenForAppend(name string) (vfs.File, error) {
	return fs.track(fs.disk.OpenForAppend(name))
}

func (fs *fileSystem) OpenDir(name string) (vfs.File, error) { return fs.track(fs.disk.OpenDir(name)) }

func (fs *fileSystem) ReuseForWrite(oldname, newname string) (vfs.File, error) {
	return fs.track(fs.disk.ReuseForWrite(oldname, newname))
}

func (fs *fileSystem) Lock(name string) (io.Closer, error) {
	c, err := fs.disk.Lock(name)
	if err != nil {
		return nil, err
	}
	l := &lock{Closer: c, fs: fs}
	fs.mu.Lock()
	defer fs.mu.Unlock()
	fs.mu.open[l] = struct{}{}
	return l, nil
}

// Rename renames a file. What the new name says must be durable before it: a power cut may keep the name and nothing else.
//
// The index of a log says where its newest State is, and that it is complete. tan fsyncs no record that only has a new commit index, and
// no log when it goes on to the next or closes, and would then take term and vote for empty; and it gives up where it finds zeros
// behind the end of one that has an index. CURRENT names a MANIFEST whose own name
// tan has not synced.
func (fs *fileSystem) Rename(oldname, newname string) error {
	if log, ok := strings.CutSuffix(newname, ".index"); ok {
		info, err := fs.disk.Stat(log + ".log")
		if err != nil {
			return err
		}
		if err := fs.disk.Truncate(log+".log", info.Size()); err != nil { // the zeros behind it go, and it is fsynced
			return err
		}
	}
	if dir, name := filepath.Split(newname); name == "CURRENT" {
		if err := syncDir(fs.disk, filepath.Clean(dir)); err != nil {
			return err
		}
	}
	return fs.disk.Rename(oldname, newname)
}

func (fs *fileSystem) Link(oldname, newname string) error { return fs.disk.Link(oldname, newname) }
func (fs *fileSystem) Remove(name string) error           { return fs.disk.Remove(name) }
func (fs *fileSystem) RemoveAll(name string) error        { return fs.disk.RemoveAll(name) }
func (fs *fileSystem) List(dir string) ([]string, error)  { return fs.disk.List(dir) }
func (fs *fileSystem) Stat(name string) (os.FileInfo, error) {
	return fs.disk.Stat(name)
}

func (fs *fileSystem) MkdirAll(dir string, perm os.FileMode) error {
	return fs.disk.MkdirAll(dir, perm)
}

func (fs *fileSystem) PathBase(path string) string    { return filepath.Base(path) }
func (fs *fileSystem) PathJoin(elem ...string) string { return filepath.Join(elem...) }
func (fs *fileSystem) PathDir(path string) string     { return filepath.Dir(path) }

// GetDiskUsage asks the kernel; tan and dragonboat's snapshots never do.
func (fs *fileSystem) GetDiskUsage(path string) (vfs.DiskUsage, error) {
	return vfs.Default.GetDiskUsage(path)
}
