package backup

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/engine/backupfile"
)

// ErrOther says that a file is not known for an older backup of the same ensemble, so it is not
// replaced.
var ErrOther = errors.New("what is there is not known for a backup of this ensemble: remove it, or take another name")

// Save has write write a backup, and gives it a name. It replaces a regular file whose header says
// that it is a backup of an ensemble of the same name, or that has no byte. It replaces nothing
// else: no backup that this build cannot read, no link, no FIFO. At no moment does the name belong to less than a whole backup on the
// disk. Save writes a file beside it, syncs it, reads it again with Verify, and only then renames it.
// If it fails before that, an older file of the name stays as it was, and nothing else is left. If it
// fails to make the new name durable, the new file stays. If the process dies, a file stays whose
// name begins with this one and ".tmp-". Only its owner may read the file.
//
//	info, err := backup.Save("orders.backup", func(w io.Writer) error {
//		_, err := node.Backup(ctx, w)
//		return err
//	})
//
// Errors: ErrOther, and those of write, of Verify, and of the file system.
func Save(name string, write func(w io.Writer) error) (info embed.BackupInfo, err error) {
	return save(name, write, func(file string, info embed.BackupInfo) error {
		if err := mayReplace(name, info); err != nil {
			return err
		}
		return os.Rename(file, name)
	})
}

// mayReplace returns ErrOther unless nothing is lost with a file: there is none, it has no byte, or it
// is known for a backup of the same ensemble. Damage behind the header makes it no worse to lose.
func mayReplace(name string, info embed.BackupInfo) error {
	there, err := os.Lstat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case !there.Mode().IsRegular():
		return fmt.Errorf("%s: %w", name, ErrOther)
	case there.Size() == 0:
		return nil
	}
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	switch r, err := backupfile.NewReader(f); {
	case err != nil:
		return fmt.Errorf("%s: %w: %w", name, ErrOther, err)
	case r.Header.Ensemble != info.Ensemble:
		return fmt.Errorf("%s: %w", name, ErrOther)
	}
	return nil
}

// SaveNew is Save for a name that may depend on what the backup is. It replaces no file: if there is
// one with that name, the error matches fs.ErrExist. Until then the file is beside draft, which is
// never created, and has its name with ".tmp-".
func SaveNew(draft string, write func(w io.Writer) error, name func(embed.BackupInfo) string) (info embed.BackupInfo, err error) {
	return save(draft, write, func(file string, info embed.BackupInfo) error {
		return rename(file, filepath.Join(filepath.Dir(draft), name(info)))
	})
}

// rename gives a file a name that no file has. A second process may find the name free at the same
// time, so a look before os.Rename is not enough, unless the file system has no hard links.
func rename(file, name string) error {
	err := os.Link(file, name)
	switch {
	case err == nil:
		_ = os.Remove(file) // it has its name; the other one is a leftover like those of a crash
		return nil
	case errors.Is(err, fs.ErrExist):
		return err
	}
	if _, err := os.Lstat(name); err == nil {
		return fmt.Errorf("%s: %w", name, fs.ErrExist)
	}
	return os.Rename(file, name)
}

// save writes a backup beside a name, and has place give it one.
func save(name string, write func(w io.Writer) error, place func(file string, info embed.BackupInfo) error) (info embed.BackupInfo, err error) {
	// CreateTemp lets nobody else read the file.
	f, err := os.CreateTemp(filepath.Dir(name), filepath.Base(name)+".tmp-*")
	if err != nil {
		return info, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.Close(), os.Remove(f.Name()))
		}
	}()
	if err := write(f); err != nil {
		return info, err
	}
	if err := f.Sync(); err != nil {
		return info, err
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return info, err
	}
	if info, err = Verify(f); err != nil {
		return info, fmt.Errorf("the file was read again: %w", err)
	}
	if err := place(f.Name(), info); err != nil {
		return embed.BackupInfo{}, err // nobody has this backup
	}
	return info, errors.Join(f.Close(), syncDir(filepath.Dir(name)))
}

// syncDir makes a new name durable, where the file system can sync a directory.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	err = d.Sync()
	if errors.Is(err, syscall.EINVAL) || errors.Is(err, errors.ErrUnsupported) {
		err = nil
	}
	return errors.Join(err, d.Close())
}
