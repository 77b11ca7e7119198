package disk

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/vivarium-go/vivarium/internal/files"
)

// directory is a directory after the switch: the real one, if any, and the names that differ from
// it.
type directory struct {
	base  string // the real directory; empty if memory alone has it
	info  os.FileInfo
	mode  os.FileMode
	made  time.Time
	names map[string]entry
}

// entry is the meaning of a name. The zero entry is a name that was removed.
type entry struct {
	dir  *directory  // a directory
	node *node       // a file that memory alone has
	base string      // a file on disk: its real path
	info os.FileInfo // of the file on disk

	// unknown is set if the disk could not even say what base is.
	unknown bool
}

func (e entry) gone() bool { return e.dir == nil && e.node == nil && e.base == "" }

// same reports whether two entries are the same file.
func (e entry) same(o entry) bool {
	if e.node != nil || o.node != nil {
		return e.node == o.node
	}
	return e.dir == nil && o.dir == nil && files.Same(e.info, o.info)
}

// asDir returns the directory that e stands for, or an error if e is no directory.
func (e entry) asDir() (*directory, error) {
	if e.unknown {
		return &directory{base: e.base, mode: dirMode}, nil
	}
	if e.dir == nil {
		return nil, syscall.ENOTDIR
	}
	return e.dir, nil
}

// set makes name stand for e in dir.
func (dir *directory) set(name string, e entry) {
	if dir.names == nil {
		dir.names = make(map[string]entry)
	}
	dir.names[name] = e
}

// stat describes the directory.
func (dir *directory) stat(name string) os.FileInfo {
	if dir.info != nil {
		return renamed(dir.info, name)
	}
	return fileInfo{name: name, mode: dir.mode | os.ModeDir, modified: dir.made}
}

// look holds the answers that one call has received from the real directory.
//
// The overlay's lock is not held while the disk is asked. So a call runs on the answers it has. If
// it misses one, it gives up, the question is asked without the lock, and the call runs again from
// its beginning. The real directory no longer changes, so the answers stay true. A call may change
// the overlay only after all its questions were answered.
type look struct {
	sys      files.System
	dirs     *dirs
	changing bool // the call changes something and must succeed whatever the disk answers
	stats    map[string]statAnswer
	lists    map[string]listAnswer
	missing  func() // asks the question that the last run missed
}

type statAnswer struct {
	info os.FileInfo
	err  error
}

type listAnswer struct {
	names []string
	err   error
}

// errMissing ends a run that missed an answer.
var errMissing = errors.New("not asked yet")

func (l *look) stat(path string) (os.FileInfo, error) {
	if a, ok := l.stats[path]; ok {
		return a.info, a.err
	}
	l.missing = func() {
		info, err := l.sys.Stat(path)
		if l.removed(path, err) {
			info, err = fileInfo{name: filepath.Base(path), mode: os.ModeDir | dirMode}, nil
		}
		l.stats[path] = statAnswer{info, plain(err)}
	}
	return nil, errMissing
}

func (l *look) list(path string) ([]string, error) {
	if a, ok := l.lists[path]; ok {
		return a.names, a.err
	}
	l.missing = func() {
		names, err := readNames(l.sys, path)
		if l.removed(path, err) {
			err = nil
		}
		l.lists[path] = listAnswer{names, plain(err)}
	}
	return nil, errMissing
}

// removed reports whether a directory that must exist is missing. Code that goes on in memory sees
// it as existing and empty, because without it that code could not end in good order.
func (l *look) removed(path string, err error) bool {
	return errors.Is(err, os.ErrNotExist) && l.dirs.has(path)
}

// plain removes the real path from an error: the caller knows the file by another name.
func plain(err error) error {
	var pe *os.PathError
	if errors.As(err, &pe) {
		return pe.Err
	}
	return err
}

// child returns what name stands for in dir. The error is ErrNotExist, errMissing, or one from the
// disk.
func (l *look) child(dir *directory, name string) (entry, error) {
	if e, ok := dir.names[name]; ok {
		if e.gone() {
			return e, syscall.ENOENT
		}
		return e, nil
	}
	if dir.base == "" {
		return entry{}, syscall.ENOENT
	}
	path := filepath.Join(dir.base, name)
	info, err := l.stat(path)
	switch {
	case err == nil && info.IsDir():
		return entry{dir: &directory{base: path, info: info}}, nil
	case err == nil:
		return entry{base: path, info: info}, nil
	case l.changing && err != errMissing && !isAnswer(err):
		// The call must succeed. There may be a file that cannot be read.
		return entry{base: path, info: fileInfo{name: name}, unknown: true}, nil
	}
	return entry{}, err
}

// children returns the names in dir, sorted.
func (l *look) children(dir *directory) ([]string, error) {
	set := make(map[string]struct{})
	if dir.base != "" {
		names, err := l.list(dir.base)
		if err != nil && (err == errMissing || !l.changing) {
			return nil, err
		}
		for _, name := range names {
			set[name] = struct{}{}
		}
	}
	for name, e := range dir.names {
		set[name] = struct{}{}
		if e.gone() {
			delete(set, name)
		}
	}
	return slices.Sorted(maps.Keys(set)), nil
}

// find returns what the path rel stands for.
func (l *look) find(root *directory, rel string) (entry, error) {
	e := entry{dir: root}
	if rel == "." {
		if root.info != nil {
			return e, nil
		}
		var err error
		root.info, err = l.stat(root.base)
		return e, err
	}
	for name := range strings.SplitSeq(rel, string(filepath.Separator)) {
		dir, err := e.asDir()
		if err != nil {
			return entry{}, err
		}
		if e, err = l.child(dir, name); err != nil {
			return entry{}, err
		}
	}
	return e, nil
}

// parent returns the directory of the path rel, prepared for changes, and the last name in rel. It
// adds the directories on the way to the overlay, which nobody can observe.
func (l *look) parent(root *directory, rel string) (*directory, string, error) {
	dir, name := filepath.Split(rel)
	if dir == "" {
		return root, name, nil
	}
	p, err := l.enter(root, filepath.Clean(dir), nil)
	return p, name, err
}

// enter returns the directory rel, prepared for changes. If make is not nil, it makes the missing
// directories.
func (l *look) enter(root *directory, rel string, make func() *directory) (*directory, error) {
	if rel == "." {
		return root, nil
	}
	dir := root
	for name := range strings.SplitSeq(rel, string(filepath.Separator)) {
		e, err := l.child(dir, name)
		if make != nil && errors.Is(err, os.ErrNotExist) {
			e, err = entry{dir: make()}, nil
		}
		if err != nil {
			return nil, err
		}
		next, err := e.asDir()
		if err != nil {
			return nil, err
		}
		dir.set(name, entry{dir: next})
		dir = next
	}
	return dir, nil
}
