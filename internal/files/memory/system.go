package memory

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
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
	p, err := s.find(name)
	create := flag&os.O_CREATE != 0
	switch {
	case err != nil:
		return nil, err
	case create && p.slash && p.isName():
		return nil, syscall.EISDIR
	case create && p.n == nil && p.long == nil:
		p.n = newFile(perm)
		p.dir().set(p.last, p.n)
		return p.n, nil
	case p.there() != nil:
		return nil, p.there()
	case create && flag&os.O_EXCL != 0:
		return nil, syscall.EEXIST
	case p.n.isDir() && (create || flag&(os.O_WRONLY|os.O_RDWR) != 0):
		return nil, syscall.EISDIR
	case flag&os.O_TRUNC != 0 && !p.n.isDir():
		p.n.truncate(0)
	}
	return p.n, nil
}

// A target is where a name leads.
type target struct {
	above []*inode // the directories from the root to the one that the last part is in
	last  string   // the last part; "." if it is no name in that directory
	slash bool     // the name ends in a slash, so it can only be a directory's
	n     *inode   // nil if there is nothing
	long  error    // ENAMETOOLONG if the last part is too long; then there is nothing
}

// dir is the directory that the last part is in.
func (p *target) dir() *inode { return p.above[len(p.above)-1] }

// there returns an error if the name leads to nothing, or if a slash follows a file's name.
func (p *target) there() error {
	switch {
	case p.long != nil:
		return p.long
	case p.n == nil:
		return syscall.ENOENT
	case p.slash && !p.n.isDir():
		return syscall.ENOTDIR
	}
	return nil
}

// The longest names that Linux takes, of a whole path and of one part of it.
const pathMax, partMax = 4095, 255

// find returns the target of a name. As on Linux, everything before the last part must exist, also
// what ".." takes back.
func (s *System) find(name string) (p target, err error) {
	switch {
	case hasNUL(name):
		return p, syscall.EINVAL
	case name == "":
		return p, syscall.ENOENT
	case len(name) > pathMax:
		return p, syscall.ENAMETOOLONG
	}
	p = target{above: []*inode{s.root}, last: ".", slash: true, n: s.root}
	for part := range strings.SplitSeq(filepath.ToSlash(name[len(filepath.VolumeName(name)):]), "/") {
		if part == "" {
			continue
		}
		if err := p.there(); err != nil {
			return p, err
		}
		p.enter(part)
	}
	p.slash = os.IsPathSeparator(name[len(name)-1])
	return p, nil
}

// enter goes on from a directory to one of its names.
func (p *target) enter(part string) {
	if p.isName() {
		p.above = append(p.above, p.n)
	}
	if p.last = part; part == ".." {
		p.above = p.above[:max(1, len(p.above)-1)]
	}
	if p.n = p.dir(); p.isName() {
		p.n = p.dir().names[part]
	}
	if len(part) > partMax {
		p.long = syscall.ENAMETOOLONG
	}
}

// isName reports whether the last part is a name in its directory.
func (p *target) isName() bool { return p.last != "." && p.last != ".." }

func hasNUL(name string) bool { return strings.IndexByte(name, 0) >= 0 }

// path returns a name without its volume, from the root.
func path(name string) string {
	return filepath.Join(string(filepath.Separator), name[len(filepath.VolumeName(name)):])
}

// Mkdir makes a directory.
func (s *System) Mkdir(name string, perm os.FileMode) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	p, err := s.find(name)
	switch {
	case err != nil:
	case p.n != nil:
		err = syscall.EEXIST
	case p.long != nil:
		err = p.long
	default:
		p.dir().set(p.last, newDir(perm))
		return nil
	}
	return &os.PathError{Op: "mkdir", Path: name, Err: err}
}

// Remove removes a file or an empty directory.
func (s *System) Remove(name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.remove(name); err != nil {
		return &os.PathError{Op: "remove", Path: name, Err: err}
	}
	return nil
}

func (s *System) remove(name string) error {
	p, err := s.find(name)
	switch {
	case err != nil:
		return err
	case p.there() != nil:
		return p.there()
	case p.n == s.root:
		return syscall.EBUSY
	case p.last == ".":
		return syscall.EINVAL
	case p.last == ".." || len(p.n.names) > 0:
		return syscall.ENOTEMPTY
	}
	p.dir().set(p.last, nil)
	return nil
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
	from, err := s.find(oldname)
	to, newErr := s.find(newname)
	switch onto := newErr == nil && to.n != nil && to.n.isDir(); {
	case hasNUL(newname):
		return newErr
	case err != nil:
		return err
	case onto && from.there() != nil:
		return from.there()
	case onto && (oldname == newname || from.n != to.n): // package os refuses it
		return syscall.EEXIST
	case newErr != nil:
		return newErr
	case !from.isName() || !to.isName():
		return syscall.EBUSY
	case from.n == nil:
		return from.there()
	case to.long != nil:
		return to.long
	case !from.n.isDir() && (from.slash || to.slash):
		return syscall.ENOTDIR
	case slices.Contains(to.above, from.n):
		return syscall.EINVAL
	case to.n == from.n:
		return nil
	case from.n.isDir() && to.n != nil:
		return syscall.ENOTDIR
	}
	to.dir().set(to.last, from.n)
	from.dir().set(from.last, nil)
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
	from, err := s.find(oldname)
	to, newErr := s.find(newname)
	switch {
	case hasNUL(newname):
		return newErr
	case err != nil:
		return err
	case from.there() != nil:
		return from.there()
	case newErr != nil:
		return newErr
	case to.n != nil:
		return syscall.EEXIST
	case to.long != nil:
		return to.long
	case to.slash:
		return syscall.ENOENT
	case from.n.isDir():
		return syscall.EPERM
	}
	to.dir().set(to.last, from.n)
	return nil
}

// Stat describes a file or a directory.
func (s *System) Stat(name string) (os.FileInfo, error) { return s.stat("stat", name) }

// Lstat is Stat, as there are no symbolic links.
func (s *System) Lstat(name string) (os.FileInfo, error) { return s.stat("lstat", name) }

func (s *System) stat(op, name string) (os.FileInfo, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	p, err := s.find(name)
	if err == nil {
		err = p.there()
	}
	if err != nil {
		return nil, &os.PathError{Op: op, Path: name, Err: err}
	}
	return p.n.describe(name), nil
}

// Space implements files.System: memory has no end.
func (s *System) Space(string) (free, size uint64, err error) { return 0, 0, errors.ErrUnsupported }

// Resolve returns the absolute name of a file that exists. As that of the operating system, it first
// shortens the name, whatever is there.
func (s *System) Resolve(name string) (string, error) {
	name = filepath.VolumeName(name) + path(name)
	if _, err := s.Lstat(name); err != nil {
		return "", err
	}
	return name, nil
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
