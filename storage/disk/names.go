package disk

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/vivarium-go/vivarium/internal/files"
)

// Create creates an empty file for reading and writing. If the name exists, the old file loses the
// name but stays usable through its open handles. The new file never shares its bytes.
func (d *Disk) Create(name string) (File, error) {
	rel, err := d.below("create", name)
	if err != nil {
		return nil, err
	}
	return d.open(change{
		op:   OpCreate,
		name: name,
	}, func() (*file, error) {
		real, err := d.createReal(name)
		if err != nil {
			return nil, err
		}
		return d.realFile(name, real, writable)
	}, func() (*file, error) {
		n, err := d.over.create(name, rel)
		if err != nil {
			return nil, err
		}
		return d.memFile(name, n, "", writable), nil
	})
}

// createReal creates a new file. If the name exists, it removes the name first.
func (d *Disk) createReal(name string) (files.File, error) {
	for {
		f, err := d.sys.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, fileMode)
		if !errors.Is(err, os.ErrExist) {
			return f, err
		}
		if info, err := d.sys.Lstat(name); err == nil && info.IsDir() {
			return nil, &os.PathError{Op: "create", Path: name, Err: syscall.EISDIR}
		}
		if d.frozen.Load() {
			return nil, errSwitched
		}
		if err := d.sys.Remove(name); err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, err
		}
		if d.frozen.Load() {
			return nil, errSwitched
		}
	}
}

// OpenForAppend opens an existing file for reading and for writing at its end.
func (d *Disk) OpenForAppend(name string) (File, error) { return d.openToWrite(name, appending) }

// ReuseForWrite renames an existing file and opens it for writing from its beginning. The file
// keeps its old bytes.
func (d *Disk) ReuseForWrite(oldname, newname string) (File, error) {
	if err := d.Rename(oldname, newname); err != nil {
		return nil, err
	}
	return d.openToWrite(newname, 0)
}

func (d *Disk) openToWrite(name string, flags fileFlags) (File, error) {
	rel, err := d.below("open", name)
	if err != nil {
		return nil, err
	}
	return d.open(change{
		op:   OpAppend,
		name: name,
	}, func() (*file, error) {
		// Not with O_APPEND: the node counts the end of the file, so that a failed append knows its
		// place in memory.
		real, err := d.sys.OpenFile(name, os.O_RDWR, 0)
		if err != nil {
			return nil, err
		}
		return d.realFile(name, real, writable|flags)
	}, func() (*file, error) {
		e, err := d.over.file("open", name, rel)
		if err != nil {
			return nil, err
		}
		return d.memFile(name, d.nodeOf(e), e.base, writable|flags), nil
	})
}

// open makes a change whose result is an open file.
func (d *Disk) open(c change, real, mem func() (*file, error)) (File, error) {
	var f *file
	c.real = func() (err error) { f, err = real(); return err }
	c.mem = func() (err error) { f, err = mem(); return err }
	if err := d.do(c); err != nil {
		return nil, err
	}
	return f, nil
}

// Truncate cuts a file off at size bytes and makes that durable. A shorter file is left as it is.
func (d *Disk) Truncate(name string, size int64) error {
	opened, err := d.OpenForAppend(name)
	if err != nil {
		return err
	}
	f := opened.(*file)
	if err := f.truncate(size); err != nil {
		return errors.Join(err, f.Close())
	}
	return errors.Join(f.Sync(), f.Close())
}

// Rename renames a file or directory. A file that has the new name loses it. As with os.Rename, a
// directory is never replaced.
func (d *Disk) Rename(oldname, newname string) error {
	oldrel, err := d.below("rename", oldname)
	if err != nil {
		return err
	}
	newrel, err := d.below("rename", newname)
	if err != nil {
		return err
	}
	return d.do(d.renaming(oldname, newname, oldrel, newrel))
}

func (d *Disk) renaming(oldname, newname, oldrel, newrel string) change {
	var file os.FileInfo
	return change{
		op:   OpRename,
		name: newname,
		old:  oldname,
		real: func() error {
			file, _ = d.sys.Lstat(oldname)
			return d.renameReal(oldname, newname)
		},
		mem:     func() error { return d.over.rename(oldname, newname, oldrel, newrel) },
		answers: []error{syscall.EINVAL}, // a directory into itself
		landed: func() bool {
			renamed := file != nil && d.isGone(oldname) && d.isAt(newname, file)
			if renamed {
				d.dirs.restore(newname, d.dirs.forget(oldname))
			}
			return renamed
		},
	}
}

func (d *Disk) renameReal(oldname, newname string) error {
	below := d.dirs.forget(oldname)
	if err := d.sys.Rename(oldname, newname); err != nil {
		d.dirs.restore(oldname, below)
		return err
	}
	d.dirs.restore(newname, below)
	return nil
}

// Link gives a file a second name. If the file system does not support links, Link returns its
// error without throwing the switch, and the caller may copy the file.
func (d *Disk) Link(oldname, newname string) error {
	oldrel, err := d.below("link", oldname)
	if err != nil {
		return err
	}
	newrel, err := d.below("link", newname)
	if err != nil {
		return err
	}
	return d.do(d.linking(oldname, newname, oldrel, newrel))
}

