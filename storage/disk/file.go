package disk

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"syscall"

	"github.com/vivarium-go/vivarium/internal/files"
	"github.com/vivarium-go/vivarium/internal/rank"
)

type fileFlags uint8

const (
	writable  fileFlags = 1 << iota
	appending           // Write goes to the end of the file
)

// file is an open file. It keeps its own position and reads and writes only at offsets. So when the
// switch is thrown it continues from the same position, even while one of its calls hangs in the
// kernel.
type file struct {
	// Immutable after realFile and memFile.
	d     *Disk
	name  string
	node  *node
	flags fileFlags
	base  string // real file to read from, opened by the first read that needs it; may be empty
	log   bool   // see [Disk.Logs]

	linked bool // the file system counts names

	reading rank.Mutex[rank.Reading] // held throughout a Read, so that each Read continues where the previous one ended

	mu struct {
		rank.Mutex[rank.File]
		pos    int64
		real   files.File // nil if memory alone has the file, or if base is not open yet
		closed bool
	}
}

// realFile wraps an open file of the operating system. On an error it closes that file.
func (d *Disk) realFile(name string, real files.File, flags fileFlags) (*file, error) {
	info, err := real.Stat()
	if err != nil {
		return nil, errors.Join(err, real.Close())
	}
	f := &file{d: d, name: name, node: d.nodes.acquire(info), flags: flags}
	f.mu.real = real
	// Look again, now that all writers share the node. Before, another writer may have made the
	// file longer after the first look.
	if info, err = real.Stat(); err != nil {
		d.nodes.release(f.node)
		return nil, errors.Join(err, real.Close())
	}
	f.linked = files.Links(info) > 0
	f.node.observe(info.Size())
	if match := d.logs.Load(); match != nil && flags&writable != 0 {
		f.log = (*match)(name)
	}
	return f, nil
}

// memFile opens a file after the switch. The caller has already acquired the node for it.
func (d *Disk) memFile(name string, n *node, base string, flags fileFlags) *file {
	return &file{d: d, name: name, node: n, flags: flags, base: base}
}

func (f *file) fail(op string, err error) error {
	return &os.PathError{Op: op, Path: f.name, Err: err}
}

// handle returns the real file, or nil if there is none. It fails if the file is closed.
func (f *file) handle(op string) (files.File, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.mu.closed {
		return nil, f.fail(op, os.ErrClosed)
	}
	return f.mu.real, nil
}

// Write writes at the position, or at the end of a file opened for appending.
func (f *file) Write(p []byte) (int, error) {
	f.mu.Lock()
	off := f.mu.pos
	real, err := f.writableLocked()
	if err == nil && len(p) > 0 {
		if f.flags&appending != 0 {
			off = f.node.reserve(len(p))
		}
		f.mu.pos = off + int64(len(p))
	}
	f.mu.Unlock()
	if err != nil {
		return 0, err
	}
	return f.write(real, p, off)
}

// WriteAt writes at off, even in a file opened for appending.
func (f *file) WriteAt(p []byte, off int64) (int, error) {
	if off < 0 {
		return 0, f.fail("write", os.ErrInvalid)
	}
	f.mu.Lock()
	real, err := f.writableLocked()
	f.mu.Unlock()
	if err != nil {
		return 0, err
	}
	return f.write(real, p, off)
}

func (f *file) writableLocked() (files.File, error) {
	switch {
	case f.mu.closed:
		return nil, f.fail("write", os.ErrClosed)
	case f.flags&writable == 0:
		return nil, f.fail("write", syscall.EBADF)
	}
	return f.mu.real, nil
}

// write writes p, for real or in memory. If a real write fails halfway, the part on disk stays
// there and memory has the whole.
func (f *file) write(real files.File, p []byte, off int64) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	if !f.log {
		f.node.grow(off + int64(len(p)))
	}
	if f.d.enter() {
		err := f.d.patiently(true, func() error { return f.writeReal(real, p, off) })
		f.d.leave()
		if err == nil {
			return len(p), nil
		}
		if errors.Is(err, os.ErrClosed) {
			return 0, err
		}
		f.d.Fail(err)
	}
	f.d.awaitFailed()
	f.node.write(p, off)
	return len(p), nil
}

func (f *file) writeReal(real files.File, p []byte, off int64) error {
	if err := f.d.ask(OpWrite, f.name); err != nil {
		return err
	}
	if f.log {
		return f.writeLog(real, p, off)
	}
	_, err := real.WriteAt(p, off)
	return err
}

func (f *file) truncate(size int64) error {
	if size < 0 {
		return f.fail("truncate", os.ErrInvalid)
	}
	real, err := f.handle("truncate")
	if err != nil {
		return err
	}
	return f.d.do(change{
		op:   OpTruncate,
		name: f.name,
		real: func() error {
			f.node.writer.Lock()
			defer f.node.writer.Unlock()
			if f.d.frozen.Load() {
				return errSwitched
			}
			info, err := real.Stat()
			if err != nil || info.Size() <= size {
				return err
			}
			if err := real.Truncate(size); err != nil {
				return err
			}
			f.node.truncated(size)
			return nil
		},
		mem: func() error { f.node.truncate(size); return nil },
	})
}

