package replication

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"

	"github.com/vivarium-go/vivarium/internal/rank"
)

// DirLock holds a node's directory. It proves that no other node, of this process or another, has
// it open.
type DirLock struct {
	dir  string // resolved; its key in the process's table
	file *os.File
	once sync.Once
	err  error
}

// locked is the table of directories open in this process. The lock on the file would refuse a
// second open too, but could not say who has it.
var locked = struct {
	rank.Mutex[rank.Directories]
	dirs map[string]bool
}{dirs: map[string]bool{}}

const lockName = "lock"

// LockDir acquires the lock of dir. It creates dir if missing. It does not use a Disk, because it
// comes before anything else is opened. ErrLocked says who has the lock.
func LockDir(dir string) (*DirLock, error) {
	if err := makeDir(dir); err != nil {
		return nil, err
	}
	resolved, err := resolve(dir)
	if err != nil {
		return nil, err
	}
	locked.Lock()
	defer locked.Unlock()
	if locked.dirs[resolved] {
		return nil, fmt.Errorf("%w: %s is open by another node of this process", ErrLocked, dir)
	}
	file, err := os.OpenFile(filepath.Join(resolved, lockName), os.O_RDWR|os.O_CREATE, 0o640)
	if err != nil {
		return nil, err
	}
	if err := lockFile(file, false); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", dir, err), file.Close())
	}
	locked.dirs[resolved] = true
	return &DirLock{dir: resolved, file: file}, nil
}

// LockShared acquires the lock of a directory in order to look at it, together with others who do
// the same. While it is held no node has the directory open and none can open it. LockShared
// creates nothing. If the lock file is missing, the directory is no node's, or it is a copy.
// ErrLocked says who has the lock.
func LockShared(dir string) (io.Closer, error) {
	resolved, err := resolve(dir)
	if err != nil {
		return nil, err
	}
	locked.Lock()
	defer locked.Unlock()
	if locked.dirs[resolved] {
		return nil, fmt.Errorf("%w: %s is open by a node of this process", ErrLocked, dir)
	}
	file, err := os.Open(filepath.Join(resolved, lockName))
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
		delete(locked.dirs, l.dir)
	})
	return l.err
}

func resolve(dir string) (string, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	return filepath.EvalSymlinks(abs)
}

// makeDir creates dir and its missing parents. It makes their entries durable, because everything
// that the node acknowledges depends on them.
func makeDir(dir string) error {
	info, err := os.Stat(dir)
	if err == nil && !info.IsDir() {
		return fmt.Errorf("%s is not a directory", dir)
	}
	if err == nil || !errors.Is(err, os.ErrNotExist) {
		return err
	}
	parent := filepath.Dir(filepath.Clean(dir))
	if err := makeDir(parent); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o750); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	f, err := os.Open(parent)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
