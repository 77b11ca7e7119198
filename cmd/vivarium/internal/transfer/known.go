package transfer

import (
	"maps"
	"slices"
	"sync"
)

// A known is what of the source is at the target. It is safe for concurrent use.
type known struct {
	mu      sync.Mutex
	entries map[string]*entry
	births  int64
}

// An entry is a znode that this copy has created at the target, or made like the source's.
type entry struct {
	stamp
	born     int64           // never the same for two entries of a name
	children map[string]bool // names
}

func newKnown() *known { return &known{entries: make(map[string]*entry)} }

// get returns the stamp of what was copied, which may be zero.
func (k *known) get(name string) (s stamp, ok bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	e, ok := k.entries[name]
	if !ok {
		return stamp{}, false
	}
	return e.stamp, true
}

// born returns a number that changes when a name is forgotten. It is zero if the name is not known.
func (k *known) born(name string) int64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	if e := k.entries[name]; e != nil {
		return e.born
	}
	return 0
}

// put records a znode.
func (k *known) put(name string, s stamp) {
	k.mu.Lock()
	defer k.mu.Unlock()
	e := k.entries[name]
	if e == nil {
		k.births++
		e = &entry{born: k.births}
		k.entries[name] = e
	}
	e.stamp = s
	if name == "" {
		return
	}
	// If the parent was forgotten meanwhile, the walk that follows puts both again.
	if up := k.entries[parent(name)]; up != nil {
		if up.children == nil {
			up.children = make(map[string]bool)
		}
		up.children[name] = true
	}
}

// children returns the names of the known children, sorted.
func (k *known) children(name string) []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	e := k.entries[name]
	if e == nil {
		return nil
	}
	return slices.Sorted(maps.Keys(e.children))
}

// forget removes a znode and all below it.
func (k *known) forget(name string) { k.forgetIf(name, k.born(name)) }

// forgetIf forgets a name if it is known, and still the one that was born then.
func (k *known) forgetIf(name string, born int64) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if e := k.entries[name]; e == nil || e.born != born {
		return false
	}
	if name != "" {
		if up := k.entries[parent(name)]; up != nil {
			delete(up.children, name)
		}
	}
	k.drop(name)
	return true
}

func (k *known) drop(name string) {
	e := k.entries[name]
	if e == nil {
		return
	}
	delete(k.entries, name)
	for child := range e.children {
		k.drop(child)
	}
}
