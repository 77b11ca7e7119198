//go:build !lockrank

package rank

import "sync"

// Checked says whether the order of locks is checked in this build.
const Checked = false

// A Mutex is a sync.Mutex at the place L of the order. Its zero value is free.
type Mutex[L any] struct{ sync.Mutex }

// Ordered gives the mutex, which nobody has taken yet, its turn among those of its place: behind those
// that were made before.
func (*Mutex[L]) Ordered() {}

// An RWMutex is a sync.RWMutex at the place L of the order. Its zero value is free.
type RWMutex[L any] struct{ sync.RWMutex }
