package engine

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/vivarium-go/vivarium/replication"
	"github.com/vivarium-go/vivarium/storage"
	"github.com/vivarium-go/vivarium/storage/disk"
)

// formerName is the name of the directory that has what a former member of this directory has left:
// its identity file, log and image. It may be all that is left of an ensemble that somebody has ended
// by mistake. So it goes only when this node is ready as the new member.
const formerName = "former"

func (e *Engine) formerDir() string { return filepath.Join(e.cfg.Dir, formerName) }

// dataNames are the names of what a member has besides its identity file.
func dataNames() []string { return []string{replication.RaftName, imagesName} }

// setAside moves what a member that is out has left into the directory former. Its identity file
// comes last there, and says that all is there. Whatever is found later beside that is of a member
// that was never ready, and is of no use.
func (e *Engine) setAside() error {
	old, found, err := replication.ReadIdentity(e.disk, e.cfg.Dir)
	if err != nil || !found || old.Out == "" {
		return err
	}
	_, whole, err := replication.ReadIdentity(e.disk, e.formerDir())
	if err != nil {
		return err
	}
	if err := e.disk.MkdirAll(e.formerDir(), 0o777); err != nil {
		return err
	}
	for _, name := range dataNames() {
		from := filepath.Join(e.cfg.Dir, name)
		there, err := isThere(e.disk, from)
		switch {
		case err != nil || !there:
		case whole:
			err = e.disk.RemoveAll(from)
		default:
			err = e.disk.Rename(from, filepath.Join(e.formerDir(), name))
		}
		if err != nil {
			return err
		}
	}
	if whole {
		return nil
	}
	return replication.WriteIdentity(e.disk, e.formerDir(), old)
}

// dropFormer deletes what a former member has left.
func (e *Engine) dropFormer() { _ = e.disk.RemoveAll(e.formerDir()) } // an error has failed the node

// checkUnused checks that the directory of a node that has yet to join has no data. If it has, its
// identity file is of another time.
func (e *Engine) checkUnused() error {
	view := e.disk.View()
	used, err := isThere(view, filepath.Join(e.cfg.Dir, replication.RaftName))
	if err != nil {
		return err
	}
	for i := 0; i < e.cfg.Shards && !used; i++ {
		applied, _, err := storage.Peek(storage.Options{Disk: view, Dir: e.imageDir(ShardID(i + 1)), Logger: e.log})
		if err != nil {
			return err
		}
		used = applied > 0
	}
	if used {
		return fmt.Errorf("%s holds data, and its identity file is of a time before it was a member: part of the directory is from another time; %s", e.cfg.Dir, replication.WayOut)
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
