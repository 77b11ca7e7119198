package storage

import (
	"errors"
	"io"
	"os"
	"path/filepath"

	"github.com/cockroachdb/pebble/vfs"

	"github.com/vivarium-go/vivarium/storage/disk"
)

// A filesystem gives Pebble access to the disk. Its files expose no descriptor, so Pebble can
// neither preallocate nor sync ranges without passing the switch.
type filesystem struct {
	disk *disk.Disk
}

var _ vfs.FS = filesystem{}

func (f filesystem) Create(name string) (vfs.File, error) { return opened(f.disk.Create(name)) }

func (f filesystem) Open(name string, opts ...vfs.OpenOption) (vfs.File, error) {
	file, err := opened(f.disk.OpenForRead(name))
	if err != nil {
		return nil, err
	}
	for _, o := range opts {
		o.Apply(file)
	}
	return file, nil
}

func (f filesystem) OpenDir(name string) (vfs.File, error) { return opened(f.disk.OpenDir(name)) }

func (f filesystem) ReuseForWrite(old, name string) (vfs.File, error) {
	return opened(f.disk.ReuseForWrite(old, name))
}

// opened keeps a nil disk.File from becoming a non-nil vfs.File.
func opened(file disk.File, err error) (vfs.File, error) {
	if err != nil {
		return nil, err
	}
	return file, nil
}

func (f filesystem) Link(old, name string) error               { return f.disk.Link(old, name) }
func (f filesystem) Remove(name string) error                  { return f.disk.Remove(name) }
func (f filesystem) RemoveAll(name string) error               { return f.disk.RemoveAll(name) }
func (f filesystem) MkdirAll(name string, _ os.FileMode) error { return f.disk.MkdirAll(name) }
func (f filesystem) Lock(name string) (io.Closer, error)       { return f.disk.Lock(name) }
func (f filesystem) List(name string) ([]string, error)        { return f.disk.List(name) }
func (f filesystem) Stat(name string) (os.FileInfo, error)     { return f.disk.Stat(name) }
func (f filesystem) PathBase(name string) string               { return filepath.Base(name) }
func (f filesystem) PathJoin(elem ...string) string            { return filepath.Join(elem...) }
func (f filesystem) PathDir(name string) string                { return filepath.Dir(name) }
func (f filesystem) GetDiskUsage(string) (vfs.DiskUsage, error) {
	return vfs.DiskUsage{}, vfs.ErrUnsupported
}

// Rename syncs the directory before it replaces CURRENT, which names the MANIFEST in use. Pebble
// syncs the directory only afterwards, so a power cut could keep CURRENT and lose the MANIFEST it
// names.
func (f filesystem) Rename(old, name string) error {
	if filepath.Base(name) == "CURRENT" {
		if err := syncDir(f.disk, filepath.Dir(name)); err != nil {
			return err
		}
	}
	return f.disk.Rename(old, name)
}

func syncDir(d *disk.Disk, name string) error {
	dir, err := d.OpenDir(name)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
