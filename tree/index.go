package tree

import "sync"

// An index finds the entry of a path. Readers take no lock; there is one writer.
type index struct {
	entries sync.Map // string → *entry
}

func (x *index) get(path string) *entry {
	e, ok := x.entries.Load(path)
	if !ok {
		return nil
	}
	return e.(*entry)
}

func (x *index) add(e *entry) { x.entries.Store(e.path, e) }

func (x *index) remove(path string) { x.entries.Delete(path) }

// all returns every entry, in no order.
func (x *index) all() []*entry {
	var all []*entry
	x.entries.Range(func(_, e any) bool {
		all = append(all, e.(*entry))
		return true
	})
	return all
}
