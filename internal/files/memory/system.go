package memory

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/vivarium-go/vivarium/internal/files"
)

// A System is a file system in memory. Any number of goroutines may call it.
type System struct {
	mu   sync.RWMutex
	root *inode // the lock guards this and all below it
}

var _ files.System = (*System)(nil)

// New returns an empty file system.
func New() *System { return &System{root: newRoot()} }

// newRoot returns an empty root, which has a name that no directory lists.
func newRoot() *inode {
	root := newDir(0o755)
	root.links = 1
	return root
}

// OpenFile opens a file or a directory. Of the flags it knows O_RDONLY, O_WRONLY, O_RDWR, O_CREATE,
// O_EXCL and O_TRUNC.
func (s *System) OpenFile(name string, flag int, perm os.FileMode) (files.File, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n, err := s.open(name, flag, perm)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: name, Err: err}
	}
	return &handle{s: s, name: name, inode: n, reads: flag&os.O_WRONLY == 0, writes: flag&(os.O_WRONLY|os.O_RDWR) != 0}, nil
}

const knownFlags = os.O_RDONLY | os.O_WRONLY | os.O_RDWR | os.O_CREATE | os.O_EXCL | os.O_TRUNC

func (s *System) open(name string, flag int, perm os.FileMode) (*inode, error) {
	if flag&^knownFlags != 0 {
		return nil, syscall.EINVAL
	}
	dir, last, n, err := s.find(name)
	switch {
	case err == syscall.ENOENT && dir != nil && flag&os.O_CREATE != 0:
		n = newFile(perm)
		dir.set(last, n)
	case err != nil:
		return nil, err
	case flag&(os.O_CREATE|os.O_EXCL) == os.O_CREATE|os.O_EXCL:
		return nil, syscall.EEXIST
	case n.isDir() && flag&(os.O_WRONLY|os.O_RDWR|os.O_CREATE) != 0:
		return nil, syscall.EISDIR
	case flag&os.O_TRUNC != 0 && !n.isDir():
		n.truncate(0)
	}
	return n, nil
}

// find returns the directory that a name is in, the last part of the name, and what it stands for.
// If only the last part is missing, the error is ENOENT and the directory is not nil.
func (s *System) find(name string) (dir *inode, last string, n *inode, err error) {
	n = s.root
	for part := range strings.SplitSeq(path(name), string(filepath.Separator)) {
		if part == "" {
			continue
		}
		switch {
		case n == nil:
			return nil, "", nil, syscall.ENOENT
		case !n.isDir():
			return nil, "", nil, syscall.ENOTDIR
		}
		dir, last = n, part
		n = dir.names[part]
	}
	if n == nil {
		return dir, last, nil, syscall.ENOENT
	}
	return dir, last, n, nil
}

// path returns a name without its volume, from the root.
func path(name string) string {
	return filepath.Join(string(filepath.Separator), name[len(filepath.VolumeName(name)):])
}

// Mkdir makes a directory.
func (s *System) Mkdir(name string, perm os.FileMode) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	dir, last, _, err := s.find(name)
	switch {
	case err == nil:
		err = syscall.EEXIST
	case err == syscall.ENOENT && dir != nil:
		dir.set(last, newDir(perm))
		return nil
	}
	return &os.PathError{Op: "mkdir", Path: name, Err: err}
}

// Remove removes a file or an empty directory.
func (s *System) Remove(name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	dir, last, n, err := s.find(name)
	switch {
	case err != nil:
	case n == s.root:
		err = syscall.EBUSY
	case len(n.names) > 0:
		err = syscall.ENOTEMPTY
	default:
		dir.set(last, nil)
		return nil
	}
	return &os.PathError{Op: "remove", Path: name, Err: err}
}

// Rename gives a file or directory another name. A file that has the new name loses it.
func (s *System) Rename(oldname, newname string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.rename(oldname, newname); err != nil {
		return &os.LinkError{Op: "rename", Old: oldname, New: newname, Err: err}
	}
	return nil
}

func (s *System) rename(oldname, newname string) error {
	from, old, n, err := s.find(oldname)
	to, last, there, newErr := s.find(newname)
	switch {
	case n == s.root:
		return syscall.EBUSY
	case err != nil && (from == nil || to != nil):
		return err
	case newErr != nil && to == nil:
		return newErr
	case there != nil && there.isDir():
		return syscall.EEXIST
	case n.isDir() && strings.HasPrefix(path(newname), path(oldname)+string(filepath.Separator)):
		return syscall.EINVAL
	case there == n:
		return nil
	case n.isDir() && there != nil:
		return syscall.ENOTDIR
	}
	to.set(last, n)
	from.set(old, nil)
	return nil
}

// Link gives a file a second name.
func (s *System) Link(oldname, newname string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.link(oldname, newname); err != nil {
		return &os.LinkError{Op: "link", Old: oldname, New: newname, Err: err}
	}
	return nil
}

func (s *System) link(oldname, newname string) error {
	_, _, n, err := s.find(oldname)
	if err != nil {
		return err
	}
	dir, last, there, err := s.find(newname)
	switch {
	case there != nil:
		return syscall.EEXIST
	case dir == nil:
		return err
	case n.isDir():
		return syscall.EPERM
	}
	dir.set(last, n)
	return nil
}

// Stat describes a file or a directory.
func (s *System) Stat(name string) (os.FileInfo, error) { return s.stat("stat", name) }

// Lstat is Stat, as there are no symbolic links.
func (s *System) Lstat(name string) (os.FileInfo, error) { return s.stat("lstat", name) }

func (s *System) stat(op, name string) (os.FileInfo, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	_, _, n, err := s.find(name)
	if err != nil {
		return nil, &os.PathError{Op: op, Path: name, Err: err}
	}
	return n.describe(name), nil
}

// Resolve returns the absolute name of a file that exists.
func (s *System) Resolve(name string) (string, error) {
	if _, err := s.Lstat(name); err != nil {
		return "", err
	}
	return filepath.VolumeName(name) + path(name), nil
}

// An info describes a file or a directory as it was at one moment.
type info struct {
	name     string
	size     int64
	mode     os.FileMode
	modified time.Time
	inode    files.Inode
}

func (n *inode) describe(name string) info {
	return info{filepath.Base(name), n.size, n.mode, n.modified, files.Inode{ID: n, Links: uint64(n.links)}}
}

func (i info) Name() string       { return i.name }
func (i info) Size() int64        { return i.size }
func (i info) Mode() os.FileMode  { return i.mode }
func (i info) ModTime() time.Time { return i.modified }
func (i info) IsDir() bool        { return i.mode.IsDir() }
func (i info) Sys() any           { return i.inode }