func (d *Disk) linking(oldname, newname, oldrel, newrel string) change {
	return change{
		op:      OpLink,
		name:    newname,
		old:     oldname,
		real:    func() error { return d.sys.Link(oldname, newname) },
		mem:     func() error { return d.over.link(oldname, newname, oldrel, newrel) },
		answers: []error{syscall.EPERM, syscall.EXDEV, errors.ErrUnsupported},
		landed: func() bool {
			file, err := d.sys.Lstat(oldname)
			return err == nil && d.isAt(newname, file)
		},
	}
}

// isAt reports whether name is a name of file in the real directory.
func (d *Disk) isAt(name string, file os.FileInfo) bool {
	found, err := d.sys.Lstat(name)
	return err == nil && files.Same(found, file)
}

// isGone reports whether the real directory has no such name.
func (d *Disk) isGone(name string) bool {
	_, err := d.sys.Lstat(name)
	return errors.Is(err, os.ErrNotExist)
}

// Remove removes a file or an empty directory.
func (d *Disk) Remove(name string) error {
	rel, err := d.below("remove", name)
	if err != nil {
		return err
	}
	return d.do(d.removing(name, rel))
}

func (d *Disk) removing(name, rel string) change {
	return change{
		op:   OpRemove,
		name: name,
		real: func() error {
			below := d.dirs.forget(name)
			err := d.sys.Remove(name)
			if err != nil {
				d.dirs.restore(name, below)
			}
			return err
		},
		mem: func() error { return d.over.remove(name, rel) },
		landed: func() bool {
			gone := d.isGone(name)
			if gone {
				d.dirs.forget(name)
			}
			return gone
		},
	}
}

// RemoveAll removes a name and everything below it. It returns nil if the name does not exist.
func (d *Disk) RemoveAll(name string) error { return d.removeAll(name, false) }

// Discard is RemoveAll for what no call will need again, its name included. If that cannot be
// removed, Discard removes what it can and returns the errors. It does not throw the switch: what fails to
// be deleted does not stop what is to be written.
func (d *Disk) Discard(name string) error { return d.removeAll(name, true) }

func (d *Disk) removeAll(name string, spare bool) error {
	rel, err := d.below("removeall", name)
	if err != nil {
		return err
	}
	return d.do(change{
		op:    OpRemoveAll,
		name:  name,
		spare: spare,
		real: func() error {
			d.dirs.forget(name)
			return d.removeReal(name, spare)
		},
		mem: func() error { return d.over.removeAll(name, rel) },
	})
}

