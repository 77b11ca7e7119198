package disk

import "github.com/vivarium-go/vivarium/internal/files"

const (
	// aheadStep is how many zeros are written behind a log's end at a time. When a write replaces
	// zeros, its fsync has no blocks and no size to record, only bytes. Such an fsync takes two
	// thirds of the time. One write in a thousand pays for the zeros.
	aheadStep = 256 << 10
	// bulky is the size from which a write adds no zeros: they would double the bytes it has to
	// write.
	bulky = 16 << 10
)

var zeros [aheadStep]byte

// writeLog writes to a log. If the write has used up the zeros behind the log's end, writeLog adds
// more.
func (f *file) writeLog(real files.File, p []byte, off int64) error {
	// The zeros must not overwrite the bytes of another writer.
	f.node.writer.Lock()
	defer f.node.writer.Unlock()
	if f.d.frozen.Load() {
		return errSwitched
	}
	if _, err := real.WriteAt(p, off); err != nil {
		return err
	}
	f.node.grow(off + int64(len(p))) // after the write, or a reader would see zeros in its place
	if len(p) >= bulky {
		return nil
	}
	end, wanted := f.node.ahead()
	if !wanted {
		return nil
	}
	if _, err := real.WriteAt(zeros[:], end); err != nil && !isLack(err) {
		return err
	}
	return nil // also without room for zeros: p is written
}