// Sync makes the contents durable.
func (f *file) Sync() error {
	real, err := f.handle("sync")
	if err != nil {
		return err
	}
	seen := &f.d.meters.Other
	if f.log {
		seen = &f.d.meters.Log
	}
	return f.d.do(change{
		op:   OpSync,
		seen: seen,
		name: f.name,
		real: func() error {
			if err := real.SyncData(); err != nil {
				return err
			}
			f.d.syncs.Add(1)
			return f.d.inPlace(f, real)
		},
		mem: func() error { return nil },
	})
}

// Read reads at the position.
func (f *file) Read(p []byte) (int, error) {
	f.reading.Lock()
	defer f.reading.Unlock()
	f.mu.Lock()
	pos := f.mu.pos
	f.mu.Unlock()
	n, err := f.ReadAt(p, pos)
	if n > 0 && err == io.EOF {
		err = nil
	}
	if n > 0 {
		f.mu.Lock()
		f.mu.pos = pos + int64(n)
		f.mu.Unlock()
	}
	return n, err
}

// ReadAt reads at off. After the switch it reads the disk and lays the writes in memory over it.
func (f *file) ReadAt(p []byte, off int64) (int, error) {
	real, err := f.handle("read")
	if err != nil {
		return 0, err
	}
	if off < 0 {
		return 0, f.fail("read", os.ErrInvalid)
	}
	if len(p) == 0 {
		return 0, nil
	}
	size := f.node.size()
	if off >= size {
		return 0, io.EOF
	}
	n := int(min(int64(len(p)), size-off))
	if !f.d.frozen.Load() {
		if err := f.d.askRead(OpRead, f.name); err != nil {
			return 0, err
		}
		done, err := real.ReadAt(p[:n], off)
		if err == nil && n < len(p) {
			err = io.EOF
		}
		return done, err
	}
	if !f.node.covers(off, off+int64(n)) {
		// The disk is read before memory, and without a lock. A write in between is seen in one of
		// them.
		if err := f.readBase(p[:n], off); err != nil {
			return 0, err
		}
	}
	f.node.read(p[:n], off)
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// readBase fills p from the real file at off, and with zeros beyond the end of that file.
func (f *file) readBase(p []byte, off int64) error {
	real, err := f.openBase()
	if err != nil {
		return err
	}
	if err := f.d.askRead(OpRead, f.name); err != nil {
		return err
	}
	n := 0
	if real != nil {
		n, err = real.ReadAt(p, off)
		if err != nil && err != io.EOF {
			return err
		}
	}
	clear(p[n:])
	return nil
}

// openBase returns the real file, and opens it on first use. It returns nil if there is none.
func (f *file) openBase() (files.File, error) {
	real, err := f.handle("read")
	if err != nil || real != nil || f.base == "" {
		return real, err
	}
	if err := f.d.askRead(OpOpen, f.name); err != nil {
		return nil, err
	}
	real, err = f.d.sys.OpenFile(f.base, os.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	f.mu.Lock()
	if f.mu.real == nil && !f.mu.closed {
		f.mu.real = real
		f.mu.Unlock()
		return real, nil
	}
	f.mu.Unlock()
	// Another read was faster, or the file was closed meanwhile.
	if err := real.Close(); err != nil {
		return nil, err
	}
	return f.handle("read")
}

// Seek sets the position.
func (f *file) Seek(offset int64, whence int) (int64, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.mu.closed {
		return 0, f.fail("seek", os.ErrClosed)
	}
	switch whence {
	case io.SeekStart:
	case io.SeekCurrent:
		offset += f.mu.pos
	case io.SeekEnd:
		offset += f.node.size()
	default:
		return 0, f.fail("seek", syscall.EINVAL)
	}
	if offset < 0 {
		return 0, f.fail("seek", syscall.EINVAL)
	}
	f.mu.pos = offset
	return offset, nil
}

// Stat describes the file under the name it was opened with.
func (f *file) Stat() (os.FileInfo, error) {
	real, err := f.handle("stat")
	if err != nil {
		return nil, err
	}
	if !f.d.frozen.Load() {
		info, err := real.Stat()
		if err != nil {
			return nil, err
		}
		return f.node.trim(info), nil
	}
	return f.node.stat(filepath.Base(f.name)), nil
}

// Close closes the file. Some file systems report a failed write only here; that throws the switch.
func (f *file) Close() error {
	f.mu.Lock()
	if f.mu.closed {
		f.mu.Unlock()
		return f.fail("close", os.ErrClosed)
	}
	f.mu.closed = true
	real := f.mu.real
	f.mu.Unlock()
	f.d.nodes.release(f.node)
	if real == nil {
		return nil
	}
	err := real.Close()
	if err == nil || f.flags&writable == 0 {
		return err
	}
	f.d.Fail(unsynced{err})
	f.d.awaitFailed()
	return nil
}
