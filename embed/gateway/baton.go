package gateway

import "sync/atomic"

// A baton is the right to write to a connection. One goroutine holds it at a time.
//
// A goroutine with something to send picks the baton up if it is free. If it is held, the goroutine
// marks it as wanted and goes on with its own work. The holder then looks once more for something
// to send before it puts the baton down. So nobody waits for the baton, and it may be asked for
// under any lock. The package doc draws the states.
type baton struct{ state atomic.Uint32 }

// The states of a baton. Every step from one to another is atomic.
const (
	batonFree     uint32 = iota // nobody sends
	batonHeld                   // the holder sends
	batonWanted                 // held, and there may be more to send than the holder has seen
	batonRetiring               // the connection ends; the holder is the last one
	batonRetired                // nobody sends any more
)

// pickUp reports whether the caller has the baton now. If somebody else holds it, the holder will
// look again.
func (b *baton) pickUp() bool {
	for {
		switch b.state.Load() {
		case batonFree:
			if b.state.CompareAndSwap(batonFree, batonHeld) {
				return true
			}
		case batonHeld:
			if b.state.CompareAndSwap(batonHeld, batonWanted) {
				return false
			}
		default:
			return false
		}
	}
}

// putDown is for the holder, after it has seen nothing to send. If again is true, the caller still
// holds the baton and has to look once more. If retiring is true, the caller still holds the baton
// and has to retire it.
func (b *baton) putDown() (again, retiring bool) {
	switch {
	case b.state.CompareAndSwap(batonHeld, batonFree):
		return false, false
	case b.state.CompareAndSwap(batonWanted, batonHeld):
		return true, false
	}
	return false, true
}

// retire makes the current holder the last one. If nobody holds the baton, it is retired at once.
func (b *baton) retire() {
	for {
		was, next := b.state.Load(), uint32(batonRetiring)
		switch was {
		case batonFree:
			next = batonRetired
		case batonRetiring, batonRetired:
			return
		}
		if b.state.CompareAndSwap(was, next) {
			return
		}
	}
}

// retireHeld is for the holder: it retires the baton.
func (b *baton) retireHeld() { b.state.Store(batonRetired) }

func (b *baton) retired() bool { return b.state.Load() == batonRetired }
