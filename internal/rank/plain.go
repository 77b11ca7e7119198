//go:build !lockrank

package rank

import "sync"

// Checked reports whether this build checks the order of locks.
const Checked = false

// A Mutex is a sync.Mutex at the place L of the order. Its zero value is free.
type Mutex[L any] struct{ sync.Mutex }

// Ordered gives the mutex its order among those of its place. It comes after all on which Ordered
// was called before. Nobody may have locked the mutex yet.
func (*Mutex[L]) Ordered() {}

// An RWMutex is a sync.RWMutex at the place L of the order. Its zero value is free.
type RWMutex[L any] struct{ sync.RWMutex }

// A LongMutex is a Mutex at the place L of the order, for work that waits for a disk. In virtual
// time the clock goes on while a goroutine waits for it. While one waits for a sync.Mutex, the clock
// stands still, and the disk never answers.
type LongMutex[L any] struct{ taken chan struct{} }

// NewLongMutex returns a mutex that is free.
func NewLongMutex[L any]() LongMutex[L] { return LongMutex[L]{make(chan struct{}, 1)} }

// Lock waits until the mutex is free, and acquires it. It returns false, and acquires nothing, if
// the mutex is not free and unless is closed.
func (m *LongMutex[L]) Lock(unless <-chan struct{}) bool {
	select {
	case m.taken <- struct{}{}:
		return true
	default:
	}
	select {
	case m.taken <- struct{}{}:
		return true
	case <-unless:
		return false
	}
}

// Unlock releases the mutex. It panics if the mutex is free.
func (m *LongMutex[L]) Unlock() {
	select {
	case <-m.taken:
	default:
		panic("rank: a LongMutex is released that nobody holds")
	}
}
