package memory

import (
	"errors"
	"io"
	"maps"
	"os"
	"slices"
	"syscall"
)

// A handle is an open file or directory.
type handle struct {
	// Immutable.
	s             *System
	name          string
	inode         *inode
	reads, writes bool

	// Guarded by the System's lock.
	closed bool
	listed bool
	names  []string // still to be listed, once the list has begun
}

// fail returns the error of a call. A handle that is closed has one error only.
func (h *handle) fail(op string, err error) error {
	if h.closed {
		err = os.ErrClosed
	}
	return &os.PathError{Op: op, Path: h.name, Err: err}
}

var errNegative = errors.New("negative offset")

func (h *handle) ReadAt(p []byte, off int64) (int, error) {
	h.s.mu.RLock()
	defer h.s.mu.RUnlock()
	switch {
	case off < 0:
		return 0, h.fail("readat", errNegative)
	case len(p) == 0:
		return 0, nil
	case h.closed || !h.reads:
		return 0, h.fail("read", syscall.EBADF)
	case h.inode.isDir():
		return 0, h.fail("read", syscall.EISDIR)
	}
	return h.inode.readAt(p, off)
}

func (h *handle) WriteAt(p []byte, off int64) (int, error) {
	h.s.mu.Lock()
	defer h.s.mu.Unlock()
	switch {
	case off < 0:
		return 0, h.fail("writeat", errNegative)
	case len(p) == 0:
		return 0, nil
	case h.closed || !h.writes:
		return 0, h.fail("write", syscall.EBADF)
	}
	h.inode.writeAt(p, off)
	return len(p), nil
}

func (h *handle) Truncate(size int64) error {
	h.s.mu.Lock()
	defer h.s.mu.Unlock()
	if h.closed || !h.writes || size < 0 {
		return h.fail("truncate", syscall.EINVAL)
	}
	h.inode.truncate(size)
	return nil
}

func (h *handle) Stat() (os.FileInfo, error) {
	h.s.mu.RLock()
	defer h.s.mu.RUnlock()
	if h.closed {
		return nil, h.fail("stat", nil)
	}
	return h.inode.describe(h.name), nil
}

// Readdirnames returns the names that the directory had at the first call, without an order.
func (h *handle) Readdirnames(n int) ([]string, error) {
	h.s.mu.Lock()
	defer h.s.mu.Unlock()
	if h.closed || !h.inode.isDir() {
		return nil, h.fail("readdirent", syscall.ENOTDIR)
	}
	if !h.listed {
		h.listed, h.names = true, slices.Collect(maps.Keys(h.inode.names))
	}
	switch {
	case n <= 0:
		n = len(h.names)
	case len(h.names) == 0:
		return nil, io.EOF
	}
	var part []string
	part, h.names = h.names[:min(n, len(h.names))], h.names[min(n, len(h.names)):]
	return part, nil
}

func (h *handle) Sync() error { return h.sync("sync") }

func (h *handle) SyncData() error { return h.sync("fsync") }

func (h *handle) sync(op string) error {
	h.s.mu.Lock()
	defer h.s.mu.Unlock()
	if h.closed {
		return h.fail(op, nil)
	}
	h.inode.sync()
	return nil
}

// Lock changes a lock of the other kind too. If it cannot, that lock is gone, as it is on Linux.
func (h *handle) Lock(shared bool) error {
	h.s.mu.Lock()
	defer h.s.mu.Unlock()
	if h.closed {
		return syscall.EBADF
	}
	if shares, locked := h.inode.locks[h]; locked && shares == shared {
		return nil
	}
	delete(h.inode.locks, h)
	for _, shares := range h.inode.locks {
		if !(shared && shares) {
			return syscall.EWOULDBLOCK
		}
	}
	if h.inode.locks == nil {
		h.inode.locks = make(map[*handle]bool)
	}
	h.inode.locks[h] = shared
	return nil
}

func (h *handle) Close() error {
	h.s.mu.Lock()
	defer h.s.mu.Unlock()
	if h.closed {
		return h.fail("close", nil)
	}
	h.closed = true
	delete(h.inode.locks, h)
	return nil
}
