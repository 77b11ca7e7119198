package disk

import (
	"errors"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/vivarium-go/vivarium/internal/meter"
)

// Fail throws the switch by hand. The first cause wins; a nil cause is replaced by a general one.
// The functions given to OnFail run on this goroutine before Fail returns, unless another goroutine
// is already throwing the switch.
func (d *Disk) Fail(cause error) {
	if cause == nil {
		cause = errors.New("disk failed for an unknown reason")
	}
	d.mu.Lock()
	if d.mu.cause != nil {
		d.mu.Unlock()
		return
	}
	d.mu.cause = cause
	hooks := d.mu.onFail
	d.mu.onFail = nil
	d.frozen.Store(true)
	close(d.thrown)
	d.mu.Unlock()
	for _, hook := range hooks {
		hook()
	}
	close(d.failed)
}

// Failed returns a channel that is closed after the switch was thrown and all OnFail functions have
// returned.
func (d *Disk) Failed() <-chan struct{} { return d.failed }

// Err returns why the switch was thrown, or nil if it was not.
func (d *Disk) Err() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.mu.cause
}

// OnFail registers fn to be called once when the switch is thrown. fn runs before Failed is closed,
// and so before any write that took effect in memory returns. If the switch was already thrown,
// OnFail calls fn at once. fn must not block, and must not change anything through this Disk: such
// a call waits for Failed. Functions are called in the order of registration.
func (d *Disk) OnFail(fn func()) {
	d.mu.Lock()
	if d.mu.cause == nil {
		d.mu.onFail = append(d.mu.onFail, fn)
		fn = nil
	}
	d.mu.Unlock()
	if fn != nil {
		fn()
	}
}

// SetFault injects faults, for tests. fn is called before every mutating call that would reach the
// disk. If it returns an error, the call fails with that error. A nil fn removes it.
func (d *Disk) SetFault(fn func(op Op, name string) error) { set(&d.fault, fn) }

// SetReadFault is SetFault for the calls that read.
func (d *Disk) SetReadFault(fn func(op Op, name string) error) { set(&d.readFault, fn) }

func set(seam *atomic.Pointer[func(Op, string) error], fn func(Op, string) error) {
	if fn == nil {
		seam.Store(nil)
		return
	}
	seam.Store(&fn)
}

// ask consults the function of SetFault about a call that changes something. askRead consults that
// of SetReadFault about a call that reads.
func (d *Disk) ask(op Op, name string) error     { return asked(d.fault.Load(), op, name) }
func (d *Disk) askRead(op Op, name string) error { return asked(d.readFault.Load(), op, name) }

func asked(fn *func(Op, string) error, op Op, name string) error {
	if fn == nil {
		return nil
	}
	if err := (*fn)(op, name); err != nil {
		return &os.PathError{Op: op.String(), Path: name, Err: err}
	}
	return nil
}

// awaitFailed waits until Failed is closed. Code that reports a write which only memory has must
// find Failed closed.
func (d *Disk) awaitFailed() {
	if !d.view {
		<-d.failed
	}
}

// errSwitched ends a call of several steps that found the switch thrown between two of them.
var errSwitched = errors.New("the switch was thrown meanwhile")

// enter reports whether a mutating call may go to the real directory. If so, the caller must call
// leave afterwards.
func (d *Disk) enter() bool {
	d.busy.Add(1)
	if d.frozen.Load() {
		d.busy.Add(-1)
		return false
	}
	return true
}

func (d *Disk) leave() { d.busy.Add(-1) }

// Quiet reports whether this Disk can no longer reach the real directory: the switch was thrown,
// and every call that was in progress at that time has returned.
func (d *Disk) Quiet() bool { return d.frozen.Load() && d.busy.Load() == 0 }

// A change is a mutating call in its two forms, real and in memory.
type change struct {
	op   Op
	name string
	old  string // the other name, for a call that has two
	real func() error
	mem  func() error
	// answers are errors that answer the question for this call, in addition to the usual ones.
	answers []error
	// spare means that nothing depends on the change, so a failure of it is its caller's alone.
	spare bool
	// landed reports whether real, which has just failed, took effect all the same. If so, nothing
	// is left to do. It is nil if mem may repeat what real has done.
	landed func() bool
	seen   *meter.Histogram // of how long real takes, if it is a sync
}

// do makes a change, for real or in memory.
func (d *Disk) do(c change) error {
	if !d.enter() {
		d.awaitFailed()
		return c.mem()
	}
	err, refused := d.attempt(c)
	d.leave()
	switch {
	case err == nil:
		return nil
	case !refused && (isAnswer(err, c.answers...) || c.spare && !errors.Is(err, errSwitched) && !errors.Is(err, ErrRemoved)):
		if !d.frozen.Load() {
			return err
		}
		// The disk lacks the file, but it may have been created in memory meanwhile.
		d.awaitFailed()
		return c.mem()
	case !errors.Is(err, errSwitched):
		d.Fail(err)
		if !refused && c.landed != nil && c.landed() {
			d.awaitFailed()
			return nil
		}
	}
	d.awaitFailed()
	return c.mem()
}

// attempt makes a change for real. refused reports that the fault function refused it, which always
// counts as a failure.
func (d *Disk) attempt(c change) (err error, refused bool) {
	try := func() error {
		ask := d.ask
		if c.op.Reads() {
			ask = d.askRead
		}
		if err := ask(c.op, c.name); err != nil {
			refused = true
			return err
		}
		refused = false
		return c.real()
	}
	if c.op == OpSync || c.op == OpSyncDir {
		// Never repeated: the kernel has forgotten what it could not write, and the next fsync
		// succeeds.
		began := time.Now()
		if err := try(); err != nil {
			return unsynced{err}, refused
		}
		if c.seen != nil {
			c.seen.Observe(time.Since(began))
		}
		return nil, false
	}
	err = d.patiently(true, try)
	if err != nil && !refused {
		err = d.blame(err, c.name, c.old)
	}
	return err, refused
}

// isAnswer reports whether err answers the question, rather than showing that the disk is broken.
func isAnswer(err error, more ...error) bool {
	for _, answer := range answers {
		if errors.Is(err, answer) {
			return true
		}
	}
	for _, answer := range more {
		if errors.Is(err, answer) {
			return true
		}
	}
	return false
}

var answers = [...]error{
	os.ErrNotExist, os.ErrExist, os.ErrClosed, ErrLocked,
	syscall.ENOTEMPTY, syscall.ENOTDIR, syscall.EISDIR, syscall.ENAMETOOLONG,
}
