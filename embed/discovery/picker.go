package discovery

import (
	"math/rand/v2"
	"sync/atomic"
)

// A Picker chooses one of some instances, of which there is at least one. The list is the Picker's.
// It may be called by any number of goroutines.
type Picker func([]Instance) Instance

// RoundRobin returns a Picker that takes one instance after the other.
func RoundRobin() Picker {
	var calls atomic.Uint64
	return func(list []Instance) Instance { return list[(calls.Add(1)-1)%uint64(len(list))] }
}

// Random is a Picker that takes each instance with the same probability.
func Random(list []Instance) Instance { return list[rand.N(len(list))] }

// Sticky returns a Picker that keeps what p has chosen for as long as it is among the instances. It
// shows the instance's newest fields.
func Sticky(p Picker) Picker {
	var kept atomic.Pointer[string]
	return func(list []Instance) Instance {
		if id := kept.Load(); id != nil {
			for _, in := range list {
				if in.ID == *id {
					return in
				}
			}
		}
		in := p(list)
		kept.Store(&in.ID)
		return in
	}
}
