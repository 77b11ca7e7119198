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
