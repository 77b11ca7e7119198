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

// fileSystem is a Disk as dragonboat sees it.
//
// It remembers which handles are open. dragonboat and tan forget some when they fail while opening
// a directory, and a refused start must not leak a descriptor.
//
// If a read fails on dragonboat's own goroutine, dragonboat would panic. So fileSystem first throws
// the switch of this node, and then tells dragonboat that the shard was stopped; see [unreadError].
//
// Stat and OpenDir may answer that something does not exist. With these calls dragonboat asks
// whether a directory, a snapshot or its flag file is there. Anything that it opens to read, or
// lists, it knows from a record.
type fileSystem struct {
	disk Disk
	// stop returns a channel that is closed when the shards are stopped. The channel is nil before
	// a machine was opened.
	stop func() <-chan struct{}

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

// handle is an open file of a fileSystem. It is not an *os.File, so tan does not reserve 64 MiB for
// each log.
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

// lock is a file lock of a fileSystem.
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

// closeAll closes everything that was left open. Nobody may use fs any more.
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

// unlock releases the locks that were left. dragonboat and tan lock only files below a directory
// that we lock ourselves.
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

// Open opens a file for reading. It ignores the options, which are hints to the kernel about a real
// file's descriptor.
func (fs *fileSystem) Open(name string, _ ...vfs.OpenOption) (vfs.File, error) {
	f, err := fs.disk.OpenForRead(name)
	return fs.track(f, fs.afterRead(err))
}

// An unreadError says why a node could not read something that its dragonboat needs. The node has
// failed because of it; no other node of the process fails. By the time dragonboat receives the
// error, the shard is stopped. Where it can, dragonboat treats the error like a stop of the shard:
// the job of a snapshot worker then ends.
type unreadError struct{ error }

func (e *unreadError) Unwrap() error        { return e.error }
func (e *unreadError) Is(target error) bool { return target == statemachine.ErrSnapshotStopped }

// afterRead handles the result of a read of contents. A goroutine of ours, or one below guard, can
// handle an error. Any other goroutine waits until its shard is stopped. dragonboat does such reads
// under no lock that another node needs.
func (fs *fileSystem) afterRead(err error) error {
	if err == nil || err == io.EOF || errors.Is(err, os.ErrClosed) || guarded() {
		return err
	}
	err = &unreadError{fmt.Errorf("reading the files of raft: %w", err)}
	fs.disk.Fail(err)
	if stop := fs.stop(); stop != nil {
		<-stop
	}
	return err
}

func (fs *fileSystem) OpenForAppend(name string) (vfs.File, error) {
	return fs.track(fs.disk.OpenForAppend(name))
}

// OpenDir opens a directory to see whether it is there, or to sync it. If that fails, the directory
// is in memory.
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

// Rename renames a file. The content behind the new name must be durable first, because a power cut
// may keep only the name.
//
// The index of a log says where its newest State is, and that the log is complete. But tan does not
// fsync a record with only a new commit index, nor a log when it switches to the next one or
// closes. After a power cut it would then find neither term nor vote. It also fails when it finds
// zeros at the end of a log that has an index. CURRENT names a MANIFEST, and tan has not synced the
// MANIFEST's own name. Once the switch is thrown nothing needs to last, and a log may be gone.
func (fs *fileSystem) Rename(oldname, newname string) error {
	if isClosed(fs.disk.Failed()) {
		return fs.disk.Rename(oldname, newname)
	}
	if log, ok := strings.CutSuffix(newname, ".index"); ok {
		info, err := fs.disk.Stat(log + ".log")
		if err != nil {
			return err
		}
		if err := fs.disk.Truncate(log+".log", info.Size()); err != nil { // cuts the zeros off and fsyncs it
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

// Remove removes a file that dragonboat knows to be there. If it is missing, somebody else has
// removed it.
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
		// Do not wait here: dragonboat asks under a lock of the whole process. It takes the answer
		// for "yes" or "no", or panics. The disk may answer now, but that no longer matters.
		fs.disk.Fail(err)
		info, err = fs.disk.Stat(name)
	}
	return info, err
}

func (fs *fileSystem) MkdirAll(dir string, _ os.FileMode) error {
	return fs.disk.MkdirAll(dir)
}

func (fs *fileSystem) PathBase(path string) string    { return filepath.Base(path) }
func (fs *fileSystem) PathJoin(elem ...string) string { return filepath.Join(elem...) }
func (fs *fileSystem) PathDir(path string) string     { return filepath.Dir(path) }

// GetDiskUsage asks the kernel. tan and dragonboat's snapshots never call it.
func (fs *fileSystem) GetDiskUsage(path string) (vfs.DiskUsage, error) {
	return vfs.Default.GetDiskUsage(path)
}
