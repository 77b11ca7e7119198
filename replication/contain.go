package replication

import (
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"
)

// errBroken wraps whatever was panicked with inside guard.
var errBroken = errors.New("broken invariant")

// brokenError is what the logger bridge panics with when dragonboat reports a broken invariant on a goroutine
// that guard is on. It is an error because NewNodeHost swallows panics that are not.
type brokenError struct{ text string }

func (e *brokenError) Error() string { return e.text }

// guard runs fn and turns a panic into an error that ends with the stack. It works for the goroutine it is
// called on only.
func guard(fn func() error) (err error) {
	defer func() {
		r := recover()
		if r == nil {
			return
		}
		if broken, ok := r.(*brokenError); ok {
			err = fmt.Errorf("%w: %s", errBroken, broken.text)
			return
		}
		err = fmt.Errorf("%w: %v\n%s", errBroken, r, debug.Stack())
	}()
	return fn()
}

// guardName is how guard appears in a stack.
var guardName = func() string {
	pc, _, _, _ := runtime.Caller(0)
	name := runtime.FuncForPC(pc).Name() // <package path>.init or <package path>.init.func1
	slash := strings.LastIndexByte(name, '/')
	dot := strings.IndexByte(name[slash+1:], '.')
	return name[:slash+1+dot] + ".guard"
}()

// guarded says whether guard is on the stack of the calling goroutine. Only a goroutine that is about to be
// lost asks, so the walk may cost what it likes.
func guarded() bool {
	pcs := make([]uintptr, 256)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(1, pcs)])
	for {
		frame, more := frames.Next()
		if frame.Function == guardName {
			return true
		}
		if !more {
			return false
		}
	}
}

// parking is where the goroutines of a shard wait once the switch is thrown.
type parking struct {
	disk Disk
	stop <-chan struct{} // closed when the shard is stopped; nil before its machine was opened
}

// afterWork is called when a piece of work for dragonboat is done. If the switch is thrown the work may have
// reached memory only: nothing may follow from it, so the goroutine waits until the shard is stopped. It looks
// after the work and not before, because the work itself may throw the switch. err is what the work ended
// with: any error throws the switch, since dragonboat answers errors with a panic.
func (p parking) afterWork(err error) {
	if err != nil {
		p.disk.Fail(err)
	}
	if p.failed() && p.stop != nil {
		<-p.stop
	}
}

func (p parking) failed() bool { return isClosed(p.disk.Failed()) }

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
