package disk

import "github.com/vivarium-go/vivarium/internal/meter"

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
