package disk

import "os"

const (
	// aheadStep is how many zeros are written behind a log's end at a time. An fsync of what then takes their place has neither
	// blocks nor a size to note, only bytes: it takes two thirds of the time, and one in a thousand pays for the zeros.
	aheadStep = 256 << 10
	// bulky is a write that has enough bytes of its own: zeros before it would double what the disk has to take.
	bulky = 16 << 10
)

var zeros [aheadStep]byte

// writeLog writes to a log, and zeros behind its end if that has reached the end of the zeros there were.
func (f *file) writeLog(real *os.File, p []byte, off int64) error {
	// The zeros must not meet what another writer puts in their place.
	f.node.writer.Lock()
	defer f.node.writer.Unlock()
	if f.d.frozen.Load() {
		return errSwitched
	}
	if _, err := real.WriteAt(p, off); err != nil {
		return err
	}
	f.node.grow(off + int64(len(p))) // not before: zeros would show in its place
	if len(p) >= bulky {
		return nil
	}
	end, wanted := f.node.ahead()
	if !wanted {
		return nil
	}
	_, err := real.WriteAt(zeros[:], end)
	return err
}
