package datadir

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"
	"strings"

	"github.com/vivarium-go/vivarium/replication"
	"github.com/vivarium-go/vivarium/storage"
	"github.com/vivarium-go/vivarium/storage/disk"
)

// formerName is the name of the directory that has what a former member of this directory has left:
// its identity file, log and image. It may be all that is left of an ensemble that somebody has ended
// by mistake. So it goes only when this node is ready as the new member.
const formerName = "former"

// A Former is what a former member has left in a directory.
type Former struct {
	Disk *disk.Disk
	Dir  string // the member's
	Log  *slog.Logger
}

func (f Former) dir() string { return filepath.Join(f.Dir, formerName) }

// dataNames are the names of what a member has besides its identity file.
func dataNames() []string { return []string{replication.RaftName, ImagesName} }

// SetAside moves what a member that is out has left into the directory former. Its identity file
// comes last there, and says that all is there. What a later member has left that was never ready is
// of no use beside that.
func (f Former) SetAside() error {
	old, found, err := replication.ReadIdentity(f.Disk, f.Dir)
	if err != nil || !found || old.Out == "" {
		return err
	}
	kept, whole, err := replication.ReadIdentity(f.Disk, f.dir())
	if err != nil {
		return err
	}
	if whole && old.Log != "" && kept.Directory != old.Directory { // it was ready, and has not come to deleting what was before
		if err := f.Drop(); err != nil {
			return err
		}
		whole = false
	}
	if err := f.Disk.MkdirAll(f.dir()); err != nil {
		return err
	}
	for _, name := range dataNames() {
		if err := f.setNameAside(name, whole); err != nil {
			return err
		}
	}
	if !whole {
		err = replication.WriteIdentity(f.Disk, f.dir(), old)
	}
	return errors.Join(err, f.syncDir())
}

// setNameAside moves a part of the data into the directory former, or deletes it.
func (f Former) setNameAside(name string, remove bool) error {
	from, to := filepath.Join(f.Dir, name), filepath.Join(f.dir(), name)
	there, err := isThere(f.Disk, from)
	switch {
	case err != nil || !there:
		return err
	case remove:
		return f.Disk.RemoveAll(from)
	}
	if err := f.Disk.RemoveAll(to); err != nil { // what a deletion has left that was interrupted
		return err
	}
	return f.Disk.Rename(from, to)
}

// Drop deletes what a former member has left. It takes the whole away first: a part of it that a
// crash leaves must not pass for what is to be kept. What cannot be deleted then stops nobody.
func (f Former) Drop() error {
	f.discard()
	there, err := isThere(f.Disk, f.dir())
	if err != nil || !there {
		return err
	}
	gone := f.dir() + ".old"
	for n := 2; ; n++ {
		taken, err := isThere(f.Disk, gone)
		if err != nil {
			return err
		}
		if !taken {
			break
		}
		gone = fmt.Sprintf("%s.old-%d", f.dir(), n)
	}
	if err := errors.Join(f.Disk.Rename(f.dir(), gone), f.syncDir()); err != nil {
		return err
	}
	f.discard()
	return nil
}

// discard deletes what Drop has taken away.
func (f Former) discard() {
	names, err := f.Disk.List(f.Dir)
	for _, name := range names {
		if strings.HasPrefix(name, formerName+".old") {
			err = errors.Join(err, f.Disk.Discard(filepath.Join(f.Dir, name)))
		}
	}
	if err != nil {
		f.Log.Warn("the data of a former member cannot be deleted", "dir", f.Dir, "cause", err)
	}
}

// LeaveRoom deletes what a former member has left if the disk could not hold as much again.
func (f Former) LeaveRoom() error {
	there, err := isThere(f.Disk, f.dir())
	if err != nil || !there {
		return err
	}
	size, err := f.Disk.Usage(f.dir())
	if err != nil {
		return err
	}
	if free, _, err := f.Disk.Space(); err != nil || free > size {
		return nil // a system that cannot tell may have room
	}
	return f.makeRoom()
}

// MakeRoom deletes what a former member has left, if there is anything.
func (f Former) MakeRoom() {
	if there, err := isThere(f.Disk, f.dir()); there && err == nil {
		_ = f.makeRoom() // an error has failed the node
	}
}

func (f Former) makeRoom() error {
	f.Log.Warn("no room for the data of a former member beside the new data: it is deleted", "dir", f.dir())
	return f.Drop()
}

func (f Former) syncDir() error {
	dir, err := f.Disk.OpenDir(f.Dir)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// CheckUnused checks that the directory of a node that has yet to join has no data. If it has, its
// identity file is of another time.
func (f Former) CheckUnused(shards int) error {
	view := f.Disk.View()
	used, err := isThere(view, filepath.Join(f.Dir, replication.RaftName))
	if err != nil {
		return err
	}
	for i := 0; i < shards && !used; i++ {
		applied, _, err := storage.Peek(storage.Options{Disk: view, Dir: ImageDir(f.Dir, replication.ShardID(i+1)), Logger: f.Log})
		if err != nil {
			return err
		}
		used = applied > 0
	}
	if used {
		return fmt.Errorf("%s holds data, and its identity file is of a time before it was a member: part of the directory is from another time; %s", f.Dir, replication.WayOut)
	}
	return nil
}

// isThere reports whether there is a directory.
func isThere(d *disk.Disk, name string) (bool, error) {
	f, err := d.OpenDir(name)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return true, f.Close()
}
