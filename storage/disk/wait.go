package disk

import (
	"errors"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/vivarium-go/vivarium/internal/rank"
)

// lack is the state of calls that wait for room on the disk or for file descriptors.
type lack struct {
	mu struct {
		rank.Mutex[rank.Lack]
		patience time.Duration
		changed  chan struct{} // closed and replaced when patience changes
		waiting  int           // number of calls that wait
		lacking  error         // the newest news: what is lacking, or nil
		told     bool          // the listener was told last that something is lacking
		telling  bool          // a goroutine tells the listener
	}
	listener atomic.Pointer[func(error)]
}

// lookAgain is how long a waiting call pauses before it is repeated.
const lookAgain = 20 * time.Millisecond

// Patience sets how long a call waits for room on the disk or for a file descriptor, before the
// lack counts as a failure. Zero, the value after Open, means no wait. It also applies to calls
// that wait already. The package comment says which calls wait and which cannot.
func (d *Disk) Patience(p time.Duration) {
	d.lack.mu.Lock()
	defer d.lack.mu.Unlock()
	d.lack.mu.patience = p
	close(d.lack.mu.changed)
	d.lack.mu.changed = make(chan struct{})
}

// OnWait registers fn to be told about waiting. When a first call begins to wait, fn receives what
// is lacking. When no call waits any more, fn receives nil, unless the node fails for the lack. The
// calls of fn come one at a time, and the newest news comes last. fn must not use this Disk.
func (d *Disk) OnWait(fn func(lacking error)) { d.lack.listener.Store(&fn) }

// isLack reports whether err is a lack that others may end. A call that failed with such an error
// has changed nothing, or has written part of its bytes, which it will write again.
func isLack(err error) bool {
	for _, lacking := range [...]error{syscall.ENOSPC, syscall.EDQUOT, syscall.EMFILE, syscall.ENFILE} {
		if errors.Is(err, lacking) {
			return true
		}
	}
	return false
}

// patiently makes a call, and repeats it while it fails for a lack. It returns the last error when
// the patience ends, and errSwitched when the switch is thrown. If fatal, the caller throws the
// switch for a lack that is returned.
func (d *Disk) patiently(fatal bool, call func() error) (err error) {
	err = call()
	if !isLack(err) || d.frozen.Load() {
		return err
	}
	if p, _ := d.patience(); p <= 0 {
		return err
	}
	d.beginWait(err)
	defer func() { d.endWait(fatal && isLack(err) || errors.Is(err, errSwitched)) }()
	for began := time.Now(); isLack(err) && d.waitUntil(began); {
		if d.frozen.Load() {
			return errSwitched
		}
		err = call()
	}
	return err
}

// waitUntil waits a moment. It reports false if there is no patience left.
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

// beginWait records that a call begins to wait.
func (d *Disk) beginWait(lacking error) {
	d.lack.mu.Lock()
	defer d.lack.mu.Unlock()
	if d.lack.mu.waiting++; d.lack.mu.waiting == 1 {
		d.tellLocked(lacking)
	}
}

// endWait records that a call no longer waits. If the node fails for it, nobody is told.
func (d *Disk) endWait(fails bool) {
	d.lack.mu.Lock()
	defer d.lack.mu.Unlock()
	if d.lack.mu.waiting--; d.lack.mu.waiting == 0 && !fails {
		d.tellLocked(nil)
	}
}

// tellLocked tells the listener, without the lock. If another goroutine is telling it, that one goes
// on with the news: otherwise the end of an older lack could be told after the beginning of a newer
// one.
func (d *Disk) tellLocked(lacking error) {
	m := &d.lack.mu
	m.lacking = lacking
	if m.telling {
		return
	}
	m.telling = true
	for m.told != (m.lacking != nil) {
		news := m.lacking
		m.told = news != nil
		m.Unlock()
		if fn := d.lack.listener.Load(); fn != nil {
			(*fn)(news)
		}
		m.Lock()
	}
	m.telling = false
}
