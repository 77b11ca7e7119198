package replication

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"syscall"

	"github.com/vivarium-go/vivarium/internal/files"
	"github.com/vivarium-go/vivarium/internal/rank"
)

// DirLock holds a node's directory. It proves that no other node, of this process or another, has
// it open.
type DirLock struct {
	at   directory // its key in the process's table
	file files.File
	once sync.Once
	err  error
}

// locked is the table of directories open in this process. The lock on the file would refuse a
// second open too, but could not say who has it.
var locked = struct {
	rank.Mutex[rank.Directories]
	dirs map[directory]bool
}{dirs: map[directory]bool{}}

// A directory is known by its resolved name.
type directory struct {
	sys files.System
	dir string
}

const lockName = "lock"

// LockDir acquires the lock of dir. It creates dir if missing. It does not use a Disk, because it
// comes before anything else is opened. ErrLocked says who has the lock.
func LockDir(sys files.System, dir string) (*DirLock, error) {
	if err := makeDir(sys, dir); err != nil {
		return nil, err
	}
	resolved, err := sys.Resolve(dir)
	if err != nil {
		return nil, err
	}
	at := directory{sys, resolved}
	locked.Lock()
	defer locked.Unlock()
	if locked.dirs[at] {
		return nil, fmt.Errorf("%w: %s is open by another node of this process", ErrLocked, dir)
	}
	file, err := sys.OpenFile(filepath.Join(resolved, lockName), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := lockFile(file, false); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", dir, err), file.Close())
	}
	locked.dirs[at] = true
	return &DirLock{at: at, file: file}, nil
}

// LockShared acquires the lock of a directory in order to look at it, together with others who do
// the same. While it is held no node has the directory open and none can open it. LockShared
// creates nothing. If the lock file is missing, the directory is no node's, or it is a copy.
// ErrLocked says who has the lock.
func LockShared(sys files.System, dir string) (io.Closer, error) {
	resolved, err := sys.Resolve(dir)
	if err != nil {
		return nil, err
	}
	at := directory{sys, resolved}
	locked.Lock()
	defer locked.Unlock()
	if locked.dirs[at] {
		return nil, fmt.Errorf("%w: %s is open by a node of this process", ErrLocked, dir)
	}
	file, err := sys.OpenFile(filepath.Join(resolved, lockName), os.O_RDONLY, 0)
	if errors.Is(err, os.ErrNotExist) {
		return io.NopCloser(nil), nil
	}
	if err != nil {
		return nil, err
	}
	if err := lockFile(file, true); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", dir, err), file.Close())
	}
	return file, nil
}

// Close releases the directory. It is idempotent.
func (l *DirLock) Close() error {
	l.once.Do(func() {
		locked.Lock()
		defer locked.Unlock()
		// Closing the file ends the lock. The file stays, because a waiter may have it open
		// already.
		l.err = l.file.Close()
		delete(locked.dirs, l.at)
	})
	return l.err
}

// lockFile acquires the file's lock, alone or shared. Without a lock that ends with the process,
// nothing would prove that a predecessor is gone. So lockFile refuses a system that has none.
func lockFile(f files.File, shared bool) error {
	err := f.Lock(shared)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return fmt.Errorf("%w: it is open by another process", ErrLocked)
	}
	return err
}

// makeDir creates dir and its missing parents. It makes their entries durable, because everything
// that the node acknowledges depends on them.
func makeDir(sys files.System, dir string) error {
	info, err := sys.Stat(dir)
	if err == nil && !info.IsDir() {
		return fmt.Errorf("%s is not a directory", dir)
	}
	if err == nil || !errors.Is(err, os.ErrNotExist) {
		return err
	}
	parent := filepath.Dir(filepath.Clean(dir))
	if err := makeDir(sys, parent); err != nil {
		return err
	}
	if err := sys.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	f, err := sys.OpenFile(parent, os.O_RDONLY, 0)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
