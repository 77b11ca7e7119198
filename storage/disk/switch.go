package disk

import (
	"errors"
	"os"
	"sync/atomic"
	"syscall"
)

// Fail throws the switch by hand. The first cause wins; a nil cause is replaced by a nameless one. The
// functions given to OnFail run before Fail returns, on this goroutine, unless another one is throwing the
// switch already.
func (d *Disk) Fail(cause error) {
	if cause == nil {
		cause = errors.New("disk given up")
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

// Failed is closed once the switch was thrown and the functions given to OnFail have returned.
func (d *Disk) Failed() <-chan struct{} { return d.failed }

// Err returns why the switch was thrown, nil if it was not.
func (d *Disk) Err() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.mu.cause
}

// OnFail has fn called once when the switch is thrown, before Failed is closed and before any write that took
// effect in memory returns; if the switch was thrown already, fn is called at once. It must not block and must
// not change anything through this Disk: such a call waits for Failed. Several functions are called in
// the order in which they came.
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

// SetFault is a seam for tests: fn is asked before every mutating call that would reach the disk, and what it
// returns, if not nil, is how that call fails. nil takes it away.
func (d *Disk) SetFault(fn func(op Op, name string) error) { set(&d.fault, fn) }

// SetReadFault is SetFault for the calls that read.
func (d *Disk) SetReadFault(fn func(op Op, name string) error) { set(&d.bad, fn) }

func set(seam *atomic.Pointer[func(Op, string) error], fn func(Op, string) error) {
	if fn == nil {
		seam.Store(nil)
		return
	}
	seam.Store(&fn)
}

// ask asks the fault seam about a call that changes something, askRead about one that reads.
func (d *Disk) ask(op Op, name string) error     { return asked(d.fault.Load(), op, name) }
func (d *Disk) askRead(op Op, name string) error { return asked(d.bad.Load(), op, name) }

func asked(fn *func(Op, string) error, op Op, name string) error {
	if fn == nil {
		return nil
	}
	if err := (*fn)(op, name); err != nil {
		return &os.PathError{Op: op.String(), Path: name, Err: err}
	}
	return nil
}

// awaitFailed returns when everybody who has to has been told of the failure: who acknowledges a write that only
// memory has must find Failed closed.
func (d *Disk) awaitFailed() {
	if !d.view {
		<-d.failed
	}
}

// errSwitched ends the real half of a call of several steps that found the switch thrown between two.
var errSwitched = errors.New("the switch was thrown on the way")

// enter reports whether a mutating call may go to the real directory; then leave follows it.
func (d *Disk) enter() bool {
	d.busy.Add(1)
	if d.frozen.Load() {
		d.busy.Add(-1)
		return false
	}
	return true
}

func (d *Disk) leave() { d.busy.Add(-1) }

// Quiet reports whether nothing of this Disk can reach the real directory any more: the switch was thrown, and every call
// that was on its way by then has returned.
func (d *Disk) Quiet() bool { return d.frozen.Load() && d.busy.Load() == 0 }

// A change is a mutating call in its two forms.
type change struct {
	op   Op
	name string
	old  string // the other name of a call that has two
	real func() error
	mem  func() error
	// answers are refusals besides the usual ones that tell something of the question, not of the disk.
	answers []error
	// lands says that a refusal by mem right after a failure of real means that real took effect after all
	// (the old name is gone because it was renamed), so that nothing is left to do.
	lands bool
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
	case !refused && isAnswer(err, c.answers...):
		if !d.frozen.Load() {
			return err
		}
		// The file that is missing here may have been made in memory while we asked.
		d.awaitFailed()
		return c.mem()
	case !errors.Is(err, errSwitched):
		d.Fail(err)
	}
	d.awaitFailed()
	err = c.mem()
	if c.lands && !refused && isAnswer(err, c.answers...) {
		return nil
	}
	return err
}

// attempt makes a change for real. refused says that it is the seam's word: that is a failure, whatever it is.
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
		return try(), refused // once: what an fsync could not write it has forgotten, and the next succeeds
	}
	err = d.patiently(try)
	if err != nil && !refused {
		err = d.blame(err, c.name, c.old)
	}
	return err, refused
}

// isAnswer reports whether err refuses the question rather than tells of a disk that does not work.
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
