package disk

import (
	"errors"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/vivarium-go/vivarium/internal/rank"
)

// lack is the waiting for what the machine lacks at the moment.
type lack struct {
	mu struct {
		rank.Mutex[rank.Lack]
		patience time.Duration
		changed  chan struct{} // closed and replaced when patience is
	}
	waiting atomic.Int64 // calls
	told    atomic.Pointer[func(error)]
}

// lookAgain is how long a call that waits lets pass before it is made again.
const lookAgain = 20 * time.Millisecond

// Patience says how long a call waits for room on the disk or for a file descriptor, before the lack
// of it is a failure. Zero, as after Open, means not at all. Calls that wait already are held to it too.
// See the package comment for what waits and what cannot.
func (d *Disk) Patience(p time.Duration) {
	d.lack.mu.Lock()
	defer d.lack.mu.Unlock()
	d.lack.mu.patience = p
	close(d.lack.mu.changed)
	d.lack.mu.changed = make(chan struct{})
}

// OnWait has fn told what is lacking when a first call waits, and nil when the last one waits no longer,
// however that ended. It must not use this Disk.
func (d *Disk) OnWait(fn func(lacking error)) { d.lack.told.Store(&fn) }

// isLack reports whether err tells of something that others may give back. A call that ended so changed
// nothing, or wrote a part of its bytes, which it writes again.
func isLack(err error) bool {
	for _, lacking := range [...]error{syscall.ENOSPC, syscall.EDQUOT, syscall.EMFILE, syscall.ENFILE} {
		if errors.Is(err, lacking) {
			return true
		}
	}
	return false
}

// patiently makes a call, and again while it fails for a lack. It ends with the last error when the
// patience does, and with errSwitched when the switch is thrown.
func (d *Disk) patiently(call func() error) error {
	err := call()
	if !isLack(err) || d.frozen.Load() {
		return err
	}
	if p, _ := d.patience(); p <= 0 {
		return err
	}
	if d.lack.waiting.Add(1) == 1 {
		d.tell(err)
	}
	defer func() {
		if d.lack.waiting.Add(-1) == 0 {
			d.tell(nil)
		}
	}()
	for began := time.Now(); isLack(err) && d.waitUntil(began); {
		if d.frozen.Load() {
			return errSwitched
		}
		err = call()
	}
	return err
}

// waitUntil waits a moment and reports whether there was patience for it.
func (d *Disk) waitUntil(began time.Time) bool {
	p, changed := d.patience()
	left := p - time.Since(began)
	if left <= 0 {
		return false
	}
	timer := time.NewTimer(min(lookAgain, left))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-changed:
	case <-d.thrown:
	}
	return true
}

func (d *Disk) patience() (time.Duration, <-chan struct{}) {
	d.lack.mu.Lock()
	defer d.lack.mu.Unlock()
	return d.lack.mu.patience, d.lack.mu.changed
}

func (d *Disk) tell(lacking error) {
	if told := d.lack.told.Load(); told != nil {
		(*told)(lacking)
	}
}
