package engine

import (
	"errors"
	"fmt"
	"io/fs"
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

func (e *Engine) formerDir() string { return filepath.Join(e.cfg.Dir, formerName) }

// dataNames are the names of what a member has besides its identity file.
func dataNames() []string { return []string{replication.RaftName, imagesName} }

// setAside moves what a member that is out has left into the directory former. Its identity file
// comes last there, and says that all is there. What a later member has left that was never ready is
// of no use beside that.
func (e *Engine) setAside() error {
	old, found, err := replication.ReadIdentity(e.disk, e.cfg.Dir)
	if err != nil || !found || old.Out == "" {
		return err
	}
	kept, whole, err := replication.ReadIdentity(e.disk, e.formerDir())
	if err != nil {
		return err
	}
	if whole && old.Log != "" && kept.Directory != old.Directory { // it was ready, and has not come to deleting what was before
		if err := e.dropFormer(); err != nil {
			return err
		}
		whole = false
	}
	if err := e.disk.MkdirAll(e.formerDir()); err != nil {
		return err
	}
	for _, name := range dataNames() {
		if err := e.setNameAside(name, whole); err != nil {
			return err
		}
	}
	if !whole {
		err = replication.WriteIdentity(e.disk, e.formerDir(), old)
	}
	return errors.Join(err, e.syncDir())
}

// setNameAside moves a part of the data into the directory former, or deletes it.
func (e *Engine) setNameAside(name string, remove bool) error {
	from, to := filepath.Join(e.cfg.Dir, name), filepath.Join(e.formerDir(), name)
	there, err := isThere(e.disk, from)
	switch {
	case err != nil || !there:
		return err
	case remove:
		return e.disk.RemoveAll(from)
	}
	if err := e.disk.RemoveAll(to); err != nil { // what a deletion has left that was interrupted
		return err
	}
	return e.disk.Rename(from, to)
}

// dropFormer deletes what a former member has left. It takes the whole away first: a part of it that a
// crash leaves must not pass for what is to be kept. What cannot be deleted then stops nobody.
func (e *Engine) dropFormer() error {
	e.discardFormer()
	there, err := isThere(e.disk, e.formerDir())
	if err != nil || !there {
		return err
	}
	gone := e.formerDir() + ".old"
	for n := 2; ; n++ {
		taken, err := isThere(e.disk, gone)
		if err != nil {
			return err
		}
		if !taken {
			break
		}
		gone = fmt.Sprintf("%s.old-%d", e.formerDir(), n)
	}
	if err := errors.Join(e.disk.Rename(e.formerDir(), gone), e.syncDir()); err != nil {
		return err
	}
	e.discardFormer()
	return nil
}

// discardFormer deletes what dropFormer has taken away.
func (e *Engine) discardFormer() {
	names, err := e.disk.List(e.cfg.Dir)
	for _, name := range names {
		if strings.HasPrefix(name, formerName+".old") {
			err = errors.Join(err, e.disk.Discard(filepath.Join(e.cfg.Dir, name)))
		}
	}
	if err != nil {
		e.log.Warn("the data of a former member cannot be deleted", "dir", e.cfg.Dir, "cause", err)
	}
}

// roomForFormer deletes what a former member has left if the disk could not hold as much again.
func (e *Engine) roomForFormer() error {
	there, err := isThere(e.disk, e.formerDir())
	if err != nil || !there {
		return err
	}
	size, err := e.disk.Usage(e.formerDir())
	if err != nil {
		return err
	}
	if free, _, err := e.disk.Space(); err != nil || free > size {
		return nil // a system that cannot tell may have room
	}
	return e.makeRoom()
}

// crampedLoop deletes what a former member has left when the disk lacks room. It ends with the node.
func (e *Engine) crampedLoop() {
	for {
		select {
		case <-e.cramped:
			if there, err := isThere(e.disk, e.formerDir()); there && err == nil {
				_ = e.makeRoom() // an error has failed the node
			}
		case <-e.disk.Failed():
			return
		case <-e.stop:
			return
		}
	}
}

func (e *Engine) makeRoom() error {
	e.log.Warn("no room for the data of a former member beside the new data: it is deleted", "dir", e.formerDir())
	return e.dropFormer()
}

func (e *Engine) syncDir() error {
	f, err := e.disk.OpenDir(e.cfg.Dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

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
