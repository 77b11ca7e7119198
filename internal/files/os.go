package files

import (
	"os"
	"path/filepath"
	"sync/atomic"
)

// OS is the file system of the operating system.
var OS System = system{}

type system struct{}

// A file is an open file of the operating system.
type file struct {
	*os.File
	locked atomic.Bool
}

func (system) OpenFile(name string, flag int, perm os.FileMode) (File, error) {
	f, err := os.OpenFile(name, flag, perm)
	if err != nil {
		return nil, err
	}
	return &file{File: f}, nil
}

// Close also ends the lock by name. Closing alone would leave it while a child that the process has
// just forked still has the descriptor, which is until the child's exec.
func (f *file) Close() error {
	if f.locked.Swap(false) {
		f.unlock()
	}
	return f.File.Close()
}

func (system) Mkdir(name string, perm os.FileMode) error { return os.Mkdir(name, perm) }
func (system) Remove(name string) error                  { return os.Remove(name) }
func (system) Rename(oldname, newname string) error      { return os.Rename(oldname, newname) }
func (system) Link(oldname, newname string) error        { return os.Link(oldname, newname) }
func (system) Stat(name string) (os.FileInfo, error)     { return os.Stat(name) }
func (system) Lstat(name string) (os.FileInfo, error)    { return os.Lstat(name) }

func (system) Resolve(name string) (string, error) {
	abs, err := filepath.Abs(name)
	if err != nil {
		return "", err
	}
	return filepath.EvalSymlinks(abs)
}
