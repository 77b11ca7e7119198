package disk

import (
	"errors"
	"os"
	"path/filepath"

	"github.com/vivarium-go/vivarium/internal/meter"
)

// Meters time the fsyncs of real files that succeeded.
type Meters struct {
	Log   meter.Histogram // of logs, see Disk.Logs
	Other meter.Histogram // of all other files, without those of directories
}

// Meters returns the meters, which live as long as the Disk.
func (d *Disk) Meters() *Meters { return &d.meters }

// Space returns how many bytes of the directory's file system are free for this process, and how
// many it has. It waits for the file system.
func (d *Disk) Space() (free, size uint64, err error) {
	if err := d.askRead(OpStat, d.dir); err != nil {
		return 0, 0, err
	}
	return d.sys.Space(d.dir)
}

// Usage returns how many bytes the files below a directory of this Disk have, zeros behind the ends
// of logs included. What others remove meanwhile may or may not count. It waits for the file system.
func (d *Disk) Usage(dir string) (bytes uint64, err error) {
	if err := d.askRead(OpStat, dir); err != nil {
		return 0, err
	}
	err = d.addUsage(dir, &bytes)
	return bytes, err
}

// addUsage adds what is below a directory. It follows no links.
func (d *Disk) addUsage(dir string, bytes *uint64) error {
	f, err := d.sys.OpenFile(dir, os.O_RDONLY, 0)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	names, err := f.Readdirnames(-1)
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	for _, name := range names {
		name = filepath.Join(dir, name)
		info, err := d.sys.Lstat(name)
		switch {
		case errors.Is(err, os.ErrNotExist):
		case err != nil:
			return err
		case info.IsDir():
			if err := d.addUsage(name, bytes); err != nil {
				return err
			}
		case info.Mode().IsRegular():
			*bytes += uint64(info.Size())
		}
	}
	return nil
}
