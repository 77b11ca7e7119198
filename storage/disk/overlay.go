package disk

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/vivarium-go/vivarium/internal/files"
	"github.com/vivarium-go/vivarium/internal/rank"
)

// overlay is the directory after the switch: the real directory as it was then, and in memory what
// differs from it.
//
// Its calls refuse what the operating system would refuse, with the same errors. They do not fail
// otherwise, except that a read of the real directory may fail.
type overlay struct {
	sys  files.System             // immutable
	dirs *dirs                    // immutable
	mu   rank.Mutex[rank.Overlay] // held briefly, never while the disk is asked
	root *directory
}

// run makes one call; look says how.
func (o *overlay) run(changing bool, call func(l *look) error) error {
	l := &look{sys: o.sys, dirs: o.dirs, changing: changing, stats: make(map[string]statAnswer), lists: make(map[string]listAnswer)}
	for {
		o.mu.Lock()
		err := call(l)
		o.mu.Unlock()
		if l.missing == nil {
			return err
		}
		l.missing()
		l.missing = nil
	}
}

// find returns what a name stands for.
func (o *overlay) find(op, name, rel string) (e entry, err error) {
	err = o.run(false, func(l *look) (err error) {
		e, err = l.find(o.root, rel)
		return err
	})
	return e, named(op, name, err)
}

// file is find for a file that will be written.
func (o *overlay) file(op, name, rel string) (e entry, err error) {
	err = o.run(true, func(l *look) (err error) {
		e, err = l.find(o.root, rel)
		if err == nil && e.dir != nil {
			return syscall.EISDIR
		}
		return err
	})
	return e, named(op, name, err)
}

// directory is find for a directory that will be synced.
func (o *overlay) directory(name, rel string) (dir *directory, err error) {
	err = o.run(true, func(l *look) error {
		e, err := l.find(o.root, rel)
		if err == nil {
			dir, err = e.asDir()
		}
		return err
	})
	return dir, named("open", name, err)
}

// list returns the names in a directory, sorted.
func (o *overlay) list(name, rel string) (names []string, err error) {
	err = o.run(false, func(l *look) error {
		e, err := l.find(o.root, rel)
		if err != nil {
			return err
		}
		if e.dir == nil {
			return syscall.ENOTDIR
		}
		names, err = l.children(e.dir)
		return err
	})
	return names, named("list", name, err)
}

// create makes an empty file, and replaces an existing one.
func (o *overlay) create(name, rel string) (n *node, err error) {
	err = o.run(true, func(l *look) error {
		dir, base, err := l.parent(o.root, rel)
		if err != nil {
			return err
		}
		e, err := l.child(dir, base)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		if e.dir != nil {
			return syscall.EISDIR
		}
		n = newNode(nil)
		dir.set(base, entry{node: n})
		return nil
	})
	return n, named("create", name, err)
}

// mkdirAll makes a directory and any missing directories above it.
func (o *overlay) mkdirAll(name, rel string) error {
	made := time.Now()
	return named("mkdir", name, o.run(true, func(l *look) error {
		_, err := l.enter(o.root, rel, func() *directory {
			return &directory{mode: dirMode, made: made}
		})
		return err
	}))
}

// remove removes a file or an empty directory.
func (o *overlay) remove(name, rel string) error {
	return named("remove", name, o.run(true, func(l *look) error {
		dir, base, err := l.parent(o.root, rel)
		if err != nil {
			return err
		}
		e, err := l.child(dir, base)
		if err != nil {
			return err
		}
		if e.dir != nil {
			names, err := l.children(e.dir)
			if err != nil {
				return err
			}
			if len(names) > 0 {
				return syscall.ENOTEMPTY
			}
		}
		dir.set(base, entry{})
		return nil
	}))
}

// removeAll removes a name and everything below it.
func (o *overlay) removeAll(name, rel string) error {
	return named("removeall", name, o.run(true, func(l *look) error {
		dir, base, err := l.parent(o.root, rel)
		if errors.Is(err, os.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		dir.set(base, entry{})
		return nil
	}))
}

// rename renames a file or directory.
func (o *overlay) rename(oldname, newname, oldrel, newrel string) error {
	err := o.run(true, func(l *look) error {
		olddir, oldbase, err := l.parent(o.root, oldrel)
		if err != nil {
			return err
		}
		newdir, newbase, err := l.parent(o.root, newrel)
		if err != nil {
			return err
		}
		from, err := l.child(olddir, oldbase)
		if err != nil {
			return err
		}
		to, err := l.child(newdir, newbase)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		switch {
		case to.dir != nil:
			return syscall.EEXIST
		case from.dir != nil && strings.HasPrefix(newrel, oldrel+string(filepath.Separator)):
			return syscall.EINVAL
		case from.dir != nil && !to.gone() && !to.unknown:
			return syscall.ENOTDIR
		case !to.gone() && from.same(to):
			return nil // two names of one file: both stay
		}
		olddir.set(oldbase, entry{})
		newdir.set(newbase, from)
		return nil
	})
	return linked("rename", oldname, newname, err)
}

// link gives a file a second name.
func (o *overlay) link(oldname, newname, oldrel, newrel string) error {
	err := o.run(true, func(l *look) error {
		from, err := l.find(o.root, oldrel)
		if err != nil {
			return err
		}
		dir, base, err := l.parent(o.root, newrel)
		if err != nil {
			return err
		}
		to, err := l.child(dir, base)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		switch {
		case !to.gone() && !to.unknown:
			return syscall.EEXIST
		case from.dir != nil:
			return syscall.EPERM
		}
		dir.set(base, from)
		return nil
	})
	return linked("link", oldname, newname, err)
}

// nodeOf returns the node of a file, acquired for the caller, who opens the file.
func (d *Disk) nodeOf(e entry) *node {
	if e.node != nil {
		return e.node
	}
	return d.nodes.acquire(e.info)
}

func named(op, name string, err error) error {
	if err == nil {
		return nil
	}
	return &os.PathError{Op: op, Path: name, Err: err}
}

func linked(op, oldname, newname string, err error) error {
	if err == nil {
		return nil
	}
	return &os.LinkError{Op: op, Old: oldname, New: newname, Err: err}
}
