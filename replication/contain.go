package replication

import (
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"
)

// errBroken is wrapped by the error that a panic inside guard becomes.
var errBroken = errors.New("broken invariant")

// A brokenError is the logger bridge's panic when dragonboat reports a broken invariant below
// guard. It is an error because NewNodeHost swallows panics that are not.
type brokenError struct{ text string }

func (e *brokenError) Error() string { return e.text }

// guard runs fn. It turns a panic into an error that ends with the stack. It works only for the
// goroutine that calls it.
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

// guardName is guard's name in a stack.
var guardName = func() string {
	pc, _, _, _ := runtime.Caller(0)
	name := runtime.FuncForPC(pc).Name() // <package path>.init or <package path>.init.func1
	slash := strings.LastIndexByte(name, '/')
	dot := strings.IndexByte(name[slash+1:], '.')
	return name[:slash+1+dot] + ".guard"
}()

// guarded reports whether guard is on the stack of the calling goroutine. Only a goroutine that is
// about to be lost asks, so the walk may be slow.
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

// afterWork is called after each piece of work for dragonboat. err is the work's error. Any error
// throws the switch, since dragonboat answers errors with a panic. If the switch is thrown, the
// work may have reached memory only. Nothing may follow from it, so the goroutine waits until the
// shard is stopped. The check comes after the work, because the work itself may throw the switch.
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
