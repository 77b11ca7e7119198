package replication

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// flagFiles are files of dragonboat that only repeat the identity file. They are written in place,
// so a crash can leave half of one, and dragonboat panics over it. The first also names the host.
var flagFiles = []string{"dragonboat.ds", "NODEHOST.ID"}

// prepareRaftDir prepares dragonboat's directory for this start. The directory exists and its
// folder has the present host's name. The flag files are gone, no log ends in half a record, and
// every byte is durable.
func prepareRaftDir(c Config) error {
	dir := c.raftDir()
	if err := c.Disk.MkdirAll(dir); err != nil {
		return err
	}
	if err := syncDir(c.Disk, c.Dir); err != nil {
		return err
	}
	if err := renameHostFolder(c.Disk, dir); err != nil {
		return err
	}
	for _, name := range flagFiles {
		if err := c.Disk.Remove(filepath.Join(dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	logs, exists, err := logDir(c)
	if err != nil {
		return err
	}
	if exists {
		cut := func(name string, size int64) {
			c.Logger.Warn("the end of the raft log was not written whole, and is cut off", "file", name, "bytes", size)
		}
		if err := cutTails(c.Disk, logs, cut); err != nil {
			return err
		}
	}
	if err := syncTree(c.Disk, dir); err != nil {
		return err
	}
	return c.Disk.Err()
}

// renameHostFolder gives dragonboat's data folder the name of the present host. A container that is
// created again under another name is still the same member.
func renameHostFolder(d Disk, dir string) error {
	host, err := os.Hostname()
	if err != nil {
		return err
	}
	folders, err := subfolders(d, dir)
	if err != nil {
		return err
	}
	switch {
	case len(folders) == 0 || len(folders) == 1 && folders[0] == host:
		return nil
	case len(folders) > 1:
		return fmt.Errorf("%w: %s must hold one folder, it holds %v: remove those that do not belong there", ErrLog, dir, folders)
	}
	if err := d.Rename(filepath.Join(dir, folders[0]), filepath.Join(dir, host)); err != nil {
		return err
	}
	return syncDir(d, dir)
}

func subfolders(d Disk, dir string) ([]string, error) {
	names, err := d.List(dir)
	if err != nil {
		return nil, err
	}
	var folders []string
	for _, name := range names {
		info, err := d.Stat(filepath.Join(dir, name))
		if err != nil {
			return nil, err
		}
		if info.IsDir() {
			folders = append(folders, name)
		}
	}
	return folders, nil
}

// syncTree fsyncs every file and directory below dir. After a kill the log may end in entries that
// were written but never synced. tan reads them from the page cache and never syncs that file
// again. Without syncTree they would be acknowledged, and a power cut could still lose them.
func syncTree(d Disk, dir string) error {
	names, err := d.List(dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		name = filepath.Join(dir, name)
		info, err := d.Stat(name)
		if err != nil {
			return err
		}
		if info.IsDir() {
			err = syncTree(d, name)
		} else {
			err = syncFile(d, name)
		}
		if err != nil {
			return err
		}
	}
	return syncDir(d, dir)
}

func syncFile(d Disk, name string) (err error) {
	f, err := d.OpenForAppend(name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return f.Sync()
}
