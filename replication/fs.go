package replication

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/lni/dragonboat/v4/statemachine"
	"github.com/lni/vfs"

	"github.com/vivarium-go/vivarium/internal/rank"
)

// fileSystem is a Disk as dragonboat wants to see one.
//
// It remembers which handles are open: dragonboat and tan forget some when they give up in the middle of
// opening a directory, and a start that is refused must not cost a descriptor.
//
// A read that fails on a goroutine of dragonboat's own ends in a panic there. So it throws the switch of this node
// first, and dragonboat is made to believe in a shard that was stopped, see [unreadError]. That something does not exist is an answer to Stat and to OpenDir
// only. dragonboat asks these whether a directory, a snapshot or its flag file is there; what it opens to
// read, or lists, it knows of from a record.
type fileSystem struct {
	disk Disk
	stop func() <-chan struct{} // closed when the shards are stopped; nil before a machine was opened

	mu struct {
		rank.Mutex[rank.Handles]
		open map[io.Closer]struct{}
	}
}

var _ vfs.FS = (*fileSystem)(nil)

func newFileSystem(d Disk) *fileSystem {
	fs := &fileSystem{disk: d, stop: func() <-chan struct{} { return nil }}
	fs.mu.open = make(map[io.Closer]struct{})
	return fs
}

// handle is an open file that its fileSystem knows of. It is not an *os.File, so tan does not set 64 MiB
// aside for each log.
type handle struct {
	File
	fs *fileSystem
}

func (h *handle) Read(p []byte) (int, error) {
	n, err := h.File.Read(p)
	return n, h.fs.afterRead(err)
}

func (h *handle) ReadAt(p []byte, off int64) (int, error) {
	n, err := h.File.ReadAt(p, off)
	return n, h.fs.afterRead(err)
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

// unlock gives up the locks that were left. What dragonboat and tan lock is below a directory with a lock of ours.
func (fs *fileSystem) unlock() {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	for c := range fs.mu.open {
		if l, ok := c.(*lock); ok {
			_ = l.Closer.Close()
		}
	}
}

func (fs *fileSystem) Create(name string) (vfs.File, error) { return fs.track(fs.disk.Create(name)) }

// Open opens a file for reading. The options are hints to the kernel about a real file's descriptor.
func (fs *fileSystem) Open(name string, _ ...vfs.OpenOption) (vfs.File, error) {
	f, err := fs.disk.OpenForRead(name)
	return fs.track(f, fs.afterRead(err))
}

// An unreadError is why a node could not read what its dragonboat cannot do without. The node has failed of it, and
// no other node of the process has to. The shard is stopped by the time dragonboat has it, and it is taken for
// that where dragonboat can: the job of a snapshot worker ends then.
type unreadError struct{ error }

func (e *unreadError) Unwrap() error        { return e.error }
func (e *unreadError) Is(target error) bool { return target == statemachine.ErrSnapshotStopped }

// afterRead is told how a read of contents ended. A goroutine of ours, or one that guard is on, has an answer to an
// error. Any other waits until its shard is stopped; what dragonboat reads so, it reads under no lock that another
// node needs.
func (fs *fileSystem) afterRead(err error) error {
	if err == nil || err == io.EOF || errors.Is(err, os.ErrClosed) || guarded() {
		return err
	}
	err = &unreadError{fmt.Errorf("reading what raft has on disk: %w", err)}
	fs.disk.Fail(err)
	if stop := fs.stop(); stop != nil {
		<-stop
	}
	return err
}

func (fs *fileSystem) OpenForAppend(name string) (vfs.File, error) {
	return fs.track(fs.disk.OpenForAppend(name))
}

// OpenDir opens a directory to look whether it is there, or to sync it. If that fails, memory has it.
func (fs *fileSystem) OpenDir(name string) (vfs.File, error) {
	f, err := fs.disk.OpenDir(name)
	if err != nil && !errors.Is(err, os.ErrNotExist) && !guarded() {
		fs.disk.Fail(err)
		if f, err = fs.disk.OpenDir(name); !errors.Is(err, os.ErrNotExist) {
			err = fs.afterRead(err)
		}
	}
	return fs.track(f, err)
}

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
// tan has not synced. Once the switch is thrown nothing lasts any more, and a log may be gone.
func (fs *fileSystem) Rename(oldname, newname string) error {
	if isClosed(fs.disk.Failed()) {
		return fs.disk.Rename(oldname, newname)
	}
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
func (fs *fileSystem) RemoveAll(name string) error        { return fs.disk.RemoveAll(name) }

// Remove removes a file that dragonboat knows to be there. That it is not is the work of somebody else.
func (fs *fileSystem) Remove(name string) error {
	err := fs.disk.Remove(name)
	if errors.Is(err, os.ErrNotExist) && !guarded() {
		fs.disk.Fail(fmt.Errorf("%w (somebody else has removed it)", err))
		return nil
	}
	return err
}

func (fs *fileSystem) List(dir string) ([]string, error) {
	names, err := fs.disk.List(dir)
	return names, fs.afterRead(err)
}

func (fs *fileSystem) Stat(name string) (os.FileInfo, error) {
	info, err := fs.disk.Stat(name)
	if err != nil && !errors.Is(err, os.ErrNotExist) && !guarded() {
		fs.disk.Fail(err)              // and no wait: dragonboat asks under a lock of the whole process, and takes it for "yes" or "no"
		info, err = fs.disk.Stat(name) // or panics over it; the disk may answer now, and it is too late to matter
	}
	return info, err
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