// removeReal is os.RemoveAll in steps, with a check of the switch before each removal. With spare it
// goes on after what cannot be removed.
func (d *Disk) removeReal(name string, spare bool) error {
	if d.frozen.Load() {
		return errSwitched
	}
	err := d.sys.Remove(name)
	if err == nil || errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if info, serr := d.sys.Lstat(name); serr != nil || !info.IsDir() {
		return err
	}
	names, err := readNames(d.sys, name)
	if err != nil {
		return err
	}
	var errs []error
	for _, n := range names {
		err := d.removeReal(filepath.Join(name, n), spare)
		if err != nil && !spare {
			return err
		}
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if d.frozen.Load() {
		return errSwitched
	}
	if err := d.sys.Remove(name); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// MkdirAll makes a directory and any missing directories above it. The directory may exist.
func (d *Disk) MkdirAll(name string) error {
	rel, err := d.rel("mkdir", name)
	if err != nil {
		return err
	}
	return d.do(change{
		op:   OpMkdir,
		name: name,
		real: func() error {
			err := d.mkdirReal(filepath.Clean(name))
			if err == nil {
				d.made(name)
			}
			return err
		},
		mem: func() error { return d.over.mkdirAll(name, rel) },
	})
}

// mkdirReal is os.MkdirAll below the Disk's directory, with a check of the switch before each step.
func (d *Disk) mkdirReal(name string) error {
	info, err := d.sys.Stat(name)
	if err == nil && !info.IsDir() {
		return &os.PathError{Op: "mkdir", Path: name, Err: syscall.ENOTDIR}
	}
	if err == nil {
		return nil
	}
	if d.vanished(name) {
		return d.removed("directory", name) // making it again would hide the loss of its contents
	}
	if name != d.dir {
		if err := d.mkdirReal(filepath.Dir(name)); err != nil {
			return err
		}
	}
	if d.frozen.Load() {
		return errSwitched
	}
	err = d.sys.Mkdir(name, dirMode)
	if info, serr := d.sys.Stat(name); err != nil && serr == nil && info.IsDir() {
		return nil
	}
	return err
}

// OpenForRead opens a file for reading, or a directory for Stat and Sync.
func (d *Disk) OpenForRead(name string) (File, error) {
	rel, err := d.rel("open", name)
	if err != nil {
		return nil, err
	}
	var real files.File
	if !d.frozen.Load() {
		err = d.read(OpOpen, name, func() (err error) { real, err = d.sys.OpenFile(name, os.O_RDONLY, 0); return err })
	}
	if d.frozen.Load() {
		return d.openInstead(name, rel, real)
	}
	if err != nil {
		return nil, err
	}
	return d.realHandle(name, real)
}

// openInstead is openFrozen for a caller that may have opened a real file, which it closes.
func (d *Disk) openInstead(name, rel string, real files.File) (File, error) {
	if real != nil {
		if err := real.Close(); err != nil {
			return nil, err
		}
	}
	return d.openFrozen(name, rel)
}

// read makes a call that reads, before the switch. If a directory that must exist is missing, read
// throws the switch. The caller must check the switch afterwards and then ask memory.
func (d *Disk) read(op Op, name string, call func() error) error {
	err := d.patiently(false, func() error {
		if err := d.askRead(op, name); err != nil {
			return err
		}
		return call()
	})
	if blamed := d.blame(err, name); errors.Is(blamed, ErrRemoved) {
		d.Fail(blamed)
		d.awaitFailed()
		return blamed
	}
	return err
}

// openFrozen is OpenForRead after the switch.
func (d *Disk) openFrozen(name, rel string) (File, error) {
	e, err := d.over.find("open", name, rel)
	if err != nil {
		return nil, err
	}
	if e.dir != nil {
		return &dirFile{d: d, name: name, info: e.dir.stat(filepath.Base(name))}, nil
	}
	if e.base == "" {
		return d.memFile(name, e.node, "", 0), nil
	}
	if err := d.askRead(OpOpen, name); err != nil {
		return nil, err
	}
	real, err := d.sys.OpenFile(e.base, os.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	return d.realHandle(name, real)
}

// realHandle wraps a file or directory of the operating system that was opened for reading.
func (d *Disk) realHandle(name string, real files.File) (File, error) {
	info, err := real.Stat()
	if err != nil {
		return nil, errors.Join(err, real.Close())
	}
	if info.IsDir() {
		return d.realDir(name, real, info), nil
	}
	return d.realFile(name, real, 0)
}

// OpenDir opens a directory for Stat and Sync. It is the first step to make a change durable, so an
// error throws the switch. The exception is a directory that does not exist.
func (d *Disk) OpenDir(name string) (File, error) {
	rel, err := d.rel("open", name)
	if err != nil {
		return nil, err
	}
	var f *dirFile
	err = d.do(change{
		op:   OpOpen,
		name: name,
		real: func() (err error) { f, err = d.openDirReal(name); return err },
		mem:  func() (err error) { f, err = d.openDirMem(name, rel); return err },
	})
	if err != nil {
		return nil, err
	}
	return f, nil
}

func (d *Disk) openDirReal(name string) (*dirFile, error) {
	real, err := d.sys.OpenFile(name, os.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	info, err := real.Stat()
	if err == nil && !info.IsDir() {
		err = named("open", name, syscall.ENOTDIR)
	}
	if err != nil {
		return nil, errors.Join(err, real.Close())
	}
	d.made(name)
	return d.realDir(name, real, info), nil
}

func (d *Disk) openDirMem(name, rel string) (*dirFile, error) {
	dir, err := d.over.directory(name, rel)
	if err != nil {
		return nil, err
	}
	return &dirFile{d: d, name: name, info: dir.stat(filepath.Base(name))}, nil
}

// List returns the names in a directory, sorted.
func (d *Disk) List(name string) ([]string, error) {
	rel, err := d.rel("list", name)
	if err != nil {
		return nil, err
	}
	var names []string
	if !d.frozen.Load() {
		err = d.read(OpList, name, func() (err error) { names, err = readNames(d.sys, name); return err })
	}
	if d.frozen.Load() {
		return d.over.list(name, rel)
	}
	return names, err
}

// Stat describes a file or directory.
func (d *Disk) Stat(name string) (os.FileInfo, error) {
	rel, err := d.rel("stat", name)
	if err != nil {
		return nil, err
	}
	var info os.FileInfo
	if !d.frozen.Load() {
		err = d.read(OpStat, name, func() (err error) { info, err = d.sys.Stat(name); return err })
	}
	if !d.frozen.Load() {
		if err != nil {
			return nil, err
		}
		if n := d.nodes.find(info); n != nil {
			return n.trim(info), nil
		}
		return info, nil
	}
	return d.statFrozen(name, rel)
}

// statFrozen is Stat after the switch.
func (d *Disk) statFrozen(name, rel string) (os.FileInfo, error) {
	e, err := d.over.find("stat", name, rel)
	if err != nil {
		return nil, err
	}
	base := filepath.Base(name)
	if e.dir != nil {
		return e.dir.stat(base), nil
	}
	if e.base == "" {
		return e.node.stat(base), nil
	}
	if n := d.nodes.find(e.info); n != nil {
		return n.stat(base), nil
	}
	return renamed(e.info, base), nil
}

// readNames lists a real directory.
func readNames(sys files.System, name string) (names []string, err error) {
	f, err := sys.OpenFile(name, os.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	names, err = f.Readdirnames(-1)
	slices.Sort(names)
	return names, err
}
