package disk

import (
	"errors"
	"os"
)

// asideStep is how much space a growing file sets aside at a time. A log's fsync then seldom has new blocks to
// note, and a log that stays small costs no more than this.
const asideStep = 4 << 20

// setAside has the disk reserve space for a file that is about to reach end.
func (f *file) setAside(real *os.File, end int64) error {
	if !f.setsAside || f.d.noPrealloc.Load() {
		return nil
	}
	f.mu.Lock()
	from := f.mu.aside
	if end > from {
		f.mu.aside += (end - from + asideStep - 1) / asideStep * asideStep
	}
	to := f.mu.aside
	f.mu.Unlock()
	if to == from {
		return nil
	}
	if err := f.d.ask(OpPreallocate, f.name); err != nil {
		return err
	}
	err := fallocate(real, from, to-from)
	if errors.Is(err, errors.ErrUnsupported) {
		f.d.noPrealloc.Store(true)
		return nil
	}
	return named("preallocate", f.name, err)
}

// giveBack frees what was set aside and not needed. It is a courtesy: if it cannot be done, or nobody closed the file, the
// space goes with the file.
func (f *file) giveBack(real *os.File) {
	f.mu.Lock()
	aside := f.mu.aside
	f.mu.Unlock()
	if aside == 0 || !f.d.enter() {
		return
	}
	defer f.d.leave()
	if info, err := real.Stat(); err == nil {
		_ = real.Truncate(info.Size())
	}
}
