package disk

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"sync"
	"syscall"

	"github.com/vivarium-go/vivarium/internal/files"
)

// Lock creates an empty file if necessary and locks it until the Closer is closed. The lock
// excludes every other Lock of the file, in this process and in others. Lock returns ErrLocked if
// the file is already locked. After the switch, and in a View, the lock excludes only other users
// of this Disk.
func (d *Disk) Lock(name string) (io.Closer, error) {
	rel, err := d.below("lock", name)
	if err != nil {
		return nil, err
	}
	l := &lock{d: d, name: filepath.Clean(name)}
	if !d.acquireLock(l.name) {
		return nil, named("lock", name, ErrLocked)
	}
	err = d.do(change{
		op:   OpLock,
		name: name,
		real: func() (err error) { l.real, err = d.lockReal(name); return err },
		mem:  func() error { return d.over.touch(name, rel) },
	})
	if err != nil {
		d.releaseLock(l.name)
		return nil, err
	}
	return l, nil
}

// touch creates an empty file if there is none.
func (o *overlay) touch(name, rel string) error {
	_, err := o.file("lock", name, rel)
	if errors.Is(err, os.ErrNotExist) {
		_, err = o.create(name, rel)
	}
	return err
}

func (d *Disk) lockReal(name string) (files.File, error) {
	f, err := d.sys.OpenFile(name, os.O_RDWR|os.O_CREATE, fileMode)
	if err != nil {
		return nil, err
	}
	if err := flock(f); err != nil {
		return nil, errors.Join(named("lock", name, err), f.Close())
	}
	// Not earlier: until it was locked, the file may have belonged to somebody else.
	if err := f.Truncate(0); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// flock locks an open file without waiting. It returns nil on a file system without locks, because
// the node's own lock keeps other processes out.
func flock(f files.File) error {
	err := f.Lock(false)
	switch {
	case err == syscall.EWOULDBLOCK:
		return ErrLocked
	case err == syscall.ENOLCK || errors.Is(err, errors.ErrUnsupported):
		return nil
	}
	return err
}

func (d *Disk) acquireLock(name string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, ok := d.mu.locks[name]; ok {
		return false
	}
	d.mu.locks[name] = struct{}{}
	return true
}

func (d *Disk) releaseLock(name string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.mu.locks, name)
}

// lock is a locked file.
type lock struct {
	d    *Disk
	name string
	real files.File // nil for a lock in memory
	once sync.Once
	err  error
}

// Close releases the lock. Further calls change nothing and return the same error.
func (l *lock) Close() error {
	l.once.Do(func() {
		if l.real != nil {
			l.err = l.real.Close()
		}
		l.d.releaseLock(l.name)
	})
	return l.err
}
